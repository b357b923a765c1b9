//! Slowing transactions down before the log has taken all the room that it may.
//!
//! The log on disk has a limit. What it keeps is the *distance* from the oldest record that a restart needs, for redo or undo,
//! to the tail; checkpoints cut it. Up to [`LogBounds::slow_at`] appends go on unhindered. Beyond it a *gate* lies ahead of the tail: appends that
//! reach it are refused as if a segment had to be made, so their callers hold no latch, and each pauses for a moment before
//! the gate moves on by a chunk. The chunk follows from the rate at which the log has been cut lately: about twice as much
//! where the slowing begins, nearly nothing where the room ends, and just as much half-way, where load that is too much for
//! the disk comes to rest. InnoDB slows its users by the age of the log in the same way.
//!
//! A transaction whose first record lies far behind the tail passes the gate without a pause: it is what holds the log, and
//! the sooner it ends, the sooner the log is cut. Otherwise those that begin later could take each chunk before it wakes. The
//! last quarter of the room is for transactions that have written already; one that has not waits for a cut before it.
//!
//! Behind the gate lies a wall: no segment is made for users' records once the files are as many as the limit admits. There
//! the caller waits for a checkpoint to cut the log, and gets [`StorageError::LogFull`] if none will: a transaction holds the
//! log, which the error names, or the disk stands still. A copy of the database that holds the log is broken off there. Undo, commits and checkpoints have room reserved and meet neither.
//!
//! The gate costs appends nothing: it is a part of the limit that they compare the tail with in any case.

use std::sync::OnceLock;
use std::time::Duration;

use super::Log;
use crate::base::error::{LogHolder, StorageError};
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::ids::{Lsn, SlotId};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::yield_now;
use crate::io::Disk;

/// Pause of an append at the gate, which then moves on by what is cut in this time.
const PAUSE: Duration = Duration::from_millis(1);
/// Least bytes by which the gate moves on.
const LEAST_CHUNK: u64 = 4096;
/// Pauses at the wall, without a cut, until the caller gets an error: half a second where a transaction is known to hold
/// the log, else ten seconds, which only a disk that stands still takes.
const PATIENCE_WITH_HOLDER: u32 = 500;
const PATIENCE: u32 = 10_000;
/// Least and largest rate assumed before anything was cut, in bytes a second.
const FIRST_RATE: (u64, u64) = (16 << 20, 512 << 20);

/// Least limit of the log, in bytes.
const LEAST_LIMIT: u64 = 64 << 20;
/// A log of fewer files could not be cut: the file of the oldest record, the one that is written, one made ahead of need, and
/// one for a checkpoint.
const LEAST_FILES: u64 = 4;

/// How far the log may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogBounds {
    /// Files at most: one for a checkpoint, the others for users' records.
    pub(crate) files: u64,
    /// Distance beyond which transactions are slowed.
    pub(crate) slow_at: u64,
    /// Distance at which a transaction that has written nothing waits for a cut.
    pub(crate) fresh_stop_at: u64,
    /// Distance at which the files are used up, at the earliest.
    pub(crate) stop_at: u64,
    /// Log between two checkpoints.
    pub(crate) every: u64,
}

/// Of the files that may be open, the part that the log's may number. Each may be open twice.
const PART_OF_DESCRIPTORS: u64 = 4;

/// Files that a log on this disk may have.
pub(super) fn most_files(disk: &dyn Disk) -> u64 {
    disk.most_open_files().map_or(u64::MAX, |files| files / PART_OF_DESCRIPTORS)
}

impl LogBounds {
    /// No bounds.
    pub(crate) const NONE: LogBounds =
        LogBounds { files: u64::MAX, slow_at: u64::MAX, fresh_stop_at: u64::MAX, stop_at: u64::MAX, every: u64::MAX };

    /// Bytes that the log may take with a checkpoint every so many bytes.
    pub(crate) fn limit(every: u64) -> u64 {
        every.saturating_mul(4).max(LEAST_LIMIT)
    }

    /// The bounds of a log of files of `segment` bytes that takes at most `limit` bytes and `most` files, or four files.
    pub(crate) fn new(every: u64, limit: u64, segment: u64, most: u64) -> LogBounds {
        let files = (limit / segment).min(most).max(LEAST_FILES);
        let stop_at = (files - LEAST_FILES + 1).saturating_mul(segment);
        let every = every.min(stop_at / 2);
        let slow_at = (every + every / 2).min(stop_at / 2);
        LogBounds { files, slow_at, fresh_stop_at: stop_at - (stop_at - slow_at) / 4, stop_at, every }
    }
}

