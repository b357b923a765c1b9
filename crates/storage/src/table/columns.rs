//! Columns of a row, as byte ranges of the row's encoding. A statement copies only the named columns; the rest of the
//! row is neither read nor logged, so its cache lines are not accessed.

use std::ops::Range;

use crate::page::PageRef;

/// Columns of a statement that reads the whole row.
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range of columns")]
pub(crate) const WHOLE: &[Range<usize>] = &[0..usize::MAX];

/// Columns of a statement that reads no part of the row, for example to lock the row or to mark the row deleted.
pub(crate) const NOTHING: &[Range<usize>] = &[];

/// Returns the ranges in `columns`, up to the first range that does not lie within a value of length `value_len`.
#[inline]
pub(super) fn parts_within(columns: &[Range<usize>], value_len: usize) -> impl Iterator<Item = Range<usize>> {
    columns.iter().map_while(move |part| {
        let to = if part.end == usize::MAX { value_len } else { part.end };
        (part.start <= to && to <= value_len).then_some(part.start..to)
    })
}

/// Appends the parts `columns` of a value to `out`. The value is given by its position in the page and its length. A
/// part that ends at `usize::MAX` extends to the end of the row. If the row ends before a part does, this part and all
/// later parts are not appended. Returns false if the position, which may be torn, leads out of the page.
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

/// Returns true if the parts `columns` of a value, concatenated as by [`append_columns`], equal `seen`.
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

/// Returns the number of leading bytes of a row to prefetch for the parts `columns`.
#[inline]
pub(super) fn bytes_until(columns: &[Range<usize>]) -> usize {
    columns.iter().map(|part| part.end).max().unwrap_or(0)
}

/// Returns the byte range that a statement may change: the first part. A statement only reads the other parts.
#[inline]
pub(crate) fn changed_range(columns: &[Range<usize>]) -> Range<usize> {
    columns.first().map_or(0..0, |part| part.start..part.end.max(part.start))
}
