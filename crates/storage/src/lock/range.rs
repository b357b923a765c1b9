//! Ranges: one lock for all keys and gaps that a scan has read in a leaf, in place of a record lock for each.
//!
//! A range stands for a record lock on every key in it, and for a lock on every gap in it, none of which is written down. An
//! owner that meets such a lock writes it down first (`LockOwner::write_down`): it puts a request of the range's owner
//! into the bucket, as that owner would have done, and then queues behind it. So the rules of queues, deadlocks and
//! timeouts know nothing of ranges.
//!
//! **Where they are.** An owner that scans takes one of [`SEATS`] seats for the rest of its transaction, the one that its slot
//! falls on; if another owner has it, the scan locks rows. The seat has the list of the owner's ranges under a mutex. Two
//! words per table say which seats have ranges there: shared ones (the keys as by S) and exclusive ones (as by X). A
//! transaction that locks a record reads both, and goes on if they are 0 but for its own seat, whatever its mode is.
//!
//! **The handshake** of a scan with an owner that locks a record. The scan locks its seat's mutex and sets its bit; then it
//! asks of each key whether a record lock would be granted now ([`LockOwner::could_acquire`]), validates the leaf, adds the
//! range and unlocks. The other owner puts its request into the bucket, and then reads the words; if the bit is set it looks at
//! the list, and takes a locked mutex for a range in its way. Both change first and look then, with full barriers between: the
//! scan sees the request, or the owner of the request sees the bit or the range. If it does, it takes its request back and
//! waits. A key that is not in the leaf yet has no bucket that the scan looks at: an insert looks at the word with the
//! leaf latched, so that it sees the bit, or the scan's validation sees the latch.
//!
//! **Two scans** whose ranges exclude each other look at each other's words and lists after each has set its bit and
//! locked its mutex: the later one sees the earlier one, and locks rows instead. So does one that finds a mutex locked:
//! nothing here waits for a second mutex.

use super::insert::InsertCheck;
use super::mode::{GapMode, KeyMode, RecordMode};
use super::name::{LockName, Prefix};
use super::owner::{Acquired, LockOwner, Refused};
use super::queue::{self, Ask};
use super::request::{Request, WrittenLock};
use super::seats::{KeyAt, LockedRange, MOST, RangeList, SEATS, Span, each};
use super::sync::{AtomicU64, MutexGuard, Ordering, yield_now};
use super::wait::Wakes;
use super::{LockRefusal, LockTable};
use crate::base::ids::IndexId;
use crate::base::mutant::{Mutant, is_mutant};

/// How a scan locks what it reads in a leaf.
pub(crate) enum Opened<'l> {
    /// By a lock on each record and gap: a range is not to be had.
    Rows,
    /// Not at all: the owner has locked all of it.
    Held,
    /// By a range.
    Range(OpenRange<'l>),
}

/// A range of which others know that it comes, while its keys are read. Dropped, it has never been.
pub(crate) struct OpenRange<'l> {
    list: MutexGuard<'l, RangeList>,
    word: &'l AtomicU64,
    seat: u64,
    table: u32,
    index: IndexId,
    mode: KeyMode,
}

impl OpenRange<'_> {
    /// Locks these keys and gaps. The caller has asked for each key and gap whether it could be locked, and has found the
    /// leaf unchanged since.
    pub(crate) fn keep(mut self, span: Span<'_>) {
        if is_mutant(Mutant::PublishRangeLate) {
            yield_now();
            self.announce();
        }
        if !span.is_empty() {
            let (table, index, mode) = (self.table, self.index, self.mode);
            self.list.add(table, index, mode, span);
        }
    }

    /// Whether the owner could lock a key, a gap or both now, or has it by another range. Leaves nothing behind.
    #[inline]
    pub(crate) fn admits(&self, owner: &LockOwner, at: &KeyAt<'_>, mode: RecordMode, low: Prefix) -> bool {
        owner.could_acquire(at.table, at.name, mode, low) || self.list.held_by_owner(at) >= mode.key().max(KeyMode::S)
    }

    fn announce(&mut self) {
        // Its own bit is changed by the owner alone.
        if self.word.load(Ordering::Relaxed) & self.seat == 0 {
            self.word.fetch_or(self.seat, Ordering::SeqCst);
            let word = (self.table, self.mode);
            self.list.words.push(word);
        }
    }
}

