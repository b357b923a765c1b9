//! Structural check of a page, made when it is read from the disk. The check detects pages that this engine cannot have
//! written, without reading other pages.
//!
//! A checksum proves that the bytes are unchanged since they were written, not that they are consistent. Code that reads and
//! changes pages relies on these properties without checking them again: records, fences and slots lie in the page and do
//! not overlap, keys ascend between the fences, heads and hints match the keys, counters are correct. So for any contents of
//! the disk, no search leaves the page, and no change writes beyond its edge.
//!
//! The check takes one pass over slots and keys, on bytes that the checksum has just brought into the cache.

use std::fmt::{Display, Formatter};

use super::header::*;
use super::slotted::{WHOLE_FENCE, head_of};
use super::{MAX_KEY, MAX_VALUE};
use crate::base::ids::{PAGE_SIZE, PageId};

/// Defect of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Unknown kind, or kind and level do not match.
    Kind,
    /// More slots than a page can have, or slots that extend into the heap.
    Slots,
    /// A record or fence does not lie in the heap, or exceeds the maximum length.
    Heap,
    /// A record or fence shares bytes with another one.
    Overlap,
    /// The numbers of used and free bytes do not add up.
    Space,
    /// The fences do not ascend, or the prefix is not their common prefix.
    Fences,
    /// Keys do not ascend from this slot to the next, or lie outside the fences.
    KeyOrder(usize),
    /// The head of this slot does not match its key.
    Head(usize),
    /// This hint is not the head of its slot.
    Hint(usize),
    /// The number of ghosts is wrong.
    Ghosts,
}

impl Display for Flaw {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Flaw::Kind => f.write_str("is of no kind that lies here"),
            Flaw::Slots => f.write_str("has more slots than fit"),
            Flaw::Heap => f.write_str("has a record or fence that does not lie in it"),
            Flaw::Overlap => f.write_str("has records that share bytes"),
            Flaw::Space => f.write_str("has bytes that are neither used nor free"),
            Flaw::Fences => f.write_str("has fences that do not fit each other"),
            Flaw::KeyOrder(slot) => write!(f, "has a key out of order, in slot {slot}"),
            Flaw::Head(slot) => write!(f, "has a head that is not its key's, in slot {slot}"),
            Flaw::Hint(hint) => write!(f, "has a hint that is no slot's head, hint {hint}"),
            Flaw::Ghosts => f.write_str("counts other ghosts than it has"),
        }
    }
}

/// Returns the first defect in the bytes of page `id`; `None` if there is none.
pub(crate) fn find_defect(bytes: &[u8; PAGE_SIZE], id: PageId) -> Option<Flaw> {
    let (kind, level) = (bytes[KIND], bytes[LEVEL]);
    let leaf = kind == Kind::Leaf as u8;
    match kind {
        // A free page holds only a link.
        0 => (id.0 == SPACE).then_some(Flaw::Kind),
        // The allocator never hands out itself or the catalog; page numbers are checked again when they are used.
        3 if id.0 != SPACE || u32_at(bytes, HINTS) < 3 || matches!(u32_at(bytes, HINTS + 4), 1 | 2) => Some(Flaw::Kind),
        3 => (!ranges_ascend(bytes)).then_some(Flaw::Kind),
        1 | 2 if id.0 != SPACE && leaf == (level == 0) => tree_page(bytes, leaf).err(),
        _ => Some(Flaw::Kind),
    }
}

