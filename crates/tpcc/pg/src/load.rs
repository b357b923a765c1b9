//! Loads the tables. Threads generate rows and collect the rows of each table in chunks. A free connection takes the next
//! chunk and copies it in a transaction of its own.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use zerocopy::IntoBytes;

use super::columns::{Column, table};
use super::connect::{Connection, Purpose, SCHEMA, Server};
use super::error::PgError;
use super::rows::Writer;
use super::schema::{SchemaState, create, finishing};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::load::sink::{Append, AppendIndex, BulkSink};
use tpcc_core::workload::load::{LoadEnd, Population, RowsDone, populate};
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::ops::Ops;
use tpcc_core::workload::schema::tables::Meta;
use tpcc_core::workload::schema::{IndexDef, Key, MAX_KEY, RowOf, TableDef, TableId};
use tpcc_core::workload::threads::{self, SharedWorkError};
use tpcc_core::workload::words::counted;

/// Size of a chunk in bytes. A transaction loads many rows, but a chunk is small enough that all connections have work soon.
const CHUNK: usize = 1 << 20;
/// Header of a binary copy: signature, flags and length of the extension.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Trailer of a binary copy.
const TRAILER: i16 = -1;

/// A chunk of rows of one table.
struct Chunk {
    table: TableId,
    rows: Bytes,
}

/// Loads `plan` with `threads` threads that generate rows. Returns false if `progress` was cancelled.
pub(super) fn load(
    server: &Server,
    connection: &Connection,
    plan: &Population,
    threads: usize,
    progress: &RowsDone,
) -> Result<bool, Error> {
    let failed = |error| server.failed(error);
    let config = server.config();
    let shown = config.shown();
    match SchemaState::inspect(connection).map_err(failed)? {
        SchemaState::Empty => {}
        SchemaState::Complete(held) => {
            let replace = config.command("load", &format!("--warehouses {} --replace", plan.warehouses));
            let held = counted(held.warehouses.into(), "warehouse");
            return Err(Error::failed(format!("{shown}: already holds {held}; nothing was changed"))
                .help(format!("{replace} deletes that first; or name another database with --engine")));
        }
        // This call returns the error with its hint.
        SchemaState::Incomplete | SchemaState::Foreign(_) | SchemaState::AccessDenied(_) => {
            super::schema::open(server, connection).map(drop)?;
        }
    }
    create(connection, config.dialect).map_err(failed)?;
    let copiers =
        (0..config.connections).map(|_| server.open_connection(Purpose::Tables)).collect::<Result<Vec<_>, _>>()?;
    if load_rows(&copiers, plan, threads, progress).map_err(|error| error.into_error(failed))? == LoadEnd::Cancelled {
        return Ok(false);
    }
    finish(server, &copiers).map_err(|error| error.into_error(failed))?;
    mark_complete(connection, &plan.loaded()).map_err(failed)?;
    Ok(true)
}

/// Marks the load as complete. This is its last step.
fn mark_complete(connection: &Connection, loaded: &Loaded) -> Result<(), PgError> {
    connection.batch("BEGIN")?;
    loaded.rows().iter().try_for_each(|(key, row)| Writer::over(connection).insert::<Meta>(key, row))?;
    connection.batch("COMMIT")
}

fn load_rows(
    copiers: &[Connection],
    plan: &Population,
    threads: usize,
    progress: &RowsDone,
) -> Result<LoadEnd, SharedWorkError<PgError>> {
    let (to, from) = sync_channel(copiers.len());
    let from = Mutex::new(from);
    let failure = Arc::new(Mutex::new(None));
    let made = std::thread::scope(|scope| {
        let works = copiers.iter().map(|copier| {
            let (from, failure) = (&from, Arc::clone(&failure));
            move || {
                if let Err(error) = copy_all(copier, from) {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    progress.cancel();
                    // Drains the channel, so that no thread blocks on a full one.
                    while next(from).is_some() {}
                }
            }
        });
        let copying = threads::spawn_all(scope, "copier", works);
        if let Err(error) = copying {
            return Err(SharedWorkError::Threads(error));
        }
        let made = populate(plan, &ChunkSink { to: to.clone() }, threads, progress);
        drop(to);
        made
    });
    let failure = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (failure, made) {
        (Some(error), _) => Err(SharedWorkError::Work(error)),
        (None, Err(SharedWorkError::Threads(error))) => Err(SharedWorkError::Threads(error)),
        // Chunks remain in the channel only after a failure.
        (None, made) => Ok(made.unwrap_or(LoadEnd::Cancelled)),
    }
}