/// Asks for the log to be cut: wakes the cleaner (false), or does a part of its work (true).
type Cutter = Box<dyn Fn() -> bool + Send + Sync>;

/// The first record of a slot's transaction; `Lsn::ZERO` if it has none.
type FirstRecord = Box<dyn Fn(SlotId) -> Lsn + Send + Sync>;

/// See the module's documentation.
pub(super) struct Pace {
    bounds: LogBounds,
    /// Users' records end before this position; `u64::MAX` where nothing is slowed.
    gate: AtomicU64,
    /// Bytes cut in a second.
    rate: AtomicU64,
    /// Appends that paused, at the gate or at the wall.
    pauses: AtomicU64,
    cuts: Mutex<Cuts>,
    cutter: OnceLock<Cutter>,
    first_record: OnceLock<FirstRecord>,
}

#[derive(Debug, Default)]
struct Cuts {
    /// When the log was last cut, and the oldest position that it kept then.
    last: Option<(u64, u64)>,
    /// Whether appends have been slowed since.
    slowed: bool,
    /// What the newest checkpoint found to hold the log.
    holder: Option<LogHolder>,
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pace").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Pace {
    pub(super) fn new(bounds: LogBounds) -> Pace {
        Pace {
            bounds,
            gate: AtomicU64::new(u64::MAX),
            rate: AtomicU64::new(bounds.every.saturating_mul(4).clamp(FIRST_RATE.0, FIRST_RATE.1)),
            pauses: AtomicU64::new(0),
            cuts: Mutex::default(),
            cutter: OnceLock::new(),
            first_record: OnceLock::new(),
        }
    }

