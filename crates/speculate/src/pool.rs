//! Thread pool: threads that work on a loop together with the thread that called it.
//!
//! A loop takes microseconds, and waking a sleeping thread takes about fifty microseconds. An idle thread therefore spins
//! for a while before it sleeps, and does not sleep while a guard of the program keeps the threads awake.
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
use crate::sync::{Mutex, Spin, TimeLimit};

/// Time that an idle thread spins before it sleeps.
const SPIN_TIME: Duration = Duration::from_micros(200);

/// Bit of [`Shared::guests`] that is set while threads may begin the job.
const OPEN: usize = 1;
/// Part of [`Shared::guests`] for one thread.
const GUEST: usize = 2;

/// Closure that all threads run, each with its own number. The closure lives until [`Pool::broadcast`] returns.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(usize) + Sync));

// SAFETY: the closure is `Sync`, so any thread may call it; `Pool::broadcast` shows that it lives long enough.
unsafe impl Send for Job {}

/// The latest job.
#[derive(Clone, Copy)]
struct AnnouncedJob {
    number: u64,
    /// True for a job of [`Pool::invite`].
    is_invitation: bool,
    job: Option<Job>,
}

/// How a job is announced.
struct Announcement {
    is_invitation: bool,
    /// True if threads that sleep are woken.
    wakes: bool,
}

/// State that the threads share.
struct Shared {
    /// Number of jobs so far. A change of this number announces a new job.
    jobs: CachePadded<AtomicU64>,
    job: Mutex<AnnouncedJob>,
    /// Number of threads, without the calling thread, that have not finished the current job.
    running: CachePadded<AtomicUsize>,
    /// [`OPEN`] while threads may begin the job of [`Pool::invite`], and [`GUEST`] for each thread that has begun it.
    guests: CachePadded<AtomicUsize>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Number of active requests to keep the threads awake.
    awake: AtomicUsize,
    asleep: Box<[AtomicBool]>,
    closing: AtomicBool,
}

/// Pool of threads that wait for jobs.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Process in which the threads run.
    process: Process,
}

impl Pool {
    /// Starts `threads` threads, in addition to the calling thread.
    pub(crate) fn new(threads: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            jobs: CachePadded::default(),
            job: Mutex::new(AnnouncedJob { number: 0, is_invitation: false, job: None }),
            running: CachePadded::default(),
            guests: CachePadded::default(),
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

    /// Returns true if the threads run in the current process. They do not if this process was forked from the one that
    /// started them.
    pub(crate) fn is_here(&self) -> bool {
        self.threads.is_empty() || self.process.is_this()
    }

    /// Runs `job` with number 0 on the calling thread, and with the numbers from 1 on the other threads. Returns after all
    /// threads have finished the job. A panic of any thread is resumed on the calling thread. Only one call can be active at
    /// a time.
    pub(crate) fn broadcast(&mut self, job: &(dyn Fn(usize) + Sync)) {
        if self.threads.is_empty() {
            return job(0);
        }
        self.forget_panic();
        self.shared.running.store(self.threads.len(), Ordering::Relaxed);
        // A thread calls the closure only between its load of `jobs` and its decrement of `running`, for which the guard waits.
        let announcement = Announcement { is_invitation: false, wakes: true };
        self.run_with_threads(job, announcement, JoinGuard(&self.shared));
    }

    /// Announces the job, runs it on the calling thread, and drops `ended`. A panic of any thread is resumed. Dropping `ended`
    /// ends the other threads' use of the closure: it returns when no thread calls the closure and none will.
    fn run_with_threads(&self, job: &(dyn Fn(usize) + Sync), announcement: Announcement, ended: impl Drop) {
        let job_of_any_lifetime: *const (dyn Fn(usize) + Sync + '_) = job;
        // SAFETY: only the lifetime changes. This function returns or unwinds only after `ended` has been dropped, so the
        // closure outlives each call.
        let job_static = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                job_of_any_lifetime,
            )
        };
        self.announce(Job(job_static), announcement);
        job(0);
        drop(ended);
        let panic = self.shared.panic.lock().take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn announce(&self, job: Job, Announcement { is_invitation, wakes }: Announcement) {
        let mut announced = self.shared.job.lock();
        *announced = AnnouncedJob { number: announced.number + 1, is_invitation, job: Some(job) };
        if is_invitation {
            self.shared.guests.fetch_or(OPEN, Ordering::Release);
        }
        // SeqCst, as in `next_job`: either the other thread sees the new number before it sleeps, or this thread sees that
        // it sleeps.
        self.shared.jobs.store(announced.number, Ordering::SeqCst);
        drop(announced);
        if wakes {
            self.wake();
        }
    }

    /// Runs `job` with number 0 on the calling thread, and with the numbers from 1 on those of the other threads that come
    /// before the calling thread has finished. Returns after all threads that have begun the job have finished it: a thread
    /// that does not run delays nobody. Panics as for [`Pool::broadcast`].
    pub(crate) fn invite(&mut self, job: &(dyn Fn(usize) + Sync)) {
        self.invite_those(job, true);
    }

    /// As [`Pool::invite`], without waking threads that sleep.
    pub(crate) fn invite_awake(&mut self, job: &(dyn Fn(usize) + Sync)) {
        self.invite_those(job, false);
    }

    fn invite_those(&mut self, job: &(dyn Fn(usize) + Sync), wakes: bool) {
        if self.threads.is_empty() || !self.is_here() {
            return job(0);
        }
        self.forget_panic();
        // A thread calls the closure only between its increment of `guests`, which fails unless `OPEN` is set, and its
        // decrement. The guard clears `OPEN` and waits until `guests` is 0.
        self.run_with_threads(job, Announcement { is_invitation: true, wakes }, CloseGuard(&self.shared));
    }

    /// Drops the panic of another thread that is left from an earlier job, in which the calling thread has panicked as well.
    fn forget_panic(&self) {
        let panic = self.shared.panic.lock().take();
        panic.into_iter().for_each(discard);
    }

    /// Keeps the threads awake until [`Pool::may_sleep`] has been called the same number of times.
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
            // In a forked process the threads do not exist: they can neither be joined nor release a lock that they hold.
            return self.threads.drain(..).for_each(std::mem::forget);
        }
        self.forget_panic();
        self.shared.closing.store(true, Ordering::SeqCst);
        self.wake();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // Joining returns no panic, because a thread catches the panics of its jobs.
            let _ = thread.join();
        }
    }
}

