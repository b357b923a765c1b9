//! Declarations of tables and indexes, and handles to open tables.

use std::any::TypeId;
use std::fmt::{Debug, Formatter};
use std::marker::PhantomData;

use super::database::Database;
use crate::base::error::TxnError;
use crate::table::codec::{Codec, Key, Row, key_from};
use crate::table::declared::{Declared, IndexSpec, MAX_INDEXES, TableHint};
use crate::table::info::{Secondary, TableInfo};
use crate::table::numbers::is_ticket_of;

/// A declaration of a table: its name, the types of key and row, and its secondary indexes.
///
/// A declaration is usually a constant and belongs to no database. The table is created in each database that first
/// opens it. An existing table with other indexes is refused: [`Database::alter_indexes`] changes the indexes of a
/// table to the declared ones.
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
///
/// For a name that is known at run time only, see [`Table::named`]. `N` is the type of the name.
pub struct Table<K, V, N = &'static str> {
    name: N,
    specs: [Option<IndexSpec>; MAX_INDEXES],
    types: PhantomData<fn(K) -> V>,
}

/// Type of the name of a [`Table`]: a string constant or a [`RunTimeName`].
pub trait TableName: name::NameText {}

/// Name of a [`Table`] that is known at run time only: see [`Table::named`].
#[derive(Debug, Default)]
pub struct RunTimeName {
    text: String,
    /// Cached result of the last lookup of the table.
    hint: TableHint,
}

mod name {
    use super::{RunTimeName, TableHint, TableName};

    pub trait NameText {
        /// Returns the name as text.
        fn text(&self) -> &str;
        /// Returns the cache of the last lookup; `None` for constant names.
        fn hint(&self) -> Option<&TableHint>;
    }

    impl NameText for &'static str {
        #[inline]
        fn text(&self) -> &str {
            self
        }

        #[inline]
        fn hint(&self) -> Option<&TableHint> {
            None
        }
    }

    impl TableName for &'static str {}

    impl NameText for RunTimeName {
        #[inline]
        fn text(&self) -> &str {
            &self.text
        }

        #[inline]
        fn hint(&self) -> Option<&TableHint> {
            Some(&self.hint)
        }
    }

    impl TableName for RunTimeName {}
}

/// A secondary index: access to a table's rows by another key and in its order, maintained by the engine.
pub trait SecondaryIndex: 'static {
    /// Key type of the table.
    type Key: Key;
    /// Row type of the table.
    type Row: Row;
    /// Key type of the index, which defines its order.
    type By: Key;
    /// Name of the index, unique in its table.
    const NAME: &'static str;
    /// True if no two rows may have the same index key.
    const UNIQUE: bool = false;
    /// Returns the index key of a row; `None` excludes the row from the index.
    fn by(key: &Self::Key, row: &Self::Row) -> Option<Self::By>;
}

impl<K, V> Table<K, V> {
    /// Declares a table without secondary indexes.
    pub const fn new(name: &'static str) -> Table<K, V> {
        Table { name, specs: [None; MAX_INDEXES], types: PhantomData }
    }

    /// Name of the table.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<K, V> Table<K, V, RunTimeName> {
    /// Declares a table without secondary indexes whose name is known at run time only, such as a table for each user,
    /// job or tenant. Statements accept the declaration like any other, and the lookup is as fast, because the
    /// declaration caches its result. Therefore keep the declaration (or the [`OpenTable`]) as long as the table is
    /// used; do not create one for each statement.
    ///
    /// ```
    /// use storage::{Database, Options, Table};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-named-{}", std::process::id()));
    /// let db = Database::open(&directory, Options::new())?;
    /// for tenant in ["ada", "grace"] {
    ///     let scores = Table::<u64, i64, _>::named(format!("scores of {tenant}"));
    ///     db.transact(|tx| (0..10).try_for_each(|game| tx.put(&scores, &game, &50)))?;
    /// }
    /// assert_eq!(db.table_names(), ["scores of ada", "scores of grace"]);
    /// assert!(db.drop_table("scores of ada")?);
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A name has 1 to 200 bytes. Statements that would create a table with another name fail with
    /// [`TxnError::Schema`]; to other statements such a table does not exist.
    pub fn named(name: impl Into<String>) -> Table<K, V, RunTimeName> {
        let name = RunTimeName { text: name.into(), hint: TableHint::default() };
        Table { name, specs: [None; MAX_INDEXES], types: PhantomData }
    }

    /// Name of the table.
    pub fn name(&self) -> &str {
        &self.name.text
    }
}

impl<K, V, N> Table<K, V, N> {
    /// Returns the declaration with one more secondary index.
    ///
    /// # Panics
    /// (At compile time, in a constant.) If the declaration already has eight indexes.
    pub const fn with_index<I: SecondaryIndex<Key = K, Row = V>>(self) -> Table<K, V, N> {
        self.with_spec(IndexSpec {
            name: I::NAME,
            unique: I::UNIQUE,
            columns_from: 0,
            extract: extract::<I>,
            declared_by: Some(TypeId::of::<I>),
            codec: Some(I::By::CODEC),
        })
    }

