//! Crashes in and after loops: the changes of all iterations survive, or none.

use crate::common::{NUMBERS, Rng, on, small};
use storage::disk::{Crash, SimDisk};
use storage::{Database, TxnError};

fn open(disk: &SimDisk) -> Database {
    small().transactions(16).loop_threads(3).open_on(on(disk)).unwrap()
}

/// Each transaction adds one to all rows in a loop. After each crash all rows are equal.
#[test]
fn after_a_crash_all_iterations_are_there_or_none() {
    const ROWS: u64 = 60;
    for seed in 0..40 {
        let mut disk = SimDisk::new(seed);
        let mut rng = Rng::new(seed);
        open(&disk).transact(|tx| (0..ROWS).try_for_each(|n| tx.put(&NUMBERS, &n, &0))).unwrap();
        let mut acknowledged = 0;
        for _ in 0..4 {
            let db = open(&disk);
            let rows: Vec<(u64, u64)> =
                db.begin().unwrap().range(&NUMBERS, ..).unwrap().collect::<Result<_, _>>().unwrap();
            assert_eq!(rows.len() as u64, ROWS, "seed {seed}");
            assert!(rows.iter().all(|(_, row)| *row == rows[0].1), "seed {seed}: {rows:?}");
            assert!(rows[0].1 >= acknowledged, "seed {seed}");
            acknowledged = rows[0].1;
            for _ in 0..rng.next() % 5 {
                let mut tx = db.begin().unwrap();
                let add = |tx: &mut storage::Transaction<'_>, n: &u64| {
                    // Rows of neighbours too, so that members write the same rows.
                    let of = |n: u64| n % ROWS;
                    let before = tx.get(&NUMBERS, &of(*n))?.unwrap_or(0);
                    let next = tx.get(&NUMBERS, &of(n + 1))?.unwrap_or(0);
                    tx.put(&NUMBERS, &of(*n), &(before + 5))?;
                    tx.put(&NUMBERS, &of(n + 1), &(next + 3))?;
                    tx.put(&NUMBERS, &of(n + 1), &next)?;
                    tx.put(&NUMBERS, &of(*n), &(before + 1))?;
                    Ok::<_, TxnError>(())
                };
                tx.in_order(0..ROWS, add, |()| ()).unwrap();
                if rng.next().is_multiple_of(3) {
                    db.checkpoint().unwrap();
                }
                if rng.next().is_multiple_of(4) {
                    tx.rollback().unwrap();
                } else {
                    tx.commit().unwrap();
                    acknowledged += 1;
                }
            }
            // A transaction that is open at the crash, with records that a checkpoint has made durable.
            let mut open = db.begin().unwrap();
            open.in_order(0..ROWS, |tx, n| tx.put(&NUMBERS, n, &999), |()| ()).unwrap();
            open.in_order(0..ROWS, |tx, n| tx.delete(&NUMBERS, n), |_| ()).unwrap();
            db.checkpoint().unwrap();
            let after = disk.crash([Crash::All, Crash::Nothing, Crash::Random(rng.next())][rng.next() as usize % 3]);
            drop(open);
            drop(db);
            disk = after;
        }
    }
}
