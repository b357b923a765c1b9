//! Page operations: the changes to pages that a log record describes, and the code that applies or redoes them.
//!
//! The body of a data, compensation or system record is a sequence of *sections*, one page each. Several sections may
//! concern the same page and need not be adjacent: redo processes the sections of one page together, in their order
//! (`recovery::restart`).
//!
//! ```text
//! op u8 | 0 u8 | bytes u16 (of the whole section) | page u32 | payload, padded to 4
//! ```
//!
//! Sections about one row are most of the log. Their first byte has its highest bit set. They omit fields that are equal in
//! the preceding section about a row, and the part of the key that is equal in the first section about a row of the record:
//!
//! ```text
//! kind u8 | key length u8 | position u8 | numbers u8 each                  (short), or
//! kind u8 | key length u8 | place u16   | numbers u16 each                 (long)
//!     | page, index, root: u24, u8, u24 (narrow); u32 each (wide); page u32 alone (same tree); nothing (same page)
//!     | number of shared bytes u8 (if there are any) | rest of the key | bytes | bytes
//! ```
//!
//! | bits of `kind` | |
//! | --- | --- |
//! | 0, 1 | operation: insert, patch, replace, mark |
//! | 2, 3 | location: wide, narrow, same tree, same page |
//! | 4 | the section is short |
//! | 5 | the key shares bytes |
//! | 6 | the row becomes a ghost (mark only) |
//! | 7 | always set |
//!
//! An insert has one number, the length of the value; a patch two, the offset and the length of the bytes; a replace two,
//! the lengths of the values. The upper two bits of the length of a value hold the slot's flags. The 16 bits of `place` hold
//! the slot's position in the lower 11 bits and bits 8 to 12 of the key's length above them. The key's length does not count
//! the shared bytes.
//!
//! Redo applies a section if the page's LSN is older than the record. Positions are physical, because the page then has
//! exactly the state that it had when the record was written. Undo works by key, because the row may have moved since. The
//! row's content has not changed since, because its transaction holds a lock on it. The engine itself changes pages through
//! [`apply`] wherever possible, so that a change and its redo share one code.

use super::{MAX_KEY, MAX_VALUE, Tree};
use crate::base::ids::{IndexId, PAGE_SIZE, PageId};
use crate::log::RecordBuf;
use crate::page::header::{COUNT, HEAP_START, ID, KIND, Kind, RIGHT};
use crate::page::layout::{GHOST, OVERFLOW, RECORD_HEAD, SLOT};
use crate::page::slotted::Format;
use crate::page::{PageBytes, PageMut, PageRef, header};

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

/// Kind of a section that concerns no single row: the operation on a page. None can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Op {
    /// The whole content of the page was replaced.
    Image = 16,
    /// The upper slots of the page moved to a new right neighbour.
    Truncate = 17,
    /// A separator and its right child were added to an inner page.
    AddChild = 18,
    /// A separator and the child to its right were removed from an inner page.
    DropChild = 19,
    /// Ghosts were removed from the page.
    Purge = 20,
    /// The state of the page allocator changed.
    Space = 21,
    /// The page was freed.
    Free = 22,
    /// The allocator's ranges of pages that no tree contains changed.
    Ranges = 23,
    /// A page pointer changed: a child of an inner page, or the successor of a leaf or of a free page.
    Link = 24,
}

impl Op {
    fn from(byte: u8) -> Option<Op> {
        Some(match byte {
            16 => Op::Image,
            17 => Op::Truncate,
            18 => Op::AddChild,
            19 => Op::DropChild,
            20 => Op::Purge,
            21 => Op::Space,
            22 => Op::Free,
            23 => Op::Ranges,
            24 => Op::Link,
            _ => return None,
        })
    }
}

/// Location of a row, as a section describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowAt<'a> {
    pub(crate) page: PageId,
    /// Tree of the row, including the root page, so that undo needs no catalog.
    pub(crate) tree: Tree,
    pub(crate) position: usize,
    pub(crate) key: SectionKey<'a>,
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

