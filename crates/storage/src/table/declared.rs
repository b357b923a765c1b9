//! The declaration of a table: its name, its codecs, its secondary indexes.

use std::any::TypeId;
use std::collections::BTreeSet;

use super::codec::Codec;
use super::codec::name::RAW;
use crate::base::error::TxnError;
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::plain::{AtomicU32, AtomicU64, Ordering};

/// Maximum length of the name of a table or index, in bytes.
pub(super) const LONGEST_NAME: usize = 200;

/// Maximum number of secondary indexes of a table.
pub(crate) const MAX_INDEXES: usize = 8;

/// Key function of a secondary index. Takes the bytes of the primary key and of the row; appends the index key and
/// returns true, or returns false for a row that is not indexed.
pub(crate) type Extract = fn(&[u8], &[u8], &mut Vec<u8>) -> bool;

/// Declaration of a secondary index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSpec {
    pub(crate) name: &'static str,
    pub(crate) unique: bool,
    /// Offset in the row from which on the index depends on the bytes. The index does not depend on earlier bytes.
    pub(crate) columns_from: usize,
    pub(crate) extract: Extract,
    /// The type that declares the index, if any.
    pub(crate) declared_by: Option<fn() -> TypeId>,
    /// Codec of the index keys, if a type declares it.
    pub(crate) codec: Option<Codec>,
}

impl IndexSpec {
    /// Returns true if two declarations compute the same entry for every row. A function may have several addresses
    /// (for example one in each crate that uses it), so the declaring types are compared as well, if any.
    #[inline]
    pub(crate) fn is(&self, other: &IndexSpec) -> bool {
        self.unique == other.unique
            && self.columns_from == other.columns_from
            && (std::ptr::fn_addr_eq(self.extract, other.extract)
                || matches!((self.declared_by, other.declared_by), (Some(a), Some(b)) if a() == b()))
            && same_name(self.name, other.name)
    }

    /// Returns the text of the index's codec, as the catalog stores it.
    pub(super) fn codec_text(&self) -> String {
        self.codec.map_or_else(|| RAW.to_owned(), |codec| codec.text())
    }
}

/// Cached result of the last lookup of a table by name. Declarations whose name is known only at run time have such a
/// cache.
#[derive(Debug, Default)]
pub struct TableHint {
    number: AtomicU32,
    /// Ticket of the table. After two concurrent writes, `number` and `ticket` may belong to different tables; the
    /// ticket then differs from the ticket of the table with this number.
    ticket: AtomicU64,
}

impl TableHint {
    /// Returns the number and the ticket of the cached table; the ticket is 0 if the cache is empty.
    #[inline]
    pub(super) fn get(&self) -> (u32, u64) {
        (self.number.load(Ordering::Relaxed), self.ticket.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, number: u32, ticket: u64) {
        self.number.store(number, Ordering::Relaxed);
        self.ticket.store(ticket, Ordering::Relaxed);
    }
}

/// Returns true if two names are equal. The addresses are compared first, because equal constants usually share one
/// address.
#[inline]
pub(super) fn same_name(a: &'static str, b: &'static str) -> bool {
    std::ptr::eq(a, b) || a == b
}

/// The declaration of a table.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    pub(crate) name: &'a str,
    /// Lookup cache; `None` if the name is a constant.
    pub(crate) hint: Option<&'a TableHint>,
    /// Codecs of key and row; `None` for statements on bytes.
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

    /// Returns an error if the text of a declared codec differs from the text in the catalog.
    pub(super) fn compare(&self, part: &str, stored: &str, asked: String) -> Result<(), TxnError> {
        if stored == asked || is_mutant(Mutant::SkipCodecCheck) {
            return Ok(());
        }
        let (table, part, stored, asked) = (self.name.into(), part.into(), stored.into(), asked.into());
        Err(TxnError::OtherCodec { table, part, stored, asked })
    }

    /// Checks that the names of the table and of its indexes are allowed.
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
