//! The structure check: it passes sound databases, and finds each kind of planted damage. Checksums are recomputed, so
//! that no other check finds the damage first.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{NUMBERS, ROWS, Rng, small};
use storage::disk::{Disk, MemDisk, OpenMode};
use storage::{Database, Rule, Structure};

const PAGE: usize = 8192;
/// Offsets of fields of a page, see `FORMAT.md`; the length of a fence follows its offset.
const LSN: usize = 64;
const HEAP_FREE: usize = 80;
const GHOSTS: usize = 82;
const LOW: usize = 84;
const HIGH: usize = 88;
const RIGHT: usize = 72;
const KIND: usize = 8;
const COUNT: usize = 10;
const INDEX: usize = 12;
const PREFIX: usize = 16;
const HINTS: usize = 32;
const SLOTS: usize = 96;
/// Offsets of fields of the allocator's page.
const SPACE_END: usize = 32;
const SPACE_FREE: usize = 36;
const FREE: u8 = 0;
const LEAF: u8 = 1;
const INNER: u8 = 2;
/// Numbers of the indexes in the order of their creation: the catalog's own is 1.
const ROWS_BY_KEY: u32 = 2;
const ROWS_BY_HEAD: u32 = 3;
const BY_NUMBER: u32 = 4;

/// All files of a closed database: names and contents.
type Files = Vec<(String, Vec<u8>)>;

fn options() -> storage::Options {
    small().buffer_pool(4 << 20)
}

fn made() -> Files {
    let disk = MemDisk::new();
    let db = options().open_on(Arc::new(disk.clone())).unwrap();
    let (rows, numbers) = (db.table(&ROWS).unwrap(), db.table(&NUMBERS).unwrap());
    let mut rng = Rng::new(3);
    db.transact(|tx| {
        (0..2000u64).try_for_each(|n| tx.put(&numbers, &n, &n))?;
        (0..600u32).try_for_each(|n| tx.put(&rows, n.to_be_bytes().as_ref(), &rng.bytes(100)))
    })
    .unwrap();
    // Pages are freed when scans find ghosts and leaves merge.
    db.transact(|tx| (500..1500).try_for_each(|n| tx.delete(&numbers, &n).map(drop))).unwrap();
    for _ in 0..3 {
        db.transact(|tx| tx.range(&numbers, ..)?.try_for_each(|row| row.map(drop))).unwrap();
    }
    db.close().unwrap();
    let read = |name: String| {
        let file = disk.open(&name, OpenMode::Existing).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        (name, bytes)
    };
    disk.list().unwrap().into_iter().map(read).collect()
}

fn open(files: &Files) -> Database {
    let disk = MemDisk::new();
    for (name, bytes) in files {
        disk.open(name, OpenMode::Create).unwrap().write_at(bytes, 0).unwrap();
    }
    let db = options().open_on(Arc::new(disk)).unwrap();
    db.table(&ROWS).unwrap();
    db.table(&NUMBERS).unwrap();
    db
}

fn check(files: &Files) -> Structure {
    open(files).check_structure(|_, _| ControlFlow::Continue(())).unwrap()
}

/// The data file, for planting damage.
struct Pages<'a>(&'a mut Vec<u8>);

