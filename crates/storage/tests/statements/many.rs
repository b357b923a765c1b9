//! Statements on many rows have the same results as single statements.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::Rng;
use storage::disk::MemDisk;
use storage::{Database, Options, SecondaryIndex, Table, TxnError};

const ROWS: Table<u64, Vec<u8>> = Table::new("rows");
const NAMES: Table<u32, String> = Table::new("names").with_index::<ByName>();

/// Unique index: no two rows have the same name.
struct ByName;

impl SecondaryIndex for ByName {
    type Key = u32;
    type Row = String;
    type By = String;
    const NAME: &'static str = "by_name";
    const UNIQUE: bool = true;

    fn by(_: &u32, name: &String) -> Option<String> {
        Some(name.clone())
    }
}

fn open() -> Database {
    Options::new().buffer_pool(8 << 20).transactions(8).open_on(Arc::new(MemDisk::new())).unwrap()
}

#[test]
fn many_rows_are_put_and_found_as_one_by_one() {
    let db = open();
    let mut rng = Rng::new(7);
    let mut model = BTreeMap::new();
    for _ in 0..200 {
        let mut tx = db.begin().unwrap();
        let rows: Vec<(u64, Vec<u8>)> =
            (0..rng.below(60)).map(|_| (rng.below(500), vec![rng.below(256) as u8; rng.below(300) as usize])).collect();
        tx.put_many(&ROWS, &rows).unwrap();
        let keys: Vec<u64> = (0..rng.below(60)).map(|_| rng.below(500)).collect();
        let found = tx.get_many(&ROWS, &keys).unwrap();
        let mut after = model.clone();
        after.extend(rows);
        assert_eq!(found, keys.iter().map(|key| after.get(key).cloned()).collect::<Vec<_>>());
        if rng.below(4) > 0 {
            tx.commit().unwrap();
            model = after;
        }
    }
    let tx = db.begin().unwrap();
    assert_eq!(tx.range(&ROWS, ..).unwrap().collect::<Result<BTreeMap<_, _>, _>>().unwrap(), model);
}

#[test]
fn a_row_that_cannot_be_put_takes_the_others_back() {
    let db = open();
    let name = |name: &str| name.to_owned();
    let mut tx = db.begin().unwrap();
    tx.put_many(&NAMES, &[(1, name("ada")), (2, name("grace"))]).unwrap();
    let refused = tx.put_many(&NAMES, &[(3, name("edsger")), (1, name("alan")), (4, name("grace"))]);
    assert!(matches!(refused, Err(TxnError::DuplicateKey { .. })), "{refused:?}");
    let all = [Some(name("ada")), Some(name("grace")), None, None];
    assert_eq!(tx.get_many(&NAMES, &[1, 2, 3, 4]).unwrap(), all);
    // A name that an earlier row of the statement releases is free for a later row.
    tx.put_many(&NAMES, &[(2, name("barbara")), (5, name("grace"))]).unwrap();
    assert_eq!(tx.get_many(&NAMES, &[5, 2]).unwrap(), [Some(name("grace")), Some(name("barbara"))]);
    tx.commit().unwrap();
}

#[test]
fn a_table_that_does_not_exist_has_no_rows_and_is_not_created() {
    let db = open();
    let tx = db.begin().unwrap();
    assert_eq!(tx.get_many(&ROWS, &[1, 2]).unwrap(), [None, None]);
    tx.commit().unwrap();
    assert!(db.table_names().is_empty());
}

#[test]
fn no_keys_and_no_rows_are_an_empty_statement() {
    let db = open();
    let mut tx = db.begin().unwrap();
    tx.put_many(&ROWS, &[]).unwrap();
    assert!(tx.get_many(&ROWS, &[]).unwrap().is_empty());
}
