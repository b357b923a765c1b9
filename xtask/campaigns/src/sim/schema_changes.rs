//! Worker that changes the schema of a table: the table is created, filled, given other indexes while it has rows, emptied
//! and dropped. The rows of a generation are committed in one transaction. After a restart, the table must therefore have
//! all rows of one generation, have no rows, or not exist, and its indexes must agree with its rows. No other worker uses
//! the table.
//!
//! In addition, short-lived tables with names chosen at run time are created and dropped. They reuse each other's table
//! numbers. Each row contains the name of its table. Rows are written through declarations and through handles, including
//! handles of dropped tables. A check detects rows in the wrong table.

use std::ops::ControlFlow;

use storage::{Database, Isolation, OpenTable, RunTimeName, Table, TxnError};

use super::order::Sim;
use super::rng::Rng;
use super::tables::{Bytes, Rows, entries_of};

/// Function that computes the index entry of a row, and returns false if the row has no entry. See
/// [`storage::Table::with_raw_index`].
type Extract = fn(&[u8], &[u8], &mut Vec<u8>) -> bool;

/// Indexes of each declaration: function, and true for a unique index.
const INDEXES: [&[(Extract, bool)]; 4] =
    [&[], &[(by_class, false)], &[(by_class, false), (by_name, true)], &[(by_name, true)]];

/// Number of workers of this kind.
pub(super) const ACTORS: usize = 1;

const NAME: &str = "remodelled";

/// Prefix of the names of short-lived tables. The next constant is the number of these names.
const TRANSIENT_PREFIX: &str = "passing ";
const TRANSIENT_NAMES: usize = 7;

type TransientTable = Table<Bytes, Vec<u8>, RunTimeName>;

/// Declarations and handles of short-lived tables.
#[derive(Default)]
struct TransientTables {
    /// Declarations, each of which opens several tables, as a constant of a program does.
    declarations: Vec<TransientTable>,
    /// Handles with the names of their tables, including handles of dropped tables.
    handles: Vec<(OpenTable<Bytes, Vec<u8>>, String)>,
}

/// Declarations of the table. They differ in the indexes.
const DECLARED: [Table<Bytes, Vec<u8>>; INDEXES.len()] = [
    Table::new(NAME),
    Table::new(NAME).with_raw_index("by_class", false, 0, by_class),
    Table::new(NAME).with_raw_index("by_class", false, 0, by_class).with_raw_index("by_name", true, 0, by_name),
    Table::new(NAME).with_raw_index("by_name", true, 0, by_name),
];

fn by_class(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend(row.get(1).map(|byte| byte % 5));
    row.len() > 1
}

fn by_name(_: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    out.extend(row.get(1));
    row.len() > 1
}

/// Returns the rows of a generation. The lengths of rows differ between generations. In every fourth generation, two rows
/// have the same unique value.
fn generation(number: u8) -> Rows {
    let rows = 3 + u32::from(number) * 7 % 50;
    let row = |n: u32| {
        let clashes = number.is_multiple_of(4) && n == 2;
        let mut row = vec![number; 20 + (usize::from(number) * 37 + n as usize) % 300];
        row[1] = if clashes { 1 } else { n as u8 };
        (n.to_be_bytes().to_vec(), row)
    };
    (0..rows).map(row).collect()
}

fn clashes(rows: &Rows) -> bool {
    rows.first().is_some_and(|(_, row)| row[0].is_multiple_of(4))
}

/// Declaration and rows of the table in the database.
#[derive(Debug)]
struct CurrentTable {
    /// Index of the declaration that matches the table.
    declared: usize,
    rows: Rows,
}

