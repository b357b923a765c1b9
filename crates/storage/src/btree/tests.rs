//! Tests of trees against an ordered map: random inserts, deletes, revivals of ghosts, purges, splits and merges. After each
//! round all rules for pages of a tree are checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;

use super::merge::{MergeLimits, Merger};
use super::ops::{self, PageChange, PageChanges};
use super::row_sections::{self, KeyBuffer, RowAt, RowChange, RowSection, RowsBefore};
use super::search::LeafAt;
use super::split::SplitOutcome;
use super::{MAX_KEY, StructureChange, Tree};
use crate::base::config::LatchKind;
use crate::base::ids::{IndexId, Lsn, PAGE_SIZE, PageId, SlotId};
use crate::buffer::frame::FrameWrite;
use crate::io::MemDisk;
use crate::log::{AppendError, RecordBuf, RecordKind};
use crate::page::slotted::{is_high_bound, is_low_bound};
use crate::page::{PageRef, sound};
use crate::{Database, Options};

const INDEX: IndexId = IndexId(900);
/// Message of `expect` for operations that cannot fail here.
const SOUND: &str = "the disk is sound and has room";

/// Expected content of a leaf's slot.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Row {
    There(Vec<u8>),
    Ghost,
}

/// A tree under test, the context for its modifications by one thread, and its expected content.
struct Subject<'a> {
    pages: StructureChange<'a>,
    tree: Tree,
    rec: RecordBuf,
    model: BTreeMap<Vec<u8>, Row>,
}

fn database(latches: LatchKind) -> Database {
    Options::new().buffer_pool(8 << 20).latches(latches).promote_at(3).open_on(Arc::new(MemDisk::new())).expect(SOUND)
}

/// Returns the context for structure modifications of a database, under a transaction slot of its own.
fn pages(db: &Database, slot: u16) -> StructureChange<'_> {
    StructureChange { pool: &db.engine.pool, log: &db.engine.log, slot: SlotId(slot), for_undo: false }
}

/// Kinds of keys: short numbers, texts with a long common prefix, or random keys up to the maximum length. The last three
/// kinds have the maximum length: keys with no common bytes, keys with all bytes in common except the last ones, and keys of
/// bytes that no bound can follow.
#[derive(Clone, Copy, Debug)]
enum Keys {
    Numbers,
    Prefixed,
    Long,
    Wild,
    Alike,
    High,
}

impl Keys {
    fn key(self, n: u64) -> Vec<u8> {
        let number = (n as u32).to_be_bytes();
        match self {
            Keys::Numbers => number.to_vec(),
            Keys::Prefixed => [b"orders/2026/warehouse/district/".as_slice(), &number].concat(),
            Keys::Long => {
                let len = 4 + (n * 37 % (MAX_KEY as u64 - 3)) as usize;
                let mut key = number.to_vec();
                key.resize(len, n as u8);
                key
            }
            Keys::Wild => {
                let mut key = (n as u32).wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
                key.resize(MAX_KEY, n as u8);
                key
            }
            Keys::Alike => [&[7; MAX_KEY - 4], &number[..]].concat(),
            Keys::High => [&[0xFF; 1000], &number[..], &[0xFF; MAX_KEY - 1004]].concat(),
        }
    }
}

