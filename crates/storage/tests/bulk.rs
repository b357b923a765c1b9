//! Bulk loads beside transactions that use the table.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test: a failure is told where it happens")]

use std::ops::ControlFlow;
use std::sync::Arc;

use storage::disk::MemDisk;
use storage::{Options, Part, Table, Transaction, TxnError};

const ROWS: Table<u64, u64> = Table::new("rows");

fn rows(tx: &mut Transaction<'_>) -> usize {
    let mut rows = 0;
    let visit = |_: &[u8], _: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    tx.scan_raw(&ROWS, &[], &[255; 9], visit).unwrap();
    rows
}

/// A part of a table appears when nobody relies on the table's being empty any more.
#[test]
fn a_part_waits_for_the_readers_of_the_empty_table() {
    let db = Options::new().buffer_pool(8 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
    let table = db.table(&ROWS).unwrap();
    let mut reader = db.begin().unwrap();
    assert_eq!(rows(&mut reader), 0);
    std::thread::scope(|scope| {
        let (db, table) = (&db, &table);
        let load = scope.spawn(move || {
            let mut part = db.bulk_load_part(table, Part::Rows).unwrap();
            for key in 0..1000u64 {
                part.push_raw(&key.to_be_bytes(), &[0; 8]).unwrap();
            }
            part.finish().unwrap()
        });
        while db.stats().lock_waits == 0 && !load.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(rows(&mut reader), 0, "rows that were not there before");
        reader.commit().unwrap();
        assert_eq!(load.join().unwrap(), 1000);
    });
    assert_eq!(rows(&mut db.begin().unwrap()), 1000);
}

/// A row that comes into the table while a part is loaded stays, and the part is refused.
#[test]
fn a_part_of_a_table_that_is_no_longer_empty_is_refused() {
    let db = Options::new().buffer_pool(8 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
    let table = db.table(&ROWS).unwrap();
    let mut part = db.bulk_load_part(&table, Part::Rows).unwrap();
    part.push_raw(&7u64.to_be_bytes(), &[0; 8]).unwrap();
    db.transact(|tx| tx.put(&ROWS, &1, &1)).unwrap();
    assert!(matches!(part.finish(), Err(TxnError::Schema { .. })));
    assert_eq!(rows(&mut db.begin().unwrap()), 1);
    db.verify_pages().unwrap();
}
