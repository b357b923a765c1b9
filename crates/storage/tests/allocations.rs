//! Raw and typed reads, and updates in place, of rows in memory do not allocate, from the first statement of a
//! transaction on. (The first transactions of a slot allocate buffers, which are kept.)

#![allow(unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use storage::disk::MemDisk;
use storage::{Background, Database, Durability, Options, Table, Transaction};

/// The system allocator with a counter.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    /// Number of allocations requested by this thread.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

fn note() {
    // A thread that is ending also allocates, after its counter is destroyed.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
}

// SAFETY: every call is forwarded to the system allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(ptr, layout) }
    }
}

const ROWS: Table<u64, u64> = Table::new("rows");
const KEYS: u64 = 1000;

fn filled() -> Database {
    let options = Options::new().buffer_pool(4 << 20).durability(Durability::Async).background(Background::Inline);
    let db = options.open_on(Arc::new(MemDisk::new())).unwrap();
    db.transact(|tx| (0..KEYS).try_for_each(|key| tx.put(&ROWS, &key, &key))).unwrap();
    db
}

/// Returns the number of allocations of a transaction's statements after similar transactions have run.
fn asked_by(db: &Database, statements: impl Fn(&mut Transaction<'_>)) -> u64 {
    let mut asked = 0;
    for _ in 0..4 {
        let mut tx = db.begin().unwrap();
        let before = ASKED.get();
        statements(&mut tx);
        asked = ASKED.get() - before;
        tx.commit_async().unwrap();
    }
    asked
}

#[test]
fn the_counter_counts() {
    let before = ASKED.get();
    drop(std::hint::black_box(vec![1u8; 100]));
    assert_eq!(ASKED.get() - before, 1);
}

#[test]
fn reads_allocate_nothing() {
    let db = filled();
    let table = db.table(&ROWS).unwrap();
    let raw = asked_by(&db, |tx| assert!(tx.raw().read(&table, &7u64.to_be_bytes(), |_| ()).unwrap().is_some()));
    assert_eq!(raw, 0, "on bytes");
    let typed = asked_by(&db, |tx| {
        assert_eq!(tx.get(&table, &7).unwrap(), Some(7));
        assert_eq!(tx.get(&ROWS, &8).unwrap(), Some(8));
        assert_eq!(tx.get_for_update(&table, &9).unwrap(), Some(9));
        assert_eq!(tx.get(&table, &KEYS).unwrap(), None);
    });
    assert_eq!(typed, 0, "typed");
}

#[test]
fn updates_in_place_allocate_nothing() {
    let db = filled();
    let table = db.table(&ROWS).unwrap();
    let raw = asked_by(&db, |tx| {
        let change = |row: &mut Vec<u8>| row[0] ^= 1;
        assert!(tx.raw_mut().update(&table, &7u64.to_be_bytes(), change).unwrap().is_some());
    });
    assert_eq!(raw, 0, "on bytes");
    let typed = asked_by(&db, |tx| {
        assert!(tx.update(&table, &8, &9).unwrap());
        tx.put(&table, &10, &11).unwrap();
    });
    assert_eq!(typed, 0, "typed");
}