/// A decoded section of a record's body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PageChange<'a> {
    Insert {
        at: RowAt<'a>,
        value: &'a [u8],
        flags: u16,
    },
    Patch {
        at: RowAt<'a>,
        offset: usize,
        /// Exclusive or of the former and the new bytes.
        difference: &'a [u8],
    },
    /// The former and the new value of a row, each with the slot's flags.
    Replace {
        at: RowAt<'a>,
        before: (&'a [u8], u16),
        after: (&'a [u8], u16),
    },
    Mark {
        at: RowAt<'a>,
        ghost: bool,
    },
    Image {
        page: PageId,
        hole: (usize, usize),
        bytes: &'a [u8],
    },
    Truncate {
        page: PageId,
        position: usize,
        right: PageId,
        high: &'a [u8],
    },
    AddChild {
        page: PageId,
        position: usize,
        key: &'a [u8],
        left: PageId,
        right: PageId,
    },
    DropChild {
        page: PageId,
        position: usize,
        child: PageId,
    },
    Purge {
        page: PageId,
        positions: &'a [u8],
    },
    Space {
        page: PageId,
        end: u32,
        free: PageId,
    },
    Free {
        page: PageId,
        next: PageId,
    },
    Ranges {
        page: PageId,
        list: &'a [u8],
    },
    Link {
        page: PageId,
        position: usize,
        to: PageId,
    },
}

impl PageChange<'_> {
    /// Returns the number of the page that the section changes.
    pub(crate) fn page(&self) -> PageId {
        match *self {
            PageChange::Insert { at, .. }
            | PageChange::Patch { at, .. }
            | PageChange::Replace { at, .. }
            | PageChange::Mark { at, .. } => at.page,
            PageChange::Image { page, .. }
            | PageChange::Truncate { page, .. }
            | PageChange::AddChild { page, .. }
            | PageChange::DropChild { page, .. }
            | PageChange::Purge { page, .. }
            | PageChange::Space { page, .. }
            | PageChange::Free { page, .. }
            | PageChange::Ranges { page, .. }
            | PageChange::Link { page, .. } => page,
        }
    }
}

fn open(rec: &mut RecordBuf, op: Op, page: PageId) -> usize {
    let at = rec.body().len();
    let mut head = [0; 8];
    head[0] = op as u8;
    head[4..].copy_from_slice(&page.0.to_le_bytes());
    rec.put(&head);
    at
}

fn close(rec: &mut RecordBuf, at: usize) {
    let pad = (rec.body().len() - at).wrapping_neg() % 4;
    rec.put_zeros(pad);
    let bytes = rec.body().len() - at;
    rec.patch_u16(at + 2, bytes as u16);
}

/// Rows that a section may refer to, to omit fields: those of the preceding sections about rows in the same record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowsBefore {
    /// Page and tree of the preceding one.
    last: Option<(PageId, Tree)>,
    /// Place of the first one's key in the body.
    key_at: u32,
    key_len: u16,
}

impl RowsBefore {
    /// Context of the first section about a row.
    pub(crate) const NONE: RowsBefore = RowsBefore { last: None, key_at: 0, key_len: 0 };

    /// Returns the bytes that the first row's key has in common with `key`.
    #[inline]
    fn shared(self, body: &[u8], key: &[u8]) -> usize {
        if self.last.is_none() {
            return 0;
        }
        let first = body.get(self.key_at as usize..).and_then(|body| body.get(..usize::from(self.key_len)));
        let both = first.unwrap_or_default().iter().zip(key).take(MAX_SHARED);
        both.take_while(|(a, b)| a == b).count()
    }

