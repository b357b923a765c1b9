//! Declaring tables and their indexes, and handles to open ones.

use std::any::TypeId;
use std::fmt::{Debug, Formatter};
use std::marker::PhantomData;

use super::database::Database;
use crate::base::error::TxnError;
use crate::table::codec::{Codec, Key, Row, key_from};
use crate::table::declared::{Declared, IndexSpec, MAX_INDEXES};
use crate::table::info::{Secondary, TableInfo};

/// A table as a program declares it: a name, the types of key and row, and its secondary indexes.
///
/// A declaration is a constant and belongs to no database; the table is created where it is first opened. A table that
/// exists with other indexes is refused: [`Database::alter_indexes`] gives it the declared ones.
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
pub trait SecondaryIndex: 'static {
    /// The table's key.
    type Key: Key;
    /// The table's row.
    type Row: Row;
    /// The type by which the index orders.
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

    /// The table with one more secondary index.
    ///
    /// # Panics
    /// (At compile time, in a constant.) When there are eight already.
    pub const fn with_index<I: SecondaryIndex<Key = K, Row = V>>(self) -> Table<K, V> {
        self.with_spec(IndexSpec {
            name: I::NAME,
            unique: I::UNIQUE,
            columns_from: 0,
            extract: extract::<I>,
            declared_by: Some(TypeId::of::<I>),
            codec: Some(I::By::CODEC),
        })
    }

    /// The table with a secondary index whose key is computed from the encoded primary key and row: `extract`
    /// appends it and says whether the row is indexed at all. It must not depend on the first `columns_from` bytes of
    /// the row, so that updates in place of those need not ask it. For programs with codecs of their own.
    ///
    /// Within a process every declaration of a table must name the same function. A function that is generic or
    /// `#[inline]` may be several in a program of several crates: declare the table in one place then, and use its
    /// handle.
    ///
    /// # Panics
    /// (At compile time, in a constant.) When there are eight already.
    pub const fn with_raw_index(
        self,
        name: &'static str,
        unique: bool,
        columns_from: usize,
        extract: fn(&[u8], &[u8], &mut Vec<u8>) -> bool,
    ) -> Table<K, V> {
        self.with_spec(IndexSpec { name, unique, columns_from, extract, declared_by: None, codec: None })
    }

    const fn with_spec(mut self, spec: IndexSpec) -> Table<K, V> {
        let mut i = 0;
        while self.specs[i].is_some() {
            i += 1;
        }
        self.specs[i] = Some(spec);
        self
    }

    /// The name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The declaration for statements on bytes: any codecs will do.
    pub(crate) const fn raw(&self) -> Declared<'_> {
        Declared { name: self.name, codecs: None, specs: &self.specs }
    }
}

impl<K: Key, V: Row> Table<K, V> {
    /// The declaration with its codecs.
    #[inline]
    pub(crate) const fn typed(&self) -> Declared<'_> {
        const fn codecs<K: Key, V: Row>() -> (&'static Codec, &'static Codec) {
            const { (&K::CODEC, &V::CODEC) }
        }
        Declared { name: self.name, codecs: Some(codecs::<K, V>()), specs: &self.specs }
    }
}

impl TableInfo {
    /// The index that `I` declares.
    pub(crate) fn secondary<I: SecondaryIndex>(&self) -> Result<&Secondary, TxnError> {
        let schema = |what: String| TxnError::Schema { table: self.primary.table.clone(), what };
        let Some(secondary) = self.secondaries.iter().find(|s| *s.index.name == *I::NAME) else {
            return Err(schema(format!("has no index {}", I::NAME)));
        };
        match secondary.spec.declared_by {
            Some(declared_by) if declared_by() != TypeId::of::<I>() => {
                Err(schema(format!("its index {} is declared by another type", I::NAME)))
            }
            _ => Ok(secondary),
        }
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

/// The key and row type of a table opened with [`Database::raw_table`]: bytes that only the program interprets. It has
/// no values and no codec, so that only the statements on bytes accept such a table.
#[derive(Clone, Copy, Debug)]
pub enum Raw {}

/// An open table: found by its number, where a [`Table`] is found by its name. It is `Copy`; it is valid
/// for the database that gave it, as long as that is open. Every other database refuses it.
pub struct OpenTable<K, V> {
    /// The open database: [`Engine::instance`](crate::txn::engine::Engine::instance).
    instance: u64,
    number: u32,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> OpenTable<K, V> {
    pub(crate) fn new(instance: u64, number: u32) -> OpenTable<K, V> {
        OpenTable { instance, number, types: PhantomData }
    }

    /// The table in `database`.
    ///
    /// # Errors
    /// [`TxnError::ForeignHandle`] if another gave the handle.
    #[inline]
    pub(crate) fn info<'db>(&self, database: &'db Database) -> Result<&'db TableInfo, TxnError> {
        match database.catalog.table(self.number) {
            Some(info) if self.instance == database.engine.instance => Ok(info),
            _ => Err(self.foreign(database)),
        }
    }

    #[cold]
    fn foreign(&self, database: &Database) -> TxnError {
        TxnError::ForeignHandle { number: self.number, database: database.directory().into() }
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
    use super::{Database, Declared, TableInfo, TxnError};

    pub trait Sealed<K, V> {
        /// The open table; `None` if there is none of its name yet.
        fn find<'db>(&self, database: &'db Database) -> Result<Option<&'db TableInfo>, TxnError>;
        /// Its declaration; `None` for a handle, whose table always exists.
        fn declaration(&self) -> Option<Declared<'_>>;
    }
}

/// A table as an argument of a statement: a declaration ([`Table`], looked up by name) or a handle ([`OpenTable`], a
/// few nanoseconds faster).
pub trait AsTable<K, V>: sealed::Sealed<K, V> {}

impl<K: Key, V: Row> AsTable<K, V> for Table<K, V> {}

impl<K: Key, V: Row> sealed::Sealed<K, V> for Table<K, V> {
    #[inline]
    fn find<'db>(&self, database: &'db Database) -> Result<Option<&'db TableInfo>, TxnError> {
        database.find(&self.typed())
    }

    #[inline]
    fn declaration(&self) -> Option<Declared<'_>> {
        Some(self.typed())
    }
}

impl<K, V> AsTable<K, V> for OpenTable<K, V> {}

impl<K, V> sealed::Sealed<K, V> for OpenTable<K, V> {
    #[inline]
    fn find<'db>(&self, database: &'db Database) -> Result<Option<&'db TableInfo>, TxnError> {
        self.info(database).map(Some)
    }

    #[inline]
    fn declaration(&self) -> Option<Declared<'_>> {
        None
    }
}
