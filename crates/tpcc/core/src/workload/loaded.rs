//! Description of a loaded database, stored in the table META with one number per row.

use zerocopy::little_endian::U64;

use super::schema::keys::MetaKey;
use super::schema::rows::MetaHot;
use super::schema::tables::Meta;
use super::schema::{Row, RowOf, Scale};
use crate::workload::ops::Read;

/// Name of a number that describes the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fact {
    /// Mark of a complete load, written in the last transaction of the load. The value is [`LAYOUT`].
    LoadMark = 1,
    /// Number of loaded warehouses.
    Warehouses = 2,
    /// Constant C for last names of the load. The constant of a run must have a legal distance from this constant (2.1.6.1).
    CLoad = 3,
    /// Seed of the load.
    Seed = 4,
    /// Number of runs so far. Run 0 is the loader.
    Runs = 5,
    /// [`Scale::items`].
    Items = 6,
    /// [`Scale::districts`].
    Districts = 7,
    /// [`Scale::customers`].
    Customers = 8,
    /// [`Scale::new_orders`].
    NewOrders = 9,
    /// [`Scale::names`].
    Names = 10,
}

impl Fact {
    /// Returns the key of the fact's row in META.
    pub fn key(self) -> MetaKey {
        MetaKey { fact: self as u32 }
    }
}

/// Version of the layout of keys and rows.
pub const LAYOUT: u64 = 1;

/// Description of a completed load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Number of warehouses, numbered from 1.
    pub warehouses: u32,
    /// Constant C for last names.
    pub c_load: u32,
    /// Seed of the load.
    pub seed: u64,
    /// Sizes of the tables.
    pub scale: Scale,
}

impl Loaded {
    /// Returns the rows of META, in key order. They are inserted in one transaction, after all other data is durable.
    pub fn rows(&self) -> [(MetaKey, RowOf<Meta>); 10] {
        let scale = &self.scale;
        [
            (Fact::LoadMark, LAYOUT),
            (Fact::Warehouses, u64::from(self.warehouses)),
            (Fact::CLoad, u64::from(self.c_load)),
            (Fact::Seed, self.seed),
            (Fact::Runs, 0),
            (Fact::Items, u64::from(scale.items)),
            (Fact::Districts, u64::from(scale.districts)),
            (Fact::Customers, u64::from(scale.customers)),
            (Fact::NewOrders, u64::from(scale.new_orders)),
            (Fact::Names, u64::from(scale.names)),
        ]
        .map(|(fact, value)| (fact.key(), Row { hot: MetaHot { value: U64::new(value) }, cold: () }))
    }

    /// Reads the rows of [`Self::rows`]; returns `None` if the load is incomplete or has another layout.
    pub fn read<R: Read>(store: &mut R) -> Result<Option<Loaded>, R::Error> {
        let mut fact = |f: Fact| store.read::<Meta, _>(&f.key(), |row| row.hot.value.get());
        if fact(Fact::LoadMark)? != Some(LAYOUT) {
            return Ok(None);
        }
        let mut number = |f: Fact| fact(f).map(|v| v.unwrap_or(0));
        Ok(Some(Loaded {
            warehouses: number(Fact::Warehouses)? as u32,
            c_load: number(Fact::CLoad)? as u32,
            seed: number(Fact::Seed)?,
            scale: Scale {
                items: number(Fact::Items)? as u32,
                districts: number(Fact::Districts)? as u8,
                customers: number(Fact::Customers)? as u32,
                new_orders: number(Fact::NewOrders)? as u32,
                names: number(Fact::Names)? as u32,
            },
        }))
    }
}
