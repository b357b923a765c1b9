//! Verification of every page in use.

use std::collections::HashSet;

use crate::base::error::StorageError;
use crate::base::ids::PageId;
use crate::btree::ops;
use crate::btree::space::{FIRST_PAGE, SPACE_PAGE};
use crate::page::header::Kind;
use crate::table::catalog::Catalog;
use crate::txn::engine::Engine;

/// Reads every page below the allocator's end through the pool, which verifies each page's checksum and page number.
///
/// Pages to which no structure refers may have any content: an interrupted creation of a table may have allocated them
/// without writing them. Therefore damage is reported only for pages of trees and of the free list. No transaction
/// should change the database during the call.
///
/// # Errors
/// An error for the first damaged page, or for a failed read.
pub(crate) fn verify_pages(engine: &Engine, catalog: &Catalog) -> Result<u64, StorageError> {
    let end = engine.pool.get_or_load(SPACE_PAGE)?.bytes().u32(ops::space::END);
    let mut damaged = false;
    // Withheld pages, which belong to no tree, are not read, because their content is outdated.
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

/// Reads every page that a tree or the free list refers to. A page that moves during the walk may be missed.
///
/// # Errors
/// An error for the first damaged page, or for a failed read.
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
