//! Schema of the database: the nine tables of the workload, two secondary indexes, and two small tables that describe the
//! database itself and acknowledged transactions ([`crate::driver::ack`]).
//!
//! A table is a marker type ([`tables`]) that names its key ([`keys`]) and its row ([`rows`]). A row's memory *is* its
//! encoding: plain old data, little-endian, unaligned. A row has two halves: first the **hot** columns, which transactions
//! update in place, then the **cold** columns. Columns of the key are not repeated in the row.

pub mod keys;
pub mod parts;
pub mod rows;
pub mod tables;
pub mod text;

use std::fmt::Debug;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use tables::{PerIndex, PerTable};

/// A key with an encoding of fixed length, in which byte order is key order.
pub trait Key: Copy + Ord + Debug + Send + Sync + 'static {
    /// Length of the encoding in bytes, at most [`MAX_KEY`].
    const LEN: usize;

    /// Type of the encoding, on the stack.
    type Bytes: AsRef<[u8]> + Copy;

    /// Returns the encoding of the key.
    fn encoded(&self) -> Self::Bytes;

    /// Writes the encoding to `out`, which has exactly [`Self::LEN`] bytes.
    fn write(&self, out: &mut [u8]);

    /// Decodes the result of [`Self::write`]. Panics if `bytes` is not [`Self::LEN`] long.
    fn read(bytes: &[u8]) -> Self;
}

/// Maximum length of an encoded key in bytes.
pub const MAX_KEY: usize = 48;

/// Columns of a row: plain old data without alignment or padding, so that a row may be at any byte of a page.
pub trait Columns:
    FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy + Debug + PartialEq + Send + Sync + 'static
{
}

impl<T> Columns for T where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy + Debug + PartialEq + Send + Sync + 'static
{
}

/// A row: the hot columns, then the cold columns.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Row<H, C> {
    /// Columns written in place by New-Order, Payment and Delivery.
    pub hot: H,
    /// Columns that do not change (except C_DATA, which [`crate::workload::ops::Ops::rewrite`] changes).
    pub cold: C,
}

/// Row type of table `T`.
pub type RowOf<T> = Row<<T as TableDef>::Hot, <T as TableDef>::Cold>;

/// A table. The rows of a table without columns outside its key (NEW-ORDER) have zero bytes.
pub trait TableDef: Copy + Send + Sync + 'static {
    /// Type of the primary key.
    type Key: Key;
    /// Type of the hot columns, which are updated in place.
    type Hot: Columns;
    /// Type of the cold columns.
    type Cold: Columns;
    /// Number of the table.
    const TABLE: TableId;

    /// Returns this table's member of `all`.
    fn of<F: TableFamily>(all: &PerTable<F>) -> &F::Of<Self>;
    /// Returns a mutable reference to this table's member of `all`.
    fn of_mut<F: TableFamily>(all: &mut PerTable<F>) -> &mut F::Of<Self>;
    /// Calls `visitor` for every secondary index of this table, in a fixed order.
    fn indexes<V: IndexVisitor<Self>>(_visitor: &mut V) {}
}

/// A secondary index. Index keys consist of primary keys and cold columns only, so that an in-place update never changes an
/// index.
pub trait IndexDef: Copy + Send + Sync + 'static {
    /// Table that is indexed.
    type Table: TableDef;
    /// Type of the index key. Index keys are unique, because they end with the primary key columns that are not among their
    /// first columns.
    type Key: Key;
    /// Number of the index.
    const INDEX: IndexId;

    /// Returns the index key of a row.
    fn key_of(key: &<Self::Table as TableDef>::Key, cold: &<Self::Table as TableDef>::Cold) -> Self::Key;
    /// Returns the primary key of the row that an index key refers to.
    fn primary(key: &Self::Key) -> <Self::Table as TableDef>::Key;
    /// Returns this index's member of `all`.
    fn of<F: IndexFamily>(all: &PerIndex<F>) -> &F::Of<Self>;
    /// Returns a mutable reference to this index's member of `all`.
    fn of_mut<F: IndexFamily>(all: &mut PerIndex<F>) -> &mut F::Of<Self>;
}

