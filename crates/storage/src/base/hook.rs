//! The narrow hook through which storage calls the scheduler that runs it.
//!
//! Storage calls out in two kinds of place only. At a *point* a cooperative scheduler may run another fiber; storage
//! holds no latch there. At a *block* the caller must wait until [`Hook::wake`] is called on its token, from any
//! thread. A wake that comes before the block is remembered.

use crate::base::sync::plain::{AtomicU32, AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use super::clock::{Clock, nanos};
use super::sites::PointSite;

/// Why a transaction has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockReason {
    /// Another transaction holds a lock.
    Lock,
    /// Another thread or fiber reads the page.
    PageRead,
    /// The log is being flushed.
    LogFlush,
    /// The buffer pool or the log has no room until a background service has made some.
    Room,
}

/// The place where one waiter waits. One token serves one waiter, again and again.
///
/// `EMPTY -> WOKEN` by a wake, `WOKEN -> EMPTY` by the block that consumes it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WaitToken {
    state: AtomicU32,
    /// A word that belongs to the scheduler (a fiber's address, say). Storage never looks at it.
    pub scheduler_word: AtomicUsize,
    thread: Mutex<Option<Thread>>,
}

const EMPTY: u32 = 0;
const WOKEN: u32 = 1;
const PARKED: u32 = 2;

impl WaitToken {
    /// A token without a pending wake.
    pub fn new() -> WaitToken {
        WaitToken::default()
    }

    /// Takes a pending wake; false if there is none.
    #[must_use]
    pub fn try_consume(&self) -> bool {
        self.state.compare_exchange(WOKEN, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Leaves a wake; true if a parked thread has to be unparked.
    fn leave(&self) -> bool {
        self.state.swap(WOKEN, Ordering::Release) == PARKED
    }

    /// Leaves a wake for schedulers that poll with [`WaitToken::try_consume`] and park no thread.
    pub fn set_woken(&self) {
        self.state.store(WOKEN, Ordering::Release);
    }
}

/// The kind of a statement. Transactions in the same operation on the same index run nearly the same code, which a
/// scheduler may use (Harizopoulos and Ailamaki, "STEPS", VLDB 2004, table 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum OperationKind {
    /// A transaction begins.
    Begin,
    /// A transaction commits.
    Commit,
    /// A transaction is rolled back.
    Rollback,
    /// A row is read by its key.
    Fetch,
    /// Rows are inserted.
    Insert,
    /// Rows are changed.
    Update,
    /// A row is deleted.
    Delete,
    /// A range is read.
    Scan,
    /// Rows are announced.
    Prefetch,
}

/// A statement on an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The operation.
    pub kind: OperationKind,
    /// The number of the index, which [`crate::Database::indexes`] names; 0 for the begin and the end of a transaction,
    /// and for an announcement, which may be of rows of several tables.
    pub index: u32,
}

impl Operation {
    /// For an operation that concerns no single index.
    #[inline(always)]
    pub(crate) const fn of_transaction(kind: OperationKind) -> Operation {
        Operation { kind, index: 0 }
    }
}

/// The scheduler that runs storage's callers. The default is [`ThreadHook`].
pub trait Hook: Send + Sync + std::fmt::Debug {
    /// Whether the hook uses points. Asked once, at open.
    fn is_cooperative(&self) -> bool {
        false
    }

    /// Whether [`Hook::point`] may ever do something at this site. Asked once for each site, at open; if the answer is
    /// no, the point is never called, and the lines before it are not prefetched.
    fn may_stop_at(&self, _site: &'static PointSite) -> bool {
        true
    }

    /// A place where another fiber may run: number `site` of [`crate::points`]. The caller holds no latch. Called only
    /// if [`Hook::is_cooperative`], also by threads that the scheduler does not know.
    fn point(&self, _site: u32) {}

    /// A statement begins. As at a point another fiber may run, for long if need be.
    fn enter(&self, _operation: Operation) {}

