//! Which parts of a row a statement copies: ranges of bytes of its encoding. What lies elsewhere in the row is neither
//! read nor logged, so the lines of memory that it fills stay where they are.

use std::ops::Range;

use crate::page::PageRef;

/// All of a row.
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range of columns")]
pub(crate) const WHOLE: &[Range<usize>] = &[0..usize::MAX];

/// Nothing of a row: to lock it, or to mark it deleted.
pub(crate) const NOTHING: &[Range<usize>] = &[];

/// The parts that a value of this length has: up to the first that it ends before.
#[inline]
pub(super) fn parts_within(columns: &[Range<usize>], value_len: usize) -> impl Iterator<Item = Range<usize>> {
    columns.iter().map_while(move |part| {
        let to = if part.end == usize::MAX { value_len } else { part.end };
        (part.start <= to && to <= value_len).then_some(part.start..to)
    })
}

/// Appends these parts of a value, given by its place and length, to `out`, one behind the other. One that ends at `usize::MAX` reaches to the
/// end of the row. A row that ends before a part does has neither this part nor those behind it. False if the
/// place, which may be torn, leads out of the page.
#[inline]
#[must_use]
pub(super) fn append_columns(
    page: PageRef<'_>,
    (value_at, value_len): (usize, usize),
    columns: &[Range<usize>],
    out: &mut Vec<u8>,
) -> bool {
    parts_within(columns, value_len).all(|part| page.append_to(value_at + part.start, part.len(), out))
}

/// Whether these parts of a value are `seen`, as [`append_columns`] would have appended them.
#[inline]
#[must_use]
pub(super) fn has_columns(
    page: PageRef<'_>,
    (value_at, value_len): (usize, usize),
    columns: &[Range<usize>],
    mut seen: &[u8],
) -> bool {
    for part in parts_within(columns, value_len) {
        let Some((expected, rest)) = seen.split_at_checked(part.len()) else { return false };
        if !page.has_many_bytes(value_at + part.start, expected) {
            return false;
        }
        seen = rest;
    }
    seen.is_empty()
}

/// How many bytes of a row are brought into the caches for these parts.
#[inline]
pub(super) fn bytes_until(columns: &[Range<usize>]) -> usize {
    columns.iter().map(|part| part.end).max().unwrap_or(0)
}

/// The part that a statement changes: the first. The others it is shown.
#[inline]
pub(crate) fn changed(columns: &[Range<usize>]) -> Range<usize> {
    columns.first().map_or(0..0, |part| part.start..part.end.max(part.start))
}
