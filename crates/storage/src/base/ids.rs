//! Identifiers: pages, log positions, indexes, transactions, slots.

use std::fmt;

/// Bytes of one page, on disk and in a frame.
pub const PAGE_SIZE: usize = 8192;

/// Number of a page in the data file: the page lies at byte `id * PAGE_SIZE` of `pages.0`.
/// Page 0 is the file's own header; nothing ever points at it, so 0 doubles as "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageId(pub u32);

impl PageId {
    /// "No page."
    pub const NONE: PageId = PageId(0);

    /// Byte offset of the page in the data file.
    pub fn offset(self) -> u64 {
        u64::from(self.0) * PAGE_SIZE as u64
    }

    /// Whether this is the number of no page.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Log sequence number: the position of a record's first byte in the stream of all log bytes ever
/// written. A record is durable once the log is flushed to the record's end. 0 is before every record.
///
/// A position is a bare number that names no database; those of different databases must not be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before every record.
    pub const ZERO: Lsn = Lsn(0);
    /// After every record.
    pub const MAX: Lsn = Lsn(u64::MAX);
}

/// Number of an index (a B+tree): primary or secondary. Also the name of its lock space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct IndexId(pub u32);

/// Number of a transaction that writes, unique in the life of a database; 0 is "the engine itself".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TxnId(pub u64);

/// How old a transaction is: one that began earlier is less. Of a deadlock the youngest is the victim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Age(pub(crate) u64);

/// Place of a running transaction in the table of active transactions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct SlotId(pub(crate) u16);

impl TxnId {
    /// The number of the transaction in `slot` whose first record will lie at `tail` or after it. Its records move the
    /// tail, so the next transaction of the slot has another number, and the log never goes back, so this holds for the
    /// life of the database.
    #[inline]
    pub(crate) fn of_first_record(tail: Lsn, slot: SlotId) -> TxnId {
        debug_assert!(
            slot.0 < 1 << TxnId::SLOT_BITS && tail.0 < 1 << (63 - TxnId::SLOT_BITS + TxnId::LEAST_RECORD_BITS)
        );
        TxnId(tail.0 >> TxnId::LEAST_RECORD_BITS << TxnId::SLOT_BITS | u64::from(slot.0))
    }

    /// The slot in which it runs.
    pub(crate) fn slot(self) -> SlotId {
        SlotId((self.0 & ((1 << TxnId::SLOT_BITS) - 1)) as u16)
    }

    /// Slots are fewer than this.
    const SLOT_BITS: u32 = 11;
    /// No record is shorter than 16 bytes.
    const LEAST_RECORD_BITS: u32 = 4;
}

macro_rules! show {
    ($($t:ident)*) => {$(
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($t), "({})"), self.0)
            }
        }
    )*};
}
show!(PageId Lsn IndexId TxnId SlotId);
