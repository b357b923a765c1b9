//! Marker types of tables and indexes, and containers with one member for each table or index.

use super::keys::{
    AckKey, CustomerKey, CustomerNameKey, DistrictKey, HistoryKey, ItemKey, MetaKey, NewOrderKey, OrderCustomerKey,
    OrderKey, OrderLineKey, StockKey, WarehouseKey,
};
use super::rows::{
    AckHot, CustomerCold, CustomerHot, DistrictCold, DistrictHot, HistoryCold, ItemCold, MetaHot, OrderCold, OrderHot,
    OrderLineCold, OrderLineHot, StockCold, StockHot, WarehouseCold, WarehouseHot,
};
use super::{IndexDef, IndexFamily, IndexId, IndexVisitor, TableDef, TableFamily, TableId};

macro_rules! tables {
    ($($name:ident $member:ident $key:ty, $hot:ty, $cold:ty $(, index $index:ty)?;)*) => {
        $(
            #[doc = concat!("The table `", stringify!($member), "`.")]
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl TableDef for $name {
                type Key = $key;
                type Hot = $hot;
                type Cold = $cold;
                const TABLE: TableId = TableId::$name;

                #[inline(always)]
                fn of<F: TableFamily>(all: &PerTable<F>) -> &F::Of<Self> {
                    &all.$member
                }
                #[inline(always)]
                fn of_mut<F: TableFamily>(all: &mut PerTable<F>) -> &mut F::Of<Self> {
                    &mut all.$member
                }
                $(
                    fn indexes<V: IndexVisitor<Self>>(visitor: &mut V) {
                        visitor.visit::<$index>();
                    }
                )?
            }
        )*

        /// Container with one member for each table.
        pub struct PerTable<F: TableFamily> {
            $(#[doc = concat!("Member for the table `", stringify!($member), "`.")] pub $member: F::Of<$name>),*
        }

        impl<F: TableFamily> PerTable<F> {
            /// Creates each member with `maker`, in the order of [`TableId::ALL`].
            pub fn try_new<M: TableMaker<F>>(maker: &mut M) -> Result<Self, M::Error> {
                Ok(PerTable { $($member: maker.make::<$name>()?),* })
            }
        }
    };
}

tables! {
    Warehouse warehouse WarehouseKey, WarehouseHot, WarehouseCold;
    District district DistrictKey, DistrictHot, DistrictCold;
    Customer customer CustomerKey, CustomerHot, CustomerCold, index CustomerByName;
    History history HistoryKey, (), HistoryCold;
    NewOrder new_order NewOrderKey, (), ();
    Order order OrderKey, OrderHot, OrderCold, index OrderByCustomer;
    OrderLine order_line OrderLineKey, OrderLineHot, OrderLineCold;
    Item item ItemKey, (), ItemCold;
    Stock stock StockKey, StockHot, StockCold;
    Meta meta MetaKey, MetaHot, ();
    Acknowledged acknowledged AckKey, AckHot, ();
}

/// Constructor of the members of a [`PerTable`].
pub trait TableMaker<F: TableFamily> {
    /// Error if a member could not be created.
    type Error;
    /// Creates the member of `T`.
    fn make<T: TableDef>(&mut self) -> Result<F::Of<T>, Self::Error>;
}

macro_rules! indexes {
    ($($name:ident $member:ident $table:ty, $key:ty,
       |$pk:ident, $cold:ident| $key_of:expr, |$ik:ident| $primary:expr;)*) => {
        $(
            #[doc = concat!("The index `", stringify!($member), "`.")]
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl IndexDef for $name {
                type Table = $table;
                type Key = $key;
                const INDEX: IndexId = IndexId::$name;

                #[inline(always)]
                fn key_of($pk: &<$table as TableDef>::Key, $cold: &<$table as TableDef>::Cold) -> $key {
                    $key_of
                }
                #[inline(always)]
                fn primary($ik: &$key) -> <$table as TableDef>::Key {
                    $primary
                }
                #[inline(always)]
                fn of<F: IndexFamily>(all: &PerIndex<F>) -> &F::Of<Self> {
                    &all.$member
                }
                #[inline(always)]
                fn of_mut<F: IndexFamily>(all: &mut PerIndex<F>) -> &mut F::Of<Self> {
                    &mut all.$member
                }
            }
        )*

        /// Container with one member for each secondary index.
        pub struct PerIndex<F: IndexFamily> {
            $(#[doc = concat!("Member for the index `", stringify!($member), "`.")] pub $member: F::Of<$name>),*
        }

        impl<F: IndexFamily> PerIndex<F> {
            /// Creates each member with `maker`, in the order of the indexes' numbers.
            pub fn try_new<M: IndexMaker<F>>(maker: &mut M) -> Result<Self, M::Error> {
                Ok(PerIndex { $($member: maker.make::<$name>()?),* })
            }
        }
    };
}

indexes! {
    CustomerByName customer_by_name Customer, CustomerNameKey,
        |pk, cold| CustomerNameKey { w: pk.w, d: pk.d, last: cold.last.padded(), first: cold.first.padded(), c: pk.c },
        |ik| CustomerKey { w: ik.w, d: ik.d, c: ik.c };
    OrderByCustomer order_by_customer Order, OrderCustomerKey,
        |pk, cold| OrderCustomerKey { w: pk.w, d: pk.d, c: cold.c_id.get(), o: pk.o },
        |ik| OrderKey { w: ik.w, d: ik.d, o: ik.o };
}

/// Constructor of the members of a [`PerIndex`].
pub trait IndexMaker<F: IndexFamily> {
    /// Error if a member could not be created.
    type Error;
    /// Creates the member of `I`.
    fn make<I: IndexDef>(&mut self) -> Result<F::Of<I>, Self::Error>;
}