/// Visitor of the indexes of a table.
pub trait IndexVisitor<T: TableDef> {
    /// Called once for each index.
    fn visit<I: IndexDef<Table = T>>(&mut self);
}

/// Map from tables to types, for example to `BTreeMap<T::Key, RowOf<T>>`, to an engine's table handle or to a counter.
pub trait TableFamily {
    /// Type that belongs to table `T`.
    type Of<T: TableDef>;
}

/// Map from indexes to types.
pub trait IndexFamily {
    /// Type that belongs to index `I`.
    type Of<I: IndexDef>;
}

/// Number of a table, for errors, counters and names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TableId {
    /// WAREHOUSE, one row per warehouse.
    Warehouse,
    /// DISTRICT, ten rows per warehouse.
    District,
    /// CUSTOMER, 3,000 rows per district.
    Customer,
    /// HISTORY, one row per payment.
    History,
    /// NEW-ORDER, one row per undelivered order.
    NewOrder,
    /// ORDER, one row per order.
    Order,
    /// ORDER-LINE, 5 to 15 rows per order.
    OrderLine,
    /// ITEM, 100,000 rows.
    Item,
    /// STOCK, 100,000 rows per warehouse.
    Stock,
    /// META, numbers that describe the database ([`crate::workload::loaded::Fact`]).
    Meta,
    /// ACKNOWLEDGED, one row per terminal of each run with `--ack-stdout`.
    Acknowledged,
}

impl TableId {
    /// All tables, beginning with the nine tables of the workload.
    pub const ALL: [TableId; 11] = [
        TableId::Warehouse,
        TableId::District,
        TableId::Customer,
        TableId::History,
        TableId::NewOrder,
        TableId::Order,
        TableId::OrderLine,
        TableId::Item,
        TableId::Stock,
        TableId::Meta,
        TableId::Acknowledged,
    ];

    /// Tables that a completed load has filled.
    pub const LOADED: &[TableId] = Self::ALL.split_at(10).0;

    /// Returns the name of the table in reports and in the engine's catalog.
    pub fn name(self) -> &'static str {
        match self {
            TableId::Warehouse => "warehouse",
            TableId::District => "district",
            TableId::Customer => "customer",
            TableId::History => "history",
            TableId::NewOrder => "new_order",
            TableId::Order => "order",
            TableId::OrderLine => "order_line",
            TableId::Item => "item",
            TableId::Stock => "stock",
            TableId::Meta => "meta",
            TableId::Acknowledged => "acknowledged",
        }
    }
}

/// Number of a secondary index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum IndexId {
    /// CUSTOMER by (warehouse, district, last name, first name).
    CustomerByName,
    /// ORDER by (warehouse, district, customer).
    OrderByCustomer,
}

impl IndexId {
    /// Returns the name of the index in the engine's catalog.
    pub fn name(self) -> &'static str {
        match self {
            IndexId::CustomerByName => "customer_by_name",
            IndexId::OrderByCustomer => "order_by_customer",
        }
    }
}

/// Sizes of the tables. [`Scale::FULL`] has the sizes of the specification. Smaller sizes are for tests, whose results must
/// not be called TPC-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Number of rows of ITEM, and of rows of STOCK per warehouse.
    pub items: u32,
    /// Number of districts per warehouse.
    pub districts: u8,
    /// Number of customers per district, and of orders per district after the load.
    pub customers: u32,
    /// Number of undelivered orders per district after the load.
    pub new_orders: u32,
    /// Number of distinct last names of customers.
    pub names: u32,
}

impl Scale {
    /// Sizes of the specification.
    pub const FULL: Scale = Scale { items: 100_000, districts: 10, customers: 3_000, new_orders: 900, names: 1_000 };

    /// Sizes for tests, with the same proportions.
    pub const TINY: Scale = Scale { items: 100, districts: 2, customers: 30, new_orders: 9, names: 30 };

    /// Returns the number of the last delivered order of a district after the load.
    pub fn delivered(&self) -> u32 {
        self.customers - self.new_orders
    }
}
