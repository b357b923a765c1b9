//! Engine with speculative execution: its sessions run the loops of transactions ahead of the transactions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use parking_lot::Mutex;
use speculate::Options;

use super::loops::{Loops, TransactionLoop};
use super::selector::LoopSelector;
use crate::engines::storage::store::{Store, StoreError, StoreSession, StoreTransaction};
use crate::workload::counters::{Counters, LeafCounters, SpeculationCounters};
use crate::workload::engine::{Engine, EngineFigures, OpenTransaction, Session, Ticket};
use crate::workload::generate::deck::Kind;
use crate::workload::generate::input::Input;
use crate::workload::ops::{Direction, Ops, Read};
use crate::workload::schema::{IndexDef, RowOf, TableDef};
use crate::workload::settings::Speculate;
use crate::workload::txn::{self, Scratch, StepOrder, TxnResult};

/// A [`Store`] whose sessions run the loops of transactions ahead of the transactions.
pub struct AheadStore<'s> {
    store: &'s Store,
    how: Speculate,
    epoch_workers: usize,
    /// Sum of the counters that the sessions have reported.
    shared_counters: Mutex<SpeculationCounters>,
}

impl<'s> AheadStore<'s> {
    /// Creates the engine. Each session runs its loops on `epoch_workers` threads.
    pub fn new(store: &'s Store, how: Speculate, epoch_workers: usize) -> AheadStore<'s> {
        AheadStore { store, how, epoch_workers, shared_counters: Mutex::default() }
    }
}

impl Engine for AheadStore<'_> {
    type Error = StoreError;
    type Session<'a>
        = AheadSession<'a>
    where
        Self: 'a;
    type Reader<'a>
        = StoreTransaction<'a>
    where
        Self: 'a;

    fn session(&self, worker: usize) -> Result<AheadSession<'_>, StoreError> {
        let options = Options::new().workers(self.epoch_workers);
        let state = LoopState {
            loops: Loops::new(self.store, options)?,
            selectors: [
                TransactionLoop::OrderLines,
                TransactionLoop::Accounts,
                TransactionLoop::StatusLines,
                TransactionLoop::Districts,
                TransactionLoop::RecentOrders,
            ]
            .map(|of| LoopSelector::new(of, self.how)),
            counted: SpeculationCounters::default(),
            unreported: 0,
            shared_counters: &self.shared_counters,
        };
        Ok(AheadSession { session: self.store.session(worker)?, state })
    }

    fn reader(&self) -> Result<StoreTransaction<'_>, StoreError> {
        self.store.reader()
    }

    fn figures(&self) -> EngineFigures {
        EngineFigures { speculation: Some(*self.shared_counters.lock()), ..self.store.figures() }
    }

    fn leaves(&self) -> BTreeMap<String, LeafCounters> {
        self.store.leaves()
    }
}

/// Session of a worker on an store with speculative execution.
pub struct AheadSession<'a> {
    session: StoreSession<'a>,
    state: LoopState<'a>,
}

impl<'a> Session for AheadSession<'a> {
    type Error = StoreError;
    type Transaction<'t>
        = AheadTransaction<'t, 'a>
    where
        Self: 't;

    fn begin(&mut self) -> Result<AheadTransaction<'_, 'a>, StoreError> {
        Ok(AheadTransaction { tx: self.session.begin()?, state: &mut self.state })
    }

    fn begin_again(&mut self) -> Result<AheadTransaction<'_, 'a>, StoreError> {
        Ok(AheadTransaction { tx: self.session.begin_again()?, state: &mut self.state })
    }

    fn durable(&mut self) -> Ticket {
        self.session.durable()
    }

    fn request(&mut self, ticket: Ticket) {
        self.session.request(ticket);
    }

    fn wait_for(&mut self, ticket: Ticket) -> Result<Ticket, StoreError> {
        self.session.wait_for(ticket)
    }
}

