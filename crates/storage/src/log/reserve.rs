//! Reservation of a record's position with one `fetch_add` on the tail, and the flusher's test for complete records.
//!
//! An appender announces, in its own slot, a lower bound of the position that it is about to get. It reserves the position,
//! copies the record, and clears the slot. The flusher loads the tail, then all slots; all bytes before the minimum of these
//! values (the *safe end*) have been copied.
//!
//! **Proof.** Let record A of slot `s` begin at `a`, and let the flusher have loaded the tail as `t > a`. We show that
//! `safe_end <= a`, or that A's copy happened before the flusher's use of it.
//!
//! `t > a` means that the flusher's acquire load read A's `fetch_add` or a later one. Later ones are read-modify-writes and
//! continue A's release sequence, so A's `fetch_add` synchronises with the load, and A's announcement, which comes before it
//! in program order, happened before the flusher reads slot `s`. So the flusher reads the announcement or a later value in
//! the slot's modification order.
//! If the flusher reads the announcement `b`: the appender had loaded `b` from the tail before, and the tail only grows, so
//! `b <= a`, and `safe_end <= b <= a`.
//! If the flusher reads `a` itself ([`Reservations::announce_exact`]): `safe_end <= a`.
//! If the flusher reads `IDLE`, or a later announcement by the slot's user at that time: both are release stores after A's
//! copy (the slot has one user at a time, and passing the slot on is itself a happens-before edge), read by an acquire load:
//! the copy happened before. QED.
//!
//! Appenders write no shared data except the tail. No fence between announcement and `fetch_add` is needed: both matter
//! only to a flusher that saw the `fetch_add`.

use super::sync::{AtomicU64, Ordering, fence};
use crossbeam::utils::CachePadded;

use crate::base::ids::SlotId;

const IDLE: u64 = u64::MAX;

#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    /// Lower bound of the position to which the slot's user copies a record; `IDLE` if no copy is in progress.
    inflight: AtomicU64,
    /// Number of bytes that the undo of the slot's transaction may still need. Only the slot's user writes it.
    undo: AtomicU64,
    /// Number of records appended through the slot. Only the slot's user writes it.
    records: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Reservations {
    tail: CachePadded<AtomicU64>,
    /// Start of the first abandoned reservation. No byte from this position on may ever be written to the files.
    abandoned_from: CachePadded<AtomicU64>,
    slots: Box<[Slot]>,
}

impl Reservations {
    /// Returns the address ranges of the tail and of the slots, each with the distance between two of its elements.
    #[cfg(feature = "measure")]
    pub(super) fn lines(&self) -> [(std::ops::Range<usize>, usize); 2] {
        let tail = std::ptr::from_ref(&self.tail).addr();
        let slots = self.slots.as_ptr_range();
        [(tail..tail + size_of_val(&self.tail), 0), (slots.start.addr()..slots.end.addr(), size_of::<Slot>())]
    }

    pub(super) fn new(tail: u64, slots: usize) -> Reservations {
        let slot = || Slot { inflight: AtomicU64::new(IDLE), undo: AtomicU64::new(0), records: AtomicU64::new(0) };
        Reservations {
            tail: CachePadded::new(AtomicU64::new(tail)),
            abandoned_from: CachePadded::new(AtomicU64::new(IDLE)),
            slots: (0..slots).map(|_| slot()).collect(),
        }
    }

    /// Returns the end of the last reservation.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// Prefetches the tail's line, which all appenders write. Called as soon as it is known that a reservation follows, so
    /// that the line arrives while the record is checksummed.
    #[inline]
    pub(super) fn prefetch_tail(&self) {
        crate::base::prefetch::prefetch_write(std::ptr::from_ref(&self.tail).cast());
    }

    /// Reserves `bytes` and returns their position. The slot stays announced until [`Reservations::done`].
    ///
    /// # Panics
    /// If the slot does not exist.
    #[inline]
    pub(super) fn reserve(&self, slot: SlotId, bytes: u64) -> u64 {
        let slot = &self.slots[slot.0 as usize];
        debug_assert_eq!(slot.inflight.load(Ordering::Relaxed), IDLE, "two appenders in one slot");
        slot.inflight.store(self.tail.load(Ordering::Relaxed), Ordering::Release);
        let start = self.tail.fetch_add(bytes, Ordering::AcqRel);
        // For `Log::read_at`: a thread that sees a word copied after this fence also sees the new tail.
        fence(Ordering::Release);
        start
    }