    /// Returns the declaration with one more secondary index, whose key `extract` computes from the encoded primary key
    /// and row. `extract` appends the index key and returns true, or returns false to exclude the row from the index.
    /// `extract` must not depend on the first `columns_from` bytes of the row: updates in place of these bytes do not
    /// call it. For programs with codecs of their own.
    ///
    /// Within a process every declaration of a table must name the same function. A generic or `#[inline]` function may
    /// have a different address in each crate of a program: in this case declare the table in one place only, and use
    /// its handle elsewhere.
    ///
    /// # Panics
    /// (At compile time, in a constant.) If the declaration already has eight indexes.
    pub const fn with_raw_index(
        self,
        name: &'static str,
        unique: bool,
        columns_from: usize,
        extract: fn(&[u8], &[u8], &mut Vec<u8>) -> bool,
    ) -> Table<K, V, N> {
        self.with_spec(IndexSpec { name, unique, columns_from, extract, declared_by: None, codec: None })
    }

    const fn with_spec(mut self, spec: IndexSpec) -> Table<K, V, N> {
        let mut i = 0;
        while self.specs[i].is_some() {
            i += 1;
        }
        self.specs[i] = Some(spec);
        self
    }
}

impl<K, V, N: TableName> Table<K, V, N> {
    /// Returns the declaration for statements on bytes, which accept any codecs.
    pub(crate) fn raw(&self) -> Declared<'_> {
        Declared { name: self.name.text(), hint: None, codecs: None, specs: &self.specs }
    }
}

impl<K: Key, V: Row, N: TableName> Table<K, V, N> {
    /// Returns the declaration with its codecs.
    #[inline]
    pub(crate) fn typed(&self) -> Declared<'_> {
        const fn codecs<K: Key, V: Row>() -> (&'static Codec, &'static Codec) {
            const { (&K::CODEC, &V::CODEC) }
        }
        let (name, hint) = (self.name.text(), self.name.hint());
        Declared { name, hint, codecs: Some(codecs::<K, V>()), specs: &self.specs }
    }
}

impl TableInfo {
    /// Returns the index that `I` declares.
    pub(crate) fn secondary<I: SecondaryIndex>(&self) -> Result<&Secondary, TxnError> {
        let schema = |what: String| TxnError::Schema { table: self.primary.table(), what };
        let Some(secondary) = self.secondaries.iter().find(|s| s.spec.name == I::NAME) else {
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

impl<K, V, N: TableName> Debug for Table<K, V, N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.name.text()).finish_non_exhaustive()
    }
}

/// Key and row type of a table opened with [`Database::raw_table`]: bytes that only the program interprets. The type
/// has no values and no codec, so that only statements on bytes accept such a table.
#[derive(Clone, Copy, Debug)]
pub enum Raw {}

/// A handle to an open table. Statements find the table by number instead of by name. A handle is `Copy`. It is valid
/// for the database that returned it, until the database is closed, the table is dropped, or the table's indexes are
/// changed. Other databases refuse the handle ([`TxnError::ForeignHandle`]). After a drop or a change of indexes the
/// table's own database refuses the handle ([`TxnError::Dropped`]), even if another table has the same name or number.
pub struct OpenTable<K, V> {
    /// Unique ticket of the table: see `table/numbers.rs`.
    ticket: u64,
    number: u32,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> OpenTable<K, V> {
    pub(crate) fn new((info, ticket): (&TableInfo, u64)) -> OpenTable<K, V> {
        OpenTable { ticket, number: info.primary.lock_table, types: PhantomData }
    }

    /// Returns the table of the handle in `database`.
    ///
    /// # Errors
    /// [`TxnError::ForeignHandle`] if another database returned the handle; [`TxnError::Dropped`] if the table was
    /// dropped or its indexes were changed.
    #[inline]
    pub(crate) fn info<'db>(&self, database: &'db Database) -> Result<&'db TableInfo, TxnError> {
        match database.catalog.table(self.number) {
            Some(info) if info.is(self.ticket) => Ok(info),
            _ => Err(self.refused(database)),
        }
    }

    /// Checks, after a read outside any transaction, that the table still exists.
    #[inline]
    pub(crate) fn is_still(&self, info: &TableInfo, database: &Database) -> Result<(), TxnError> {
        if info.is_unchanged(self.ticket) { Ok(()) } else { Err(self.refused(database)) }
    }

    /// Returns the unique ticket of the table.
    #[inline]
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    #[cold]
    fn refused(&self, database: &Database) -> TxnError {
        if !is_ticket_of(self.ticket, database.engine.instance) {
            return TxnError::ForeignHandle { number: self.number, database: database.directory().into() };
        }
        let info = database.catalog.table(self.number);
        let name = info.and_then(|info| info.name_of(self.ticket));
        TxnError::Dropped { table: name.unwrap_or_else(|| format!("table handle {}", self.number).into()) }
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
        /// Returns the open table; `None` if no table has this name.
        fn find<'db>(&self, database: &'db Database) -> Result<Option<&'db TableInfo>, TxnError>;
        /// Returns the declaration; `None` for a handle, whose table always exists.
        fn declaration(&self) -> Option<Declared<'_>>;
    }
}

/// A table as an argument of a statement: a declaration ([`Table`], looked up by name) or a handle ([`OpenTable`],
/// which is slightly faster).
pub trait AsTable<K, V>: sealed::Sealed<K, V> {}

impl<K: Key, V: Row, N: TableName> AsTable<K, V> for Table<K, V, N> {}

impl<K: Key, V: Row, N: TableName> sealed::Sealed<K, V> for Table<K, V, N> {
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
