//! Implementation of the engine traits on a [`storage::Database`]: sessions, transactions and record operations.

use std::borrow::BorrowMut;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Range};

use arrayvec::ArrayVec;
use storage::{Age, Database, Durability, Isolation, Lsn, OpenTable, Raw, Table, TxnError};
use zerocopy::FromBytes;

use super::codec::{bytes_of, extract, key_of, row_mut, row_of};
use super::fiber_hook::StoreHook;
use crate::workload::abort::{Abort, AbortCause, EngineError};
use crate::workload::counters::{LatchCounters, LeafCounters, LogCounters, PoolCounters, WaitCounters};
use crate::workload::engine::{Engine, EngineFigures, OpenTransaction, Session, Ticket};
use crate::workload::ops::{Direction, Ops, Read};
use crate::workload::schema::parts::{ColdPart, Part};
use crate::workload::schema::tables::TableMaker;
use crate::workload::schema::{IndexDef, IndexVisitor, Key, PerTable, RowOf, TableDef, TableFamily, TableId};
use crate::workload::txn::Failure;
use crate::workload::waits::{TableWaits, Waits};

/// Family of the handles of open tables: one handle per table of the schema.
pub(super) struct Handles;

impl TableFamily for Handles {
    type Of<T: TableDef> = OpenTable<Raw, Raw>;
}

struct Opener<'a>(&'a Database);

impl TableMaker<Handles> for Opener<'_> {
    type Error = StoreError;

    fn make<T: TableDef>(&mut self) -> Result<OpenTable<Raw, Raw>, StoreError> {
        let mut declaration = TableDeclaration { table: Table::new(T::TABLE.name()) };
        T::indexes(&mut declaration);
        Ok(self.0.raw_table(&declaration.table)?)
    }
}

struct TableDeclaration {
    table: Table<(), ()>,
}

impl<T: TableDef> IndexVisitor<T> for TableDeclaration {
    fn visit<I: IndexDef<Table = T>>(&mut self) {
        let table = std::mem::replace(&mut self.table, Table::new(T::TABLE.name()));
        // In-place updates change hot columns only, and index keys consist of primary keys and cold columns only.
        self.table = table.with_raw_index(I::INDEX.name(), true, size_of::<T::Hot>(), extract::<I>);
    }
}

/// Error of a [`Store`].
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A statement or a transaction failed.
    #[error(transparent)]
    Transaction(#[from] TxnError),
    /// The storage layer failed.
    #[error(transparent)]
    Storage(#[from] storage::StorageError),
    /// A speculative loop could not continue.
    #[error("speculation: {0}")]
    Speculation(String),
    /// The tables have more indexes than a team has operations for.
    #[error("the tables have too many indexes for teams: {0}")]
    Operations(#[from] sched_steps::team::TooManyOperations),
    /// A row or key that is not of this schema.
    #[error(
        "{table}: holds a row of another layout; use the build that wrote it, or load another directory with this one"
    )]
    Layout {
        /// Name of the table.
        table: &'static str,
    },
}

impl EngineError for StoreError {
    fn abort(&self) -> Option<Abort> {
        match self {
            StoreError::Transaction(TxnError::Deadlock { table }) => {
                let table = TableId::ALL.into_iter().find(|t| t.name() == &**table);
                Some(Abort { cause: AbortCause::Deadlock, table })
            }
            _ => None,
        }
    }
}

#[cold]
pub(super) fn layout<T: TableDef>() -> StoreError {
    StoreError::Layout { table: T::TABLE.name() }
}

/// Returns the result of reading one row. Fails if the bytes of the row have another layout.
#[inline(always)]
pub(super) fn decoded<T: TableDef, R>(row: Option<Option<R>>) -> Result<Option<R>, StoreError> {
    match row {
        Some(None) => Err(layout::<T>()),
        found => Ok(found.flatten()),
    }
}

