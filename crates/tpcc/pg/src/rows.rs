//! Access to single rows and key ranges of any table: implements the traits of all engines, with one round trip per
//! statement. The five transactions have statements of their own (`txn/`). This module serves the metadata of the database,
//! and the tests that compare single-row statements with those transactions.

use std::ops::ControlFlow;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use zerocopy::{FromBytes, IntoBytes};

use super::columns::{Column, Field, RawColumn, SqlTable, index, table};
use super::connect::Connection;
use super::error::PgError;
use tpcc_core::workload::ops::{Direction, Ops, Read};
use tpcc_core::workload::schema::{IndexDef, Key, RowOf, TableDef};

/// A connection that can read.
pub(super) trait Readable {
    /// Returns the connection. Begins the transaction first if there is one.
    fn connection(&mut self) -> Result<&Connection, PgError>;
}

/// A connection that can also write.
pub(super) trait Writable: Readable {}

/// The rows that are accessible over a connection, for reads and, if `C` is `Writable`, for writes.
pub struct Rows<C>(pub(super) C);

/// Reads without a transaction around the statements.
pub struct ReadOnly<'c>(&'c Connection);

/// Reads rows over a connection.
pub(crate) type Reader<'c> = Rows<ReadOnly<'c>>;

impl<'c> Reader<'c> {
    /// Creates a reader over `connection`.
    pub(super) fn new(connection: &'c Connection) -> Self {
        Rows(ReadOnly(connection))
    }
}

impl Readable for ReadOnly<'_> {
    fn connection(&mut self) -> Result<&Connection, PgError> {
        Ok(self.0)
    }
}

/// Reads and writes without a transaction around the statements, or within one that the caller has begun.
pub(super) struct ReadWrite<'c>(&'c Connection);

/// Reads and writes rows over a connection.
pub(super) type Writer<'c> = Rows<ReadWrite<'c>>;

impl<'c> Writer<'c> {
    /// Creates a writer over `connection`.
    pub(super) fn over(connection: &'c Connection) -> Self {
        Rows(ReadWrite(connection))
    }
}

impl Readable for ReadWrite<'_> {
    fn connection(&mut self) -> Result<&Connection, PgError> {
        Ok(self.0)
    }
}

impl Writable for ReadWrite<'_> {}

/// Formats a condition such as `a = $1 AND b = $2`.
fn equal(columns: &[Column], first: usize) -> String {
    let parts = columns.iter().zip(first..).map(|((name, _), at)| format!("{name} = ${at}"));
    parts.collect::<Vec<_>>().join(" AND ")
}

/// Formats the condition `(a, b) BETWEEN ($1, $2) AND ($3, $4)`, as two comparisons.
fn within(columns: &[Column]) -> String {
    let names = columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let n = columns.len();
    let numbers = |first: usize| (first..first + n).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ");
    format!("({names}) >= ({}) AND ({names}) <= ({})", numbers(1), numbers(1 + n))
}

fn ordered(columns: &[Column], direction: Direction) -> String {
    let word = if direction == Direction::Up { "ASC" } else { "DESC" };
    columns.iter().map(|(name, _)| format!("{name} {word}")).collect::<Vec<_>>().join(", ")
}

fn fields(columns: &[Column], mut bytes: &[u8], to: &mut Vec<Field>) {
    for (_, kind) in columns {
        let (own, rest) = bytes.split_at(kind.width());
        to.push(Field::new(*kind, own));
        bytes = rest;
    }
}

fn key_fields<K: Key>(columns: &[Column], key: &K, to: &mut Vec<Field>) {
    let mut bytes = vec![0; K::LEN];
    key.write(&mut bytes);
    fields(columns, &bytes, to);
}

fn row_fields<T: TableDef>(row: &RowOf<T>, to: &mut Vec<Field>) {
    let SqlTable { hot, cold, .. } = table(T::TABLE);
    fields(hot, row.hot.as_bytes(), to);
    fields(cold, row.cold.as_bytes(), to);
}

fn query<T: TableDef>(connection: &Connection, sql: &str, fields: &[Field]) -> Result<Vec<Row>, PgError> {
    let typed = |field| (field as &(dyn ToSql + Sync), Field::sql_type(field));
    let parameters: Vec<(&(dyn ToSql + Sync), Type)> = fields.iter().map(typed).collect();
    connection
        .wait(connection.client.query_typed(sql, &parameters))?
        .map_err(|error| connection.error(error, Some(T::TABLE)))
}

