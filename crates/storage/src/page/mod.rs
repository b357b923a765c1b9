//! Pages: the layout of their 8 KiB, and the only accessor through which they are read and written.
//!
#![doc = include_str!("FORMAT.md")]

pub(crate) mod access;
pub(crate) mod header;
pub(crate) mod hints;
pub(crate) mod layout;
pub(crate) mod slotted;
pub(crate) mod sound;

pub(crate) use access::{PageBytes, PageMut, PageRef};

/// Maximum length of a key in bytes.
pub(crate) const MAX_KEY: usize = 2048;
/// Maximum length of a value in a slot, in bytes.
pub(crate) const MAX_VALUE: usize = 4000;
/// Maximum length in bytes of a key and its value in one slot. A leaf with one such row has space for the two longest
/// fences, and for the four bytes that a growing row may need when its record is moved.
pub(crate) const MAX_RECORD: usize = 3968;

const _: () = assert!(
    layout::SLOTS + 2 * MAX_KEY + layout::SLOT + 2 * layout::RECORD_HEAD + MAX_RECORD <= crate::base::ids::PAGE_SIZE
);
// An inner page with the longest bounds has space for two separators, so that a split can move one separator up and leave
// children on both sides.
const _: () = assert!(
    layout::SLOTS + slotted::WHOLE_FENCE + MAX_KEY + 2 * (layout::SLOT + layout::RECORD_HEAD + MAX_KEY)
        <= crate::base::ids::PAGE_SIZE
);
