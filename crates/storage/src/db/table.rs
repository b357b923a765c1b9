//! Declaring tables and their indexes, and handles to open ones.

use std::fmt::{Debug, Formatter};
use std::marker::PhantomData;

use crate::table::catalog::{IndexSpec, MAX_INDEXES, TableInfo};
use crate::table::codec::{Key, Row, key_from};

/// A table as a program declares it: a name, the types of key and row, and its secondary indexes.
///
/// A declaration is a constant and belongs to no database; the table is created where it is first opened.
///
/// ```
/// use storage::{SecondaryIndex, Table};
///
/// struct ByOwner;
/// impl SecondaryIndex for ByOwner {
///     type Key = u64;
///     type Row = String;
///     type By = String;
///     const NAME: &'static str = "by_owner";
///     fn by(_id: &u64, owner: &String) -> Option<String> {
///         Some(owner.clone())
///     }
/// }
/// const CARS: Table<u64, String> = Table::new("cars").with_index::<ByOwner>();
/// # let _ = CARS;
/// ```
pub struct Table<K, V> {
    name: &'static str,
    specs: [Option<IndexSpec>; MAX_INDEXES],
    types: PhantomData<fn(K) -> V>,
}

/// A secondary index: another order of a table's rows, kept by the engine.
pub trait SecondaryIndex {
    /// The table's key.
    type Key: Key;
    /// The table's row.
    type Row: Row;
    /// What the index orders by.
    type By: Key;
    /// The index's name, unique in its table.
    const NAME: &'static str;
    /// Whether no two rows may have the same value.
    const UNIQUE: bool = false;
    /// The value of a row; `None` keeps the row out of the index.
    fn by(key: &Self::Key, row: &Self::Row) -> Option<Self::By>;
}

impl<K, V> Table<K, V> {
    /// A table without secondary indexes.
    pub const fn new(name: &'static str) -> Table<K, V> {
        Table { name, specs: [None; MAX_INDEXES], types: PhantomData }
    }

    /// The table with one secondary index more.
    ///
    /// # Panics
    /// (At compile time, in a constant.) When there are eight already.
    pub const fn with_index<I: SecondaryIndex<Key = K, Row = V>>(self) -> Table<K, V> {
        self.with_raw_index(I::NAME, I::UNIQUE, 0, extract::<I>)
    }

    /// The table with a secondary index whose key is computed from the encoded primary key and row: `extract`
    /// appends it and says whether the row is indexed at all. It must not depend on the first `columns_from` bytes of
    /// the row, so that updates in place of those need not ask it. For programs with codecs of their own.
    ///
    /// # Panics
    /// (At compile time, in a constant.) When there are eight already.
    pub const fn with_raw_index(
        mut self,
        name: &'static str,
        unique: bool,
        columns_from: usize,
        extract: fn(&[u8], &[u8], &mut Vec<u8>) -> bool,
    ) -> Table<K, V> {
        let mut i = 0;
        while self.specs[i].is_some() {
            i += 1;
        }
        self.specs[i] = Some(IndexSpec { name, unique, columns_from, extract });
        self
    }

    /// The name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the open table has the indexes declared here.
    #[inline]
    pub(crate) fn fits(&self, info: &TableInfo) -> bool {
        let declared = self.specs.iter().map_while(Option::as_ref).map(|s| (s.name, s.unique));
        declared.eq(info.secondaries.iter().map(|s| (&*s.index.name, s.unique)))
    }

    pub(crate) fn specs(&self) -> Vec<IndexSpec> {
        self.specs.iter().flatten().copied().collect()
    }
}

fn extract<I: SecondaryIndex>(key: &[u8], row: &[u8], out: &mut Vec<u8>) -> bool {
    let (Some(key), Some(row)) = (key_from::<I::Key>(key), I::Row::decode(row)) else { return false };
    I::by(&key, &row).inspect(|by| by.encode(out)).is_some()
}

impl<K, V> Debug for Table<K, V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An open table: found by its number, where a [`Table`] is found by its name. Copy it as you like; it is good
/// for the database that gave it, as long as that is open.
pub struct OpenTable<K, V> {
    pub(crate) number: u32,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> OpenTable<K, V> {
    pub(crate) fn new(number: u32) -> OpenTable<K, V> {
        OpenTable { number, types: PhantomData }
    }
}

impl<K, V> Clone for OpenTable<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for OpenTable<K, V> {}

impl<K, V> Debug for OpenTable<K, V> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenTable({})", self.number)
    }
}

mod sealed {
    pub trait Sealed {}
    impl<K, V> Sealed for super::Table<K, V> {}
    impl<K, V> Sealed for super::OpenTable<K, V> {}
}

/// What a statement accepts as a table: a declaration ([`Table`], looked up by name) or a handle ([`OpenTable`],
/// a few nanoseconds faster).
pub trait AsTable<K, V>: sealed::Sealed {
    #[doc(hidden)]
    fn number(&self, database: &super::database::Database) -> Result<u32, crate::TxnError>;
}

impl<K: Key, V: Row> AsTable<K, V> for Table<K, V> {
    fn number(&self, database: &super::database::Database) -> Result<u32, crate::TxnError> {
        Ok(database.table(self)?.number)
    }
}

impl<K, V> AsTable<K, V> for OpenTable<K, V> {
    #[inline]
    fn number(&self, _: &super::database::Database) -> Result<u32, crate::TxnError> {
        Ok(self.number)
    }
}