impl<'a> Subject<'a> {
    fn new(db: &'a Database, slot: u16) -> Subject<'a> {
        let mut rec = RecordBuf::new();
        let pages = pages(db, slot);
        let tree = Tree::create(INDEX, pages, &mut rec).expect(SOUND);
        Subject { pages, tree, rec, model: BTreeMap::new() }
    }

    /// Returns the latched leaf of a key, and the key's position in it.
    fn latch(&self, key: &[u8]) -> (FrameWrite<'a>, usize, bool) {
        loop {
            let LeafAt { read, position, exact } = self.tree.find(self.pages.pool, key).expect(SOUND);
            if let Some(leaf) = read.upgrade() {
                return (leaf, position, exact);
            }
        }
    }

    /// Appends a record with the sections that `put` adds, while the leaf is latched.
    fn log(&mut self, leaf: &mut FrameWrite<'_>, put: impl FnOnce(&mut RecordBuf, PageId)) -> Result<Lsn, AppendError> {
        leaf.mark_dirty(self.pages.log.tail());
        self.rec.begin_system();
        put(&mut self.rec, leaf.frame().page_id());
        self.pages.log.append_redo_only(self.pages.slot, &mut self.rec, leaf.page().lsn())
    }

    /// Writes a row, which replaces a ghost, replaces another row, or is new.
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let tree = self.tree;
        loop {
            let (mut leaf, position, exact) = self.latch(key);
            let before = exact.then(|| leaf.page().slot(position).value_len);
            let fits = match before {
                None => leaf.page().has_room(key.len(), value.len()),
                Some(before) => leaf.page().free_bytes() >= value.len().saturating_sub(before) + 64,
            };
            if !fits {
                leaf.release_unchanged();
                tree.split(self.pages, &mut self.rec, key, 0, value.len() + 64, &mut |_| true).expect(SOUND);
                continue;
            }
            let place = |page| RowAt { page, tree, position };
            let logged = self.log(&mut leaf, |rec, page| {
                row_sections::put_insert(rec, &place(page), key, &mut RowsBefore::none(), (value, 0));
            });
            let lsn = match logged {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop(leaf);
                    refused.make_room(self.pages.log).expect(SOUND);
                    continue;
                }
            };
            let mut page = leaf.page_mut();
            if exact {
                ops::replace(&mut page, position, (value, 0));
            } else {
                page.insert(position, key, 0, value, 0);
                page.note_insert(position);
            }
            page.set_lsn(lsn);
            break;
        }
        self.model.insert(key.to_vec(), Row::There(value.to_vec()));
    }

    /// Turns the row of a key into a ghost, if the row exists.
    fn delete(&mut self, key: &[u8]) {
        let tree = self.tree;
        loop {
            let (mut leaf, position, exact) = self.latch(key);
            assert_eq!(exact, self.model.contains_key(key), "key {key:?}");
            if !exact {
                return leaf.release_unchanged();
            }
            let place = |page| RowAt { page, tree, position };
            let logged = self.log(&mut leaf, |rec, page| {
                row_sections::put_mark(rec, &place(page), key, &mut RowsBefore::none(), true);
            });
            let lsn = match logged {
                Ok(lsn) => lsn,
                Err(refused) => {
                    drop(leaf);
                    refused.make_room(self.pages.log).expect(SOUND);
                    continue;
                }
            };
            ops::mark(&mut leaf.page_mut(), position, true);
            leaf.page_mut().set_lsn(lsn);
            break;
        }
        self.model.insert(key.to_vec(), Row::Ghost);
    }

    /// Removes ghosts from the leaf of a key, except those for which `kept` returns true.
    fn purge(&mut self, key: &[u8], kept: impl Fn(&[u8]) -> bool) {
        let (mut leaf, ..) = self.latch(key);
        let within = |page: PageRef<'_>| (page.low_fence().unwrap_or_default(), page.high_fence());
        let (low, high) = within(leaf.page());
        let gone = self.tree.purge(self.pages, &mut self.rec, &mut leaf, &mut |key| kept(key)).expect(SOUND);
        drop(leaf);
        let before = self.model.len();
        self.model.retain(|key, row| {
            let here = *key >= low && high.as_ref().is_none_or(|high| key < high);
            *row != Row::Ghost || !here || gone == 0 || kept(key)
        });
        assert_eq!(before - self.model.len(), gone, "ghosts that went");
    }

    fn merge(&mut self, key: &[u8]) {
        let limits = if key.len().is_multiple_of(2) { MergeLimits::PASSING } else { MergeLimits::THOROUGH };
        let mut merger =
            Merger { change: self.pages, rec: &mut self.rec, limits, waits: true, referenced: &mut |_| false };
        self.tree.merge(&mut merger, key).expect(SOUND);
    }

    /// Checks every rule for the tree's pages, and compares their rows with the model.
    fn check(&self) {
        let mut walk = Walk { pages: self.pages, rows: BTreeMap::new(), leaves: Vec::new() };
        let levels = walk.page(self.tree.root, None, None, None);
        assert!(levels < 16, "{levels} levels");
        let rights: Vec<PageId> = walk.leaves.iter().skip(1).map(|(id, _)| *id).chain([PageId::NONE]).collect();
        let linked: Vec<PageId> = walk.leaves.iter().map(|(_, right)| *right).collect();
        assert_eq!(linked, rights, "each leaf names the next");
        assert!(walk.rows == self.model, "rows differ from the model's");
    }
}

/// Traversal of all pages of a tree that no thread changes.
struct Walk<'a> {
    pages: StructureChange<'a>,
    rows: BTreeMap<Vec<u8>, Row>,
    /// Leaves in order, each with its right neighbour.
    leaves: Vec<(PageId, PageId)>,
}

