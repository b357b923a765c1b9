//! Extreme arguments of statements: keys, rows, ranges, columns and counts that are empty, maximal, too large, or
//! reversed. Each has its expected result; none panics, and the transaction stays usable after each.

use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

use crate::common::{ByHead, NUMBERS, ROWS, small};
use storage::disk::MemDisk;
use storage::optimistic::Peeker;
use storage::{Codec, Columns, Database, OpenTable, Part, Raw, Row, SecondaryIndex, Table, TxnError};

const PLAIN: Table<Raw, Raw> = Table::new("plain");
/// An index on all bytes of the row from the third on.
const TAILS: Table<Raw, Raw> = Table::new("tails").with_raw_index("tail", false, 2, tail);
/// Maximum length of a key.
const LONGEST_KEY: usize = 2048;
/// About the maximum length of a row that fits in a page with its key.
const LONG_ROW: usize = 4000;
const ALL: [u8; LONGEST_KEY + 1] = [0xFF; LONGEST_KEY + 1];

fn tail(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    row.get(2..).map(|tail| out.extend_from_slice(&tail[..tail.len().min(100)])).is_some()
}

fn open() -> Database {
    small().open_on(Arc::new(MemDisk::new())).unwrap()
}

fn rows(db: &Database, table: &OpenTable<Raw, Raw>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let tx = db.begin().unwrap();
    tx.raw()
        .scan(table, &[], &ALL, |key, row| {
            found.push((key.to_vec(), row.to_vec()));
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn is_too_long(error: &TxnError) -> bool {
    matches!(error, TxnError::KeyTooLong { .. } | TxnError::RowTooLarge { .. })
}

#[test]
fn keys_and_rows_of_every_length_are_written_or_refused() {
    let db = open();
    for table in [&PLAIN, &TAILS] {
        let table = db.raw_table(table).unwrap();
        for key_len in [0, 1, LONGEST_KEY - 200, LONGEST_KEY, LONGEST_KEY + 1, 70_000] {
            for row_len in [0, 1, 2, LONG_ROW, 8192, 70_000] {
                let (key, row) = (vec![7; key_len], vec![8; row_len]);
                // The index entry contains the key as well.
                let entry = if table_is(&db, &table, "tails") && row_len > 2 { (row_len - 2).min(100) } else { 0 };
                let fits = key_len + entry <= LONGEST_KEY;
                let what = format!("{table:?}, key of {key_len}, row of {row_len}");
                let mut tx = db.begin().unwrap();
                let answers = [
                    tx.raw_mut().insert(&table, &key, &row),
                    tx.raw_mut().put(&table, &key, &row),
                    tx.raw_mut().insert_run(&table, &[(&key, &row)]),
                    tx.raw_mut().update(&table, &key, |old| old.clone_from(&row)).map(drop),
                    tx.raw_mut().replace_many(&table, std::iter::empty()).map(drop),
                ];
                for (n, answer) in answers.iter().enumerate() {
                    match answer {
                        Ok(()) => assert!(fits || n >= 3, "{what}: statement {n}"),
                        Err(TxnError::DuplicateKey { .. }) => assert!(fits && n == 2, "{what}: statement {n}"),
                        Err(error) => assert!(!fits && is_too_long(error), "{what}: statement {n}: {error}"),
                    }
                }
                assert_eq!(tx.raw().read(&table, &key, <[u8]>::len).unwrap(), fits.then_some(row_len), "{what}");
                assert_eq!(tx.raw_mut().delete(&table, &key).unwrap(), fits, "{what}");
                tx.commit().unwrap();
            }
        }
        assert_eq!(rows(&db, &table), []);
    }
    db.verify_pages().unwrap();
}

fn table_is(db: &Database, table: &OpenTable<Raw, Raw>, name: &str) -> bool {
    format!("{:?}", db.raw_table(if name == "tails" { &TAILS } else { &PLAIN }).unwrap()) == format!("{table:?}")
}

/// Inserts ten rows with the keys 10, 12 .. 28.
fn ten(db: &Database, table: &OpenTable<Raw, Raw>) {
    db.transact(|tx| (10..30).step_by(2).try_for_each(|n| tx.raw_mut().put(table, &[n], &[n, 1, n]))).unwrap();
}

/// Inclusive bounds of keys, with the number of rows between them.
const RANGES: [(&[u8], &[u8], u64); 12] = [
    (&[], &ALL, 10),
    (&[], &[], 0),
    (&ALL, &[], 0),
    (&ALL, &ALL, 0),
    (&[10], &[28], 10),
    (&[28], &[10], 0),
    (&[10], &[10], 1),
    (&[11], &[11], 0),
    (&[10, 0], &[12], 1),
    (&[9, 255, 255], &[10], 1),
    (&[28], &ALL, 1),
    (&[28, 0], &ALL, 0),
];

#[test]
fn ranges_of_bytes_may_be_empty_reversed_or_everything() {
    let db = open();
    let table = db.raw_table(&PLAIN).unwrap();
    for (from, to, expected) in RANGES {
        ten(&db, &table);
        let what = format!("{from:?} to {to:?}");
        let mut tx = db.begin().unwrap();
        let mut seen = [0u64; 4];
        let on = |seen: &mut u64| {
            *seen += 1;
            ControlFlow::Continue(())
        };
        tx.raw().scan(&table, from, to, |_, _| on(&mut seen[0])).unwrap();
        tx.raw().scan_backward(&table, from, to, |_, _| on(&mut seen[1])).unwrap();
        let mut peeker = Peeker::default();
        for most in [0, 1, usize::MAX] {
            let (mut peeked, mut locked) = (0, 0);
            db.raw().peek_range(&mut peeker, &table, (from, to), most, |_, _, _| on(&mut peeked)).unwrap();
            tx.raw_mut().lock_range(&table, (from, to), most, false, |_, _| on(&mut locked)).unwrap();
            assert_eq!((peeked, locked), (expected.min(most as u64), expected.min(most as u64)), "{what}, {most}");
        }
        seen[2] = tx.raw().count(&table, from, to).unwrap();
        seen[3] = tx.raw_mut().update_run(&table, from, to, |_, row| row[1] = 9).unwrap() as u64;
        assert_eq!(seen, [expected; 4], "{what}");
        let first = tx.raw_mut().take_first(&table, from, to).unwrap();
        assert_eq!(first.is_some(), expected > 0, "{what}");
        assert_eq!(tx.raw_mut().delete_range(&table, from, to).unwrap(), expected.saturating_sub(1), "{what}");
        tx.rollback().unwrap();
        assert_eq!(rows(&db, &table).len(), 10, "{what}");
    }
    let indexed = db.raw_table(&TAILS).unwrap();
    ten(&db, &indexed);
    for (from, to, expected) in RANGES.into_iter().take(6) {
        for descending in [false, true] {
            let mut seen = 0;
            let tx = db.begin().unwrap();
            tx.raw()
                .scan_index(&indexed, 0, from, to, descending, |_, _| {
                    seen += 1;
                    ControlFlow::Continue(())
                })
                .unwrap();
            // An index entry is longer than the bound, which is a prefix of it.
            let expected = if (from, to) == (&[10], &[28]) { 9 } else { expected };
            assert_eq!(seen, expected, "entries from {from:?} to {to:?}, descending: {descending}");
        }
    }
}

#[test]
fn ranges_of_types_may_be_empty_reversed_or_everything() {
    let db = open();
    let all = [0, 1, 5, u64::MAX - 1, u64::MAX];
    db.transact(|tx| all.iter().try_for_each(|n| tx.put(&NUMBERS, n, n))).unwrap();
    let bounds =
        || [Bound::Unbounded].into_iter().chain(all.iter().flat_map(|n| [Bound::Included(*n), Bound::Excluded(*n)]));
    for from in bounds() {
        for to in bounds() {
            let range = (from, to);
            let after = |n: &u64| match from {
                Bound::Unbounded => true,
                Bound::Included(from) => *n >= from,
                Bound::Excluded(from) => *n > from,
            };
            let before = |n: &u64| match to {
                Bound::Unbounded => true,
                Bound::Included(to) => *n <= to,
                Bound::Excluded(to) => *n < to,
            };
            let expected: Vec<u64> = all.iter().copied().filter(|n| after(n) && before(n)).collect();
            let mut tx = db.begin().unwrap();
            let up: Vec<u64> = tx.range(&NUMBERS, range).unwrap().map(|row| row.unwrap().0).collect();
            let down: Vec<u64> = tx.range(&NUMBERS, range).unwrap().rev().map(|row| row.unwrap().0).collect();
            assert_eq!(up, expected, "{range:?}");
            assert!(down.iter().rev().eq(&expected), "{range:?}: {down:?}");
            assert_eq!(tx.count(&NUMBERS, range).unwrap(), expected.len() as u64, "{range:?}");
            assert_eq!(tx.delete_range(&NUMBERS, range).unwrap(), expected.len() as u64, "{range:?}");
            tx.rollback().unwrap();
        }
    }
    // Keys of bytes that have no successor of their length.
    let keys: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0, 0], vec![254], vec![255], vec![255; 100]];
    db.transact(|tx| keys.iter().try_for_each(|key| tx.put(&ROWS, key, key))).unwrap();
    let mut tx = db.begin().unwrap();
    for (n, key) in keys.iter().enumerate() {
        let count = |from, to| tx.count(&ROWS, (from, to)).unwrap() as usize;
        assert_eq!(count(Bound::Included(key.clone()), Bound::Unbounded), keys.len() - n);
        assert_eq!(count(Bound::Excluded(key.clone()), Bound::Unbounded), keys.len() - n - 1);
        assert_eq!(count(Bound::Unbounded, Bound::Included(key.clone())), n + 1);
        assert_eq!(count(Bound::Unbounded, Bound::Excluded(key.clone())), n);
        assert_eq!(count(Bound::Excluded(key.clone()), Bound::Excluded(key.clone())), 0);
    }
    let reversed = (Bound::Included(vec![9]), Bound::Included(vec![3]));
    assert_eq!(tx.range_by::<ByHead>(&ROWS, reversed).unwrap().count(), 0);
    assert_eq!(tx.range_by::<ByHead>(&ROWS, ..).unwrap().count(), 5);
    assert_eq!(tx.range_by::<ByHead>(&ROWS, vec![255]..).unwrap().rev().count(), 2);
    tx.put_many(&ROWS, &[]).unwrap();
    assert_eq!(tx.get_many(&ROWS, &[]).unwrap(), []);
    tx.prefetch(&ROWS, &[]).unwrap();
    tx.commit().unwrap();
}

/// Parts of a row of five bytes, with the bytes that a statement returns for them.
#[test]
#[expect(clippy::single_range_in_vec_init, clippy::reversed_empty_ranges, reason = "lists of parts, odd ones too")]
fn parts_of_rows_may_be_empty_reversed_or_beyond_the_row() {
    let db = open();
    let table = db.raw_table(&PLAIN).unwrap();
    db.transact(|tx| tx.raw_mut().put(&table, b"k", b"abcde")).unwrap();
    let most = usize::MAX;
    let cases: [(&[Range<usize>], &[u8]); 16] = [
        (&[], b""),
        (&[0..0], b""),
        (&[5..5], b""),
        (&[6..6], b""),
        (&[most..most], b""),
        (&[0..5], b"abcde"),
        (&[0..6], b""),
        (&[0..most], b"abcde"),
        (&[5..most], b""),
        (&[6..most], b""),
        (&[most - 1..most], b""),
        (&[4..2], b""),
        (&[most..0], b""),
        (&[3..4, 0..1, 4..most], b"dae"),
        (&[0..1, 4..9, 1..2], b"a"),
        (&[0..most, 0..most], b"abcdeabcde"),
    ];
    for (columns, expected) in cases {
        let what = format!("{columns:?}");
        let mut tx = db.begin().unwrap();
        let read = tx.raw().read_columns(&table, b"k", columns, <[u8]>::to_vec).unwrap();
        assert_eq!(read.as_deref(), Some(expected), "{what}");
        let mut several = Vec::new();
        tx.raw()
            .read_columns_of(&table, &[b"k", b"none", b"k"], columns, |n, part| several.push((n, part.to_vec())))
            .unwrap();
        assert_eq!(several, [(0, expected.to_vec()), (2, expected.to_vec())], "{what}");
        let mut peeker = Peeker::default();
        let (peeked, place) = db.raw().peek_columns(&mut peeker, &table, b"k", columns).unwrap();
        assert_eq!(peeked, Some(expected), "{what}");
        let peeked = peeked.map(<[u8]>::to_vec);
        assert!(
            tx.raw_mut().confirm_columns(&table, b"k", &place, (columns, peeked.as_deref()), true).unwrap(),
            "{what}"
        );
        assert!(
            !tx.raw_mut().confirm_columns(&table, b"k", &place, (columns, Some(b"other")), true).unwrap(),
            "{what}"
        );
        // An update changes the first part, which must have an end.
        let first = columns.first().cloned().unwrap_or(0..0);
        let changed = tx.raw_mut().update_columns(&table, b"k", columns, |part, _| part.fill(b'z'));
        let many = tx.raw_mut().update_columns_of(&table, &[b"k"], columns, |_, part, _| part.fill(b'z'));
        if first.end.max(first.start) == most {
            assert!(matches!(changed, Err(TxnError::Schema { .. })), "{what}: {changed:?}");
            assert!(matches!(many, Err(TxnError::Schema { .. })), "{what}: {many:?}");
        } else {
            let fits = first.start >= first.end || first.end <= 5;
            assert_eq!(changed.unwrap().is_some(), fits, "{what}");
            many.unwrap();
            let part = if first.start < first.end && fits { first } else { 0..0 };
            let mut expected = b"abcde".to_vec();
            expected[part].fill(b'z');
            assert_eq!(tx.raw().read(&table, b"k", <[u8]>::to_vec).unwrap(), Some(expected), "{what}");
        }
        tx.rollback().unwrap();
    }
    for (len, shown) in [(0, Some(5)), (5, Some(0)), (6, None), (most - 1, None)] {
        let mut tx = db.begin().unwrap();
        let rest = tx.raw_mut().update_head(&table, b"k", len, |_, rest| rest.len()).unwrap();
        assert_eq!(rest, shown, "{len}");
        tx.raw_mut().update_heads(&table, &[b"k", b"none"], len, |_, head, _| head.fill(b'y')).unwrap();
        tx.raw_mut().update_heads(&table, &[], len, |_, _, _| ()).unwrap();
    }
    let refused = db.begin().unwrap().raw_mut().update_head(&table, b"k", most, |_, _| ());
    assert!(matches!(refused, Err(TxnError::Schema { .. })));
}

/// An update in place that ends at the first indexed byte, one byte before it and one byte after it.
#[test]
fn an_update_in_place_may_reach_to_an_index_and_no_further() {
    let db = open();
    let table = db.raw_table(&TAILS).unwrap();
    db.transact(|tx| tx.raw_mut().put(&table, b"k", b"abcde")).unwrap();
    let entries = |expected: &[u8]| {
        let mut found = Vec::new();
        let tx = db.begin().unwrap();
        tx.raw()
            .scan_index(&table, 0, &[], &ALL, false, |entry, _| {
                found.push(entry.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(found, [[expected, b"k"].concat()]);
    };
    for (part, allowed) in [
        (0..0, true),
        (0..1, true),
        (1..2, true),
        (0..2, true),
        (2..2, true),
        (0..3, false),
        (1..3, false),
        (2..3, false),
        (3..3, false),
        (4..5, false),
    ] {
        let mut tx = db.begin().unwrap();
        let columns = [part.clone()];
        let one = tx.raw_mut().update_columns(&table, b"k", &columns, |part, _| part.fill(b'x'));
        let many = tx.raw_mut().update_columns_of(&table, &[b"k"], &columns, |_, part, _| part.fill(b'x'));
        assert_eq!((one.is_ok(), many.is_ok()), (allowed, allowed), "{part:?}: {one:?}");
        assert!(allowed || matches!(one, Err(TxnError::Schema { .. })), "{part:?}");
        if part.start == 0 {
            let heads = [
                tx.raw_mut().update_head(&table, b"k", part.end, |head, _| head.fill(b'x')).map(drop),
                tx.raw_mut().update_heads(&table, &[b"k"], part.end, |_, head, _| head.fill(b'x')).map(drop),
            ];
            assert!(heads.iter().all(|head| head.is_ok() == allowed), "{part:?}: {heads:?}");
        }
        tx.commit().unwrap();
        entries(b"cde");
    }
    assert!(matches!(
        db.begin().unwrap().raw_mut().update_run(&table, b"", b"z", |_, _| ()),
        Err(TxnError::Schema { .. })
    ));
    db.transact(|tx| tx.raw_mut().update(&table, b"k", |row| row[2] = b'X')).unwrap();
    entries(b"Xde");
}

#[test]
fn lists_of_keys_and_rows_may_be_empty_repeated_or_out_of_order() {
    let db = open();
    for table in [&PLAIN, &TAILS] {
        let table = db.raw_table(table).unwrap();
        let mut tx = db.begin().unwrap();
        tx.raw_mut().insert_run(&table, &[]).unwrap();
        let run = |tx: &mut storage::Transaction<'_>, keys: [&[u8]; 2]| {
            tx.raw_mut().insert_run(&table, &keys.map(|key| (key, &b"row"[..])))
        };
        run(&mut tx, [b"a", b"b"]).unwrap();
        assert!(matches!(
            run(&mut tx, [b"c", b"c"]),
            Err(TxnError::NotAscending { .. } | TxnError::DuplicateKey { .. })
        ));
        assert!(matches!(run(&mut tx, [b"d", b"c"]), Err(TxnError::NotAscending { .. })));
        assert!(matches!(run(&mut tx, [b"b", b"c"]), Err(TxnError::DuplicateKey { .. })));
        tx.raw().read_columns_of(&table, &[], &[], |_, _| panic!("no key was given")).unwrap();
        assert_eq!(tx.raw_mut().update_columns_of(&table, &[], &[], |_, _, _| panic!("no key was given")).unwrap(), 0);
        tx.raw()
            .prefetch([(table, &b""[..], 0), (table, &ALL[..], usize::MAX), (table, &[1; 70_000][..], 1)].into_iter());
        tx.raw_mut().prefetch_along(&table, &[], usize::MAX);
        tx.raw_mut().prefetch_insert(&table, &[]);
        tx.raw_mut().prefetch_insert(&table, &ALL);
        tx.commit().unwrap();
        assert_eq!(rows(&db, &table).len(), 2);
    }
}

#[test]
fn a_bulk_load_may_be_empty_and_refuses_what_does_not_fit() {
    let db = open();
    let table = db.raw_table(&PLAIN).unwrap();
    assert_eq!(db.bulk_load(&table).unwrap().finish().unwrap(), 0);
    assert_eq!(db.bulk_load_part(&table, Part::Rows).unwrap().finish().unwrap(), 0);
    let mut load = db.bulk_load(&table).unwrap();
    assert!(load.push_raw(&[7; LONGEST_KEY + 1], b"").is_err_and(|error| is_too_long(&error)));
    load.push_raw(b"", b"").unwrap();
    assert!(matches!(load.push_raw(b"", b""), Err(TxnError::NotAscending { .. })));
    load.push_raw(&[7; LONGEST_KEY], &[7; LONG_ROW]).unwrap();
    assert!(matches!(load.push_raw(&[6], b""), Err(TxnError::NotAscending { .. })));
    assert_eq!(load.finish().unwrap(), 2);
    assert_eq!(rows(&db, &table).len(), 2);
    db.verify_pages().unwrap();
}

/// A row of eight bytes, for declarations of all kinds of columns.
#[derive(Debug, PartialEq)]
struct Eight([u8; 8]);
impl Row for Eight {
    const CODEC: Codec = Codec::new("eight", 1);
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn decode(bytes: &[u8]) -> Option<Eight> {
        bytes.try_into().ok().map(Eight)
    }
}

/// Columns from byte `FROM` to `TO` that encode to `MORE` additional bytes (fewer if negative).
struct Bytes<const FROM: usize, const TO: usize, const MORE: isize>(Vec<u8>);
impl<const FROM: usize, const TO: usize, const MORE: isize> Columns<Eight> for Bytes<FROM, TO, MORE> {
    const RANGE: Range<usize> = FROM..TO;
    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Bytes(bytes.to_vec()))
    }
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.clone_from(&self.0);
        bytes.resize(bytes.len().saturating_add_signed(MORE), 1);
    }
}

