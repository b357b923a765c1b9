//! Reader threads, which read pages for other threads. They read all pages of a group in parallel. Under a cooperative hook
//! they perform every read that might wait for a device, because such a wait would stop all fibers of the calling thread.
//!
//! A claimed page is put into a queue as a job, and reader threads of the database take jobs from the queue
//! ([`BufferPool::run_reader`]). In a simulation the program takes the jobs, one at a time ([`BufferPool::step_reader`]). If
//! the operating system's page cache has the page, the calling thread reads the page directly, because a handover costs more
//! than the read.
//!
//! Under a cooperative hook the readers run from the start. Otherwise they are started by the first group with two pages
//! that have to wait for a device. A database that fits into memory therefore has no reader threads.

use crate::base::sync::plain::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use parking_lot::{Condvar, Mutex};

use super::BufferPool;
use super::page_table::AbsentEntry;
use crate::base::ids::PageId;
use crate::base::lane::LanePlace;

/// Read request for a claimed page.
#[derive(Debug)]
pub(super) struct ReadJob {
    pub(super) id: PageId,
    pub(super) entry: AbsentEntry,
    pub(super) frame: u32,
}

/// Callback that starts readers, which then [take jobs](BufferPool::open_readers). No effect if readers are already running
/// or cannot be started.
type Starter = Box<dyn Fn() + Send + Sync>;

/// Queue of read jobs. Its mutex is held only briefly, and the holder of the mutex never waits.
#[derive(Default)]
pub(super) struct Readers {
    /// True if readers take jobs. Read without the mutex on misses; changed under the mutex.
    open: AtomicBool,
    /// True if readers take jobs or would do so after a call of `starter`. Changed under the mutex.
    available: AtomicBool,
    starter: OnceLock<Starter>,
    jobs: Mutex<VecDeque<ReadJob>>,
    /// Signalled when a job was added or the queue was closed.
    changed: Condvar,
    /// Lane of shared service threads, woken for each job if the threads of several databases perform the jobs.
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

    /// Starts readers if necessary. Returns true if readers take jobs.
    pub(super) fn start(&self) -> bool {
        if !self.are_open()
            && self.available.load(Ordering::Relaxed)
            && let Some(start) = self.starter.get()
        {
            start();
        }
        self.are_open()
    }

    /// Adds a job to the queue. Returns the job to the caller if readers no longer take jobs.
    pub(super) fn submit(&self, job: ReadJob) -> Result<(), ReadJob> {
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

    /// Returns the number of jobs in the queue.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.jobs.lock().len()
    }

    /// Takes the next job. If `wait` is true and the queue is empty, waits for a job until the queue is closed.
    pub(super) fn next(&self, wait: bool) -> Option<ReadJob> {
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
    /// Opens the queue: from now on readers perform the reads that might wait for a device, in [`BufferPool::run_reader`] or
    /// [`BufferPool::step_reader`].
    pub(crate) fn open_readers(&self) {
        let _changes = self.readers.jobs.lock();
        self.readers.open.store(true, Ordering::Relaxed);
        self.readers.available.store(true, Ordering::Relaxed);
    }

    /// Sets the place in a lane that is woken for each queued job. The work in this lane place calls
    /// [`BufferPool::step_reader`].
    pub(crate) fn call_for_reads(&self, place: LanePlace) {
        let _ = self.readers.place.set(place);
    }

    /// Sets the callback that starts readers. Until readers are open, the callback is called for each group of pages that
    /// have to wait for a device. Called once.
    pub(crate) fn on_readers_wanted(&self, start: Starter) {
        let _ = self.readers.starter.set(start);
        let _changes = self.readers.jobs.lock();
        self.readers.available.store(true, Ordering::Relaxed);
    }

    /// Closes the queue: from now on callers read pages themselves. Queued jobs are finished by this thread or by the
    /// readers, which then end.
    pub(crate) fn close_readers(&self) {
        let jobs = self.readers.jobs.lock();
        self.readers.open.store(false, Ordering::Relaxed);
        self.readers.available.store(false, Ordering::Relaxed);
        drop(jobs);
        self.readers.changed.notify_all();
        while self.step_reader() {}
    }

    /// Returns true if readers take jobs or can be started, so that the pages of a [group](BufferPool::load_group) are read
    /// in parallel.
    #[inline]
    pub(crate) fn reads_in_parallel(&self) -> bool {
        self.readers.available.load(Ordering::Relaxed)
    }

    /// Returns true if readers take jobs.
    pub(crate) fn has_readers(&self) -> bool {
        self.readers.are_open()
    }

    /// Performs jobs until the readers are closed and the queue is empty.
    pub(crate) fn run_reader(&self) {
        while let Some(job) = self.readers.next(true) {
            self.do_read(job);
        }
    }

    /// Performs the next job. Returns false if the queue is empty.
    pub(crate) fn step_reader(&self) -> bool {
        let job = self.readers.next(false);
        job.map(|job| self.do_read(job)).is_some()
    }

    fn do_read(&self, job: ReadJob) {
        // Callers that wait for the page receive any error of the read, also if the disk's code panicked. The reader
        // continues.
        let _ = catch_unwind(AssertUnwindSafe(|| self.take_up(job).read()));
    }
}
