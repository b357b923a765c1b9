//! Threads that work on a loop together with the thread that runs it.
//!
//! A loop is over in microseconds, and to wake a sleeping thread takes fifty of them. So a thread that has worked spins
//! for a while, and as long as the program says that more loops will come, before it sleeps.
#![allow(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::fork::Process;
use crate::quiet::discard;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::thread::{self, JoinHandle, Thread};
use crate::sync::{Mutex, Patience, Spin};

/// How long a thread without work spins.
const PATIENCE: Duration = Duration::from_micros(200);

/// A closure that all threads run, each with its number. It lives as long as [`Pool::broadcast`] runs.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(usize) + Sync));

// SAFETY: the closure is `Sync`, so it may be called from any thread; when it lives is shown in `Pool::broadcast`.
unsafe impl Send for Job {}

/// What the threads share.
struct Shared {
    /// Counts the jobs: a thread that sees it move has a new one.
    jobs: CachePadded<AtomicU64>,
    job: Mutex<Option<Job>>,
    /// Threads, the calling one left out, that have not finished the job.
    running: CachePadded<AtomicUsize>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// How many times the program has asked the threads to stay awake.
    awake: AtomicUsize,
    asleep: Box<[AtomicBool]>,
    closing: AtomicBool,
}

/// Threads that wait for jobs.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The process that has the threads.
    process: Process,
}

impl Pool {
    /// A pool of `threads` threads besides those that call it.
    pub(crate) fn new(threads: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            jobs: CachePadded::default(),
            job: Mutex::new(None),
            running: CachePadded::default(),
            panic: Mutex::new(None),
            awake: AtomicUsize::new(0),
            asleep: (0..threads).map(|_| AtomicBool::new(false)).collect(),
            closing: AtomicBool::new(false),
        });
        let mut pool = Pool { shared, threads: Vec::with_capacity(threads), process: Process::this() };
        for i in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let name = format!("speculate {}", i + 1);
            pool.threads.push(thread::Builder::new().name(name).spawn(move || serve(&shared, i))?);
        }
        Ok(pool)
    }

    /// Whether its threads are in this process, and not in one from which this one was forked.
    pub(crate) fn is_here(&self) -> bool {
        self.threads.is_empty() || self.process.is_this()
    }

    /// Runs `job` in the calling thread, as number 0, and in all others, as 1 and so on; returns when all have ended. A
    /// panic of any of them goes on here. One call at a time.
    pub(crate) fn broadcast(&mut self, job: &(dyn Fn(usize) + Sync)) {
        if self.threads.is_empty() {
            return job(0);
        }
        let job_of_any_lifetime: *const (dyn Fn(usize) + Sync + '_) = job;
        // SAFETY: only the lifetime changes. A thread calls the closure only between its reading of `jobs` and its
        // decrement of `running`, and this function returns or unwinds only after `running` has come to 0
        // (`AllEnded`), so the closure outlives each call.
        let job_static = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                job_of_any_lifetime,
            )
        };
        self.forget_panic();
        *self.shared.job.lock() = Some(Job(job_static));
        self.shared.running.store(self.threads.len(), Ordering::Relaxed);
        // SeqCst, as in `serve`: either the thread sees the new number before it sleeps, or it is seen asleep here.
        self.shared.jobs.fetch_add(1, Ordering::SeqCst);
        self.wake();
        let ended = AllEnded(&self.shared);
        job(0);
        drop(ended);
        let panic = self.shared.panic.lock().take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Drops the panic of a thread in a job in which the calling thread has panicked as well.
    fn forget_panic(&self) {
        let panic = self.shared.panic.lock().take();
        panic.into_iter().for_each(discard);
    }

    /// Keeps the threads awake until [`Pool::may_sleep`] has been called as often.
    pub(crate) fn stay_awake(&self) {
        self.shared.awake.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn may_sleep(&self) {
        self.shared.awake.fetch_sub(1, Ordering::Relaxed);
    }

    fn wake(&self) {
        for (asleep, thread) in self.shared.asleep.iter().zip(&self.threads) {
            if asleep.load(Ordering::SeqCst) {
                Thread::unpark(thread.thread());
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_here() {
            // They can neither be joined nor hold a lock that will be given back.
            return self.threads.drain(..).for_each(std::mem::forget);
        }
        self.forget_panic();
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A thread catches the panics of its jobs.
            let _ = thread.join();
        }
    }
}

/// Waits, when it is dropped, until all other threads have ended the job.
struct AllEnded<'a>(&'a Shared);

