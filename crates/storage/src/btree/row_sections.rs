//! Sections of log records about one row: their form, and the code that builds and decodes them.
//!
//! Sections about one row are most of the log. Their first byte has its highest bit set. They omit fields that are equal in
//! the preceding section about a row, and the part of the key that is equal in the first section about a row of the record:
//!
//! ```text
//! kind u8 | key length u8 | position u8 | numbers u8 each                  (short), or
//! kind u8 | key length u8 | place u16   | numbers u16 each                 (long)
//!     | page, index, root: u24, u8, u24 (narrow); u32 each (wide); page u32 alone (same tree); nothing (same page)
//!     | number of shared bytes u8 | rest of the key | bytes | bytes
//! ```
//!
//! | bits of `kind` | |
//! | --- | --- |
//! | 0, 1 | operation: insert, patch, replace, mark |
//! | 2, 3 | location: wide, narrow, same tree, same page |
//! | 4 | the section is short |
//! | 5 | the row becomes a ghost (mark only) |
//! | 6 | always clear |
//! | 7 | always set |
//!
//! An insert has one number, the length of the value; a patch two, the offset and the length of the bytes; a replace two,
//! the lengths of the values. The upper two bits of the length of a value hold the slot's flags. The 16 bits of `place` hold
//! the slot's position in the lower 11 bits and bits 8 to 12 of the key's length above them. The key's length does not count
//! the shared bytes.

use super::Tree;
use crate::base::bytes::common_prefix;
use crate::base::ids::{IndexId, PageId};
use crate::log::{Difference, Piece, RecordBuf};

/// Operation on one row, in the lowest bits of a section's first byte. Each can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum RowOp {
    /// A row was inserted. Undo marks the row deleted.
    Insert = 0,
    /// Bytes of a row were overwritten. The section holds the exclusive or of the former and the new bytes, which makes each
    /// from the other. Undo and redo apply it exactly once.
    Patch = 1,
    /// The whole value of a row (and its ghost mark) was replaced. Undo restores the former value.
    Replace = 2,
    /// A row was marked deleted, or its mark was cleared. Undo sets the former mark.
    Mark = 3,
}

impl RowOp {
    /// Returns the number of numbers in the head of a section.
    #[inline(always)]
    const fn numbers(self) -> usize {
        match self {
            RowOp::Insert => 1,
            RowOp::Patch | RowOp::Replace => 2,
            RowOp::Mark => 0,
        }
    }

    fn of(kind: u8) -> RowOp {
        match kind & 3 {
            0 => RowOp::Insert,
            1 => RowOp::Patch,
            2 => RowOp::Replace,
            _ => RowOp::Mark,
        }
    }
}

/// Location of a row, as a section describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowAt {
    pub(crate) page: PageId,
    /// Tree of the row, including the root page, so that undo needs no catalog.
    pub(crate) tree: Tree,
    pub(crate) position: usize,
}

/// A decoded section about one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSection<'a> {
    pub(crate) at: RowAt,
    pub(crate) key: SectionKey<'a>,
    pub(crate) change: RowChange<'a>,
}

/// Key of a row in a section. It consists of two parts, because a section shares bytes with another one's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectionKey<'a> {
    shared: &'a [u8],
    rest: &'a [u8],
}

impl<'a> From<&'a [u8]> for SectionKey<'a> {
    #[inline(always)]
    fn from(key: &'a [u8]) -> SectionKey<'a> {
        SectionKey { shared: &[], rest: key }
    }
}

impl<'a> SectionKey<'a> {
    #[inline]
    pub(crate) fn len(self) -> usize {
        self.shared.len() + self.rest.len()
    }

    /// Returns the key in one piece. Only a key that shares bytes is copied to the buffer.
    #[inline]
    pub(crate) fn whole<'b>(self, buffer: &'b mut KeyBuffer) -> &'b [u8]
    where
        'a: 'b,
    {
        if self.shared.is_empty() { self.rest } else { buffer.join(self) }
    }
}

/// Buffer for a key that shares bytes with another one. Usual keys need no allocation.
#[derive(Debug)]
pub(crate) struct KeyBuffer {
    short: [u8; 64],
    long: Vec<u8>,
}

impl KeyBuffer {
    pub(crate) fn new() -> KeyBuffer {
        KeyBuffer { short: [0; 64], long: Vec::new() }
    }