    /// Returns the context after a section about `row`, whose key is in the body at `key_at`.
    #[inline(always)]
    fn and(self, row: (PageId, Tree), key_at: usize, key_len: usize) -> RowsBefore {
        match self.last {
            None => RowsBefore { last: Some(row), key_at: key_at as u32, key_len: key_len as u16 },
            Some(_) => RowsBefore { last: Some(row), ..self },
        }
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
const SHARES: u8 = 1 << 5;
const GHOST_BIT: u8 = 1 << 6;
const ROW: u8 = 1 << 7;

/// Adds a section about one row: its head with the place and the numbers, then the key and `bytes`. `bits` are added to the
/// first byte. Returns the context of the next section.
#[inline(always)]
fn put_row(
    rec: &mut RecordBuf,
    (op, bits): (RowOp, u8),
    at: &RowAt<'_>,
    before: RowsBefore,
    numbers: [u16; 2],
    bytes: &[u8],
) -> RowsBefore {
    debug_assert!(at.key.shared.is_empty(), "a row to log has its key in one piece");
    let shared = before.shared(rec.body(), at.key.rest);
    let key = &at.key.rest[shared..];
    debug_assert!(at.position < 1 << POSITION_BITS && key.len() >> 8 < 1 << (u16::BITS - POSITION_BITS));
    let (page, index, root) = (u64::from(at.page.0), u64::from(at.tree.index.0), u64::from(at.tree.root.0));
    // The parts are built in words, because single fields would be stored field by field and then copied.
    let (location, words) = match before.last {
        Some((last, tree)) if tree == at.tree => match last == at.page {
            true => (location::SAME_PAGE, [(0, 0), (0, 0)]),
            false => (location::SAME_TREE, [(page, 4), (0, 0)]),
        },
        _ if (page | root) < 1 << 24 && index < 1 << 8 => {
            (location::NARROW, [(page | index << 24 | root << 32, 7), (0, 0)])
        }
        _ => (location::WIDE, [(page | index << 32, 8), (root, 4)]),
    };
    let (shares, last_word) = match shared {
        0 => (0, words[1]),
        _ => (SHARES, (words[1].0 | (shared as u64) << (8 * words[1].1), words[1].1 + 1)),
    };
    let kind = ROW | op as u8 | location | shares | bits;
    let [first, second] = numbers.map(u64::from);
    let (key_len, position) = (key.len() as u64, at.position as u64);
    let head = match key_len | position | first | second {
        ..256 => {
            let kind = u64::from(kind | SHORT);
            (kind | key_len << 8 | position << 16 | first << 24 | second << 32, 3 + op.numbers())
        }
        _ => {
            let place = position | key_len >> 8 << POSITION_BITS;
            let word = u64::from(kind) | (key_len & 0xFF) << 8 | place << 16 | first << 32 | second << 48;
            (word, 4 + 2 * op.numbers())
        }
    };
    let key_at = rec.body().len() + head.1 + words[0].1 + last_word.1;
    rec.put_pieces([head, words[0], last_word], [key, bytes]);
    before.and((at.page, at.tree), key_at, key.len())
}

/// Returns the number in a section that holds the length of a value and the slot's flags.
#[inline(always)]
fn flagged((value, flags): (&[u8], u16)) -> u16 {
    value.len() as u16 | flags << FLAGS_AT
}

/// Adds an insert section with the key of `at`, the value, and the slot's flags. Returns the context of the next section.
#[inline]
pub(crate) fn put_insert(rec: &mut RecordBuf, at: &RowAt<'_>, before: RowsBefore, value: (&[u8], u16)) -> RowsBefore {
    put_row(rec, (RowOp::Insert, 0), at, before, [flagged(value), 0], value.0)
}

/// Adds a section that overwrites bytes within a row. `bytes` holds the former and the new bytes, of equal length. Returns
/// the context of the next section.
#[inline]
pub(crate) fn put_patch(
    rec: &mut RecordBuf,
    at: &RowAt<'_>,
    before: RowsBefore,
    offset: usize,
    bytes: (&[u8], &[u8]),
) -> RowsBefore {
    let next = put_row(rec, (RowOp::Patch, 0), at, before, [offset as u16, bytes.1.len() as u16], &[]);
    rec.put_difference(bytes.0, bytes.1);
    next
}

/// Adds a section that applies a difference to bytes of a row: the undo of such a section.
pub(crate) fn put_patch_back(rec: &mut RecordBuf, at: &RowAt<'_>, offset: usize, difference: &[u8]) {
    put_row(rec, (RowOp::Patch, 0), at, RowsBefore::NONE, [offset as u16, difference.len() as u16], difference);
}

/// Adds a section that replaces a row's value and flags.
pub(crate) fn put_replace(rec: &mut RecordBuf, at: &RowAt<'_>, before: (&[u8], u16), after: (&[u8], u16)) {
    put_row(rec, (RowOp::Replace, 0), at, RowsBefore::NONE, [flagged(before), flagged(after)], before.0);
    rec.put(after.0);
}

/// Adds a section for the setting or clearing of a ghost mark. Returns the context of the next section.
pub(crate) fn put_mark(rec: &mut RecordBuf, at: &RowAt<'_>, before: RowsBefore, ghost: bool) -> RowsBefore {
    put_row(rec, (RowOp::Mark, if ghost { GHOST_BIT } else { 0 }), at, before, [0, 0], &[])
}

/// Returns the range of unused bytes between the slots and the heap.
fn hole(page: PageRef<'_>) -> (usize, usize) {
    let kind = page.kind();
    match kind {
        Some(Kind::Leaf | Kind::Inner) => (header::SLOTS + page.count() * SLOT, usize::from(page.u16(HEAP_START))),
        Some(Kind::Meta) => (space::RANGES + space::range_count(page) * space::RANGE, PAGE_SIZE),
        _ => (header::SLOTS, PAGE_SIZE),
    }
}

/// Adds a section with a page's whole content (a page image).
pub(crate) fn put_image(rec: &mut RecordBuf, id: PageId, bytes: &[u8; PAGE_SIZE], page: PageRef<'_>) {
    let (from, to) = hole(page);
    let start = open(rec, Op::Image, id);
    rec.put_u16(from as u16);
    rec.put_u16(to as u16);
    rec.put(&bytes[..from]);
    rec.put(&bytes[to..]);
    close(rec, start);
}

/// Adds a section that removes the slots from `position` on.
pub(crate) fn put_truncate(rec: &mut RecordBuf, page: PageId, position: usize, right: PageId, high: &[u8]) {
    let start = open(rec, Op::Truncate, page);
    rec.put_u16(position as u16);
    rec.put_u16(high.len() as u16);
    rec.put_u32(right.0);
    rec.put(high);
    close(rec, start);
}

/// Adds a section that inserts the separator `key` at `position`, with the child `left` before the separator and the child
/// `right` after it.
pub(crate) fn put_add_child(
    rec: &mut RecordBuf,
    page: PageId,
    position: usize,
    key: &[u8],
    left: PageId,
    right: PageId,
) {
    let start = open(rec, Op::AddChild, page);
    rec.put_u16(position as u16);
    rec.put_u16(key.len() as u16);
    rec.put_u32(left.0);
    rec.put_u32(right.0);
    rec.put(key);
    close(rec, start);
}

/// Adds a section that removes the separator at `position`. `child` replaces the children on both sides of the separator.
pub(crate) fn put_drop_child(rec: &mut RecordBuf, page: PageId, position: usize, child: PageId) {
    let start = open(rec, Op::DropChild, page);
    rec.put_u32(position as u32);
    rec.put_u32(child.0);
    close(rec, start);
}

/// Adds a section that removes ghosts. The positions are in descending order.
pub(crate) fn put_purge(rec: &mut RecordBuf, page: PageId, positions: &[u16]) {
    let start = open(rec, Op::Purge, page);
    rec.put_u32(positions.len() as u32);
    for p in positions {
        rec.put_u16(*p);
    }
    close(rec, start);
}

/// Adds a section with the state of the page allocator.
pub(crate) fn put_space(rec: &mut RecordBuf, page: PageId, end: u32, free: PageId) {
    let start = open(rec, Op::Space, page);
    rec.put_u32(end);
    rec.put_u32(free.0);
    close(rec, start);
}

/// Adds a section that frees a page. `next` follows the page in the free list.
pub(crate) fn put_free(rec: &mut RecordBuf, page: PageId, next: PageId) {
    let start = open(rec, Op::Free, page);
    rec.put_u32(next.0);
    close(rec, start);
}

/// Adds a section with the allocator's ranges, encoded as on the allocator's page.
pub(crate) fn put_ranges(rec: &mut RecordBuf, page: PageId, list: &[u8]) {
    let start = open(rec, Op::Ranges, page);
    rec.put_u32((list.len() / space::RANGE) as u32);
    rec.put(list);
    close(rec, start);
}

/// Adds a section that changes a pointer: page `to` becomes the child at `position` of an inner page, or the successor of a
/// leaf or of a free page.
pub(crate) fn put_link(rec: &mut RecordBuf, page: PageId, position: usize, to: PageId) {
    let start = open(rec, Op::Link, page);
    rec.put_u32(position as u32);
    rec.put_u32(to.0);
    close(rec, start);
}

/// Iterator over the sections of a record's body. The iterator ends early at invalid bytes; see [`PageChanges::is_whole`].
#[derive(Clone, Debug)]
pub(crate) struct PageChanges<'a> {
    body: &'a [u8],
    next: SectionAt,
}

/// Position of a section in its record's body, with the rows before it, which the decoding needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionAt {
    at: usize,
    before: RowsBefore,
}

