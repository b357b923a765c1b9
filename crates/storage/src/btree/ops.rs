//! Page operations: the changes to pages that a log record describes, and the code that applies or redoes them.
//!
//! The body of a data, compensation or system record is a sequence of *sections*, one page each. Several sections may
//! concern the same page and need not be adjacent: redo processes the sections of one page together, in their order
//! (`recovery::redo`).
//!
//! ```text
//! op u8 | 0 u8 | bytes u16 (of the whole section) | page u32 | payload, padded to 4
//! ```
//!
//! A section whose first byte has its highest bit set concerns one row and has another form: see `row_sections`.
//!
//! Redo applies a section if the page's LSN is older than the record. Positions are physical, because the page then has
//! exactly the state that it had when the record was written. Undo works by key, because the row may have moved since. The
//! row's content has not changed since, because its transaction holds a lock on it. The engine itself changes pages through
//! [`apply`] wherever possible, so that a change and its redo share one code.

use super::row_sections::{self, KeyBuffer, RowChange, RowSection, RowsBefore, SectionAt, SectionReader};
use super::{MAX_KEY, MAX_VALUE};
use crate::base::ids::{PAGE_SIZE, PageId};
use crate::log::RecordBuf;
use crate::page::header::{COUNT, HEAP_START, ID, KIND, Kind, RIGHT};
use crate::page::layout::{GHOST, OVERFLOW, RECORD_HEAD, SLOT};
use crate::page::slotted::Format;
use crate::page::{PageBytes, PageMut, PageRef, header};

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

/// A decoded section of a record's body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PageChange<'a> {
    /// A change of one row, which can be undone. All other changes are redo-only.
    Row(RowSection<'a>),
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
            PageChange::Row(RowSection { at, .. }) => at.page,
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

impl<'a> PageChanges<'a> {
    /// Creates an iterator over the sections of a body.
    pub(crate) fn new(body: &'a [u8]) -> PageChanges<'a> {
        PageChanges { body, next: SectionAt { at: 0, before: RowsBefore::none() } }
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

impl<'a> Iterator for PageChanges<'a> {
    type Item = PageChange<'a>;

    fn next(&mut self) -> Option<PageChange<'a>> {
        let rest = self.body.get(self.next.at..)?;
        if rest.first()? & row_sections::ROW != 0 {
            let (section, next) = row_sections::decode(self.body, self.next)?;
            self.next = next;
            return Some(PageChange::Row(section));
        }
        let [kind, _, low, high] = *rest.first_chunk()?;
        let op = Op::from(kind)?;
        let bytes = usize::from(u16::from_le_bytes([low, high]));
        let mut c = SectionReader(rest.get(4..bytes)?);
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
        PageChange::Row(section) => return apply_to_row(section, page),
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

/// Applies a change of a row, as [`apply`].
fn apply_to_row(RowSection { at, key, change }: RowSection<'_>, page: &mut PageMut<'_>) -> bool {
    let count = page.read().count();
    let exists = at.position < count;
    match change {
        RowChange::Insert { value, flags } => {
            if at.position > count || !page.read().has_room(key.len(), value.len()) {
                return false;
            }
            page.insert(at.position, key.whole(&mut KeyBuffer::new()), 0, value, flags);
            page.note_insert(at.position);
        }
        RowChange::Patch { offset, difference } => {
            if !exists || offset + difference.len() > page.read().slot(at.position).value_len {
                return false;
            }
            let slot = page.read().slot(at.position);
            page.xor(slot.value_at() + offset, difference);
            page.bump_row_version(slot);
        }
        RowChange::Replace { after, .. } if exists => replace(page, at.position, after),
        RowChange::Mark { ghost } if exists => mark(page, at.position, ghost),
        RowChange::Replace { .. } | RowChange::Mark { .. } => return false,
    }
    true
}

/// Returns true if a section read from a log fits the page in its current state: the section's key is at the position that
/// the section names (or would be inserted there), and there is enough space. Restart checks this before it applies a
/// section, so that even an incorrect log damages no page.
pub(crate) fn fits(section: &PageChange<'_>, page: PageRef<'_>) -> bool {
    let kind = page.kind();
    match *section {
        PageChange::Row(section) => row_fits(section, page),
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

/// Returns true if a change of a row fits the page, as [`fits`].
fn row_fits(RowSection { at, key, change }: RowSection<'_>, page: PageRef<'_>) -> bool {
    let mut buffer = KeyBuffer::new();
    let key = key.whole(&mut buffer);
    let is_new = matches!(change, RowChange::Insert { .. });
    let is_there = if is_new { page.is_gap_at(at.position, key) } else { page.has_key_at(at.position, key) };
    page.kind() == Some(Kind::Leaf)
        && key.len() <= MAX_KEY
        && is_there
        && match change {
            RowChange::Insert { value, flags } => {
                value.len() <= MAX_VALUE && flags & !(GHOST | OVERFLOW) == 0 && page.has_room(key.len(), value.len())
            }
            RowChange::Patch { offset, difference } => offset + difference.len() <= page.slot(at.position).value_len,
            RowChange::Replace { after: (after, _), .. } => {
                let grows = after.len().saturating_sub(page.slot(at.position).value_len);
                after.len() <= MAX_VALUE && (grows == 0 || page.free_bytes() >= grows + RECORD_HEAD)
            }
            RowChange::Mark { .. } => true,
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
