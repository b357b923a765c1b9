//! From the ring to the disk: writes, syncs, and wake-ups of the threads that wait for them.
//!
//! Three positions follow the tail: *safe* (all records before it are complete, see `reserve`), *written* (all bytes before
//! it are handed to the operating system, so that their place in the ring may be reused), *durable* (all bytes before it are
//! synced). The thread that holds `writer` advances `written`; the thread that holds `syncer` advances `durable`. A sync
//! covers everything that is written when it begins, and runs while other threads continue to write.
//!
//! `durable` is always a boundary between two records: readers of the log rely on this to distinguish a lost tail from
//! damage. A write may end inside a record, so a sync covers only `whole`, the last end of a record that `written` has
//! passed.
//!
//! Freeing space in the ring needs `writer` alone, never a page latch, a scheduler or a sync: an appender that finds the
//! ring full, and holds page latches, writes the ring out itself, up to the end of the ready segments.

use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::error::StorageError;
use crate::base::hook::{BlockReason, Hook, WaitToken};
use crate::base::ids::Lsn;
use crate::base::lane::{LanePlace, NextTurn};
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::yield_now;
use crate::io::sync_file;

use super::Log;
use super::blocks::BlockWriter;

/// Time in nanoseconds after which written bytes are synced even without a request.
const SYNC_EVERY_NS: u64 = 10_000_000;
/// Pause in nanoseconds between writes while there is work and no transaction waits.
const WRITE_EVERY_NS: u64 = 2_000_000;
/// Pause in nanoseconds between checks while there is no work. With `SYNC_EVERY_NS`: async commits are durable within 20 ms.
const IDLE_NS: u64 = 10_000_000;
/// Pause in nanoseconds of the segment maker, after a full disk or if no segment is needed.
const MAKE_EVERY_NS: u64 = 50_000_000;

/// Result of one step of a log service: the flusher or the segment maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServiceStep {
    /// True if the step did work; there may be more.
    pub(crate) did_work: bool,
    /// Clock time, in nanoseconds, by which the next step must begin if this step did no work.
    pub(crate) next_ns: u64,
}

impl ServiceStep {
    fn next_turn(self, now_ns: u64) -> NextTurn {
        if self.did_work {
            NextTurn::Now
        } else {
            NextTurn::Within(Duration::from_nanos(self.next_ns.saturating_sub(now_ns)))
        }
    }
}

/// State guarded by `syncer`.
#[derive(Debug, Default)]
pub(super) struct SyncState {
    /// Clock time, in nanoseconds, at which a step first saw the unsynced bytes; `None` if there are none.
    unsynced_since: Option<u64>,
}