impl<'a> PageChanges<'a> {
    /// Creates an iterator over the sections of a body.
    pub(crate) fn new(body: &'a [u8]) -> PageChanges<'a> {
        PageChanges { body, next: SectionAt { at: 0, before: RowsBefore::NONE } }
    }

    /// Returns the position of the next section.
    pub(crate) fn place(&self) -> SectionAt {
        self.next
    }

    /// Returns an iterator over the sections of the same body from the position `place` on.
    #[inline]
    pub(crate) fn starting_at(&self, place: SectionAt) -> PageChanges<'a> {
        PageChanges { body: self.body, next: place }
    }

    /// Decodes the section at the position `place` of the same body.
    pub(crate) fn at(&self, place: SectionAt) -> Option<PageChange<'a>> {
        self.starting_at(place).next()
    }

    /// Returns true if every byte of the body was decoded. Call this after the last section.
    pub(crate) fn is_whole(&self) -> bool {
        self.next.at == self.body.len()
    }
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }
    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(*self.take(2)?.first_chunk()?))
    }
    fn u24(&mut self) -> Option<u32> {
        self.take(3).map(|b| u32::from_le_bytes([b[0], b[1], b[2], 0]))
    }
    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }
}

/// Decodes a section about a row. Returns the section and the context of the next one.
fn row_section<'a>(body: &'a [u8], place: SectionAt) -> Option<(PageChange<'a>, SectionAt)> {
    let before = place.before;
    let mut c = Cursor(body.get(place.at..)?);
    let (kind, key_low) = (c.u8()?, c.u8()?);
    let (op, short) = (RowOp::of(kind), kind & SHORT != 0);
    let number = |c: &mut Cursor<'a>| if short { c.u8().map(u16::from) } else { c.u16() };
    let place = number(&mut c)?;
    let mut numbers = [0; 2];
    for n in &mut numbers[..op.numbers()] {
        *n = number(&mut c)?;
    }
    let (page, tree) = match kind & location::MASK {
        location::WIDE => (PageId(c.u32()?), Tree { index: IndexId(c.u32()?), root: PageId(c.u32()?) }),
        location::NARROW => (PageId(c.u24()?), Tree { index: IndexId(c.u8()?.into()), root: PageId(c.u24()?) }),
        location::SAME_TREE => (PageId(c.u32()?), before.last?.1),
        _ => before.last?,
    };
    let shared = if kind & SHARES == 0 { 0 } else { usize::from(c.u8()?) };
    let first_key = body.get(before.key_at as usize..)?.get(..usize::from(before.key_len))?;
    let key_at = body.len() - c.0.len();
    let rest = c.take(usize::from(key_low) | usize::from(place >> POSITION_BITS) << 8)?;
    let key = SectionKey { shared: first_key.get(..shared)?, rest };
    let at = RowAt { page, tree, position: usize::from(place & ((1 << POSITION_BITS) - 1)), key };
    let [first, second] = numbers.map(usize::from);
    let mut flagged = |number: u16| Some((c.take(usize::from(number & ((1 << FLAGS_AT) - 1)))?, number >> FLAGS_AT));
    let change = match op {
        RowOp::Insert => {
            let (value, flags) = flagged(numbers[0])?;
            PageChange::Insert { at, value, flags }
        }
        RowOp::Patch => PageChange::Patch { at, offset: first, difference: c.take(second)? },
        RowOp::Replace => PageChange::Replace { at, before: flagged(numbers[0])?, after: flagged(numbers[1])? },
        RowOp::Mark => PageChange::Mark { at, ghost: kind & GHOST_BIT != 0 },
    };
    let next = SectionAt { at: body.len() - c.0.len(), before: before.and((page, tree), key_at, rest.len()) };
    Some((change, next))
}

