//! Slotted pages: sorted keys with a value each, prefix truncated, searched through hint keys.
//!
//! ```text
//! 0        64      128            slots grow up ->      <- heap grows down        8192
//! +--------+-------+------+------+------+----------------+--------+-------+--------+
//! | header | hints | slot | slot | slot |   free         | record | fence | record |
//! +--------+-------+------+------+------+----------------+--------+-------+--------+
//! ```
//!
//! A slot is 12 bytes: `head` (first four bytes of the key after the page's prefix, as a number that orders like the
//! key), the record's offset, key length, and then in a leaf value length and flags, in an inner page the child: once a
//! search has found the slot it need not look at the record. A record is four bytes (a row's version; unused in an
//! inner page), the rest of the key, the value.
//!
//! The **fences** bound what keys may come to lie here: `low <= key < high`, both stored whole, either
//! may be infinite. All keys share the fences' common prefix, which is stored once.
//!
//! A page at the edge of its tree (so the root) has an infinite fence and thus no prefix. Its keys may still share
//! their first bytes; so that heads differ, heads there begin behind the bytes that all keys share (`SKIP`, `SHARED`),
//! and a search first compares those bytes.
//!
//! The 16 **hints** are heads of evenly spaced slots in one cache line: a search looks at the header's
//! line, the hints' line, one segment of the slots and then the record.
//!
//! In an inner page, the child in slot `i` holds the keys below the key of slot `i` (and not below that
//! of slot `i - 1`); the header's `UPPER` child holds the rest.

use std::cmp::Ordering;

use super::access::{PageBytes, PageMut, PageRef};
use super::header::*;
use super::hints::{self, HINT_COUNT};
use crate::base::ids::{IndexId, PAGE_SIZE, PageId};

/// Bytes of a slot.
pub(crate) const SLOT: usize = 12;
/// Bytes of a record before its key: the row's version.
pub(crate) const RECORD_HEAD: usize = 4;
/// Most slots a page can have.
pub(crate) const MAX_SLOTS: usize = (PAGE_SIZE - SLOTS) / SLOT - 1;
/// Fewer slots than this are searched without hints.
pub(super) const HINTS_FROM: usize = 2 * HINT_COUNT;

/// Bits of the header's flags.
pub(crate) mod flags {
    /// There is no low fence.
    pub(crate) const LOW_INFINITE: u16 = 1;
    /// There is no high fence.
    pub(crate) const HIGH_INFINITE: u16 = 2;
}

/// Bit of a slot's flags: the row is deleted, its key still separates two gaps.
pub(crate) const GHOST: u16 = 1;

/// A slot, decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Where the record begins.
    pub(crate) offset: usize,
    /// Bytes of the key after the prefix.
    pub(crate) key_len: usize,
    /// Bytes of the value.
    pub(crate) value_len: usize,
    /// See [`GHOST`].
    pub(crate) flags: u16,
}

impl Slot {
    /// Where the value begins.
    #[inline]
    pub(crate) fn value_at(self) -> usize {
        self.offset + RECORD_HEAD + self.key_len
    }

    /// Whether the row is deleted.
    #[inline]
    pub(crate) fn is_ghost(self) -> bool {
        self.flags & GHOST != 0
    }

    fn record_len(self) -> usize {
        RECORD_HEAD + self.key_len + self.value_len
    }
}

/// The head of a key's rest, which begins behind `prefix` bytes.
#[inline]
pub(super) fn head_of(key: &[u8], prefix: usize) -> u32 {
    let Some(last) = key.len().checked_sub(4) else { return head_of_few(key, prefix) };
    // A rest shorter than a head is the key's last bytes, padded with zeros. No branch: keys of many lengths are mixed.
    let at = prefix.min(last);
    let word =
        key.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>()).map_or(0, |word| u32::from_be_bytes(*word));
    (u64::from(word) << (8 * (prefix - at).min(4))) as u32
}

/// For a key of less than four bytes.
#[cold]
fn head_of_few(key: &[u8], prefix: usize) -> u32 {
    let rest = key.get(prefix..).unwrap_or(&[]);
    rest.iter().chain(&[0; 4]).take(4).fold(0, |head, byte| head << 8 | u32::from(*byte))
}

/// The first bytes of a head, as many as are shared.
pub(super) const SHARED_MASK: [u32; 5] = [0, 0xFF00_0000, 0xFFFF_0000, 0xFFFF_FF00, 0xFFFF_FFFF];

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The slots between which a key can lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Narrowed {
    head: u32,
    from: u16,
    to: u16,
    /// All keys of the page are above the key looked for, or all below: its place is `from`.
    is_outside: bool,
}

impl Narrowed {
    /// For a page that has not been looked at yet.
    pub(crate) const NONE: Narrowed = Narrowed { head: 0, from: 0, to: 0, is_outside: true };
}

/// Reading. Safe for any bytes; the results mean something only if the bytes were stable.
impl<'a> PageRef<'a> {
    /// Slots in use.
    #[inline]
    pub(crate) fn count(self) -> usize {
        usize::from(self.u16(COUNT)).min(MAX_SLOTS)
    }

    /// Distance from the leaves.
    #[inline]
    pub(crate) fn level(self) -> u8 {
        self.u8(LEVEL)
    }

