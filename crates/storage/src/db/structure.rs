//! The structure check: proves that the pages of the data file form consistent trees, indexes and a free list.
//!
//! Reading a page checks the page alone (checksum, number, and the rules of `page::sound`). This check proves the rules
//! that involve several pages: inner pages refer to children that exist, have one parent, lie on the level below, and
//! are within the bounds that the parent gives; each leaf refers to the next leaf; free pages are free and all other
//! pages are in use; rows and entries of secondary indexes match; no page is newer than the log.

use std::collections::HashMap;
use std::fmt::{Display, Formatter};
use std::ops::ControlFlow;

use super::database::Database;
use crate::base::error::StorageError;
use crate::base::ids::PageId;
use crate::btree::Tree;
use crate::btree::ops;
use crate::btree::overflow::{CHUNK, Chain, Reference};
use crate::btree::ranges::Ranges;
use crate::btree::space::{FIRST_PAGE, SPACE_PAGE};
use crate::page::header::{self, Kind};
use crate::page::slotted::{is_high_bound, is_low_bound};
use crate::page::sound::{self, Flaw};
use crate::page::{PageBytes, PageRef};
use crate::table::catalog::TableTrees;
use crate::table::columns::WHOLE;
use crate::table::index::Index;
use crate::table::indexed::entry_key;
use crate::table::info::Secondary;
use crate::txn::engine::Engine;

/// Number of pages between two progress reports.
const PROGRESS_EVERY: u64 = 256;

/// The rules for the pages of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The page can be read: its checksum is correct, and it has the number of its position.
    Readable,
    /// Header, slots, records and counters fit the page and are consistent.
    Layout,
    /// Keys ascend and lie within the page's fences.
    KeyOrder,
    /// Key heads in the slots and hint keys of the page match the keys.
    HintKeys,
    /// Fence keys of a leaf equal the bounds that its parent gives. Fence keys of an inner page may be wider than these
    /// bounds.
    FenceKeys,
    /// Children exist, belong to the tree, lie one level below their parent, and have one parent.
    Children,
    /// Each leaf refers to the next leaf.
    SiblingLinks,
    /// The free list has an end, and contains only free pages.
    FreeList,
    /// Every row has an entry in each secondary index to which it belongs.
    Secondary,
    /// Every entry of a secondary index has a matching row.
    Primary,
    /// Every large value is complete and belongs to one row.
    LargeValues,
    /// The last change of every page lies before the log's end.
    PageLsn,
    /// Every page that was ever allocated belongs to a tree, to the free list, or to a range that is free or owned by a
    /// bulk load. An orphan is lost space, not damage: a crash or a full disk during the creation of a table or an
    /// index leaves such a page.
    Orphan,
}

impl Rule {
    /// Returns the name of the rule in reports.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Readable => "readable",
            Rule::Layout => "layout",
            Rule::KeyOrder => "key-order",
            Rule::HintKeys => "hint-keys",
            Rule::FenceKeys => "fence-keys",
            Rule::Children => "children",
            Rule::SiblingLinks => "sibling-links",
            Rule::FreeList => "free-list",
            Rule::Secondary => "secondary",
            Rule::Primary => "primary",
            Rule::LargeValues => "large-values",
            Rule::PageLsn => "page-lsn",
            Rule::Orphan => "orphan",
        }
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A violation of a rule by a page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Rule that the page violates.
    pub rule: Rule,
    /// Name of the file that contains the page.
    pub file: String,
    /// The page that violates the rule.
    pub page: PageId,
    /// Description of the violation, as a clause that continues "page 7".
    pub what: String,
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: page {} {} ({})", self.file, self.page, self.what, self.rule)
    }
}

/// The result of the structure check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Structure {
    /// Number of pages in use, including the allocator's page.
    pub pages: u64,
    /// Number of free pages, included in `pages`.
    pub free: u64,
    /// Number of trees.
    pub trees: u64,
    /// Number of rows of tables.
    pub rows: u64,
    /// Number of entries of secondary indexes.
    pub entries: u64,
    /// Number of large values, which do not lie in a page of rows.
    pub large_values: u64,
    /// The first findings, at most [`Structure::MOST_FINDINGS`].
    pub findings: Vec<Finding>,
    /// Number of findings beyond the limit.
    pub more: u64,
    /// True if the caller stopped the check. A stopped check proves nothing.
    pub cancelled: bool,
}

impl Structure {
    /// Maximum number of findings in `findings`.
    pub const MOST_FINDINGS: usize = 1000;

