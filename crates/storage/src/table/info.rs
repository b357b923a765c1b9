//! Open tables: the indexes of a table, and the declaration that the table is known to match.
//!
//! Statements find open tables without a lock and use them by reference, so the memory of a dropped table cannot be
//! freed, although a program may drop any number of tables. Therefore the memory stays with the table's number, and is
//! reused by the next table that has the same indexes and gets the number. Properties that differ between two such
//! tables (ticket, trees, name) are stored in atomic words, which are written while no transaction may use them: see
//! `table/numbers.rs`.

use std::sync::{Arc, OnceLock};

use super::codec::Codec;
use super::declared::{Declared, Extract, IndexSpec, LONGEST_NAME};
use super::entry::TableEntry;
use super::index::{Index, TableTitle};
use crate::base::sync::plain::{AtomicU64, AtomicUsize, Ordering, fence};
use crate::btree::Tree;

/// A secondary index of an open table.
#[derive(Debug)]
pub(crate) struct Secondary {
    pub(crate) index: Index,
    pub(crate) unique: bool,
    /// See [`IndexSpec::columns_from`].
    pub(crate) columns_from: usize,
    pub(crate) extract: Extract,
    /// The declaration with which the table was first opened.
    pub(crate) spec: IndexSpec,
}

/// An open table, or the reusable memory of a dropped table.
#[derive(Debug)]
pub struct TableInfo {
    /// Ticket of the open table, or 0 if no table is open in this memory.
    ticket: AtomicU64,
    pub(crate) primary: Index,
    pub(crate) secondaries: Vec<Secondary>,
    name: KnownName,
    /// Declared codecs of key and row; set when they were found equal to the codecs in the catalog.
    codecs: OnceLock<(&'static Codec, &'static Codec)>,
    /// Ticket of the last table that used this memory. The indexes still have the name of this table.
    last: AtomicU64,
    /// See [`TableEntry::shape`].
    pub(super) shape: u64,
}

impl TableInfo {
    /// Returns all trees, the primary one first.
    pub(crate) fn trees(&self) -> impl Iterator<Item = Tree> {
        let secondaries = self.secondaries.iter().map(|secondary| secondary.index.tree());
        std::iter::once(self.primary.tree()).chain(self.primary.overflow()).chain(secondaries)
    }

    /// Creates the memory for tables with the declared indexes and this table number. No table is open in the memory
    /// yet.
    pub(super) fn new(number: u32, declared: &Declared<'_>, shape: u64) -> TableInfo {
        let title = Arc::new(TableTitle::default());
        let secondary = |spec: &IndexSpec| Secondary {
            index: Index::of_open(number, &title, Some(spec.name.into())),
            unique: spec.unique,
            columns_from: spec.columns_from,
            extract: spec.extract,
            spec: *spec,
        };
        TableInfo {
            ticket: AtomicU64::new(0),
            primary: Index::of_open(number, &title, None),
            secondaries: declared.specs().map(secondary).collect(),
            name: KnownName::default(),
            codecs: OnceLock::new(),
            last: AtomicU64::new(0),
            shape,
        }
    }

    /// Opens the table of `entry` in this memory. No transaction that may have found an earlier table here is still
    /// running.
    pub(super) fn set_table(&self, name: &str, entry: &TableEntry, ticket: u64) {
        // A reader outside a transaction that has read the value of any of the following stores then finds that its
        // ticket is no longer valid.
        fence(Ordering::Release);
        self.primary.set(entry.primary, entry.overflow);
        for (secondary, index) in self.secondaries.iter().zip(&entry.secondaries) {
            secondary.index.set(index.tree, None);
        }
        self.primary.rename(name);
        self.name.set(name);
        self.last.store(ticket, Ordering::Relaxed);
        self.ticket.store(ticket, Ordering::Release);
    }

    /// Returns true if the memory can be reused for a table with this declaration and this entry.
    pub(super) fn can_be_reused_for(&self, declared: &Declared<'_>, entry: &TableEntry) -> bool {
        let codecs = self.codecs.get().is_none_or(|(key, row)| key.text() == entry.key && row.text() == entry.row);
        self.is(0) && codecs && self.has_indexes(declared)
    }

    /// Returns the ticket of the open table; 0 if no table is open.
    pub(super) fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Acquire)
    }

    /// Closes the table: its ticket is no longer valid.
    pub(super) fn end(&self) {
        self.ticket.store(0, Ordering::Release);
    }

    /// Records the codecs and the name of a declaration that matches the table.
    pub(super) fn verified(&self, declared: &Declared<'_>) {
        if let Some(codecs) = declared.codecs {
            self.codecs.get_or_init(|| codecs);
            if declared.hint.is_none() {
                self.name.is_at(declared.name);
            }
        }
    }

    /// Returns true if the open table has this ticket.
    #[inline]
    pub(crate) fn is(&self, ticket: u64) -> bool {
        self.ticket.load(Ordering::Acquire) == ticket
    }

    /// Returns true if the open table still has this ticket, after a read outside any transaction.
    #[inline]
    pub(crate) fn is_unchanged(&self, ticket: u64) -> bool {
        fence(Ordering::Acquire);
        self.ticket.load(Ordering::Relaxed) == ticket
    }

    /// Returns the name of the table with this ticket, if its memory has not been reused.
    pub(crate) fn name_of(&self, ticket: u64) -> Option<Arc<str>> {
        let name = self.primary.table();
        (self.last.load(Ordering::Acquire) == ticket).then_some(name)
    }

    /// Returns true if the table is known to match the declaration. False means unknown.
    #[inline]
    pub(super) fn fits(&self, declared: &Declared<'_>) -> bool {
        let (Some((key, row)), Some(codecs)) = (self.codecs.get(), declared.codecs) else { return false };
        !self.is(0) && self.name.is(declared.name) && key.is(codecs.0) && row.is(codecs.1) && self.has_indexes(declared)
    }

    #[inline]
    pub(super) fn has_indexes(&self, declared: &Declared<'_>) -> bool {
        if self.secondaries.is_empty() {
            return declared.specs.first().is_none_or(Option::is_none);
        }
        let mut specs = declared.specs();
        self.secondaries.iter().all(|s| specs.next().is_some_and(|spec| s.spec.is(spec))) && specs.next().is_none()
    }
}

/// A name that is compared while another thread may write it. The ticket detects such a change.
#[derive(Debug, Default)]
struct KnownName {
    /// Address of a string constant with this content, or 0 if none is known. Names are first compared by address.
    at: AtomicUsize,
    len: AtomicUsize,
    words: [AtomicU64; LONGEST_NAME / 8],
}

impl KnownName {
    fn set(&self, name: &str) {
        self.at.store(0, Ordering::Relaxed);
        self.len.store(name.len(), Ordering::Relaxed);
        for (word, bytes) in self.words.iter().zip(name.as_bytes().chunks(8)) {
            word.store(word_of(bytes), Ordering::Relaxed);
        }
    }

    /// Records the address of the string constant `name`, which equals this name.
    fn is_at(&self, name: &str) {
        self.at.store(name.as_ptr().addr(), Ordering::Relaxed);
    }

    #[inline]
    fn is(&self, name: &str) -> bool {
        self.len.load(Ordering::Relaxed) == name.len()
            && (self.at.load(Ordering::Relaxed) == name.as_ptr().addr() || self.has_bytes(name))
    }

    #[inline(never)]
    fn has_bytes(&self, name: &str) -> bool {
        let mut words = self.words.iter().zip(name.as_bytes().chunks(8));
        words.all(|(word, bytes)| word.load(Ordering::Relaxed) == word_of(bytes))
    }
}

fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
