//! Reading every page in use to check that it is what was written.

use std::collections::HashSet;

use crate::base::error::StorageError;
use crate::base::ids::PageId;
use crate::btree::ops;
use crate::btree::space::{FIRST_PAGE, SPACE_PAGE};
use crate::page::header::Kind;
use crate::table::catalog::Catalog;
use crate::txn::engine::Engine;

/// Brings every page below the allocator's end through the pool, whose reads verify checksum and number.
///
/// Pages that nothing refers to may hold anything: the making of a table that was broken off has taken them and perhaps
/// never written them. So damage counts only in pages of trees or of the free list. Meant for a database that no transaction changes
/// meanwhile.
///
/// # Errors
/// The first damage, or a failed read.
pub(crate) fn verify_pages(engine: &Engine, catalog: &Catalog) -> Result<u64, StorageError> {
    let end = engine.pool.get_or_load(SPACE_PAGE)?.bytes().u32(ops::space::END);
    let mut damaged = false;
    // Pages that no tree has hold what they held last.
    let wanted = (FIRST_PAGE..end).map(PageId).filter(|id| !engine.pool.is_withheld(*id));
    for id in wanted {
        match engine.pool.get_or_load(id) {
            Ok(_) => {}
            Err(StorageError::CorruptPage { .. }) => damaged = true,
            Err(error) => return Err(error),
        }
    }
    if damaged {
        walk(engine, catalog)?;
    }
    Ok(u64::from(end))
}

/// Reads every page that a tree or the free list refers to. While transactions write, a page that moves may be missed.
///
/// # Errors
/// The first damage, or a failed read.
pub(super) fn walk(engine: &Engine, catalog: &Catalog) -> Result<(), StorageError> {
    let mut waiting = catalog.roots();
    waiting.push(PageId(engine.pool.get_or_load(SPACE_PAGE)?.bytes().u32(ops::space::FREE)));
    let mut seen = HashSet::new();
    while let Some(id) = waiting.pop() {
        if id.is_none() || !seen.insert(id) {
            continue;
        }
        let read = engine.pool.get_or_load(id)?.read(engine.pool.latches());
        let page = read.page();
        let before = waiting.len();
        match page.kind() {
            Some(Kind::Inner) => waiting.extend((0..=page.count()).map(|i| page.child(i))),
            Some(Kind::Free) => waiting.push(page.right()),
            _ => {}
        }
        if !read.is_valid() {
            waiting.truncate(before);
            seen.remove(&id);
            waiting.push(id);
        }
    }
    Ok(())
}
