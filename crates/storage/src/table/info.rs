//! An open table: its indexes, and the declaration that it is known to match.

use std::sync::OnceLock;

use super::codec::Codec;
use super::declared::{Declared, Extract, IndexSpec, same_name};
use super::index::Index;
use crate::btree::Tree;

/// A secondary index of an open table.
#[derive(Clone, Debug)]
pub(crate) struct Secondary {
    pub(crate) index: Index,
    pub(crate) unique: bool,
    /// See [`IndexSpec::columns_from`].
    pub(crate) columns_from: usize,
    pub(crate) extract: Extract,
    /// The declaration with which the table was opened first.
    pub(crate) spec: IndexSpec,
}

/// An open table.
#[derive(Clone, Debug)]
pub struct TableInfo {
    pub(crate) primary: Index,
    pub(crate) secondaries: Vec<Secondary>,
    /// Its declared name and codecs, once they have been found equal to those in the catalog.
    pub(super) verified: OnceLock<Verified>,
}

type Verified = (&'static str, &'static Codec, &'static Codec);

impl TableInfo {
    /// All trees, the primary one first.
    pub(crate) fn trees(&self) -> impl Iterator<Item = Tree> {
        let secondaries = self.secondaries.iter().map(|secondary| secondary.index.tree);
        std::iter::once(self.primary.tree).chain(self.primary.overflow).chain(secondaries)
    }

    /// Whether the table is known to match the declaration. False means unknown.
    #[inline]
    pub(super) fn fits(&self, declared: &Declared<'_>) -> bool {
        let (Some((name, key, row)), Some(codecs)) = (self.verified.get(), declared.codecs) else { return false };
        same_name(name, declared.name) && key.is(codecs.0) && row.is(codecs.1) && self.has_indexes(declared)
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
