//! Loops within transactions ([`Transaction::in_order`]): some statements of a transaction run as the iterations of a loop, each
//! in an epoch of its own. Their answers and effects must equal those of the same statements in sequence.
//!
//! The epochs run on the thread of the worker, so that a run with loops is deterministic. Some of them are rolled back after they
//! have ended, and run again. `torture/loops.rs` has loops on several threads.

use std::sync::atomic::{AtomicU64, Ordering};

use storage::measure::LoopMeasurement;
use storage::{Options, Transaction, TxnError};

use super::model::Op;
use super::notes::LoopCounters;
use super::rng::Rng;
use super::statements::StatementMaker;

/// Maximum number of iterations of a loop.
const ITERATIONS: u64 = 10;
/// Maximum number of statements of an iteration.
const STATEMENTS: u64 = 6;
/// Number of transactions and members of transactions that run at the same time.
const TRANSACTIONS: usize = 32;

/// Returns options with loops in epochs.
pub(super) fn with_epochs(options: Options, rng: &mut Rng) -> Options {
    let inject = rng.pick(&[0.0, 0.05, 0.3]);
    let measurement = LoopMeasurement { epochs_on_one_thread: true, trace: false, inject, seed: rng.next() };
    options.transactions(TRANSACTIONS).loop_threads(1).measure_loops(measurement)
}

/// Reason for which an iteration ended the loop.
enum LoopEnd {
    /// The iteration ended the loop. Contains its answers.
    Early(Vec<Op>),
    Refused(TxnError),
}

impl From<TxnError> for LoopEnd {
    fn from(error: TxnError) -> LoopEnd {
        LoopEnd::Refused(error)
    }
}

/// Runs a random loop within a transaction. Returns the answers of its statements, in order.
///
/// # Errors
/// Returns errors of the engine. Some of the statements may have taken effect nevertheless.
pub(super) fn run(maker: &mut StatementMaker<'_, '_>, counters: &mut LoopCounters) -> Result<Vec<Op>, TxnError> {
    let StatementMaker { db, tables, profile, .. } = *maker;
    // An iteration that runs again makes the same statements.
    let seeds: Vec<u64> = (0..1 + maker.rng.below(ITERATIONS)).map(|_| maker.rng.next()).collect();
    let begun = AtomicU64::new(0);
    let body = |tx: &mut Transaction<'_>, seed: &u64| {
        begun.fetch_add(1, Ordering::Relaxed);
        let mut rng = Rng::new(*seed);
        let mut maker = StatementMaker { db, tx, tables, rng: &mut rng, profile, in_loop: true };
        let statements = 1 + maker.rng.below(STATEMENTS);
        let ops = (0..statements).map(|_| maker.statement(&[])).collect::<Result<Vec<_>, _>>()?;
        if rng.once_in(20) { Err(LoopEnd::Early(ops)) } else { Ok(ops) }
    };
    let (mut ops, mut ended) = (Vec::new(), 0);
    let ran = maker.tx.in_order(seeds, body, |new| {
        ops.extend(new);
        ended += 1;
    });
    counters.loops += 1;
    counters.epochs += ended;
    match ran {
        Ok(()) => counters.violations += begun.into_inner() - ended,
        Err(LoopEnd::Early(new)) => ops.extend(new),
        Err(LoopEnd::Refused(error)) => return Err(error),
    }
    Ok(ops)
}