impl Log {
    /// Returns the position before which everything is on disk.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    pub(super) fn is_sync_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire) > self.durable.load(Ordering::Acquire) && !self.poison.is_closed()
    }

    /// Requests that all bytes appended before `end` become durable soon. Does not wait. Costs two loads if another thread
    /// has requested it before, otherwise one shared write; a system call only if the flusher's thread sleeps.
    pub(crate) fn request_flush(&self, end: Lsn) {
        if self.durable.load(Ordering::Acquire) >= end.0 || self.requested.load(Ordering::Relaxed) >= end.0 {
            return;
        }
        // A request beyond the tail could never be satisfied.
        self.requested.fetch_max(end.0.min(self.reserve.tail()), Ordering::AcqRel);
        self.waker.wake_if_asleep();
    }

    /// Waits until everything before `end` is durable. Another thread or the scheduler must drive the flusher. The caller
    /// holds no latch. Other wakes of `token` during the wait are lost.
    ///
    /// # Errors
    /// `Poisoned` or `BeyondLog` if `end` will never become durable.
    pub(crate) fn wait_durable(&self, end: Lsn, token: &WaitToken, hook: &dyn Hook) -> Result<(), StorageError> {
        if self.durable() >= end {
            return Ok(());
        }
        self.check_appended(end)?;
        crate::base::latches::assert_none_held("a wait for the log");
        let _registered = self.waiters.register(end.0, token);
        self.request_flush(end);
        while self.durable() < end {
            self.poison.check()?;
            hook.block(token, BlockReason::LogFlush);
        }
        Ok(())
    }

    /// Returns an error if `end` lies beyond the tail.
    fn check_appended(&self, end: Lsn) -> Result<(), StorageError> {
        let tail = self.tail();
        if end > tail { Err(StorageError::BeyondLog { position: end, end: tail }) } else { Ok(()) }
    }

    /// Like [`Log::wait_durable`], for a log whose flusher is driven by no thread: the caller writes and syncs.
    pub(crate) fn wait_durable_inline(&self, end: Lsn) -> Result<(), StorageError> {
        if self.durable() < end {
            self.check_appended(end)?;
        }
        while self.durable() < end {
            self.write_out(u64::MAX)?;
            if self.whole.load(Ordering::Acquire) < end.0 {
                // Another thread is still copying a record that lies before `end`.
                yield_now();
                continue;
            }
            self.sync()?;
        }
        Ok(())
    }

    /// Returns when everything before `end` is on disk. If `driven` is true, a thread drives the flusher; otherwise the
    /// caller writes and syncs. No latch may be held.
    ///
    /// # Errors
    /// `Poisoned` or `BeyondLog` if `end` will never become durable.
    pub(crate) fn make_durable(&self, end: Lsn, driven: bool, hook: &dyn Hook) -> Result<(), StorageError> {
        if driven { self.wait_durable(end, &WaitToken::new(), hook) } else { self.wait_durable_inline(end) }
    }

    /// Executes one step of the flusher: writes the complete records, and syncs if a transaction has requested it or a sync
    /// is due. If the step did work, the caller must call again at once; otherwise at `next_ns` or on request.
    pub(crate) fn step(&self, now_ns: u64) -> ServiceStep {
        match self.try_step(now_ns) {
            Ok(result) => result,
            Err(_) => {
                // The instance is poisoned, by this step or elsewhere, so no waiting thread will get durability.
                self.user_limit.store(0, Ordering::Relaxed);
                self.waiters.wake(u64::MAX);
                ServiceStep { did_work: false, next_ns: now_ns.saturating_add(IDLE_NS) }
            }
        }
    }

    fn try_step(&self, now_ns: u64) -> Result<ServiceStep, StorageError> {
        self.poison.check()?;
        let wrote = self.write_out(u64::MAX)?;
        if self.refresh_limit() && !self.disk_full.load(Ordering::Relaxed) && self.segments.may_grow() {
            self.hurry_making.store(true, Ordering::Relaxed);
            self.maker_waker.wake_if_asleep();
        }
        if self.whole.load(Ordering::Acquire) == self.durable.load(Ordering::Acquire) {
            self.syncer.lock().unsynced_since = None;
            return Ok(ServiceStep { did_work: false, next_ns: now_ns.saturating_add(IDLE_NS) });
        }
        let since = *self.syncer.lock().unsynced_since.get_or_insert(now_ns);
        let due = since.saturating_add(SYNC_EVERY_NS);
        if self.is_sync_requested() || now_ns >= due {
            self.sync()?;
            return Ok(ServiceStep { did_work: true, next_ns: now_ns });
        }
        let pause = if wrote { WRITE_EVERY_NS } else { IDLE_NS };
        Ok(ServiceStep { did_work: false, next_ns: due.min(now_ns.saturating_add(pause)) })
    }

    /// Drives the flusher until `stop` is set (then call [`Log::nudge`]). Records appended before `stop` was set are durable
    /// when it returns, unless the instance is poisoned. For a dedicated thread.
    pub(crate) fn run_flusher(&self, clock: &Clock, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            if let NextTurn::Within(limit) = self.flush_some(clock) {
                self.waker.sleep(limit, || self.wants_flusher() || stop.load(Ordering::Acquire));
                self.hurry.store(false, Ordering::Relaxed);
            }
        }
        self.end_flusher();
    }

    /// Drives the segment maker until `stop` is set. For a dedicated thread.
    pub(crate) fn run_maker(&self, clock: &Clock, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            if let NextTurn::Within(limit) = self.make_some(clock) {
                self.maker_waker
                    .sleep(limit, || self.hurry_making.load(Ordering::Relaxed) || stop.load(Ordering::Acquire));
                self.hurry_making.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Assigns lane places to the flusher and the segment maker. From now on a wake calls these places.
    pub(crate) fn set_lane_places(&self, flusher: LanePlace, maker: LanePlace) {
        self.waker.set_lane_place(flusher);
        self.maker_waker.set_lane_place(maker);
    }

    /// Executes a turn of the flusher. For threads of a lane, one at a time.
    pub(crate) fn flusher_turn(&self, clock: &Clock) -> NextTurn {
        self.waker.begin_turn();
        self.hurry.store(false, Ordering::Relaxed);
        match self.flush_some(clock) {
            NextTurn::Within(_) if !self.waker.end_turn(|| self.wants_flusher()) => NextTurn::Now,
            next => next,
        }
    }

    /// Executes a turn of the segment maker. For threads of a lane, one at a time.
    pub(crate) fn maker_turn(&self, clock: &Clock) -> NextTurn {
        self.maker_waker.begin_turn();
        self.hurry_making.store(false, Ordering::Relaxed);
        match self.make_some(clock) {
            NextTurn::Within(_) if !self.maker_waker.end_turn(|| self.hurry_making.load(Ordering::Relaxed)) => {
                NextTurn::Now
            }
            next => next,
        }
    }

    fn flush_some(&self, clock: &Clock) -> NextTurn {
        let now = clock.now_ns();
        let result = self.step(now);
        if !result.did_work && self.is_sync_requested() {
            // An appender has not finished its copy, and may need this core to finish it.
            yield_now();
            return NextTurn::Now;
        }
        result.next_turn(now)
    }

    fn make_some(&self, clock: &Clock) -> NextTurn {
        let now = clock.now_ns();
        self.make_step(now).next_turn(now)
    }

    fn wants_flusher(&self) -> bool {
        self.is_sync_requested() || self.hurry.load(Ordering::Relaxed)
    }

    /// Executes the last work of the flusher: makes all appended records durable, unless the instance is closed, and wakes
    /// the threads that wait for the flusher.
    pub(crate) fn end_flusher(&self) {
        let _ = self.wait_durable_inline(self.tail());
        self.waiters.wake(if self.poison.is_closed() { u64::MAX } else { self.durable().0 });
    }

    /// Wakes the service threads, so that they check `stop`.
    pub(crate) fn nudge(&self) {
        self.waker.wake_if_asleep();
        self.maker_waker.wake_if_asleep();
    }

    /// Executes one step of making segments ahead of need: at most 1 MiB of zeros and one sync. Does not report a full disk
    /// as an error; the append that needs the space will.
    pub(crate) fn make_step(&self, now_ns: u64) -> ServiceStep {
        let later = ServiceStep { did_work: false, next_ns: now_ns.saturating_add(MAKE_EVERY_NS) };
        if self.poison.is_closed() || !self.refresh_limit() || !self.segments.may_grow() {
            return later;
        }
        let made = self.segments.make_slice();
        let no_room = made.as_ref().is_err_and(StorageError::is_want_of_room);
        self.disk_full.store(no_room, Ordering::Relaxed);
        match made {
            Ok(()) => ServiceStep { did_work: true, next_ns: now_ns },
            Err(_) if no_room => later,
            Err(e) => {
                self.close(&e);
                later
            }
        }
    }

    /// Recomputes the limit of user records. Returns true if another segment should be made.
    ///
    /// Of the bytes in ready segments after the tail, `undo_bytes` stay reserved for the undo of running transactions, and
    /// `reserve_bytes` for records that do not check the limit (commits, rollbacks of records appended meanwhile, many
    /// appenders at once). Users get half of the rest, because the undo of each of their bytes may need another byte.
    pub(super) fn refresh_limit(&self) -> bool {
        let tail = self.reserve.tail();
        let kept = self.reserve.undo_bytes() + self.options.reserve_bytes;
        let kept = if is_mutant(Mutant::SkipUndoSpace) { 0 } else { kept };
        let room = self.segments.end().saturating_sub(tail + kept);
        let usable = if is_mutant(Mutant::SkipUndoSpace) { room } else { room / 2 };
        let gate = self.throttle.gate(tail, tail.saturating_sub(self.segments.kept()));
        let limit = if self.poison.is_closed() { 0 } else { (tail + usable).min(gate) };
        self.user_limit.store(limit, Ordering::Relaxed);
        room < self.segments.geometry().payload()
    }

    /// Writes at most about `most` bytes of complete records. Returns true if there were any. Makes the segments that these
    /// records need, so no latch may be held.
    pub(super) fn write_out(&self, most: u64) -> Result<bool, StorageError> {
        self.poison.check()?;
        let written = self.written.load(Ordering::Relaxed);
        self.make_through(self.reserve.safe_end().min(written.saturating_add(most)))?;
        self.write_ready(most)
    }

    /// Like [`Log::write_out`], but stops at the end of the ready segments. The caller may hold page latches.
    pub(super) fn write_ready(&self, most: u64) -> Result<bool, StorageError> {
        let mut writer = self.writer.lock();
        self.poison.check()?;
        let from = self.written.load(Ordering::Relaxed);
        let safe = self.reserve.safe_end();
        // `safe` is less than `from` if a slow appender has announced a lower bound that it loaded long ago.
        let to = safe.min(from.saturating_add(most & !7)).min(self.segments.end());
        let mut at = from;
        while at < to {
            at = self.write_piece(&mut writer, at, to).inspect_err(|e| self.close(e))?;
            self.written.store(at, Ordering::Release);
        }
        if at == safe {
            self.whole.store(at, Ordering::Release);
        }
        Ok(to > from)
    }

    /// Writes from `from` up to `to`, or up to the end of the ring or of the segment.
    #[allow(unsafe_code)]
    fn write_piece(&self, writer: &mut BlockWriter, from: u64, to: u64) -> Result<u64, StorageError> {
        let geometry = self.segments.geometry();
        let (offset, left) = geometry.place(from);
        let number = geometry.number(from);
        let file =
            self.segments.file(number).ok_or_else(|| StorageError::NoSpace { file: self.segments.show(number) })?;
        // SAFETY: `from >= written` and `to <= safe_end`: the range has been copied in, which happened before `safe_end`
        // returned (proof in `reserve`). No thread reuses the range's place in the ring before `written` has passed the
        // range, and only this thread, which holds `writer`, advances `written`.
        let bytes = unsafe { self.ring.bytes(from, to.min(from + left)) };
        writer.write(&*file, bytes, offset)?;
        Ok(from + bytes.len() as u64)
    }

    /// Makes the written bytes durable.
    pub(super) fn sync(&self) -> Result<(), StorageError> {
        let mut state = self.syncer.lock();
        self.poison.check()?;
        let from = self.durable.load(Ordering::Relaxed);
        let to = self.whole.load(Ordering::Acquire);
        if to > from {
            let geometry = self.segments.geometry();
            for number in geometry.number(from)..=geometry.number(to - 1) {
                // The segment has been written to and not yet synced, so it is ready and not truncated.
                let file = self.segments.file(number).ok_or_else(|| self.no_record(from));
                let synced =
                    file.and_then(|file| if is_mutant(Mutant::SkipLogSync) { Ok(()) } else { sync_file(&*file) });
                if synced.is_err() && is_mutant(Mutant::ForgiveFailedSync) {
                    continue;
                }
                synced.inspect_err(|e| self.close(e))?;
            }
            self.flushes.fetch_add(1, Ordering::Relaxed);
            self.durable.store(to, Ordering::Release);
        }
        state.unsynced_since = None;
        drop(state);
        self.waiters.wake(to);
        Ok(())
    }

    /// Closes the instance to commits permanently.
    #[cold]
    pub(super) fn close(&self, cause: &StorageError) {
        self.close_because(&cause.as_cause());
    }

    /// Like [`Log::close`], for a cause that is not a [`StorageError`].
    #[cold]
    pub(crate) fn close_because(&self, cause: &str) {
        self.poison.close_because(cause, self.durable());
        self.user_limit.store(0, Ordering::Relaxed);
        self.waiters.wake(u64::MAX);
    }
}