impl Drop for AllEnded<'_> {
    fn drop(&mut self) {
        let mut spin = Spin::default();
        while self.0.running.load(Ordering::Acquire) > 0 {
            spin.pause();
        }
    }
}

/// What a thread does until the pool is dropped.
fn serve(shared: &Shared, number: usize) {
    let mut done = 0;
    loop {
        let Some(jobs) = next_job(shared, number, done) else { return };
        done = jobs;
        let job = *shared.job.lock();
        if let Some(Job(job)) = job {
            // SAFETY: `running` counts this thread, so the `broadcast` that lent the closure still runs.
            let job = unsafe { &*job };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(number + 1))) {
                // The first is told.
                let mut told = shared.panic.lock();
                match &*told {
                    None => *told = Some(panic),
                    Some(_) => {
                        drop(told);
                        discard(panic);
                    }
                }
            }
        }
        shared.running.fetch_sub(1, Ordering::Release);
    }
}

/// Waits for another job than the one numbered `done`; `None` when the pool is dropped.
fn next_job(shared: &Shared, number: usize, done: u64) -> Option<u64> {
    let patience = Patience::begin(PATIENCE, 3);
    let mut spin = Spin::default();
    loop {
        let jobs = shared.jobs.load(Ordering::Acquire);
        if jobs != done {
            return Some(jobs);
        }
        if shared.closing.load(Ordering::Relaxed) {
            return None;
        }
        spin.pause();
        if spin.is_long() && shared.awake.load(Ordering::Relaxed) == 0 && patience.is_over() {
            let asleep = &shared.asleep[number];
            asleep.store(true, Ordering::SeqCst);
            let idle = || {
                shared.jobs.load(Ordering::SeqCst) == done
                    && !shared.closing.load(Ordering::SeqCst)
                    && shared.awake.load(Ordering::SeqCst) == 0
            };
            while idle() {
                thread::park();
            }
            asleep.store(false, Ordering::Relaxed);
            spin = Spin::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_run_each_job_once() {
        let mut pool = Pool::new(3).unwrap();
        for round in 0..200 {
            let seen: [AtomicUsize; 4] = Default::default();
            pool.broadcast(&|number| {
                seen[number].fetch_add(round, Ordering::Relaxed);
            });
            assert_eq!(seen.map(AtomicUsize::into_inner), [round; 4]);
        }
    }

    #[test]
    fn a_panic_goes_on_in_the_caller_after_all_have_ended() {
        let mut pool = Pool::new(2).unwrap();
        for of in 0..3 {
            let ended = AtomicUsize::new(0);
            let panic = catch_unwind(AssertUnwindSafe(|| {
                pool.broadcast(&|number| {
                    if number == of {
                        resume_unwind(Box::new(number));
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }));
            assert_eq!(panic.unwrap_err().downcast_ref(), Some(&of));
            assert_eq!(ended.into_inner(), 2);
        }
        pool.broadcast(&|_| ());
    }

    #[test]
    fn threads_that_sleep_are_woken() {
        let mut pool = Pool::new(1).unwrap();
        pool.broadcast(&|_| ());
        while !pool.shared.asleep[0].load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let count = AtomicUsize::new(0);
        pool.broadcast(&|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 2);
        pool.stay_awake();
        while pool.shared.asleep[0].load(Ordering::Relaxed) {
            thread::yield_now();
        }
        pool.may_sleep();
    }
}
