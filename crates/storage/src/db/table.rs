//! Declaring tables and their indexes, and handles to open ones.

use std::any::TypeId;
use std::fmt::{Debug, Formatter};
use std::marker::PhantomData;

use super::database::Database;
use crate::base::error::TxnError;
use crate::table::codec::{Codec, Key, Row, key_from};
use crate::table::declared::{Declared, IndexSpec, MAX_INDEXES, TableHint};
use crate::table::info::{Secondary, TableInfo};
use crate::table::numbers::is_ticket_of;

/// A table as a program declares it: a name, the types of key and row, and its secondary indexes.
///
/// A declaration is mostly a constant and belongs to no database; the table is created where it is first opened. A table
/// that exists with other indexes is refused: [`Database::alter_indexes`] gives it the declared ones.
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
/// The name may also come at run time: [`Table::named`]. `N` is what holds it.
pub struct Table<K, V, N = &'static str> {
    name: N,
    specs: [Option<IndexSpec>; MAX_INDEXES],
    types: PhantomData<fn(K) -> V>,
}

/// What can be the name of a [`Table`]: a constant, or a [`RunTimeName`].
pub trait TableName: name::NameText {}

/// The name of a [`Table`] that is known at run time only: see [`Table::named`].
#[derive(Debug, Default)]
pub struct RunTimeName {
    text: String,
    /// Where the declaration found its table last.
    noted: TableHint,
}

mod name {
    use super::{RunTimeName, TableHint, TableName};

    pub trait NameText {
        /// The name.
        fn text(&self) -> &str;
        /// Where a declaration with this name found its table last, if it notes that.
        fn noted(&self) -> Option<&TableHint>;
    }

    impl NameText for &'static str {
        #[inline]
        fn text(&self) -> &str {
            self
        }

        #[inline]
        fn noted(&self) -> Option<&TableHint> {
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
        fn noted(&self) -> Option<&TableHint> {
            Some(&self.noted)
        }
    }

    impl TableName for RunTimeName {}
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

    /// The name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<K, V> Table<K, V, RunTimeName> {
    /// A table without secondary indexes whose name comes at run time: of a user, a job, a tenant. Statements take it
    /// like any other, and find its table as fast, because the declaration remembers where it found it; so keep it (or
    /// the [`OpenTable`]) for as long as the table is used, and do not make one for each statement.
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
    /// A name has 1 to 200 bytes. Others are refused where the table would be created, with
    /// [`TxnError::Schema`]; no table has such a name.
    pub fn named(name: impl Into<String>) -> Table<K, V, RunTimeName> {
        let name = RunTimeName { text: name.into(), noted: TableHint::default() };
        Table { name, specs: [None; MAX_INDEXES], types: PhantomData }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name.text
    }
}

impl<K, V, N> Table<K, V, N> {
    /// The table with one more secondary index.
    ///
    /// # Panics
    /// (At compile time, in a constant.) When there are eight already.
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
    /// The declaration for statements on bytes: any codecs will do.
    pub(crate) fn raw(&self) -> Declared<'_> {
        Declared { name: self.name.text(), noted: None, codecs: None, specs: &self.specs }
    }
}

impl<K: Key, V: Row, N: TableName> Table<K, V, N> {
    /// The declaration with its codecs.
    #[inline]
    pub(crate) fn typed(&self) -> Declared<'_> {
        const fn codecs<K: Key, V: Row>() -> (&'static Codec, &'static Codec) {
            const { (&K::CODEC, &V::CODEC) }
        }
        let (name, noted) = (self.name.text(), self.name.noted());
        Declared { name, noted, codecs: Some(codecs::<K, V>()), specs: &self.specs }
    }
}

impl TableInfo {
    /// The index that `I` declares.
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

/// The key and row type of a table opened with [`Database::raw_table`]: bytes that only the program interprets. It has
/// no values and no codec, so that only the statements on bytes accept such a table.
#[derive(Clone, Copy, Debug)]
pub enum Raw {}

/// An open table: found by its number, where a [`Table`] is found by its name. It is `Copy`; it is valid
/// for the database that gave it, as long as that is open and the table is neither dropped nor given other indexes. Every
/// other database refuses it ([`TxnError::ForeignHandle`]), and the same one does when the table has gone
/// ([`TxnError::Dropped`]), whatever other tables there are then.
pub struct OpenTable<K, V> {
    /// Which table it is: see `table/numbers.rs`.
    ticket: u64,
    number: u32,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> OpenTable<K, V> {
    pub(crate) fn new((info, ticket): (&TableInfo, u64)) -> OpenTable<K, V> {
        OpenTable { ticket, number: info.primary.lock_table, types: PhantomData }
    }

    /// The table in `database`.
    ///
    /// # Errors
    /// [`TxnError::ForeignHandle`] if another gave the handle; [`TxnError::Dropped`] if the table has gone.
    #[inline]
    pub(crate) fn info<'db>(&self, database: &'db Database) -> Result<&'db TableInfo, TxnError> {
        match database.catalog.table(self.number) {
            Some(info) if info.is(self.ticket) => Ok(info),
            _ => Err(self.refused(database)),
        }
    }

    /// Refuses what was read of the table by no transaction, if it has gone meanwhile.
    #[inline]
    pub(crate) fn is_still(&self, info: &TableInfo, database: &Database) -> Result<(), TxnError> {
        if info.still_is(self.ticket) { Ok(()) } else { Err(self.refused(database)) }
    }

    /// Which table it is.
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
        /// The open table; `None` if there is none of its name yet.
        fn find<'db>(&self, database: &'db Database) -> Result<Option<&'db TableInfo>, TxnError>;
        /// Its declaration; `None` for a handle, whose table always exists.
        fn declaration(&self) -> Option<Declared<'_>>;
    }
}

/// A table as an argument of a statement: a declaration ([`Table`], looked up by name) or a handle ([`OpenTable`], a
/// few nanoseconds faster).
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
