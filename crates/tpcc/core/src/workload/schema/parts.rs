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
        $($(#[$fdoc:meta])* $field:ident: $of:ty),* $(,)?
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $of),*
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
    WarehouseTax of Warehouse, WarehouseHot, WarehouseCold, from cold.tax {
        /// Sales tax (W_TAX), 1/10000.
        tax: I32,
    }

    /// D_TAX.
    DistrictTax of District, DistrictHot, DistrictCold, from cold.tax {
        /// Sales tax (D_TAX), 1/10000.
        tax: I32,
    }

    /// What New-Order looks at.
    CustomerTerms of Customer, CustomerHot, CustomerCold, from cold.discount {
        /// Discount (C_DISCOUNT), 1/10000.
        discount: I32,
        /// Credit (C_CREDIT): GC, good, or BC, bad.
        credit: [u8; 2],
        /// Credit limit (C_CREDIT_LIM), cents.
        credit_lim: I64,
        /// Date of the customer's entry (C_SINCE).
        since: When,
        /// Last name (C_LAST).
        last: Text<16>,
    }

    /// What Payment shows: all but C_DATA.
    CustomerCard of Customer, CustomerHot, CustomerCold, from cold.discount {
        /// Discount (C_DISCOUNT), 1/10000.
        discount: I32,
        /// Credit (C_CREDIT): GC, good, or BC, bad.
        credit: [u8; 2],
        /// Credit limit (C_CREDIT_LIM), cents.
        credit_lim: I64,
        /// Date of the customer's entry (C_SINCE).
        since: When,
        /// Last name (C_LAST).
        last: Text<16>,
        /// First name (C_FIRST).
        first: Text<16>,
        /// Middle initials (C_MIDDLE).
        middle: [u8; 2],
        /// Phone number (C_PHONE).
        phone: [u8; 16],
        /// Address (C_STREET_1 .. C_ZIP).
        address: Address,
    }

    /// What an order shows of an item.
    ItemShown of Item, (), ItemCold, from cold.price {
        /// Price of the item (I_PRICE), cents.
        price: I64,
        /// Number of the image (I_IM_ID).
        im_id: U32,
        /// Name of the item (I_NAME).
        name: Text<24>,
        /// Free text (I_DATA).
        data: Text<50>,
    }

    /// Nothing but what is updated.
    CustomerUnseen of Customer, CustomerHot, CustomerCold, from cold.discount {}

    /// S_QUANTITY.
    StockQuantity of Stock, StockHot, StockCold, from hot.quantity {
        /// Quantity in stock (S_QUANTITY).
        quantity: I16,
    }
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
