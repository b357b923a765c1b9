//! A table with an index is compared with an ordered map: random statements, rollbacks, closing and opening, with a
//! pool that holds a part of the rows.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::common::{ByHead, ROWS};
use proptest::prelude::*;
use storage::disk::MemDisk;
use storage::{Database, Isolation, LatchKind, Options, TxnError};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, usize, u8),
    Put(u16, usize, u8),
    Delete(u16),
    /// Deletes all rows of a range: leaves ghosts, merges pages, shrinks the root.
    Clear(u16, u16),
    /// Inserts ascending keys in the middle.
    Run(u16, usize),
    Get(u16),
    Range(u16, u16, bool),
    /// Reads from both ends alternately.
    BothEnds(u16, u16),
    ByHead(u8, bool),
    Commit,
    Rollback,
    Reopen,
}

/// Returns keys of 0 to 2046 bytes (2048 encoded), in another order than their numbers.
fn key(n: u16) -> Vec<u8> {
    if n == 0 {
        return Vec::new();
    }
    let mut key = vec![1 + (n % 5) as u8, 1 + (n / 5 % 200) as u8, 1 + (n / 1000) as u8];
    if n.is_multiple_of(11) {
        key.resize(3 + usize::from(n) * 31 % 2044, 255);
    }
    key
}

fn step() -> impl Strategy<Value = Step> {
    let n = || prop_oneof![0u16..40, 0u16..1500];
    let len = || prop_oneof![3 => 0usize..4, 6 => 0usize..300, 2 => 300usize..2000, 1 => 3900usize..4100, 1 => 4100usize..20_000];
    prop_oneof![
        8 => (n(), len(), any::<u8>()).prop_map(|(k, l, b)| Step::Insert(k, l, b)),
        12 => (n(), len(), any::<u8>()).prop_map(|(k, l, b)| Step::Put(k, l, b)),
        6 => n().prop_map(Step::Delete),
        1 => (n(), n()).prop_map(|(a, b)| Step::Clear(a, b)),
        3 => (n(), 1usize..300).prop_map(|(k, l)| Step::Run(k, l)),
        3 => n().prop_map(Step::Get),
        2 => (n(), n(), any::<bool>()).prop_map(|(a, b, back)| Step::Range(a, b, back)),
        1 => (n(), n()).prop_map(|(a, b)| Step::BothEnds(a, b)),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(b, back)| Step::ByHead(b, back)),
        3 => Just(Step::Commit),
        1 => Just(Step::Rollback),
        1 => Just(Step::Reopen),
    ]
}

fn row(len: usize, byte: u8) -> Vec<u8> {
    (0..len).map(|i| byte.wrapping_add((i % 7) as u8)).collect()
}

/// Returns true if the index entry exceeds the maximum length, which is possible with a long key.
fn too_long(key: &[u8], row: &[u8]) -> bool {
    let head = &row[..row.len().min(2)];
    let zeros = head.iter().filter(|b| **b == 0).count();
    !row.is_empty() && head.len() + zeros + 2 + key.len() + 2 > 2048
}

fn open(disk: &Arc<MemDisk>, latches: LatchKind, isolation: Isolation) -> Database {
    Options::new()
        .buffer_pool(1 << 20)
        .log_segment(1 << 20)
        .log_buffer(1 << 20)
        .latches(latches)
        .isolation(isolation)
        .transactions(4)
        .open_on(disk.clone())
        .unwrap()
}

fn check_all(db: &Database, model: &Model) {
    let tx = db.begin().unwrap();
    assert!(tx.range(&ROWS, ..).unwrap().map(Result::unwrap).eq(model.iter().map(|(k, r)| (k.clone(), r.clone()))));
    let rev = tx.range(&ROWS, ..).unwrap().rev().map(Result::unwrap);
    assert!(rev.eq(model.iter().rev().map(|(k, r)| (k.clone(), r.clone()))));
    let n = tx.range_by::<ByHead>(&ROWS, ..).unwrap().map(Result::unwrap).count();
    assert_eq!(n, model.values().filter(|r| !r.is_empty()).count());
}