    fn join(&mut self, key: SectionKey<'_>) -> &[u8] {
        let place = match self.short.get_mut(..key.len()) {
            Some(short) => short,
            None => {
                self.long.resize(key.len(), 0);
                &mut self.long
            }
        };
        let (shared, rest) = place.split_at_mut(key.shared.len());
        shared.copy_from_slice(key.shared);
        rest.copy_from_slice(key.rest);
        place
    }
}

/// Change of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowChange<'a> {
    Insert {
        value: &'a [u8],
        flags: u16,
    },
    Patch {
        offset: usize,
        /// Exclusive or of the former and the new bytes.
        difference: &'a [u8],
    },
    /// The former and the new value of a row, each with the slot's flags.
    Replace {
        before: (&'a [u8], u16),
        after: (&'a [u8], u16),
    },
    Mark {
        ghost: bool,
    },
}

/// Rows that a section may refer to, to omit fields: those of the preceding sections about rows in the same record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsBefore {
    /// Page of the preceding one; [`PageId::NONE`] if there is none.
    page: PageId,
    /// Tree of the preceding one.
    tree: Tree,
    /// Place in the body of the part of the first one's key that a key may share.
    key_at: u32,
    key_len: u32,
}

impl RowsBefore {
    /// Context of the first section about a row.
    #[inline(always)]
    pub(crate) const fn none() -> RowsBefore {
        RowsBefore { page: PageId::NONE, tree: Tree { index: IndexId(0), root: PageId::NONE }, key_at: 0, key_len: 0 }
    }

    /// Returns the number of bytes that the first row's key, which is in `rec`, has in common with `key`.
    #[inline(always)]
    fn shared(&self, rec: &RecordBuf, key: &[u8]) -> usize {
        let len = key.len().min(self.key_len as usize);
        common_prefix(rec.part(self.key_at as usize, len), &key[..len])
    }

    /// Returns the location that describes a row relative to the preceding one; [`location::WIDE`] if their trees differ.
    #[inline(always)]
    fn location_of(&self, at: &RowAt) -> u8 {
        match self.tree == at.tree {
            true if self.page == at.page => location::SAME_PAGE,
            true => location::SAME_TREE,
            false => location::WIDE,
        }
    }

    /// Adds a row, whose key is in the body at `key_at`.
    #[inline(always)]
    fn add(&mut self, at: &RowAt, key_at: usize, key_len: usize) {
        if self.tree != at.tree {
            if self.page == PageId::NONE {
                (self.key_at, self.key_len) = (key_at as u32, key_len.min(MAX_SHARED) as u32);
            }
            self.tree = at.tree;
        }
        self.page = at.page;
    }
}

/// Maximum number of bytes that a key shares. It bounds the bytes by which the undo of a section exceeds the section.
const MAX_SHARED: usize = 32;

/// Number of bits of a slot's position in the 16-bit field `place` of a section about one row. The bits above hold the bits
/// of the key's length above the lowest 8.
const POSITION_BITS: u32 = 11;

/// Bit position of a slot's flags in the field that holds the length of a value.
const FLAGS_AT: u32 = 14;

/// Location of a row in a section, in bits 2 and 3 of the section's first byte.
mod location {
    pub(super) const WIDE: u8 = 0;
    pub(super) const NARROW: u8 = 1 << 2;
    pub(super) const SAME_TREE: u8 = 2 << 2;
    pub(super) const SAME_PAGE: u8 = 3 << 2;
    pub(super) const MASK: u8 = 3 << 2;
}

/// Bits of the first byte of a section about a row.
const SHORT: u8 = 1 << 4;
const GHOST_BIT: u8 = 1 << 5;
const CLEAR: u8 = 1 << 6;
pub(super) const ROW: u8 = 1 << 7;

/// Adds a section about one row: its head with the place and the numbers, then the key and `piece`. `bits` are added to the
/// first byte, and the row to `before`.
#[inline(always)]
fn put_row(
    rec: &mut RecordBuf,
    (op, bits): (RowOp, u8),
    at: &RowAt,
    key: &[u8],
    before: &mut RowsBefore,
    numbers: [u16; 2],
    piece: impl Piece,
) {
    let shared = before.shared(rec, key);
    let key = &key[shared..];
    let kind = ROW | op as u8 | bits;
    let [first, second] = numbers.map(u64::from);
    let (key_len, position) = (key.len() as u64, at.position as u64);
    // The parts are built in words, because single fields would be stored field by field and then copied.
    let (location, word) = match before.location_of(at) {
        location::SAME_PAGE => (location::SAME_PAGE, (shared as u64, 1)),
        location::SAME_TREE => (location::SAME_TREE, (u64::from(at.page.0) | (shared as u64) << 32, 5)),
        _ => (location::NARROW, (narrow(at) | (shared as u64) << 56, 8)),
    };
    if key_len | position | first | second >= 256 || location == location::NARROW && !fits_narrow(at) {
        return put_long(rec, (op, kind), at, (shared, key), before, numbers, piece);
    }
    let kind = u64::from(kind | SHORT | location);
    let head = kind | key_len << 8 | position << 16 | first << 24 | second << 32;
    let key_at = rec.put_row([(head, 3 + op.numbers()), word], key, piece);
    before.add(at, key_at, key.len());
}