impl Walk<'_> {
    /// Checks a page and all pages below it. Returns its level.
    fn page(&mut self, id: PageId, level: Option<u8>, low: Option<&[u8]>, high: Option<&[u8]>) -> u8 {
        // The cleaner copies pages under shared latches, and frames may be evicted.
        let frame = loop {
            self.pages.pool.get_or_load(id).expect(SOUND);
            if let Some(frame) = self.pages.try_latch(id) {
                break frame;
            }
            std::thread::yield_now();
        };
        let bytes = Box::new(*frame.stable());
        frame.release_unchanged();
        assert_eq!(sound::find_defect(&bytes, id).map(|flaw| flaw.to_string()), None, "page {id}");
        let mut copy = crate::page::PageBytes::boxed();
        copy.as_bytes_mut().copy_from_slice(&bytes[..]);
        let page = PageRef::of(&copy);
        let (stored_low, stored_high) = (page.low_fence(), page.high_fence());
        let (stored_low, stored_high) = (stored_low.as_deref(), stored_high.as_deref());
        if page.is_leaf() {
            assert_eq!((stored_low, stored_high), (low, high), "fences of page {id}");
        } else {
            assert!(is_low_bound(stored_low, low) && is_high_bound(stored_high, high), "bounds of page {id}");
        }
        assert!(level.is_none_or(|level| level == page.level()), "level of page {id}");
        assert_eq!(page.index(), INDEX);
        let keys: Vec<Vec<u8>> = (0..page.count()).map(|i| page.key(i)).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "order of page {id}");
        let within = |key: &Vec<u8>| {
            low.is_none_or(|low| key.as_slice() >= low) && high.is_none_or(|high| key.as_slice() < high)
        };
        assert!(keys.iter().all(within), "keys of page {id} lie within its fences");
        if page.is_leaf() {
            for (i, key) in keys.into_iter().enumerate() {
                let slot = page.slot(i);
                let mut value = Vec::new();
                assert!(page.append_value(slot, &mut value));
                let row = if slot.is_ghost() { Row::Ghost } else { Row::There(value) };
                self.rows.insert(key, row);
            }
            self.leaves.push((id, page.right()));
        } else {
            for i in 0..=keys.len() {
                let below = if i == 0 { low } else { Some(keys[i - 1].as_slice()) };
                let above = keys.get(i).map(Vec::as_slice).or(high);
                self.page(page.child(i), Some(page.level() - 1), below, above);
            }
        }
        page.level()
    }
}

/// Applies random changes to a tree. The mix of changes varies over time, so that the tree grows and shrinks.
fn run(seed: u64, latches: LatchKind, keys: Keys, rounds: u64) {
    let db = database(latches);
    let mut subject = Subject::new(&db, 0);
    let mut rng = Rng::with_seed(seed);
    let most =
        [60, 600, if matches!(keys, Keys::Wild | Keys::Alike | Keys::High) { 200 } else { 3_000 }][rng.usize(..3)];
    for round in 0..rounds {
        let deletes = [1, 5, 9][rng.usize(..3)];
        let longest = [8, 200, 1_500][rng.usize(..3)];
        let (ascending, begin) = (rng.u64(..3) == 0, rng.u64(..most));
        for step in 0..60 {
            let n = if ascending { (begin + step) % most } else { rng.u64(..most) };
            let key = keys.key(n);
            match rng.u64(..14) {
                kind if kind < deletes => subject.delete(&key),
                10 | 11 => {
                    let odd = rng.bool();
                    subject.purge(&key, |key| odd && key.last().is_some_and(|byte| byte % 2 == 1));
                }
                12 => subject.merge(&key),
                _ => {
                    let value = vec![n as u8; rng.usize(..longest)];
                    subject.put(&key, &value);
                }
            }
        }
        subject.check();
        assert!(subject.model.len() as u64 <= most, "round {round}");
    }
    // Reduce the tree to one empty leaf: all allocated pages are freed, so that the tree has at most two levels.
    for n in 0..most {
        subject.delete(&keys.key(n));
    }
    for n in (0..most).chain(0..most) {
        subject.purge(&keys.key(n), |_| false);
        subject.merge(&keys.key(n));
    }
    subject.check();
    assert!(subject.model.is_empty());
}

#[test]
fn a_tree_is_an_ordered_map_under_random_changes() {
    let kinds = [Keys::Numbers, Keys::Prefixed, Keys::Long, Keys::Wild, Keys::Alike, Keys::High];
    for seed in 0..36 {
        let latches = [LatchKind::Optimistic, LatchKind::Plain, LatchKind::Super][(seed % 3) as usize];
        let keys = kinds[(seed / 3 % 6) as usize];
        let ran = std::panic::catch_unwind(|| run(seed, latches, keys, 25));
        assert!(ran.is_ok(), "seed {seed}, {latches:?}, {keys:?}");
    }
}

