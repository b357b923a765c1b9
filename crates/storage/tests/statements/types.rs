//! Checks of table declarations and handles: codecs, indexes, the existence of tables, and the database of a handle.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use storage::disk::MemDisk;
use storage::{AsTable, Database, Isolation, Key, Options, Row, SecondaryIndex, Table, TableLock, TxnError};

const ACCOUNTS: Table<u64, i64> = Table::new("accounts");

fn open(disk: &Arc<MemDisk>) -> Database {
    let disk = Arc::clone(disk);
    Options::new().buffer_pool(8 << 20).log_segment(1 << 20).transactions(8).open_on(disk).unwrap()
}

fn memory() -> Database {
    open(&Arc::new(MemDisk::new()))
}

/// Returns the refusal of opening `table`: part, stored codec and declared codec.
fn refused<K: Key, V: Row>(db: &Database, table: &Table<K, V>) -> Option<[String; 3]> {
    let tx = db.begin().unwrap();
    let by_statement = tx.range(table, ..).map(drop);
    drop(tx);
    match (db.table(table).map(drop), by_statement) {
        (Ok(()), Ok(())) => None,
        (Err(TxnError::OtherCodec { table: name, part, stored, asked }), Err(TxnError::OtherCodec { .. })) => {
            assert_eq!(&*name, table.name());
            Some([part, stored, asked].map(|text| text.to_string()))
        }
        other => panic!("{other:?}"),
    }
}

fn three(texts: [&str; 3]) -> Option<[String; 3]> {
    Some(texts.map(str::to_owned))
}

struct ByName;
impl SecondaryIndex for ByName {
    type Key = (u32, String);
    type Row = String;
    type By = String;
    const NAME: &'static str = "by_name";
    fn by(_: &(u32, String), row: &String) -> Option<String> {
        Some(row.clone())
    }
}

struct ByLength;
impl SecondaryIndex for ByLength {
    type Key = (u32, String);
    type Row = String;
    type By = u64;
    const NAME: &'static str = "by_name";
    fn by(_: &(u32, String), row: &String) -> Option<u64> {
        Some(row.len() as u64)
    }
}

/// Regression: a `Table<u64, String>` over a `Table<u64, i64>` returned rows that no transaction had written.
#[test]
fn a_table_is_opened_only_with_the_codecs_it_was_created_with() {
    const NAMED: Table<(u32, String), String> = Table::new("named").with_index::<ByName>();
    let disk = Arc::new(MemDisk::new());
    let db = open(&disk);
    db.transact(|tx| tx.put(&ACCOUNTS, &1, &20)).unwrap();
    db.transact(|tx| tx.put(&NAMED, &(1, "a".into()), &"b".into())).unwrap();
    // In the process that has the tables open already, and in a later one.
    let mut db = Some(db);
    for reopened in [false, true] {
        if reopened {
            db.take().unwrap().close().unwrap();
            db = Some(open(&disk));
        }
        let db = db.as_ref().unwrap();
        assert_eq!(refused(db, &Table::<u64, String>::new("accounts")), three(["row", "i64", "str"]));
        assert_eq!(refused(db, &Table::<i64, i64>::new("accounts")), three(["key", "u64", "i64"]));
        assert_eq!(refused(db, &Table::<(u64, u8), i64>::new("accounts")), three(["key", "u64", "(u64,u8)"]));
        assert_eq!(refused(db, &Table::<[u8; 8], i64>::new("accounts")), three(["key", "u64", "[u8;8]"]));
        let by_length = Table::<(u32, String), String>::new("named").with_index::<ByLength>();
        assert_eq!(refused(db, &by_length), three(["index by_name", "str", "u64"]));
        assert_eq!(refused(db, &ACCOUNTS), None);
        assert_eq!(refused(db, &NAMED), None);
        // Another declaration with the same name and types.
        assert_eq!(refused(db, &Table::<u64, i64>::new(&String::from("accounts").leak()[..])), None);
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.get(&ACCOUNTS, &1).unwrap(), Some(20));
        assert_eq!(tx.get(&NAMED, &(1, "a".into())).unwrap().as_deref(), Some("b"));
        assert!(matches!(
            tx.put(&Table::<u64, String>::new("accounts"), &1, &"x".into()),
            Err(TxnError::OtherCodec { .. })
        ));
        assert_eq!(tx.get(&ACCOUNTS, &1).unwrap(), Some(20));
    }
}

