//! An open table: its indexes, and the declaration that it is known to match.
//!
//! Statements find open tables without a lock and use them by reference, so the memory of one that is dropped cannot be
//! freed; and there may be any number of them, one after the other. So it stays with the table's number, and serves the
//! next table that has the same indexes and gets the number. What differs between two such tables (which one it is, its
//! trees, its name) is in words that are written while no transaction may use them: see `table/numbers.rs`.

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
    /// The declaration with which the table was opened first.
    pub(crate) spec: IndexSpec,
}

/// An open table, or the place of one that was dropped.
#[derive(Debug)]
pub struct TableInfo {
    /// Which table it is, or 0 for none.
    ticket: AtomicU64,
    pub(crate) primary: Index,
    pub(crate) secondaries: Vec<Secondary>,
    name: KnownName,
    /// Its declared codecs, once they have been found equal to those in the catalog.
    codecs: OnceLock<(&'static Codec, &'static Codec)>,
    /// Which table it was last: the name of the indexes is that one's.
    last: AtomicU64,
    /// See [`TableEntry::shape`].
    pub(super) shape: u64,
}

impl TableInfo {
    /// All trees, the primary one first.
    pub(crate) fn trees(&self) -> impl Iterator<Item = Tree> {
        let secondaries = self.secondaries.iter().map(|secondary| secondary.index.tree());
        std::iter::once(self.primary.tree()).chain(self.primary.overflow()).chain(secondaries)
    }

    /// The place of a table with the declared indexes, for the number; no table is there yet.
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

    /// Makes it the table of this entry. No transaction is left that may use it as another.
    pub(super) fn become_table(&self, name: &str, entry: &TableEntry, ticket: u64) {
        // A reader without a transaction that sees any of what follows finds then that its own ticket is no more.
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

    /// Whether the place may be that of a table with this declaration and this entry.
    pub(super) fn may_become(&self, declared: &Declared<'_>, entry: &TableEntry) -> bool {
        let codecs = self.codecs.get().is_none_or(|(key, row)| key.text() == entry.key && row.text() == entry.row);
        self.is(0) && codecs && self.has_indexes(declared)
    }

    /// Which table it is; 0 for none.
    pub(super) fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Acquire)
    }

    /// Says that the table has gone.
    pub(super) fn end(&self) {
        self.ticket.store(0, Ordering::Release);
    }

    /// Notes the codecs and the name of a declaration that matches the table.
    pub(super) fn verified(&self, declared: &Declared<'_>) {
        if let Some(codecs) = declared.codecs {
            self.codecs.get_or_init(|| codecs);
            if declared.noted.is_none() {
                self.name.is_at(declared.name);
            }
        }
    }

    /// Whether it is the table that this ticket was given for.
    #[inline]
    pub(crate) fn is(&self, ticket: u64) -> bool {
        self.ticket.load(Ordering::Acquire) == ticket
    }

    /// Whether it still is, after it was read by no transaction.
    #[inline]
    pub(crate) fn still_is(&self, ticket: u64) -> bool {
        fence(Ordering::Acquire);
        self.ticket.load(Ordering::Relaxed) == ticket
    }

    /// The name of the table that this ticket was given for, if no other has got its place.
    pub(crate) fn name_of(&self, ticket: u64) -> Option<Arc<str>> {
        let name = self.primary.table();
        (self.last.load(Ordering::Acquire) == ticket).then_some(name)
    }

    /// Whether the table is known to match the declaration. False means unknown.
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

/// A name that is compared while another may be written, which the ticket shows.
#[derive(Debug, Default)]
struct KnownName {
    /// Where a constant of this content lies: constants are compared by their addresses first.
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

    /// Notes where a constant with this name lies.
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
