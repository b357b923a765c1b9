//! Slotted pages: sorted keys with a value each, with prefix truncation, searched through hint keys.
//!
//! ```text
//! 0             96             slots grow up ->      <- heap grows down        8192
//! +-------------+------+------+------+----------------+--------+-------+--------+
//! |   header    | slot | slot | slot |   free         | record | fence | record |
//! +-------------+------+------+------+----------------+--------+-------+--------+
//! ```
//!
//! A slot has 12 bytes: `head` (the first four bytes of the key after the page's prefix, as a number with the order of the
//! key), the offset of the record, and the length of the key. In a leaf the length of the value and flags follow. In an
//! inner page the child follows, so that a search that has found the slot need not read the record. A record has four bytes
//! (the version of a row; unused in an inner page), the rest of the key, and the value.
//!
//! The **fences** bound the keys of the page: `low <= key < high`. Both are stored whole, and either may be infinite. All
//! keys share the fences' common prefix, which is stored once. Long fences of inner pages are stored as shorter bounds
//! (`bounds`).
//!
//! A page at the edge of its tree (for example a root) has an infinite fence and thus no prefix. Its keys may still share
//! their first bytes. To make heads differ, heads on such a page begin after the bytes that all keys share (`SKIP`,
//! `SHARED`), and a search first compares those bytes.
//!
//! The 7 **hints**, heads of evenly spaced slots, lie together in the header. A search reads the first fields of the header,
//! the hints, the slots between two hints (in most pages one or two cache lines) and then the record. The header of a leaf
//! has a copy of a short prefix, so that the comparison of the prefix reads no other line. In a leaf whose keys are
//! consecutive numbers, the position of a slot follows from the number (`dense`).
//!
//! In an inner page, the child in slot `i` has the keys below the key of slot `i` and not below the key of slot `i - 1`;
//! the header's `UPPER` child has the rest.

mod bounds;
mod dense;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use bounds::{ParentFence, WHOLE_FENCE, is_high_bound, is_low_bound};
pub(crate) use dense::LeafPlace;
pub(crate) use read::SlotRange;
pub(super) use read::head_of;
pub(crate) use write::Format;
