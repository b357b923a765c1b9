//! Slotted pages: sorted keys with a value each, prefix truncated, searched through hint keys.
//!
//! ```text
//! 0             96             slots grow up ->      <- heap grows down        8192
//! +-------------+------+------+------+----------------+--------+-------+--------+
//! |   header    | slot | slot | slot |   free         | record | fence | record |
//! +-------------+------+------+------+----------------+--------+-------+--------+
//! ```
//!
//! A slot is 12 bytes: `head` (first four bytes of the key after the page's prefix, as a number that orders like the
//! key), the record's offset, key length, and then in a leaf value length and flags, in an inner page the child: once a
//! search has found the slot it need not look at the record. A record is four bytes (a row's version; unused in an
//! inner page), the rest of the key, the value.
//!
//! The **fences** bound what keys may come to lie here: `low <= key < high`, both stored whole, either
//! may be infinite. All keys share the fences' common prefix, which is stored once. Long fences of inner pages are stored
//! as shorter bounds (`bounds`).
//!
//! A page at the edge of its tree (so the root) has an infinite fence and thus no prefix. Its keys may still share
//! their first bytes; so that heads differ, heads there begin behind the bytes that all keys share (`SKIP`, `SHARED`),
//! and a search first compares those bytes.
//!
//! The 7 **hints**, heads of evenly spaced slots, lie together in the header: a search looks at the first fields of the
//! header, at the hints, at the slots between two hints (in most pages one or two cache lines) and then at the record.
//! A short prefix of a leaf lies in the header as well as in the fence, so that comparing it reads no other line. In a
//! leaf whose keys are numbers without holes the slot follows from the number (`dense`).
//!
//! In an inner page, the child in slot `i` holds the keys below the key of slot `i` (and not below that
//! of slot `i - 1`); the header's `UPPER` child holds the rest.

mod bounds;
mod dense;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use bounds::{GivenFence, WHOLE_FENCE, is_high_bound, is_low_bound};
pub(crate) use dense::LeafPlace;
pub(crate) use read::Narrowed;
pub(super) use read::head_of;
pub(crate) use write::Format;
