//! Tables of the simulated workers, and a function that reads all their rows.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use storage::{Codec, Database, Key, OpenTable, SecondaryIndex, Table, TxnError};

/// Encoded key of the tables. No key is a prefix of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Key for Bytes {
    const CODEC: Codec = Codec::new("sim-bytes", 1);
    type Borrowed = Bytes;
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn decode(bytes: &mut &[u8]) -> Option<Bytes> {
        Some(Bytes(std::mem::take(bytes).to_vec()))
    }
}

/// Number of tables.
pub(crate) const TABLES: usize = 3;

/// Number of bytes at the start of a row (its head) that no index depends on, so that they are updated in place.
pub(crate) const HEAD: usize = 8;

/// Declarations of the tables: one without indexes, one with one index, and one with two indexes, of which one is unique.
const ALL: [Table<Bytes, Vec<u8>>; TABLES] = [
    Table::new("plain"),
    Table::new("rows").with_raw_index("by_class", false, HEAD, by_class),
    Table::new("uniq").with_raw_index("by_class", false, HEAD, by_class).with_raw_index("by_name", true, HEAD, by_name),
];

/// Number of the table with the unique index.
pub(crate) const UNIQUE: usize = 2;

/// Number of the first index of the tables with indexes: the index by class.
pub(crate) const CLASS: usize = 0;

/// Index by class, for typed statements.
pub(crate) struct ByClass;

impl SecondaryIndex for ByClass {
    type Key = Bytes;
    type Row = Vec<u8>;
    type By = Bytes;
    const NAME: &'static str = "by_class";
    fn by(_: &Bytes, row: &Vec<u8>) -> Option<Bytes> {
        row.get(HEAD..HEAD + 2).map(|class| Bytes(class.to_vec()))
    }
}

/// Returns the name of a table.
pub(crate) fn name(table: usize) -> &'static str {
    ALL[table].name()
}

/// Returns the number of indexes of a table.
pub(crate) fn indexes(table: usize) -> usize {
    INDEXES[table].len()
}

/// Function that computes the index entry of a row, and returns false if the row has no entry. See
/// [`storage::Table::with_raw_index`].
pub(crate) type Extract = fn(&[u8], &[u8], &mut Vec<u8>) -> bool;

/// Indexes of each table, in order: function, and true for a unique index.
const INDEXES: [&[(Extract, bool)]; TABLES] = [&[], &[(by_class, false)], &[(by_class, false), (by_name, true)]];

fn by_class(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    row.get(HEAD..HEAD + 2).is_some_and(|class| {
        out.extend_from_slice(class);
        true
    })
}

fn by_name(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    row.get(HEAD + 2..HEAD + 4).is_some_and(|name| {
        out.extend_from_slice(name);
        true
    })
}

/// Returns the value of a row in the unique index; `None` if the row is not in the index.
pub(crate) fn name_of(row: &[u8]) -> Option<[u8; 2]> {
    row.get(HEAD + 2..HEAD + 4)?.try_into().ok()
}

/// Handles of the open tables of a database.
pub(crate) type Tables = [OpenTable<Bytes, Vec<u8>>; TABLES];

/// Opens the tables. Creates the tables that do not exist.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn open(db: &Database) -> Result<Tables, TxnError> {
    Ok([db.table(&ALL[0])?, db.table(&ALL[1])?, db.table(&ALL[2])?])
}

/// All rows of a table, in key order.
pub(crate) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the hash of a row. The hash of a state is the sum of the hashes of its rows, so that the hash of a deleted row
/// can be subtracted.
pub(crate) fn hash_of(table: usize, key: &[u8], row: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (table, key, row).hash(&mut hasher);
    hasher.finish()
}

/// Reads all rows of all tables, and compares them with all indexes.
///
/// # Errors
/// Returns a description of the first disagreement, or an error of the engine.
pub(crate) fn contents(db: &Database, backwards: bool) -> Result<[Rows; TABLES], String> {
    let tables = open(db).map_err(|e| format!("opening the tables: {e}"))?;
    let tx = db.begin().map_err(|e| format!("begin: {e}"))?;
    let mut all: [Rows; TABLES] = Default::default();
    for (table, handle) in tables.iter().enumerate() {
        let rows = &mut all[table];
        let scanned = tx.raw().scan(handle, &[], &[0xff; 512], |key, row| {
            rows.push((key.to_vec(), row.to_vec()));
            ControlFlow::Continue(())
        });
        scanned.map_err(|e| format!("reading table {table}: {e}"))?;
        if !rows.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(format!("table {table}: keys do not ascend"));
        }
        if backwards {
            let back = tx.range(handle, ..).and_then(|rows| rows.rev().collect::<Result<Vec<_>, _>>());
            let back = back.map_err(|e| format!("reading table {table} backwards: {e}"))?;
            if !rows.iter().eq(back.iter().rev().map(|(key, row)| (&key.0, row)).map(own).collect::<Vec<_>>().iter()) {
                return Err(format!("table {table}: forward and backward differ"));
            }
        }
        for index in 0..indexes(table) {
            let expected = entries(table, index, rows.iter().map(|(key, row)| (key, row)));
            let mut found = Rows::new();
            let scanned = tx.raw().scan_index(handle, index, &[], &[0xff; 512], false, |entry, key| {
                found.push((entry.to_vec(), key.to_vec()));
                ControlFlow::Continue(())
            });
            scanned.map_err(|e| format!("reading index {index} of table {table}: {e}"))?;
            if found != expected {
                let surplus = found.iter().find(|e| !expected.contains(e));
                let missing = expected.iter().find(|e| !found.contains(e));
                return Err(format!(
                    "table {table}: index {index} and rows differ: surplus {surplus:?}, missing {missing:?}"
                ));
            }
        }
    }
    tx.commit().map_err(|e| format!("commit after reading: {e}"))?;
    Ok(all)
}

fn own((key, row): (&Vec<u8>, &Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (key.clone(), row.clone())
}

/// Returns the entries that an index must have for these rows, in index order.
pub(crate) fn entries<'a>(table: usize, index: usize, rows: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Rows {
    let (extract, unique) = INDEXES[table][index];
    entries_of(extract, unique, rows)
}

/// Returns the entries of rows in an index with the function `of`, in index order.
pub(crate) fn entries_of<'a>(
    extract: Extract,
    unique: bool,
    rows: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
) -> Rows {
    let mut entries: Rows = rows.filter_map(|(key, row)| entry(extract, unique, key, row)).collect();
    entries.sort_unstable();
    entries
}

fn entry(extract: Extract, unique: bool, key: &[u8], row: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut entry = Vec::new();
    if !extract(key, row, &mut entry) {
        return None;
    }
    if !unique {
        entry.extend_from_slice(key);
    }
    Some((entry, key.to_vec()))
}
