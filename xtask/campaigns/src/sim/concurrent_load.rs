//! Workers that load a table in bulk while a transaction relies on the emptiness of the table. No other worker uses the
//! table.

use std::ops::ControlFlow;

use storage::{Database, Part, Table, TxnError};

use super::order::Sim;
use super::rng::Rng;
use super::tables::Bytes;

/// Number of workers of this kind: one loads the table, the other reads it.
pub(super) const ACTORS: usize = 2;

const TABLE: Table<Bytes, Vec<u8>> = Table::new("loaded beside readers");

/// Loads the rows in bulk.
///
/// # Errors
/// Returns errors of the engine; `Schema` if the table already has rows.
pub(super) fn load(db: &Database, sim: &dyn Sim, mut rng: Rng) -> Result<(), TxnError> {
    let table = db.table(&TABLE)?;
    for _ in 0..rng.below(20) {
        sim.pause();
    }
    let mut part = db.bulk_load_part(&table, Part::Rows)?;
    for n in 0..1 + rng.below(60) as u32 {
        part.push_raw(&n.to_be_bytes(), &[n as u8; 50])?;
    }
    sim.pause();
    part.finish().map(drop)
}

/// Reads the table twice in each of several transactions. Returns a finding if the two reads differ.
///
/// # Errors
/// Returns errors of the engine.
pub(super) fn read(db: &Database, sim: &dyn Sim, mut rng: Rng) -> Result<Option<String>, TxnError> {
    let table = db.table(&TABLE)?;
    for _ in 0..4 {
        let tx = db.begin()?;
        let mut found = [0; 2];
        for found in &mut found {
            let visit = |_: &[u8], _: &[u8]| {
                *found += 1;
                ControlFlow::Continue(())
            };
            tx.raw().scan(&table, &[], &[255; 5], visit)?;
            for _ in 0..rng.below(12) {
                sim.pause();
            }
        }
        tx.commit_async()?;
        if found[0] != found[1] {
            let [first, then] = found;
            return Ok(Some(format!("one transaction finds {first} rows of a table being loaded, then {then}")));
        }
    }
    Ok(None)
}