/// Rows are found by borrowed keys, without creating a new key for every access.
#[test]
fn rows_under_text_and_bytes_are_found_by_what_is_borrowed() {
    const NAMES: Table<String, u64> = Table::new("names");
    const BYTES: Table<Vec<u8>, String> = Table::new("bytes");
    /// As in a generic program that only has some key.
    fn exchange<K: Key, V: Row>(db: &Database, table: &impl AsTable<K, V>, key: &K, row: &V) -> Option<V> {
        db.transact(|tx| {
            let old = tx.get_for_update(table, key.borrow())?;
            tx.put(table, key.borrow(), row)?;
            Ok::<_, TxnError>(old)
        })
        .unwrap()
    }
    let db = memory();
    let names = db.table(&NAMES).unwrap();
    let mut tx = db.begin().unwrap();
    let owned = String::from("Ada\0");
    tx.insert(&NAMES, "Ada", &1).unwrap();
    tx.put(&names, &owned, &2).unwrap();
    assert!(matches!(tx.insert(&NAMES, &owned[..3], &3), Err(TxnError::DuplicateKey { .. })));
    assert_eq!(tx.get(&NAMES, "Ada\0").unwrap(), Some(2));
    assert_eq!(tx.get(&names, &String::from("Ada")).unwrap(), Some(1));
    assert_eq!(tx.get(&NAMES, "Ad").unwrap(), None);
    assert!(tx.update(&NAMES, "Ada", &7).unwrap() && !tx.update(&NAMES, "", &7).unwrap());
    let all: Vec<_> = tx.range(&NAMES, ..).unwrap().map(Result::unwrap).collect();
    assert_eq!(all, [("Ada".to_owned(), 7), (owned.clone(), 2)]);
    assert!(tx.delete(&NAMES, "Ada").unwrap());
    for key in [&b""[..], b"\0", b"\0\xFF", b"a"] {
        tx.put(&BYTES, key, &format!("{key:?}")).unwrap();
    }
    assert_eq!(tx.get(&BYTES, &[0, 255]).unwrap(), tx.get(&BYTES, &[0, 255]).unwrap());
    assert_eq!(tx.range(&BYTES, vec![0]..).unwrap().count(), 3);
    tx.commit().unwrap();
    assert_eq!(exchange(&db, &NAMES, &owned, &5), Some(2));
    assert_eq!(exchange(&db, &names, &owned, &6), Some(5));
    assert_eq!(exchange(&db, &ACCOUNTS, &1, &6), None);
}

#[test]
fn statements_on_bytes_ask_for_no_codec() {
    let db = memory();
    db.transact(|tx| tx.put(&ACCOUNTS, &1, &20)).unwrap();
    let raw = db.raw_table(&Table::<(), ()>::new("accounts")).unwrap();
    let tx = db.begin().unwrap();
    assert_eq!(tx.raw().read(&raw, &1u64.to_be_bytes(), <[u8]>::to_vec).unwrap(), Some(20i64.to_le_bytes().to_vec()));
    drop(tx);
    // A table created without types cannot be opened with any.
    db.raw_table(&Table::<u64, i64>::new("bytes")).unwrap();
    assert_eq!(refused(&db, &Table::<u64, i64>::new("bytes")), three(["key", "raw", "u64"]));
    db.raw_table(&Table::<(), ()>::new("bytes")).unwrap();
}

struct ByOther;
impl SecondaryIndex for ByOther {
    type Key = (u32, String);
    type Row = String;
    type By = String;
    const NAME: &'static str = "by_name";
    fn by((_, key): &(u32, String), _: &String) -> Option<String> {
        Some(key.clone())
    }
}

