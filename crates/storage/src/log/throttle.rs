//! Throttling of transactions before the log reaches its size limit.
//!
//! The log on disk has a limit. It must keep the *distance*: the bytes from the oldest record that a restart needs, for redo
//! or undo, to the tail. Checkpoints shorten the distance by cutting (truncating) the log. Appends are not delayed while the
//! distance is at most [`LogBounds::slow_at`]. At a longer distance a *gate* lies ahead of the tail. Appends that reach the
//! gate are refused as if a segment had to be made, so their callers hold no latch. Each of them pauses for a moment, and
//! then the gate advances by a chunk. The size of a chunk follows from the rate at which the log was cut recently: about
//! twice that rate at the start of the throttled range, nearly nothing at its end, and the same rate half-way, where a load
//! that exceeds the capacity of the disk settles. InnoDB throttles its users by the age of the log in the same way.
//!
//! A transaction whose first record lies far behind the tail passes the gate without a pause: it holds the log, and the
//! sooner it ends, the sooner the log is cut. Otherwise later transactions could take each chunk before the old transaction
//! wakes up. The last quarter of the throttled range is reserved for transactions that have written already; a transaction
//! that has written nothing waits there for a cut.
//!
//! After the gate comes a *wall*: no segment is made for users' records once the number of files has reached the limit. A
//! caller at the wall waits for a checkpoint to cut the log, and gets [`StorageError::LogFull`] if no checkpoint does: a
//! transaction holds the log, and the error names it, or the disk makes no progress. A copy of the database that holds the
//! log is cancelled at the wall. Undo, commits and checkpoints have reserved space and are stopped by neither gate nor wall.
//!
//! The gate costs appends nothing: the gate is part of the limit with which every append compares the tail anyway.

use std::sync::OnceLock;
use std::time::Duration;

use super::Log;
use super::record::MAX_LOG;
use crate::base::error::{LogHolder, StorageError};
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::ids::{Lsn, SlotId};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::yield_now;
use crate::io::Disk;

/// Duration of the pause of an append at the gate. Afterwards the gate advances according to the bytes that are cut in this
/// time.
const PAUSE: Duration = Duration::from_millis(1);
/// Minimum number of bytes by which the gate advances.
const LEAST_CHUNK: u64 = 4096;
/// Number of consecutive pauses at the wall, without a cut, before the caller gets an error: half a second if a transaction
/// is known to hold the log, otherwise ten seconds, which only a disk without progress takes.
const PATIENCE_WITH_HOLDER: u32 = 500;
const PATIENCE: u32 = 10_000;
/// Minimum and maximum of the rate of cuts that is assumed before the first cut, in bytes per second.
const FIRST_RATE: (u64, u64) = (16 << 20, 512 << 20);

/// Minimum limit of the log, in bytes.
const LEAST_LIMIT: u64 = 64 << 20;
/// Minimum number of files of a log. A log of fewer files could not be cut: it needs the file of the oldest record, the file
/// that is being written, a file made ahead of need, and a file for a checkpoint.
const LEAST_FILES: u64 = 4;

/// Bounds of the log's growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogBounds {
    /// Maximum number of files: one for a checkpoint, the others for users' records.
    pub(crate) files: u64,
    /// Distance in bytes beyond which transactions are throttled.
    pub(crate) slow_at: u64,
    /// Distance in bytes at which a transaction that has written nothing waits for a cut.
    pub(crate) fresh_stop_at: u64,
    /// Minimum distance in bytes at which the files are used up.
    pub(crate) stop_at: u64,
    /// Number of bytes of log between two checkpoints.
    pub(crate) every: u64,
}

/// Divisor of the maximum number of open files, for the maximum number of log files. Each log file may be open twice.
const PART_OF_DESCRIPTORS: u64 = 4;

/// Returns the maximum number of files of a log on this disk.
pub(super) fn most_files(disk: &dyn Disk) -> u64 {
    disk.most_open_files().map_or(u64::MAX, |files| files / PART_OF_DESCRIPTORS)
}

impl LogBounds {
    /// Bounds of a log without limits.
    pub(crate) const NONE: LogBounds =
        LogBounds { files: u64::MAX, slow_at: u64::MAX, fresh_stop_at: u64::MAX, stop_at: u64::MAX, every: u64::MAX };

    /// Returns the maximum size of the log in bytes, for a checkpoint every `every` bytes.
    pub(crate) fn limit(every: u64) -> u64 {
        every.saturating_mul(4).max(LEAST_LIMIT)
    }

