//! What the database holds: nine tables, two secondary indexes, and two small tables about the database itself
//! and about what was acknowledged ([`crate::driver::ack`]).
//!
//! A table is a marker type ([`tables`]) that names its key ([`keys`]) and its row ([`rows`]). A row's memory *is* its
//! encoding: plain old data, little-endian, unaligned. It comes in two halves: the **hot** columns, which transactions
//! update in place, lie first and together; the **cold** ones follow. Columns that are part of the key are not repeated
//! in the row.

pub mod keys;
pub mod parts;
pub mod rows;
pub mod tables;
pub mod text;

use std::fmt::Debug;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use tables::{PerIndex, PerTable};

/// A key that encodes to a fixed number of bytes in which byte order is key order.
pub trait Key: Copy + Ord + Debug + Send + Sync + 'static {
    /// Bytes of the encoding, at most [`MAX_KEY`].
    const LEN: usize;

    /// The encoding, on the stack.
    type Bytes: AsRef<[u8]> + Copy;

    /// Encodes.
    fn encoded(&self) -> Self::Bytes;

    /// Encodes into `out`, which has exactly [`Self::LEN`] bytes.
    fn write(&self, out: &mut [u8]);

    /// Decodes what [`Self::write`] wrote. Panics when `bytes` is not [`Self::LEN`] long.
    fn read(bytes: &[u8]) -> Self;
}

/// No key is longer than this many bytes.
pub const MAX_KEY: usize = 48;

/// Plain old data without alignment or padding, so that it may lie anywhere in a page.
pub trait Columns:
    FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy + Debug + PartialEq + Send + Sync + 'static
{
}

impl<T> Columns for T where
    T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy + Debug + PartialEq + Send + Sync + 'static
{
}

/// A row: the columns that transactions update, then the rest.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Row<H, C> {
    /// Columns written in place by New-Order, Payment and Delivery.
    pub hot: H,
    /// Columns that stay (C_DATA excepted, which [`crate::workload::ops::Ops::rewrite`] changes).
    pub cold: C,
}

/// The row type of table `T`.
pub type RowOf<T> = Row<<T as TableDef>::Hot, <T as TableDef>::Cold>;

/// One table. A row of no columns outside its key (NEW-ORDER) has zero bytes.
pub trait TableDef: Copy + Send + Sync + 'static {
    /// Primary key.
    type Key: Key;
    /// Columns updated in place.
    type Hot: Columns;
    /// The other columns.
    type Cold: Columns;
    /// Which table this is.
    const TABLE: TableId;

    /// This table's member of `all`.
    fn of<F: TableFamily>(all: &PerTable<F>) -> &F::Of<Self>;
    /// This table's member of `all`.
    fn of_mut<F: TableFamily>(all: &mut PerTable<F>) -> &mut F::Of<Self>;
    /// Shows every secondary index of this table to `visitor`, in a fixed order.
    fn indexes<V: IndexVisitor<Self>>(_visitor: &mut V) {}
}

/// One secondary index. Its keys are made from primary keys and cold columns only, so that an in-place update never
/// touches an index.
pub trait IndexDef: Copy + Send + Sync + 'static {
    /// The table whose rows it finds.
    type Table: TableDef;
    /// Unique: it ends with the columns of the primary key that the front part leaves open.
    type Key: Key;
    /// Which index this is.
    const INDEX: IndexId;

    /// The index key of a row.
    fn key_of(key: &<Self::Table as TableDef>::Key, cold: &<Self::Table as TableDef>::Cold) -> Self::Key;
    /// The primary key that an index key leads to.
    fn primary(key: &Self::Key) -> <Self::Table as TableDef>::Key;
    /// This index's member of `all`.
    fn of<F: IndexFamily>(all: &PerIndex<F>) -> &F::Of<Self>;
    /// This index's member of `all`.
    fn of_mut<F: IndexFamily>(all: &mut PerIndex<F>) -> &mut F::Of<Self>;
}

/// Sees every index of a table.
pub trait IndexVisitor<T: TableDef> {
    /// Called once for each index.
    fn visit<I: IndexDef<Table = T>>(&mut self);
}

/// A type for each table: `BTreeMap<T::Key, RowOf<T>>`, a handle of an engine, a counter.
pub trait TableFamily {
    /// The member for table `T`.
    type Of<T: TableDef>;
}

/// A type for each index.
pub trait IndexFamily {
    /// The member for index `I`.
    type Of<I: IndexDef>;
}

/// A table by number: for errors, counters and names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum TableId {
    /// One row a warehouse.
    Warehouse,
    /// Ten a warehouse.
    District,
    /// 3,000 a district.
    Customer,
    /// One a payment.
    History,
    /// One an undelivered order.
    NewOrder,
    /// One an order.
    Order,
    /// 5 to 15 an order.
    OrderLine,
    /// 100,000 in all.
    Item,
    /// 100,000 a warehouse.
    Stock,
    /// What the loader left about the database.
    Meta,
    /// One a terminal and run with `--ack-stdout`.
    Acknowledged,
}

impl TableId {
    /// Every table, the nine of the workload first.
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

    /// Those that a finished load has filled.
    pub const LOADED: &[TableId] = Self::ALL.split_at(10).0;

    /// As printed, and as the engine's catalog names it.
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

/// A secondary index by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum IndexId {
    /// CUSTOMER by (warehouse, district, last name, first name).
    CustomerByName,
    /// ORDER by (warehouse, district, customer).
    OrderByCustomer,
}

impl IndexId {
    /// As the engine's catalog names it.
    pub fn name(self) -> &'static str {
        match self {
            IndexId::CustomerByName => "customer_by_name",
            IndexId::OrderByCustomer => "order_by_customer",
        }
    }
}

/// How much of everything there is. The workload's own sizes are [`Scale::FULL`]; smaller ones are for tests and must
/// not be called TPC-C at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Rows of ITEM, and of STOCK per warehouse.
    pub items: u32,
    /// Districts of a warehouse.
    pub districts: u8,
    /// Customers of a district, and its orders after the load.
    pub customers: u32,
    /// How many of these orders are not delivered yet.
    pub new_orders: u32,
    /// Last names in use.
    pub names: u32,
}

impl Scale {
    /// What the specification asks for.
    pub const FULL: Scale = Scale { items: 100_000, districts: 10, customers: 3_000, new_orders: 900, names: 1_000 };

    /// Small enough for tests, with the same proportions.
    pub const TINY: Scale = Scale { items: 100, districts: 2, customers: 30, new_orders: 9, names: 30 };

    /// The last order of a district that is delivered when the load ends.
    pub fn delivered(&self) -> u32 {
        self.customers - self.new_orders
    }
}