impl LockTable {
    /// Begins to lock a range for `owner`, which reads a leaf in it, in mode S or X. The caller holds no latch, and keeps or
    /// drops the result before anything that may wait.
    pub(crate) fn open_range(
        &self,
        owner: &mut LockOwner,
        (table, index): (u32, IndexId),
        mode: KeyMode,
        span: Span<'_>,
    ) -> Opened<'_> {
        if owner.covers(table, mode, true) {
            return Opened::Held;
        }
        let at = usize::from(owner.slot.0) % SEATS;
        let seat = &self.ranges.seats[at];
        if owner.seat == 0 {
            let mine = u32::from(owner.slot.0) + 1;
            if seat.taken.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                return Opened::Rows;
            }
            owner.seat = 1 << at;
        }
        let mut list = seat.list.lock();
        list.owner = owner.slot;
        let held = |r: &LockedRange| r.is_of(table, index) && r.mode >= mode && r.covers(span);
        if list.ranges().any(held) {
            return Opened::Held;
        }
        if list.used == MOST {
            return Opened::Rows;
        }
        let seated = &self.ranges.tables[table as usize];
        let mut range = OpenRange { list, word: seated.of(mode), seat: owner.seat, table, index, mode };
        if !is_mutant(Mutant::PublishRangeLate) {
            range.announce();
        }
        let excluded = |other: &LockedRange| other.is_of(table, index) && other.excludes(mode) && other.overlaps(span);
        for at in each(seated.in_the_way(mode, owner.seat)) {
            match self.ranges.seats[at].list.try_lock() {
                Some(other) if !other.ranges().any(excluded) => {}
                _ => return Opened::Rows,
            }
        }
        Opened::Range(range)
    }
}

impl LockOwner {
    /// Whether [`LockOwner::try_acquire`] would lock `name`, by record locks alone. Leaves nothing behind; ordered after
    /// all that the caller has done, notably after it has begun a range.
    #[inline]
    fn could_acquire(&self, table: u32, name: LockName, mode: RecordMode, low: Prefix) -> bool {
        self.locks.buckets.of(name).is_empty_now() || self.could_acquire_slow(table, name, GapMode { mode, low })
    }

    #[inline(never)]
    fn could_acquire_slow(&self, table: u32, name: LockName, claim: GapMode) -> bool {
        let list = self.locks.buckets.of(name).latch();
        let held = queue::find_held(&list, self.slot, table, name).map(|r| r.holds());
        let claim = match held {
            Some(holds) if holds.covers(claim) => return true,
            Some(holds) => claim.beyond(holds),
            None => claim,
        };
        !Ask { owner: self.slot, table, name, claim, converting: held.is_some(), queued: None }.is_blocked(&list)
    }

    /// As [`LockOwner::try_acquire`], where other owners may have locked the key by a range.
    #[inline]
    pub(crate) fn try_acquire_at(&mut self, at: KeyAt<'_>, mode: RecordMode, low: Prefix) -> Result<Acquired, Refused> {
        match self.try_acquire(at.table, at.name, mode, low) {
            Ok(acquired) if self.is_alone_in(at.table) => Ok(acquired),
            Ok(acquired) => self.beside_ranges(at, mode, acquired),
            Err(Refused::WouldBlock) if self.seat != 0 => self.try_acquire_in_own(at, mode, low),
            Err(refused) => Err(refused),
        }
    }

    /// Tries once more where the owner may have a range of its own.
    #[cold]
    fn try_acquire_in_own(&mut self, at: KeyAt<'_>, mode: RecordMode, low: Prefix) -> Result<Acquired, Refused> {
        if !self.write_down_own(&at) {
            return Err(Refused::WouldBlock);
        }
        let acquired = self.try_acquire_slow(at.table, at.name, GapMode { mode, low })?;
        self.beside_ranges(at, mode, acquired)
    }

    /// Whether no other owner has ranges in `table`: what nearly every lock finds, so it asks no more than that.
    #[inline]
    fn is_alone_in(&self, table: u32) -> bool {
        self.seated[table as usize].is_free_for(self.seat)
    }

    /// The seats of others whose ranges may be in the way of a claim on a key of `table`.
    fn meets_seats(&self, table: u32, key: KeyMode) -> u64 {
        self.seated[table as usize].in_the_way(key, self.seat)
    }