    /// Returns the bounds of a log with files of `segment` bytes that takes at most `limit` bytes and `most` files, but at
    /// least four files. No log takes more than [`MAX_LOG`].
    pub(crate) fn new(every: u64, limit: u64, segment: u64, most: u64) -> LogBounds {
        let files = (limit.min(MAX_LOG) / segment).min(most).max(LEAST_FILES);
        let stop_at = (files - LEAST_FILES + 1).saturating_mul(segment);
        let every = every.min(stop_at / 2);
        let slow_at = (every + every / 2).min(stop_at / 2);
        LogBounds { files, slow_at, fresh_stop_at: stop_at - (stop_at - slow_at) / 4, stop_at, every }
    }
}

/// Callback that requests a cut: wakes the cleaner and returns false, or does a part of its work and returns true.
type Cutter = Box<dyn Fn() -> bool + Send + Sync>;

/// Callback that returns the first record of a slot's transaction; `Lsn::ZERO` if it has none.
type FirstRecord = Box<dyn Fn(SlotId) -> Lsn + Send + Sync>;

/// Throttle of a log: see the module's documentation.
pub(super) struct Throttle {
    bounds: LogBounds,
    /// Position of the gate: users' records end before it. `u64::MAX` if appends are not throttled.
    gate: AtomicU64,
    /// Rate of recent cuts, in bytes per second.
    rate: AtomicU64,
    /// Number of appends that paused, at the gate or at the wall.
    pauses: AtomicU64,
    cuts: Mutex<Cuts>,
    cutter: OnceLock<Cutter>,
    first_record: OnceLock<FirstRecord>,
}

#[derive(Debug, Default)]
struct Cuts {
    /// Clock time of the last cut in nanoseconds, and position of the oldest record that was kept then.
    last: Option<(u64, u64)>,
    /// True if appends have been throttled since the last cut.
    slowed: bool,
    /// Holder of the log, as found by the newest checkpoint.
    holder: Option<LogHolder>,
}

impl std::fmt::Debug for Throttle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Throttle").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Throttle {
    pub(super) fn new(bounds: LogBounds) -> Throttle {
        Throttle {
            bounds,
            gate: AtomicU64::new(u64::MAX),
            rate: AtomicU64::new(bounds.every.saturating_mul(4).clamp(FIRST_RATE.0, FIRST_RATE.1)),
            pauses: AtomicU64::new(0),
            cuts: Mutex::default(),
            cutter: OnceLock::new(),
            first_record: OnceLock::new(),
        }
    }

    /// Returns the limit of users' records. `distance` is the number of bytes from the oldest kept record to the tail.
    pub(super) fn gate(&self, tail: u64, distance: u64) -> u64 {
        let gate = self.gate.load(Ordering::Relaxed);
        if distance <= self.bounds.slow_at {
            if gate != u64::MAX {
                self.gate.store(u64::MAX, Ordering::Relaxed);
            }
            return u64::MAX;
        }
        if gate != u64::MAX {
            return gate;
        }
        let first = tail + self.chunk(distance);
        // If another thread has set a gate, that one applies.
        match self.gate.compare_exchange(u64::MAX, first, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => first,
            Err(other) => other,
        }
    }

    /// Returns the number of bytes by which the gate advances after a pause; 0 if only a cut makes space.
    fn chunk(&self, distance: u64) -> u64 {
        let LogBounds { slow_at, fresh_stop_at, .. } = self.bounds;
        let left = fresh_stop_at.saturating_sub(distance);
        if left == 0 {
            return 0;
        }
        let in_all = fresh_stop_at.saturating_sub(slow_at).max(1);
        let full = u128::from(self.rate.load(Ordering::Relaxed)) * 2 / (1_000_000_000 / PAUSE.as_nanos());
        ((full * u128::from(left) / u128::from(in_all)) as u64).min(left).max(LEAST_CHUNK)
    }

    /// Records a cut of the log, and updates the rate of cuts.
    fn cut(&self, now_ns: u64, kept_from: u64) {
        let mut cuts = self.cuts.lock();
        let Some((then, before)) = cuts.last.replace((now_ns, kept_from)) else { return };
        let slowed = std::mem::take(&mut cuts.slowed);
        if now_ns <= then || kept_from <= before {
            return;
        }
        let measured = u128::from(kept_from - before) * 1_000_000_000 / u128::from(now_ns - then);
        let rate = self.rate.load(Ordering::Relaxed);
        let measured = measured.min(u128::from(rate) * 2) as u64;
        // A lower rate counts only if appends were throttled: otherwise less may have been cut because less was written.
        if measured > rate || slowed {
            self.rate.store(((rate + measured) / 2).max(1 << 20), Ordering::Relaxed);
        }
    }

    /// Requests a cut. Pauses unless this thread has done a part of the cleaner's work itself.
    fn pause(&self, log: &Log) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        if !self.cutter.get().is_some_and(|cut| cut()) {
            log.hook().block_for(&WaitToken::new(), BlockReason::Room, PAUSE);
        } else {
            yield_now();
        }
    }
}

