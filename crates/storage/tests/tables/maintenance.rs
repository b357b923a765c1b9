//! Calls that change whole tables use no transaction slots of the program.

use std::sync::Arc;

use storage::disk::MemDisk;
use storage::{Database, OpenTable, Options, Part, SecondaryIndex, StorageError, Table, TxnError};

struct ByValue;

impl SecondaryIndex for ByValue {
    type Key = u64;
    type Row = u64;
    type By = u64;
    const NAME: &'static str = "by_value";
    fn by(_: &u64, row: &u64) -> Option<u64> {
        Some(*row)
    }
}

const PLAIN: Table<u64, u64> = Table::new("rows");
const INDEXED: Table<u64, u64> = Table::new("rows").with_index::<ByValue>();
const OTHER: Table<u64, u64> = Table::new("other");
const LOADED: Table<u64, u64> = Table::new("loaded").with_index::<ByValue>();

fn open(transactions: usize) -> Database {
    Options::new().buffer_pool(2 << 20).transactions(transactions).open_on(Arc::new(MemDisk::new())).unwrap()
}

fn is_full(db: &Database) {
    assert!(matches!(db.begin(), Err(TxnError::Storage(StorageError::TooManyTransactions { .. }))));
}

/// Loads one table as a whole, then another one by its parts on two threads.
fn load(db: &Database, table: &OpenTable<u64, u64>) {
    let mut whole = db.bulk_load(table).unwrap();
    for key in 0..500u64 {
        whole.push(&key, &(1000 - key)).unwrap();
    }
    is_full(db);
    assert_eq!(whole.finish().unwrap(), 500);
    assert!(db.truncate("loaded").unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rows = db.bulk_load_part(table, Part::Rows).unwrap();
            (0..500u64).for_each(|key| rows.push_raw(&key.to_be_bytes(), &(1000 - key).to_le_bytes()).unwrap());
            assert_eq!(rows.finish().unwrap(), 500);
        });
        scope.spawn(|| {
            let mut entries = db.bulk_load_part(table, Part::Index(0)).unwrap();
            for value in 501..=1000u64 {
                let key = (1000 - value).to_be_bytes();
                entries.push_raw(&[value.to_be_bytes(), key].concat(), &key).unwrap();
            }
            assert_eq!(entries.finish().unwrap(), 500);
        });
    });
}

/// Every such call, while the maximum number of transactions is open and all have written.
#[test]
fn a_full_server_is_maintained() {
    for transactions in [1, 2, 128] {
        let db = open(transactions);
        db.transact(|tx| (0..300).try_for_each(|key| tx.put(&PLAIN, &key, &(key * 7 % 300)))).unwrap();
        let mut all: Vec<_> = (0..transactions).map(|_| db.begin().unwrap()).collect();
        for (n, tx) in all.iter_mut().enumerate() {
            tx.put(&OTHER, &(n as u64), &1).unwrap();
        }
        is_full(&db);
        let table = db.alter_indexes(&INDEXED).unwrap();
        assert!(db.truncate("rows").unwrap());
        db.alter_indexes(&PLAIN).unwrap();
        db.checkpoint().unwrap();
        let loaded = db.table(&LOADED).unwrap();
        load(&db, &loaded);
        db.sizes().unwrap();
        db.verify_pages().unwrap();
        let structure = db.check_structure(|_, _| std::ops::ControlFlow::Continue(())).unwrap();
        assert!(structure.passed(), "{:?}", structure.findings);
        assert!(db.drop_table("rows").unwrap() && db.drop_table("loaded").unwrap());
        is_full(&db);
        for tx in all {
            tx.commit().unwrap();
        }
        let tx = db.begin().unwrap();
        assert!(matches!(tx.get(&table, &1), Err(TxnError::Dropped { .. })));
        drop(tx);
        assert_eq!(db.begin().unwrap().count(&OTHER, ..).unwrap(), transactions as u64);
    }
}

/// With more concurrent loads than slots, the next load is refused, and succeeds after one has ended.
#[test]
fn loads_have_a_limit_of_their_own() {
    let db = open(1);
    let tables: Vec<OpenTable<u64, u64>> = (0..65)
        .map(|n| db.table(&Table::<u64, u64>::new(Box::leak(format!("table {n}").into_boxed_str()))).unwrap())
        .collect();
    let mut loads: Vec<_> = tables[..64].iter().map(|table| db.bulk_load(table).unwrap()).collect();
    let refused = db.bulk_load(&tables[64]).unwrap_err();
    assert!(
        matches!(&refused, TxnError::Storage(error @ StorageError::TooMuchMaintenance { limit: 64 }) if error.is_retryable()),
        "{refused}"
    );
    // User transactions, and the creation of a table, do not count.
    db.transact(|tx| tx.put(&PLAIN, &1, &1)).unwrap();
    drop(loads.pop());
    let mut last = db.bulk_load(&tables[64]).unwrap();
    last.push(&1, &1).unwrap();
    assert_eq!(last.finish().unwrap(), 1);
    drop(loads);
    assert!(db.drop_table("table 3").unwrap());
}
