//! Rows of the catalog: the trees of a table, and the names of its codecs and indexes.

use std::hash::{BuildHasher, Hash, Hasher};

use super::declared::{Declared, IndexSpec};
use crate::base::error::TxnError;
use crate::base::ids::{IndexId, PageId};
use crate::btree::Tree;

/// Catalog row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableEntry {
    pub(super) primary: Tree,
    /// Tree of the table's large values. `None` in marks that name only trees of indexes.
    pub(super) overflow: Option<Tree>,
    /// Codec text of the keys; `row` is the codec text of the rows. Each text is
    /// [`Codec::text`](super::codec::Codec::text), or [`RAW`](super::codec::name::RAW).
    pub(super) key: String,
    pub(super) row: String,
    pub(super) secondaries: Vec<IndexEntry>,
}

/// A secondary index in the catalog row of its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) name: String,
    pub(super) unique: bool,
    /// Codec text of the index keys, or `RAW`.
    pub(super) codec: String,
    pub(super) tree: Tree,
}

impl TableEntry {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let tree = |out: &mut Vec<u8>, tree: Tree| {
            out.extend_from_slice(&tree.index.0.to_le_bytes());
            out.extend_from_slice(&tree.root.0.to_le_bytes());
        };
        let text = |out: &mut Vec<u8>, text: &str| {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        };
        tree(&mut out, self.primary);
        out.extend_from_slice(&self.overflow.map_or(0, |tree| tree.root.0).to_le_bytes());
        text(&mut out, &self.key);
        text(&mut out, &self.row);
        out.push(self.secondaries.len() as u8);
        for index in &self.secondaries {
            text(&mut out, &index.name);
            out.push(u8::from(index.unique));
            text(&mut out, &index.codec);
            tree(&mut out, index.tree);
        }
        out
    }

    pub(super) fn decode(mut bytes: &[u8]) -> Option<TableEntry> {
        fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
            let (head, tail) = bytes.split_at_checked(n)?;
            *bytes = tail;
            Some(head)
        }
        let word = |bytes: &mut &[u8]| Some(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?));
        let tree = |bytes: &mut &[u8]| Some(Tree { index: IndexId(word(bytes)?), root: PageId(word(bytes)?) });
        let text = |bytes: &mut &[u8]| {
            let len = usize::from(take(bytes, 1)?[0]);
            String::from_utf8(take(bytes, len)?.to_vec()).ok()
        };
        let primary = tree(&mut bytes)?;
        let root = PageId(word(&mut bytes)?);
        let overflow = (!root.is_none()).then_some(Tree { index: Tree::overflow_index(primary.index), root });
        let (key, row) = (text(&mut bytes)?, text(&mut bytes)?);
        let n = take(&mut bytes, 1)?[0];
        let mut secondaries = Vec::new();
        for _ in 0..n {
            let name = text(&mut bytes)?;
            let unique = take(&mut bytes, 1)?[0] != 0;
            let codec = text(&mut bytes)?;
            secondaries.push(IndexEntry { name, unique, codec, tree: tree(&mut bytes)? });
        }
        bytes.is_empty().then_some(TableEntry { primary, overflow, key, row, secondaries })
    }

    /// Returns an entry that names trees without a table, for a mark; `None` if `trees` is empty.
    pub(super) fn of_bare_trees(trees: &[Tree]) -> Option<TableEntry> {
        let (first, rest) = trees.split_first()?;
        let bare = |tree: &Tree| IndexEntry { name: String::new(), unique: false, codec: String::new(), tree: *tree };
        let (key, row) = (String::new(), String::new());
        let secondaries = rest.iter().map(bare).collect();
        Some(TableEntry { primary: *first, overflow: None, key, row, secondaries })
    }

    /// Returns all trees of the table, the primary tree first.
    pub(super) fn trees(&self) -> impl Iterator<Item = Tree> {
        std::iter::once(self.primary).chain(self.overflow).chain(self.secondaries.iter().map(|index| index.tree))
    }

    /// Checks that a declaration matches the entry.
    pub(super) fn check(&self, declared: &Declared<'_>) -> Result<(), TxnError> {
        let same = |(has, spec): (&IndexEntry, &IndexSpec)| has.name == spec.name && has.unique == spec.unique;
        if declared.specs().count() != self.secondaries.len()
            || !self.secondaries.iter().zip(declared.specs()).all(same)
        {
            let has: Vec<_> = self.secondaries.iter().map(|s| s.name.as_str()).collect();
            let what = format!(
                "has the indexes [{}], not those declared; 'Database::alter_indexes' changes them",
                has.join(", ")
            );
            return Err(declared.schema(what));
        }
        self.check_codecs(declared)?;
        if declared.codecs.is_some() {
            for (index, spec) in self.secondaries.iter().zip(declared.specs()) {
                declared.compare(&format!("index {}", index.name), &index.codec, spec.codec_text())?;
            }
        }
        Ok(())
    }

    /// Checks that the declared codecs of key and row match the entry.
    pub(super) fn check_codecs(&self, declared: &Declared<'_>) -> Result<(), TxnError> {
        let Some((key, row)) = declared.codecs else { return Ok(()) };
        declared.compare("key", &self.key, key.text())?;
        declared.compare("row", &self.row, row.text())
    }

    /// Returns a hash of the properties that a table must share with the former table of a number to reuse the number:
    /// the codecs, and the names and codecs of the indexes. Never 0.
    pub(super) fn shape(&self, declared: &Declared<'_>) -> u64 {
        let mut hasher = foldhash::fast::FixedState::with_seed(1).build_hasher();
        (&self.key, &self.row).hash(&mut hasher);
        for spec in declared.specs() {
            (spec.name, spec.unique, spec.columns_from, spec.codec_text()).hash(&mut hasher);
        }
        hasher.finish() | 1
    }
}