/// Returns the result of reading several rows. Fails if the bytes of a row have another layout.
#[inline(always)]
pub(super) fn all_fit<T: TableDef, R>(fits: bool, answer: R) -> Result<R, StoreError> {
    if fits { Ok(answer) } else { Err(layout::<T>()) }
}

/// An open, loaded database.
pub struct Store {
    pub(super) db: Database,
    pub(super) tables: PerTable<Handles>,
    isolation: Isolation,
    durability: Durability,
    pub(super) prefetch: bool,
    /// True if the engine's background services run in steps on the worker threads, without threads of their own.
    inline: bool,
}

impl Store {
    /// Opens the tables, and creates those that do not exist. `hook` receives their indexes.
    ///
    /// # Errors
    /// Fails if the database has other tables with these names.
    pub fn new(
        db: Database,
        isolation: Isolation,
        durability: Durability,
        prefetch: bool,
        inline: bool,
        hook: Option<&dyn StoreHook>,
    ) -> Result<Store, StoreError> {
        let tables = PerTable::try_new(&mut Opener(&db))?;
        if let Some(hook) = hook {
            hook.set_indexes(&db.indexes())?;
        }
        Ok(Store { db, tables, isolation, durability, prefetch, inline })
    }

    /// Returns the database of the storage engine.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// Begins a transaction outside a session.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn begin(&self) -> Result<StoreTransaction<'_>, StoreError> {
        self.begin_at(self.isolation)
    }

    /// Begins a transaction with its own isolation level.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn begin_at(&self, isolation: Isolation) -> Result<StoreTransaction<'_>, StoreError> {
        Ok(self.wrap(self.db.begin_at(isolation)?))
    }

    #[inline]
    fn wrap<'t>(&'t self, mut tx: storage::Transaction<'t>) -> StoreTransaction<'t> {
        tx.find_together(self.prefetch);
        Statements { store: self, tx, lifetime: PhantomData }
    }

    /// Closes the database.
    ///
    /// # Errors
    /// Fails if data could not be written.
    pub fn close(self) -> Result<(), storage::StorageError> {
        self.db.close()
    }
}

impl Engine for Store {
    type Error = StoreError;
    type Session<'a> = StoreSession<'a>;
    type Reader<'a> = StoreTransaction<'a>;

    fn session(&self, _worker: usize) -> Result<StoreSession<'_>, StoreError> {
        Ok(StoreSession { store: self, age: None, until_step: STEP_EVERY })
    }

    fn reader(&self) -> Result<StoreTransaction<'_>, StoreError> {
        // No transaction runs meanwhile, so rows need not be locked one by one.
        self.begin_at(Isolation::ReadCommitted)
    }

    fn figures(&self) -> EngineFigures {
        let stats = self.db.stats();
        EngineFigures {
            log: Some(LogCounters {
                bytes: stats.log_bytes,
                flushes: stats.log_flushes,
                checkpoints: stats.checkpoints,
            }),
            log_direct: Some(stats.log_direct),
            pool: Some(PoolCounters {
                hits: stats.pool_hits,
                reads: stats.pool_reads,
                evictions: stats.pool_evictions,
                page_writes: stats.pool_writes,
            }),
            latches: (self.db.latches() == storage::LatchKind::Super).then_some(LatchCounters {
                promotions: stats.latch_promotions,
                demotions: stats.latch_demotions,
                refused: stats.latch_promotions_refused,
            }),
            speculation: None,
            waits: Some(waits(&self.db.waits())),
        }
    }

    fn leaves(&self) -> BTreeMap<String, LeafCounters> {
        let tables = self.db.contention().into_iter();
        tables
            .map(|of| {
                let counters =
                    LeafCounters { contended: of.leaves_contended, split_for_contention: of.splits_for_contention };
                (of.table, counters)
            })
            .collect()
    }
}

