//! The disk space of a database and its tables.

use super::database::Database;
use crate::base::error::StorageError;
use crate::base::ids::{PAGE_SIZE, PageId};
use crate::btree::Tree;
use crate::page::PageRef;
use crate::page::header::Kind;
use crate::page::layout::{RECORD_HEAD, SLOT};

/// Maximum number of leaves of a tree that are read to estimate the bytes of rows in the tree.
const SAMPLE: usize = 128;

/// The disk space of a database, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sizes {
    /// Size of the data file, including free pages and space reserved ahead.
    pub data_file: u64,
    /// Part of `data_file` that belongs to no table: free pages, which are reused, and space reserved ahead.
    pub free: u64,
    /// Size of the log files in use, including space reserved ahead.
    pub log: u64,
    /// Sizes of the tables, sorted by name.
    pub tables: Vec<TableSize>,
}

/// The disk space of a table in the data file.
///
/// The part of the table's pages that is in neither `live` nor `dead` consists of page headers and of free space for
/// more rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSize {
    /// Name of the table.
    pub name: String,
    /// Size of the pages of rows in bytes, without large values.
    pub rows: u64,
    /// Size of the pages of large values in bytes; large values do not fit a page of rows.
    pub large_values: u64,
    /// Size of the pages of each secondary index in bytes, with the name of the index.
    pub indexes: Vec<(String, u64)>,
    /// Bytes of rows and of index entries, with their keys. The number is exact if no transaction writes and no tree of
    /// the table has more than 128 leaves. Otherwise the number is estimated from up to 128 evenly spread leaves of
    /// each tree.
    pub live: u64,
    /// Bytes of deleted rows and entries that are not removed yet, because a transaction may need them or the purge
    /// service has not processed them. Measured as `live` is.
    pub dead: u64,
}

/// Number of pages of a tree, and number of bytes of the rows in the tree.
#[derive(Clone, Copy, Debug, Default)]
struct TreeSize {
    pages: u64,
    live: u64,
    dead: u64,
}

impl Database {
    /// Returns the disk space of the database. Reads the inner pages of all trees (a few per thousand of all pages) and
    /// up to 128 leaves of each tree. While other transactions write, the sizes are not a consistent snapshot.
    ///
    /// # Errors
    /// An error if a page cannot be read.
    pub fn sizes(&self) -> Result<Sizes, StorageError> {
        let bytes = |pages: u64| pages * PAGE_SIZE as u64;
        let mut tables = Vec::new();
        // Pages of the file header, of the allocator, and of the catalog.
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

    /// Returns the size of a tree. Reads the inner pages and a sample of the leaves; the other leaves are only counted.
    fn measure(&self, tree: Tree) -> Result<TreeSize, StorageError> {
        let mut size = TreeSize::default();
        let (mut waiting, mut sample) = (vec![tree.root], Sample::default());
        // Bound of the walk, which other transactions could extend by changing the tree.
        let most = u64::from(self.engine.pool.file_pages());
        while let Some(id) = waiting.pop() {
            match self.read_content(tree, id)? {
                PageContent::Leaves(leaves) => {
                    size.pages += leaves.len() as u64;
                    leaves.into_iter().for_each(|leaf| sample.add(leaf));
                }
                // The walk is in key order, so that the sample, which is spread evenly over the walk, is spread evenly
                // over the keys.
                PageContent::Inner(children) => waiting.extend(children.into_iter().rev()),
                PageContent::Rows { .. } => sample.add(id),
                PageContent::Nothing => {}
            }
            size.pages += 1;
            if size.pages > most {
                break;
            }
        }
        for leaf in &sample.leaves {
            if let PageContent::Rows { live, dead } = self.read_content(tree, *leaf)? {
                size.live += live;
                size.dead += dead;
            }
        }
        let scale =
            |bytes: u64| (u128::from(bytes) * u128::from(sample.total) / sample.leaves.len().max(1) as u128) as u64;
        Ok(TreeSize { live: scale(size.live), dead: scale(size.dead), ..size })
    }

    fn read_content(&self, tree: Tree, id: PageId) -> Result<PageContent, StorageError> {
        loop {
            let frame = self.engine.pool.get_or_load(id)?;
            let read = frame.read(self.engine.pool.latches());
            let page = read.page();
            let children = || (0..=page.count()).map(|i| page.child(i)).collect();
            let content = match page.kind() {
                _ if page.index() != tree.index => PageContent::Nothing,
                Some(Kind::Inner) if page.level() == 1 => PageContent::Leaves(children()),
                Some(Kind::Inner) => PageContent::Inner(children()),
                Some(Kind::Leaf) => rows_of(page),
                _ => PageContent::Nothing,
            };
            if frame.page_id() == id && read.is_valid() {
                return Ok(content);
            }
        }
    }
}

/// Children of an inner page, or size of the content of a leaf.
enum PageContent {
    Leaves(Vec<PageId>),
    Inner(Vec<PageId>),
    Rows { live: u64, dead: u64 },
    Nothing,
}

/// Returns the number of bytes of the rows in a leaf. Other threads may change the leaf during the call.
fn rows_of(page: PageRef<'_>) -> PageContent {
    let (mut live, mut dead) = (0, 0);
    for slot in (0..page.count()).map(|i| page.slot(i)) {
        let bytes = (SLOT + RECORD_HEAD + slot.key_len + slot.value_len) as u64;
        if slot.is_ghost() { dead += bytes } else { live += bytes }
    }
    PageContent::Rows { live, dead }
}

/// An evenly spread sample of the leaves of a tree: all leaves, or every second, fourth, eighth leaf, and so on.
struct Sample {
    leaves: Vec<PageId>,
    total: u64,
    stride: u64,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample { leaves: Vec::new(), total: 0, stride: 1 }
    }
}

impl Sample {
    fn add(&mut self, leaf: PageId) {
        if self.total.is_multiple_of(self.stride) {
            if self.leaves.len() == SAMPLE {
                let mut even = false;
                self.leaves.retain(|_| {
                    even = !even;
                    even
                });
                self.stride *= 2;
            }
            if self.total.is_multiple_of(self.stride) {
                self.leaves.push(leaf);
            }
        }
        self.total += 1;
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
            assert_eq!(sample.total, u64::from(n));
            let expected: Vec<_> = (0..n).step_by(sample.stride as usize).map(PageId).collect();
            assert_eq!(sample.leaves, expected, "of {n}");
            assert!(sample.leaves.len() >= (n as usize).min(SAMPLE / 2) && sample.leaves.len() <= SAMPLE);
        }
    }
}