/// An index on the last four bytes.
struct ByLast;
impl SecondaryIndex for ByLast {
    type Key = u64;
    type Row = Eight;
    type By = [u8; 4];
    const NAME: &'static str = "by_last";
    fn by(_: &u64, row: &Eight) -> Option<[u8; 4]> {
        row.0.last_chunk().copied()
    }
}

#[test]
fn columns_of_a_codec_that_breaks_its_promise_are_refused() {
    const EIGHTS: Table<u64, Eight> = Table::new("eights");
    const INDEXED: Table<u64, Eight> = Table::new("indexed").with_index::<ByLast>();
    fn update<const FROM: usize, const TO: usize, const MORE: isize>(
        db: &Database,
        table: &Table<u64, Eight>,
    ) -> Result<Option<()>, TxnError> {
        let mut tx = db.begin()?;
        let answer = tx.update_columns(table, &1, |part: &mut Bytes<FROM, TO, MORE>| part.0.fill(9));
        tx.commit()?;
        answer
    }
    for table in [EIGHTS, INDEXED] {
        let db = open();
        db.transact(|tx| tx.put(&table, &1, &Eight([0; 8]))).unwrap();
        let schema = |answer| assert!(matches!(answer, Err(TxnError::Schema { .. })), "{answer:?}");
        schema(update::<2, 4, 1>(&db, &table));
        schema(update::<2, 4, -1>(&db, &table));
        schema(update::<2, 4, 9>(&db, &table));
        schema(update::<0, 8, -8>(&db, &table));
        schema(update::<4, 2, 0>(&db, &table));
        schema(update::<0, { usize::MAX }, 0>(&db, &table));
        let beyond = update::<6, 9, 0>(&db, &table);
        assert!(matches!(beyond, Err(TxnError::Decode { .. }) | Ok(Some(()))), "{beyond:?}");
        assert_eq!(db.begin().unwrap().get(&table, &1).unwrap(), Some(Eight([0; 8])), "nothing was changed");
        update::<2, 4, 0>(&db, &table).unwrap().unwrap();
        assert_eq!(db.begin().unwrap().get(&table, &1).unwrap(), Some(Eight([0, 0, 9, 9, 0, 0, 0, 0])));
    }
}