/// Regression: the first declaration determined the content of the index, and another one wrote entries that were never
/// found.
#[test]
fn an_index_has_one_declaration_in_a_process() {
    const FIRST: Table<(u32, String), String> = Table::new("named").with_index::<ByName>();
    const OTHER: Table<(u32, String), String> = Table::new("named").with_index::<ByOther>();
    fn first_byte(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&row[..1]);
        true
    }
    fn last_byte(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&row[row.len() - 1..]);
        true
    }
    let raw = |from, extract| Table::<u64, u64>::new("raw").with_raw_index("by_byte", false, from, extract);
    let db = memory();
    db.transact(|tx| tx.put(&FIRST, &(1, "key".into()), &"row".into())).unwrap();
    db.table(&raw(0, first_byte)).unwrap();
    let mut tx = db.begin().unwrap();
    let refused = [
        db.table(&OTHER).map(drop),
        tx.put(&OTHER, &(2, "key".into()), &"row".into()),
        tx.range_by::<ByOther>(&OTHER, ..).map(drop),
        db.table(&raw(0, last_byte)).map(drop),
        db.table(&raw(1, first_byte)).map(drop),
    ];
    for refused in refused {
        assert!(matches!(&refused, Err(TxnError::Schema { what, .. }) if what.contains("otherwise")), "{refused:?}");
    }
    drop(tx);
    db.table(&FIRST).unwrap();
    db.table(&raw(0, first_byte)).unwrap();
    // Another index of the same name, on a table that was declared with the first one.
    let tx = db.begin().unwrap();
    assert!(matches!(tx.range_by::<ByOther>(&FIRST, ..), Err(TxnError::Schema { .. })));
    assert_eq!(tx.range_by::<ByName>(&FIRST, ..).unwrap().count(), 1);
}

/// Regression: a handle of another database was accepted for the table with the same number.
#[test]
fn a_handle_is_good_for_the_open_database_that_gave_it() {
    const OTHER: Table<u64, i64> = Table::new("other");
    let (disk, one) = (Arc::new(MemDisk::new()), memory());
    let two = open(&disk);
    let handle = one.table(&ACCOUNTS).unwrap();
    let number_two = two.table(&OTHER).unwrap();
    two.transact(|tx| tx.put(&number_two, &1, &7)).unwrap();
    let check = |db: &Database, handle| {
        let mut tx = db.begin().unwrap();
        let refused = [
            tx.get(&handle, &1).map(drop),
            tx.put(&handle, &1, &1),
            tx.delete(&handle, &1).map(drop),
            tx.range(&handle, ..).map(drop),
            tx.lock_table(&handle, TableLock::Shared),
            tx.prefetch(&handle, &[1]),
            db.bulk_load(&handle).map(drop),
            db.bulk_load_part(&handle, storage::Part::Rows).map(drop),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(TxnError::ForeignHandle { .. })), "{refused:?}");
        }
    };
    check(&two, handle);
    check(&one, number_two);
    two.close().unwrap();
    let two = open(&disk);
    two.table(&OTHER).unwrap();
    check(&two, number_two);
}

#[test]
fn only_writes_create_a_table() {
    let db = memory();
    const MISSPELT: Table<u64, i64> = Table::new("acounts");
    let bytes = 1u64.to_be_bytes();
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.get(&MISSPELT, &1).unwrap(), None);
    assert_eq!(tx.get_for_update(&MISSPELT, &1).unwrap(), None);
    assert_eq!(tx.range(&MISSPELT, ..).unwrap().count(), 0);
    assert_eq!(tx.range(&MISSPELT, ..).unwrap().rev().count(), 0);
    assert!(!tx.update(&MISSPELT, &1, &1).unwrap() && !tx.delete(&MISSPELT, &1).unwrap());
    assert_eq!(tx.raw().read(&MISSPELT, &bytes, |_| ()).unwrap(), None);
    assert_eq!(tx.raw_mut().update(&MISSPELT, &bytes, |_| ()).unwrap(), None);
    assert_eq!(tx.raw_mut().update_head(&MISSPELT, &bytes, 1, |_, _| ()).unwrap(), None);
    assert_eq!(tx.raw_mut().update_heads(&MISSPELT, &[&bytes], 1, |_, _, _| ()).unwrap(), 0);
    assert_eq!(tx.raw_mut().update_run(&MISSPELT, &[], &bytes, |_, _| ()).unwrap(), 0);
    assert!(!tx.raw_mut().delete(&MISSPELT, &bytes).unwrap());
    assert_eq!(tx.raw_mut().take_first(&MISSPELT, &[], &bytes).unwrap(), None);
    tx.raw().scan(&MISSPELT, &[], &bytes, |_, _| ControlFlow::Continue(())).unwrap();
    tx.raw().scan_index(&MISSPELT, 0, &[], &bytes, false, |_, _| ControlFlow::Continue(())).unwrap();
    tx.prefetch(&MISSPELT, &[1]).unwrap();
    tx.lock_table(&MISSPELT, TableLock::Shared).unwrap();
    tx.lock_table(&MISSPELT, TableLock::IntentShared).unwrap();
    assert!(db.table_names().is_empty());
    // The absence that the transaction itself has locked does not block it.
    tx.put(&MISSPELT, &1, &2).unwrap();
    assert_eq!(tx.get(&MISSPELT, &1).unwrap(), Some(2));
    assert_eq!(db.table_names(), ["acounts"]);
    // The rows are rolled back, the table stays.
    tx.rollback().unwrap();
    assert_eq!(db.table_names(), ["acounts"]);
    assert_eq!(db.begin().unwrap().get(&MISSPELT, &1).unwrap(), None);
    db.begin().unwrap().lock_table(&Table::<u64, u64>::new("locked"), TableLock::Exclusive).unwrap();
    assert_eq!(db.table_names(), ["acounts", "locked"]);
}

