//! Digest of the contents of a database. Databases with equal rows have equal digests, regardless of the pages of the rows,
//! of the order in which the rows were written, and of rows that were deleted in between.
//!
//! The digest is SHA-256 over all tables in the order of their names. Each table contributes its name, then each row in key
//! order as key and row, then an end mark. Each name, key and row is preceded by its length in four bytes, little-endian.
//! Secondary indexes are left out, because they are derived from the rows.

use std::fmt::Write;
use std::ops::ControlFlow;

use sha2::{Digest, Sha256};
use storage::{Isolation, OpenTable, Raw, Table};

use super::store::{Store, StoreError};
use crate::workload::schema::tables::TableMaker;
use crate::workload::schema::{PerTable, TableDef, TableFamily};

/// Number of rows between two calls of the progress callback `look`.
const LOOK: u64 = 10_000;
/// Upper bound of all keys: no key is longer.
const LAST: [u8; 512] = [u8::MAX; 512];
/// End mark of a table. No key has this length.
const END: u32 = u32::MAX;

impl Store {
    /// Returns the digest in hexadecimal, or `None` if `look`, which receives the number of rows so far, has cancelled it.
    /// No transaction may run meanwhile.
    ///
    /// # Errors
    /// Fails if a page cannot be read, or if a table of another program has indexes.
    pub fn fingerprint(&self, look: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Option<String>, StoreError> {
        let mut names = self.db.table_names();
        names.sort_unstable();
        let (mut digest, mut rows, mut stopped) = (Sha256::new(), 0, false);
        for name in names {
            let table = self.raw_table(&name)?;
            add(&mut digest, name.as_bytes());
            // No transaction runs meanwhile, so rows need not be locked one by one.
            let reader = self.db.begin_at(Isolation::ReadCommitted)?;
            reader.raw().scan(&table, &[], &LAST, |key, row| {
                add(&mut digest, key);
                add(&mut digest, row);
                rows += 1;
                if rows % LOOK == 0 && look(rows).is_break() {
                    stopped = true;
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            if stopped {
                return Ok(None);
            }
            digest.update(END.to_le_bytes());
        }
        Ok(Some(digest.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing into a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })))
    }

    /// Returns the handle of an existing table.
    fn raw_table(&self, name: &str) -> Result<OpenTable<Raw, Raw>, StoreError> {
        let mut ours = TableFinder { store: self, name, table: None };
        PerTable::<NoMembers>::try_new(&mut ours)?;
        match ours.table {
            Some(table) => Ok(table),
            // The table belongs to another program.
            None => Ok(self.db.raw_table(&Table::<(), (), _>::named(name))?),
        }
    }
}

fn add(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u32).to_le_bytes());
    digest.update(bytes);
}

/// Finds the workload's table with the name `name`.
struct TableFinder<'a> {
    store: &'a Store,
    name: &'a str,
    table: Option<OpenTable<Raw, Raw>>,
}

struct NoMembers;

impl TableFamily for NoMembers {
    type Of<T: TableDef> = ();
}