impl<'a> Iterator for PageChanges<'a> {
    type Item = PageChange<'a>;

    fn next(&mut self) -> Option<PageChange<'a>> {
        let rest = self.body.get(self.next.at..)?;
        if rest.first()? & ROW != 0 {
            let (section, next) = row_section(self.body, self.next)?;
            self.next = next;
            return Some(section);
        }
        let [kind, _, low, high] = *rest.first_chunk()?;
        let op = Op::from(kind)?;
        let bytes = usize::from(u16::from_le_bytes([low, high]));
        let mut c = Cursor(rest.get(4..bytes)?);
        let page = PageId(c.u32()?);
        let decoded = match op {
            Op::Image => {
                let (from, to) = (usize::from(c.u16()?), usize::from(c.u16()?));
                if from > to || to > PAGE_SIZE {
                    return None;
                }
                PageChange::Image { page, hole: (from, to), bytes: c.take(PAGE_SIZE - (to - from))? }
            }
            Op::Truncate => {
                let (position, len) = (usize::from(c.u16()?), usize::from(c.u16()?));
                PageChange::Truncate { page, position, right: PageId(c.u32()?), high: c.take(len)? }
            }
            Op::AddChild => {
                let (position, len) = (usize::from(c.u16()?), usize::from(c.u16()?));
                let (left, right) = (PageId(c.u32()?), PageId(c.u32()?));
                PageChange::AddChild { page, position, key: c.take(len)?, left, right }
            }
            Op::DropChild => PageChange::DropChild { page, position: c.u32()? as usize, child: PageId(c.u32()?) },
            Op::Purge => {
                let n = c.u32()? as usize;
                PageChange::Purge { page, positions: c.take(n.checked_mul(2)?)? }
            }
            Op::Space => PageChange::Space { page, end: c.u32()?, free: PageId(c.u32()?) },
            Op::Free => PageChange::Free { page, next: PageId(c.u32()?) },
            Op::Ranges => {
                let n = c.u32()? as usize;
                PageChange::Ranges { page, list: c.take(n.checked_mul(space::RANGE)?)? }
            }
            Op::Link => PageChange::Link { page, position: c.u32()? as usize, to: PageId(c.u32()?) },
        };
        self.next.at += bytes;
        Some(decoded)
    }
}