/// Changes the schema and the rows of the table several times.
///
/// # Errors
/// Errors of the engine.
pub(super) fn work(db: &Database, sim: &dyn Sim, mut rng: Rng) -> Result<(), TxnError> {
    let mut found = current_table(db)?;
    let mut transient = TransientTables::default();
    for _ in 0..2 + rng.below(8) {
        sim.pause();
        for _ in 0..rng.below(6) {
            transient.change_one(db, &mut rng)?;
        }
        let next = rng.index(DECLARED.len());
        match found.take() {
            None => {
                db.table(&DECLARED[next])?;
                found = Some(CurrentTable { declared: next, rows: Rows::new() });
            }
            Some(mut now) => match rng.below(8) {
                0 => {
                    db.drop_table(NAME)?;
                }
                1 => {
                    db.truncate(NAME)?;
                    found = Some(CurrentTable { rows: Rows::new(), ..now });
                }
                2..5 => {
                    let unique = INDEXES[next].iter().any(|(_, unique)| *unique);
                    match db.alter_indexes(&DECLARED[next]) {
                        Ok(_) => now.declared = next,
                        Err(TxnError::NotUnique { .. }) if unique && clashes(&now.rows) => {}
                        Err(error) => return Err(error),
                    }
                    found = Some(now);
                }
                _ => {
                    let unique = INDEXES[now.declared].iter().any(|(_, unique)| *unique);
                    let number = rng.next() as u8;
                    let number = if unique && number.is_multiple_of(4) { number | 1 } else { number };
                    now.rows = generation(number);
                    replace(db, &DECLARED[now.declared], &now.rows, &mut rng)?;
                    found = Some(now);
                }
            },
        }
    }
    Ok(())
}