    /// Returns true if the check was complete and found nothing.
    pub fn passed(&self) -> bool {
        self.findings.is_empty() && !self.cancelled
    }
}

impl Database {
    /// Checks the structure of the whole data file: see [`Rule`]. No transaction should change the database during the
    /// check. The rows of a table are compared with its secondary indexes if the table was opened after the database
    /// was opened. For other tables the check only proves that every entry has a row. The purge service pauses during
    /// the check.
    ///
    /// `progress` is called regularly with the number of pages checked and the number of all pages, and may stop the
    /// check.
    ///
    /// # Errors
    /// An error if a file cannot be read at all. Damage is not an error but a finding.
    pub fn check_structure(
        &self,
        progress: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Structure, StorageError> {
        let _suspension = self.background.suspend_purger();
        let walk = Walk {
            engine: &self.engine,
            file: self.engine.pool.file_name(),
            end: 0,
            states: Vec::new(),
            pages_read: 0,
            is_incomplete: false,
            progress,
            out: Structure::default(),
        };
        let secondaries = |(number, ticket)| {
            let info = self.catalog.table(number).filter(|info| ticket != 0 && info.is(ticket));
            info.map(|info| info.secondaries.as_slice())
        };
        walk.run(&self.catalog.trees(), secondaries)
    }
}

/// State of a page during the check: the structure in which the page was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageState {
    Unvisited,
    Tree,
    Free,
    /// The page is owned by a bulk load.
    Owned,
}

/// The trees with the rows of a table, and the indexes with which the check compares the rows.
struct Rows<'a> {
    tree: Tree,
    overflow: Option<Tree>,
    indexes: &'a [Secondary],
}

impl Rows<'_> {
    fn index(&self) -> Index {
        of_tree(self.tree, self.overflow)
    }
}

/// Returns an index that can be used for reads only.
fn of_tree(tree: Tree, overflow: Option<Tree>) -> Index {
    Index::new((tree, overflow), 0, "", None)
}

/// Large values of a table that no row has referred to yet.
#[derive(Default)]
struct Chains {
    found: HashMap<Chain, FoundChain>,
}

struct FoundChain {
    /// Page that contains the first chunk.
    page: PageId,
    chunks: usize,
    len: usize,
    /// True if the chunks found so far are complete and in order.
    fits: bool,
}

/// Properties that a child must have according to its parent.
struct ExpectedChild<'a> {
    level: Option<u8>,
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
}

struct Walk<'a, P> {
    engine: &'a Engine,
    file: String,
    /// Number of the first page that was never used.
    end: u32,
    states: Vec<PageState>,
    pages_read: u64,
    /// True if a page could not be read or its children could not be followed, so that some pages were not visited.
    is_incomplete: bool,
    progress: P,
    out: Structure,
}

impl<'a, P: FnMut(u64, u64) -> ControlFlow<()>> Walk<'a, P> {
    fn run(
        mut self,
        tables: &[TableTrees],
        secondaries: impl Fn((u32, u64)) -> Option<&'a [Secondary]>,
    ) -> Result<Structure, StorageError> {
        let Some(space) = self.page(SPACE_PAGE)? else { return Ok(self.out) };
        let space = PageRef::of(&space);
        let in_file = self.engine.pool.file_pages();
        self.end = space.u32(ops::space::END).min(in_file);
        if space.u32(ops::space::END) > in_file {
            self.find(Rule::FreeList, SPACE_PAGE, "says that more pages are in use than the file has");
        }
        self.states = vec![PageState::Unvisited; self.end as usize];
        self.out.pages = u64::from(self.end);
        for range in Ranges::read(space).iter() {
            let state = if range.owned { PageState::Owned } else { PageState::Free };
            let pages = range.pages.start as usize..range.pages.end.min(self.end) as usize;
            self.out.free += if range.owned { 0 } else { pages.len() as u64 };
            self.states.get_mut(pages).into_iter().for_each(|pages| pages.fill(state));
        }
        self.free_list(PageId(space.u32(ops::space::FREE)))?;
        for table in tables {
            let known = secondaries(table.open);
            let indexes = known.unwrap_or_default();
            let mut chains = Chains::default();
            if let Some(tree) = table.overflow {
                self.tree(tree, &mut |walk, id, page| {
                    walk.chunks(id, page, &mut chains);
                    Ok(())
                })?;
            }
            let rows = Rows { tree: table.primary, overflow: table.overflow, indexes };
            self.tree(table.primary, &mut |walk, id, page| walk.rows(id, page, &rows, &mut chains))?;
            self.unreferenced(&chains);
            for (i, (tree, unique)) in table.secondaries.iter().enumerate() {
                let index = indexes.get(i);
                self.tree(*tree, &mut |walk, id, page| walk.entries(id, page, &rows, (*tree, *unique), index))?;
            }
        }
        if !self.is_incomplete && !self.out.cancelled {
            self.orphans();
        }
        Ok(self.out)
    }