    /// Up to where users' records may go for a distance from the oldest record that is kept to the tail.
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
        // If another thread has set one, that holds.
        match self.gate.compare_exchange(u64::MAX, first, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => first,
            Err(other) => other,
        }
    }

    /// Bytes by which the gate moves on after a pause; none where only a cut makes room.
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

    /// Notes that the log has been cut at a time.
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
        // Less may have been cut because less was written.
        if measured > rate || slowed {
            self.rate.store(((rate + measured) / 2).max(1 << 20), Ordering::Relaxed);
        }
    }

    /// Asks for a cut, and pauses unless this thread has done a part of the work itself.
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
    /// How far the log may grow.
    pub(crate) fn bounds(&self) -> LogBounds {
        self.pace.bounds
    }

    /// Bytes from the oldest record that is kept to the tail.
    fn kept_bytes(&self) -> u64 {
        self.reserve.tail().saturating_sub(self.segments.kept())
    }

    /// Bytes that would be cut if the log were kept from `keep` on only.
    pub(crate) fn would_cut(&self, keep: Lsn) -> u64 {
        keep.0.saturating_sub(self.segments.kept())
    }

    /// The oldest record in the files lies here or behind.
    pub(crate) fn begin(&self) -> Lsn {
        Lsn(self.segments.begin())
    }

    /// Whether transactions are being slowed. Work that can wait does.
    pub(crate) fn is_pressed(&self) -> bool {
        self.kept_bytes() > self.pace.bounds.slow_at
    }

    /// Whether the files would become fewer if the log were kept from `keep` on only.
    pub(crate) fn would_shrink(&self, keep: Lsn) -> bool {
        self.segments.geometry().number(keep.0) > self.segments.geometry().number(self.segments.begin())
    }

    /// Sets how to ask for a cut, which returns true if it has done a part of the work, so that the caller need not wait;
    /// and how to find a transaction's first record.
    pub(crate) fn on_pressed(
        &self,
        cut: impl Fn() -> bool + Send + Sync + 'static,
        first_record: impl Fn(SlotId) -> Lsn + Send + Sync + 'static,
    ) {
        let _ = self.pace.cutter.set(Box::new(cut));
        let _ = self.pace.first_record.set(Box::new(first_record));
    }

    /// Notes that a checkpoint has cut the log, and what keeps it from cutting more.
    pub(crate) fn note_cut(&self, now_ns: u64, holder: Option<LogHolder>) {
        self.pace.cut(now_ns, self.segments.kept());
        self.pace.cuts.lock().holder = holder;
    }

    /// What the newest checkpoint found to hold the log.
    pub(crate) fn holder(&self) -> Option<LogHolder> {
        self.pace.cuts.lock().holder
    }

    /// Appends that paused because the log was near its limit.
    pub(crate) fn pauses(&self) -> u64 {
        self.pace.pauses.load(Ordering::Relaxed)
    }

    /// Whether the gate keeps a record of so many bytes out, rather than a lack of segments.
    pub(super) fn is_gated(&self, bytes: u64) -> bool {
        self.reserve.tail() + bytes > self.pace.gate.load(Ordering::Relaxed)
    }

    /// Whether the slot's transaction may pass the gate at once: it began to write so long ago that it holds the log, or soon
    /// will; or it has begun, and the rest of the room is for those that have.
    fn may_pass(&self, slot: SlotId) -> bool {
        let first = self.pace.first_record.get().map_or(Lsn::ZERO, |first| first(slot));
        let is_old = || self.reserve.tail().saturating_sub(first.0) > self.pace.bounds.slow_at / 2;
        first != Lsn::ZERO && (self.kept_bytes() >= self.pace.bounds.fresh_stop_at || is_old())
    }

    /// Passes the gate with a record: moves it on at once, or after a pause, or waits for a cut. No latch may be held.
    ///
    /// # Errors
    /// `LogFull`, as for [`Log::wait_for_cut`].
    pub(super) fn pass_gate(&self, slot: SlotId, bytes: u64, waited: &mut u32) -> Result<(), StorageError> {
        let seen = self.pace.gate.load(Ordering::Relaxed);
        let move_on = |by: u64| {
            // Only one of those that met this gate moves it.
            let next = seen.max(self.reserve.tail()).saturating_add(by);
            let _ = self.pace.gate.compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed);
        };
        if self.may_pass(slot) {
            move_on(bytes);
            return Ok(());
        }
        self.pace.cuts.lock().slowed = true;
        if self.pace.chunk(self.kept_bytes()) == 0 {
            return self.wait_for_cut(waited);
        }
        self.pace.pause(self);
        if seen != u64::MAX {
            move_on(self.pace.chunk(self.kept_bytes()));
        }
        Ok(())
    }

    /// Pauses at the wall: returns when a segment may be made, or after a while. No latch may be held.
    ///
    /// # Errors
    /// `LogFull`, after `waited` pauses in a row.
    pub(super) fn wait_for_cut(&self, waited: &mut u32) -> Result<(), StorageError> {
        let before = self.segments.kept();
        self.pace.pause(self);
        *waited = if self.segments.kept() == before { *waited + 1 } else { 0 };
        let holder = self.holder();
        if holder.is_some_and(|holder| holder.transaction.is_none()) {
            // A copy can be made again; the database works on.
            self.segments.break_holds();
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

    /// Bytes that the log's files may take.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.pace.bounds.files.saturating_mul(self.segments.geometry().segment_bytes)
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
        // A small interval with large files.
        assert_eq!(of(1, 16), (4, 1, 16, 1));
        assert_eq!(of(32, 1024), (4, 48, 1024, 32));
    }

    #[test]
    fn the_gate_lets_through_what_is_cut_halfway_and_nothing_at_the_end() {
        let pace = Pace::new(LogBounds::new(32 * MIB, 128 * MIB, 8 * MIB, u64::MAX));
        assert_eq!(pace.gate(500, 48 * MIB), u64::MAX);
        pace.rate.store(100_000_000, Ordering::Relaxed);
        let near = |a: u64, b: u64| a.abs_diff(b) <= b / 100 + 1;
        assert!(near(pace.chunk(48 * MIB), 200_000), "{}", pace.chunk(48 * MIB));
        assert!(near(pace.chunk(69 * MIB), 100_000));
        assert_eq!((pace.chunk(90 * MIB - 1), pace.chunk(90 * MIB), pace.chunk(u64::MAX)), (LEAST_CHUNK, 0, 0));
        let gate = pace.gate(1000, 69 * MIB);
        assert!(near(gate, 101_000));
        assert_eq!(pace.gate(2000, 90 * MIB), gate, "it stays until it is moved");
        assert_eq!(pace.gate(2000, 10 * MIB), u64::MAX);
    }

    #[test]
    fn a_rate_is_lowered_only_by_what_was_slowed() {
        let pace = Pace::new(LogBounds::new(256 * MIB, 1024 * MIB, 16 * MIB, u64::MAX));
        let rate = || pace.rate.load(Ordering::Relaxed);
        let first = rate();
        pace.cut(1_000_000_000, 0);
        pace.cut(2_000_000_000, 10 * MIB);
        assert_eq!(rate(), first, "there was little to cut");
        pace.cuts.lock().slowed = true;
        pace.cut(3_000_000_000, 20 * MIB);
        assert_eq!(rate(), (first + 10 * MIB) / 2);
        let slow = rate();
        pace.cut(4_000_000_000, 20_000 * MIB);
        assert_eq!(rate(), slow + slow / 2, "and it does not leap");
    }
}
