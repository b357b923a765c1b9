//! Statements on some columns of a row: the bytes that they read, write, log and undo.
#![allow(clippy::single_range_in_vec_init, reason = "lists of one range of columns")]

use crate::common::open;
use storage::disk::{Crash, SimDisk};
use storage::{SecondaryIndex, Table, TxnError, columns, record};

record! {
    #[derive(Clone, Debug, PartialEq)]
    struct Account: Row("account", 1) {
        branch: u32,
        cents: i64,
        opened: u32,
        closed: bool,
        owner: String,
    }
}
columns! {
    #[derive(Clone, Debug, PartialEq)]
    struct Balance of Account { cents: i64, closed: bool }
}
columns! {
    #[derive(Clone, Debug, PartialEq)]
    struct Branch of Account { branch: u32 }
}

const ACCOUNTS: Table<u64, Account> = Table::new("accounts");

struct ByBranch;
impl SecondaryIndex for ByBranch {
    type Key = u64;
    type Row = Account;
    type By = u32;
    const NAME: &'static str = "by_branch";
    fn by(_: &u64, row: &Account) -> Option<u32> {
        Some(row.branch)
    }
}
const INDEXED: Table<u64, Account> = Table::new("indexed").with_index::<ByBranch>();

fn ada() -> Account {
    Account { branch: 3, cents: 500, opened: 2024, closed: false, owner: "Ada".repeat(50) }
}

#[test]
fn columns_are_read_and_written_and_the_others_stay() {
    let db = open(&SimDisk::new(1));
    for table in [&ACCOUNTS, &INDEXED] {
        let mut tx = db.begin().unwrap();
        assert_eq!(tx.get_columns::<_, _, Balance>(table, &1).unwrap(), None);
        assert_eq!(tx.update_columns(table, &1, |_: &mut Balance| ()).unwrap(), None);
        tx.put(table, &1, &ada()).unwrap();
        let before = tx.update_columns(table, &1, |balance: &mut Balance| {
            balance.closed = true;
            std::mem::replace(&mut balance.cents, -7)
        });
        assert_eq!(before.unwrap(), Some(500));
        assert_eq!(tx.get_columns(table, &1).unwrap(), Some(Balance { cents: -7, closed: true }));
        assert_eq!(tx.get(table, &1).unwrap(), Some(Account { cents: -7, closed: true, ..ada() }));
        tx.commit().unwrap();
    }
}

#[test]
fn an_index_follows_a_column_that_it_depends_on() {
    let db = open(&SimDisk::new(1));
    db.transact(|tx| {
        tx.put(&INDEXED, &1, &ada())?;
        tx.update_columns(&INDEXED, &1, |branch: &mut Branch| branch.branch = 9)
    })
    .unwrap();
    let tx = db.begin().unwrap();
    let of = |branch: u32| tx.range_by::<ByBranch>(&INDEXED, branch..=branch).unwrap().count();
    assert_eq!((of(3), of(9)), (0, 1));
}

#[test]
fn a_rollback_takes_back_the_columns_alone() {
    let db = open(&SimDisk::new(1));
    db.transact(|tx| tx.put(&ACCOUNTS, &1, &ada())).unwrap();
    let mut tx = db.begin().unwrap();
    tx.update_columns(&ACCOUNTS, &1, |branch: &mut Branch| branch.branch = 4).unwrap();
    let savepoint = tx.savepoint();
    tx.update_columns(&ACCOUNTS, &1, |balance: &mut Balance| balance.cents = 1).unwrap();
    tx.rollback_to(savepoint).unwrap();
    assert_eq!(tx.get(&ACCOUNTS, &1).unwrap(), Some(Account { branch: 4, ..ada() }));
    tx.rollback().unwrap();
    assert_eq!(db.begin().unwrap().get(&ACCOUNTS, &1).unwrap(), Some(ada()));
}

#[test]
fn restart_repeats_the_change_where_it_was_made() {
    let disk = SimDisk::new(2);
    let db = open(&disk);
    db.transact(|tx| tx.put(&ACCOUNTS, &1, &ada())).unwrap();
    db.transact(|tx| tx.update_columns(&ACCOUNTS, &1, |balance: &mut Balance| balance.cents = 123_456)).unwrap();
    let left = disk.crash(Crash::Nothing);
    drop(db);
    let db = open(&left);
    assert_eq!(db.begin().unwrap().get(&ACCOUNTS, &1).unwrap(), Some(Account { cents: 123_456, ..ada() }));
}