    /// Whether this is a leaf of a tree.
    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        self.u8(LEVEL) == 0
    }

    /// The slot at `i`; an arbitrary slot if `i` is beyond what a page can have.
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

    /// The slot at `i` of a page of any level; an inner page's has no value and no flags.
    #[inline]
    pub(crate) fn entry(self, i: usize) -> Slot {
        let slot = self.slot(i);
        if self.is_leaf() { slot } else { Slot { value_len: 0, flags: 0, ..slot } }
    }

    /// The four bytes kept beside key and value: the row's version, or the child.
    fn word(self, i: usize) -> u32 {
        if self.is_leaf() { self.row_version(self.slot(i)) } else { self.slot_word(i, 8) }
    }

    #[inline]
    fn head(self, i: usize) -> u32 {
        self.slot_word(i, 0)
    }

    #[inline]
    fn prefix_len(self) -> usize {
        usize::from(self.u16(PREFIX_LEN))
    }

    /// Compares the key of slot `i` with one whose head is equal.
    #[inline]
    fn compare_rest(self, i: usize, rest: &[u8]) -> Ordering {
        let slot = self.slot(i);
        if slot.key_len <= 4 && rest.len() <= 4 {
            return slot.key_len.cmp(&rest.len());
        }
        self.compare(slot.offset + RECORD_HEAD, slot.key_len, rest)
    }

    /// The slots between which a head can lie, by the hints.
    #[inline]
    fn segment(self, head: u32, count: usize) -> (usize, usize) {
        if count < HINTS_FROM {
            return (0, count);
        }
        let (below, upto) = hints::ranks(self, head);
        let step = count / (HINT_COUNT + 1);
        let to = if upto == HINT_COUNT { count } else { ((upto + 1) * step).min(count) };
        (below * step, to)
    }

    /// Prefetches the lines of the slots `from..to` together: a search looks at them one after the other, where each
    /// determines the next.
    #[inline]
    fn prefetch_slots(self, from: usize, to: usize) {
        let mut at = SLOTS + from * SLOT;
        let end = (SLOTS + to * SLOT).min(PAGE_SIZE - 1);
        while at <= end {
            self.prefetch(at);
            at += 64;
        }
    }

    /// Asks the processor for the record of slot `i`, if there is such a slot.
    #[inline]
    pub(crate) fn prefetch_row(self, i: usize) {
        if i >= self.count() {
            return;
        }
        let slot = self.slot(i);
        let end = (slot.offset + slot.record_len()).min(PAGE_SIZE);
        let mut at = slot.offset & !63;
        while at < end {
            self.prefetch(at);
            at += 64;
        }
    }

    /// Asks the processor for what an insert at slot `i` will write: the end of the slots and of the heap.
    #[inline]
    pub(crate) fn prefetch_room(self, i: usize) {
        self.prefetch_room_at(i, self.heap_start());
    }

    /// How many consecutive inserts each came right behind the one before; see [`PageMut::note_insert`].
    #[inline]
    pub(crate) fn insert_run(self) -> u16 {
        self.u16(RUN)
    }

    /// Where the heap of records begins, which grows downwards.
    #[inline]
    pub(crate) fn heap_start(self) -> usize {
        usize::from(self.u16(HEAP_START))
    }

    /// As [`PageRef::prefetch_room`], for a caller that knows where the heap begins: reads nothing of the page.
    #[inline]
    pub(crate) fn prefetch_room_at(self, i: usize, heap: usize) {
        self.prefetch(heap.saturating_sub(1));
        self.prefetch(heap.saturating_sub(65));
        self.prefetch(SLOTS + i.min(MAX_SLOTS) * SLOT);
    }

    /// The first slot whose key is not below `key`, and whether it is equal.
    #[inline]
    pub(crate) fn lower_bound(self, key: &[u8]) -> (usize, bool) {
        self.finish(self.narrow(key), key)
    }

    /// The first half of [`PageRef::lower_bound`]: prefetches the slots between which the key can lie. Inlined into its
    /// caller, because the second half must be near it in the instruction cache.
    #[inline(always)]
    pub(crate) fn narrow(self, key: &[u8]) -> Narrowed {
        let narrowed = self.narrow_near(key);
        self.prefetch_slots(usize::from(narrowed.from), usize::from(narrowed.to));
        narrowed
    }

    /// As [`PageRef::narrow`], of a page that is in the cache.
    #[inline(always)]
    pub(crate) fn narrow_near(self, key: &[u8]) -> Narrowed {
        let prefix = self.prefix_len();
        let skip = usize::from(self.u16(SKIP)).min(4);
        let count = self.count();
        if skip > 0 {
            // The shared bytes as a number: a key that differs there is above or below all keys of the page.
            let (shared, same) = (self.u32(SHARED), head_of(key, prefix) & SHARED_MASK[skip]);
            if shared != same {
                let at = if shared < same { count as u16 } else { 0 };
                return Narrowed { head: 0, from: at, to: at, is_outside: true };
            }
        }
        let head = head_of(key, prefix + skip);
        let (from, to) = self.segment(head, count);
        Narrowed { head, from: from as u16, to: to as u16, is_outside: false }
    }

    /// The second half of [`PageRef::lower_bound`].
    #[inline]
    pub(crate) fn finish(self, narrowed: Narrowed, key: &[u8]) -> (usize, bool) {
        let Narrowed { head, from, to, is_outside } = narrowed;
        let from = self.heads_below(head, from.into(), to.into());
        let count = self.count();
        if is_outside || from >= count || self.head(from) != head {
            return (from, false);
        }
        let rest = key.get(self.prefix_len()..).unwrap_or(&[]);
        // The head of a short key is the whole key.
        if rest.len() <= 4 && rest.len() == self.slot(from).key_len {
            return (from, true);
        }
        self.lower_bound_among_equals(from, count, head, rest)
    }

    /// The rest of [`PageRef::lower_bound`]: slot `from` is the first with this head.
    #[inline(never)]
    fn lower_bound_among_equals(self, mut from: usize, count: usize, head: u32, rest: &[u8]) -> (usize, bool) {
        match self.compare_rest(from, rest) {
            Ordering::Equal => return (from, true),
            Ordering::Greater => return (from, false),
            Ordering::Less => from += 1,
        }
        let mut to = count;
        while from < to {
            let middle = (from + to) / 2;
            let order = if self.head(middle) != head { Ordering::Greater } else { self.compare_rest(middle, rest) };
            match order {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return (middle, true),
            }
        }
        (from, false)
    }

    /// Position of the child of an inner page in which `key` lies; `count()` stands for the upper child.
    #[inline]
    pub(crate) fn child_position(self, key: &[u8]) -> usize {
        let (position, equal) = self.lower_bound(key);
        position + usize::from(equal)
    }

    /// The child at a position.
    #[inline]
    pub(crate) fn child(self, position: usize) -> PageId {
        if position >= self.count() {
            return PageId(self.u32(UPPER));
        }
        PageId(self.slot_word(position, 8))
    }

    /// Appends the whole key of slot `i` to `out`.
    #[inline]
    #[must_use]
    pub(crate) fn append_key(self, i: usize, out: &mut Vec<u8>) -> bool {
        let slot = self.slot(i);
        let prefix = usize::from(self.u16(PREFIX_LEN));
        self.append_to(usize::from(self.u16(LOW_OFFSET)), prefix, out)
            && self.append_to(slot.offset + RECORD_HEAD, slot.key_len, out)
    }

    /// The whole key of slot `i`.
    pub(crate) fn key(self, i: usize) -> Vec<u8> {
        let mut key = Vec::new();
        let _ = self.append_key(i, &mut key);
        key
    }

    /// Appends the value of slot `i` to `out`.
    #[inline]
    #[must_use]
    pub(crate) fn append_value(self, slot: Slot, out: &mut Vec<u8>) -> bool {
        self.append_to(slot.value_at(), slot.value_len, out)
    }

    /// The version of the row in a slot.
    #[inline]
    pub(crate) fn row_version(self, slot: Slot) -> u32 {
        self.u32_unaligned(slot.offset)
    }

    /// The low fence, appended to `out`; false when it is infinite.
    pub(crate) fn append_low(self, out: &mut Vec<u8>) -> bool {
        self.u16(FLAGS) & flags::LOW_INFINITE == 0
            && self.append_to(usize::from(self.u16(LOW_OFFSET)), usize::from(self.u16(LOW_LEN)), out)
    }

    /// The high fence, appended to `out`; false when it is infinite.
    #[inline]
    pub(crate) fn append_high(self, out: &mut Vec<u8>) -> bool {
        self.u16(FLAGS) & flags::HIGH_INFINITE == 0
            && self.append_to(usize::from(self.u16(HIGH_OFFSET)), usize::from(self.u16(HIGH_LEN)), out)
    }

    /// The low fence, `None` when infinite.
    pub(crate) fn low_fence(self) -> Option<Vec<u8>> {
        let mut fence = Vec::new();
        self.append_low(&mut fence).then_some(fence)
    }

    /// The high fence, `None` when infinite.
    pub(crate) fn high_fence(self) -> Option<Vec<u8>> {
        let mut fence = Vec::new();
        self.append_high(&mut fence).then_some(fence)
    }

    /// Whether `key` is long enough to begin with the page's prefix: cheaper than [`PageRef::covers`].
    #[inline]
    pub(crate) fn may_share_prefix(self, key: &[u8]) -> bool {
        key.len() >= self.prefix_len()
    }

    /// Whether `key` begins with the page's prefix: must hold for a search that did not come here through the tree.
    #[inline]
    pub(crate) fn shares_prefix(self, key: &[u8]) -> bool {
        key.get(..self.prefix_len()).is_some_and(|lead| self.has_prefix(lead))
    }

    /// Whether `lead`, of the prefix's length, is the prefix.
    #[inline]
    fn has_prefix(self, lead: &[u8]) -> bool {
        self.has_bytes(usize::from(self.u16(LOW_OFFSET)), lead)
    }

    /// Whether slot `i` has this very key.
    #[inline]
    pub(crate) fn has_key(self, i: usize, key: &[u8]) -> bool {
        let Some((lead, rest)) = key.split_at_checked(self.prefix_len()) else { return false };
        let place = self.slot_word(i, 4) as usize;
        let (offset, key_len) = (place & 0xFFFF, place >> 16);
        i < self.count() && key_len == rest.len() && self.has_bytes(offset + RECORD_HEAD, rest) && self.has_prefix(lead)
    }

    /// Whether `key` may lie here, has no slot, and would come before slot `i`.
    #[inline(never)]
    pub(crate) fn lacks_key(self, i: usize, key: &[u8]) -> bool {
        let Some((lead, rest)) = key.split_at_checked(self.prefix_len()) else { return false };
        let count = self.count();
        // Keys of the page lie between the fences, so a fence is compared only where there is no neighbouring key.
        i <= count
            && self.has_prefix(lead)
            && (if i == 0 { self.is_from_low(key) } else { self.compare_whole_rest(i - 1, rest).is_lt() })
            && (if i == count { self.is_below_high(key) } else { self.compare_whole_rest(i, rest).is_gt() })
    }

    /// Compares the key of slot `i` with one that begins with the page's prefix, given without it.
    #[inline]
    fn compare_whole_rest(self, i: usize, rest: &[u8]) -> Ordering {
        let slot = self.slot(i);
        self.compare(slot.offset + RECORD_HEAD, slot.key_len, rest)
    }

    /// Asks the processor for what [`PageRef::shares_prefix`] will look at, which lies at the page's end.
    #[inline]
    pub(crate) fn prefetch_prefix(self) {
        self.prefetch(PAGE_SIZE - 1);
    }

    /// Whether `key` may lie here.
    #[inline]
    pub(crate) fn covers(self, key: &[u8]) -> bool {
        self.is_from_low(key) && self.is_below_high(key)
    }

    #[inline]
    fn is_from_low(self, key: &[u8]) -> bool {
        self.u16(FLAGS) & flags::LOW_INFINITE != 0
            || self.compare(usize::from(self.u16(LOW_OFFSET)), usize::from(self.u16(LOW_LEN)), key).is_le()
    }

    #[inline]
    fn is_below_high(self, key: &[u8]) -> bool {
        self.u16(FLAGS) & flags::HIGH_INFINITE != 0
            || self.compare(usize::from(self.u16(HIGH_OFFSET)), usize::from(self.u16(HIGH_LEN)), key).is_gt()
    }

    /// A leaf's right neighbour.
    pub(crate) fn right(self) -> PageId {
        PageId(self.u32(RIGHT))
    }

    /// Ghosts on the page.
    #[inline]
    pub(crate) fn ghosts(self) -> usize {
        usize::from(self.u16(GHOSTS))
    }

    /// Free bytes, holes in the heap included.
    #[inline]
    pub(crate) fn free_bytes(self) -> usize {
        let gap = usize::from(self.u16(HEAP_START)).saturating_sub(SLOTS + self.count() * SLOT);
        gap + usize::from(self.u16(HEAP_FREE))
    }

    /// Bytes in use by slots, records and fences.
    pub(crate) fn used_bytes(self) -> usize {
        PAGE_SIZE - SLOTS - self.free_bytes()
    }

    /// Whether a record with this whole key and value length fits.
    #[inline]
    pub(crate) fn has_room(self, key_len: usize, value_len: usize) -> bool {
        let rest = key_len.saturating_sub(usize::from(self.u16(PREFIX_LEN)));
        SLOT + RECORD_HEAD + rest + value_len <= self.free_bytes() && self.count() < MAX_SLOTS
    }
}