/// Applies the section to its page. Returns false if the section does not fit the page: the log and the page then do not
/// belong together. The page is unchanged or partly changed in this case.
#[must_use]
pub(crate) fn apply(section: &PageChange<'_>, page: &mut PageMut<'_>) -> bool {
    let count = page.read().count();
    match *section {
        PageChange::Insert { at, value, flags } => {
            if at.position > count || !page.read().has_room(at.key.len(), value.len()) {
                return false;
            }
            page.insert(at.position, at.key.whole(&mut KeyBuffer::new()), 0, value, flags);
            page.note_insert(at.position);
        }
        PageChange::Patch { at, offset, difference } => {
            if at.position >= count || offset + difference.len() > page.read().slot(at.position).value_len {
                return false;
            }
            let slot = page.read().slot(at.position);
            page.xor(slot.value_at() + offset, difference);
            page.bump_row_version(slot);
        }
        PageChange::Replace { at, after, .. } => {
            if at.position >= count {
                return false;
            }
            replace(page, at.position, after);
        }
        PageChange::Mark { at, ghost } => {
            if at.position >= count {
                return false;
            }
            mark(page, at.position, ghost);
        }
        PageChange::Image { hole: (from, to), bytes, .. } => {
            let all = page.bytes();
            all[..from].copy_from_slice(&bytes[..from]);
            all[from..to].fill(0);
            all[to..].copy_from_slice(&bytes[from..]);
        }
        PageChange::Truncate { position, right, high, .. } => {
            if position > count {
                return false;
            }
            truncate(page, position, right, high);
        }
        PageChange::AddChild { position, key, left, right, .. } => {
            if position > count || !page.read().has_room(key.len(), 0) {
                return false;
            }
            page.insert(position, key, left.0, &[], 0);
            page.set_child(position + 1, right);
        }
        PageChange::DropChild { position, child, .. } => {
            if position >= count {
                return false;
            }
            page.remove(position);
            page.set_child(position, child);
        }
        PageChange::Purge { positions, .. } => {
            for pair in positions.as_chunks::<2>().0 {
                let position = usize::from(u16::from_le_bytes(*pair));
                if position >= page.read().count() {
                    return false;
                }
                page.remove(position);
            }
            page.bump_splits();
        }
        PageChange::Space { page: id, end, free } => {
            page.put_u32(ID, id.0);
            page.put_u8(KIND, Kind::Meta as u8);
            page.put_u32(space::END, end);
            page.put_u32(space::FREE, free.0);
        }
        PageChange::Ranges { list, .. } => {
            let count = list.len() / space::RANGE;
            if count > space::MOST_RANGES {
                return false;
            }
            page.put_u32(space::RANGE_COUNT, count as u32);
            page.bytes()[space::RANGES..][..list.len()].copy_from_slice(list);
        }
        PageChange::Link { position, to, .. } => match page.read().kind() {
            Some(Kind::Inner) if position <= count => page.set_child(position, to),
            Some(Kind::Leaf | Kind::Free) => page.put_u32(RIGHT, to.0),
            _ => return false,
        },
        PageChange::Free { page: id, next } => {
            let lsn = page.read().lsn();
            page.bytes().fill(0);
            page.set_lsn(lsn);
            page.put_u32(ID, id.0);
            page.put_u8(KIND, Kind::Free as u8);
            page.put_u32(RIGHT, next.0);
        }
    }
    true
}

