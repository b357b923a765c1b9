//! The space that a database takes on disk, and what lives in it.

use super::database::Database;
use crate::base::error::StorageError;
use crate::base::ids::{PAGE_SIZE, PageId};
use crate::btree::Tree;
use crate::page::PageRef;
use crate::page::header::Kind;
use crate::page::layout::{RECORD_HEAD, SLOT};

/// Leaves of a tree that are looked at for what lives in it: at most this, and all if there are no more.
const SAMPLE: usize = 128;

/// The space that a database takes on disk, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sizes {
    /// The data file, with free pages and room reserved ahead.
    pub data_file: u64,
    /// The part of `data_file` that belongs to no table: free pages, which are used again, and room reserved ahead.
    pub free: u64,
    /// Files of the log that are in use, with room reserved ahead.
    pub log: u64,
    /// Each table, by name.
    pub tables: Vec<TableSize>,
}

/// The space that a table takes in the data file.
///
/// What its pages have beside `live` and `dead` is room for rows to come, and the pages' own fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSize {
    /// The table's name.
    pub name: String,
    /// Pages of its rows, in bytes, without large values.
    pub rows: u64,
    /// Pages of values that do not fit a page of rows, in bytes.
    pub large_values: u64,
    /// Pages of each secondary index, in bytes, by the index's name.
    pub indexes: Vec<(String, u64)>,
    /// Bytes of rows and of index entries, with their keys. Exact if no transaction writes and none of the table's trees
    /// has more than 128 leaves; otherwise estimated from 128 leaves of each tree, evenly spread.
    pub live: u64,
    /// Bytes of deleted rows and entries that have not been removed yet, because a transaction may need them or the
    /// background has not come to it. Measured as `live` is.
    pub dead: u64,
}

/// Pages of a tree, and the bytes of rows in it.
#[derive(Clone, Copy, Debug, Default)]
struct TreeSize {
    pages: u64,
    live: u64,
    dead: u64,
}

impl Database {
    /// The space that the database takes on disk. Reads the inner pages of all trees, a few in a thousand of all, and up
    /// to 128 leaves of each tree; while other transactions write, the figures are not of one moment.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn sizes(&self) -> Result<Sizes, StorageError> {
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        let mut tables = Vec::new();
        // The file's header, the allocator, and the catalog.
        let mut used = 2 + self.measure(crate::table::catalog::CATALOG)?.pages;
        for (name, (primary, overflow), indexes) in self.catalog.named_trees() {
            let rows = self.measure(primary)?;
            let large = overflow.map_or(Ok(TreeSize::default()), |tree| self.measure(tree))?;
            let mut table = TableSize {
                name,
                rows: bytes(rows.pages),
                large_values: bytes(large.pages),
                indexes: Vec::new(),
                live: rows.live + large.live,
                dead: rows.dead + large.dead,
            };
            used += rows.pages + large.pages;
            for (index, tree) in indexes {
                let entries = self.measure(tree)?;
                table.indexes.push((index, bytes(entries.pages)));
                table.live += entries.live;
                table.dead += entries.dead;
                used += entries.pages;
            }
            tables.push(table);
        }
        let pages = u64::from(self.engine.pool.file_pages());
        let (data_file, free) = (bytes(pages), bytes(pages.saturating_sub(used)));
        Ok(Sizes { data_file, free, log: self.engine.log.disk_bytes(), tables })
    }

    /// Walks through a tree's inner pages. Most leaves are counted, not read.
    fn measure(&self, tree: Tree) -> Result<TreeSize, StorageError> {
        let mut size = TreeSize::default();
        let (mut waiting, mut sample) = (vec![tree.root], Sample::default());
        // While other transactions change the tree, a bound keeps the walk from going round for ever.
        let most = u64::from(self.engine.pool.file_pages());
        while let Some(id) = waiting.pop() {
            match self.look_at(tree, id)? {
                Below::Leaves(leaves) => {
                    size.pages += leaves.len() as u64;
                    leaves.into_iter().for_each(|leaf| sample.add(leaf));
                }
                // In order, because the sample is spread over the leaves as they come.
                Below::Inner(children) => waiting.extend(children.into_iter().rev()),
                Below::Rows { .. } => sample.add(id),
                Below::Nothing => {}
            }
            size.pages += 1;
            if size.pages > most {
                break;
            }
        }
        for leaf in &sample.leaves {
            if let Below::Rows { live, dead } = self.look_at(tree, *leaf)? {
                size.live += live;
                size.dead += dead;
            }
        }
        let scale =
            |bytes: u64| (u128::from(bytes) * u128::from(sample.seen) / sample.leaves.len().max(1) as u128) as u64;
        Ok(TreeSize { live: scale(size.live), dead: scale(size.dead), ..size })
    }

    fn look_at(&self, tree: Tree, id: PageId) -> Result<Below, StorageError> {
        loop {
            let frame = self.engine.pool.get_or_load(id)?;
            let read = frame.read(self.engine.pool.latches());
            let page = read.page();
            let children = || (0..=page.count()).map(|i| page.child(i)).collect();
            let below = match page.kind() {
                _ if page.index() != tree.index => Below::Nothing,
                Some(Kind::Inner) if page.level() == 1 => Below::Leaves(children()),
                Some(Kind::Inner) => Below::Inner(children()),
                Some(Kind::Leaf) => rows_of(page),
                _ => Below::Nothing,
            };
            if frame.page_id() == id && read.is_valid() {
                return Ok(below);
            }
        }
    }
}

/// What a page leads to, or holds.
enum Below {
    Leaves(Vec<PageId>),
    Inner(Vec<PageId>),
    Rows { live: u64, dead: u64 },
    Nothing,
}

/// Bytes of the rows in a leaf, which may be changing.
fn rows_of(page: PageRef<'_>) -> Below {
    let (mut live, mut dead) = (0, 0);
    for slot in (0..page.count()).map(|i| page.slot(i)) {
        let bytes = (SLOT + RECORD_HEAD + slot.key_len + slot.value_len) as u64;
        if slot.is_ghost() { dead += bytes } else { live += bytes }
    }
    Below::Rows { live, dead }
}

/// Leaves of a tree, evenly spread: all, or every second, every fourth ...
struct Sample {
    leaves: Vec<PageId>,
    seen: u64,
    stride: u64,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample { leaves: Vec::new(), seen: 0, stride: 1 }
    }
}

impl Sample {
    fn add(&mut self, leaf: PageId) {
        if self.seen.is_multiple_of(self.stride) {
            if self.leaves.len() == SAMPLE {
                let mut even = false;
                self.leaves.retain(|_| {
                    even = !even;
                    even
                });
                self.stride *= 2;
            }
            if self.seen.is_multiple_of(self.stride) {
                self.leaves.push(leaf);
            }
        }
        self.seen += 1;
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_evenly_spread() {
        for n in [0, 1, 127, 128, 129, 1000, 40_000_u32] {
            let mut sample = Sample::default();
            (0..n).for_each(|i| sample.add(PageId(i)));
            assert_eq!(sample.seen, u64::from(n));
            let expected: Vec<_> = (0..n).step_by(sample.stride as usize).map(PageId).collect();
            assert_eq!(sample.leaves, expected, "of {n}");
            assert!(sample.leaves.len() >= (n as usize).min(SAMPLE / 2) && sample.leaves.len() <= SAMPLE);
        }
    }
}
