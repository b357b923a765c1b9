//! The structure check: whether all pages together form trees, a free list and indexes.
//!
//! Reading pages proves each by itself (checksum, number, and the rules of `page::sound`). This check proves the rules
//! that involve several pages: that inner pages name children that exist once, on the level below, within the bounds
//! that the parent gives them; that leaves follow each other; that free pages are free and all others in use; that rows
//! and the entries of secondary indexes belong together; that no page is newer than the log.

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

/// Progress is reported at the first of so many pages.
const TOLD_EVERY: u64 = 256;

/// The rules for the pages of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The page can be read: its checksum is right, and it has the number of its place.
    Readable,
    /// Its header, slots, records and counters fit the page and each other.
    Layout,
    /// Keys ascend and lie within the page's fences.
    KeyOrder,
    /// Heads and hint keys match the keys.
    HintKeys,
    /// Fences are the bounds that the parent gives the page.
    FenceKeys,
    /// Children exist, belong to the tree, lie one level below, and are named once.
    Children,
    /// Each leaf names the leaf that follows it.
    SiblingLinks,
    /// The free list ends, and holds free pages only.
    FreeList,
    /// Every row has its entry in every secondary index that it belongs to.
    Secondary,
    /// Every entry of a secondary index has its row.
    Primary,
    /// Every large value is whole, and belongs to one row.
    LargeValues,
    /// No page was changed later than the log ends.
    PageLsn,
    /// Every page that was ever taken belongs to a tree, to the free list, or to a range that is free or that a bulk load
    /// owns. One that does not is lost space, no damage: the making of a table or an index that a crash or a full disk
    /// broke off leaves such a page.
    Orphan,
}

impl Rule {
    /// The rule's name, as reports show it.
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

/// A rule that a page breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The file.
    pub file: String,
    /// The page that breaks it.
    pub page: PageId,
    /// How, as a clause that goes on after "page 7".
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
    /// Pages in use, the allocator's own included.
    pub pages: u64,
    /// Of these, pages of the free list.
    pub free: u64,
    /// Trees walked through.
    pub trees: u64,
    /// Rows of tables.
    pub rows: u64,
    /// Entries of secondary indexes.
    pub entries: u64,
    /// Values that do not lie in a page of rows.
    pub large_values: u64,
    /// What is wrong; at most [`Structure::MOST_FINDINGS`].
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub more: u64,
    /// The caller stopped the check: nothing is proved.
    pub cancelled: bool,
}

impl Structure {
    /// Findings that are kept.
    pub const MOST_FINDINGS: usize = 1000;

    /// Whether the check was complete and found nothing.
    pub fn passed(&self) -> bool {
        self.findings.is_empty() && !self.cancelled
    }
}

