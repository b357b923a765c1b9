//! Bulk load of a database: the rows of each table and the entries of each index are written directly into pages.

use storage::{BulkPart, Part};

use super::codec::{KeyBytes, bytes_of};
use super::store::{Store, StoreError, position};
use crate::workload::load::sink::{Append, AppendIndex, BulkSink};
use crate::workload::loaded::Loaded;
use crate::workload::schema::tables::Meta;
use crate::workload::schema::{IndexDef, RowOf, TableDef};

impl Store {
    /// Waits until all loaded data is durable, then writes the mark of a complete load.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn finish_load(&self, loaded: &Loaded) -> Result<(), StoreError> {
        let table = *Meta::of(&self.tables);
        let mut tx = self.db.begin()?;
        for (key, row) in loaded.rows() {
            tx.raw_mut().insert(&table, KeyBytes::of(&key).get::<<Meta as TableDef>::Key>(), bytes_of::<Meta>(&row))?;
        }
        let end = tx.commit_async()?;
        self.db.wait_durable(end)?;
        Ok(())
    }
}

impl BulkSink for Store {
    type Error = StoreError;
    type Appender<'a, T: TableDef> = TreeLoader<'a>;
    type IndexAppender<'a, I: IndexDef> = TreeLoader<'a>;

    fn table<T: TableDef>(&self) -> Result<TreeLoader<'_>, StoreError> {
        Ok(TreeLoader(self.db.bulk_load_part(T::of(&self.tables), Part::Rows)?))
    }

    fn index<I: IndexDef>(&self) -> Result<TreeLoader<'_>, StoreError> {
        Ok(TreeLoader(self.db.bulk_load_part(I::Table::of(&self.tables), Part::Index(position::<I>()))?))
    }
}

/// Loader of one tree: a table, or an index.
pub struct TreeLoader<'a>(BulkPart<'a>);

impl<T: TableDef> Append<T> for TreeLoader<'_> {
    type Error = StoreError;

    #[inline]
    fn push(&mut self, key: &T::Key, row: &RowOf<T>) -> Result<(), StoreError> {
        Ok(self.0.push_raw(KeyBytes::of(key).get::<T::Key>(), bytes_of::<T>(row))?)
    }

    fn finish(self) -> Result<(), StoreError> {
        self.0.finish()?;
        Ok(())
    }
}

impl<I: IndexDef> AppendIndex<I> for TreeLoader<'_> {
    type Error = StoreError;

    #[inline]
    fn push(&mut self, key: &I::Key) -> Result<(), StoreError> {
        let primary = KeyBytes::of(&I::primary(key));
        let entry = KeyBytes::of(key);
        Ok(self.0.push_raw(entry.get::<I::Key>(), primary.get::<<I::Table as TableDef>::Key>())?)
    }

    fn finish(self) -> Result<(), StoreError> {
        self.0.finish()?;
        Ok(())
    }
}
