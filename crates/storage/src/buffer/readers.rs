//! Threads that read pages for others: all pages of a group at the same time, and under a cooperative hook every page,
//! because a read that waits for a device would stop all fibers of the thread.
//!
//! The claimed page goes into a queue, and threads of the database take it from there ([`BufferPool::run_reader`]); in
//! a simulation the program does, one read at a time ([`BufferPool::step_reader`]). A thread that wants a page which the
//! system has in memory reads it at once itself: handing over costs more than that.
//!
//! Under a cooperative hook the readers run from the start. Otherwise the first group of which two pages have to wait
//! for a device starts them, so that a database that fits into memory has no such threads.

use crate::base::sync::plain::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use parking_lot::{Condvar, Mutex};

use super::BufferPool;
use super::page_table::Absent;
use crate::base::ids::PageId;
use crate::base::lane::LanePlace;

/// A page that is claimed and to be read into a frame.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: PageId,
    pub(super) seen: Absent,
    pub(super) frame: u32,
}

/// Starts readers, which then [take jobs](BufferPool::open_readers); does nothing if they do already or cannot.
type Starter = Box<dyn Fn() + Send + Sync>;

/// Reads that are wanted. Its mutex is held for moments, and a thread that holds it waits for nothing.
#[derive(Default)]
pub(super) struct Readers {
    /// Whether readers take jobs. Read without the mutex on misses; changed under it.
    open: AtomicBool,
    /// Whether readers take jobs, or would after a call of `starter`. Changed as `open`.
    available: AtomicBool,
    starter: OnceLock<Starter>,
    jobs: Mutex<VecDeque<Job>>,
    /// A job has come, or the queue was closed.
    changed: Condvar,
    /// Called for each job, if threads of several databases do them.
    place: OnceLock<LanePlace>,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers").field("open", &self.open).field("jobs", &self.jobs).finish_non_exhaustive()
    }
}

impl Readers {
    #[inline]
    pub(super) fn are_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether readers take jobs, after having been started if need be.
    pub(super) fn start(&self) -> bool {
        if !self.are_open()
            && self.available.load(Ordering::Relaxed)
            && let Some(start) = self.starter.get()
        {
            start();
        }
        self.are_open()
    }

    /// Hands over the read of a page; gives the job back if readers take no jobs any more.
    pub(super) fn submit(&self, job: Job) -> Result<(), Job> {
        let mut jobs = self.jobs.lock();
        if !self.are_open() {
            return Err(job);
        }
        jobs.push_back(job);
        drop(jobs);
        match self.place.get() {
            Some(place) => place.call(),
            None => {
                self.changed.notify_one();
            }
        }
        Ok(())
    }

    /// Jobs that no reader has taken.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.jobs.lock().len()
    }

    /// The next job; waits for one, if `wait`, until the queue is closed.
    pub(super) fn next(&self, wait: bool) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        loop {
            let job = jobs.pop_front();
            if job.is_some() || !wait || !self.are_open() {
                return job;
            }
            self.changed.wait(&mut jobs);
        }
    }
}

impl BufferPool {
    /// From now on readers do the reads that would have to wait: [`BufferPool::run_reader`] or
    /// [`BufferPool::step_reader`].
    pub(crate) fn open_readers(&self) {
        let _changes = self.readers.jobs.lock();
        self.readers.open.store(true, Ordering::Relaxed);
        self.readers.available.store(true, Ordering::Relaxed);
    }

    /// From now on each page that is handed over calls the work that has this place in a lane, which calls
    /// [`BufferPool::step_reader`].
    pub(crate) fn call_for_reads(&self, place: LanePlace) {
        let _ = self.readers.place.set(place);
    }

    /// From now on a group of pages that have to be waited for calls `start`, until readers are open. Called once.
    pub(crate) fn on_readers_wanted(&self, start: Starter) {
        let _ = self.readers.starter.set(start);
        let _changes = self.readers.jobs.lock();
        self.readers.available.store(true, Ordering::Relaxed);
    }

    /// From now on the caller that wants a page reads it. Jobs left in the queue are done here, or by the readers,
    /// which then end.
    pub(crate) fn close_readers(&self) {
        let jobs = self.readers.jobs.lock();
        self.readers.open.store(false, Ordering::Relaxed);
        self.readers.available.store(false, Ordering::Relaxed);
        drop(jobs);
        self.readers.changed.notify_all();
        while self.step_reader() {}
    }

    /// Whether readers take jobs or can be started, so that the pages of a [group](BufferPool::load_group) are read at
    /// the same time.
    #[inline]
    pub(crate) fn reads_in_parallel(&self) -> bool {
        self.readers.available.load(Ordering::Relaxed)
    }

    /// Whether readers take jobs.
    pub(crate) fn has_readers(&self) -> bool {
        self.readers.are_open()
    }

    /// Reads pages until the readers are closed and none is left to be read.
    pub(crate) fn run_reader(&self) {
        while let Some(job) = self.readers.next(true) {
            self.do_read(job);
        }
    }

    /// Reads the next page that is wanted; false if there is none.
    pub(crate) fn step_reader(&self) -> bool {
        let job = self.readers.next(false);
        job.map(|job| self.do_read(job)).is_some()
    }

    fn do_read(&self, job: Job) {
        // Waiting callers get the errors, and a panic in the disk's code too; the reader goes on.
        let _ = catch_unwind(AssertUnwindSafe(|| self.take_up(job).read()));
    }
}