/// Returns the waits of the database as the report has them.
fn waits(of: &storage::Waits) -> Waits {
    let wait = |wait: storage::Wait| WaitCounters { count: wait.count, ns: wait.ns };
    let tables = of.tables.iter();
    let tables = tables.map(|of| (of.table.clone(), TableWaits { lock: wait(of.lock), latch: wait(of.latch) }));
    Waits {
        lock: wait(of.lock),
        latch: wait(of.latch),
        log_room: wait(of.log_room),
        log_place: wait(of.log_place),
        tables: tables.collect(),
    }
}

/// Session of a worker on the storage engine.
pub struct StoreSession<'a> {
    store: &'a Store,
    /// Age of the session's last transaction, kept for its retry.
    age: Option<Age>,
    /// Number of transactions until this worker runs the next step of the background services, if these have no threads of
    /// their own.
    until_step: u32,
}

/// Number of a worker's transactions between two steps of the background services.
const STEP_EVERY: u32 = 32;

impl<'a> Session for StoreSession<'a> {
    type Error = StoreError;
    type Transaction<'t>
        = StoreTransaction<'a>
    where
        Self: 't;

    #[inline]
    fn begin(&mut self) -> Result<StoreTransaction<'a>, StoreError> {
        if self.store.inline {
            self.until_step -= 1;
            if self.until_step == 0 {
                self.until_step = STEP_EVERY;
                self.store.db.step()?;
            }
        }
        let tx = self.store.db.begin_at(self.store.isolation)?;
        self.age = Some(tx.age());
        Ok(self.store.wrap(tx))
    }

    #[cold]
    fn begin_again(&mut self) -> Result<StoreTransaction<'a>, StoreError> {
        let Some(age) = self.age else { return self.begin() };
        let tx = self.store.db.begin_again(self.store.isolation, age)?;
        Ok(self.store.wrap(tx))
    }

    #[inline]
    fn durable(&mut self) -> Ticket {
        match self.store.durability {
            Durability::Sync => Ticket(self.store.db.durable().0),
            Durability::Async => Ticket::ALL,
        }
    }

    fn request(&mut self, ticket: Ticket) {
        if self.store.durability == Durability::Sync {
            self.store.db.request_flush(Lsn(ticket.0));
        }
    }

    fn wait_for(&mut self, ticket: Ticket) -> Result<Ticket, StoreError> {
        self.store.db.wait_durable(Lsn(ticket.0))?;
        Ok(self.durable())
    }
}

/// The statements of a transaction `X` of the engine, owned or borrowed.
pub struct Statements<'s, 't, X: BorrowMut<storage::Transaction<'t>>> {
    store: &'s Store,
    pub(super) tx: X,
    lifetime: PhantomData<fn() -> &'t ()>,
}

/// A transaction on a [`Store`].
pub type StoreTransaction<'t> = Statements<'t, 't, storage::Transaction<'t>>;

/// The transaction that an iteration of a loop has. See [`storage::Transaction::in_order`].
pub type IterationStatements<'s, 'x, 't> = Statements<'s, 't, &'x mut storage::Transaction<'t>>;

impl<'t> StoreTransaction<'t> {
    /// Returns the transaction of the engine.
    pub fn inner(&self) -> &storage::Transaction<'t> {
        &self.tx
    }

    /// Runs a loop on several threads. See [`storage::Transaction::in_order`].
    ///
    /// # Errors
    /// Errors of the loop and of the engine.
    pub fn in_order<I, R>(
        &mut self,
        items: I,
        body: impl for<'x, 'm> Fn(&mut IterationStatements<'t, 'x, 'm>, &I::Item) -> Result<R, Failure<StoreError>> + Sync,
        then: impl FnMut(R) + Send,
    ) -> Result<(), Failure<StoreError>>
    where
        I: IntoIterator<IntoIter: Send, Item: Send>,
        R: Send,
    {
        let store = self.store;
        self.tx.in_order(items, |tx, item| body(&mut Statements { store, tx, lifetime: PhantomData }, item), then)
    }
}

/// Returns the error of a loop that has returned before its last iteration.
#[cold]
pub(super) fn ended_early() -> Failure<StoreError> {
    Failure::Engine(StoreError::Speculation("a loop ended before its last iteration".to_owned()))
}

