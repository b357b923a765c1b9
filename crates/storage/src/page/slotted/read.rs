//! Reads of slotted pages: the search for slots by key, and the contents of slots. Safe for any bytes; the results are
//! meaningful only if the bytes were stable.

use std::cmp::Ordering;

use super::super::access::PageRef;
use super::super::header::*;
use super::super::hints;
use crate::base::ids::{PAGE_SIZE, PageId};

/// A decoded slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Offset of the record in the page.
    pub(crate) offset: usize,
    /// Length of the key after the prefix, in bytes.
    pub(crate) key_len: usize,
    /// Length of the value in bytes.
    pub(crate) value_len: usize,
    /// Flags of the slot: see [`GHOST`] and [`OVERFLOW`].
    pub(crate) flags: u16,
}

impl Slot {
    /// Returns the offset of the value in the page.
    #[inline]
    pub(crate) fn value_at(self) -> usize {
        self.offset + RECORD_HEAD + self.key_len
    }

    /// Returns true if the row is deleted.
    #[inline]
    pub(crate) fn is_ghost(self) -> bool {
        self.flags & GHOST != 0
    }

    /// Returns true if the record contains a reference in place of the value.
    #[inline]
    pub(crate) fn is_overflow(self) -> bool {
        self.flags & OVERFLOW != 0
    }

    pub(super) fn record_len(self) -> usize {
        RECORD_HEAD + self.key_len + self.value_len
    }
}

/// Returns the head of the rest of a key, which begins after `prefix` bytes.
#[inline]
pub(in crate::page) fn head_of(key: &[u8], prefix: usize) -> u32 {
    let Some(last) = key.len().checked_sub(4) else { return head_of_few(key, prefix) };
    // If the rest is shorter than a head, its bytes are padded with zeros. There is no branch for this case, because keys of
    // many lengths are mixed.
    let at = prefix.min(last);
    let word =
        key.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>()).map_or(0, |word| u32::from_be_bytes(*word));
    (u64::from(word) << (8 * (prefix - at).min(4))) as u32
}

/// Returns the head for a key of fewer than four bytes.
#[cold]
fn head_of_few(key: &[u8], prefix: usize) -> u32 {
    let mut head = [0; 4];
    let rest = key.get(prefix..).unwrap_or(&[]);
    head.iter_mut().zip(rest).for_each(|(head, byte)| *head = *byte);
    u32::from_be_bytes(head)
}

/// Range of the lengths of a rest (a key after the prefix) whose bytes after the first four are compared as one word.
const SHORT: std::ops::RangeInclusive<usize> = 5..=MOST_SHORT;
const MOST_SHORT: usize = 12;

/// Returns the bytes of a key's rest after its first four bytes, padded with zeros, as a number with the same order. Of two
/// rests with equal numbers the shorter one comes first. Returns `None` if the length is not in `SHORT`.
#[inline]
fn short_tail(rest: &[u8]) -> Option<u64> {
    if !SHORT.contains(&rest.len()) {
        return None;
    }
    let mut word = [0; 8];
    word[..rest.len() - 4].copy_from_slice(&rest[4..]);
    Some(u64::from_be_bytes(word))
}

/// Returns a word with its last `n` bytes (less than eight) set to zero.
#[inline]
fn without_last(word: u64, n: usize) -> u64 {
    word & u64::MAX << (8 * n)
}

/// Range of slots in which a key can lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotRange {
    pub(super) head: u32,
    pub(super) from: u16,
    pub(super) to: u16,
    /// True if all keys of the page are above the search key, or all are below it. Then `from` is the position of the search
    /// key.
    pub(super) is_outside: bool,
}

impl SlotRange {
    /// Range for a page that has not been searched yet.
    pub(crate) const NONE: SlotRange = SlotRange { head: 0, from: 0, to: 0, is_outside: true };
}

