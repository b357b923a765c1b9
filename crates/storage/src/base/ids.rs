//! Identifiers: pages, log positions, indexes, transactions, slots.

use std::fmt;

/// Size of a page in bytes, on disk and in a frame.
pub const PAGE_SIZE: usize = 8192;

/// Number of a page in the data file: the page lies at byte `id * PAGE_SIZE` of `pages.0`. Page 0 is the header of the file.
/// No reference names page 0, so the number 0 also means "no page".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PageId(pub u32);

impl PageId {
    /// Page number that means "no page".
    pub const NONE: PageId = PageId(0);

    /// Returns the byte offset of the page in the data file.
    pub fn offset(self) -> u64 {
        u64::from(self.0) * PAGE_SIZE as u64
    }

    /// Returns true if this is [`PageId::NONE`].
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Log sequence number: the position of a record's first byte in the stream of all log bytes ever written. A record is
/// durable once the log is flushed to the record's end. Position 0 precedes every record.
///
/// A position does not identify its database: positions of different databases must not be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Position before every record.
    pub const ZERO: Lsn = Lsn(0);
    /// Position after every record.
    pub const MAX: Lsn = Lsn(u64::MAX);
}

/// Number of an index (a B+tree): primary or secondary. It also identifies the index's lock space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct IndexId(pub u32);

/// Number of a writing transaction, unique in the life of a database; 0 stands for the engine itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TxnId(pub u64);

/// Age of a transaction: the smaller the value, the earlier the transaction began. The victim of a deadlock is the youngest
/// transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Age(pub(crate) u64);

/// Slot of a running transaction in the table of active transactions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct SlotId(pub(crate) u16);

impl TxnId {
    /// Returns the number of the transaction in `slot` whose first record will lie at or after `tail`. The records of the
    /// transaction advance the tail, so the next transaction of the slot gets another number. The tail never moves back, so
    /// numbers are unique in the life of the database.
    #[inline]
    pub(crate) fn of_first_record(tail: Lsn, slot: SlotId) -> TxnId {
        debug_assert!(
            slot.0 < 1 << TxnId::SLOT_BITS && tail.0 < 1 << (63 - TxnId::SLOT_BITS + TxnId::LEAST_RECORD_BITS)
        );
        TxnId(tail.0 >> TxnId::LEAST_RECORD_BITS << TxnId::SLOT_BITS | u64::from(slot.0))
    }

    /// Returns the slot in which the transaction runs.
    pub(crate) fn slot(self) -> SlotId {
        SlotId((self.0 & ((1 << TxnId::SLOT_BITS) - 1)) as u16)
    }

    /// Number of bits of a slot number.
    const SLOT_BITS: u32 = 11;
    /// Binary logarithm of the minimum record length (16 bytes).
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