impl From<TxnError> for Failure<StoreError> {
    fn from(error: TxnError) -> Self {
        Failure::Engine(error.into())
    }
}

impl<'t, X: BorrowMut<storage::Transaction<'t>>> Statements<'_, 't, X> {
    #[inline(always)]
    fn table<T: TableDef>(&self) -> OpenTable<Raw, Raw> {
        *T::of(&self.store.tables)
    }

    #[inline(always)]
    fn raw(&self) -> storage::RawReader<'_, 't> {
        self.tx.borrow().raw()
    }

    #[inline(always)]
    fn raw_mut(&mut self) -> storage::RawWriter<'_, 't> {
        self.tx.borrow_mut().raw_mut()
    }
}

impl OpenTransaction for StoreTransaction<'_> {
    #[inline]
    fn commit(self) -> Result<Ticket, StoreError> {
        let end = self.tx.commit_async()?;
        Ok(Ticket(end.0))
    }

    fn rollback(self) -> Result<Ticket, StoreError> {
        let end = self.tx.rollback()?;
        Ok(Ticket(end.0))
    }
}

/// Finds the position of an index among the indexes of its table.
struct Position<I> {
    at: usize,
    found: Option<usize>,
    index: std::marker::PhantomData<I>,
}

impl<T: TableDef, I: IndexDef> IndexVisitor<T> for Position<I> {
    fn visit<J: IndexDef<Table = T>>(&mut self) {
        if J::INDEX == I::INDEX {
            self.found = Some(self.at);
        }
        self.at += 1;
    }
}

/// Returns the position of an index among the indexes of its table.
pub(super) fn position<I: IndexDef>() -> usize {
    let mut position = Position::<I> { at: 0, found: None, index: std::marker::PhantomData };
    <I::Table as TableDef>::indexes(&mut position);
    position.found.unwrap_or(usize::MAX)
}

impl<'t, X: BorrowMut<storage::Transaction<'t>>> Read for Statements<'_, 't, X> {
    type Error = StoreError;

    #[inline]
    fn read<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        mut f: impl FnMut(&RowOf<T>) -> R,
    ) -> Result<Option<R>, StoreError> {
        let bytes = key.encoded();
        let table = self.table::<T>();
        decoded::<T, _>(self.raw().read(&table, bytes.as_ref(), |row| row_of::<T>(row).map(&mut f))?)
    }

    #[inline]
    fn read_part<P: Part, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        mut f: impl FnMut(&P) -> R,
    ) -> Result<Option<R>, StoreError> {
        let bytes = key.encoded();
        let table = self.table::<P::Table>();
        let shown = |part: &[u8]| P::ref_from_bytes(part).ok().map(&mut f);
        decoded::<P::Table, _>(self.raw().read_columns(&table, bytes.as_ref(), &[bytes_of_part::<P>()], shown)?)
    }

    #[inline]
    fn read_parts<P: Part>(&mut self, keys: &[KeyOf<P>], mut f: impl FnMut(usize, &P)) -> Result<(), StoreError> {
        if !self.store.prefetch {
            let mut each = keys.iter().enumerate();
            return each.try_for_each(|(i, key)| self.read_part::<P, _>(key, |part| f(i, part)).map(drop));
        }
        let table = self.table::<P::Table>();
        let mut fits = true;
        for (chunk, keys) in keys.chunks(RUN).enumerate() {
            let bytes: ArrayVec<_, RUN> = keys.iter().map(Key::encoded).collect();
            let keys: ArrayVec<&[u8], RUN> = bytes.iter().map(AsRef::as_ref).collect();
            self.raw().read_columns_of(&table, &keys, &[bytes_of_part::<P>()], |i, part| {
                match P::ref_from_bytes(part) {
                    Ok(part) => f(chunk * RUN + i, part),
                    Err(_) => fits = false,
                }
            })?;
        }
        all_fit::<P::Table, _>(fits, ())
    }

    #[inline]
    fn scan<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        mut f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let (from, to) = (from.encoded(), to.encoded());
        let table = self.table::<T>();
        let mut fits = true;
        self.raw().scan(&table, from.as_ref(), to.as_ref(), |key, row| {
            let (Some(key), Some(row)) = (key_of::<T::Key>(key), row_of::<T>(row)) else {
                fits = false;
                return ControlFlow::Break(());
            };
            f(&key, row)
        })?;
        all_fit::<T, _>(fits, ())
    }

    #[inline]
    fn scan_index<I: IndexDef>(
        &mut self,
        from: &I::Key,
        to: &I::Key,
        direction: Direction,
        mut f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let (from, to) = (from.encoded(), to.encoded());
        let table = self.table::<I::Table>();
        let mut fits = true;
        let down = direction == Direction::Down;
        self.raw().scan_index(&table, position::<I>(), from.as_ref(), to.as_ref(), down, |key, primary| {
            let (Some(key), Some(primary)) = (key_of::<I::Key>(key), key_of(primary)) else {
                fits = false;
                return ControlFlow::Break(());
            };
            f(&key, &primary)
        })?;
        all_fit::<I::Table, _>(fits, ())
    }
}