#[test]
fn what_does_not_change_is_not_logged() {
    let db = open(&SimDisk::new(1));
    db.transact(|tx| tx.put(&ACCOUNTS, &1, &ada())).unwrap();
    let logged = |cents: i64| {
        let before = db.stats().log_bytes;
        db.transact(|tx| tx.update_columns(&ACCOUNTS, &1, |balance: &mut Balance| balance.cents = cents)).unwrap();
        db.stats().log_bytes - before
    };
    assert_eq!(logged(500), 0, "nothing has changed");
    let one_byte = logged(501);
    assert!((1..200).contains(&one_byte), "{one_byte} bytes are logged for one byte of a row of 170");
}

#[test]
fn ranges_of_bytes_may_be_several_and_open() {
    let db = open(&SimDisk::new(1));
    let table = db.raw_table(&Table::<(), ()>::new("bytes")).unwrap();
    let mut tx = db.begin().unwrap();
    tx.raw_mut().insert(&table, b"k", b"0123456789").unwrap();
    let read = |tx: &storage::Transaction<'_>, parts: &[std::ops::Range<usize>]| {
        String::from_utf8(tx.raw().read_columns(&table, b"k", parts, <[u8]>::to_vec).unwrap().unwrap()).unwrap()
    };
    assert_eq!(read(&tx, &[7..9, 0..2]), "7801");
    assert_eq!(read(&tx, &[8..usize::MAX]), "89");
    assert_eq!(read(&tx, &[0..1, 5..11, 0..3]), "0", "a part that the row does not have ends it");
    let seen = tx.raw_mut().update_columns(&table, b"k", &[3..5, 8..usize::MAX, 0..1], |part, rest| {
        let seen = [part, rest].concat();
        part.copy_from_slice(b"xy");
        seen
    });
    assert_eq!(seen.unwrap().as_deref(), Some(&b"34890"[..]));
    assert_eq!(read(&tx, &[0..usize::MAX]), "012xy56789");
    assert_eq!(
        tx.raw_mut().update_columns(&table, b"k", &[5..11, 0..8], |_, _| ()).unwrap(),
        None,
        "the row is too short"
    );
    let open = tx.raw_mut().update_columns(&table, b"k", &[5..usize::MAX], |_, _| ());
    assert!(matches!(open, Err(TxnError::Schema { .. })), "{open:?}");
}

/// One statement on several keys reads the same rows as single reads: for absent, deleted and repeated keys, and short
/// rows.
#[test]
fn several_rows_are_read_as_each_alone() {
    let db = open(&SimDisk::new(1));
    let table = db.raw_table(&Table::<(), ()>::new("bytes")).unwrap();
    let key = |n: u32| n.to_be_bytes().to_vec();
    db.transact(|tx| {
        for n in (0..3000).filter(|n| n % 3 > 0) {
            let row: Vec<u8> = (0..n % 90).map(|i| (n + i) as u8).collect();
            tx.raw_mut().insert(&table, &key(n), &row)?;
        }
        Ok::<(), TxnError>(())
    })
    .unwrap();
    let mut tx = db.begin().unwrap();
    for n in (1..3000).step_by(30) {
        assert!(tx.raw_mut().delete(&table, &key(n)).unwrap());
        tx.raw_mut().update(&table, &key(n + 1), |row| row.push(7)).unwrap();
    }
    let mut rng = fastrand::Rng::with_seed(11);
    for len in [0, 1, 15, 16, 17, 60] {
        let keys: Vec<Vec<u8>> = (0..len)
            .map(|_| {
                // Neighbouring and distant keys, sometimes repeated.
                key(if rng.bool() { rng.u32(..2048) } else { 500 + rng.u32(..16) })
            })
            .collect();
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        for parts in [&[0..usize::MAX][..], &[4..8, 0..2], &[40..41], &[]] {
            let mut together = vec![None; keys.len()];
            tx.raw()
                .read_columns_of(&table, &borrowed, parts, |at, row| {
                    assert_eq!(together[at].replace(row.to_vec()), None, "each key once");
                })
                .unwrap();
            for (key, together) in borrowed.iter().zip(together) {
                let alone = tx.raw().read_columns(&table, key, parts, <[u8]>::to_vec).unwrap();
                assert_eq!(together, alone, "{key:?} {parts:?}");
            }
        }
    }
}

#[test]
fn a_row_that_is_too_short_for_its_columns_is_damage() {
    let db = open(&SimDisk::new(1));
    let mut tx = db.begin().unwrap();
    tx.raw_mut().insert(&ACCOUNTS, &1u64.to_be_bytes(), b"short").unwrap();
    assert!(matches!(tx.get_columns::<_, _, Balance>(&ACCOUNTS, &1), Err(TxnError::Decode { .. })));
    assert!(matches!(tx.update_columns(&ACCOUNTS, &1, |_: &mut Balance| ()), Err(TxnError::Decode { .. })));
}