/// Adds a section with a long head or a wide location, as [`put_row`]. `kind` is the first byte without the location.
#[inline(never)]
fn put_long(
    rec: &mut RecordBuf,
    (op, kind): (RowOp, u8),
    at: &RowAt,
    (shared, key): (usize, &[u8]),
    before: &mut RowsBefore,
    numbers: [u16; 2],
    piece: impl Piece,
) {
    debug_assert!(at.position < 1 << POSITION_BITS && key.len() >> 8 < 1 << (u16::BITS - POSITION_BITS));
    let location = match before.location_of(at) {
        location::WIDE if fits_narrow(at) => location::NARROW,
        location => location,
    };
    let place = at.position | key.len() >> 8 << POSITION_BITS;
    let [first, second] = numbers.map(u64::from);
    let head = u64::from(kind | location) | (key.len() as u64 & 0xFF) << 8 | (place as u64) << 16;
    let head = head | first << 32 | second << 48;
    rec.put(&head.to_le_bytes()[..4 + 2 * op.numbers()]);
    let [page, index, root] = [at.page.0, at.tree.index.0, at.tree.root.0].map(u64::from);
    let shared = shared as u64;
    let words = match location {
        location::SAME_PAGE => [(0, 0), (shared, 1)],
        location::SAME_TREE => [(0, 0), (page | shared << 32, 5)],
        location::NARROW => [(0, 0), (narrow(at) | shared << 56, 8)],
        _ => [(page | index << 32, 8), (root | shared << 32, 5)],
    };
    let key_at = rec.put_row(words, key, piece);
    before.add(at, key_at, key.len());
}

/// Returns a narrow location, of seven bytes.
#[inline(always)]
fn narrow(at: &RowAt) -> u64 {
    u64::from(at.page.0) | u64::from(at.tree.index.0) << 24 | u64::from(at.tree.root.0) << 32
}

/// Returns true if the page, the index and the root fit a narrow location.
#[inline(always)]
fn fits_narrow(at: &RowAt) -> bool {
    (at.page.0 | at.tree.root.0) < 1 << 24 && at.tree.index.0 < 1 << 8
}

/// Returns the number in a section that holds the length of a value and the slot's flags.
#[inline(always)]
fn flagged((value, flags): (&[u8], u16)) -> u16 {
    value.len() as u16 | flags << FLAGS_AT
}

/// Adds an insert section with the value and the slot's flags.
#[inline(always)]
pub(crate) fn put_insert(rec: &mut RecordBuf, at: &RowAt, key: &[u8], before: &mut RowsBefore, value: (&[u8], u16)) {
    put_row(rec, (RowOp::Insert, 0), at, key, before, [flagged(value), 0], value.0);
}

/// Adds a section that overwrites bytes within a row. `old` and `new` have equal lengths.
#[inline(always)]
pub(crate) fn put_patch(
    rec: &mut RecordBuf,
    at: &RowAt,
    key: &[u8],
    before: &mut RowsBefore,
    offset: usize,
    (old, new): (&[u8], &[u8]),
) {
    let numbers = [offset as u16, new.len() as u16];
    put_row(rec, (RowOp::Patch, 0), at, key, before, numbers, Difference { before: old, after: new });
}

/// Adds a section that applies a difference to bytes of a row: the undo of such a section.
pub(crate) fn put_patch_back(rec: &mut RecordBuf, at: &RowAt, key: &[u8], offset: usize, difference: &[u8]) {
    let numbers = [offset as u16, difference.len() as u16];
    put_row(rec, (RowOp::Patch, 0), at, key, &mut RowsBefore::none(), numbers, difference);
}

/// Adds a section that replaces a row's value and flags.
pub(crate) fn put_replace(rec: &mut RecordBuf, at: &RowAt, key: &[u8], before: (&[u8], u16), after: (&[u8], u16)) {
    let numbers = [flagged(before), flagged(after)];
    put_row(rec, (RowOp::Replace, 0), at, key, &mut RowsBefore::none(), numbers, before.0);
    rec.put(after.0);
}