impl TransientTables {
    /// Creates, uses or drops one of the short-lived tables.
    fn change_one(&mut self, db: &Database, rng: &mut Rng) -> Result<(), TxnError> {
        let name = format!("{TRANSIENT_PREFIX}{}", rng.index(TRANSIENT_NAMES));
        match rng.below(8) {
            0..3 => drop(db.drop_table(&name)?),
            3 => drop(db.truncate(&name)?),
            4 => {
                let table = self.declaration(&name, rng);
                self.handles.push((db.table(&table)?, name));
                self.declarations.push(table);
            }
            5 => {
                let table = self.declaration(&name, rng);
                let mut tx = db.begin()?;
                tx.raw_mut().put(&table, &[rng.next() as u8], name.as_bytes())?;
                tx.commit_async()?;
                self.declarations.push(table);
            }
            _ if self.handles.is_empty() => {}
            _ => {
                let (handle, name) = &self.handles[rng.index(self.handles.len())];
                let mut tx = db.begin()?;
                match tx.raw_mut().put(handle, &[rng.next() as u8], name.as_bytes()) {
                    Ok(()) => drop(tx.commit_async()?),
                    // The table was dropped, so the error is permitted. If it was not dropped, the check of the rows detects
                    // the missing row.
                    Err(TxnError::Dropped { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Returns a declaration of a short-lived table: an existing or a new one.
    fn declaration(&mut self, name: &str, rng: &mut Rng) -> TransientTable {
        let kept = self.declarations.iter().position(|table| table.name() == name).filter(|_| rng.once_in(2));
        kept.map_or_else(|| Table::named(name), |at| self.declarations.swap_remove(at))
    }
}

/// Checks that each short-lived table has only rows of its own.
fn check_transient(db: &Database) -> Result<(), String> {
    for name in db.table_names() {
        if !name.starts_with(TRANSIENT_PREFIX) {
            continue;
        }
        let engine = |error: TxnError| format!("{name}: {error}");
        let handle = db.table(&TransientTable::named(&name)).map_err(engine)?;
        for (key, row) in read(db, &handle).map_err(engine)? {
            if row != name.as_bytes() {
                return Err(format!("{name}: the row under {key:?} is of {}", row.escape_ascii()));
            }
        }
    }
    Ok(())
}

/// Replaces all rows of the table.
fn replace(db: &Database, table: &Table<Bytes, Vec<u8>>, rows: &Rows, rng: &mut Rng) -> Result<(), TxnError> {
    let table = db.table(table)?;
    let mut tx = db.begin_at(rng.pick(&[Isolation::Serializable, Isolation::ReadCommitted]))?;
    tx.raw_mut().delete_range(&table, &[], &[0xff; 512])?;
    for (key, row) in rows {
        tx.raw_mut().insert(&table, key, row)?;
    }
    if rng.once_in(2) { tx.commit() } else { tx.commit_async().map(drop) }
}

/// Finds the declaration that matches the table, and reads its rows. Returns `None` if the table does not exist.
fn current_table(db: &Database) -> Result<Option<CurrentTable>, TxnError> {
    if !db.table_names().iter().any(|name| &**name == NAME) {
        return Ok(None);
    }
    for (declared, table) in DECLARED.iter().enumerate() {
        match db.table(table) {
            Ok(table) => return read(db, &table).map(|rows| Some(CurrentTable { declared, rows })),
            Err(TxnError::Schema { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    super::panics::raise_finding(format!("{NAME}: none of its declarations opens it"))
}

fn read(db: &Database, table: &OpenTable<Bytes, Vec<u8>>) -> Result<Rows, TxnError> {
    let (mut rows, tx) = (Rows::new(), db.begin()?);
    tx.raw().scan(table, &[], &[0xff; 512], |key, row| {
        rows.push((key.to_vec(), row.to_vec()));
        ControlFlow::Continue(())
    })?;
    tx.commit()?;
    Ok(rows)
}

/// Checks that the rows of the table belong to one committed generation, and that its indexes agree with its rows.
///
/// # Errors
/// Returns a description of a violation, or an error of the engine.
pub(super) fn check(db: &Database) -> Result<(), String> {
    check_transient(db)?;
    let engine = |error: TxnError| format!("{NAME}: {error}");
    let Some(CurrentTable { declared, rows }) = current_table(db).map_err(engine)? else { return Ok(()) };
    if let Some((_, row)) = rows.first()
        && rows != generation(row[0])
    {
        return Err(format!("{NAME}: {} rows that no transaction has committed together", rows.len()));
    }
    let table = db.table(&DECLARED[declared]).map_err(engine)?;
    let tx = db.begin().map_err(engine)?;
    for (index, (extract, unique)) in INDEXES[declared].iter().enumerate() {
        let mut found = Rows::new();
        let visit = |entry: &[u8], key: &[u8]| {
            found.push((entry.to_vec(), key.to_vec()));
            ControlFlow::Continue(())
        };
        tx.raw().scan_index(&table, index, &[], &[0xff; 512], false, visit).map_err(engine)?;
        if found != entries_of(*extract, *unique, rows.iter().map(|(key, row)| (key, row))) {
            return Err(format!("{NAME}: index {index} of declaration {declared} differs from {} rows", rows.len()));
        }
    }
    tx.commit().map_err(engine)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use storage::Options;
    use storage::disk::MemDisk;

    use super::*;

    #[test]
    fn a_row_in_another_table_is_found() {
        let db = Options::new().buffer_pool(1 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
        let (mut transient, mut rng) = (TransientTables::default(), Rng::new(3));
        for _ in 0..400 {
            transient.change_one(&db, &mut rng).unwrap();
        }
        check(&db).unwrap();
        let table = TransientTable::named(format!("{TRANSIENT_PREFIX}1"));
        db.transact(|tx| tx.put(&table, &Bytes(vec![1]), &b"passing 2".to_vec())).unwrap();
        assert!(check(&db).unwrap_err().contains("is of passing 2"));
    }

    #[test]
    fn rows_of_two_generations_are_found() {
        let db = Options::new().buffer_pool(1 << 20).open_on(Arc::new(MemDisk::new())).unwrap();
        check(&db).unwrap();
        for (declared, number) in [(0, 4), (1, 8), (2, 3), (3, 5)] {
            db.drop_table(NAME).unwrap();
            replace(&db, &DECLARED[declared], &generation(number), &mut Rng::new(7)).unwrap();
            check(&db).unwrap();
        }
        let (key, row) = generation(9).swap_remove(1);
        db.transact(|tx| tx.put(&DECLARED[3], &Bytes(key.clone()), &row)).unwrap();
        assert!(check(&db).unwrap_err().contains("no transaction has committed together"));
        // A unique index cannot be created while two rows have the same name.
        replace(&db, &DECLARED[3], &Rows::new(), &mut Rng::new(7)).unwrap();
        db.alter_indexes(&DECLARED[1]).unwrap();
        replace(&db, &DECLARED[1], &generation(8), &mut Rng::new(7)).unwrap();
        assert!(matches!(db.alter_indexes(&DECLARED[2]), Err(TxnError::NotUnique { .. })));
        check(&db).unwrap();
    }
}