fn run(steps: &[Step], latches: LatchKind, isolation: Isolation) -> Result<(), TestCaseError> {
    let disk = Arc::new(MemDisk::new());
    let mut db = open(&disk, latches, isolation);
    db.table(&ROWS).unwrap();
    let mut committed = Model::new();
    let mut rest = steps;
    while !rest.is_empty() {
        let mut model = committed.clone();
        let mut tx = db.begin().unwrap();
        let mut ended = None;
        while let Some((step, more)) = rest.split_first() {
            rest = more;
            match step {
                Step::Insert(k, l, b) => {
                    let (key, row) = (key(*k), row(*l, *b));
                    let expect_long = too_long(&key, &row);
                    match tx.insert(&ROWS, &key, &row) {
                        Ok(()) => {
                            prop_assert!(!expect_long);
                            prop_assert!(model.insert(key, row).is_none());
                        }
                        Err(TxnError::DuplicateKey { .. }) => prop_assert!(model.contains_key(&key)),
                        Err(TxnError::KeyTooLong { .. }) => prop_assert!(expect_long),
                        Err(error) => return Err(TestCaseError::fail(error.to_string())),
                    }
                }
                Step::Put(k, l, b) => {
                    let (key, row) = (key(*k), row(*l, *b));
                    match tx.put(&ROWS, &key, &row) {
                        Ok(()) => drop(model.insert(key, row)),
                        Err(TxnError::KeyTooLong { .. }) => prop_assert!(too_long(&key, &row)),
                        Err(error) => return Err(TestCaseError::fail(error.to_string())),
                    }
                }
                Step::Delete(k) => {
                    prop_assert_eq!(tx.delete(&ROWS, &key(*k)).unwrap(), model.remove(&key(*k)).is_some())
                }
                Step::Clear(a, b) => {
                    let (a, b) = (key(*a).min(key(*b)), key(*a).max(key(*b)));
                    let gone: Vec<_> = model.range(a..=b).map(|(k, _)| k.clone()).collect();
                    for key in gone {
                        prop_assert!(tx.delete(&ROWS, &key).unwrap());
                        model.remove(&key);
                    }
                }
                Step::Run(k, l) => {
                    let start = key(*k);
                    for i in 0..30u8 {
                        let mut key = start[..start.len().min(3)].to_vec();
                        key.extend([3, i]);
                        let row = row(*l, i);
                        tx.put(&ROWS, &key, &row).unwrap();
                        model.insert(key, row);
                    }
                }
                Step::Get(k) => prop_assert_eq!(tx.get(&ROWS, &key(*k)).unwrap(), model.get(&key(*k)).cloned()),
                Step::Range(a, b, back) => {
                    let (a, b) = (key(*a).min(key(*b)), key(*a).max(key(*b)));
                    let expected = || model.range(a.clone()..b.clone()).map(|(k, r)| (k.clone(), r.clone()));
                    let cursor = tx.range(&ROWS, a.clone()..b.clone()).unwrap().map(Result::unwrap);
                    let same = if *back { cursor.rev().eq(expected().rev()) } else { cursor.eq(expected()) };
                    prop_assert!(same);
                    let open = (Bound::Excluded(a.clone()), Bound::Included(b.clone()));
                    if a != b {
                        let n = tx.range(&ROWS, open.clone()).unwrap().map(Result::unwrap).count();
                        prop_assert_eq!(n, model.range(open).count());
                    }
                }
                Step::BothEnds(a, b) => {
                    let (a, b) = (key(*a).min(key(*b)), key(*a).max(key(*b)));
                    let mut expected = model.range(a.clone()..b.clone());
                    let mut cursor = tx.range(&ROWS, a..b).unwrap();
                    let mut turn = 0;
                    loop {
                        turn += 1;
                        let (found, right) = if turn % 3 == 0 {
                            (cursor.next_back(), expected.next_back())
                        } else {
                            (cursor.next(), expected.next())
                        };
                        let found = found.map(Result::unwrap);
                        prop_assert_eq!(found.as_ref().map(|(k, r)| (k, r)), right);
                        if right.is_none() {
                            break;
                        }
                    }
                }
                Step::ByHead(b, back) => {
                    let head = vec![*b, b.wrapping_add(1)];
                    let expected: Vec<_> =
                        model.iter().filter(|(_, r)| r.starts_with(&head)).map(|(k, _)| k.clone()).collect();
                    let cursor = tx.range_by::<ByHead>(&ROWS, head.clone()..=head).unwrap().map(|r| r.unwrap().0);
                    let mut found: Vec<_> = if *back { cursor.rev().collect() } else { cursor.collect() };
                    if *back {
                        found.reverse();
                    }
                    prop_assert_eq!(found, expected);
                }
                Step::Commit | Step::Rollback | Step::Reopen => {
                    ended = Some(step);
                    break;
                }
            }
        }
        if matches!(ended, Some(Step::Rollback)) {
            tx.rollback().unwrap();
        } else {
            tx.commit().unwrap();
            committed = model;
        }
        if matches!(ended, Some(Step::Reopen)) {
            db.close().unwrap();
            db = open(&disk, latches, isolation);
            check_all(&db, &committed);
        }
    }
    check_all(&db, &committed);
    db.verify_pages().unwrap();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, max_shrink_iters: 400, ..Default::default() })]

    #[test]
    fn equals_an_ordered_map(
        steps in prop::collection::vec(step(), 1..900),
        plain in any::<bool>(),
        level in 0..3,
    ) {
        let latches = if plain { LatchKind::Plain } else { LatchKind::Optimistic };
        let isolation = [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted][level as usize];
        run(&steps, latches, isolation)?;
    }
}
