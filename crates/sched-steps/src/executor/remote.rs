//! Remote part of an executor: wakes of its fibers from any thread.
//!
//! Each executor owns a bitmap with one bit per fiber. Bitmaps exist until the process ends, and later executors reuse
//! them. So a waker is two words, may outlive its executor, and at worst causes a spurious wake.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::context::{NO_INDEX, with_current_driver};

/// Maximum number of executors that exist at a time in one process.
const EXECUTORS: usize = 1024;
/// Number of bits in the bitmap of an executor, which is an upper bound of its number of fibers.
pub(crate) const FIBERS: usize = 1 << 16;

static TABLE: [OnceLock<Remote>; EXECUTORS] = [const { OnceLock::new() }; EXECUTORS];
static FREE: Mutex<(usize, Vec<u32>)> = Mutex::new((0, Vec::new()));

/// Part of an executor that other threads access.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Remote {
    /// Nonzero if a bit of the bitmap may be set.
    any: AtomicU32,
    /// Nonzero while the executor's thread sleeps or is about to sleep.
    parked: AtomicU32,
    number: u32,
    bits: OnceLock<Box<[AtomicU64]>>,
    /// Lock of `sleep_condvar`. The thread sleeps on this pair instead of with `thread::park`, because the token of
    /// `thread::park` belongs to the program.
    sleep_mutex: Mutex<()>,
    sleep_condvar: Condvar,
    progress: Progress,
}

/// Progress of the executor's thread, read by monitors, on cache lines that wakers do not write.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Progress {
    switches: AtomicU64,
    running: AtomicU32,
}

impl Remote {
    /// Reserves a remote part for an executor of this thread; `None` if there are too many executors.
    pub(crate) fn claim() -> Option<&'static Remote> {
        let number = {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            match free.1.pop() {
                Some(number) => number,
                None if free.0 < EXECUTORS => {
                    free.0 += 1;
                    u32::try_from(free.0 - 1).ok()?
                }
                None => return None,
            }
        };
        let remote = TABLE[number as usize].get_or_init(|| Remote {
            any: AtomicU32::new(0),
            parked: AtomicU32::new(0),
            number,
            bits: OnceLock::new(),
            sleep_mutex: Mutex::new(()),
            sleep_condvar: Condvar::new(),
            progress: Progress::default(),
        });
        remote.bits.get_or_init(|| (0..FIBERS / 64).map(|_| AtomicU64::new(0)).collect());
        remote.progress.running.store(NO_INDEX, Ordering::Relaxed);
        Some(remote)
    }

    /// Releases the remote part for reuse by another executor.
    pub(crate) fn release(&self) {
        FREE.lock().unwrap_or_else(PoisonError::into_inner).1.push(self.number);
    }

    /// Records that fiber `index` gets the CPU. The call costs two plain stores.
    #[inline]
    pub(crate) fn record_switch(&self, index: u32) {
        let switches = &self.progress.switches;
        switches.store(switches.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.progress.running.store(index, Ordering::Relaxed);
    }

    /// Returns true if a wake has come since the last [`Remote::drain`]. The call costs one load.
    #[inline]
    pub(crate) fn has_wakes(&self) -> bool {
        self.any.load(Ordering::Relaxed) != 0
    }

    /// Takes the pending wakes of the first `fibers` fibers, and passes each woken fiber to `woken`.
    pub(crate) fn drain(&self, fibers: usize, mut woken: impl FnMut(u32)) {
        if self.any.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        let Some(bits) = self.bits.get() else { return };
        for (number, word) in bits.iter().enumerate().take(fibers.div_ceil(64)) {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut set = word.swap(0, Ordering::Acquire);
            while set != 0 {
                let bit = set.trailing_zeros();
                set &= set - 1;
                let index = number * 64 + bit as usize;
                if index < fibers {
                    woken(index as u32);
                }
            }
        }
    }

    fn wake(&self, index: u32) {
        let Some(word) = self.bits.get().and_then(|bits| bits.get(index as usize / 64)) else { return };
        word.fetch_or(1 << (index % 64), Ordering::Release);
        // The store to `any` must precede the load of `parked`. A thread that is about to sleep stores `parked` and
        // then loads `any`.
        self.any.swap(1, Ordering::SeqCst);
        if self.parked.load(Ordering::SeqCst) != 0 {
            self.unpark();
        }
    }

    #[cold]
    fn unpark(&self) {
        // A thread that has found no wakes holds the lock until it sleeps, so the notification below cannot come too
        // early.
        drop(self.sleep_mutex.lock().unwrap_or_else(PoisonError::into_inner));
        self.sleep_condvar.notify_all();
    }

    /// Sleeps until a wake comes or `timeout` has passed.
    pub(crate) fn park(&self, timeout: Option<Duration>) {
        let guard = self.sleep_mutex.lock().unwrap_or_else(PoisonError::into_inner);
        self.parked.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !self.has_wakes() {
            match timeout {
                Some(timeout) => drop(self.sleep_condvar.wait_timeout(guard, timeout)),
                None => drop(self.sleep_condvar.wait(guard)),
            }
        }
        self.parked.store(0, Ordering::Relaxed);
    }
}