/// Returns the first key of an otherwise valid page that is out of order or outside the fences. If a valid page lies in a
/// wrong place of a tree, keys are inserted that do not belong there; this check detects them. It is far cheaper than
/// [`find_defect`]: one comparison per slot in most cases.
pub(crate) fn find_key_order_defect(bytes: &[u8; PAGE_SIZE]) -> Option<Flaw> {
    let part = |at: usize, len: usize| bytes.get(at..at + len);
    let prefix = u16_at(bytes, PREFIX_LEN);
    let fence = |at: usize, len: usize| part(u16_at(bytes, at), u16_at(bytes, len))?.get(prefix..);
    let (slots, _) = bytes[SLOTS..].as_chunks::<SLOT>();
    let slots = &slots[..u16_at(bytes, COUNT).min(MAX_SLOTS)];
    let key = |slot: &[u8; SLOT]| {
        let half = |at: usize| usize::from(u16::from_le_bytes([slot[at], slot[at + 1]]));
        part(half(4) + RECORD_HEAD, half(6))
    };
    let head = |slot: &[u8; SLOT]| u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]]);
    // If the heads ascend, the keys ascend too.
    let falls = |pair: &[[u8; SLOT]]| {
        let (before, after) = (head(&pair[0]), head(&pair[1]));
        before > after || before == after && key(&pair[0]) >= key(&pair[1])
    };
    let infinite = |flag: u16| u16_at(bytes, FLAGS) & usize::from(flag) != 0;
    let (first, last) = slots.first().zip(slots.last())?;
    if !infinite(flags::LOW_INFINITE) && key(first) < fence(LOW_OFFSET, LOW_LEN) {
        return Some(Flaw::KeyOrder(0));
    }
    if let Some(i) = slots.windows(2).position(falls) {
        return Some(Flaw::KeyOrder(i));
    }
    let is_above = !infinite(flags::HIGH_INFINITE) && key(last) >= fence(HIGH_OFFSET, HIGH_LEN);
    is_above.then_some(Flaw::KeyOrder(slots.len() - 1))
}

/// Returns true if the allocator's ranges of pages without a tree ascend, do not overlap, and end before the end of the
/// used pages.
fn ranges_ascend(bytes: &[u8; PAGE_SIZE]) -> bool {
    let end = u32_at(bytes, HINTS);
    let (entries, _) = bytes[SLOTS..].as_chunks::<8>();
    let Some(entries) = entries.get(..u32_at(bytes, HINTS + 8) as usize) else { return false };
    let mut behind = 3;
    entries.iter().all(|entry| {
        let word = u64::from_le_bytes(*entry);
        let (first, pages) = (word as u32, (word >> 32) as u32 & !(1 << 31));
        let fits = first >= behind && pages > 0 && first.checked_add(pages).is_some_and(|to| to <= end);
        behind = first.saturating_add(pages);
        fits
    })
}

/// Page number of the allocator's page.
const SPACE: u32 = 1;