/// Everything a page of a tree is formatted with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format<'a> {
    pub(crate) id: PageId,
    pub(crate) index: IndexId,
    /// 0 for a leaf.
    pub(crate) level: u8,
    /// `None`: minus infinity.
    pub(crate) low: Option<&'a [u8]>,
    /// `None`: plus infinity.
    pub(crate) high: Option<&'a [u8]>,
    /// A leaf's right neighbour; none for inner pages.
    pub(crate) right: PageId,
    /// An inner page's last child; none for leaves.
    pub(crate) upper: PageId,
}

impl PageMut<'_> {
    /// Makes this an empty page of a tree. The LSN is kept.
    pub(crate) fn format(&mut self, f: &Format<'_>) {
        let lsn = self.read().lsn();
        self.bytes()[..SLOTS].fill(0);
        self.set_lsn(lsn);
        self.put_u32(ID, f.id.0);
        self.put_u8(KIND, if f.level == 0 { Kind::Leaf as u8 } else { Kind::Inner as u8 });
        self.put_u8(LEVEL, f.level);
        self.put_u32(INDEX, f.index.0);
        self.put_u32(RIGHT, f.right.0);
        self.put_u32(UPPER, f.upper.0);
        let mut bits = 0;
        let mut heap = PAGE_SIZE;
        for (fence, infinite, at, len) in
            [(f.low, flags::LOW_INFINITE, LOW_OFFSET, LOW_LEN), (f.high, flags::HIGH_INFINITE, HIGH_OFFSET, HIGH_LEN)]
        {
            let bytes = fence.unwrap_or(&[]);
            heap -= bytes.len();
            self.put(heap, bytes);
            self.put_u16(at, heap as u16);
            self.put_u16(len, bytes.len() as u16);
            bits |= if fence.is_none() { infinite } else { 0 };
        }
        if let (Some(low), Some(high)) = (f.low, f.high) {
            self.put_u16(PREFIX_LEN, common_prefix(low, high) as u16);
        }
        self.put_u16(FLAGS, bits);
        self.put_u16(HEAP_START, heap as u16);
    }

    /// Inserts a record at `position`, compacting the heap if need be. There must be room (`has_room`).
    ///
    /// `word` is the row's version or the child.
    pub(crate) fn insert(&mut self, position: usize, key: &[u8], word: u32, value: &[u8], flags: u16) {
        let rest_from = usize::from(self.read().u16(PREFIX_LEN));
        let rest = &key[rest_from..];
        self.share_less(rest);
        let offset = self.claim(SLOT + RECORD_HEAD + rest.len() + value.len(), SLOT);
        let leaf = self.read().is_leaf();
        self.put_u32(offset, if leaf { word } else { 0 });
        self.put(offset + RECORD_HEAD, rest);
        self.put(offset + RECORD_HEAD + rest.len(), value);
        let count = self.read().count();
        let at = SLOTS + position * SLOT;
        self.shift(at, (count - position) * SLOT, at + SLOT);
        let skip = usize::from(self.read().u16(SKIP));
        self.put_u32(at, head_of(rest, skip));
        self.put_u16(at + 4, offset as u16);
        self.put_u16(at + 6, rest.len() as u16);
        self.put_u32(at + 8, if leaf { value.len() as u32 | u32::from(flags) << 16 } else { word });
        self.put_u16(COUNT, count as u16 + 1);
        if flags & GHOST != 0 {
            self.add_ghosts(1);
        }
        self.update_hints(position, count);
        if matches!(count + 1, 16 | 64 | 256) {
            self.share_more();
        }
    }

    /// Lets heads begin earlier if a new key does not share the bytes that the other keys share.
    #[inline]
    fn share_less(&mut self, rest: &[u8]) {
        let skip = usize::from(self.read().u16(SKIP));
        if skip > 0 && (rest.len() < skip || head_of(rest, 0) & SHARED_MASK[skip.min(4)] != self.read().u32(SHARED)) {
            let first = self.rest_of(0);
            self.set_skip(common_prefix(&first, rest).min(skip));
        }
    }

    /// Lets heads begin behind what the keys share, on a page at the edge of its tree.
    pub(crate) fn share_more(&mut self) {
        let count = self.read().count();
        let edge = self.read().u16(FLAGS) & (flags::LOW_INFINITE | flags::HIGH_INFINITE) != 0;
        if edge && count > 1 {
            let shared = common_prefix(&self.rest_of(0), &self.rest_of(count - 1)).min(4);
            if shared != usize::from(self.read().u16(SKIP)) {
                self.set_skip(shared);
            }
        }
    }

    /// The key of a slot behind the prefix.
    fn rest_of(&self, i: usize) -> Vec<u8> {
        let slot = self.read().slot(i);
        let mut rest = Vec::with_capacity(slot.key_len);
        let _ = self.read().append_to(slot.offset + RECORD_HEAD, slot.key_len, &mut rest);
        rest
    }

    /// Lets heads begin behind `skip` bytes that all keys share.
    fn set_skip(&mut self, skip: usize) {
        let shared = head_of(&self.rest_of(0), 0) & SHARED_MASK[skip];
        self.put_u16(SKIP, skip as u16);
        self.put_u32(SHARED, shared);
        for i in 0..self.read().count() {
            let head = head_of(&self.rest_of(i), skip);
            self.put_u32(SLOTS + i * SLOT, head);
        }
        self.rebuild_hints();
    }

    /// Takes `bytes - slots` bytes from the heap, so that `slots` bytes stay free beyond the slots.
    fn claim(&mut self, bytes: usize, slots: usize) -> usize {
        let gap = |p: PageRef<'_>| usize::from(p.u16(HEAP_START)) - (SLOTS + p.count() * SLOT);
        if gap(self.read()) < bytes {
            self.compact();
        }
        debug_assert!(gap(self.read()) >= bytes, "the caller checked for room");
        let offset = usize::from(self.read().u16(HEAP_START)) - (bytes - slots);
        self.put_u16(HEAP_START, offset as u16);
        offset
    }

    /// Gathers all free bytes between slots and heap.
    fn compact(&mut self) {
        let mut copy = PageBytes::boxed();
        copy.as_bytes_mut().copy_from_slice(self.bytes());
        let old = PageRef::of(&copy);
        let mut heap = PAGE_SIZE;
        let mut keep = |page: &mut Self, from: usize, len: usize| {
            heap -= len;
            page.put(heap, &copy.as_bytes()[from..from + len]);
            heap as u16
        };
        for (at, len) in [(LOW_OFFSET, LOW_LEN), (HIGH_OFFSET, HIGH_LEN)] {
            let place = keep(self, usize::from(old.u16(at)), usize::from(old.u16(len)));
            self.put_u16(at, place);
        }
        for i in 0..old.count() {
            let slot = old.entry(i);
            let place = keep(self, slot.offset, slot.record_len());
            self.put_u16(SLOTS + i * SLOT + 4, place);
        }
        self.put_u16(HEAP_START, heap as u16);
        self.put_u16(HEAP_FREE, 0);
    }

    /// Removes the slot at `position`.
    pub(crate) fn remove(&mut self, position: usize) {
        let slot = self.read().entry(position);
        let count = self.read().count();
        let at = SLOTS + position * SLOT;
        self.shift(at + SLOT, (count - position - 1) * SLOT, at);
        self.put_u16(COUNT, count as u16 - 1);
        self.add_heap_free(slot.record_len());
        if slot.is_ghost() {
            self.add_ghosts(-1);
        }
        self.rebuild_hints();
    }

    /// Replaces the value in a slot by one of any length. If it grows, the growth and `RECORD_HEAD` must be free.
    pub(crate) fn set_value(&mut self, position: usize, value: &[u8]) {
        let slot = self.read().slot(position);
        let at = SLOTS + position * SLOT;
        if value.len() <= slot.value_len {
            self.put(slot.value_at(), value);
            self.add_heap_free(slot.value_len - value.len());
        } else {
            let rest_at = slot.offset + RECORD_HEAD;
            let rest = self.bytes()[rest_at..rest_at + slot.key_len].to_vec();
            let version = self.read().row_version(slot);
            // Shrunk to an empty value first, so that the old bytes count as free when the heap is compacted.
            self.put_u16(at + 6, 0);
            self.put_u16(at + 8, 0);
            self.add_heap_free(slot.record_len() - RECORD_HEAD);
            let offset = self.claim(RECORD_HEAD + rest.len() + value.len(), 0);
            self.add_heap_free(RECORD_HEAD);
            self.put_u32(offset, version);
            self.put(offset + RECORD_HEAD, &rest);
            self.put(offset + RECORD_HEAD + rest.len(), value);
            self.put_u16(at + 4, offset as u16);
            self.put_u16(at + 6, rest.len() as u16);
        }
        self.put_u16(at + 8, value.len() as u16);
    }

    /// Marks a slot as deleted or not.
    pub(crate) fn set_ghost(&mut self, position: usize, ghost: bool) {
        let slot = self.read().slot(position);
        if slot.is_ghost() != ghost {
            self.put_u16(SLOTS + position * SLOT + 10, if ghost { slot.flags | GHOST } else { slot.flags & !GHOST });
            self.add_ghosts(if ghost { 1 } else { -1 });
        }
    }

    /// Adds one change to the version of the row in a slot. Versions go up by 4 a change.
    #[inline]
    pub(crate) fn bump_row_version(&mut self, slot: Slot) {
        let version = self.read().row_version(slot).wrapping_add(4);
        self.put_u32(slot.offset, version);
    }

    /// Notes that rows have left the page or changed place between pages.
    pub(crate) fn bump_splits(&mut self) {
        let splits = self.read().u32(SPLITS).wrapping_add(1);
        self.put_u32(SPLITS, splits);
    }

    /// Sets the child at a position of an inner page.
    pub(crate) fn set_child(&mut self, position: usize, child: PageId) {
        if position >= self.read().count() {
            self.put_u32(UPPER, child.0);
        } else {
            self.put_u32(SLOTS + position * SLOT + 8, child.0);
        }
    }

    /// Appends records of `from`, whose keys all follow those here and lie within the fences.
    pub(crate) fn append_all(&mut self, from: PageRef<'_>, range: std::ops::Range<usize>) {
        if self.read().u16(SKIP) > 0 {
            // Heads of the records already here (the left leaf of a merge) begin anew, as do those of the added
            // records.
            self.set_skip(0);
        }
        let (old, new) = (from.prefix_len(), self.read().prefix_len());
        // The bytes of the old prefix that are not in the new one precede every key.
        let mut lead = Vec::new();
        if old > new {
            let _ = from.append_to(usize::from(from.u16(LOW_OFFSET)) + new, old - new, &mut lead);
        }
        let dropped = new.saturating_sub(old);
        let leaf = from.is_leaf();
        let mut heap = usize::from(self.read().u16(HEAP_START));
        let mut at = SLOTS + self.read().count() * SLOT;
        let mut ghosts = 0;
        for i in range.clone() {
            let slot = from.entry(i);
            let key_len = slot.key_len + lead.len() - dropped;
            let rest = slot.key_len - dropped + slot.value_len;
            heap -= RECORD_HEAD + key_len + slot.value_len;
            debug_assert!(heap >= at + SLOT, "the caller checked for room");
            self.put_u32(heap, if leaf { from.row_version(slot) } else { 0 });
            self.put(heap + RECORD_HEAD, &lead);
            let tail = heap + RECORD_HEAD + lead.len();
            let _ = from.copy_to(slot.offset + RECORD_HEAD + dropped, &mut self.bytes()[tail..tail + rest]);
            let head = head_of(&self.bytes()[heap + RECORD_HEAD..heap + RECORD_HEAD + key_len], 0);
            self.put_u32(at, head);
            self.put_u16(at + 4, heap as u16);
            self.put_u16(at + 6, key_len as u16);
            let tail = if leaf { slot.value_len as u32 | u32::from(slot.flags) << 16 } else { from.word(i) };
            self.put_u32(at + 8, tail);
            at += SLOT;
            ghosts += i32::from(slot.is_ghost());
        }
        self.put_u16(HEAP_START, heap as u16);
        let count = self.read().count() + range.len();
        self.put_u16(COUNT, count as u16);
        self.add_ghosts(ghosts);
        self.put_u16(SKIP, 0);
        self.rebuild_hints();
        self.share_more();
    }

    fn add_heap_free(&mut self, bytes: usize) {
        let free = usize::from(self.read().u16(HEAP_FREE)) + bytes;
        self.put_u16(HEAP_FREE, free as u16);
    }

    fn add_ghosts(&mut self, n: i32) {
        let ghosts = i32::from(self.read().u16(GHOSTS)) + n;
        self.put_u16(GHOSTS, ghosts as u16);
    }

    /// Keeps the hints right after an insert at `position` into a page that had `before` slots.
    fn update_hints(&mut self, position: usize, before: usize) {
        let step_before = before / (HINT_COUNT + 1);
        let step = (before + 1) / (HINT_COUNT + 1);
        if step != step_before || before + 1 == HINTS_FROM {
            return self.rebuild_hints();
        }
        if let Some(first) = position.checked_div(step) {
            // Hints of slots before the position have not moved.
            self.fill_hints(first, step);
        }
    }

    fn rebuild_hints(&mut self) {
        let step = self.read().count() / (HINT_COUNT + 1);
        if step > 0 {
            self.fill_hints(0, step);
        }
    }

    fn fill_hints(&mut self, from: usize, step: usize) {
        // Hint `i` is the head of slot `(i + 1) * step`.
        for i in from.saturating_sub(1)..HINT_COUNT {
            let head = self.read().head((i + 1) * step);
            self.put_u32(HINTS + 4 * i, head);
        }
    }

    /// Notes an insert for the choice of split points: runs of ascending inserts are recognised.
    #[inline]
    pub(crate) fn note_insert(&mut self, position: usize) {
        let page = self.read();
        let run = if usize::from(page.u16(LAST_INSERT)) + 1 == position { page.u16(RUN).saturating_add(1) } else { 0 };
        self.put_u16(LAST_INSERT, position as u16);
        self.put_u16(RUN, run);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn page(low: Option<&[u8]>, high: Option<&[u8]>) -> Box<PageBytes> {
        let mut bytes = PageBytes::boxed();
        PageMut::of(&mut bytes).format(&Format {
            id: PageId(7),
            index: IndexId(1),
            level: 0,
            low,
            high,
            right: PageId::NONE,
            upper: PageId::NONE,
        });
        bytes
    }

    #[test]
    fn a_head_is_the_first_four_bytes_padded_with_zeros() {
        for len in 0..12 {
            let key: Vec<u8> = (0..len).map(|i| 0xF1 - 7 * i as u8).collect();
            for prefix in 0..16 {
                let mut head = [0; 4];
                head.iter_mut().zip(key.iter().skip(prefix)).for_each(|(to, from)| *to = *from);
                assert_eq!(head_of(&key, prefix), u32::from_be_bytes(head), "{len} bytes, {prefix} left out");
            }
        }
    }

    fn check(page: PageRef<'_>, model: &BTreeMap<Vec<u8>, (Vec<u8>, bool)>) {
        assert_eq!(page.count(), model.len());
        assert_eq!(page.ghosts(), model.values().filter(|v| v.1).count());
        let mut used = usize::from(page.u16(LOW_LEN)) + usize::from(page.u16(HIGH_LEN));
        for (i, (key, (value, ghost))) in model.iter().enumerate() {
            assert_eq!(&page.key(i), key);
            let mut found = Vec::new();
            assert!(page.append_value(page.slot(i), &mut found));
            assert_eq!(&found, value);
            assert_eq!(page.slot(i).is_ghost(), *ghost);
            assert_eq!(page.lower_bound(key), (i, true), "key {key:?}");
            let mut after = key.clone();
            after.push(0);
            assert_eq!(page.lower_bound(&after), (i + 1, model.contains_key(&after)));
            used += SLOT + page.slot(i).record_len();
        }
        assert_eq!(page.used_bytes(), used);
        let mut copy = [0; PAGE_SIZE];
        assert!(page.copy_to(0, &mut copy));
        assert_eq!(crate::page::sound::flaw(&copy, PageId(7)), None);
    }

    #[derive(Debug, Clone)]
    enum Op {
        Insert(Vec<u8>, usize),
        Remove(usize),
        Resize(usize, usize),
        Ghost(usize, bool),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            8 => (prop::collection::vec(0u8..4, 0..9), 0usize..300).prop_map(|(k, v)| Op::Insert(k, v)),
            2 => any::<usize>().prop_map(Op::Remove),
            2 => (any::<usize>(), 0usize..600).prop_map(|(i, n)| Op::Resize(i, n)),
            1 => (any::<usize>(), any::<bool>()).prop_map(|(i, g)| Op::Ghost(i, g)),
        ];
        prop::collection::vec(op, 0..if cfg!(miri) { 20 } else { 200 })
    }

    /// Names: hundreds of keys with few heads, of lengths around the words in which they are compared.
    #[test]
    fn keys_with_equal_heads_are_found_among_each_other() {
        let tail = |n: u16| [&b"-abcdefgh"[..usize::from(n % 10)], &n.to_be_bytes()].concat();
        let mut keys: Vec<Vec<u8>> = (0..if cfg!(miri) { 40 } else { 260 })
            .map(|n| [&[b"BARB", b"BARC", b"\xff\xff\xff\xff"][usize::from(n % 7 / 3)][..], &tail(n)].concat())
            .chain([b"BAR".to_vec(), b"BARB".to_vec(), b"BAR\0".to_vec()])
            .collect();
        keys.sort();
        let mut bytes = page(None, None);
        let mut page = PageMut::of(&mut bytes);
        // Every other key exists.
        let there: Vec<&Vec<u8>> = keys.iter().step_by(2).collect();
        for (at, key) in there.iter().enumerate() {
            page.insert(at, key, 0, b"", 0);
        }
        let near = |key: &Vec<u8>| [key.clone(), key[..key.len() - 1].to_vec(), [&key[..], b"\0"].concat()];
        for key in keys.iter().flat_map(near) {
            let expected = match there.binary_search(&&key) {
                Ok(at) => (at, true),
                Err(at) => (at, false),
            };
            assert_eq!(page.read().lower_bound(&key), expected, "{key:?}");
        }
    }

    /// What a remembered place relies on: exactly one slot has the key, and exactly one gap fits a key that is missing.
    #[test]
    fn a_slot_is_that_of_its_whole_key_alone() {
        let rests: Vec<&[u8]> = vec![
            b"",
            b"a",
            b"ab",
            b"abc",
            b"abcd",
            b"abcde",
            b"abcdefg",
            b"abcdefgh",
            b"abcdefghi",
            b"abcdefghijklmnop",
        ];
        let (low, high) = (b"k-k".as_slice(), b"k-m".as_slice());
        for (fences, leads) in [((None, None), [b"".as_slice(), b"k-"]), ((Some(low), Some(high)), [b"k-l", b"k-k"])] {
            let keys = |leads: &[&[u8]]| -> BTreeSet<Vec<u8>> {
                leads.iter().flat_map(|lead| rests.iter().map(move |rest| [*lead, *rest].concat())).collect()
            };
            let there: Vec<Vec<u8>> = keys(&leads).into_iter().step_by(2).collect();
            let mut bytes = page(fences.0, fences.1);
            for (at, key) in there.iter().enumerate() {
                PageMut::of(&mut bytes).insert(at, key, 0, b"row", 0);
            }
            let page = PageRef::of(&bytes);
            // Keys that differ in one byte, and those whose rest is on the page behind another prefix.
            let others = keys(&[b"", b"k-", b"k-l", b"k-k", b"k-j", b"k-m", b"j-l", b"k+l", b"k"]);
            let changed = others.iter().flat_map(|key| {
                (0..key.len()).map(|at| {
                    let mut key = key.clone();
                    key[at] ^= 1;
                    key
                })
            });
            for key in others.iter().cloned().chain(changed) {
                let lies_here =
                    fences.0.is_none_or(|low| low <= &key[..]) && fences.1.is_none_or(|high| &key[..] < high);
                let expected = there.binary_search(&key);
                for i in 0..there.len() + 2 {
                    assert_eq!(page.has_key(i, &key), expected == Ok(i), "slot {i}, {key:?}");
                    assert_eq!(page.lacks_key(i, &key), lies_here && expected == Err(i), "slot {i}, {key:?}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, failure_persistence: None, ..Default::default() })]
        #[test]
        fn behaves_like_a_sorted_map(ops in ops(), fenced in any::<bool>()) {
            let (low, high): (Option<&[u8]>, Option<&[u8]>) = if fenced { (Some(b"ab"), Some(b"abz")) } else { (None, None) };
            let mut bytes = page(low, high);
            let mut model: BTreeMap<Vec<u8>, (Vec<u8>, bool)> = BTreeMap::new();
            for (n, op) in ops.into_iter().enumerate() {
                let mut p = PageMut::of(&mut bytes);
                let nth = |model: &BTreeMap<Vec<u8>, (Vec<u8>, bool)>, i: usize| (!model.is_empty()).then(|| {
                    let i = i % model.len();
                    (i, model.keys().nth(i).cloned().unwrap())
                });
                match op {
                    Op::Insert(rest, len) => {
                        let key = if fenced { [b"ab".as_slice(), &rest].concat() } else { rest };
                        let (at, found) = p.read().lower_bound(&key);
                        prop_assert_eq!(found, model.contains_key(&key));
                        if !found && p.read().has_room(key.len(), len) {
                            let value = vec![n as u8; len];
                            p.insert(at, &key, n as u32, &value, 0);
                            p.note_insert(at);
                            model.insert(key, (value, false));
                        }
                    }
                    Op::Remove(i) => if let Some((i, key)) = nth(&model, i) {
                        p.remove(i);
                        model.remove(&key);
                    },
                    Op::Resize(i, len) => if let Some((i, key)) = nth(&model, i) {
                        let slot = p.read().slot(i);
                        if len <= slot.value_len || p.read().free_bytes() >= len - slot.value_len + RECORD_HEAD {
                            let value = vec![n as u8; len];
                            p.set_value(i, &value);
                            model.get_mut(&key).unwrap().0 = value;
                        }
                    },
                    Op::Ghost(i, ghost) => if let Some((i, key)) = nth(&model, i) {
                        p.set_ghost(i, ghost);
                        model.get_mut(&key).unwrap().1 = ghost;
                    },
                }
                check(p.read(), &model);
            }
        }
    }

    /// A page at the edge that takes the records of two: the first come with bytes in common, the second without.
    #[test]
    fn records_of_two_pages_are_found_on_one() {
        let mut model = BTreeMap::new();
        let mut halves = [page(None, Some(b"b")), page(Some(b"b"), None)];
        for (half, start) in halves.iter_mut().zip([b"aaaa", b"bcde"]) {
            for i in 0..20u8 {
                let key = [start.as_slice(), &[i]].concat();
                PageMut::of(half).insert(usize::from(i), &key, 0, &[i], 0);
                model.insert(key, (vec![i], false));
            }
        }
        let mut both = page(None, None);
        let mut to = PageMut::of(&mut both);
        for half in &halves {
            to.append_all(PageRef::of(half), 0..20);
        }
        check(to.read(), &model);
    }

    #[test]
    fn ascending_inserts_are_recognised() {
        let mut bytes = page(None, None);
        let mut p = PageMut::of(&mut bytes);
        for i in 0..40u32 {
            let (at, _) = p.read().lower_bound(&i.to_be_bytes());
            p.insert(at, &i.to_be_bytes(), 0, b"row", 0);
            p.note_insert(at);
        }
        assert_eq!(p.read().u16(RUN), 39);
    }

    #[test]
    fn any_bytes_can_be_searched() {
        let mut bytes = PageBytes::boxed();
        for seed in 0u32..if cfg!(miri) { 3 } else { 2000 } {
            let mut x = seed.wrapping_mul(0x9E37_79B9) | 1;
            for b in bytes.as_bytes_mut().iter_mut() {
                x ^= x << 13;
                x ^= x >> 17;
                x ^= x << 5;
                *b = x as u8;
            }
            let p = PageRef::of(&bytes);
            let (at, _) = p.lower_bound(b"some key");
            let _ = (p.key(at.min(600)), p.child(at), p.high_fence(), p.free_bytes());
        }
    }
}