/// Returns the bytes in memory of the columns of a row, starting at column `first`.
fn memory(connection: &Connection, row: &Row, columns: &[Column], first: usize) -> Result<Vec<u8>, PgError> {
    let mut bytes = Vec::new();
    for ((name, kind), at) in columns.iter().zip(first..) {
        let raw: RawColumn<'_> = row.try_get(at).map_err(|error| connection.error(error, None))?;
        if !kind.decode(raw.0, &mut bytes) {
            return Err(connection.unexpected(format!("the column {name} has another type")));
        }
    }
    Ok(bytes)
}

fn decoded<T: TableDef>(connection: &Connection, row: &Row) -> Result<(T::Key, RowOf<T>), PgError> {
    let SqlTable { key, hot, cold, .. } = table(T::TABLE);
    let first = memory(connection, row, key, 0)?;
    let mut rest = memory(connection, row, hot, key.len())?;
    rest.extend(memory(connection, row, cold, key.len() + hot.len())?);
    match RowOf::<T>::read_from_bytes(&rest) {
        Ok(row) => Ok((T::Key::read(&first), row)),
        Err(_) => Err(connection.unexpected(format!("a row of {} cannot be read", T::TABLE.name()))),
    }
}

fn get<T: TableDef>(connection: &Connection, key: &T::Key, lock: &str) -> Result<Option<RowOf<T>>, PgError> {
    let sql = table(T::TABLE);
    let mut parameters = Vec::new();
    key_fields(sql.key, key, &mut parameters);
    let text = format!("SELECT {} FROM {} WHERE {}{lock}", sql.names(), sql.name, equal(sql.key, 1));
    let rows = query::<T>(connection, &text, &parameters)?;
    rows.first().map(|row| decoded::<T>(connection, row).map(|(_, row)| row)).transpose()
}

/// A row with its key.
type KeyAndRow<T> = (<T as TableDef>::Key, RowOf<T>);

fn range<T: TableDef>(
    connection: &Connection,
    from: &T::Key,
    to: &T::Key,
    end: &str,
) -> Result<Vec<KeyAndRow<T>>, PgError> {
    let sql = table(T::TABLE);
    let mut parameters = Vec::new();
    key_fields(sql.key, from, &mut parameters);
    key_fields(sql.key, to, &mut parameters);
    let order = ordered(sql.key, Direction::Up);
    let text = format!("SELECT {} FROM {} WHERE {} ORDER BY {order}{end}", sql.names(), sql.name, within(sql.key));
    query::<T>(connection, &text, &parameters)?.iter().map(|row| decoded::<T>(connection, row)).collect()
}

/// Updates the row of `key`: the hot columns, and the cold ones if `cold_too`.
fn put<T: TableDef>(connection: &Connection, key: &T::Key, row: &RowOf<T>, cold_too: bool) -> Result<(), PgError> {
    let sql = table(T::TABLE);
    let mut parameters = Vec::new();
    row_fields::<T>(row, &mut parameters);
    let columns = sql.hot.len() + if cold_too { sql.cold.len() } else { 0 };
    parameters.truncate(columns);
    let sets = sql.hot.iter().chain(sql.cold).take(columns).zip(1..).map(|((name, _), at)| format!("{name} = ${at}"));
    let sets = sets.collect::<Vec<_>>().join(", ");
    key_fields(sql.key, key, &mut parameters);
    let text = format!("UPDATE {} SET {sets} WHERE {}", sql.name, equal(sql.key, columns + 1));
    query::<T>(connection, &text, &parameters).map(drop)
}

impl<C: Readable> Read for Rows<C> {
    type Error = PgError;

    fn read<T: TableDef, R>(&mut self, key: &T::Key, f: impl FnMut(&RowOf<T>) -> R) -> Result<Option<R>, PgError> {
        Ok(get::<T>(self.0.connection()?, key, "")?.as_ref().map(f))
    }