/// Index function: the bytes from the fourth on of the encoded row.
fn from_fourth(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&row[4..]);
    true
}

/// Updates of columns before, across and after the first indexed byte: the index is maintained.
#[test]
fn columns_across_the_begin_of_an_index_move_its_entries() {
    const EIGHTS: Table<u64, Eight> = Table::new("eights").with_raw_index("from_fourth", false, 4, from_fourth);
    fn update<const FROM: usize, const TO: usize>(db: &Database, expected: [u8; 8]) {
        db.transact(|tx| {
            tx.put(&EIGHTS, &1, &Eight([0; 8]))?;
            tx.update_columns(&EIGHTS, &1, |part: &mut Bytes<FROM, TO, 0>| part.0.fill(9))
        })
        .unwrap();
        let tx = db.begin().unwrap();
        assert_eq!(tx.get(&EIGHTS, &1).unwrap(), Some(Eight(expected)), "{FROM}..{TO}");
        let mut entries = Vec::new();
        tx.raw()
            .scan_index(&EIGHTS, 0, &[], &ALL, false, |entry, _| {
                entries.push(entry[..4].to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(entries, [expected[4..].to_vec()], "{FROM}..{TO}");
    }
    let db = open();
    update::<0, 4>(&db, [9, 9, 9, 9, 0, 0, 0, 0]);
    update::<3, 4>(&db, [0, 0, 0, 9, 0, 0, 0, 0]);
    update::<3, 5>(&db, [0, 0, 0, 9, 9, 0, 0, 0]);
    update::<0, 5>(&db, [9, 9, 9, 9, 9, 0, 0, 0]);
    update::<4, 5>(&db, [0, 0, 0, 0, 9, 0, 0, 0]);
    update::<4, 8>(&db, [0, 0, 0, 0, 9, 9, 9, 9]);
    update::<7, 8>(&db, [0, 0, 0, 0, 0, 0, 0, 9]);
    update::<0, 8>(&db, [9; 8]);
    update::<4, 4>(&db, [0; 8]);
    let structure = db.check_structure(|_, _| ControlFlow::Continue(())).unwrap();
    assert!(structure.findings.is_empty(), "{:?}", structure.findings);
}

/// Parts of a row whose length does not fit two bytes.
#[test]
fn parts_of_a_row_may_have_any_length() {
    for len in [0, 1, 65_534, 65_535, 65_536, 70_000] {
        let row = (7u8, vec![1u8; len], "end".to_owned());
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        assert_eq!(Row::decode(&bytes), Some(row), "{len}");
        for cut in [0, 1, 2, 3, bytes.len() - 1] {
            assert_eq!(<(u8, Vec<u8>, String)>::decode(&bytes[..cut]), None, "{len}, cut to {cut}");
        }
    }
    let endless = [7, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2];
    assert_eq!(<(u8, Vec<u8>, String)>::decode(&endless), None);
}

/// A codec whose values encode to another size than it declares.
#[derive(Debug)]
struct Liar;
impl Row for Liar {
    const CODEC: Codec = Codec::new("liar", 1);
    const SIZE: Option<usize> = Some(4);
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1);
    }
    fn decode(_: &[u8]) -> Option<Liar> {
        Some(Liar)
    }
}

#[test]
fn a_part_of_another_size_than_its_codec_promises_is_never_written() {
    const LIARS: Table<u64, (Liar, u64)> = Table::new("liars");
    let db = open();
    db.transact(|tx| tx.put(&NUMBERS, &1, &1)).unwrap();
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        db.transact(|tx| {
            tx.put(&NUMBERS, &1, &2)?;
            tx.put(&LIARS, &1, &(Liar, 5))
        })
    }));
    let told = told.unwrap_err();
    let told = told.downcast_ref::<String>().unwrap();
    assert!(told.contains("liar@1") && told.contains("promises 4 bytes"), "{told}");
    assert_eq!(db.begin().unwrap().get(&NUMBERS, &1).unwrap(), Some(1));
    db.close().unwrap();
}
