//! Overhead of typed access: a point read of a small row inside a transaction, alternating between untyped and typed reads.
//! Each round measures each kind for a tenth of a second. The result is the median over the rounds of the ratio of their
//! times.

use std::hint::black_box;
use std::time::Duration;

use benches::{Fixture, HOT_ROWS, inside, is_smoke};
use storage::{Durability, Table};

/// Table of small rows.
const SMALL: Table<u64, u64> = Table::new("small rows");
const ROUNDS: usize = 15;

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    let (rounds, reads) = if is_smoke() { (1, HOT_ROWS) } else { (ROUNDS, 1000 * HOT_ROWS) };
    let fixture = Fixture::new(Durability::Async);
    let db = fixture.db();
    let rows = db.table(&SMALL).expect("a new table");
    let mut load = db.bulk_load(&rows).expect("an empty table");
    (0..HOT_ROWS).for_each(|key| load.push(&key, &key).expect("keys ascend"));
    load.finish().expect("space on the disk");
    // This permutation of the keys reads, and locks, each row once per transaction.
    let key_at = |i: u64| i * 617 % HOT_ROWS;
    let on_bytes = || {
        inside(db, reads, |tx, i| {
            let first = |row: &[u8]| row.first_chunk().map(|row| u64::from_le_bytes(*row));
            black_box(tx.raw().read(&rows, &key_at(i).to_be_bytes(), first).expect("a row"));
        })
    };
    let typed = || {
        inside(db, reads, |tx, i| {
            black_box(tx.get(&rows, &key_at(i)).expect("a row"));
        })
    };
    let each = |spent: Duration| spent.as_nanos() as f64 / reads as f64;
    let mut figures = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let (raw, typed) = (each(on_bytes()), each(typed()));
        for (figures, figure) in figures.iter_mut().zip([raw, typed, typed / raw]) {
            figures.push(figure);
        }
    }
    let [raw, typed, ratio] = figures.map(median);
    println!("row/read/small: {raw:.1} ns, typed {typed:.1} ns, ratio {ratio:.3} (medians of {rounds} rounds)");
}
