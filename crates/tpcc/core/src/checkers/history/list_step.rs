//! Steps of a list-append transaction, one after the other or as iterations of a loop on several threads
//! ([`Transaction::in_order`]).
//!
//! Only the list-append form has such loops: a step of the register form records the order in which versions were drawn, and a
//! step that is rolled back and runs again has drawn a version that no row has.

use std::ops::ControlFlow;

use storage::{OpenTable, Transaction, TxnError};

use super::Op;
use super::shared_state::{decoded, encoded, numbers};

/// Step of a list-append transaction, with the keys of its rows.
#[derive(Clone, Copy, Debug)]
pub(super) enum ListStep {
    Append {
        key: u64,
        number: u64,
    },
    Read(u64),
    /// Read of a range of keys, both ends included.
    Range(u64, u64),
}

impl ListStep {
    /// Runs the step, and returns its operations with the observed values.
    pub(super) fn run(self, tx: &mut Transaction<'_>, rows: &OpenTable<u64, Vec<u8>>) -> Result<Vec<Op>, TxnError> {
        match self {
            ListStep::Append { key, number } => {
                append(tx, rows, key, number)?;
                Ok(vec![Op::Append(key, number)])
            }
            ListStep::Read(key) => {
                let list = tx.get(rows, &key)?.map_or_else(Vec::new, |row| numbers(&row));
                Ok(vec![Op::List(key, list)])
            }
            ListStep::Range(from, to) => {
                let mut seen: Vec<Op> = (from..=to).map(|key| Op::List(key, Vec::new())).collect();
                tx.raw().scan(rows, &encoded(from), &encoded(to), |key, row| {
                    if let Some(key) = decoded(key)
                        && let Some(Op::List(_, list)) = seen.get_mut((key - from) as usize)
                    {
                        *list = numbers(row);
                    }
                    ControlFlow::Continue(())
                })?;
                Ok(seen)
            }
        }
    }
}

/// Appends a number to the list of a row, which is inserted if it is missing.
fn append(tx: &mut Transaction<'_>, rows: &OpenTable<u64, Vec<u8>>, key: u64, number: u64) -> Result<(), TxnError> {
    let bytes = (number as u32).to_le_bytes();
    loop {
        if tx.raw_mut().update(rows, &encoded(key), |row| row.extend_from_slice(&bytes))?.is_some() {
            return Ok(());
        }
        match tx.insert(rows, &key, &bytes.to_vec()) {
            // Below serializable, another transaction can insert the row between the update attempt and the insert.
            Err(TxnError::DuplicateKey { .. }) => {}
            inserted => return inserted,
        }
    }
}
