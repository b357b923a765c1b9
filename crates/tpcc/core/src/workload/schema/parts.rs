//! Parts of rows: adjacent columns that a transaction reads without reading the other columns. An engine then need not
//! access the rest of the row. For example, a row of CUSTOMER has 674 bytes, of which New-Order reads 39.

use zerocopy::little_endian::{I16, I32, I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::rows::{
    Address, CustomerCold, CustomerHot, DistrictCold, DistrictHot, ItemCold, StockCold, StockHot, Timestamp,
    WarehouseCold, WarehouseHot,
};
use super::tables::{Customer, District, Item, Stock, Warehouse};
use super::text::Text;
use super::{Columns, Row, RowOf, TableDef};

/// Adjacent columns of the rows of one table, with the same layout as in the row.
pub trait Part: Columns {
    /// Table of the rows.
    type Table: TableDef;
    /// Offset of the part in the row, in bytes.
    const AT: usize;

    /// Returns the part of a row.
    fn of(row: &RowOf<Self::Table>) -> Self;
}

/// A part of the cold half of a row. An update of the hot half can read this part.
pub trait ColdPart: Part {
    /// Returns the part of a cold half.
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

        // Each column has the same offset as in the row.
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

    /// Columns of CUSTOMER that New-Order reads.
    CustomerTerms of Customer, CustomerHot, CustomerCold, from cold.discount {
        /// Discount (C_DISCOUNT), 1/10000.
        discount: I32,
        /// Credit (C_CREDIT): GC, good, or BC, bad.
        credit: [u8; 2],
        /// Credit limit (C_CREDIT_LIM), cents.
        credit_lim: I64,
        /// Date of the customer's entry (C_SINCE).
        since: Timestamp,
        /// Last name (C_LAST).
        last: Text<16>,
    }

    /// Cold columns of CUSTOMER that Payment outputs: all but C_DATA.
    CustomerDetails of Customer, CustomerHot, CustomerCold, from cold.discount {
        /// Discount (C_DISCOUNT), 1/10000.
        discount: I32,
        /// Credit (C_CREDIT): GC, good, or BC, bad.
        credit: [u8; 2],
        /// Credit limit (C_CREDIT_LIM), cents.
        credit_lim: I64,
        /// Date of the customer's entry (C_SINCE).
        since: Timestamp,
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

    /// Columns of ITEM that New-Order reads.
    ItemDetails of Item, (), ItemCold, from cold.price {
        /// Price of the item (I_PRICE), cents.
        price: I64,
        /// Number of the image (I_IM_ID).
        im_id: U32,
        /// Name of the item (I_NAME).
        name: Text<24>,
        /// Free text (I_DATA).
        data: Text<50>,
    }

    /// Empty part of CUSTOMER, for updates that read no cold column.
    CustomerHotOnly of Customer, CustomerHot, CustomerCold, from cold.discount {}

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
        same::<CustomerDetails>(row);
        same::<CustomerHotOnly>(row);
        assert_eq!(CustomerDetails::of_cold(&row.cold), CustomerDetails::of(row));
        assert!(CustomerDetails::AT + size_of::<CustomerDetails>() + 500 < size_of::<RowOf<Customer>>());
    }
}
