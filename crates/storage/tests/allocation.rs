//! Reads, and updates in place, of rows in memory do not allocate.
#![allow(unsafe_code, clippy::unwrap_used, reason = "an allocator that counts; a failure is told where it happens")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use storage::disk::MemDisk;
use storage::{Options, Table, Transaction};

const NUMBERS: Table<u64, u64> = Table::new("numbers");
const NAMES: Table<String, u64> = Table::new("names");
const BYTES: Table<Vec<u8>, [u8; 40]> = Table::new("bytes");

thread_local! {
    /// Number of allocations of this thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is forwarded to the system allocator with unchanged arguments. The counter is constant-initialized
// and has no destructor, so using it does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_row_is_found_by_a_borrowed_key_without_an_allocation() {
    let db = Options::new().buffer_pool(8 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
    let texts: Vec<String> = (0..200u64).map(|n| format!("name {n}")).collect();
    db.transact(|tx| {
        texts.iter().try_for_each(|name| {
            tx.put(&NUMBERS, &(name.len() as u64), &1)?;
            tx.put(&BYTES, name.as_bytes(), &[7; 40])?;
            tx.put(&NAMES, name, &1)
        })
    })
    .unwrap();
    let mut tx = db.begin().unwrap();
    let once = |tx: &mut Transaction<'_>, round: u64| {
        for name in &texts {
            assert_eq!(tx.get(&NAMES, name.as_str()).unwrap(), Some(round));
            assert_eq!(tx.get(&BYTES, name.as_bytes()).unwrap(), Some([7; 40]));
            tx.get_for_update(&NUMBERS, &(name.len() as u64)).unwrap().unwrap();
            assert!(tx.update(&NAMES, name.as_str(), &(round + 1)).unwrap());
        }
    };
    // Warm-up: buffers grow, locks are taken, the tables are opened.
    once(&mut tx, 1);
    let before = ALLOCATIONS.get();
    once(&mut tx, 2);
    assert_eq!(ALLOCATIONS.get() - before, 0);
    drop(Vec::<u8>::with_capacity(10));
    assert_eq!(ALLOCATIONS.get() - before, 1, "the counter counts");
}