    #[cold]
    fn beside_ranges(&mut self, at: KeyAt<'_>, mode: RecordMode, acquired: Acquired) -> Result<Acquired, Refused> {
        if self.is_new_to(mode, acquired) && self.meets_range(&at, mode.key(), false) {
            self.take_back(&at, acquired);
            return Err(Refused::WouldBlock);
        }
        Ok(acquired)
    }

    /// Whether the owner's lock on a key has become stronger: what it had before keeps others from ranges that would be in
    /// its way.
    fn is_new_to(&self, mode: RecordMode, acquired: Acquired) -> bool {
        match acquired {
            Acquired::New => true,
            Acquired::Converted => self.converted.mode.key() < mode.key(),
            Acquired::Already | Acquired::Covered => false,
        }
    }

    /// Whether another owner's range is in the way of this claim. If `patient`, waits out scans that are reading a leaf;
    /// if not, takes each of them for a range in the way.
    fn meets_range(&self, at: &KeyAt<'_>, key: KeyMode, patient: bool) -> bool {
        each(self.meets_seats(at.table, key)).any(|seat| {
            let list = &self.locks.ranges.seats[seat].list;
            let list = if patient { Some(list.lock()) } else { list.try_lock() };
            list.is_none_or(|list| list.met_by(at, key).is_some())
        })
    }

    /// Takes back what the last request has locked.
    fn take_back(&mut self, at: &KeyAt<'_>, acquired: Acquired) {
        if acquired == Acquired::New {
            self.release_one(at.table, at.name);
            return;
        }
        let mut wakes = Wakes::default();
        {
            let list = self.locks.buckets.of(at.name).latch();
            if let Some(request) = queue::find_held(&list, self.slot, at.table, at.name) {
                request.set_held(self.converted);
            }
            queue::grant(&list, at.name, &mut wakes);
        }
        self.locks.deliver(wakes);
    }

    /// As [`LockOwner::acquire_wait`], where other owners may have locked the key by a range.
    pub(crate) fn acquire_wait_at(
        &mut self,
        at: &KeyAt<'_>,
        mode: RecordMode,
        low: Prefix,
    ) -> Result<Acquired, LockRefusal> {
        self.write_down_own(at);
        loop {
            let key = mode.key();
            self.write_down_key(at, key);
            let acquired = self.acquire_wait(at.table, at.name, mode, low)?;
            // A range that has come meanwhile, without knowing of the request.
            if !self.is_new_to(mode, acquired) || !self.meets_range(at, key, true) {
                return Ok(acquired);
            }
            self.take_back(at, acquired);
        }
    }

    /// Writes down what the owner's own ranges say of a key, so that a stronger lock is a conversion, and a weaker one no
    /// request at all; false if there is nothing to write down.
    #[cold]
    fn write_down_own(&self, at: &KeyAt<'_>) -> bool {
        let own = |list: &RangeList| {
            let mode = RecordMode::of_key(list.held_by_owner(at));
            (!mode.is_none()).then_some(GapMode { mode, low: Prefix::MIN })
        };
        self.write_down(at.table, at.name, self.seat, own)
    }

    /// Writes down the locks of others on a key that are in the way of this claim.
    pub(super) fn write_down_key(&self, at: &KeyAt<'_>, key: KeyMode) {
        self.write_down(at.table, at.name, self.meets_seats(at.table, key), |list| {
            list.met_by(at, key).map(|range| GapMode { mode: RecordMode::of_key(range.mode), low: Prefix::MIN })
        });
    }

    /// Writes down the locks of others on the gap below `next` that are in the way of an insert of `at`.
    pub(super) fn write_down_gap(&self, at: &KeyAt<'_>, next: LockName) {
        self.write_down(at.table, next, self.meets_seats(at.table, KeyMode::X), |list| {
            let range = list.met_by_insert(at.table, at.index, at.key, at.key)?;
            Some(GapMode { mode: RecordMode::GAP, low: Prefix::of(&range.low) })
        });
    }