impl Database {
    /// Proves the structure of everything in the data file: see [`Rule`]. Meant for a database that no transaction
    /// changes meanwhile. The rows of a table are compared with its secondary indexes if the table was opened since the
    /// database was; for other tables the check only proves that every entry has a row. The purge service rests meanwhile.
    ///
    /// `progress` is called now and then with how many of how many pages have been seen, and may stop the check.
    ///
    /// # Errors
    /// A file that cannot be read at all. Damage is no error but a finding.
    pub fn check_structure(
        &self,
        progress: impl FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Structure, StorageError> {
        let _rest = self.duties.rest_purger();
        let walk = Walk {
            engine: &self.engine,
            file: self.engine.pool.file_name(),
            end: 0,
            seen: Vec::new(),
            looked: 0,
            blind: false,
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

/// Where the check met a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Not,
    Tree,
    Free,
    /// A bulk load owns it.
    Owned,
}

/// The rows of a table, as far as the check knows it.
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

/// An index for reading alone.
fn of_tree(tree: Tree, overflow: Option<Tree>) -> Index {
    Index::new((tree, overflow), 0, "", None)
}

/// Large values of a table that were found, less those to which a row has referred.
#[derive(Default)]
struct Chains {
    found: HashMap<Chain, FoundChain>,
}

struct FoundChain {
    /// Where its first chunk lies.
    page: PageId,
    chunks: usize,
    len: usize,
    /// Its chunks follow each other.
    fits: bool,
}

/// A child as its parent describes it.
struct Expected<'a> {
    level: Option<u8>,
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
}

struct Walk<'a, P> {
    engine: &'a Engine,
    file: String,
    /// First page never used.
    end: u32,
    seen: Vec<Seen>,
    looked: u64,
    /// Some page could not be read or followed: the pages that it leads to are unknown.
    blind: bool,
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
        self.seen = vec![Seen::Not; self.end as usize];
        self.out.pages = u64::from(self.end);
        for range in Ranges::read(space).iter() {
            let seen = if range.owned { Seen::Owned } else { Seen::Free };
            let pages = range.pages.start as usize..range.pages.end.min(self.end) as usize;
            self.out.free += if range.owned { 0 } else { pages.len() as u64 };
            self.seen.get_mut(pages).into_iter().for_each(|pages| pages.fill(seen));
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
        if !self.blind && !self.out.cancelled {
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

    /// A copy of a page that can be read; otherwise that is a finding.
    fn page(&mut self, id: PageId) -> Result<Option<Box<PageBytes>>, StorageError> {
        self.looked += 1;
        if self.looked % TOLD_EVERY == 1 && (self.progress)(self.looked, self.out.pages).is_break() {
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
                    // Too damaged to be used, but the damage can be reported.
                    let rule = match self.engine.pool.read_unproved(id, copy.as_bytes_mut()) {
                        Ok(()) if header::damage(copy.as_bytes(), id, true).is_none() => {
                            sound::flaw(copy.as_bytes(), id).map_or(Rule::Readable, rule_of)
                        }
                        _ => Rule::Readable,
                    };
                    self.blind = true;
                    self.find(rule, id, what);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        // The page in the pool may have been changed since it was read.
        if let Some(flaw) = sound::flaw(copy.as_bytes(), id) {
            self.blind = true;
            self.find(rule_of(flaw), id, flaw.to_string());
            return Ok(None);
        }
        let (lsn, tail) = (PageRef::of(&copy).lsn(), self.engine.log.tail());
        // A record begins before the log's end, and so does the LSN of the page that it changed.
        if lsn >= tail {
            self.find(Rule::PageLsn, id, format!("was changed at log position {lsn}, but the log ends at {tail}"));
        }
        Ok(Some(copy))
    }

    fn free_list(&mut self, first: PageId) -> Result<(), StorageError> {
        let (mut id, mut before) = (first, SPACE_PAGE);
        while !id.is_none() {
            match self.seen.get(id.0 as usize) {
                Some(Seen::Not) if id.0 > FIRST_PAGE => {}
                Some(Seen::Free) => {
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
            self.seen[id.0 as usize] = Seen::Free;
            self.out.free += 1;
            (before, id) = (id, page.right());
        }
        Ok(())
    }

    /// Walks through a tree and calls `leaf` for each leaf, in order.
    fn tree(
        &mut self,
        tree: Tree,
        leaf: &mut dyn FnMut(&mut Self, PageId, PageRef<'_>) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        self.out.trees += 1;
        let mut last = None;
        let root = Expected { level: None, low: None, high: None };
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
        expected: &Expected<'_>,
        last: &mut Option<(PageId, PageId)>,
        leaf: &mut dyn FnMut(&mut Self, PageId, PageRef<'_>) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        match self.seen.get(id.0 as usize) {
            Some(Seen::Not) if id.0 >= FIRST_PAGE => self.seen[id.0 as usize] = Seen::Tree,
            Some(Seen::Tree) => {
                self.blind = true;
                self.find(Rule::Children, parent, format!("leads to page {id}, as another page does"));
                return Ok(());
            }
            Some(Seen::Free) => {
                self.blind = true;
                self.find(Rule::Children, parent, format!("leads to page {id}, which is in the free list"));
                return Ok(());
            }
            _ => {
                self.blind = true;
                self.find(Rule::Children, parent, format!("leads to page {id}, which does not exist"));
                return Ok(());
            }
        }
        let Some(bytes) = self.page(id)? else {
            // The page that follows it is unknown: the link to that page cannot be checked.
            *last = None;
            return Ok(());
        };
        let page = PageRef::of(&bytes);
        let kind = if page.level() == 0 { Kind::Leaf } else { Kind::Inner };
        let level_fits = expected.level.is_none_or(|level| level == page.level());
        if page.kind() != Some(kind) || page.index() != tree.index || !level_fits {
            self.blind = true;
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
        // What an inner page stores may be wider than what it covers.
        let mut below = expected.low.map(<[u8]>::to_vec);
        for i in 0..=page.count() {
            let above = if i < page.count() { Some(page.key(i)) } else { expected.high.map(<[u8]>::to_vec) };
            let level = page.level().checked_sub(1);
            let child = Expected { level, low: below.as_deref(), high: above.as_deref() };
            self.subtree(tree, (id, page.child(i)), &child, last, leaf)?;
            below = above;
        }
        Ok(())
    }

    /// The chunks of a leaf of large values.
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

    /// Chains to which no row has referred.
    fn unreferenced(&mut self, chains: &Chains) {
        if self.blind || self.out.cancelled {
            return;
        }
        let mut left: Vec<_> = chains.found.iter().collect();
        left.sort_unstable_by_key(|(chain, _)| **chain);
        for (chain, found) in left {
            let what = format!("begins large value {chain:?}, of {} bytes, to which no row refers", found.len);
            self.find(Rule::LargeValues, found.page, what);
        }
    }

    /// The rows of a leaf, and whether each has its entries and its large value.
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
                    if !fits && !self.blind {
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

    /// The entries of a leaf of a secondary index, and whether each has its row.
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
                // The page cannot be read, which is another finding.
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

    /// The value that a slot refers to; `None` if it is not there, which is another finding.
    fn whole(&mut self, index: &Index, key: &[u8], stored: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let mut value = Vec::new();
        match index.append_referred(&self.engine.pool, key, stored, WHOLE, &mut value) {
            Ok(found) => Ok(found.then_some(value)),
            Err(StorageError::CorruptPage { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The row of a key: `None` if the tree cannot be searched, `Some(None)` if there is none.
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
            if self.seen[id as usize] == Seen::Not {
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