/// Maximum number of rows or keys per call of a statement on several rows.
const RUN: usize = 16;

impl<'t, X: BorrowMut<storage::Transaction<'t>>> Ops for Statements<'_, 't, X> {
    #[inline]
    fn update<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, StoreError> {
        let bytes = key.encoded();
        let table = self.table::<T>();
        let change = |hot: &mut [u8], cold: &[u8]| {
            let hot = T::Hot::mut_from_bytes(hot).ok()?;
            Some(f(hot, T::Cold::ref_from_bytes(cold).ok()?))
        };
        decoded::<T, _>(self.raw_mut().update_head(&table, bytes.as_ref(), size_of::<T::Hot>(), change)?)
    }

    #[inline]
    fn update_part<P: ColdPart, R>(
        &mut self,
        key: &<P::Table as TableDef>::Key,
        f: impl FnOnce(&mut <P::Table as TableDef>::Hot, &P) -> R,
    ) -> Result<Option<R>, StoreError> {
        let bytes = key.encoded();
        let table = self.table::<P::Table>();
        let change = |hot: &mut [u8], part: &[u8]| {
            let hot = <P::Table as TableDef>::Hot::mut_from_bytes(hot).ok()?;
            Some(f(hot, P::ref_from_bytes(part).ok()?))
        };
        let columns = [0..size_of::<<P::Table as TableDef>::Hot>(), bytes_of_part::<P>()];
        decoded::<P::Table, _>(self.raw_mut().update_columns(&table, bytes.as_ref(), &columns, change)?)
    }

    #[inline]
    fn update_many<T: TableDef>(
        &mut self,
        keys: &[T::Key],
        mut f: impl FnMut(usize, &mut T::Hot, &T::Cold),
    ) -> Result<usize, StoreError> {
        let table = self.table::<T>();
        let mut fits = true;
        let mut rows = 0;
        for (chunk, keys) in keys.chunks(RUN).enumerate() {
            let bytes: ArrayVec<_, RUN> = keys.iter().map(Key::encoded).collect();
            let keys: ArrayVec<&[u8], RUN> = bytes.iter().map(AsRef::as_ref).collect();
            rows += self.raw_mut().update_heads(&table, &keys, size_of::<T::Hot>(), |i, hot, cold| {
                match (T::Hot::mut_from_bytes(hot), T::Cold::ref_from_bytes(cold)) {
                    (Ok(hot), Ok(cold)) => f(chunk * RUN + i, hot, cold),
                    _ => fits = false,
                }
            })?;
        }
        all_fit::<T, _>(fits, rows)
    }