    /// The number of the task that calls: of the thread or fiber that does nothing else while [`Hook::block`] keeps it.
    /// Asked when a transaction begins. A transaction that waits for one that its own task has begun would wait for
    /// ever; this number lets storage report that ([`TxnError::OwnTask`](crate::TxnError::OwnTask)). 0 says that the
    /// number is not known.
    ///
    /// By default tasks are threads, unless the hook is cooperative: only that hook knows which of several fibers on a
    /// thread runs. If it does not override this, such waits are not reported.
    fn task(&self) -> u64 {
        if self.is_cooperative() { 0 } else { thread_number() }
    }

    /// Returns once `token` has been woken, and consumes the wake.
    fn block(&self, token: &WaitToken, reason: BlockReason);

    /// Like [`Hook::block`] but gives up after `limit`, which may be any duration: [`Duration::MAX`] is as good as no
    /// limit. False if it did. Used by waits that re-check a condition.
    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool;

    /// Wakes the waiter of `token`, now or when it blocks.
    fn wake(&self, token: &WaitToken);
}

/// The number of this thread; no other thread of the process has had it or will have it. For [`Hook::task`].
#[inline]
pub fn thread_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

/// Plain threads: spin for at most 20 us, then park.
#[derive(Debug)]
pub struct ThreadHook {
    clock: Clock,
    spin_ns: u64,
}

impl Default for ThreadHook {
    fn default() -> Self {
        // Asking takes longer than opening a small database.
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from));
        // On one core a spinning waiter only keeps the thread that it waits for from running.
        ThreadHook { clock: Clock::machine(), spin_ns: if cores > 1 { 20_000 } else { 0 } }
    }
}

impl ThreadHook {
    /// Parks at once: for service threads, which wait for long and must not take a core from workers.
    pub fn parking() -> ThreadHook {
        ThreadHook { clock: Clock::machine(), spin_ns: 0 }
    }

    fn spin(&self, token: &WaitToken) -> bool {
        if token.try_consume() {
            return true;
        }
        let until = self.clock.now_ns() + self.spin_ns;
        loop {
            for _ in 0..32 {
                if token.try_consume() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if self.clock.now_ns() >= until {
                return false;
            }
        }
    }

    #[allow(clippy::disallowed_methods, reason = "the one place where a thread parks for others")]
    fn wait(&self, token: &WaitToken, limit: Option<Duration>) -> bool {
        if self.spin(token) {
            return true;
        }
        let until = limit.map(|limit| self.clock.now_ns().saturating_add(nanos(limit)));
        *token.thread.lock() = Some(thread::current());
        if token.state.compare_exchange(EMPTY, PARKED, Ordering::AcqRel, Ordering::Acquire).is_err() {
            token.state.store(EMPTY, Ordering::Relaxed);
            return true;
        }
        loop {
            match until {
                None => thread::park(),
                Some(until) => {
                    let now = self.clock.now_ns();
                    if now >= until {
                        // Either this thread takes back the parked mark, or a wake came first and is consumed.
                        let gone = token.state.compare_exchange(PARKED, EMPTY, Ordering::AcqRel, Ordering::Acquire);
                        return gone.is_err() && token.try_consume();
                    }
                    thread::park_timeout(Duration::from_nanos(until - now));
                }
            }
            if token.try_consume() {
                return true;
            }
        }
    }
}

impl Hook for ThreadHook {
    #[inline]
    fn task(&self) -> u64 {
        thread_number()
    }

    fn block(&self, token: &WaitToken, _reason: BlockReason) {
        self.wait(token, None);
    }

    fn block_for(&self, token: &WaitToken, _reason: BlockReason, limit: Duration) -> bool {
        self.wait(token, Some(limit))
    }

    fn wake(&self, token: &WaitToken) {
        if token.leave()
            && let Some(thread) = token.thread.lock().as_ref()
        {
            thread.unpark();
        }
    }
}
