//! Creates, inspects and deletes the tables.

use std::collections::{BTreeMap, BTreeSet};

use super::columns::{SqlTable, index, table};
use super::connect::{Connection, SCHEMA, Server};
use super::dialect::Dialect;
use super::error::PgError;
use super::rows::Reader;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::schema::{IndexId, TableId};
use tpcc_core::workload::words::counted;

const INDEXES: [IndexId; 2] = [IndexId::CustomerByName, IndexId::OrderByCustomer];

/// State of the schema in a database.
pub(super) enum SchemaState {
    /// The schema has no tables.
    Empty,
    /// The schema has the tables of a complete load.
    Complete(Loaded),
    /// The schema has the tables of an incomplete load.
    Incomplete,
    /// Tables that are not tables of this program, or tables with other columns. The text names the difference.
    Foreign(String),
    /// Contents that the role of the connection has no right to read.
    AccessDenied(MissingRight),
}

/// A right that a role needs to inspect the schema.
pub(super) struct MissingRight {
    /// Role that lacks the right.
    role: String,
    /// Role that can grant the right.
    owner: String,
    /// Table on which the right is missing; `None` if it is missing on the schema itself.
    table: Option<String>,
}

impl MissingRight {
    /// Finds the first missing right; `None` if the role can read everything. `information_schema` omits objects without a
    /// right, as if they did not exist; the catalogs of these queries show them to every role.
    fn find(connection: &Connection) -> Result<Option<MissingRight>, PgError> {
        let schema = format!(
            "SELECT current_user::text, pg_get_userbyid(nspowner)::text, NULL::text FROM pg_catalog.pg_namespace \
             WHERE nspname = '{SCHEMA}' AND NOT has_schema_privilege(oid, 'USAGE')"
        );
        let column = format!(
            "SELECT current_user::text, pg_get_userbyid(c.relowner)::text, c.relname::text FROM pg_catalog.pg_class c \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid \
             WHERE n.nspname = '{SCHEMA}' AND c.relkind IN ('r', 'v', 'f', 'p') AND a.attnum > 0 AND NOT a.attisdropped \
             AND NOT has_column_privilege(c.oid, a.attnum, 'SELECT') ORDER BY 3 LIMIT 1"
        );
        for sql in [schema, column] {
            if let Some(row) = connection.query(&sql, &[])?.first() {
                let failed = |error| connection.error(error, None);
                let (role, owner) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
                return Ok(Some(MissingRight { role, owner, table: row.try_get(2).map_err(failed)? }));
            }
        }
        Ok(None)
    }

    fn error(&self, shown: &str) -> Error {
        let MissingRight { role, owner, table } = self;
        let (to, usage) = (identifier(role), format!("GRANT USAGE ON SCHEMA {SCHEMA}"));
        let (said, grant) = match table {
            None => (format!("may not look into its schema {SCHEMA} (no right USAGE)"), usage),
            Some(table) => (
                format!("may not read the table '{table}' of its schema {SCHEMA} (no right SELECT)"),
                format!("GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA}"),
            ),
        };
        Error::failed(format!("{shown}: the role {role} {said}; nothing was changed"))
            .help(format!("let {owner} grant it ({grant} TO {to}), or connect as {owner}"))
    }
}

