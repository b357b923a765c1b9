//! Threads that several databases share for background work.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::bounds::within;
use crate::base::error::OpenError;
use crate::base::fault::{FaultKind, should_fail};
use crate::base::fork::Process;
use crate::base::lane::Lane;

/// Threads that do the background work of all databases that are opened with
/// [`Options::services`](crate::Options::services). Without shared threads, each database has four threads of its own,
/// and sixteen more once it reads from a device.
///
/// A handle is cheap to clone. The threads end when the last handle is dropped and the last of the databases is closed.
///
/// ```
/// use storage::{Options, Services};
/// # let directory = std::env::temp_dir().join(format!("lockstep-services-{}", std::process::id()));
/// let services = Services::new()?;
/// let small = || Options::new().buffer_pool(1 << 20).log_buffer(512 << 10).lock_table(256).transactions(4);
/// let tenants: Vec<_> = (0..3)
///     .map(|tenant| small().services(&services).open(directory.join(tenant.to_string())))
///     .collect::<Result<_, _>>()?;
/// # drop(tenants); std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost of a small database
///
/// With the smallest settings (see the example) an open database takes no thread and about 0.8 MiB of memory: 512 KiB
/// for [`log_buffer`](crate::Options::log_buffer), 5 KiB for each of [`transactions`](crate::Options::transactions),
/// and the rest for arrays of fixed size, most of which are indexed by table number. Additional memory: the pages in
/// use, up to [`buffer_pool`](crate::Options::buffer_pool)(at least 1 MiB), 8 bytes for each bucket of
/// [`lock_table`](crate::Options::lock_table), and 64 bytes for each held lock. While pages are written, copies of them
/// take up to 1 MiB more; pools below 8 MiB free them afterwards. Address space is reserved for the largest possible
/// data file, 1 GiB per database, of which 4 KiB are used for each 8 MiB of the file. Pools below 16 MiB do not request
/// large pages.
///
/// On disk a database takes a few log files of [`log_segment`](crate::Options::log_segment) bytes, 268 KiB for the
/// control file, and its data file, which grows in steps of 2 MiB.
///
/// An idle database is checked 160 times per second, mostly for log records that are not yet on disk. This takes less
/// than a thousandth of a core, and a third of the time of separate threads.
///
/// # Waits between databases
///
/// Each thread runs one step for one database (write and sync the log; write a batch of pages, or take a checkpoint;
/// read a page), then a step for the database whose work has been due for the longest time. [`ServiceThreads`] has the
/// number of threads for each kind of work. Each thread does only one kind of work.
///
/// So commits of one database wait for a sync of another database while all [log threads](ServiceThreads::log) are in
/// syncs. A disk that takes 50 ms per sync delays other databases only if such disks occupy all log threads, and then
/// only by one or two syncs. A disk that hangs occupies a thread until it continues. While all [page
/// threads](ServiceThreads::pages) are occupied, transactions of other databases continue and do the necessary work
/// themselves (they write pages to get free frames, and create log files), but no checkpoints are taken.
///
/// A failure of one database does not stop the threads for the others. A failed write or sync closes that database to
/// commits, as always, and so does a panic in a step (for example in the program's [`Hook`](crate::Hook) or
/// [`Disk`](crate::disk::Disk)). [`Database::close`](crate::Database::close) waits for the current step of its own
/// database and does the rest in the calling thread. A shared thread must not call `close`; therefore code of a `Hook`
/// or `Disk` must not call it.
#[derive(Clone, Debug)]
pub struct Services {
    threads: Arc<Threads>,
}

/// Number of threads of [`Services`] for each kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceThreads {
    /// Number of threads that write and sync logs, 1 to 64; 2 by default. Commits wait for these threads.
    pub log: usize,
    /// Number of threads that write pages, take checkpoints, create log files and purge deleted rows, 1 to 64; 1 by
    /// default. These threads wait for the log threads.
    pub pages: usize,
    /// Number of threads that read pages for transactions, 0 to 64; 4 by default. With 0, transactions read pages
    /// themselves, one after the other; under a cooperative [`Hook`](crate::Hook) all fibers of the thread wait during
    /// a read.
    pub reads: usize,
}

impl Default for ServiceThreads {
    fn default() -> Self {
        ServiceThreads { log: 2, pages: 1, reads: 4 }
    }
}

/// The shared threads. Dropping this value ends the threads.
#[derive(Debug)]
struct Threads {
    log: Arc<Lane>,
    pages: Arc<Lane>,
    reads: Arc<Lane>,
    count: ServiceThreads,
    handles: Vec<JoinHandle<()>>,
    /// The process that started the threads.
    process: Process,
}

impl Services {
    /// Starts the default number of threads.
    ///
    /// # Errors
    /// [`OpenError::Thread`] if the system refuses a thread.
    pub fn new() -> Result<Services, OpenError> {
        Services::with_threads(ServiceThreads::default())
    }

    /// Starts the given number of threads for each kind of work.
    ///
    /// # Errors
    /// [`OpenError::Setting`] if a number is out of bounds; [`OpenError::Thread`] if the system refuses a thread.
    pub fn with_threads(count: ServiceThreads) -> Result<Services, OpenError> {
        within("log threads", count.log, &(1..=64))?;
        within("page threads", count.pages, &(1..=64))?;
        within("read threads", count.reads, &(0..=64))?;
        let lane = || Arc::new(Lane::new());
        let (handles, process) = (Vec::new(), Process::this());
        let mut threads = Threads { log: lane(), pages: lane(), reads: lane(), count, handles, process };
        for (name, lane, count) in [
            ("log-service", Arc::clone(&threads.log), count.log),
            ("page-service", Arc::clone(&threads.pages), count.pages),
            ("read-service", Arc::clone(&threads.reads), count.reads),
        ] {
            for _ in 0..count {
                // If a thread cannot be started, dropping `threads` ends the threads that were started before.
                threads.start(name, Arc::clone(&lane)).map_err(|source| OpenError::Thread { source })?;
            }
        }
        Ok(Services { threads: Arc::new(threads) })
    }

    /// Returns the lane of services that wait only for the disk: flushers.
    pub(super) fn log(&self) -> &Arc<Lane> {
        &self.threads.log
    }

    /// Returns the lane of services that may wait for flushers: cleaners, segment makers and purgers.
    pub(super) fn pages(&self) -> &Arc<Lane> {
        &self.threads.pages
    }

    /// Returns the lane of page readers.
    pub(super) fn reads(&self) -> &Arc<Lane> {
        &self.threads.reads
    }

    /// Returns true if there are page reader threads.
    pub(super) fn reads_pages(&self) -> bool {
        self.threads.count.reads > 0
    }
}

impl Threads {
    fn start(&mut self, name: &str, lane: Arc<Lane>) -> std::io::Result<()> {
        if should_fail(FaultKind::Thread) {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        let builder = std::thread::Builder::new().name(name.into()).stack_size(512 << 10);
        self.handles.push(builder.spawn(move || lane.serve())?);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The threads exist only in the process that started them.
            return std::mem::forget(std::mem::take(&mut self.handles));
        }
        for lane in [&self.log, &self.pages, &self.reads] {
            lane.end();
        }
        for thread in std::mem::take(&mut self.handles) {
            // Panics are caught within a step, so the thread's result contains no information.
            let _ = thread.join();
        }
    }
}