impl TableMaker<NoMembers> for TableFinder<'_> {
    type Error = StoreError;

    fn make<T: TableDef>(&mut self) -> Result<(), StoreError> {
        if T::TABLE.name() == self.name {
            self.table = Some(*T::of(&self.store.tables));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use storage::disk::MemDisk;
    use storage::{Durability, Options};

    use super::*;
    use crate::workload::engine::{Engine, OpenTransaction, Session};
    use crate::workload::load;
    use crate::workload::ops::{Ops, Read};
    use crate::workload::schema::Scale;
    use crate::workload::schema::keys::{CustomerKey, NewOrderKey, OrderLineKey};
    use crate::workload::schema::rows::Timestamp;
    use crate::workload::schema::tables::{Customer, NewOrder, OrderLine};

    /// Creates a small database, loaded by `threads` threads.
    pub(in crate::engines::storage) fn loaded(pool: u64, threads: usize, seed: u64) -> Store {
        let db = Options::new().buffer_pool(pool).open_on(Arc::new(MemDisk::new())).unwrap();
        let store = Store::new(db, Isolation::Serializable, Durability::Async, true, false, None).unwrap();
        let plan = load::Population::new(2, Scale::TINY, seed, Timestamp::at(77));
        let done = load::populate(&plan, &store, threads, &load::RowsDone::default()).unwrap();
        assert_eq!(done, load::LoadEnd::Done);
        store.finish_load(&plan.loaded()).unwrap();
        store
    }

    fn fingerprint(store: &Store) -> String {
        store.fingerprint(&mut |_| ControlFlow::Continue(())).unwrap().unwrap()
    }

    fn change(store: &Store, f: impl FnOnce(&mut super::super::store::StoreTransaction<'_>)) {
        let mut session = store.session(0).unwrap();
        let mut transaction = session.begin().unwrap();
        f(&mut transaction);
        transaction.commit().unwrap();
    }

    #[test]
    fn equal_rows_have_one_fingerprint_in_every_build() {
        const PINNED: &str = "35ad8f15e07f812b63104070e71261a97bc882f03c8dc7c485acac4fd52c1617";
        assert_eq!(fingerprint(&loaded(8 << 20, 1, 5)), PINNED);
        assert_eq!(fingerprint(&loaded(64 << 20, 3, 5)), PINNED, "other pages, another order of loading");
        assert_ne!(fingerprint(&loaded(8 << 20, 1, 6)), PINNED);
    }

    #[test]
    fn what_was_deleted_and_put_back_leaves_no_trace() {
        let store = loaded(8 << 20, 1, 5);
        let before = fingerprint(&store);
        // The rows are deleted and inserted again in another order, so that ghost records, splits and merges change the
        // pages.
        let mut lines = Vec::new();
        let (first, last) =
            (OrderLineKey { w: 1, d: 1, o: 0, number: 0 }, OrderLineKey { w: 1, d: 2, o: u32::MAX, number: u8::MAX });
        change(&store, |tx| {
            tx.scan::<OrderLine>(&first, &last, |key, row| {
                lines.push((*key, *row));
                ControlFlow::Continue(())
            })
            .unwrap();
        });
        change(&store, |tx| while tx.remove_first::<OrderLine>(&first, &last).unwrap().is_some() {});
        let without = fingerprint(&store);
        assert_ne!(without, before);
        change(&store, |tx| lines.iter().rev().for_each(|(key, row)| tx.insert::<OrderLine>(key, row).unwrap()));
        assert_eq!(fingerprint(&store), before);
        store.db.checkpoint().unwrap();
        assert_eq!(fingerprint(&store), before);
    }

    #[test]
    fn every_row_of_every_table_counts() {
        let store = loaded(8 << 20, 1, 5);
        let mut seen = vec![fingerprint(&store)];
        let mut differs = |what: &str| {
            let now = fingerprint(&store);
            assert!(!seen.contains(&now), "{what}");
            seen.push(now);
        };
        change(&store, |tx| {
            let key = CustomerKey { w: 2, d: 2, c: 30 };
            tx.update::<Customer, _>(&key, |hot, _| hot.balance.set(hot.balance.get() + 1)).unwrap();
        });
        differs("a byte of a row");
        let key = NewOrderKey { w: 1, d: 1, o: 1 };
        change(&store, |tx| tx.insert::<NewOrder>(&key, &crate::workload::schema::Row { hot: (), cold: () }).unwrap());
        differs("a row without columns");
        let other = store.db.table(&Table::<u64, String>::new("of another program")).unwrap();
        differs("an empty table");
        store.db.transact(|tx| tx.put(&other, &1, &"one".to_owned())).unwrap();
        differs("a row of another program's table");
    }

    #[test]
    fn it_can_be_broken_off() {
        let store = loaded(8 << 20, 1, 5);
        change(&store, |tx| {
            for o in 1_000..12_000 {
                tx.insert::<NewOrder>(
                    &NewOrderKey { w: 1, d: 1, o },
                    &crate::workload::schema::Row { hot: (), cold: () },
                )
                .unwrap();
            }
        });
        assert_eq!(store.fingerprint(&mut |_| ControlFlow::Break(())).unwrap(), None);
    }
}