    /// Writes down the locks on `name` that the ranges of other owners stand for, as far as they matter to `found`; says
    /// whether there were any.
    fn write_down(
        &self,
        table: u32,
        name: LockName,
        seats: u64,
        found: impl Fn(&RangeList) -> Option<GapMode>,
    ) -> bool {
        let mut wrote = false;
        for seat in each(seats) {
            // The range stays while its list is locked. A scan that is reading a leaf has it locked until it has its range.
            let mut list = self.locks.ranges.seats[seat].list.lock();
            let Some(claim) = found(&list) else { continue };
            let requests = self.locks.buckets.of(name).latch();
            let of_owner = |r: &Request| r.owner == list.owner && r.is_for(table, name) && !r.held.get().is_none();
            if requests.iter().any(|r| of_owner(r) && r.holds().covers(claim)) {
                continue;
            }
            let written = WrittenLock::new(list.owner, table, name, claim);
            requests.push_held(&written);
            drop(requests);
            list.written.push(written);
            wrote = true;
        }
        wrote
    }

    /// As [`LockOwner::try_instant_s`], where other owners may have locked the key by a range.
    #[inline]
    pub(crate) fn try_instant_s_at(&self, at: KeyAt<'_>) -> bool {
        self.try_instant_s(at.table, at.name) && (self.is_alone_in(at.table) || self.reads_beside_ranges(at))
    }

    #[cold]
    fn reads_beside_ranges(&self, at: KeyAt<'_>) -> bool {
        self.covers(at.table, KeyMode::S, false) || !self.meets_range(&at, KeyMode::S, false)
    }

    /// As [`LockOwner::wait_instant_s`], where other owners may have locked the key by a range.
    pub(crate) fn wait_instant_s_at(&mut self, at: &KeyAt<'_>) -> Result<(), LockRefusal> {
        if self.acquire_wait_at(at, RecordMode::S, Prefix::MIN)? == Acquired::New {
            self.release_one(at.table, at.name);
        }
        Ok(())
    }

    /// As [`LockOwner::check_insert`] for keys of `index` from `first` to `last`, where other owners may have locked the
    /// place by a range.
    #[inline]
    pub(crate) fn check_insert_at(
        &self,
        place: (u32, IndexId),
        next: LockName,
        first: &[u8],
        last: &[u8],
    ) -> InsertCheck {
        // A gap lock that excludes a smaller key also excludes the largest one.
        let check = self.check_insert(place.0, next, Prefix::of(last));
        if is_mutant(Mutant::CheckRangeUnlatched) || !self.inserts_into_range(place, first, last) {
            check
        } else {
            InsertCheck::Blocked
        }
    }

    /// Whether other owners have locked, by ranges, the place of keys of `index` from `first` to `last`. The caller has the
    /// leaf latched where they will lie.
    #[inline]
    pub(crate) fn inserts_into_range(&self, place: (u32, IndexId), first: &[u8], last: &[u8]) -> bool {
        !self.is_alone_in(place.0) && self.inserts_into_a_range(place, first, last)
    }

    #[cold]
    fn inserts_into_a_range(&self, (table, index): (u32, IndexId), first: &[u8], last: &[u8]) -> bool {
        let free = self.covers(table, KeyMode::X, true) || is_mutant(Mutant::SkipGapCheck);
        !free
            && each(self.meets_seats(table, KeyMode::X)).any(|seat| {
                let list = self.locks.ranges.seats[seat].list.try_lock();
                list.is_none_or(|list| list.met_by_insert(table, index, first, last).is_some())
            })
    }

    /// As [`LockOwner::wait_insert`], where other owners may have locked the place of `at` by a range; `next` is the name of
    /// the next larger key.
    pub(crate) fn wait_insert_at(&mut self, at: &KeyAt<'_>, next: LockName) -> Result<(), LockRefusal> {
        self.write_down_gap(at, next);
        self.wait_insert(at.table, next, Prefix::of(at.key))
    }

    /// Releases the owner's ranges, and what others have written down for them.
    #[inline(never)]
    pub(super) fn release_ranges(&mut self) {
        let seat = &self.locks.ranges.seats[self.seat.trailing_zeros() as usize];
        let written = {
            let mut list = seat.list.lock();
            list.used = 0;
            while let Some((table, mode)) = list.words.pop() {
                self.seated[table as usize].of(mode).fetch_and(!self.seat, Ordering::AcqRel);
            }
            std::mem::take(&mut list.written)
        };
        self.seat = 0;
        seat.taken.store(0, Ordering::Release);
        for request in &written {
            self.locks.release_shared(request, |list, wakes| queue::release_at_end(list, request, wakes));
        }
    }
}
