//! Parts of rows: neighbouring columns that a transaction reads where it needs no others. An engine may then leave the
//! rest of the row where it is: a customer has 655 bytes, and New-Order looks at 38 of them.

use zerocopy::little_endian::{I16, I32, I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::rows::{
    Address, CustomerCold, CustomerHot, DistrictCold, DistrictHot, ItemCold, StockCold, StockHot, WarehouseCold,
    WarehouseHot, When,
};
use super::tables::{Customer, District, Item, Stock, Warehouse};
use super::text::Text;
use super::{Columns, Row, RowOf, TableDef};

/// Neighbouring columns of a row of one table, laid out as there.
pub trait Part: Columns {
    /// Whose rows they are part of.
    type Table: TableDef;
    /// The byte of the row at which they begin.
    const AT: usize;

    /// The part of a row.
    fn of(row: &RowOf<Self::Table>) -> Self;
}

/// A part that lies in the cold half, which an update of the hot half is shown.
pub trait ColdPart: Part {
    /// The part of a cold half.
    fn of_cold(cold: &<Self::Table as TableDef>::Cold) -> Self;
}

macro_rules! parts {
    (@cold $name:ident $table:ident hot $($field:ident)*) => {};
    (@cold $name:ident $table:ident cold $($field:ident)*) => {
        impl ColdPart for $name {
            #[inline(always)]
            fn of_cold(_cold: &<$table as TableDef>::Cold) -> Self {
                $name { $($field: _cold.$field),* }
            }
        }
    };
    ($($(#[$doc:meta])* $name:ident of $table:ident, $hot:ty, $cold:ty, from $half:ident.$first:ident {
        $($field:ident: $of:ty),* $(,)?
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $(pub $field: $of),*
        }

        impl Part for $name {
            type Table = $table;
            const AT: usize = std::mem::offset_of!(Row<$hot, $cold>, $half.$first);

            #[inline(always)]
            fn of(_row: &RowOf<$table>) -> Self {
                $name { $($field: _row.$half.$field),* }
            }
        }

        parts!(@cold $name $table $half $($field)*);

        // Each column lies where the row has it.
        $(const _: () = assert!(
            <$name as Part>::AT + std::mem::offset_of!($name, $field)
                == std::mem::offset_of!(Row<$hot, $cold>, $half.$field)
        );)*
    )*};
}

parts! {
    /// W_TAX.
    WarehouseTax of Warehouse, WarehouseHot, WarehouseCold, from cold.tax { tax: I32 }

    /// D_TAX.
    DistrictTax of District, DistrictHot, DistrictCold, from cold.tax { tax: I32 }

    /// What New-Order looks at.
    CustomerTerms of Customer, CustomerHot, CustomerCold, from cold.discount {
        discount: I32,
        credit: [u8; 2],
        credit_lim: I64,
        since: When,
        last: Text<16>,
    }

    /// What Payment shows: all but C_DATA.
    CustomerCard of Customer, CustomerHot, CustomerCold, from cold.discount {
        discount: I32,
        credit: [u8; 2],
        credit_lim: I64,
        since: When,
        last: Text<16>,
        first: Text<16>,
        middle: [u8; 2],
        phone: [u8; 16],
        address: Address,
    }

    /// What an order shows of an item.
    ItemShown of Item, (), ItemCold, from cold.price { price: I64, im_id: U32, name: Text<24>, data: Text<50> }

    /// Nothing but what is updated.
    CustomerUnseen of Customer, CustomerHot, CustomerCold, from cold.discount {}

    /// S_QUANTITY.
    StockQuantity of Stock, StockHot, StockCold, from hot.quantity { quantity: I16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_bytes_of_its_row() {
        let bytes: Vec<u8> = (0..size_of::<RowOf<Customer>>()).map(|at| at as u8).collect();
        let row = RowOf::<Customer>::ref_from_bytes(&bytes).unwrap();
        fn same<P: Part>(row: &RowOf<P::Table>) {
            assert_eq!(P::of(row).as_bytes(), &row.as_bytes()[P::AT..P::AT + size_of::<P>()]);
        }
        same::<CustomerTerms>(row);
        same::<CustomerCard>(row);
        same::<CustomerUnseen>(row);
        assert_eq!(CustomerCard::of_cold(&row.cold), CustomerCard::of(row));
        assert!(CustomerCard::AT + size_of::<CustomerCard>() + 500 < size_of::<RowOf<Customer>>());
    }
}
