//! Writes of slotted pages: formatting, inserts, removals, and maintenance of hints and shared bytes.

use super::super::access::{PageBytes, PageMut, PageRef};
use super::super::header::*;
use super::bounds::{high_bound, low_bound};
use super::read::{Slot, head_of};
use crate::base::bytes::common_prefix;
use crate::base::ids::{IndexId, PAGE_SIZE, PageId};

/// Contents of a newly formatted page of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format<'a> {
    pub(crate) id: PageId,
    pub(crate) index: IndexId,
    /// Level of the page; 0 for a leaf.
    pub(crate) level: u8,
    /// Low fence; `None` is minus infinity. An inner page stores long fences as bounds.
    pub(crate) low: Option<&'a [u8]>,
    /// High fence; `None` is plus infinity.
    pub(crate) high: Option<&'a [u8]>,
    /// Right neighbour of a leaf; `PageId::NONE` for inner pages.
    pub(crate) right: PageId,
    /// Last child of an inner page; `PageId::NONE` for leaves.
    pub(crate) upper: PageId,
}

/// Slot counts at which a page recomputes the bytes that its keys share.
const SHARES_AT: [usize; 3] = [16, 64, 256];

impl PageMut<'_> {
    /// Formats an empty page of a tree. The LSN is kept.
    pub(crate) fn format(&mut self, f: &Format<'_>) {
        let lsn = self.read().lsn();
        self.bytes()[..SLOTS].fill(0);
        self.set_lsn(lsn);
        self.put_u32(ID, f.id.0);
        self.put_u8(KIND, if f.level == 0 { Kind::Leaf as u8 } else { Kind::Inner as u8 });
        self.put_u8(LEVEL, f.level);
        self.put_u32(INDEX, f.index.0);
        self.put_u32(RIGHT, f.right.0);
        if f.level > 0 {
            self.put_u32(UPPER, f.upper.0);
        }
        let mut bits = 0;
        let mut heap = PAGE_SIZE;
        let (mut low, mut high) = (f.low, f.high);
        let bound;
        if f.level > 0 {
            bound = high.map(|high| high_bound(low, high));
            (low, high) = (low.map(low_bound), bound.as_deref());
        }
        for (fence, infinite, at, len) in
            [(low, flags::LOW_INFINITE, LOW_OFFSET, LOW_LEN), (high, flags::HIGH_INFINITE, HIGH_OFFSET, HIGH_LEN)]
        {
            let bytes = fence.unwrap_or(&[]);
            heap -= bytes.len();
            self.put(heap, bytes);
            self.put_u16(at, heap as u16);
            self.put_u16(len, bytes.len() as u16);
            bits |= if fence.is_none() { infinite } else { 0 };
        }
        if let (Some(low), Some(high)) = (low, high) {
            let prefix = common_prefix(low, high);
            self.put_u16(PREFIX_LEN, prefix as u16);
            if f.level == 0 && prefix <= LEAD_BYTES {
                self.put(LEAD, &low[..prefix]);
            }
        }
        self.put_u16(FLAGS, bits);
        self.put_u16(HEAP_START, heap as u16);
    }

    /// Inserts a record at `position`, and compacts the heap if necessary. The page must have space (`has_room`).
    ///
    /// `word` is the row's version or the child.
    pub(crate) fn insert(&mut self, position: usize, key: &[u8], word: u32, value: &[u8], flags: u16) {
        let rest_from = usize::from(self.read().u16(PREFIX_LEN));
        let rest = &key[rest_from..];
        self.reduce_skip(rest);
        let offset = self.claim(SLOT + RECORD_HEAD + rest.len() + value.len(), SLOT);
        let leaf = self.read().is_leaf();
        self.put_u32(offset, if leaf { word } else { 0 });
        self.put_few(offset + RECORD_HEAD, rest);
        self.put(offset + RECORD_HEAD + rest.len(), value);
        let count = self.read().count();
        let at = SLOTS + position * SLOT;
        self.shift(at, (count - position) * SLOT, at + SLOT);
        let skip = usize::from(self.read().u16(SKIP));
        let last = if leaf { value.len() as u32 | u32::from(flags) << 16 } else { word };
        self.put_slot(at, head_of(rest, skip), (offset, rest.len()), last);
        self.put_u16(COUNT, count as u16 + 1);
        if flags & GHOST != 0 {
            self.add_ghosts(1);
        }
        self.hints_after_insert(position, count, count + 1);
        if SHARES_AT.contains(&(count + 1)) {
            self.extend_skip();
        }
    }

    /// Like [`PageMut::insert`], for several leaf rows, none of them deleted, in adjacent slots from `position` on. Shifts
    /// the other slots once, and writes the hints once.
    pub(crate) fn insert_rows(&mut self, position: usize, rows: &[(&[u8], &[u8])]) {
        let rest_from = usize::from(self.read().u16(PREFIX_LEN));
        let mut bytes = 0;
        for (key, value) in rows {
            self.reduce_skip(&key[rest_from..]);
            bytes += SLOT + RECORD_HEAD + key.len() - rest_from + value.len();
        }
        let slots = rows.len() * SLOT;
        let mut end = self.claim(bytes, slots) + bytes - slots;
        let count = self.read().count();
        let mut at = SLOTS + position * SLOT;
        self.shift(at, (count - position) * SLOT, at + slots);
        let skip = usize::from(self.read().u16(SKIP));
        for (key, value) in rows {
            let rest = &key[rest_from..];
            let offset = end - (RECORD_HEAD + rest.len() + value.len());
            self.put_u32(offset, 0);
            self.put_few(offset + RECORD_HEAD, rest);
            self.put(offset + RECORD_HEAD + rest.len(), value);
            self.put_slot(at, head_of(rest, skip), (offset, rest.len()), value.len() as u32);
            (end, at) = (offset, at + SLOT);
        }
        let now = count + rows.len();
        self.put_u16(COUNT, now as u16);
        self.hints_after_insert(position, count, now);
        if SHARES_AT.iter().any(|at| (count + 1..=now).contains(at)) {
            self.extend_skip();
        }
        for i in 0..rows.len() {
            self.note_insert(position + i);
        }
    }

    /// Writes the slot at `at`: the head of its key, the offset of its record, the length of the key in the record, and the
    /// last word, which is the value's length with flags, or the child.
    #[inline(always)]
    fn put_slot(&mut self, at: usize, head: u32, (offset, key_len): (usize, usize), last: u32) {
        self.put_u32(at, head);
        self.put_u32(at + 4, offset as u32 | (key_len as u32) << 16);
        self.put_u32(at + 8, last);
    }

    /// Reduces the number of skipped bytes, after which heads begin, if a new key does not share all bytes that the other
    /// keys share.
    #[inline]
    fn reduce_skip(&mut self, rest: &[u8]) {
        let skip = usize::from(self.read().u16(SKIP));
        if skip > 0 && (rest.len() < skip || head_of(rest, 0) & SHARED_MASK[skip.min(4)] != self.read().u32(SHARED)) {
            let shared = common_prefix(self.rest_of(0), rest).min(skip);
            self.set_skip(shared);
        }
    }

    /// Lets heads begin after the bytes that all keys share, on a page at the edge of its tree.
    pub(crate) fn extend_skip(&mut self) {
        let count = self.read().count();
        let edge = self.read().u16(FLAGS) & (flags::LOW_INFINITE | flags::HIGH_INFINITE) != 0;
        if edge && count > 1 {
            let shared = common_prefix(self.rest_of(0), self.rest_of(count - 1)).min(4);
            if shared != usize::from(self.read().u16(SKIP)) {
                self.set_skip(shared);
            }
        }
    }

    /// Returns the key of a slot after the prefix.
    fn rest_of(&self, i: usize) -> &[u8] {
        let slot = self.read().slot(i);
        self.as_bytes().get(slot.offset + RECORD_HEAD..slot.value_at()).unwrap_or(&[])
    }

    /// Lets heads begin after `skip` bytes that all keys share.
    fn set_skip(&mut self, skip: usize) {
        let shared = head_of(self.rest_of(0), 0) & SHARED_MASK[skip];
        self.put_u16(SKIP, skip as u16);
        self.put_u32(SHARED, shared);
        for i in 0..self.read().count() {
            let head = head_of(self.rest_of(i), skip);
            self.put_u32(SLOTS + i * SLOT, head);
        }
        self.rebuild_hints();
    }

    /// Allocates `bytes - slots` bytes of the heap, and returns their offset. `slots` bytes stay free between slots and
    /// heap.
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
        let copy = PageBytes::boxed_of(self.bytes());
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

    /// Replaces the value in a slot by a value of any length. If the value grows, the page must have free bytes for the
    /// growth and another `RECORD_HEAD`.
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
            // The record first shrinks to an empty value, so that its old bytes count as free when the heap is compacted.
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

    /// Sets all flags of a slot.
    pub(crate) fn set_flags(&mut self, position: usize, flags: u16) {
        self.set_ghost(position, flags & GHOST != 0);
        self.put_u16(SLOTS + position * SLOT + 10, flags);
    }

    /// Increments the version of the row in a slot, by 4 for each change.
    #[inline]
    pub(crate) fn bump_row_version(&mut self, slot: Slot) {
        let version = self.read().row_version(slot).wrapping_add(4);
        self.put_u32(slot.offset, version);
    }

    /// Records that rows have left the page or moved between pages.
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

    /// Appends records of `from`. All their keys must follow those of this page and lie within its fences.
    pub(crate) fn append_all(&mut self, from: PageRef<'_>, range: std::ops::Range<usize>) {
        if self.read().u16(SKIP) > 0 {
            // Heads of the records that are already on this page (the left leaf of a merge) are recomputed like those of the
            // added records.
            self.set_skip(0);
        }
        let (old, new) = (from.prefix_len(), self.read().prefix_len());
        // Bytes of the old prefix that are not in the new prefix are added before every key.
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
            if !lead.is_empty() {
                self.put(heap + RECORD_HEAD, &lead);
            }
            let tail = heap + RECORD_HEAD + lead.len();
            let _ = from.copy_to(slot.offset + RECORD_HEAD + dropped, &mut self.bytes()[tail..tail + rest]);
            let head = head_of(&self.bytes()[heap + RECORD_HEAD..heap + RECORD_HEAD + key_len], 0);
            let last = if leaf { slot.value_len as u32 | u32::from(slot.flags) << 16 } else { from.word(i) };
            self.put_slot(at, head, (heap, key_len), last);
            at += SLOT;
            ghosts += i32::from(slot.is_ghost());
        }
        self.put_u16(HEAP_START, heap as u16);
        let count = self.read().count() + range.len();
        self.put_u16(COUNT, count as u16);
        self.add_ghosts(ghosts);
        self.put_u16(SKIP, 0);
        self.rebuild_hints();
        self.extend_skip();
    }

    fn add_heap_free(&mut self, bytes: usize) {
        let free = usize::from(self.read().u16(HEAP_FREE)) + bytes;
        self.put_u16(HEAP_FREE, free as u16);
    }

    fn add_ghosts(&mut self, n: i32) {
        let ghosts = i32::from(self.read().u16(GHOSTS)) + n;
        self.put_u16(GHOSTS, ghosts as u16);
    }

    /// Updates the hints after inserts from `position` on into a page that had `before` slots and now has `count`.
    fn hints_after_insert(&mut self, position: usize, before: usize, count: usize) {
        if before == 0 || before & !3 != count & !3 {
            return self.fill_hints(1);
        }
        // Hints of slots before the position do not change. In most inserts those are all hints.
        if position <= hint_slot(HINT_COUNT, count) {
            let moved = (1..HINT_COUNT).find(|i| hint_slot(*i, count) >= position);
            self.fill_hints(moved.unwrap_or(HINT_COUNT));
        }
    }

    fn rebuild_hints(&mut self) {
        if self.read().count() > 0 {
            self.fill_hints(1);
        }
    }

    /// Writes the hints from number `from` on, counted from 1.
    fn fill_hints(&mut self, from: usize) {
        let count = self.read().count();
        for i in from..=HINT_COUNT {
            let head = self.read().head(hint_slot(i, count));
            self.put_u32(HINTS + 4 * (i - 1), head);
        }
    }

    /// Records an insert. Splits choose their split points by the runs of ascending inserts that are detected here.
    #[inline]
    pub(crate) fn note_insert(&mut self, position: usize) {
        let page = self.read();
        let run = if usize::from(page.u16(LAST_INSERT)) + 1 == position { page.u16(RUN).saturating_add(1) } else { 0 };
        self.put_u16(LAST_INSERT, position as u16);
        self.put_u16(RUN, run);
    }
}
