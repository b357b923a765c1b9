//! A table as a program declares it: its name, its codecs, its secondary indexes.

use std::any::TypeId;
use std::collections::BTreeSet;

use super::codec::Codec;
use super::codec::name::RAW;
use crate::base::error::TxnError;
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::plain::{AtomicU32, AtomicU64, Ordering};

/// Length of the longest name of a table or an index, in bytes.
pub(super) const LONGEST_NAME: usize = 200;

/// Most secondary indexes of a table.
pub(crate) const MAX_INDEXES: usize = 8;

/// How a secondary index gets its key: appends it and says true, or says false for a row that is not indexed.
/// The arguments are the primary key's and the row's bytes.
pub(crate) type Extract = fn(&[u8], &[u8], &mut Vec<u8>) -> bool;

/// A secondary index as it is declared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSpec {
    pub(crate) name: &'static str,
    pub(crate) unique: bool,
    /// Bytes of the row before this one do not matter to the index.
    pub(crate) columns_from: usize,
    pub(crate) extract: Extract,
    /// The type that declares it, if a type does.
    pub(crate) declared_by: Option<fn() -> TypeId>,
    /// The codec of its keys, if a type names it.
    pub(crate) codec: Option<Codec>,
}

impl IndexSpec {
    /// Whether two declarations give every row the same entry. One function may have several addresses (one for each
    /// crate that uses it, say), so types are compared as well where there are any.
    #[inline]
    pub(crate) fn is(&self, other: &IndexSpec) -> bool {
        self.unique == other.unique
            && self.columns_from == other.columns_from
            && (std::ptr::fn_addr_eq(self.extract, other.extract)
                || matches!((self.declared_by, other.declared_by), (Some(a), Some(b)) if a() == b()))
            && same_name(self.name, other.name)
    }

    /// The text of its codec.
    pub(super) fn codec_text(&self) -> String {
        self.codec.map_or_else(|| RAW.to_owned(), |codec| codec.text())
    }
}

/// Where the table of a declaration was found last. It belongs to one declaration, whose name came at run time.
#[derive(Debug, Default)]
pub struct TableHint {
    number: AtomicU32,
    /// That of the table; of another one if both were noted at once, and then it does not fit the number.
    ticket: AtomicU64,
}

impl TableHint {
    /// Number and ticket; the ticket is 0 if there are none.
    #[inline]
    pub(super) fn get(&self) -> (u32, u64) {
        (self.number.load(Ordering::Relaxed), self.ticket.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, number: u32, ticket: u64) {
        self.number.store(number, Ordering::Relaxed);
        self.ticket.store(ticket, Ordering::Relaxed);
    }
}

/// Whether two names are equal; equal constants mostly share one address.
#[inline]
pub(super) fn same_name(a: &'static str, b: &'static str) -> bool {
    std::ptr::eq(a, b) || a == b
}

/// A table as a program declares it.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    pub(crate) name: &'a str,
    /// Absent where the name is a constant.
    pub(crate) noted: Option<&'a TableHint>,
    /// Codecs of key and row; `None` for statements on bytes, which need none.
    pub(crate) codecs: Option<(&'static Codec, &'static Codec)>,
    pub(crate) specs: &'a [Option<IndexSpec>],
}

impl<'a> Declared<'a> {
    pub(super) fn specs(&self) -> impl Iterator<Item = &'a IndexSpec> + Clone + use<'a> {
        self.specs.iter().map_while(Option::as_ref)
    }

    pub(super) fn schema(&self, what: String) -> TxnError {
        TxnError::Schema { table: self.name.into(), what }
    }

    /// Compares a codec with the one in the catalog.
    pub(super) fn compare(&self, part: &str, stored: &str, asked: String) -> Result<(), TxnError> {
        if stored == asked || is_mutant(Mutant::SkipCodecCheck) {
            return Ok(());
        }
        let (table, part, stored, asked) = (self.name.into(), part.into(), stored.into(), asked.into());
        Err(TxnError::OtherCodec { table, part, stored, asked })
    }

    /// Checks that a table can have these names.
    pub(super) fn check_names(&self) -> Result<(), TxnError> {
        let is_name = |name: &str| (1..=LONGEST_NAME).contains(&name.len());
        if !is_name(self.name) || !self.specs().all(|s| is_name(s.name)) {
            return Err(self.schema("names have 1 to 200 bytes".into()));
        }
        let names: BTreeSet<&str> = self.specs().map(|s| s.name).collect();
        if names.len() < self.specs().count() {
            return Err(self.schema("two of the declared indexes have one name".into()));
        }
        Ok(())
    }
}