/// State of a worker for loops that run ahead of their transactions.
struct LoopState<'a> {
    loops: Loops<'a>,
    /// Selector of the loop execution for each transaction kind, indexed by [`Kind`].
    selectors: [LoopSelector; Kind::ALL.len()],
    counted: SpeculationCounters,
    /// Number of transactions since the last report of the counters.
    unreported: u32,
    shared_counters: &'a Mutex<SpeculationCounters>,
}

/// Number of transactions between two reports of a session's counters.
const REPORT_EVERY: u32 = 64;

impl<'a> LoopState<'a> {
    fn run(
        &mut self,
        tx: &mut StoreTransaction<'a>,
        steps: StepOrder,
        input: &Input,
        scratch: &mut Scratch,
    ) -> TxnResult<StoreTransaction<'a>> {
        let selector = &mut self.selectors[input.kind() as usize];
        let decision = selector.decide();
        let ran = match decision.grain {
            Some(grain) => {
                self.counted.ahead += 1;
                self.loops.run(tx, TransactionLoop::best_of(input), input, grain, scratch)
            }
            None => {
                self.counted.in_order += 1;
                txn::run(tx, steps, input, scratch)
            }
        };
        if ran.is_ok() {
            selector.record(&decision, input.items());
        }
        self.unreported += 1;
        if self.unreported == REPORT_EVERY {
            self.report();
        }
        ran
    }

    fn report(&mut self) {
        let stats = self.loops.take_stats();
        self.shared_counters.lock().add(&SpeculationCounters {
            epochs: stats.epochs,
            violations: stats.violations,
            operations: stats.operations,
            rewound: stats.rewound,
            rewound_ns: stats.rewound_ns,
            in_order_ns: stats.in_order_ns,
            waited_ns: stats.waited_ns,
            ..std::mem::take(&mut self.counted)
        });
        self.unreported = 0;
    }
}

impl Drop for LoopState<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

/// A transaction, with the worker's state for its loop.
pub struct AheadTransaction<'t, 'a> {
    tx: StoreTransaction<'a>,
    state: &'t mut LoopState<'a>,
}

impl OpenTransaction for AheadTransaction<'_, '_> {
    fn run(&mut self, steps: StepOrder, input: &Input, scratch: &mut Scratch) -> TxnResult<Self> {
        self.state.run(&mut self.tx, steps, input, scratch)
    }

    fn commit(self) -> Result<Ticket, StoreError> {
        self.tx.commit()
    }

    fn rollback(self) -> Result<Ticket, StoreError> {
        self.tx.rollback()
    }
}

impl Read for AheadTransaction<'_, '_> {
    type Error = StoreError;

    fn read<T: TableDef, R>(&mut self, key: &T::Key, f: impl FnMut(&RowOf<T>) -> R) -> Result<Option<R>, StoreError> {
        self.tx.read::<T, R>(key, f)
    }

    fn scan<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.tx.scan::<T>(from, to, f)
    }

    fn scan_index<I: IndexDef>(
        &mut self,
        from: &I::Key,
        to: &I::Key,
        direction: Direction,
        f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.tx.scan_index::<I>(from, to, direction, f)
    }
}

/// Executes the statements outside of loops.
impl Ops for AheadTransaction<'_, '_> {
    fn update<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.tx.update::<T, R>(key, f)
    }

    fn rewrite<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.tx.rewrite::<T, R>(key, f)
    }

    fn update_run<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, StoreError> {
        self.tx.update_run::<T>(from, to, f)
    }

    fn insert<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), StoreError> {
        self.tx.insert::<T>(key, row)
    }

    fn insert_run<T: TableDef>(&mut self, rows: &[(T::Key, RowOf<T>)]) -> Result<(), StoreError> {
        self.tx.insert_run::<T>(rows)
    }

    fn remove_first<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, StoreError> {
        self.tx.remove_first::<T>(from, to)
    }

    fn prefetch<T: TableDef>(&mut self, keys: &[T::Key]) {
        self.tx.prefetch::<T>(keys);
    }
}