/// Formats an SQL identifier, quoted if necessary.
fn identifier(name: &str) -> String {
    let plain = |(at, byte): (usize, u8)| byte.is_ascii_lowercase() || byte == b'_' || at > 0 && byte.is_ascii_digit();
    match name.bytes().enumerate().all(plain) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

impl SchemaState {
    /// Inspects the schema and returns its state.
    pub(super) fn inspect(connection: &Connection) -> Result<SchemaState, PgError> {
        let ours: BTreeMap<&str, &SqlTable> = TableId::ALL.map(|id| (table(id).name, table(id))).into();
        if let Some(missing) = MissingRight::find(connection)? {
            return Ok(match &missing.table {
                Some(name) if !ours.contains_key(name.as_str()) => SchemaState::Foreign(format!("a table '{name}'")),
                _ => SchemaState::AccessDenied(missing),
            });
        }
        let found = connection.query(
            "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = $1",
            &[&SCHEMA],
        )?;
        let mut there: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for row in &found {
            let text = |at| row.try_get::<_, String>(at).map_err(|error| connection.error(error, None));
            there.entry(text(0)?).or_default().insert(text(1)?);
        }
        if there.is_empty() {
            return Ok(SchemaState::Empty);
        }
        for (name, columns) in &there {
            let Some(table) = ours.get(name.as_str()) else {
                return Ok(SchemaState::Foreign(format!("a table '{name}'")));
            };
            let wanted: BTreeSet<String> = table.columns().map(|(name, _)| (*name).to_owned()).collect();
            if let Some(column) = columns.symmetric_difference(&wanted).next() {
                let has = if wanted.contains(column) { "without" } else { "with" };
                return Ok(SchemaState::Foreign(format!("a table '{name}' {has} a column '{column}'")));
            }
        }
        if ours.keys().any(|name| !there.contains_key(*name)) {
            return Ok(SchemaState::Incomplete);
        }
        let loaded = Loaded::read(&mut Reader::new(connection))?;
        Ok(loaded.map_or(SchemaState::Incomplete, SchemaState::Complete))
    }
}

/// Returns the parameters of the loaded database; `None` if nothing is loaded.
pub(super) fn open(server: &Server, connection: &Connection) -> Result<Option<Loaded>, Error> {
    let config = server.config();
    let shown = config.shown();
    match SchemaState::inspect(connection).map_err(|error| server.failed(error))? {
        SchemaState::Empty => Ok(None),
        SchemaState::Complete(loaded) => Ok(Some(loaded)),
        SchemaState::Incomplete => Err(Error::failed(format!("{shown}: incomplete load"))
            .help(format!("{} deletes it and loads again", config.command("load", "--replace")))),
        SchemaState::Foreign(what) => Err(foreign_error(&shown, &what)),
        SchemaState::AccessDenied(missing) => Err(missing.error(&shown)),
    }
}

fn foreign_error(shown: &str, what: &str) -> Error {
    Error::failed(format!("{shown}: its schema {SCHEMA} is not of this program (it has {what}); nothing was changed"))
        .help("name another database with --engine")
}

/// Deletes the tables. Calls `consent` with a description before it deletes a complete database; its error cancels the
/// deletion.
pub(super) fn clear(
    server: &Server,
    connection: &Connection,
    consent: &mut dyn FnMut(&str) -> Result<(), Error>,
) -> Result<(), Error> {
    let failed = |error| server.failed(error);
    let shown = server.config().shown();
    match SchemaState::inspect(connection).map_err(failed)? {
        SchemaState::Empty => return Ok(()),
        SchemaState::Incomplete => {}
        SchemaState::Complete(loaded) => {
            let size = match server.config().dialect.reports_sizes() {
                true => {
                    let sql = format!(
                        "SELECT ceil(sum(pg_total_relation_size(c.oid)) / 1048576)::int8 FROM pg_class c \
                         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{SCHEMA}' AND c.relkind = 'r'"
                    );
                    format!(", {} MiB", connection.text(&sql).map_err(failed)?)
                }
                false => String::new(),
            };
            consent(&format!("{shown} holds {}{size}", counted(loaded.warehouses.into(), "warehouse")))?;
        }
        SchemaState::Foreign(what) => return Err(foreign_error(&shown, &what)),
        SchemaState::AccessDenied(missing) => return Err(missing.error(&shown)),
    }
    let tables = TableId::ALL.map(|id| format!("{SCHEMA}.{}", table(id).name)).join(", ");
    connection.batch(&format!("DROP TABLE IF EXISTS {tables}")).map_err(failed)
}

/// Creates all tables, and the schema if necessary.
pub(super) fn create(connection: &Connection, dialect: Dialect) -> Result<(), PgError> {
    // A role may own the schema without the right to create one, which even IF NOT EXISTS requires.
    let there = format!("SELECT nspname::text FROM pg_catalog.pg_namespace WHERE nspname = '{SCHEMA}'");
    if connection.query(&there, &[])?.is_empty() {
        connection.batch(&format!("CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))?;
    }
    TableId::ALL.iter().try_for_each(|&id| connection.batch(&declaration(table(id), dialect)))
}

/// Returns the statements that follow the load of a table: they add keys and indexes that its declaration lacks, and
/// statistics.
pub(super) fn finishing(id: TableId, dialect: Dialect) -> Vec<String> {
    let sql = table(id);
    let mut statements = Vec::new();
    if sql.has_key && dialect.keys_after_rows() {
        statements.push(format!("ALTER TABLE {} ADD {}", sql.name, primary_key(sql, dialect)));
    }
    for index in INDEXES.map(index).into_iter().filter(|index| index.table == id) {
        let columns: Vec<&str> = index.key.iter().map(|(name, _)| *name).collect();
        let columns = dialect.key_columns(&columns);
        statements.push(format!("CREATE INDEX {} ON {} ({columns})", index.name, sql.name));
    }
    statements.push(dialect.after_load(sql.name));
    statements
}

fn declaration(table: &SqlTable, dialect: Dialect) -> String {
    let mut parts: Vec<String> = table
        .columns()
        .map(|(name, kind)| {
            let collation = if kind.is_text() { dialect.collation() } else { "" };
            let null = if kind.may_be_null() { "" } else { " NOT NULL" };
            format!("{name} {}{collation}{null}", kind.sql())
        })
        .collect();
    if table.has_key && !dialect.keys_after_rows() {
        parts.push(primary_key(table, dialect));
    }
    format!("CREATE TABLE {SCHEMA}.{} ({}){}", table.name, parts.join(", "), dialect.storage_of(table.fillfactor))
}

fn primary_key(table: &SqlTable, dialect: Dialect) -> String {
    let columns: Vec<&str> = table.key.iter().map(|(name, _)| *name).collect();
    format!("PRIMARY KEY ({})", dialect.key_columns(&columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_named_with_its_grant() {
        let missing = |role: &str, table: Option<&str>| {
            let (role, owner, table) = (role.to_owned(), "bob".to_owned(), table.map(str::to_owned));
            MissingRight { role, owner, table }.error("h:5432/bank").to_string()
        };
        let schema = missing("me", None);
        assert!(schema.contains("h:5432/bank: the role me may not look into its schema tpcc"), "{schema}");
        assert!(schema.contains("let bob grant it (GRANT USAGE ON SCHEMA tpcc TO me), or connect as bob"), "{schema}");
        let table = missing("o\"Neil-2", Some("item"));
        assert!(table.contains("may not read the table 'item' of its schema tpcc (no right SELECT)"), "{table}");
        assert!(table.contains("IN SCHEMA tpcc TO \"o\"\"Neil-2\")"), "{table}");
    }

    #[test]
    fn a_table_is_declared_as_the_dialect_wants_it() {
        let orders = table(TableId::NewOrder);
        assert_eq!(
            declaration(orders, Dialect::Cockroach),
            "CREATE TABLE tpcc.new_order (no_w_id int4 NOT NULL, no_d_id int2 NOT NULL, no_o_id int4 NOT NULL, \
             PRIMARY KEY (no_w_id, no_d_id, no_o_id))"
        );
        assert!(declaration(orders, Dialect::Yugabyte).contains("PRIMARY KEY (no_w_id ASC, no_d_id ASC, no_o_id ASC)"));
        let item = declaration(table(TableId::Item), Dialect::Postgres);
        assert!(!item.contains("PRIMARY KEY") && item.contains("i_name varchar(24) COLLATE \"C\" NOT NULL"), "{item}");
        assert!(declaration(table(TableId::Stock), Dialect::Postgres).ends_with(" WITH (fillfactor = 80)"));
        assert!(declaration(table(TableId::Order), Dialect::Postgres).contains("o_carrier_id int2, "));
        let finishing = finishing(TableId::Order, Dialect::Postgres);
        assert_eq!(finishing[0], "ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id)");
        assert_eq!(finishing[1], "CREATE INDEX order_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)");
        assert_eq!(finishing[2], "VACUUM (ANALYZE) orders");
    }
}
