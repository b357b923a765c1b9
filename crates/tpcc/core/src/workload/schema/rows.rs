//! Columns of each table. Amounts of money are in cents (`I64`), taxes and discounts in 1/10000 (`I32`).

use std::num::NonZeroU8;

use zerocopy::little_endian::{I16, I32, I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::text::{LongText, Text};

/// Date and time of day in microseconds since 1970; 0 is null.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Timestamp(U64);

impl Timestamp {
    /// Null: no date.
    pub const NULL: Timestamp = Timestamp(U64::ZERO);

    /// Creates a time from microseconds since 1970. 0 is replaced by 1, because 0 is null.
    pub fn at(microseconds: u64) -> Timestamp {
        Timestamp(U64::new(microseconds.max(1)))
    }

    /// Returns true if the date is null.
    pub fn is_null(self) -> bool {
        self.0 == U64::ZERO
    }
}

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident : $t:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $t),*
        }
    )*};
}

columns! {
    /// Address columns of WAREHOUSE, DISTRICT and CUSTOMER: two streets, city, state, zip.
    Address {
        /// First line of the street.
        street_1: Text<20>,
        /// Second line of the street.
        street_2: Text<20>,
        /// Name of the city.
        city: Text<20>,
        /// State, two letters.
        state: [u8; 2],
        /// Postal code, nine digits.
        zip: [u8; 9],
    }

    /// Hot columns of WAREHOUSE, updated by Payment.
    WarehouseHot {
        /// Sum of the payments taken (W_YTD), cents.
        ytd: I64,
    }
    /// Cold columns of WAREHOUSE.
    WarehouseCold {
        /// Sales tax (W_TAX), 1/10000.
        tax: I32,
        /// Name of the warehouse (W_NAME).
        name: Text<10>,
        /// Address (W_STREET_1 .. W_ZIP).
        address: Address,
    }

    /// Hot columns of DISTRICT, updated by New-Order (`next_o_id`) and Payment (`ytd`).
    DistrictHot {
        /// Number of the next order (D_NEXT_O_ID).
        next_o_id: U32,
        /// Sum of the payments taken (D_YTD), cents.
        ytd: I64,
    }
    /// Cold columns of DISTRICT.
    DistrictCold {
        /// Sales tax (D_TAX), 1/10000.
        tax: I32,
        /// Name of the district (D_NAME).
        name: Text<10>,
        /// Address (D_STREET_1 .. D_ZIP).
        address: Address,
    }

    /// Hot columns of CUSTOMER, updated by Payment and Delivery.
    CustomerHot {
        /// Delivered amounts minus payments (C_BALANCE), cents.
        balance: I64,
        /// Sum of the payments (C_YTD_PAYMENT), cents.
        ytd_payment: I64,
        /// Number of payments (C_PAYMENT_CNT).
        payment_cnt: U32,
        /// Number of orders delivered since the load (C_DELIVERY_CNT).
        delivery_cnt: U32,
    }
    /// Cold columns of CUSTOMER. Payment rewrites `data` if the credit is bad.
    CustomerCold {
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
        /// Free text (C_DATA).
        data: LongText,
    }

    /// Columns of HISTORY.
    HistoryCold {
        /// Number of the customer (H_C_ID).
        c_id: U32,
        /// District of the customer (H_C_D_ID).
        c_d_id: u8,
        /// Warehouse of the customer (H_C_W_ID).
        c_w_id: U32,
        /// District that took the payment (H_D_ID).
        d_id: u8,
        /// Warehouse that took the payment (H_W_ID).
        w_id: U32,
        /// Date of the payment (H_DATE).
        date: Timestamp,
        /// Amount paid (H_AMOUNT), cents.
        amount: I64,
        /// Names of the warehouse and the district; free text in loaded rows (H_DATA).
        data: Text<24>,
    }

    /// Hot columns of ORDER, updated by Delivery.
    OrderHot {
        /// Number of the carrier (O_CARRIER_ID), 1 to 10; null while undelivered.
        carrier_id: Option<NonZeroU8>,
    }
    /// Cold columns of ORDER.
    OrderCold {
        /// Number of the customer (O_C_ID).
        c_id: U32,
        /// Date of entry (O_ENTRY_D).
        entry_d: Timestamp,
        /// Number of lines (O_OL_CNT).
        ol_cnt: u8,
        /// 1 if the home warehouse supplies all lines, else 0 (O_ALL_LOCAL).
        all_local: u8,
    }

    /// Hot columns of ORDER-LINE, updated by Delivery.
    OrderLineHot {
        /// Date of delivery (OL_DELIVERY_D); null while undelivered.
        delivery_d: Timestamp,
    }
    /// Cold columns of ORDER-LINE.
    OrderLineCold {
        /// Number of the item (OL_I_ID).
        i_id: U32,
        /// Supplying warehouse (OL_SUPPLY_W_ID).
        supply_w_id: U32,
        /// Quantity ordered (OL_QUANTITY).
        quantity: u8,
        /// Price of the line (OL_AMOUNT), cents.
        amount: I64,
        /// Text of the stock row for the district; free text in loaded rows (OL_DIST_INFO).
        dist_info: [u8; 24],
    }

    /// Columns of ITEM.
    ItemCold {
        /// Price of the item (I_PRICE), cents.
        price: I64,
        /// Number of the image (I_IM_ID).
        im_id: U32,
        /// Name of the item (I_NAME).
        name: Text<24>,
        /// Free text (I_DATA).
        data: Text<50>,
    }

    /// Hot columns of STOCK, updated by New-Order.
    StockHot {
        /// Quantity in stock (S_QUANTITY).
        quantity: I16,
        /// Quantity ordered since the load (S_YTD).
        ytd: U64,
        /// Number of order lines since the load (S_ORDER_CNT).
        order_cnt: U32,
        /// Number of order lines from other warehouses since the load (S_REMOTE_CNT).
        remote_cnt: U32,
    }
    /// Cold columns of STOCK.
    StockCold {
        /// Text for each district (S_DIST_01 .. S_DIST_10).
        dist: [[u8; 24]; 10],
        /// Free text (S_DATA).
        data: Text<50>,
    }

    /// Column of META.
    MetaHot {
        /// Value of the fact.
        value: U64,
    }

    /// Column of ACKNOWLEDGED: the last transaction of a terminal that wrote, if acknowledgements are enabled.
    AckHot {
        /// Number of the transaction at its terminal.
        sequence: U64,
    }
}

/// C_CREDIT of a customer with bad credit. Payment records each payment in C_DATA of such a customer.
pub const BAD_CREDIT: [u8; 2] = *b"BC";
/// C_CREDIT of a customer with good credit.
pub const GOOD_CREDIT: [u8; 2] = *b"GC";