/// Guard that, on drop, closes the invitation and waits for the threads that have begun its job.
struct CloseGuard<'a>(&'a Shared);

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        let mut guests = self.0.guests.fetch_and(!OPEN, Ordering::AcqRel) & !OPEN;
        let mut spin = Spin::default();
        while guests != 0 {
            spin.pause();
            guests = self.0.guests.load(Ordering::Acquire);
        }
    }
}

/// Guard that waits, on drop, until all other threads have finished the job.
struct JoinGuard<'a>(&'a Shared);

impl Drop for JoinGuard<'_> {
    fn drop(&mut self) {
        let mut spin = Spin::default();
        while self.0.running.load(Ordering::Acquire) > 0 {
            spin.pause();
        }
    }
}

/// Runs jobs as thread number `number` until the pool is dropped.
fn serve(shared: &Shared, number: usize) {
    let mut done = 0;
    while next_job(shared, number, done) {
        let (at, job) = {
            let announced = shared.job.lock();
            // Under the mutex, so that the thread becomes a guest of this invitation and of no later one.
            let takes_part = !announced.is_invitation || become_guest(shared);
            (*announced, announced.job.filter(|_| takes_part))
        };
        done = at.number;
        let Some(Job(job)) = job else { continue };
        // SAFETY: `running` counts this thread, or `guests` does, so the call that lent the closure has not returned.
        let job = unsafe { &*job };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(number + 1))) {
            // Only the first panic is reported.
            let mut first_panic = shared.panic.lock();
            match &*first_panic {
                None => *first_panic = Some(panic),
                Some(_) => {
                    drop(first_panic);
                    discard(panic);
                }
            }
        }
        if at.is_invitation {
            shared.guests.fetch_sub(GUEST, Ordering::Release);
        } else {
            shared.running.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Counts the calling thread among those that run the invitation's job. Returns false if the invitation is closed.
fn become_guest(shared: &Shared) -> bool {
    let enter = |guests: usize| (guests & OPEN != 0).then_some(guests + GUEST);
    shared.guests.fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter).is_ok()
}

/// Waits until the number of the latest job differs from `done`. Returns false when the pool is dropped.
fn next_job(shared: &Shared, number: usize, done: u64) -> bool {
    let time_limit = TimeLimit::begin(SPIN_TIME, 3);
    let mut spin = Spin::default();
    loop {
        let jobs = shared.jobs.load(Ordering::Acquire);
        if jobs != done {
            return true;
        }
        if shared.closing.load(Ordering::Relaxed) {
            return false;
        }
        spin.pause();
        if spin.is_long() && shared.awake.load(Ordering::Relaxed) == 0 && time_limit.is_over() {
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
    fn an_invited_thread_that_comes_late_delays_nobody() {
        let mut pool = Pool::new(3).unwrap();
        for round in 0..500 {
            let (entered, left) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let job = |_: usize| {
                entered.fetch_add(1, Ordering::Relaxed);
                if round % 7 == 0 {
                    thread::yield_now();
                }
                left.fetch_add(1, Ordering::Relaxed);
            };
            if round % 5 == 0 {
                pool.broadcast(&job);
                assert_eq!(left.load(Ordering::Relaxed), 4);
            } else {
                pool.invite(&job);
            }
            assert_eq!(entered.into_inner(), left.into_inner());
        }
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