fn u16_at(bytes: &[u8; PAGE_SIZE], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn u32_at(bytes: &[u8; PAGE_SIZE], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns `len` bytes at `at` of the heap, which begins at `heap`.
fn in_heap(bytes: &[u8; PAGE_SIZE], heap: usize, at: usize, len: usize) -> Result<&[u8], Flaw> {
    if at < heap { Err(Flaw::Heap) } else { bytes.get(at..at + len).ok_or(Flaw::Heap) }
}

/// Bit set of the occupied bytes of a page. Detects two objects that share a byte.
struct ByteBitmap {
    bytes: [u64; PAGE_SIZE / 64],
    overlaps: u64,
}

impl ByteBitmap {
    fn new() -> ByteBitmap {
        ByteBitmap { bytes: [0; PAGE_SIZE / 64], overlaps: 0 }
    }

    /// Marks bytes as occupied. The bytes must lie in the page.
    fn mark(&mut self, at: usize, len: usize) {
        let end = at + len;
        let mut from = at;
        while from < end {
            let n = (64 - from % 64).min(end - from);
            let these = (u64::MAX >> (64 - n)) << (from % 64);
            let word = &mut self.bytes[from / 64];
            self.overlaps |= *word & these;
            *word |= these;
            from += n;
        }
    }
}

fn tree_page(bytes: &[u8; PAGE_SIZE], leaf: bool) -> Result<(), Flaw> {
    let (count, heap) = (u16_at(bytes, COUNT), u16_at(bytes, HEAP_START));
    let slots_end = SLOTS + count * SLOT;
    if count > MAX_SLOTS || slots_end > heap || heap > PAGE_SIZE {
        return Err(Flaw::Slots);
    }
    let fence = |flag: usize, at: usize, len: usize, longest: usize| -> Result<Option<&[u8]>, Flaw> {
        let bytes_of = in_heap(bytes, heap, u16_at(bytes, at), u16_at(bytes, len))?;
        match u16_at(bytes, FLAGS) & flag != 0 {
            true if bytes_of.is_empty() => Ok(None),
            false if bytes_of.len() <= longest => Ok(Some(bytes_of)),
            _ => Err(Flaw::Heap),
        }
    };
    let longest = if leaf { MAX_KEY } else { WHOLE_FENCE };
    let low = fence(usize::from(flags::LOW_INFINITE), LOW_OFFSET, LOW_LEN, longest)?;
    let high = fence(usize::from(flags::HIGH_INFINITE), HIGH_OFFSET, HIGH_LEN, MAX_KEY)?;
    let prefix = u16_at(bytes, PREFIX_LEN);
    let fit = match (low, high) {
        (Some(low), Some(high)) => low < high && low.get(..prefix).is_some_and(|p| high.starts_with(p)),
        _ => prefix == 0,
    };
    if !fit || u16_at(bytes, FLAGS) >> 2 != 0 {
        return Err(Flaw::Fences);
    }
    // A search compares a prefix of this length with the copy in the header, not with the fence.
    if leaf && prefix <= LEAD_BYTES && low.is_some_and(|low| bytes[LEAD..LEAD + prefix] != low[..prefix]) {
        return Err(Flaw::Fences);
    }
    let (low_len, high_len) = (low.map_or(0, <[u8]>::len), high.map_or(0, <[u8]>::len));
    let mut used = low_len + high_len;
    let mut occupied = ByteBitmap::new();
    occupied.mark(u16_at(bytes, LOW_OFFSET), low_len);
    occupied.mark(u16_at(bytes, HIGH_OFFSET), high_len);
    // Keys are compared by their rest after the prefix, so the prefix is removed from the fences as well.
    let above = low.map(|low| &low[prefix..]);
    let below = high.map(|high| &high[prefix..]);
    let skip = u16_at(bytes, SKIP);
    let shared = u32_at(bytes, SHARED);
    if skip > 4 {
        return Err(Flaw::Head(0));
    }
    let mut ghosts = 0;
    // Previous key and its head.
    let mut last: Option<(&[u8], u32)> = None;
    for i in 0..count {
        let slot: [u8; SLOT] = bytes[SLOTS + i * SLOT..][..SLOT].try_into().map_err(|_| Flaw::Slots)?;
        let word = |at: usize| u32::from_le_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]);
        let halves = |word: u32| ((word & 0xFFFF) as usize, (word >> 16) as usize);
        let (offset, key_len) = halves(word(4));
        let (value_len, slot_flags) = if leaf { halves(word(8)) } else { (0, 0) };
        let len = RECORD_HEAD + key_len + value_len;
        if prefix + key_len > MAX_KEY || value_len > MAX_VALUE || slot_flags & !usize::from(GHOST | OVERFLOW) != 0 {
            return Err(Flaw::Heap);
        }
        let key = &in_heap(bytes, heap, offset, len)?[RECORD_HEAD..RECORD_HEAD + key_len];
        used += len;
        occupied.mark(offset, len);
        ghosts += slot_flags & usize::from(GHOST);
        let (start, head) = match key.first_chunk::<8>() {
            Some(first) => {
                let first = u64::from_be_bytes(*first);
                ((first >> 32) as u32, (first << (8 * skip) >> 32) as u32)
            }
            None => (head_of(key, 0), head_of(key, skip)),
        };
        if (key.len() < skip || start & SHARED_MASK[skip] != shared) && skip > 0 || word(0) != head {
            return Err(Flaw::Head(i));
        }
        // All keys have the same bytes before the heads, so ascending heads prove that the keys ascend.
        let falls = |(last, before)| before > head || before == head && last >= key;
        if last.map_or(above.is_some_and(|above| key < above), falls) {
            return Err(Flaw::KeyOrder(i.saturating_sub(1)));
        }
        last = Some((key, head));
    }
    if let (Some((last, _)), Some(below)) = (last, below)
        && last >= below
    {
        return Err(Flaw::KeyOrder(count - 1));
    }
    if used + u16_at(bytes, HEAP_FREE) != PAGE_SIZE - heap {
        return Err(Flaw::Space);
    }
    if occupied.overlaps != 0 {
        return Err(Flaw::Overlap);
    }
    if ghosts != u16_at(bytes, GHOSTS) {
        return Err(Flaw::Ghosts);
    }
    if count > 0 {
        let head = |i: usize| u32_at(bytes, SLOTS + i * SLOT);
        let wrong = |i: &usize| u32_at(bytes, HINTS + 4 * i) != head(hint_slot(i + 1, count));
        if let Some(i) = (0..HINT_COUNT).find(wrong) {
            return Err(Flaw::Hint(i));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::IndexId;
    use crate::page::slotted::Format;
    use crate::page::{PageBytes, PageMut};

    /// Regression test: a record that began inside another row was accepted, because the total number of bytes was right.
    #[test]
    fn records_that_share_bytes_are_noticed() {
        let mut page = PageBytes::boxed();
        let mut p = PageMut::of(&mut page);
        let id = PageId(7);
        let (low, high, right) = (None, None, PageId::NONE);
        p.format(&Format { id, index: IndexId(1), level: 0, low, high, right, upper: PageId::NONE });
        p.insert(0, &[9; 20], 0, &[9; 50], 0);
        p.insert(1, &[10; 20], 0, &[9; 50], 0);
        assert_eq!(find_defect(page.as_bytes(), id), None);
        let offset = u16_at(page.as_bytes(), SLOTS + 4);
        let second = u16_at(page.as_bytes(), SLOTS + SLOT + 4);
        assert_eq!(second + RECORD_HEAD + 20 + 50, offset);
        // Moves the record into the other row, and writes its key there as well.
        let moved = (offset - 10) as u16;
        page.as_bytes_mut()[SLOTS + 4..SLOTS + 6].copy_from_slice(&moved.to_le_bytes());
        page.as_bytes_mut()[usize::from(moved) + RECORD_HEAD..][..20].fill(9);
        assert_eq!(find_defect(page.as_bytes(), id), Some(Flaw::Overlap));
    }

    /// A search compares a short prefix with the copy in the header.
    #[test]
    fn a_prefix_that_is_not_the_fences_is_noticed() {
        let id = PageId(7);
        for (low, high, level, noticed) in
            [("ab", "ac", 0, true), ("ab", "ac", 1, false), ("123456789", "12345678a", 0, true)]
        {
            let mut page = PageBytes::boxed();
            let (low, high) = (Some(low.as_bytes()), Some(high.as_bytes()));
            PageMut::of(&mut page).format(&Format { id, index: IndexId(1), level, low, high, right: id, upper: id });
            assert_eq!(find_defect(page.as_bytes(), id), None);
            page.as_bytes_mut()[LEAD] ^= 1;
            assert_eq!(find_defect(page.as_bytes(), id), noticed.then_some(Flaw::Fences), "level {level}");
        }
    }

    /// The check of the order alone gives the same result as the complete check.
    #[test]
    fn keys_out_of_order_are_noticed_by_either_look() {
        let id = PageId(7);
        for (keys, noticed) in [
            (&[][..], None),
            (&["abc", "abcdefgh1", "abcdefgh2", "abd"], None),
            (&["abd", "abc"], Some(0)),
            (&["abc", "abcdefgh2", "abcdefgh1", "abd"], Some(1)),
            (&["abc", "abc"], Some(0)),
            (&["aa", "abc"], Some(0)),
            (&["abc", "ac"], Some(1)),
        ] {
            let mut page = PageBytes::boxed();
            let mut p = PageMut::of(&mut page);
            let (low, high) = (Some(&b"ab"[..]), Some(&b"ac"[..]));
            p.format(&Format { id, index: IndexId(1), level: 0, low, high, right: id, upper: PageId::NONE });
            for (i, key) in keys.iter().enumerate() {
                p.insert(i, key.as_bytes(), 0, b"row", 0);
            }
            let noticed = noticed.map(Flaw::KeyOrder);
            assert_eq!(
                (find_key_order_defect(page.as_bytes()), find_defect(page.as_bytes(), id)),
                (noticed, noticed),
                "{keys:?}"
            );
        }
    }

    #[test]
    fn no_byte_is_taken_twice() {
        let mut occupied = ByteBitmap::new();
        for (at, len) in [(0, 1), (63, 2), (100, 300), (400, 1), (PAGE_SIZE - 65, 65), (700, 0), (1, 62), (65, 35)] {
            occupied.mark(at, len);
            assert_eq!(occupied.overlaps, 0, "{at}");
        }
        let of_all: u32 = occupied.bytes.iter().map(|word| word.count_ones()).sum();
        assert_eq!(of_all, 401 + 65);
        for at in [0, 64, 399, PAGE_SIZE - 1] {
            occupied.overlaps = 0;
            occupied.mark(at, 1);
            assert_ne!(occupied.overlaps, 0, "{at}");
        }
    }
}