/// Read access. Safe for any bytes; the results are meaningful only if the bytes were stable.
impl<'a> PageRef<'a> {
    /// Returns the number of slots in use.
    #[inline]
    pub(crate) fn count(self) -> usize {
        usize::from(self.u16(COUNT)).min(MAX_SLOTS)
    }

    /// Returns the level of the page: its distance from the leaves.
    #[inline]
    pub(crate) fn level(self) -> u8 {
        self.u8(LEVEL)
    }

    /// Returns true if this is a leaf of a tree.
    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        self.u8(LEVEL) == 0
    }

    /// Returns the slot at `i`; an arbitrary slot if `i` exceeds the maximum of a page.
    #[inline]
    pub(crate) fn slot(self, i: usize) -> Slot {
        let (place, lens) = (self.slot_word(i, 4), self.slot_word(i, 8));
        Slot {
            offset: (place & 0xFFFF) as usize,
            key_len: (place >> 16) as usize,
            value_len: (lens & 0xFFFF) as usize,
            flags: (lens >> 16) as u16,
        }
    }

    /// Returns the slot at `i` of a page of any level. The slot of an inner page has no value and no flags.
    #[inline]
    pub(crate) fn entry(self, i: usize) -> Slot {
        let slot = self.slot(i);
        if self.is_leaf() { slot } else { Slot { value_len: 0, flags: 0, ..slot } }
    }

    /// Returns the word of slot `i` that belongs to neither key nor value: the version of a row, or the child of an inner
    /// page.
    pub(super) fn word(self, i: usize) -> u32 {
        if self.is_leaf() { self.row_version(self.slot(i)) } else { self.slot_word(i, 8) }
    }

    #[inline]
    pub(super) fn head(self, i: usize) -> u32 {
        self.slot_word(i, 0)
    }

    #[inline]
    pub(super) fn prefix_len(self) -> usize {
        usize::from(self.u16(PREFIX_LEN))
    }

    /// Compares the key of slot `i` with a key that has the same head. `rest` is that key after the prefix.
    #[inline]
    pub(super) fn compare_rest(self, i: usize, rest: &[u8]) -> Ordering {
        let slot = self.slot(i);
        if slot.key_len <= 4 && rest.len() <= 4 {
            return slot.key_len.cmp(&rest.len());
        }
        self.compare(slot.offset + RECORD_HEAD, slot.key_len, rest)
    }

    /// Returns a lower and an upper bound, from the hints, for the first slot whose head is not below `head`.
    #[inline]
    pub(super) fn segment(self, head: u32, count: usize) -> (usize, usize) {
        let below = hints::below(self, head);
        let to = if below == HINT_COUNT { count } else { hint_slot(below + 1, count) };
        // If a hint is below the head, its slot is below it as well.
        let from = hint_slot(below, count) + usize::from(below > 0);
        (from.min(to), to)
    }

    /// Prefetches the cache lines of the slots `from..to` together. The reads of a search cannot overlap, because each read
    /// determines the next one.
    #[inline]
    pub(super) fn prefetch_slots(self, from: usize, to: usize) {
        // The slot at `to` may be the result of the search.
        self.prefetch_bytes(SLOTS + from * SLOT, (to + 1 - from) * SLOT);
    }

    /// Prefetches the cache lines of slot `i`.
    #[inline]
    pub(crate) fn prefetch_slot(self, i: usize) {
        self.prefetch_bytes(SLOTS + i.min(MAX_SLOTS) * SLOT, SLOT);
    }

    /// Prefetches the record of slot `i`, if the slot exists.
    #[inline]
    pub(crate) fn prefetch_row(self, i: usize) {
        if i >= self.count() {
            return;
        }
        let slot = self.slot(i);
        self.prefetch_bytes(slot.offset, slot.record_len());
    }

    /// Prefetches the lines that an insert at slot `i` will write: the slot, and the lower end of the heap.
    #[inline]
    pub(crate) fn prefetch_room(self, i: usize) {
        self.prefetch_room_at(i, self.heap_start());
    }

    /// Returns the number of consecutive inserts of which each came directly after the previous one; see
    /// [`PageMut::note_insert`](super::super::PageMut::note_insert).
    #[inline]
    pub(crate) fn insert_run(self) -> u16 {
        self.u16(RUN)
    }

    /// Returns the start of the heap of records, which grows downwards.
    #[inline]
    pub(crate) fn heap_start(self) -> usize {
        usize::from(self.u16(HEAP_START))
    }

    /// Like [`PageRef::prefetch_room`], for a caller that knows the start of the heap. Reads nothing of the page.
    #[inline]
    pub(crate) fn prefetch_room_at(self, i: usize, heap: usize) {
        self.prefetch(heap.saturating_sub(1));
        self.prefetch(heap.saturating_sub(65));
        self.prefetch(SLOTS + i.min(MAX_SLOTS) * SLOT);
    }

    /// Returns the first slot whose key is not below `key`, and true if that key equals `key`.
    #[inline]
    pub(crate) fn lower_bound(self, key: &[u8]) -> (usize, bool) {
        self.finish(self.narrow(key), key)
    }

    /// First half of [`PageRef::lower_bound`]: returns the slots in which the key can lie, and prefetches them. Inlined into
    /// its caller, because the second half must be near it in the instruction cache.
    #[inline(always)]
    pub(crate) fn narrow(self, key: &[u8]) -> SlotRange {
        let narrowed = self.narrow_near(key);
        self.prefetch_slots(usize::from(narrowed.from), usize::from(narrowed.to));
        narrowed
    }

    /// Like [`PageRef::narrow`], for a page whose slots are in the cache: prefetches nothing.
    #[inline(always)]
    pub(crate) fn narrow_near(self, key: &[u8]) -> SlotRange {
        let prefix = self.prefix_len();
        let skip = usize::from(self.u16(SKIP)).min(4);
        let count = self.count();
        if skip > 0 {
            // The bytes that all keys share are compared as a number: a key that differs in them is above or below all keys
            // of the page.
            let (shared, same) = (self.u32(SHARED), head_of(key, prefix) & SHARED_MASK[skip]);
            if shared != same {
                let at = if shared < same { count as u16 } else { 0 };
                return SlotRange { head: 0, from: at, to: at, is_outside: true };
            }
        }
        let head = head_of(key, prefix + skip);
        let (from, to) = self.segment(head, count);
        SlotRange { head, from: from as u16, to: to as u16, is_outside: false }
    }

    /// Second half of [`PageRef::lower_bound`]: searches the slots that the first half returned.
    #[inline]
    pub(crate) fn finish(self, narrowed: SlotRange, key: &[u8]) -> (usize, bool) {
        let SlotRange { head, from, to, is_outside } = narrowed;
        let from = self.heads_below(head, from.into(), to.into());
        let count = self.count();
        if is_outside || from >= count || self.head(from) != head {
            return (from, false);
        }
        let rest = key.get(self.prefix_len()..).unwrap_or(&[]);
        // A short key is equal if its head is, because the head and the shared bytes before it are the whole key.
        if rest.len() <= 4 + usize::from(self.u16(SKIP)) && rest.len() == self.slot(from).key_len {
            return (from, true);
        }
        self.lower_bound_among_equals(from, count, head, rest)
    }

    /// Returns true if slot `i` has this key. Needs no search.
    pub(crate) fn has_key_at(self, i: usize, key: &[u8]) -> bool {
        i < self.count() && self.shares_prefix(key) && self.order_at(i, key).is_eq()
    }

    /// Returns true if a leaf has no row with this key, and a row with this key belongs just before slot `i`. Needs no search.
    pub(crate) fn is_gap_at(self, i: usize, key: &[u8]) -> bool {
        let is_above = || if i == 0 { self.is_from_low(key) } else { self.order_at(i - 1, key).is_lt() };
        let is_below = || if i == self.count() { self.is_below_high(key) } else { self.order_at(i, key).is_gt() };
        i <= self.count() && self.shares_prefix(key) && is_above() && is_below()
    }

    /// Compares the key in slot `i`, which exists, with a key that begins with the page's prefix.
    fn order_at(self, i: usize, key: &[u8]) -> Ordering {
        let slot = self.slot(i);
        self.compare(slot.offset + RECORD_HEAD, slot.key_len, key.get(self.prefix_len()..).unwrap_or(&[]))
    }

    /// Last part of [`PageRef::lower_bound`], for several slots with the same head, of which `from` is the first.
    #[inline(never)]
    pub(super) fn lower_bound_among_equals(
        self,
        mut from: usize,
        count: usize,
        head: u32,
        rest: &[u8],
    ) -> (usize, bool) {
        let tail = short_tail(rest);
        let order = |i: usize| {
            if self.head(i) != head {
                return Ordering::Greater;
            }
            if let Some(tail) = tail
                && let Some((mine, len)) = self.short_tail_of(i)
            {
                return mine.cmp(&tail).then(len.cmp(&rest.len()));
            }
            self.compare_rest(i, rest)
        };
        // Most runs of equal heads are short: steps of doubling length end near the first slot, within few cache lines.
        // After the first step beyond the result, each step halves the remaining range.
        let (mut to, mut ahead, mut doubles) = (count, 0, true);
        while from < to {
            doubles &= from + ahead < to;
            let at = if doubles { from + ahead } else { (from + to) / 2 };
            match order(at) {
                Ordering::Less => (from, ahead) = (at + 1, 2 * ahead + 1),
                Ordering::Greater => to = at,
                Ordering::Equal => return (at, true),
            }
        }
        (from, false)
    }

    /// Like [`short_tail`], for the key in slot `i`; also returns the key's length.
    #[inline]
    fn short_tail_of(self, i: usize) -> Option<(u64, usize)> {
        let place = self.slot_word(i, 4) as usize;
        let (offset, len) = (place & 0xFFFF, place >> 16);
        if !SHORT.contains(&len) {
            return None;
        }
        let word = self.u64_ordered(offset + RECORD_HEAD + 4)?;
        Some((without_last(word, MOST_SHORT - len), len))
    }

    /// Returns the position of the child of an inner page whose range contains `key`; `count()` means the upper child.
    #[inline]
    pub(crate) fn child_position(self, key: &[u8]) -> usize {
        let (position, equal) = self.lower_bound(key);
        position + usize::from(equal)
    }

    /// Returns the child at a position.
    #[inline]
    pub(crate) fn child(self, position: usize) -> PageId {
        if position >= self.count() {
            return PageId(self.u32(UPPER));
        }
        PageId(self.slot_word(position, 8))
    }

    /// Appends the whole key of slot `i` to `out`. Returns false if the slot refers to bytes outside the page.
    #[inline]
    #[must_use]
    pub(crate) fn append_key(self, i: usize, out: &mut Vec<u8>) -> bool {
        let slot = self.slot(i);
        let prefix = self.prefix_len();
        self.append_to(self.prefix_at(prefix), prefix, out)
            && self.append_to(slot.offset + RECORD_HEAD, slot.key_len, out)
    }

    /// Appends the whole key of a leaf's slot and, if requested, the value, which lies after the key: two copies. Returns
    /// the length of the key; `None` if the slot, which may be torn, refers to bytes outside the page.
    #[inline(always)]
    pub(crate) fn append_record(self, slot: Slot, with_value: bool, out: &mut Vec<u8>) -> Option<usize> {
        let prefix = self.prefix_len();
        let rest = slot.key_len + if with_value { slot.value_len } else { 0 };
        let whole = self.append_two((self.prefix_at(prefix), prefix), (slot.offset + RECORD_HEAD, rest), out);
        whole.then_some(prefix + slot.key_len)
    }

    /// Returns the whole key of slot `i`.
    pub(crate) fn key(self, i: usize) -> Vec<u8> {
        let mut key = Vec::new();
        let _ = self.append_key(i, &mut key);
        key
    }

    /// Appends the value of a slot to `out`. Returns false if the slot refers to bytes outside the page.
    #[inline]
    #[must_use]
    pub(crate) fn append_value(self, slot: Slot, out: &mut Vec<u8>) -> bool {
        self.append_to(slot.value_at(), slot.value_len, out)
    }

    /// Returns the version of the row in a slot.
    #[inline]
    pub(crate) fn row_version(self, slot: Slot) -> u32 {
        self.u32_unaligned(slot.offset)
    }

    /// Appends the low fence to `out`. Returns false if the fence is infinite.
    pub(crate) fn append_low(self, out: &mut Vec<u8>) -> bool {
        self.u16(FLAGS) & flags::LOW_INFINITE == 0
            && self.append_to(usize::from(self.u16(LOW_OFFSET)), usize::from(self.u16(LOW_LEN)), out)
    }

    /// Appends the high fence to `out`. Returns false if the fence is infinite.
    #[inline]
    pub(crate) fn append_high(self, out: &mut Vec<u8>) -> bool {
        self.u16(FLAGS) & flags::HIGH_INFINITE == 0
            && self.append_to(usize::from(self.u16(HIGH_OFFSET)), usize::from(self.u16(HIGH_LEN)), out)
    }

    /// Returns the low fence; `None` if it is infinite.
    pub(crate) fn low_fence(self) -> Option<Vec<u8>> {
        let mut fence = Vec::with_capacity(self.prefix_len() + usize::from(self.u16(LOW_LEN)));
        self.append_low(&mut fence).then_some(fence)
    }

    /// Returns the high fence; `None` if it is infinite.
    pub(crate) fn high_fence(self) -> Option<Vec<u8>> {
        let mut fence = Vec::with_capacity(self.prefix_len() + usize::from(self.u16(HIGH_LEN)));
        self.append_high(&mut fence).then_some(fence)
    }

    /// Returns true if `key` is at least as long as the page's prefix. Cheaper than [`PageRef::covers`].
    #[inline]
    pub(crate) fn may_share_prefix(self, key: &[u8]) -> bool {
        key.len() >= self.prefix_len()
    }

    /// Returns true if `key` begins with the page's prefix. A search that did not reach the page through the tree must check
    /// this.
    #[inline]
    pub(crate) fn shares_prefix(self, key: &[u8]) -> bool {
        let len = self.prefix_len();
        if len <= LEAD_BYTES
            && self.is_leaf()
            && let Some(first) = key.first_chunk::<LEAD_BYTES>()
        {
            // One comparison of two words. The shift removes the bytes after the prefix.
            let behind = u64::MAX.checked_shl(8 * len as u32).unwrap_or(0);
            return (u64::from_le_bytes(*first) ^ self.u64(LEAD)) & !behind == 0;
        }
        key.get(..self.prefix_len()).is_some_and(|lead| self.has_prefix(lead))
    }

    /// Returns true if `lead`, which has the prefix's length, is the prefix.
    #[inline]
    pub(super) fn has_prefix(self, lead: &[u8]) -> bool {
        self.has_bytes(self.prefix_at(lead.len()), lead)
    }

    /// Returns the offset of the prefix, which has `len` bytes. A leaf has a copy of a short prefix in its header; other
    /// pages have the prefix only in the low fence.
    #[inline]
    fn prefix_at(self, len: usize) -> usize {
        if len <= LEAD_BYTES && self.is_leaf() { LEAD } else { usize::from(self.u16(LOW_OFFSET)) }
    }

    /// Returns true if slot `i` has exactly this key.
    #[inline]
    pub(crate) fn has_key(self, i: usize, key: &[u8]) -> bool {
        let Some((lead, rest)) = key.split_at_checked(self.prefix_len()) else { return false };
        let place = self.slot_word(i, 4) as usize;
        let (offset, key_len) = (place & 0xFFFF, place >> 16);
        i < self.count() && key_len == rest.len() && self.has_bytes(offset + RECORD_HEAD, rest) && self.has_prefix(lead)
    }

    /// Returns true if `key` may lie on this page, has no slot, and would come before slot `i`.
    #[inline(never)]
    pub(crate) fn lacks_key(self, i: usize, key: &[u8]) -> bool {
        let Some((lead, rest)) = key.split_at_checked(self.prefix_len()) else { return false };
        let count = self.count();
        // Keys of the page lie between the fences, so a fence is compared only if there is no neighbouring key.
        i <= count
            && self.has_prefix(lead)
            && (if i == 0 { self.is_from_low(key) } else { self.compare_whole_rest(i - 1, rest).is_lt() })
            && (if i == count { self.is_below_high(key) } else { self.compare_whole_rest(i, rest).is_gt() })
    }

    /// Compares the key of slot `i` with a key that begins with the page's prefix, given without the prefix.
    #[inline]
    pub(super) fn compare_whole_rest(self, i: usize, rest: &[u8]) -> Ordering {
        let slot = self.slot(i);
        self.compare(slot.offset + RECORD_HEAD, slot.key_len, rest)
    }

    /// Prefetches the line that [`PageRef::shares_prefix`] reads besides the header.
    #[inline]
    pub(crate) fn prefetch_prefix(self) {
        if self.prefix_len() > LEAD_BYTES {
            self.prefetch(usize::from(self.u16(LOW_OFFSET)));
        }
    }

    /// Returns true if `key` lies between the fences.
    #[inline]
    pub(crate) fn covers(self, key: &[u8]) -> bool {
        self.is_from_low(key) && self.is_below_high(key)
    }

    #[inline]
    pub(crate) fn is_from_low(self, key: &[u8]) -> bool {
        self.u16(FLAGS) & flags::LOW_INFINITE != 0
            || self.compare(usize::from(self.u16(LOW_OFFSET)), usize::from(self.u16(LOW_LEN)), key).is_le()
    }

    #[inline]
    pub(crate) fn is_below_high(self, key: &[u8]) -> bool {
        self.u16(FLAGS) & flags::HIGH_INFINITE != 0
            || self.compare(usize::from(self.u16(HIGH_OFFSET)), usize::from(self.u16(HIGH_LEN)), key).is_gt()
    }

    /// Returns the right neighbour of a leaf.
    pub(crate) fn right(self) -> PageId {
        PageId(self.u32(RIGHT))
    }

    /// Returns the number of ghosts on the page.
    #[inline]
    pub(crate) fn ghosts(self) -> usize {
        usize::from(self.u16(GHOSTS))
    }

    /// Returns the number of free bytes, including holes in the heap.
    #[inline]
    pub(crate) fn free_bytes(self) -> usize {
        let gap = usize::from(self.u16(HEAP_START)).saturating_sub(SLOTS + self.count() * SLOT);
        gap + usize::from(self.u16(HEAP_FREE))
    }

    /// Returns the number of bytes in use by slots, records and fences.
    pub(crate) fn used_bytes(self) -> usize {
        PAGE_SIZE - SLOTS - self.free_bytes()
    }

    /// Returns true if the page has space for a record with a key (prefix included) and a value of these lengths.
    #[inline]
    pub(crate) fn has_room(self, key_len: usize, value_len: usize) -> bool {
        let rest = key_len.saturating_sub(usize::from(self.u16(PREFIX_LEN)));
        SLOT + RECORD_HEAD + rest + value_len <= self.free_bytes() && self.count() < MAX_SLOTS
    }
}