/// Checks that a split at a gap that a transaction has locked changes nothing, and reports the lock.
#[test]
fn a_gap_is_not_parted_against_its_readers() {
    let db = database(LatchKind::Optimistic);
    let mut subject = Subject::new(&db, 0);
    subject.put(b"a", &[1; 3_900]);
    subject.put(b"b", &[2; 3_900]);
    let mut asked = 0;
    let mut split = |subject: &mut Subject<'_>| {
        let mut refuse = |_: PageRef<'_>| {
            asked += 1;
            false
        };
        let made = subject.tree.split(subject.pages, &mut subject.rec, b"c", 0, PAGE_SIZE, &mut refuse).unwrap();
        subject.check();
        made
    };
    // A leaf of two rows that the new key follows is cut after them, which divides a gap.
    while split(&mut subject) == SplitOutcome::Split {}
    assert_eq!(asked, 1);
}

/// Several threads insert, delete and purge rows of their own, all in the same leaves.
#[test]
fn threads_share_the_leaves_of_a_tree() {
    const THREADS: u16 = 3;
    for (seed, latches) in [(1, LatchKind::Optimistic), (2, LatchKind::Plain), (3, LatchKind::Super)] {
        let db = database(latches);
        let tree = Subject::new(&db, 0).tree;
        let models: Vec<BTreeMap<Vec<u8>, Row>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let db = &db;
                    scope.spawn(move || {
                        let pages = pages(db, thread);
                        let mut subject = Subject { pages, tree, rec: RecordBuf::new(), model: BTreeMap::new() };
                        let mut rng = Rng::with_seed(seed << 8 | u64::from(thread));
                        for _ in 0..4_000 {
                            // Adjacent keys belong to different threads.
                            let n = rng.u64(..1_500) * u64::from(THREADS) + u64::from(thread);
                            let key = Keys::Prefixed.key(n);
                            match rng.u64(..8) {
                                0..3 => subject.delete(&key),
                                3 => subject.merge(&key),
                                _ => subject.put(&key, &vec![n as u8; rng.usize(..300)]),
                            }
                        }
                        subject.model
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let model = models.into_iter().flatten().collect();
        let pages = pages(&db, 0);
        Subject { pages, tree, rec: RecordBuf::new(), model }.check();
    }
}

/// Decoded content of a section about a row: location, key, and the value or the difference.
type RowSaid = (RowAt, Vec<u8>, Vec<u8>);

fn said(section: &PageChange<'_>) -> RowSaid {
    let PageChange::Row(RowSection { at, key, change }) = *section else { panic!("not written here: {section:?}") };
    let (RowChange::Insert { value: bytes, .. } | RowChange::Patch { difference: bytes, .. }) = change else {
        panic!("not written here: {section:?}")
    };
    (at, key.whole(&mut KeyBuffer::new()).to_vec(), bytes.to_vec())
}

/// Sections about rows omit fields that are equal in the preceding section. Each section must also be readable alone: redo
/// selects the sections of one page, and undo begins with the last section.
#[test]
fn sections_about_rows_are_read_as_written_in_any_order() {
    let mut rng = Rng::with_seed(17);
    for round in 0..500 {
        let mut rec = RecordBuf::new();
        rec.begin(RecordKind::Data, SlotId(1), Lsn::ZERO);
        let (mut written, mut before) = (Vec::new(), RowsBefore::none());
        for _ in 0..1 + rng.u64(..20) {
            let wide = if round % 3 == 0 { 1 << 24 } else { 0 };
            let tree = Tree { index: IndexId(7 + rng.u32(..2)), root: PageId(3) };
            let page = PageId(10 + rng.u32(..3) + wide * rng.u32(..2));
            let bits = rng.u32(4..12);
            let position = rng.usize(..1 << bits);
            // Keys of two letters have bytes in common.
            let letters = if round % 2 == 0 { 2 } else { u8::MAX };
            let longest = [20, MAX_KEY][round % 2];
            let key: Vec<u8> = (0..rng.usize(..=longest)).map(|_| rng.u8(..letters)).collect();
            let mut bytes = |most: usize| (0..rng.usize(..=most)).map(|_| rng.u8(..)).collect::<Vec<_>>();
            let value = bytes([60, 600][round / 2 % 2]);
            let at = RowAt { page, tree, position };
            if value.len().is_multiple_of(2) {
                row_sections::put_insert(&mut rec, &at, &key, &mut before, (&value, (round % 4) as u16));
                written.push((at, key, value));
            } else {
                let new: Vec<u8> = bytes(0).into_iter().chain(value.iter().map(|byte| byte.rotate_left(3))).collect();
                row_sections::put_patch(&mut rec, &at, &key, &mut before, 3, (&value, &new));
                let difference = value.iter().zip(&new).map(|(before, after)| before ^ after).collect();
                written.push((at, key, difference));
            }
        }
        let mut sections = PageChanges::new(rec.body());
        let mut places = vec![sections.place()];
        let mut read = Vec::new();
        while let Some(section) = sections.next() {
            read.push(said(&section));
            places.push(sections.place());
        }
        assert!(sections.is_whole(), "round {round}");
        assert_eq!(read, written, "round {round}");
        for (place, written) in places.iter().zip(&written).rev() {
            assert_eq!(sections.at(*place).map(|section| said(&section)).as_ref(), Some(written), "round {round}");
            assert_eq!(row_sections::position_of(&rec.body()[place.at()..]), Some(written.0.position), "round {round}");
        }
        // A truncated body yields only a prefix of its sections.
        let body = rec.body();
        for end in [body.len() - 1, body.len() / 2] {
            let mut sections = PageChanges::new(&body[..end]);
            let read: Vec<_> = sections.by_ref().map(|section| said(&section)).collect();
            assert!(written.starts_with(&read), "round {round}");
        }
    }
}

/// Checks that the first section of a record cannot refer to a preceding section.
#[test]
fn a_section_that_lacks_the_one_before_it_is_none() {
    let tree = Tree { index: IndexId(7), root: PageId(3) };
    let row = |page| RowAt { page: PageId(page), tree, position: 0 };
    for (page, key) in [(10, "other"), (11, "other"), (12, "key")] {
        let mut rec = RecordBuf::new();
        rec.begin(RecordKind::Data, SlotId(1), Lsn::ZERO);
        let mut before = RowsBefore::none();
        row_sections::put_insert(&mut rec, &row(page), key.as_bytes(), &mut before, (b"value", 0));
        let len = rec.body().len();
        row_sections::put_insert(&mut rec, &row(10), b"key", &mut before, (b"value", 0));
        assert_eq!(PageChanges::new(rec.body()).count(), 2);
        let mut sections = PageChanges::new(&rec.body()[len..]);
        assert!(sections.next().is_none() && !sections.is_whole());
    }
}

/// Checks that a section with the bit that is always clear is refused.
#[test]
fn a_section_about_a_row_has_no_unknown_bit() {
    let tree = Tree { index: IndexId(7), root: PageId(3) };
    let mut rec = RecordBuf::new();
    rec.begin(RecordKind::Data, SlotId(1), Lsn::ZERO);
    let at = RowAt { page: PageId(10), tree, position: 0 };
    row_sections::put_insert(&mut rec, &at, b"key", &mut RowsBefore::none(), (b"value", 0));
    let mut body = rec.body().to_vec();
    assert_eq!(PageChanges::new(&body).count(), 1);
    body[0] |= 1 << 6;
    assert_eq!(PageChanges::new(&body).count(), 0);
}

/// Checks with two trees of the same number that a leaf of the second tree is not accepted as a leaf of the first tree. Such
/// leaves are like remainders of an interrupted load.
#[test]
fn a_leaf_of_no_tree_is_not_taken_for_the_one_that_its_frame_held() {
    let db = database(LatchKind::Optimistic);
    let (mut tree, mut left_behind) = (Subject::new(&db, 0), Subject::new(&db, 1));
    let key = Keys::Numbers.key(7);
    tree.put(&Keys::Numbers.key(1), b"a row");
    left_behind.put(&key, b"a row that was never committed");
    let place = |subject: &Subject<'_>| {
        let leaf = subject.tree.find(subject.pages.pool, &key).expect(SOUND);
        (subject.pages.pool.index_of(leaf.read.frame()), leaf.read.frame().page_id())
    };
    let ((_, leaf), (frame, orphan)) = (place(&tree), place(&left_behind));
    let found = |id| tree.tree.find_in(tree.pages.pool, (frame, id), &key).map(|leaf| leaf.exact);
    assert_eq!(found(leaf), None, "the frame has another page");
    assert_eq!(found(PageId::NONE), None);
    assert_eq!(found(orphan), Some(true));
}