/// A transaction that found a table empty because it did not exist finds it empty until its end.
#[test]
fn a_table_that_was_read_before_it_existed_stays_empty_to_its_reader() {
    type Create = fn(&Database);
    let creations: [Create; 3] = [
        |db| assert!(db.table(&ACCOUNTS).is_ok()),
        |db| assert!(db.raw_table(&ACCOUNTS).is_ok()),
        |db| db.transact(|tx| tx.put(&ACCOUNTS, &1, &5)).unwrap(),
    ];
    for isolation in [Isolation::Serializable, Isolation::RepeatableRead] {
        for create in creations {
            let db = &memory();
            let reader = db.begin_at(isolation).unwrap();
            assert_eq!(reader.get(&ACCOUNTS, &1).unwrap(), None);
            thread::scope(|scope| {
                let creator = scope.spawn(move || create(db));
                while db.stats().lock_waits == 0 {
                    assert!(!creator.is_finished(), "nothing kept the table from being created");
                    thread::yield_now();
                }
                assert_eq!(reader.range(&ACCOUNTS, ..).unwrap().count(), 0);
                assert!(db.table_names().is_empty());
                reader.commit().unwrap();
            });
            assert_eq!(db.table_names(), ["accounts"]);
        }
        // At lower levels no lock prevents new rows.
        let db = memory();
        let reader = db.begin_at(Isolation::ReadCommitted).unwrap();
        assert_eq!(reader.get(&ACCOUNTS, &1).unwrap(), None);
        db.table(&ACCOUNTS).unwrap();
    }
}

/// Concurrent increments in tables that do not exist yet: no increment is lost, and no thread hangs.
#[test]
fn counting_from_nothing_loses_nothing() {
    const THREADS: i64 = 4;
    let db = &memory();
    for round in 0..40 {
        let name: &'static str = format!("count{round}").leak();
        let table = Table::<u64, i64>::new(name);
        let other = Table::<u64, i64>::new(format!("other{round}").leak());
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (table, other) = (&table, &other);
                scope.spawn(move || {
                    let (first, second) = if thread % 2 == 0 { (table, other) } else { (other, table) };
                    db.transact(|tx| {
                        let seen = match thread / 2 {
                            0 => (tx.get(first, &0)?, tx.get(second, &0)?),
                            _ => (tx.get_for_update(first, &0)?, tx.get_for_update(second, &0)?),
                        };
                        tx.put(first, &0, &(seen.0.unwrap_or(0) + 1))?;
                        tx.put(second, &0, &(seen.1.unwrap_or(0) + 1))
                    })
                    .unwrap();
                });
            }
        });
        let tx = db.begin().unwrap();
        assert_eq!((tx.get(&table, &0).unwrap(), tx.get(&other, &0).unwrap()), (Some(THREADS), Some(THREADS)));
    }
}
