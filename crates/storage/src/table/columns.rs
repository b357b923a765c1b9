//! The columns of a row that a statement copies: byte ranges of its encoding. The rest of the row is neither read nor
//! logged, so its cache lines are not touched.

use std::ops::Range;

use crate::page::PageRef;

/// The whole row.
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range of columns")]
pub(crate) const WHOLE: &[Range<usize>] = &[0..usize::MAX];

/// No part of the row: to lock it, or to mark it deleted.
pub(crate) const NOTHING: &[Range<usize>] = &[];

/// Returns the ranges that lie within a value of this length, up to the first that does not.
#[inline]
pub(super) fn parts_within(columns: &[Range<usize>], value_len: usize) -> impl Iterator<Item = Range<usize>> {
    columns.iter().map_while(move |part| {
        let to = if part.end == usize::MAX { value_len } else { part.end };
        (part.start <= to && to <= value_len).then_some(part.start..to)
    })
}

/// Appends these parts of a value, given by its position and length, to `out`. A part that ends at `usize::MAX` extends
/// to the end of the row. If the row ends before a part does, this part and those after it are missing. Returns false
/// if the position, which may be torn, leads out of the page.
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

/// Returns true if these parts of a value equal `seen`, as [`append_columns`] would append them.
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

/// Number of bytes of a row to prefetch for these parts.
#[inline]
pub(super) fn bytes_until(columns: &[Range<usize>]) -> usize {
    columns.iter().map(|part| part.end).max().unwrap_or(0)
}

/// Returns the part that a statement changes: the first one. The statement only reads the others.
#[inline]
pub(crate) fn changed_range(columns: &[Range<usize>]) -> Range<usize> {
    columns.first().map_or(0..0, |part| part.start..part.end.max(part.start))
}