    #[inline]
    fn rewrite<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, StoreError> {
        let bytes = key.encoded();
        let table = self.table::<T>();
        decoded::<T, _>(self.raw_mut().update(&table, bytes.as_ref(), |row| row_mut::<T>(row).map(f))?)
    }

    #[inline]
    fn update_run<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        mut f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, StoreError> {
        let (from, to) = (from.encoded(), to.encoded());
        let table = self.table::<T>();
        let mut fits = true;
        let rows = self.raw_mut().update_run(&table, from.as_ref(), to.as_ref(), |key, row| {
            match (key_of::<T::Key>(key), row_mut::<T>(row)) {
                (Some(key), Some(row)) => f(&key, &mut row.hot, &row.cold),
                _ => fits = false,
            }
        })?;
        all_fit::<T, _>(fits, rows)
    }

    #[inline]
    fn insert<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), StoreError> {
        let bytes = key.encoded();
        let table = self.table::<T>();
        Ok(self.raw_mut().insert(&table, bytes.as_ref(), bytes_of::<T>(row))?)
    }

    #[inline]
    fn insert_run<T: TableDef>(&mut self, rows: &[(T::Key, RowOf<T>)]) -> Result<(), StoreError> {
        let table = self.table::<T>();
        for chunk in rows.chunks(RUN) {
            let keys: ArrayVec<_, RUN> = chunk.iter().map(|(key, _)| key.encoded()).collect();
            let pairs = keys.iter().zip(chunk).map(|(key, (_, row))| (key.as_ref(), bytes_of::<T>(row)));
            let pairs: ArrayVec<(&[u8], &[u8]), RUN> = pairs.collect();
            self.raw_mut().insert_run(&table, &pairs)?;
        }
        Ok(())
    }

    #[inline]
    fn remove_first<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, StoreError> {
        let (from, to) = (from.encoded(), to.encoded());
        let table = self.table::<T>();
        match self.raw_mut().take_first(&table, from.as_ref(), to.as_ref())? {
            None => Ok(None),
            Some(key) => key_of(&key).ok_or_else(layout::<T>).map(Some),
        }
    }

    #[inline]
    fn prefetch<T: TableDef>(&mut self, keys: &[T::Key]) {
        self.prefetch_rows::<T>(keys, size_of::<RowOf<T>>());
    }

    #[inline]
    fn prefetch_part<P: Part>(&mut self, keys: &[<P::Table as TableDef>::Key]) {
        self.prefetch_rows::<P::Table>(keys, bytes_of_part::<P>().end);
    }

    #[inline]
    fn prefetch_along<P: Part>(&mut self, key: &<P::Table as TableDef>::Key) {
        if self.store.prefetch {
            let table = self.table::<P::Table>();
            self.raw_mut().prefetch_along(&table, key.encoded().as_ref(), bytes_of_part::<P>().end);
        }
    }

    #[inline]
    fn prefetch_insert<T: TableDef>(&mut self, key: &T::Key) {
        if self.store.prefetch {
            let table = self.table::<T>();
            self.raw_mut().prefetch_insert(&table, key.encoded().as_ref());
        }
    }
}

/// Key type of a part's table.
type KeyOf<P> = <<P as Part>::Table as TableDef>::Key;

/// Returns the byte range of a part in its row.
pub(super) const fn bytes_of_part<P: Part>() -> Range<usize> {
    P::AT..P::AT + size_of::<P>()
}

impl<'t, X: BorrowMut<storage::Transaction<'t>>> Statements<'_, 't, X> {
    /// Prefetches the first `row` bytes of each row.
    #[inline]
    fn prefetch_rows<T: TableDef>(&mut self, keys: &[T::Key], row: usize) {
        if !self.store.prefetch {
            return;
        }
        let table = self.table::<T>();
        for chunk in keys.chunks(RUN) {
            let keys: ArrayVec<_, RUN> = chunk.iter().map(Key::encoded).collect();
            self.raw().prefetch(keys.iter().map(|key| (table, key.as_ref(), row)));
        }
    }
}