    fn scan<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        mut f: impl FnMut(&T::Key, &RowOf<T>) -> ControlFlow<()>,
    ) -> Result<(), PgError> {
        let rows = range::<T>(self.0.connection()?, from, to, "")?;
        let _ = rows.iter().try_for_each(|(key, row)| f(key, row));
        Ok(())
    }

    fn scan_index<I: IndexDef>(
        &mut self,
        from: &I::Key,
        to: &I::Key,
        direction: Direction,
        mut f: impl FnMut(&I::Key, &<I::Table as TableDef>::Key) -> ControlFlow<()>,
    ) -> Result<(), PgError> {
        let connection = self.0.connection()?;
        let sql = index(I::INDEX);
        let mut parameters = Vec::new();
        key_fields(sql.key, from, &mut parameters);
        key_fields(sql.key, to, &mut parameters);
        let names = sql.key.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let order = ordered(sql.key, direction);
        let text = format!("SELECT {names} FROM {} WHERE {} ORDER BY {order}", table(sql.table).name, within(sql.key));
        for row in query::<I::Table>(connection, &text, &parameters)? {
            let key = I::Key::read(&memory(connection, &row, sql.key, 0)?);
            if f(&key, &I::primary(&key)).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl<C: Writable> Ops for Rows<C> {
    fn update<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut T::Hot, &T::Cold) -> R,
    ) -> Result<Option<R>, PgError> {
        let connection = self.0.connection()?;
        let Some(mut row) = get::<T>(connection, key, " FOR UPDATE")? else { return Ok(None) };
        let result = f(&mut row.hot, &row.cold);
        put::<T>(connection, key, &row, false)?;
        Ok(Some(result))
    }

    fn rewrite<T: TableDef, R>(
        &mut self,
        key: &T::Key,
        f: impl FnOnce(&mut RowOf<T>) -> R,
    ) -> Result<Option<R>, PgError> {
        let connection = self.0.connection()?;
        let Some(mut row) = get::<T>(connection, key, " FOR UPDATE")? else { return Ok(None) };
        let result = f(&mut row);
        put::<T>(connection, key, &row, true)?;
        Ok(Some(result))
    }

    fn update_run<T: TableDef>(
        &mut self,
        from: &T::Key,
        to: &T::Key,
        mut f: impl FnMut(&T::Key, &mut T::Hot, &T::Cold),
    ) -> Result<usize, PgError> {
        let connection = self.0.connection()?;
        let rows = range::<T>(connection, from, to, " FOR UPDATE")?;
        for (key, row) in &rows {
            let mut row = *row;
            f(key, &mut row.hot, &row.cold);
            put::<T>(connection, key, &row, false)?;
        }
        Ok(rows.len())
    }

    fn insert<T: TableDef>(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), PgError> {
        let connection = self.0.connection()?;
        let sql = table(T::TABLE);
        let mut parameters = Vec::new();
        key_fields(sql.key, key, &mut parameters);
        row_fields::<T>(row, &mut parameters);
        let numbers = (1..=parameters.len()).map(|at| format!("${at}")).collect::<Vec<_>>().join(", ");
        let text = format!("INSERT INTO {} ({}) VALUES ({numbers})", sql.name, sql.names());
        query::<T>(connection, &text, &parameters).map(drop)
    }

    fn insert_run<T: TableDef>(&mut self, rows: &[(T::Key, RowOf<T>)]) -> Result<(), PgError> {
        rows.iter().try_for_each(|(key, row)| self.insert::<T>(key, row))
    }

    fn remove_first<T: TableDef>(&mut self, from: &T::Key, to: &T::Key) -> Result<Option<T::Key>, PgError> {
        let connection = self.0.connection()?;
        let Some((key, _)) = range::<T>(connection, from, to, " LIMIT 1 FOR UPDATE")?.pop() else { return Ok(None) };
        let sql = table(T::TABLE);
        let mut parameters = Vec::new();
        key_fields(sql.key, &key, &mut parameters);
        query::<T>(connection, &format!("DELETE FROM {} WHERE {}", sql.name, equal(sql.key, 1)), &parameters)?;
        Ok(Some(key))
    }

    fn prefetch<T: TableDef>(&mut self, _keys: &[T::Key]) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use tpcc_core::workload::schema::TableId;

    #[test]
    fn conditions_name_columns_and_parameters() {
        let key = table(TableId::NewOrder).key;
        assert_eq!(equal(key, 2), "no_w_id = $2 AND no_d_id = $3 AND no_o_id = $4");
        let names = "(no_w_id, no_d_id, no_o_id)";
        assert_eq!(within(key), format!("{names} >= ($1, $2, $3) AND {names} <= ($4, $5, $6)"));
        assert_eq!(ordered(&key[..2], Direction::Down), "no_w_id DESC, no_d_id DESC");
    }
}