/// Adds a section for the setting or clearing of a ghost mark.
pub(crate) fn put_mark(rec: &mut RecordBuf, at: &RowAt, key: &[u8], before: &mut RowsBefore, ghost: bool) {
    put_row(rec, (RowOp::Mark, if ghost { GHOST_BIT } else { 0 }), at, key, before, [0, 0], &[][..]);
}

/// Position of a section in its record's body, with the rows before it, which the decoding needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionAt {
    pub(super) at: usize,
    pub(super) before: RowsBefore,
}

impl SectionAt {
    /// Returns the offset of the section in the body.
    #[inline]
    pub(crate) fn at(self) -> usize {
        self.at
    }
}

/// Reader of the fields of a section.
pub(super) struct SectionReader<'a>(pub(super) &'a [u8]);

impl<'a> SectionReader<'a> {
    pub(super) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }
    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(*self.take(2)?.first_chunk()?))
    }
    pub(super) fn u24(&mut self) -> Option<u32> {
        self.take(3).map(|b| u32::from_le_bytes([b[0], b[1], b[2], 0]))
    }
    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }
}

/// Returns the position of the row that a section is about, by the first bytes of the section; `None` if the section is about
/// something else. The section may be damaged.
#[inline]
pub(crate) fn position_of(section: &[u8]) -> Option<usize> {
    let [kind, _, low, high] = *section.first_chunk()?;
    match kind & (ROW | SHORT) {
        ROW => Some(usize::from(u16::from_le_bytes([low, high]) & ((1 << POSITION_BITS) - 1))),
        both if both == ROW | SHORT => Some(usize::from(low)),
        _ => None,
    }
}

/// Decodes a section about a row. Returns the section and the position of the next one.
pub(super) fn decode<'a>(body: &'a [u8], place: SectionAt) -> Option<(RowSection<'a>, SectionAt)> {
    let mut before = place.before;
    let mut c = SectionReader(body.get(place.at..)?);
    let (kind, key_low) = (c.u8()?, c.u8()?);
    let (op, short) = (RowOp::of(kind), kind & SHORT != 0);
    if kind & CLEAR != 0 {
        return None;
    }
    let number = |c: &mut SectionReader<'a>| if short { c.u8().map(u16::from) } else { c.u16() };
    let place = number(&mut c)?;
    let mut numbers = [0; 2];
    for n in &mut numbers[..op.numbers()] {
        *n = number(&mut c)?;
    }
    let (page, tree) = match kind & location::MASK {
        location::WIDE => (PageId(c.u32()?), Tree { index: IndexId(c.u32()?), root: PageId(c.u32()?) }),
        location::NARROW => (PageId(c.u24()?), Tree { index: IndexId(c.u8()?.into()), root: PageId(c.u24()?) }),
        location::SAME_TREE if before.page != PageId::NONE => (PageId(c.u32()?), before.tree),
        location::SAME_PAGE if before.page != PageId::NONE => (before.page, before.tree),
        _ => return None,
    };
    let shared = usize::from(c.u8()?);
    let first_key = body.get(before.key_at as usize..)?.get(..before.key_len as usize)?;
    let key_at = body.len() - c.0.len();
    let rest = c.take(usize::from(key_low) | usize::from(place >> POSITION_BITS) << 8)?;
    let key = SectionKey { shared: first_key.get(..shared)?, rest };
    let at = RowAt { page, tree, position: usize::from(place & ((1 << POSITION_BITS) - 1)) };
    let [first, second] = numbers.map(usize::from);
    let mut flagged = |number: u16| Some((c.take(usize::from(number & ((1 << FLAGS_AT) - 1)))?, number >> FLAGS_AT));
    let change = match op {
        RowOp::Insert => {
            let (value, flags) = flagged(numbers[0])?;
            RowChange::Insert { value, flags }
        }
        RowOp::Patch => RowChange::Patch { offset: first, difference: c.take(second)? },
        RowOp::Replace => RowChange::Replace { before: flagged(numbers[0])?, after: flagged(numbers[1])? },
        RowOp::Mark => RowChange::Mark { ghost: kind & GHOST_BIT != 0 },
    };
    before.add(&at, key_at, rest.len());
    Some((RowSection { at, key, change }, SectionAt { at: body.len() - c.0.len(), before }))
}