/// Returns true if a section read from a log fits the page in its current state: the section's key is at the position that
/// the section names (or would be inserted there), and there is enough space. Restart checks this before it applies a
/// section, so that even an incorrect log damages no page.
pub(crate) fn fits(section: &PageChange<'_>, page: PageRef<'_>) -> bool {
    let kind = page.kind();
    let is_row = |at: &RowAt<'_>, there: bool| {
        let mut buffer = KeyBuffer::new();
        let key = at.key.whole(&mut buffer);
        kind == Some(Kind::Leaf)
            && key.len() <= MAX_KEY
            && page.covers(key)
            && page.lower_bound(key) == (at.position, there)
    };
    match *section {
        PageChange::Insert { at, value, flags } => {
            is_row(&at, false)
                && value.len() <= MAX_VALUE
                && flags & !(GHOST | OVERFLOW) == 0
                && page.has_room(at.key.len(), value.len())
        }
        PageChange::Patch { at, offset, difference } => {
            is_row(&at, true) && offset + difference.len() <= page.slot(at.position).value_len
        }
        PageChange::Replace { at, after: (after, _), .. } => {
            is_row(&at, true) && after.len() <= MAX_VALUE && {
                let grows = after.len().saturating_sub(page.slot(at.position).value_len);
                grows == 0 || page.free_bytes() >= grows + RECORD_HEAD
            }
        }
        PageChange::Mark { at, .. } => is_row(&at, true),
        PageChange::Truncate { position, high, .. } => {
            let kept = |i: usize| SLOT + RECORD_HEAD + page.entry(i).key_len + page.entry(i).value_len;
            let low = page.low_fence();
            matches!(kind, Some(Kind::Leaf | Kind::Inner))
                && high.len() <= MAX_KEY
                && position <= page.count()
                && page.covers(high)
                && low.as_deref().is_none_or(|low| low < high)
                && page.lower_bound(high).0 == position
                && header::SLOTS + low.map_or(0, |low| low.len()) + high.len() + (0..position).map(kept).sum::<usize>()
                    <= PAGE_SIZE
        }
        PageChange::AddChild { position, key, .. } => {
            kind == Some(Kind::Inner)
                && key.len() <= MAX_KEY
                && page.covers(key)
                && page.lower_bound(key) == (position, false)
                && page.has_room(key.len(), 0)
        }
        PageChange::DropChild { position, .. } => kind == Some(Kind::Inner) && position < page.count(),
        PageChange::Purge { positions, .. } => {
            let mut end = page.count();
            kind == Some(Kind::Leaf)
                && positions.as_chunks::<2>().0.iter().all(|pair| {
                    let position = usize::from(u16::from_le_bytes(*pair));
                    let falls = position < end;
                    end = position;
                    falls
                })
        }
        // These sections replace the whole content of the page. Restart checks the content of an image afterwards.
        PageChange::Image { .. } | PageChange::Free { .. } => true,
        PageChange::Space { page, .. } => page == super::SPACE_PAGE,
        PageChange::Ranges { page, list } => {
            page == super::SPACE_PAGE && list.len() <= space::MOST_RANGES * space::RANGE
        }
        PageChange::Link { position, .. } => match kind {
            Some(Kind::Inner) => position <= page.count(),
            kind => matches!(kind, Some(Kind::Leaf | Kind::Free)),
        },
    }
}

