//! Check of a tree for rows. Ghosts do not count: they remain after deletes, and after inserts that were rolled back.

use super::Tree;
use crate::base::error::StorageError;
use crate::buffer::BufferPool;
use crate::page::PageRef;

/// Content of a tree, as `Tree::content` determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeContent {
    /// The root is a leaf without rows. The leaf may contain ghosts.
    Empty,
    /// The tree has several pages, with ghosts but no rows.
    GhostPages,
    /// The tree has at least one row, possibly a row of a transaction that has not ended.
    Rows,
}

/// Returns true if a leaf has rows other than ghosts.
pub(super) fn has_rows(leaf: PageRef<'_>) -> bool {
    leaf.ghosts() < leaf.count()
}

impl Tree {
    /// Determines the content of the tree. Reads leaves from the left up to the first row. While other transactions change
    /// the tree, the result does not describe one particular moment.
    ///
    /// # Errors
    /// Fails if a page cannot be read or is damaged.
    pub(crate) fn content(&self, pool: &BufferPool) -> Result<TreeContent, StorageError> {
        let (mut key, mut next) = (Vec::new(), Vec::new());
        let mut content = TreeContent::Empty;
        loop {
            let leaf = self.leaf(pool, &key)?;
            let page = leaf.page();
            let (rows, root) = (has_rows(page), leaf.frame().page_id() == self.root);
            next.clear();
            let more = page.append_high(&mut next);
            if !leaf.is_valid() {
                continue;
            }
            if rows {
                return Ok(TreeContent::Rows);
            }
            if !root {
                content = TreeContent::GhostPages;
            }
            if !more {
                return Ok(content);
            }
            if next <= key {
                return Err(self.damaged(pool, leaf.frame().page_id(), "ends before it begins"));
            }
            std::mem::swap(&mut key, &mut next);
        }
    }
}