impl Log {
    /// Returns the bounds of the log's growth.
    pub(crate) fn bounds(&self) -> LogBounds {
        self.throttle.bounds
    }

    /// Returns the number of bytes from the oldest kept record to the tail.
    fn kept_bytes(&self) -> u64 {
        self.reserve.tail().saturating_sub(self.segments.kept())
    }

    /// Returns the number of bytes that a cut of the log before `keep` would free.
    pub(crate) fn would_cut(&self, keep: Lsn) -> u64 {
        keep.0.saturating_sub(self.segments.kept())
    }

    /// Returns the start of the files: the oldest record in them lies at or after this position.
    pub(crate) fn begin(&self) -> Lsn {
        Lsn(self.segments.begin())
    }

    /// Returns true if transactions are being throttled. Callers then defer work that can be deferred.
    pub(crate) fn is_throttled(&self) -> bool {
        self.kept_bytes() > self.throttle.bounds.slow_at
    }

    /// Returns true if a cut of the log before `keep` would reduce the number of files.
    pub(crate) fn would_shrink(&self, keep: Lsn) -> bool {
        self.segments.geometry().number(keep.0) > self.segments.geometry().number(self.segments.begin())
    }

    /// Sets the callback that requests a cut (it returns true if it has done a part of the work, so that the caller need
    /// not wait) and the callback that finds a transaction's first record.
    pub(crate) fn set_callbacks(
        &self,
        cut: impl Fn() -> bool + Send + Sync + 'static,
        first_record: impl Fn(SlotId) -> Lsn + Send + Sync + 'static,
    ) {
        let _ = self.throttle.cutter.set(Box::new(cut));
        let _ = self.throttle.first_record.set(Box::new(first_record));
    }

    /// Records that a checkpoint has cut the log, and the transaction or copy that prevents a further cut.
    pub(crate) fn note_cut(&self, now_ns: u64, holder: Option<LogHolder>) {
        self.throttle.cut(now_ns, self.segments.kept());
        self.throttle.cuts.lock().holder = holder;
    }

    /// Returns the holder of the log, as found by the newest checkpoint.
    pub(crate) fn holder(&self) -> Option<LogHolder> {
        self.throttle.cuts.lock().holder
    }

    /// Returns the number of appends that paused because the log was near its limit.
    pub(crate) fn pauses(&self) -> u64 {
        self.throttle.pauses.load(Ordering::Relaxed)
    }

    /// Returns true if a record of `bytes` bytes is refused because of the gate, rather than because of a lack of segments.
    pub(super) fn is_gated(&self, bytes: u64) -> bool {
        self.reserve.tail() + bytes > self.throttle.gate.load(Ordering::Relaxed)
    }

    /// Returns true if the slot's transaction may pass the gate at once. This holds if its first record lies so far back
    /// that it holds the log, or soon will. It also holds if the transaction has written something and the remaining space
    /// is reserved for such transactions.
    fn may_pass(&self, slot: SlotId) -> bool {
        let first = self.throttle.first_record.get().map_or(Lsn::ZERO, |first| first(slot));
        let is_old = || self.reserve.tail().saturating_sub(first.0) > self.throttle.bounds.slow_at / 2;
        first != Lsn::ZERO && (self.kept_bytes() >= self.throttle.bounds.fresh_stop_at || is_old())
    }

