//! Results of measured loops.

use speculate::LoopTrace;

use super::database::Database;

impl Database {
    /// Returns the traces of the loops that have ended since the last call. The operations of an epoch are its requests for
    /// record locks, spread evenly over its time.
    pub fn take_loop_traces(&self) -> Vec<LoopTrace> {
        self.loops.measured.take_traces()
    }

    /// Returns the number of epochs that were rolled back because of [`LoopMeasurement::inject`](crate::measure::LoopMeasurement).
    pub fn injected_repeats(&self) -> u64 {
        self.loops.measured.injected()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use speculate::OpKind;

    use super::*;
    use crate::db::loop_measurement::LoopMeasurement;
    use crate::io::MemDisk;
    use crate::{Options, Table, TxnError};

    const ROWS: Table<u64, u64> = Table::new("rows");

    /// Runs a loop over 20 rows that are already there, and returns the database.
    fn after_loop(threads: usize, measurement: LoopMeasurement) -> Database {
        let options = Options::new().buffer_pool(64 << 20).loop_threads(threads).measure_loops(measurement);
        let db = options.open_on(Arc::new(MemDisk::new())).expect("a database in memory opens");
        db.transact(|tx| (0..20).try_for_each(|key| tx.put(&ROWS, &key, &key))).expect("no conflict");
        let mut tx = db.begin().expect("a slot is free");
        let mut sum = 0;
        let ran = tx.in_order(
            0..20_u64,
            |tx, key| {
                let row = tx.get(&ROWS, key)?.unwrap_or_default();
                tx.put(&ROWS, key, &(row + 1))?;
                Ok::<_, TxnError>(row)
            },
            |row| sum += row,
        );
        ran.expect("no conflict with another transaction");
        tx.commit().expect("the disk is in memory");
        assert_eq!(sum, 190);
        let tx = db.begin().expect("a slot is free");
        assert!((0..20).all(|key| tx.get(&ROWS, &key).expect("no conflict") == Some(key + 1)));
        drop(tx);
        db
    }

    #[test]
    fn one_thread_runs_epochs_if_asked() {
        assert_eq!(after_loop(1, LoopMeasurement::default()).stats().loop_epochs, 0);
        let measurement = LoopMeasurement { epochs_on_one_thread: true, ..LoopMeasurement::default() };
        assert_eq!(after_loop(1, measurement).stats().loop_epochs, 20);
    }

    #[test]
    fn a_traced_loop_tells_the_locks_of_each_epoch() {
        for threads in [1, 2] {
            let measurement = LoopMeasurement { epochs_on_one_thread: true, trace: true, ..LoopMeasurement::default() };
            let traces = after_loop(threads, measurement).take_loop_traces();
            let [trace] = &traces[..] else { panic!("{} traces of one loop", traces.len()) };
            assert!(trace.epochs.iter().map(|epoch| epoch.number).eq(0..20), "{trace:?}");
            let written = |epoch: &speculate::EpochTrace| {
                let written = epoch.operations.iter().filter(|op| op.kind == OpKind::Write);
                written.flat_map(|op| op.keys.clone()).collect::<Vec<_>>()
            };
            assert!(trace.epochs.iter().all(|epoch| written(epoch).len() == 1), "{trace:?}");
            assert_ne!(written(&trace.epochs[0]), written(&trace.epochs[1]));
            assert!(trace.epochs.iter().all(|epoch| epoch.body_ns > 0 && epoch.body_ns <= trace.elapsed_ns));
        }
    }

    #[test]
    fn an_injected_conflict_runs_an_epoch_once_more() {
        let always = LoopMeasurement { epochs_on_one_thread: true, inject: 1.0, seed: 1, ..LoopMeasurement::default() };
        let db = after_loop(2, always);
        assert_eq!(db.injected_repeats(), 20);
        assert!(db.stats().loop_repeats >= 20);
        assert_eq!(db.stats().loop_epochs, 20);
        let sometimes = LoopMeasurement { inject: 0.2, ..always };
        let injected = after_loop(2, sometimes).injected_repeats();
        assert!((1..20).contains(&injected), "{injected}");
    }
}