impl Pages<'_> {
    fn page(&mut self, number: u32) -> &mut [u8] {
        &mut self.0[number as usize * PAGE..][..PAGE]
    }

    fn u16(&mut self, number: u32, at: usize) -> u16 {
        u16::from_le_bytes(self.page(number)[at..at + 2].try_into().unwrap())
    }

    fn u32(&mut self, number: u32, at: usize) -> u32 {
        u32::from_le_bytes(self.page(number)[at..at + 4].try_into().unwrap())
    }

    fn put(&mut self, number: u32, at: usize, bytes: &[u8]) {
        self.page(number)[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = crc_fast::crc32_iscsi(&self.page(number)[4..]);
        self.page(number)[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Returns the first page of a kind (and, unless free, of an index) for which `fits` returns true.
    fn find(&mut self, kind: u8, index: u32, fits: impl Fn(&mut Self, u32) -> bool) -> u32 {
        let end = self.u32(1, SPACE_END);
        (3..end)
            .find(|n| {
                let is_kind = self.page(*n)[KIND] == kind && self.u32(*n, 4) == *n;
                is_kind && (kind == FREE || self.u32(*n, INDEX) == index) && fits(self, *n)
            })
            .expect("the database has such a page")
    }
}

/// Damages a copy with `plant`, which returns the page and the violated rule; the check must report both.
fn found(plant: impl FnOnce(&mut Pages<'_>) -> (u32, Rule)) -> Structure {
    let mut files = made();
    let data = files.iter_mut().find(|(name, _)| name == "pages.0").unwrap();
    let (page, rule) = plant(&mut Pages(&mut data.1));
    let result = check(&files);
    let hit = result.findings.iter().any(|f| f.rule == rule && f.page.0 == page && f.file.ends_with("pages.0"));
    assert!(hit, "page {page} breaks '{rule}', but found was {:?}", result.findings);
    assert!(!result.passed());
    result
}

/// Checks that all findings are of this rule.
fn only(result: &Structure, rule: Rule) {
    assert!(result.findings.iter().all(|f| f.rule == rule), "{:?}", result.findings);
}

fn many_rows(pages: &mut Pages<'_>, n: u32) -> bool {
    pages.u16(n, COUNT) >= 40
}

#[test]
fn what_the_engine_makes_passes() {
    let result = check(&made());
    assert!(result.passed(), "{:?}", result.findings);
    assert_eq!(result.rows, 1000 + 600 + 3, "rows, and the catalog's");
    assert_eq!(result.entries, 600);
    assert_eq!(result.trees, 6, "the catalog, and of each table rows and large values; an index");
    assert!(result.free >= 2, "{} free pages", result.free);
}

/// Each check pauses the purge service; neither waits for the other.
#[test]
fn a_check_may_run_within_another() {
    let db = open(&made());
    let mut inner = None;
    let outer = db.check_structure(|_, _| {
        inner.get_or_insert_with(|| db.check_structure(|_, _| ControlFlow::Continue(())).unwrap());
        ControlFlow::Continue(())
    });
    assert!(outer.unwrap().passed() && inner.unwrap().passed());
}

#[test]
fn it_can_be_broken_off() {
    let files = made();
    let result = open(&files).check_structure(|_, _| ControlFlow::Break(())).unwrap();
    assert!(result.cancelled && !result.passed(), "{result:?}");
}

#[test]
fn a_page_that_fails_its_checksum() {
    found(|pages| {
        let page = pages.find(LEAF, BY_NUMBER, many_rows);
        pages.page(page)[5000] ^= 1;
        (page, Rule::Readable)
    });
}

#[test]
fn a_page_in_the_place_of_another() {
    found(|pages| {
        let (from, to) = (pages.find(LEAF, BY_NUMBER, many_rows), pages.find(LEAF, ROWS_BY_KEY, |_, _| true));
        let bytes = pages.page(from).to_vec();
        pages.page(to).copy_from_slice(&bytes);
        (to, Rule::Readable)
    });
}

#[test]
fn a_layout_that_does_not_add_up() {
    found(|pages| {
        let page = pages.find(LEAF, BY_NUMBER, many_rows);
        let free = pages.u16(page, HEAP_FREE) + 1;
        pages.put(page, HEAP_FREE, &free.to_le_bytes());
        (page, Rule::Layout)
    });
}

#[test]
fn keys_out_of_order() {
    found(|pages| {
        let page = pages.find(LEAF, BY_NUMBER, many_rows);
        let slots = pages.page(page)[SLOTS..SLOTS + 24].to_vec();
        pages.put(page, SLOTS, &[&slots[12..], &slots[..12]].concat());
        (page, Rule::KeyOrder)
    });
}

#[test]
fn a_hint_that_is_no_slots_head() {
    found(|pages| {
        let page = pages.find(LEAF, BY_NUMBER, many_rows);
        let hint = pages.u32(page, HINTS + 12) ^ 1;
        pages.put(page, HINTS + 12, &hint.to_le_bytes());
        (page, Rule::HintKeys)
    });
}

#[test]
fn a_fence_that_is_not_the_parents_separator() {
    let result = found(|pages| {
        let has_high = |pages: &mut Pages<'_>, n: u32| pages.u16(n, HIGH + 2) > 0;
        let page = pages.find(LEAF, ROWS_BY_KEY, has_high);
        let last = usize::from(pages.u16(page, HIGH) + pages.u16(page, HIGH + 2)) - 1;
        let above = pages.page(page)[last] + 1;
        pages.put(page, last, &[above]);
        (page, Rule::FenceKeys)
    });
    only(&result, Rule::FenceKeys);
}

#[test]
fn a_child_that_two_separators_lead_to() {
    found(|pages| {
        let page = pages.find(INNER, BY_NUMBER, |pages, n| pages.u16(n, COUNT) >= 2);
        let second = pages.u32(page, SLOTS + 12 + 8);
        pages.put(page, SLOTS + 8, &second.to_le_bytes());
        (page, Rule::Children)
    });
}

#[test]
fn a_leaf_that_names_the_wrong_neighbour() {
    let result = found(|pages| {
        let page = pages.find(LEAF, ROWS_BY_KEY, |pages, n| pages.u32(n, RIGHT) != 0);
        pages.put(page, RIGHT, &2u32.to_le_bytes());
        (page, Rule::SiblingLinks)
    });
    only(&result, Rule::SiblingLinks);
}

#[test]
fn a_free_list_that_leads_into_a_tree() {
    found(|pages| {
        let leaf = pages.find(LEAF, BY_NUMBER, |_, _| true);
        pages.put(1, SPACE_FREE, &leaf.to_le_bytes());
        (1, Rule::FreeList)
    });
}

/// A thread that splits a leaf which the free list also contains holds the leaf's latch, and must not wait for it.
#[test]
fn who_takes_a_page_of_a_tree_from_the_free_list_is_told() {
    let mut files = made();
    let data = files.iter_mut().find(|(name, _)| name == "pages.0").unwrap();
    let mut pages = Pages(&mut data.1);
    let end = pages.u32(1, SPACE_END);
    let last = pages.find(LEAF, BY_NUMBER, |pages, n| !(3..end).contains(&pages.u32(n, RIGHT)));
    pages.put(1, SPACE_FREE, &last.to_le_bytes());
    let (send, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let db = open(&files);
        let numbers = db.table(&NUMBERS).unwrap();
        let ended = db.transact(|tx| (2000..9000u64).try_for_each(|n| tx.put(&numbers, &n, &n)));
        send.send(ended.unwrap_err().to_string()).unwrap();
    });
    // After minutes without an end it hangs, and is not merely slow.
    let told = told.recv_timeout(std::time::Duration::from_secs(600)).expect("it waits for ever");
    assert!(told.contains(&format!("page {last} is free, but it is in use")), "{told}");
}

#[test]
fn a_free_list_that_goes_round() {
    found(|pages| {
        let free = pages.u32(1, SPACE_FREE);
        pages.put(free, RIGHT, &free.to_le_bytes());
        (free, Rule::FreeList)
    });
}

#[test]
fn a_row_without_its_entry() {
    let result = found(|pages| {
        let index = pages.find(LEAF, ROWS_BY_HEAD, |_, _| true);
        // The entry becomes a ghost; its value is the key of the row.
        let (offset, key) = (usize::from(pages.u16(index, SLOTS + 4)), usize::from(pages.u16(index, SLOTS + 6)));
        let primary = pages_key(pages.page(index), offset + 4 + key);
        let ghosts = pages.u16(index, GHOSTS) + 1;
        pages.put(index, GHOSTS, &ghosts.to_le_bytes());
        pages.put(index, SLOTS + 10, &1u16.to_le_bytes());
        (holder_of(pages, &primary), Rule::Secondary)
    });
    only(&result, Rule::Secondary);
}

/// Returns the key in an entry's value at `at`: up to the two zeros that end it.
fn pages_key(page: &[u8], at: usize) -> Vec<u8> {
    let mut end = at;
    while !(page[end] == 0 && page[end + 1] == 0) {
        end += if page[end] == 0 { 2 } else { 1 };
    }
    page[at..end + 2].to_vec()
}

/// Returns the leaf of rows that contains a key.
fn holder_of(pages: &mut Pages<'_>, key: &[u8]) -> u32 {
    let key = key.to_vec();
    pages.find(LEAF, ROWS_BY_KEY, |pages, n| {
        let prefix = usize::from(pages.u16(n, PREFIX));
        let low = usize::from(pages.u16(n, LOW));
        let start = pages.page(n)[low..low + prefix].to_vec();
        (0..usize::from(pages.u16(n, COUNT))).any(|i| {
            let slot = SLOTS + 12 * i;
            let (at, len) = (usize::from(pages.u16(n, slot + 4)) + 4, usize::from(pages.u16(n, slot + 6)));
            [&start, &pages.page(n)[at..at + len]].concat() == key
        })
    })
}

#[test]
fn an_entry_without_its_row() {
    let result = found(|pages| {
        let page = pages.find(LEAF, ROWS_BY_KEY, |_, _| true);
        let (offset, len) = (usize::from(pages.u16(page, SLOTS + 4)), usize::from(pages.u16(page, SLOTS + 6)));
        let (low, prefix) = (usize::from(pages.u16(page, LOW)), usize::from(pages.u16(page, PREFIX)));
        let bytes = pages.page(page);
        let key = [&bytes[low..low + prefix], &bytes[offset + 4..offset + 4 + len]].concat();
        let ghosts = pages.u16(page, GHOSTS) + 1;
        pages.put(page, GHOSTS, &ghosts.to_le_bytes());
        pages.put(page, SLOTS + 10, &1u16.to_le_bytes());
        let holds = |pages: &mut Pages<'_>, n: u32| pages.page(n).windows(key.len()).any(|bytes| bytes == key);
        (pages.find(LEAF, ROWS_BY_HEAD, holds), Rule::Primary)
    });
    only(&result, Rule::Primary);
}

#[test]
fn a_page_from_the_future() {
    let result = found(|pages| {
        let page = pages.find(LEAF, BY_NUMBER, |_, _| true);
        pages.put(page, LSN, &(1u64 << 50).to_le_bytes());
        // The page is refused when it is read; the rule on LSNs remains for pages that changed in memory.
        (page, Rule::Readable)
    });
    assert!(result.findings.iter().any(|f| f.what.contains("its LSN is")), "{:?}", result.findings);
}

#[test]
fn pages_that_belong_to_nobody() {
    let result = found(|pages| {
        let free = pages.u32(1, SPACE_FREE);
        pages.put(1, SPACE_FREE, &0u32.to_le_bytes());
        (free, Rule::Orphan)
    });
    only(&result, Rule::Orphan);
}