    /// Marks the slot's record as copied.
    #[inline]
    pub(super) fn done(&self, slot: SlotId) {
        let slot = &self.slots[slot.0 as usize];
        slot.records.store(slot.records.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        slot.inflight.store(IDLE, Ordering::Release);
    }

    /// Replaces the slot's lower bound by the position itself. An appender that waits for space in the ring must do this
    /// first: the bound may lie a whole ring before the position, and a flusher that stops at the bound frees no space.
    pub(super) fn announce_exact(&self, slot: SlotId, start: u64) {
        self.slots[slot.0 as usize].inflight.store(start, Ordering::Release);
    }

    /// Abandons a reservation. Its bytes and all later ones will never be written.
    pub(super) fn give_up(&self, slot: SlotId, start: u64) {
        self.abandoned_from.fetch_min(start, Ordering::AcqRel);
        // Released after the store: a flusher that sees the slot idle also sees the abandoned position.
        self.slots[slot.0 as usize].inflight.store(IDLE, Ordering::Release);
    }

    /// Returns the position before which everything has been copied; see the top of the file.
    pub(super) fn safe_end(&self) -> u64 {
        let mut end = self.tail.load(Ordering::Acquire);
        for slot in &self.slots {
            end = end.min(slot.inflight.load(Ordering::Acquire));
        }
        end.min(self.abandoned_from.load(Ordering::Acquire))
    }

    /// Adds to the bytes that the undo of the slot's transaction may need. `first` is true for the first record of a
    /// transaction, and discards the bytes of the slot's previous transaction.
    #[inline]
    pub(super) fn add_undo_bytes(&self, slot: SlotId, bytes: u64, first: bool) {
        let undo = &self.slots[slot.0 as usize].undo;
        let before = if first { 0 } else { undo.load(Ordering::Relaxed) };
        undo.store(before + bytes, Ordering::Relaxed);
    }

    /// Returns the number of bytes that the undo of the slot's transaction may need. For the slot's user.
    pub(super) fn undo_bytes_of(&self, slot: SlotId) -> u64 {
        self.slots[slot.0 as usize].undo.load(Ordering::Relaxed)
    }

    /// Sets the number of bytes that the undo of the slot's transaction may need.
    pub(super) fn set_undo_bytes(&self, slot: SlotId, bytes: u64) {
        self.slots[slot.0 as usize].undo.store(bytes, Ordering::Relaxed);
    }

    /// Subtracts the bytes that an undo has used from the bytes that it may still need.
    #[inline]
    pub(super) fn subtract_undo_bytes(&self, slot: SlotId, bytes: u64) {
        let undo = &self.slots[slot.0 as usize].undo;
        undo.store(undo.load(Ordering::Relaxed).saturating_sub(bytes), Ordering::Relaxed);
    }

    /// Returns the number of bytes that the undo of all transactions may need. Covers all records before a tail that the
    /// caller has loaded before this call.
    pub(super) fn undo_bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.undo.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn records(&self) -> u64 {
        self.slots.iter().map(|slot| slot.records.load(Ordering::Relaxed)).sum()
    }
}

/// Tests under every order of steps and every outcome that the memory model allows: `cargo xtask loom`.
#[cfg(all(test, loom))]
#[allow(unsafe_code)]
mod loom_tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread::{JoinHandle, spawn as begin, yield_now};

    use super::*;

    /// One cell for each reservation, indexed by position. Loom's cells detect a read before which no write happened,
    /// regardless of the value read.
    struct Model {
        reservations: Reservations,
        ring: [UnsafeCell<u64>; 4],
    }

    // SAFETY: loom checks each access to the cells.
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    unsafe impl Send for Model {}

    impl Model {
        fn append(&self, slot: u16) {
            let at = self.reservations.reserve(SlotId(slot), 1);
            // SAFETY: a reservation gives exclusive access to its cell. That is the property under test; loom checks the
            // access.
            self.ring[at as usize].with_mut(|cell| unsafe { *cell = 1 });
            self.reservations.done(SlotId(slot));
        }

        fn check(&self) {
            let safe = self.reservations.safe_end();
            for at in 0..safe {
                // SAFETY: cells below the safe end are written no more. That is the property under test; loom checks the
                // access.
                let whole = self.ring[at as usize].with(|cell| unsafe { *cell });
                assert_eq!(whole, 1, "{at} is not whole, safe end {safe}");
            }
        }
    }