fn next(from: &Mutex<Receiver<Chunk>>) -> Option<Chunk> {
    from.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn copy_all(copier: &Connection, from: &Mutex<Receiver<Chunk>>) -> Result<(), PgError> {
    while let Some(chunk) = next(from) {
        let table = table(chunk.table);
        let sql = format!("COPY {SCHEMA}.{} ({}) FROM STDIN WITH BINARY", table.name, table.names());
        copier
            .wait(async {
                let mut sink = Box::pin(copier.client.copy_in::<_, Bytes>(&sql).await?);
                sink.send(chunk.rows).await?;
                sink.as_mut().finish().await
            })?
            .map_err(|error| copier.error(error, Some(chunk.table)))?;
    }
    Ok(())
}

/// Adds keys, indexes and statistics, the largest tables first. Each connection works on one table at a time.
fn finish(server: &Server, copiers: &[Connection]) -> Result<(), SharedWorkError<PgError>> {
    let mut tables = vec![TableId::OrderLine, TableId::Stock, TableId::Customer, TableId::Order];
    tables.extend(TableId::ALL.into_iter().filter(|id| !tables.contains(id)).collect::<Vec<_>>());
    tables.reverse();
    let left = Mutex::new(tables);
    let failure = Mutex::new(Ok(()));
    let finish_some = |copier: &Connection| {
        let take = || left.lock().unwrap_or_else(PoisonError::into_inner).pop();
        while let Some(id) = take() {
            let statements = finishing(id, server.config().dialect);
            if let Err(error) = statements.iter().try_for_each(|sql| copier.batch(sql)) {
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                return;
            }
        }
    };
    let finish_some = &finish_some;
    let works = copiers.iter().map(|copier| move || finish_some(copier));
    threads::run_each("finisher", works).map_err(SharedWorkError::Threads)?;
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_err(SharedWorkError::Work)
}

/// Error of the sink: all connections have stopped copying. The error of a connection has the reason.
#[derive(Debug, thiserror::Error)]
#[error("nobody copies rows any more")]
struct CopiersStopped;

/// Sink that collects rows in chunks.
struct ChunkSink {
    to: SyncSender<Chunk>,
}

impl BulkSink for ChunkSink {
    type Error = CopiersStopped;
    type Appender<'a, T: TableDef> = RowAppender<T>;
    type IndexAppender<'a, I: IndexDef> = IgnoredIndexEntries;

    fn table<T: TableDef>(&self) -> Result<RowAppender<T>, CopiersStopped> {
        Ok(RowAppender { to: self.to.clone(), rows: begin(), table: std::marker::PhantomData })
    }

    fn index<I: IndexDef>(&self) -> Result<IgnoredIndexEntries, CopiersStopped> {
        Ok(IgnoredIndexEntries)
    }
}

fn begin() -> BytesMut {
    let mut rows = BytesMut::with_capacity(CHUNK + 4096);
    rows.put_slice(SIGNATURE);
    rows
}

struct RowAppender<T> {
    to: SyncSender<Chunk>,
    rows: BytesMut,
    table: std::marker::PhantomData<T>,
}

impl<T: TableDef> RowAppender<T> {
    fn send(&mut self) -> Result<(), CopiersStopped> {
        let mut rows = std::mem::replace(&mut self.rows, begin());
        rows.put_i16(TRAILER);
        self.to.send(Chunk { table: T::TABLE, rows: rows.freeze() }).map_err(|_| CopiersStopped)
    }
}

fn put(columns: &[Column], mut bytes: &[u8], out: &mut BytesMut) {
    for (_, kind) in columns {
        let (own, rest) = bytes.split_at(kind.width());
        let at = out.len();
        out.put_i32(-1);
        if kind.encode(own, out) {
            let len = (out.len() - at - 4) as i32;
            out[at..at + 4].copy_from_slice(&len.to_be_bytes());
        }
        bytes = rest;
    }
}

impl<T: TableDef> Append<T> for RowAppender<T> {
    type Error = CopiersStopped;

    fn push(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), CopiersStopped> {
        let table = table(T::TABLE);
        self.rows.put_i16(table.columns().count() as i16);
        let mut encoded = [0; MAX_KEY];
        key.write(&mut encoded[..T::Key::LEN]);
        put(table.key, &encoded[..T::Key::LEN], &mut self.rows);
        put(table.hot, row.hot.as_bytes(), &mut self.rows);
        put(table.cold, row.cold.as_bytes(), &mut self.rows);
        if self.rows.len() >= CHUNK { self.send() } else { Ok(()) }
    }

    fn finish(mut self) -> Result<(), CopiersStopped> {
        if self.rows.len() > SIGNATURE.len() { self.send() } else { Ok(()) }
    }
}

/// Sink that ignores index entries: the server creates them from the rows.
struct IgnoredIndexEntries;

impl<I: IndexDef> AppendIndex<I> for IgnoredIndexEntries {
    type Error = CopiersStopped;

    fn push(&mut self, _key: &I::Key) -> Result<(), CopiersStopped> {
        Ok(())
    }

    fn finish(self) -> Result<(), CopiersStopped> {
        Ok(())
    }
}