    fn find(&mut self, rule: Rule, page: PageId, what: impl Into<String>) {
        if self.out.findings.len() < Structure::MOST_FINDINGS {
            self.out.findings.push(Finding { rule, file: self.file.clone(), page, what: what.into() });
        } else {
            self.out.more += 1;
        }
    }

    /// Returns a copy of a page. A page that cannot be read becomes a finding.
    fn page(&mut self, id: PageId) -> Result<Option<Box<PageBytes>>, StorageError> {
        self.pages_read += 1;
        if self.pages_read % PROGRESS_EVERY == 1 && (self.progress)(self.pages_read, self.out.pages).is_break() {
            self.out.cancelled = true;
        }
        if self.out.cancelled {
            return Ok(None);
        }
        let mut copy = PageBytes::boxed();
        loop {
            match self.engine.pool.get_or_load(id) {
                Ok(frame) => {
                    let read = frame.read(self.engine.pool.latches());
                    let copied = read.page().copy_to(0, copy.as_bytes_mut());
                    if frame.page_id() == id && copied && read.is_valid() {
                        break;
                    }
                }
                Err(StorageError::CorruptPage { what, .. }) => {
                    // The page cannot be used, but the kind of damage can be determined for the finding.
                    let rule = match self.engine.pool.read_unproved(id, copy.as_bytes_mut()) {
                        Ok(()) if header::damage(copy.as_bytes(), id, true).is_none() => {
                            sound::find_defect(copy.as_bytes(), id).map_or(Rule::Readable, rule_of)
                        }
                        _ => Rule::Readable,
                    };
                    self.is_incomplete = true;
                    self.find(rule, id, what);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        // The page is checked again, because it may have changed in the pool since it was read from the file.
        if let Some(flaw) = sound::find_defect(copy.as_bytes(), id) {
            self.is_incomplete = true;
            self.find(rule_of(flaw), id, flaw.to_string());
            return Ok(None);
        }
        let (lsn, tail) = (PageRef::of(&copy).lsn(), self.engine.log.tail());
        // A record begins before the log's end, so the LSN of the page that it changed lies before the end too.
        if lsn >= tail {
            self.find(Rule::PageLsn, id, format!("was changed at log position {lsn}, but the log ends at {tail}"));
        }
        Ok(Some(copy))
    }

    fn free_list(&mut self, first: PageId) -> Result<(), StorageError> {
        let (mut id, mut before) = (first, SPACE_PAGE);
        while !id.is_none() {
            match self.states.get(id.0 as usize) {
                Some(PageState::Unvisited) if id.0 > FIRST_PAGE => {}
                Some(PageState::Free) => {
                    self.find(Rule::FreeList, before, format!("leads back to free page {id}"));
                    return Ok(());
                }
                _ => {
                    self.find(Rule::FreeList, before, format!("leads to page {id}, which cannot be free"));
                    return Ok(());
                }
            }
            let Some(page) = self.page(id)? else { return Ok(()) };
            let page = PageRef::of(&page);
            if page.kind() != Some(Kind::Free) {
                self.find(Rule::FreeList, before, format!("leads to page {id}, which is in use"));
                return Ok(());
            }
            self.states[id.0 as usize] = PageState::Free;
            self.out.free += 1;
            (before, id) = (id, page.right());
        }
        Ok(())
    }

    /// Walks a tree and calls `leaf` for each leaf, in key order.
    fn tree(
        &mut self,
        tree: Tree,
        leaf: &mut dyn FnMut(&mut Self, PageId, PageRef<'_>) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.out.trees += 1;
        let mut last = None;
        let root = ExpectedChild { level: None, low: None, high: None };
        self.subtree(tree, (SPACE_PAGE, tree.root), &root, &mut last, leaf)?;
        if let Some((id, right)) = last
            && !right.is_none()
        {
            self.find(Rule::SiblingLinks, id, format!("is the last leaf, but names page {right} as the next"));
        }
        Ok(())
    }

    fn subtree(
        &mut self,
        tree: Tree,
        (parent, id): (PageId, PageId),
        expected: &ExpectedChild<'_>,
        last: &mut Option<(PageId, PageId)>,
        leaf: &mut dyn FnMut(&mut Self, PageId, PageRef<'_>) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        match self.states.get(id.0 as usize) {
            Some(PageState::Unvisited) if id.0 >= FIRST_PAGE => self.states[id.0 as usize] = PageState::Tree,
            Some(PageState::Tree) => {
                self.is_incomplete = true;
                self.find(Rule::Children, parent, format!("leads to page {id}, as another page does"));
                return Ok(());
            }
            Some(PageState::Free) => {
                self.is_incomplete = true;
                self.find(Rule::Children, parent, format!("leads to page {id}, which is in the free list"));
                return Ok(());
            }
            _ => {
                self.is_incomplete = true;
                self.find(Rule::Children, parent, format!("leads to page {id}, which does not exist"));
                return Ok(());
            }
        }
        let Some(bytes) = self.page(id)? else {
            // The right sibling of this page is unknown, so the link to the next leaf cannot be checked.
            *last = None;
            return Ok(());
        };
        let page = PageRef::of(&bytes);
        let kind = if page.level() == 0 { Kind::Leaf } else { Kind::Inner };
        let level_fits = expected.level.is_none_or(|level| level == page.level());
        if page.kind() != Some(kind) || page.index() != tree.index || !level_fits {
            self.is_incomplete = true;
            let (index, level) = (page.index(), page.level());
            self.find(Rule::Children, id, format!("is of index {index} and level {level}, not where {parent} leads"));
            return Ok(());
        }
        let (low, high) = (page.low_fence(), page.high_fence());
        let bounded = if kind == Kind::Leaf {
            low.as_deref() == expected.low && high.as_deref() == expected.high
        } else {
            is_low_bound(low.as_deref(), expected.low) && is_high_bound(high.as_deref(), expected.high)
        };
        if !bounded {
            self.find(Rule::FenceKeys, id, format!("has other bounds than page {parent} gives it"));
        }
        if kind == Kind::Leaf {
            if let Some((before, right)) = *last
                && right != id
            {
                self.find(Rule::SiblingLinks, before, format!("names page {right} as the next leaf, not page {id}"));
            }
            *last = Some((id, page.right()));
            return leaf(self, id, page);
        }
        if !page.right().is_none() {
            self.find(Rule::SiblingLinks, id, "has a neighbour, which inner pages do not");
        }
        // The fences of an inner page may be wider than the range that the parent gives, so the bounds of the children
        // come from the parent.
        let mut below = expected.low.map(<[u8]>::to_vec);
        for i in 0..=page.count() {
            let above = if i < page.count() { Some(page.key(i)) } else { expected.high.map(<[u8]>::to_vec) };
            let level = page.level().checked_sub(1);
            let child = ExpectedChild { level, low: below.as_deref(), high: above.as_deref() };
            self.subtree(tree, (id, page.child(i)), &child, last, leaf)?;
            below = above;
        }
        Ok(())
    }

    /// Collects the chunks of a leaf of large values.
    fn chunks(&mut self, id: PageId, page: PageRef<'_>, chains: &mut Chains) {
        for i in (0..page.count()).filter(|i| !page.slot(*i).is_ghost()) {
            let len = page.slot(i).value_len;
            let Some((chain, number)) = Chain::of_chunk(&page.key(i)) else {
                self.find(Rule::LargeValues, id, format!("has a key (slot {i}) that is no chunk's"));
                continue;
            };
            let whole = chains.found.entry(chain).or_insert(FoundChain { page: id, chunks: 0, len: 0, fits: true });
            whole.fits &= number == whole.chunks && whole.len == number * CHUNK && (1..=CHUNK).contains(&len);
            (whole.chunks, whole.len) = (whole.chunks + 1, whole.len + len);
        }
    }

    /// Reports large values to which no row refers.
    fn unreferenced(&mut self, chains: &Chains) {
        if self.is_incomplete || self.out.cancelled {
            return;
        }
        let mut left: Vec<_> = chains.found.iter().collect();
        left.sort_unstable_by_key(|(chain, _)| **chain);
        for (chain, found) in left {
            let what = format!("begins large value {chain:?}, of {} bytes, to which no row refers", found.len);
            self.find(Rule::LargeValues, found.page, what);
        }
    }

    /// Checks the rows of a leaf: each row must have its index entries and its large value.
    fn rows(
        &mut self,
        id: PageId,
        page: PageRef<'_>,
        rows: &Rows<'_>,
        chains: &mut Chains,
    ) -> Result<(), StorageError> {
        let (mut row, mut entry) = (Vec::new(), Vec::new());
        for i in 0..page.count() {
            let slot = page.slot(i);
            if slot.is_ghost() {
                continue;
            }
            self.out.rows += 1;
            if rows.indexes.is_empty() && !slot.is_overflow() {
                continue;
            }
            row.clear();
            let _ = page.append_value(slot, &mut row);
            let key = page.key(i);
            if slot.is_overflow() {
                if let Some(Reference::Chain(chain, len)) = Reference::decode(&row) {
                    self.out.large_values += 1;
                    let fits = chains.found.remove(&chain).is_some_and(|found| found.fits && found.len == len);
                    if !fits && !self.is_incomplete {
                        let what =
                            format!("has a row (slot {i}) whose large value {chain:?} is not whole or not its own");
                        self.find(Rule::LargeValues, id, what);
                    }
                }
                if rows.indexes.is_empty() {
                    continue;
                }
                let Some(value) = self.whole(&rows.index(), &key, &row)? else { continue };
                row = value;
            }
            for index in rows.indexes {
                if entry_key(index, &key, &row, &mut entry)
                    && self.value(&index.index, &entry)?.is_some_and(|found| found.as_ref() != Some(&key))
                {
                    self.find(
                        Rule::Secondary,
                        id,
                        format!("has a row (slot {i}) that index {} lacks", index.spec.name),
                    );
                }
            }
        }
        Ok(())
    }

    /// Checks the entries in a leaf of a secondary index: each entry must have its row.
    fn entries(
        &mut self,
        id: PageId,
        page: PageRef<'_>,
        rows: &Rows<'_>,
        (tree, unique): (Tree, bool),
        index: Option<&Secondary>,
    ) -> Result<(), StorageError> {
        let (mut key, mut wanted) = (Vec::new(), Vec::new());
        let primary = rows.index();
        for i in 0..page.count() {
            let slot = page.slot(i);
            if slot.is_ghost() {
                continue;
            }
            self.out.entries += 1;
            key.clear();
            let _ = page.append_value(slot, &mut key);
            let entry = page.key(i);
            if slot.is_overflow() {
                let of_entry = of_tree(tree, None);
                let Some(value) = self.whole(&of_entry, &entry, &key)? else { continue };
                key = value;
            }
            let belongs = match self.value(&primary, &key)? {
                // A page of the search cannot be read, which is a separate finding.
                None => true,
                Some(None) => false,
                Some(Some(row)) => match index {
                    Some(index) => entry_key(index, &key, &row, &mut wanted) && wanted == entry,
                    None => unique || entry.ends_with(&key),
                },
            };
            if !belongs {
                self.find(Rule::Primary, id, format!("has an entry (slot {i}) without its row"));
            }
        }
        Ok(())
    }

    /// Returns the large value of a slot; `None` if the value is missing, which is a separate finding.
    fn whole(&mut self, index: &Index, key: &[u8], stored: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let mut value = Vec::new();
        match index.append_referred(&self.engine.pool, key, stored, WHOLE, &mut value) {
            Ok(found) => Ok(found.then_some(value)),
            Err(StorageError::CorruptPage { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the row of a key: `None` if the tree cannot be searched, `Some(None)` if there is no row.
    fn value(&mut self, index: &Index, key: &[u8]) -> Result<Option<Option<Vec<u8>>>, StorageError> {
        loop {
            let leaf = match index.tree().find(&self.engine.pool, key) {
                Ok(leaf) => leaf,
                Err(StorageError::CorruptPage { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let page = leaf.read.page();
            let slot = page.slot(leaf.position);
            let there = leaf.exact && !slot.is_ghost() && page.covers(key);
            let mut value = Vec::new();
            let copied = !there || page.append_value(slot, &mut value);
            if copied && leaf.read.is_valid() {
                if there && slot.is_overflow() {
                    drop(leaf);
                    return Ok(self.whole(index, key, &value)?.map(Some));
                }
                return Ok(Some(there.then_some(value)));
            }
        }
    }

    fn orphans(&mut self) {
        for id in FIRST_PAGE..self.end {
            if self.states[id as usize] == PageState::Unvisited {
                self.find(Rule::Orphan, PageId(id), "belongs to no tree and is not free");
            }
        }
    }
}

fn rule_of(flaw: Flaw) -> Rule {
    match flaw {
        Flaw::KeyOrder(_) => Rule::KeyOrder,
        Flaw::Head(_) | Flaw::Hint(_) => Rule::HintKeys,
        Flaw::Fences => Rule::FenceKeys,
        Flaw::Kind | Flaw::Slots | Flaw::Heap | Flaw::Overlap | Flaw::Space | Flaw::Ghosts => Rule::Layout,
    }
}