    fn model(f: impl Fn(&Arc<Model>) + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let ring = std::array::from_fn(|_| UnsafeCell::new(0));
            f(&Arc::new(Model { reservations: Reservations::new(0, 2), ring }));
        });
    }

    fn spawn(model: &Arc<Model>, f: impl FnOnce(&Model) + 'static) -> JoinHandle<()> {
        let model = model.clone();
        begin(move || f(&model))
    }

    #[test]
    fn loom_what_is_safe_has_been_copied() {
        model(|model| {
            let twice = spawn(model, |model| (0..2).for_each(|_| model.append(0)));
            let once = spawn(model, |model| model.append(1));
            let flusher = spawn(model, Model::check);
            twice.join().unwrap();
            once.join().unwrap();
            flusher.join().unwrap();
            assert_eq!(model.reservations.safe_end(), 3);
            model.check();
        });
    }

    #[test]
    fn loom_nothing_behind_a_hole_is_safe() {
        model(|model| {
            let other = spawn(model, |model| model.append(1));
            let given_up = spawn(model, |model| {
                let at = model.reservations.reserve(SlotId(0), 1);
                model.reservations.announce_exact(SlotId(0), at);
                model.reservations.give_up(SlotId(0), at);
            });
            let flusher = spawn(model, Model::check);
            other.join().unwrap();
            given_up.join().unwrap();
            flusher.join().unwrap();
            model.check();
        });
    }

    /// A ring of two cells, used like the ring of the log: an appender that finds it full writes out the complete records.
    struct Ring {
        reservations: Reservations,
        writer: loom::sync::Mutex<()>,
        written: AtomicU64,
        cells: [UnsafeCell<u64>; 2],
    }

    // SAFETY: loom checks each access to the cells.
    unsafe impl Sync for Ring {}
    // SAFETY: as above.
    unsafe impl Send for Ring {}

    impl Ring {
        fn append(&self, slot: u16) {
            let at = self.reservations.reserve(SlotId(slot), 1);
            if !self.has_room(at) {
                self.reservations.announce_exact(SlotId(slot), at);
                while !self.has_room(at) {
                    self.write_out();
                    yield_now();
                }
            }
            // SAFETY: a reservation with space in the ring gives exclusive access to its cell. That is the property under
            // test.
            self.cells[at as usize % 2].with_mut(|cell| unsafe { *cell = at + 100 });
            self.reservations.done(SlotId(slot));
        }

        fn has_room(&self, at: u64) -> bool {
            at + 1 <= self.written.load(Ordering::Acquire) + 2
        }

        fn write_out(&self) {
            let _writer = self.writer.lock().unwrap();
            let from = self.written.load(Ordering::Relaxed);
            for at in from..self.reservations.safe_end() {
                // SAFETY: cells below the safe end are written no more until `written` passes them. That is the property
                // under test.
                let word = self.cells[at as usize % 2].with(|cell| unsafe { *cell });
                assert_eq!(word, at + 100, "{at} was taken out before it was put in, or after it was overwritten");
                self.written.store(at + 1, Ordering::Release);
            }
        }
    }

    #[test]
    fn loom_a_full_ring_is_emptied_and_nothing_in_it_overwritten() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.max_branches = 10_000;
        builder.check(|| {
            let cells = std::array::from_fn(|_| UnsafeCell::new(0));
            let reservations = Reservations::new(0, 2);
            let written = AtomicU64::new(0);
            let ring = Arc::new(Ring { reservations, writer: loom::sync::Mutex::new(()), written, cells });
            let other = {
                let ring = ring.clone();
                begin(move || ring.append(1))
            };
            ring.append(0);
            ring.append(0);
            other.join().unwrap();
            ring.write_out();
            assert_eq!(ring.written.load(Ordering::Relaxed), 3);
        });
    }

    /// Model of `Log::read_ring`: a reader that a writer overtakes detects this from the tail, because of the fence in
    /// `reserve`.
    #[test]
    fn loom_a_reader_that_is_overtaken_finds_out() {
        loom::model(|| {
            let shared = Arc::new((Reservations::new(0, 1), AtomicU64::new(0)));
            let put = |(reservations, word): &(Reservations, AtomicU64)| {
                let at = reservations.reserve(SlotId(0), 1);
                word.store(at + 100, Ordering::Relaxed);
                reservations.done(SlotId(0));
            };
            put(&shared);
            let theirs = shared.clone();
            let writer = begin(move || put(&theirs));
            let (reservations, word) = &*shared;
            let seen = word.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            let still_there = reservations.tail() <= 1;
            assert!(!still_there || seen == 100, "read {seen}, which was written later, and did not find out");
            writer.join().unwrap();
        });
    }
}