    /// Passes the gate with a record: advances the gate, at once or after a pause, or waits for a cut. No latch may be held.
    ///
    /// # Errors
    /// `LogFull`, as for [`Log::wait_for_cut`].
    pub(super) fn pass_gate(&self, slot: SlotId, bytes: u64, waited: &mut u32) -> Result<(), StorageError> {
        let seen = self.throttle.gate.load(Ordering::Relaxed);
        let move_on = |by: u64| {
            // Only one of the appends that met this gate advances it.
            let next = seen.max(self.reserve.tail()).saturating_add(by);
            let _ = self.throttle.gate.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed);
        };
        if self.may_pass(slot) {
            move_on(bytes);
            return Ok(());
        }
        self.throttle.cuts.lock().slowed = true;
        if self.throttle.chunk(self.kept_bytes()) == 0 {
            return self.wait_for_cut(waited);
        }
        self.throttle.pause(self);
        if seen != u64::MAX {
            move_on(self.throttle.chunk(self.kept_bytes()));
        }
        Ok(())
    }

    /// Pauses once at the wall. The caller then checks again whether a segment may be made. No latch may be held.
    ///
    /// # Errors
    /// `LogFull` after too many consecutive pauses without a cut, which `waited` counts.
    pub(super) fn wait_for_cut(&self, waited: &mut u32) -> Result<(), StorageError> {
        let before = self.segments.kept();
        self.throttle.pause(self);
        *waited = if self.segments.kept() == before { *waited + 1 } else { 0 };
        let holder = self.holder();
        if holder.is_some_and(|holder| holder.transaction.is_none()) {
            // A copy can be made again; the database must continue.
            self.segments.break_pins();
        }
        if *waited < if holder.is_some() { PATIENCE_WITH_HOLDER } else { PATIENCE } {
            return Ok(());
        }
        Err(StorageError::LogFull {
            file: self.segments.show(self.segments.geometry().number(before)),
            limit: self.limit_bytes(),
            holder,
        })
    }

    /// Returns the maximum size of the log's files in bytes.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.throttle.bounds.files.saturating_mul(self.segments.geometry().segment_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn bounds_follow_the_interval() {
        let of = |every: u64, segment: u64| {
            let b = LogBounds::new(every * MIB, LogBounds::limit(every * MIB), segment * MIB, u64::MAX);
            assert!(b.files * segment * MIB <= LogBounds::limit(every * MIB).max(4 * segment * MIB));
            assert!(b.every <= b.slow_at && b.slow_at < b.stop_at, "{b:?}");
            (b.files, b.slow_at / MIB, b.stop_at / MIB, b.every / MIB)
        };
        assert_eq!(of(32, 8), (16, 48, 104, 32));
        assert_eq!(of(256, 16), (64, 384, 976, 256));
        assert_eq!(of(2048, 16), (512, 3072, 8144, 2048));
        // Case: a small interval between checkpoints with large files.
        assert_eq!(of(1, 16), (4, 1, 16, 1));
        assert_eq!(of(32, 1024), (4, 48, 1024, 32));
    }

    #[test]
    fn the_gate_lets_through_what_is_cut_halfway_and_nothing_at_the_end() {
        let throttle = Throttle::new(LogBounds::new(32 * MIB, 128 * MIB, 8 * MIB, u64::MAX));
        assert_eq!(throttle.gate(500, 48 * MIB), u64::MAX);
        throttle.rate.store(100_000_000, Ordering::Relaxed);
        let near = |a: u64, b: u64| a.abs_diff(b) <= b / 100 + 1;
        assert!(near(throttle.chunk(48 * MIB), 200_000), "{}", throttle.chunk(48 * MIB));
        assert!(near(throttle.chunk(69 * MIB), 100_000));
        assert_eq!(
            (throttle.chunk(90 * MIB - 1), throttle.chunk(90 * MIB), throttle.chunk(u64::MAX)),
            (LEAST_CHUNK, 0, 0)
        );
        let gate = throttle.gate(1000, 69 * MIB);
        assert!(near(gate, 101_000));
        assert_eq!(throttle.gate(2000, 90 * MIB), gate, "it stays until it is moved");
        assert_eq!(throttle.gate(2000, 10 * MIB), u64::MAX);
    }

    #[test]
    fn a_rate_is_lowered_only_by_what_was_slowed() {
        let throttle = Throttle::new(LogBounds::new(256 * MIB, 1024 * MIB, 16 * MIB, u64::MAX));
        let rate = || throttle.rate.load(Ordering::Relaxed);
        let first = rate();
        throttle.cut(1_000_000_000, 0);
        throttle.cut(2_000_000_000, 10 * MIB);
        assert_eq!(rate(), first, "there was little to cut");
        throttle.cuts.lock().slowed = true;
        throttle.cut(3_000_000_000, 20 * MIB);
        assert_eq!(rate(), (first + 10 * MIB) / 2);
        let slow = rate();
        throttle.cut(4_000_000_000, 20_000 * MIB);
        assert_eq!(rate(), slow + slow / 2, "and it does not leap");
    }
}