/// Overwrites bytes of a row.
#[inline]
pub(crate) fn patch(page: &mut PageMut<'_>, position: usize, offset: usize, after: &[u8]) {
    let slot = page.read().slot(position);
    page.put_few(slot.value_at() + offset, after);
    page.bump_row_version(slot);
}

/// Replaces a row's value and flags.
pub(crate) fn replace(page: &mut PageMut<'_>, position: usize, (after, flags): (&[u8], u16)) {
    page.set_value(position, after);
    page.set_flags(position, flags);
    let slot = page.read().slot(position);
    page.bump_row_version(slot);
}

/// Sets or clears a row's ghost mark.
pub(crate) fn mark(page: &mut PageMut<'_>, position: usize, ghost: bool) {
    page.set_ghost(position, ghost);
    let slot = page.read().slot(position);
    page.bump_row_version(slot);
}

/// Removes the slots from `position` on, and sets the right neighbour and the new high fence.
fn truncate(page: &mut PageMut<'_>, position: usize, right: PageId, high: &[u8]) {
    let copy = PageBytes::boxed_of(page.bytes());
    let old = PageRef::of(&copy);
    let splits = old.u32(header::SPLITS);
    let low = old.low_fence();
    // In an inner page, the child before the separator that moves up becomes the last child.
    let upper = if old.level() == 0 { PageId::NONE } else { old.child(position) };
    page.format(&Format {
        id: old.id(),
        index: old.index(),
        level: old.level(),
        low: low.as_deref(),
        high: Some(high),
        right,
        upper,
    });
    page.append_all(old, 0..position);
    page.put_u32(header::SPLITS, splits.wrapping_add(1));
    debug_assert_eq!(usize::from(page.read().u16(COUNT)), position);
}

/// Fields of page 1, which holds the state of the page allocator.
pub(crate) mod space {
    use crate::base::ids::PAGE_SIZE;
    use crate::page::{PageRef, header};

    /// Number of the first page that was never used. Pages below it are in use or free.
    pub(crate) const END: usize = header::HINTS;
    /// First page of the free list.
    pub(crate) const FREE: usize = header::HINTS + 4;
    /// Number of ranges of pages that no tree contains.
    pub(crate) const RANGE_COUNT: usize = header::HINTS + 8;
    /// Offset of the ranges, which are in ascending order. Each range consists of its first page, and of its number of pages
    /// combined with [`OWNED`].
    pub(crate) const RANGES: usize = header::SLOTS;
    /// Size of a range in bytes.
    pub(crate) const RANGE: usize = 8;
    /// Maximum number of ranges.
    pub(crate) const MOST_RANGES: usize = (PAGE_SIZE - RANGES) / RANGE;
    /// Bit in a range's number of pages: set if a bulk load owns the range, clear if the range is free.
    pub(crate) const OWNED: u32 = 1 << 31;

    /// Returns the number of ranges on the page.
    pub(crate) fn range_count(page: PageRef<'_>) -> usize {
        (page.u32(RANGE_COUNT) as usize).min(MOST_RANGES)
    }
}