/// Handle that ends a [`park`](crate::fiber::park) of one fiber, from any thread. The handle stays valid until the
/// process ends: after the fiber has ended, a call at worst causes a spurious wake of a later fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waker {
    executor: u32,
    fiber: u32,
}

impl Waker {
    pub(crate) fn new(remote: &Remote, fiber: u32) -> Waker {
        Waker { executor: remote.number, fiber }
    }

    /// Wakes the fiber.
    pub fn wake(self) {
        if with_current_driver(|driver| driver.wake(self.executor, self.fiber)) == Some(true) {
            return;
        }
        if let Some(remote) = TABLE.get(self.executor as usize).and_then(OnceLock::get) {
            remote.wake(self.fiber);
        }
    }

    /// Encodes the waker as a nonzero word, to store it in a field of another library.
    #[must_use]
    pub fn to_bits(self) -> usize {
        (self.executor as usize) << 17 | (self.fiber as usize) << 1 | 1
    }

    /// Decodes a word that [`Waker::to_bits`] returned; `None` for 0 and for words that encode no waker.
    #[must_use]
    pub fn from_bits(bits: usize) -> Option<Waker> {
        let (executor, fiber) = (bits >> 17, bits >> 1 & (FIBERS - 1));
        (bits & 1 == 1 && executor < EXECUTORS).then_some(Waker { executor: executor as u32, fiber: fiber as u32 })
    }

    pub(crate) fn is_of(remote: &Remote, executor: u32) -> bool {
        remote.number == executor
    }
}

/// Handle that watches an executor from another thread. If a fiber blocks its thread, in a system call or a loop, it
/// stops all other fibers, and no code on that thread can report it.
///
/// Take a sample about once per second. If a sample [`is_stalled_since`](Sample::is_stalled_since) the previous sample,
/// the fiber in its field `fiber` is the cause. Hops are not counted: fibers that only hop, and never yield, wait or
/// begin an operation, look stalled too.
#[derive(Clone, Copy, Debug)]
pub struct Monitor {
    executor: u32,
}

/// State of an executor at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Number of switches so far, hops not counted.
    pub switches: u64,
    /// Fiber that was given the CPU last; this fiber or another fiber of its ring is running. `None` on the thread's
    /// own context.
    pub fiber: Option<usize>,
    /// True if the thread sleeps because no fiber can run.
    pub is_asleep: bool,
}

impl Monitor {
    pub(crate) fn new(remote: &Remote) -> Monitor {
        Monitor { executor: remote.number }
    }

    /// Samples the executor. After the executor has been dropped, the sample is of the executor that reuses its remote
    /// part.
    #[must_use]
    pub fn sample(self) -> Sample {
        let remote = TABLE.get(self.executor as usize).and_then(OnceLock::get);
        let Some(remote) = remote else { return Sample { switches: 0, fiber: None, is_asleep: true } };
        let running = remote.progress.running.load(Ordering::Relaxed);
        Sample {
            switches: remote.progress.switches.load(Ordering::Relaxed),
            fiber: ((running as usize) < FIBERS).then_some(running as usize),
            // A fiber that waits during a panic keeps the thread, so the executor then does not count as asleep.
            is_asleep: remote.parked.load(Ordering::Relaxed) != 0 && running == NO_INDEX,
        }
    }
}

impl Sample {
    /// Returns true if the same fiber has run since `earlier` without giving up the CPU.
    #[must_use]
    pub fn is_stalled_since(&self, earlier: &Sample) -> bool {
        self.switches == earlier.switches && self.fiber.is_some() && !self.is_asleep
    }
}
