//! Fuzzing target for sequences of operations on a database. Each byte string is a program of operations, whose results are
//! compared with the results on a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::disk::{Disk, MemDisk};
use storage::{Database, SecondaryIndex, Table};

use crate::sim::rng::Rng;
use crate::torture::damage::subject::{Subject, options};

const ROWS: Table<Vec<u8>, Vec<u8>> = Table::new("rows").with_index::<ByLength>();

/// Secondary index by the length of a row.
struct ByLength;
impl SecondaryIndex for ByLength {
    type Key = Vec<u8>;
    type Row = Vec<u8>;
    type By = u16;
    const NAME: &'static str = "by_length";
    fn by(_: &Vec<u8>, row: &Vec<u8>) -> Option<u16> {
        (!row.is_empty()).then_some(row.len() as u16)
    }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns a key and a row, derived from three bytes: few distinct keys, of many lengths.
fn row(program: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let [key, len, fill] = [program[0], program[1], program[2]];
    (vec![key % 16; usize::from(key) * 2 % 240], vec![fill; usize::from(len) * 15])
}

/// Maximum number of steps of a program. It is small, because many short programs find more failures than a few long ones.
const MAX_STEPS: usize = 200;

/// Runs a program on a database and a map. Panics if their contents differ.
pub(super) fn run(program: &[u8]) {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
    let open = || options().open_on(Arc::clone(&disk)).expect("opens");
    let (mut db, mut map) = (open(), Map::new());
    for step in program.chunks_exact(4).take(MAX_STEPS) {
        match step[0] % 16 {
            15 => {
                db.close().expect("closes");
                db = open();
            }
            14 => check_equal(&db, &map),
            // Run a transaction that is rolled back.
            13 => {
                let mut tx = db.begin().expect("begins");
                let (key, value) = row(&step[1..]);
                tx.put(&ROWS, &key, &value).expect("puts");
                tx.delete(&ROWS, &key).expect("deletes");
            }
            9..13 => {
                let (key, _) = row(&step[1..]);
                let gone = db.transact(|tx| tx.delete(&ROWS, &key)).expect("deletes");
                assert_eq!(gone, map.remove(&key).is_some());
            }
            _ => {
                let (key, value) = row(&step[1..]);
                db.transact(|tx| tx.put(&ROWS, &key, &value)).expect("puts");
                map.insert(key, value);
            }
        }
    }
    check_equal(&db, &map);
}

fn check_equal(db: &Database, map: &Map) {
    let tx = db.begin().expect("begins");
    let rows: Map = tx.range(&ROWS, ..).expect("scans").collect::<Result<_, _>>().expect("scans");
    let differs = |key: &&Vec<u8>| rows.get(*key) != map.get(*key);
    if let Some(key) = map.keys().chain(rows.keys()).find(differs) {
        let short = |row: Option<&Vec<u8>>| row.map(|row| (row.len(), row.first().copied()));
        panic!("row {key:?}: length and fill {:?}, expected {:?}", short(rows.get(key)), short(map.get(key)));
    }
    let indexed = tx.range_by::<ByLength>(&ROWS, ..).expect("scans").count();
    assert_eq!(indexed, map.values().filter(|row| !row.is_empty()).count());
    drop(tx);
    let structure = db.check_structure(|_, _| std::ops::ControlFlow::Continue(())).expect("reads");
    assert!(structure.passed(), "{:?}", structure.findings);
}

/// Returns the initial programs.
pub(super) fn corpus(_: &Subject) -> Vec<Vec<u8>> {
    (1..20).map(|n| Rng::of_case(n, n).bytes(4 * 8 * n as usize)).collect()
}
