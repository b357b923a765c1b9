//! The interface through which storage calls the scheduler that runs it.
//!
//! Storage calls the scheduler in two kinds of places. At a *point* a cooperative scheduler may switch to another fiber;
//! storage holds no latch there. At a *block* the caller must wait until a thread calls [`Hook::wake`] on the caller's
//! token. A wake that comes before the block is remembered.

use crate::base::sync::plain::{AtomicU32, AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;

use super::clock::{Clock, nanos};
use super::sites::PointSite;

/// Reason of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockReason {
    /// Another transaction holds a lock.
    Lock,
    /// Another thread or fiber reads the page.
    PageRead,
    /// The log is being flushed.
    LogFlush,
    /// The buffer pool or the log is full until a background service has freed some space.
    Room,
}

/// Wait state of one waiter. A waiter reuses its token for all its waits.
///
/// A wake changes the state from `EMPTY` to `WOKEN`; the block that consumes the wake changes it back. While a thread is
/// parked in a block, the state is `PARKED`.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct WaitToken {
    state: AtomicU32,
    /// Word for use by the scheduler, for example the address of a fiber. Storage never reads it.
    pub scheduler_word: AtomicUsize,
    thread: Mutex<Option<Thread>>,
}

const EMPTY: u32 = 0;
const WOKEN: u32 = 1;
const PARKED: u32 = 2;

impl WaitToken {
    /// Creates a token without a pending wake.
    pub fn new() -> WaitToken {
        WaitToken::default()
    }

    /// Consumes a pending wake. Returns false if no wake is pending.
    #[must_use]
    pub fn try_consume(&self) -> bool {
        self.state.compare_exchange(WOKEN, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Sets the token to woken. Returns true if a parked thread must be unparked.
    fn leave(&self) -> bool {
        self.state.swap(WOKEN, Ordering::Release) == PARKED
    }

    /// Sets the token to woken, for schedulers that poll with [`WaitToken::try_consume`] and park no thread.
    pub fn set_woken(&self) {
        self.state.store(WOKEN, Ordering::Release);
    }
}

/// Kind of a statement. Transactions that execute the same operation on the same index run nearly the same code, which a
/// scheduler may exploit (Harizopoulos and Ailamaki, "STEPS", VLDB 2004, table 2).
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
    /// Rows are announced for prefetching.
    Prefetch,
}

/// A statement, with the index on which it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Kind of the operation.
    pub kind: OperationKind,
    /// Number of the index (see [`crate::Database::indexes`]). 0 for the begin and the end of a transaction, and for an
    /// announcement, which may concern rows of several tables.
    pub index: u32,
}

impl Operation {
    /// Returns an operation that has no single index.
    #[inline(always)]
    pub(crate) const fn of_transaction(kind: OperationKind) -> Operation {
        Operation { kind, index: 0 }
    }
}

/// Scheduler of the threads and fibers that call storage. The default is [`ThreadHook`].
pub trait Hook: Send + Sync + std::fmt::Debug {
    /// Returns true if the hook uses points. Called once, at open.
    fn is_cooperative(&self) -> bool {
        false
    }

    /// Returns true if [`Hook::point`] may run another fiber at this site. Called once for each site, at open. If it returns
    /// false, storage never calls the point, and does not prefetch the cache lines before it.
    fn may_stop_at(&self, _site: &'static PointSite) -> bool {
        true
    }

    /// Passes a point, at which the hook may run another fiber. `site` is the index of the point in [`crate::points`]. The
    /// caller holds no latch. Called only if [`Hook::is_cooperative`] returns true, also on threads that the scheduler does
    /// not know.
    fn point(&self, _site: u32) {}

    /// Marks the begin of a statement. As at a point, another fiber may run, for any length of time.
    fn enter(&self, _operation: Operation) {}

    /// Returns the number of the calling task: the thread or fiber that executes nothing else while [`Hook::block`]
    /// suspends it. Called when a transaction begins. A transaction that waits for another transaction of its own task
    /// would wait for ever; this number lets storage report such a wait ([`TxnError::OwnTask`](crate::TxnError::OwnTask)).
    /// 0 means that the number is unknown.
    ///
    /// By default tasks are threads, unless the hook is cooperative: only a cooperative hook knows which fiber runs on a
    /// thread. If it does not override this method, such waits are not reported.
    fn task(&self) -> u64 {
        if self.is_cooperative() { 0 } else { thread_number() }
    }

    /// Returns once `token` has been woken, and consumes the wake.
    fn block(&self, token: &WaitToken, reason: BlockReason);

    /// Like [`Hook::block`], but returns false if there was no wake within `limit`. `limit` may be any duration;
    /// [`Duration::MAX`] means no limit. Used by waits that re-check a condition.
    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool;

    /// Wakes the waiter of `token`, now or when it blocks.
    fn wake(&self, token: &WaitToken);
}

/// Returns the number of this thread, which is unique in the life of the process. For implementations of [`Hook::task`].
#[inline]
pub fn thread_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

/// Hook for plain threads: a wait spins for at most 20 us, then parks.
#[derive(Debug)]
pub struct ThreadHook {
    clock: Clock,
    spin_ns: u64,
}

impl Default for ThreadHook {
    fn default() -> Self {
        // Cached, because the call takes longer than opening a small database.
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| thread::available_parallelism().map_or(1, usize::from));
        // On one core a spinning waiter would only delay the thread that it waits for.
        ThreadHook { clock: Clock::machine(), spin_ns: if cores > 1 { 20_000 } else { 0 } }
    }
}

impl ThreadHook {
    /// Returns a hook that parks at once. For service threads: their waits are long and must not take a core from workers.
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
                        // Either this thread resets the parked state, or a wake came first and is consumed.
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
