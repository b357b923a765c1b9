//! Scans by prefix, and statements that write depending on what they read.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::common::{NUMBERS, ROWS, open};
use storage::disk::SimDisk;
use storage::{Table, TxnError};

const BY_PARTS: Table<(u8, String, i8), u64> = Table::new("by parts");

/// Texts of zero bytes, of bytes of the maximum, and of others: the encoding of bytes treats zeros specially, and the end
/// of a prefix of bytes of the maximum is not its next neighbour.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), Just(254), Just(255)], 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_scan_by_prefix_returns_the_keys_that_begin_with_it(
        keys in prop::collection::btree_set(bytes(), 0..60),
        prefixes in prop::collection::vec(bytes(), 1..12),
    ) {
        let db = open(&SimDisk::new(1));
        db.transact(|tx| keys.iter().try_for_each(|key| tx.put(&ROWS, key, &key.clone()))).unwrap();
        let tx = db.begin().unwrap();
        for prefix in &prefixes {
            let found: Vec<Vec<u8>> =
                tx.prefix(&ROWS, &prefix[..]).unwrap().map(|row| row.unwrap().0).collect();
            let expected: Vec<Vec<u8>> = keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
            prop_assert_eq!(&found, &expected);
            let back: Vec<Vec<u8>> =
                tx.prefix(&ROWS, &prefix[..]).unwrap().rev().map(|row| row.unwrap().0).collect();
            prop_assert!(back.iter().rev().eq(&expected));
        }
    }

    #[test]
    fn statements_on_entries_do_what_a_map_does(
        steps in prop::collection::vec((0_u64..6, 0_u8..4, prop::option::of(0_u64..3), prop::option::of(0_u64..3)), 1..80),
    ) {
        let db = open(&SimDisk::new(1));
        let mut model = BTreeMap::<u64, u64>::new();
        let set = |model: &mut BTreeMap<u64, u64>, key, row| match row {
            Some(row) => drop(model.insert(key, row)),
            None => drop(model.remove(&key)),
        };
        let mut tx = db.begin().unwrap();
        for (key, what, expected, new) in steps {
            match what {
                0 => {
                    let found = tx.modify(&NUMBERS, &key, |old| if old == expected { new } else { old }).unwrap();
                    if model.get(&key).copied() == expected {
                        set(&mut model, key, new);
                    }
                    prop_assert_eq!(found, model.get(&key).copied());
                }
                1 => {
                    let row = tx.get_or_insert_with(&NUMBERS, &key, || new.unwrap_or(9)).unwrap();
                    prop_assert_eq!(row, *model.entry(key).or_insert(new.unwrap_or(9)));
                }
                2 => {
                    let found = tx.compare_and_swap(&NUMBERS, &key, expected.as_ref(), new.as_ref()).unwrap();
                    prop_assert_eq!(found, model.get(&key).copied());
                    if found == expected {
                        set(&mut model, key, new);
                    }
                }
                _ => prop_assert_eq!(tx.delete(&NUMBERS, &key).unwrap(), model.remove(&key).is_some()),
            }
        }
        tx.commit().unwrap();
        let tx = db.begin().unwrap();
        let rows: Vec<(u64, u64)> = tx.range(&NUMBERS, ..).unwrap().map(Result::unwrap).collect();
        prop_assert!(rows.into_iter().eq(model));
    }
}

#[test]
fn a_prefix_of_a_tuple_is_its_first_parts() {
    let db = open(&SimDisk::new(1));
    let keys = [(1, "a", -1), (1, "a", 2), (1, "ab", 0), (2, "a", 0), (255, "", 0)];
    db.transact(|tx| keys.iter().try_for_each(|(a, b, c)| tx.put(&BY_PARTS, &(*a, (*b).to_owned(), *c), &0))).unwrap();
    let tx = db.begin().unwrap();
    assert_eq!(tx.prefix(&BY_PARTS, &(1,)).unwrap().count(), 3);
    assert_eq!(tx.prefix(&BY_PARTS, &(255,)).unwrap().count(), 1);
    assert_eq!(tx.prefix(&BY_PARTS, &(1, "a".to_owned())).unwrap().count(), 2);
    assert_eq!(tx.prefix(&BY_PARTS, &(3,)).unwrap().count(), 0);
}

/// No row of a key that begins with the prefix can be inserted before the scanning transaction ends.
#[test]
fn a_scan_by_prefix_locks_its_range() {
    let db = open(&SimDisk::new(1));
    db.transact(|tx| [&b"ab"[..], b"b"].into_iter().try_for_each(|key| tx.put(&ROWS, key, &vec![1]))).unwrap();
    let reader = db.begin().unwrap();
    assert_eq!(reader.prefix(&ROWS, &b"a"[..]).unwrap().count(), 1);
    let mut writer = db.begin().unwrap();
    let refused = writer.insert(&ROWS, &b"ac"[..], &vec![2]);
    assert!(matches!(refused, Err(TxnError::OwnTask { .. })), "{refused:?}");
    writer.insert(&ROWS, &b"c"[..], &vec![2]).unwrap();
}
