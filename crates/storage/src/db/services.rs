//! Threads that several databases share for their background work.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::bounds::within;
use crate::base::error::OpenError;
use crate::base::fault::{Refusable, strikes};
use crate::base::fork::Process;
use crate::base::lane::Lane;

/// Threads that do the background work of several databases: those opened with
/// [`Options::services`](crate::Options::services). Without it each database has four threads of its own, and sixteen
/// more once it reads from a device.
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
/// # What a small database costs
///
/// With the smallest settings, those of the example, an open database takes about 0.8 MiB of memory, and no thread: 512 KiB
/// for [`log_buffer`](crate::Options::log_buffer), 5 KiB for each of
/// [`transactions`](crate::Options::transactions), and the rest for tables of fixed size, most of them by number of
/// tables. To this come the pages that are in use, up to [`buffer_pool`](crate::Options::buffer_pool), whose minimum is 1
/// MiB, 8 bytes for each bucket of [`lock_table`](crate::Options::lock_table), and 64 bytes for each lock held. While
/// pages are written, copies of them take up to 1 MiB more; pools below 8 MiB give that back. Address space is reserved
/// for the largest possible data file, 1 GiB a database, of which 4 KiB are taken for each 8 MiB of file. Pools below
/// 16 MiB ask the system for no large pages.
///
/// On disk it takes a few log files of [`log_segment`](crate::Options::log_segment) bytes, 268 KiB for control, and its
/// pages, by which the file grows 2 MiB at a time.
///
/// An idle database is looked at 160 times a second, mostly for log records that are not yet on disk. That takes less
/// than a thousandth of a core, and a third of what threads of its own would.
///
/// # What databases wait for
///
/// The threads take turns: each does one step for one database (writes and syncs what its log holds; writes a batch of
/// pages, or takes a checkpoint; reads a page), then one for the database whose work has been due for the longest time.
/// [`ServiceThreads`] says how many threads there are for each kind of work, and a thread does only its own kind.
///
/// So commits of one database wait for a sync of another one while all [log threads](ServiceThreads::log) are in syncs:
/// one disk that takes 50 ms for each delays others only if it, together with other such disks, occupies all of these
/// threads, and then by a sync or two, not for ever. A disk that hangs keeps a thread until it goes on. While all
/// [page threads](ServiceThreads::pages) are kept, transactions of other databases go on and do the work that they need
/// themselves (they write pages to get free frames, and make log files), but take no checkpoints.
///
/// Nothing that happens to one database keeps the threads from the others. A failed write or sync closes that database
/// to commits, as it always does, and so does a panic in a step (in the code of a [`Hook`](crate::Hook) or a
/// [`Disk`](crate::disk::Disk) of the program, say). [`Database::close`](crate::Database::close) waits for the step
/// that is under way for its own database, and does the rest in the thread that calls it; it must not be called by a
/// shared thread, that is from within a `Hook` or `Disk`.
#[derive(Clone, Debug)]
pub struct Services {
    threads: Arc<Threads>,
}

/// How many threads [`Services`] have for each kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceThreads {
    /// Threads that write and sync logs, 1 to 64; 2 by default. Commits wait for these.
    pub log: usize,
    /// Threads that write pages, take checkpoints, make log files and purge deleted rows, 1 to 64; 1 by default. They wait for the log
    /// threads.
    pub pages: usize,
    /// Threads that read pages for transactions, 0 to 64; 4 by default. Without any, transactions read pages
    /// themselves, one after the other; under a cooperative [`Hook`](crate::Hook) all fibers of the thread wait
    /// meanwhile.
    pub reads: usize,
}

impl Default for ServiceThreads {
    fn default() -> Self {
        ServiceThreads { log: 2, pages: 1, reads: 4 }
    }
}

/// The threads, until dropped.
#[derive(Debug)]
struct Threads {
    log: Arc<Lane>,
    pages: Arc<Lane>,
    reads: Arc<Lane>,
    count: ServiceThreads,
    handles: Vec<JoinHandle<()>>,
    /// The process that started them.
    process: Process,
}

impl Services {
    /// Starts the default number of threads.
    ///
    /// # Errors
    /// [`OpenError::Thread`] if the system gives no thread.
    pub fn new() -> Result<Services, OpenError> {
        Services::with_threads(ServiceThreads::default())
    }

    /// Starts so many threads.
    ///
    /// # Errors
    /// [`OpenError::Setting`] if a number is out of bounds; [`OpenError::Thread`] if the system gives no thread.
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
                // If one does not start, those before it end with `threads`.
                threads.start(name, Arc::clone(&lane)).map_err(|source| OpenError::Thread { source })?;
            }
        }
        Ok(Services { threads: Arc::new(threads) })
    }

    /// For work that waits for nothing but the disk: flushers.
    pub(super) fn log(&self) -> &Arc<Lane> {
        &self.threads.log
    }

    /// For work that may wait for flushers: cleaners and makers of log files.
    pub(super) fn pages(&self) -> &Arc<Lane> {
        &self.threads.pages
    }

    /// For reads of pages.
    pub(super) fn reads(&self) -> &Arc<Lane> {
        &self.threads.reads
    }

    /// Whether there are threads that read pages.
    pub(super) fn reads_pages(&self) -> bool {
        self.threads.count.reads > 0
    }
}

impl Threads {
    fn start(&mut self, name: &str, lane: Arc<Lane>) -> std::io::Result<()> {
        if strikes(Refusable::Thread) {
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
            // They are in the process that started them.
            return std::mem::forget(std::mem::take(&mut self.handles));
        }
        for lane in [&self.log, &self.pages, &self.reads] {
            lane.end();
        }
        for thread in std::mem::take(&mut self.handles) {
            // A panic in a turn is caught there, so a thread has nothing to tell.
            let _ = thread.join();
        }
    }
}
