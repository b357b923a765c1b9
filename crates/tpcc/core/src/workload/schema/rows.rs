//! The columns of each table. Money is in cents (`I64`), taxes and discounts in 1/10000 (`I32`).

use std::num::NonZeroU8;

use zerocopy::little_endian::{I16, I32, I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::text::{LongText, Text};

/// Date and time of day: microseconds since 1970, 0 where there is none (null).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct When(U64);

impl When {
    /// Null.
    pub const NULL: When = When(U64::ZERO);

    /// A moment, in microseconds since 1970; 0 would be null, so it becomes 1.
    pub fn at(microseconds: u64) -> When {
        When(U64::new(microseconds.max(1)))
    }

    /// Whether there is no date.
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
    /// Two streets, city, state, zip: in WAREHOUSE, DISTRICT and CUSTOMER.
    Address {
        street_1: Text<20>,
        street_2: Text<20>,
        city: Text<20>,
        state: [u8; 2],
        zip: [u8; 9],
    }

    /// WAREHOUSE, updated by Payment.
    WarehouseHot { ytd: I64 }
    /// WAREHOUSE, the rest.
    WarehouseCold {
        tax: I32,
        name: Text<10>,
        address: Address,
    }

    /// DISTRICT, updated by New-Order (`next_o_id`) and Payment (`ytd`).
    DistrictHot { next_o_id: U32, ytd: I64 }
    /// DISTRICT, the rest.
    DistrictCold {
        tax: I32,
        name: Text<10>,
        address: Address,
    }

    /// CUSTOMER, updated by Payment and Delivery.
    CustomerHot {
        balance: I64,
        ytd_payment: I64,
        payment_cnt: U32,
        delivery_cnt: U32,
    }
    /// CUSTOMER, the rest; `data` is rewritten by Payment when the credit is bad.
    CustomerCold {
        discount: I32,
        credit: [u8; 2],
        credit_lim: I64,
        since: When,
        last: Text<16>,
        first: Text<16>,
        middle: [u8; 2],
        phone: [u8; 16],
        address: Address,
        data: LongText,
    }

    /// HISTORY.
    HistoryCold {
        c_id: U32,
        c_d_id: u8,
        c_w_id: U32,
        d_id: u8,
        w_id: U32,
        date: When,
        amount: I64,
        data: Text<24>,
    }

    /// ORDER, updated by Delivery: 1..10, or null while undelivered.
    OrderHot { carrier_id: Option<NonZeroU8> }
    /// ORDER, the rest.
    OrderCold {
        c_id: U32,
        entry_d: When,
        ol_cnt: u8,
        all_local: u8,
    }

    /// ORDER-LINE, updated by Delivery: null while undelivered.
    OrderLineHot { delivery_d: When }
    /// ORDER-LINE, the rest.
    OrderLineCold {
        i_id: U32,
        supply_w_id: U32,
        quantity: u8,
        amount: I64,
        dist_info: [u8; 24],
    }

    /// ITEM.
    ItemCold {
        price: I64,
        im_id: U32,
        name: Text<24>,
        data: Text<50>,
    }

    /// STOCK, updated by New-Order.
    StockHot {
        quantity: I16,
        ytd: U64,
        order_cnt: U32,
        remote_cnt: U32,
    }
    /// STOCK, the rest.
    StockCold {
        dist: [[u8; 24]; 10],
        data: Text<50>,
    }

    /// One number about the database.
    MetaHot { value: U64 }

    /// The terminal's last transaction that wrote, where acknowledgements were asked for.
    AckHot { sequence: U64 }
}

/// C_CREDIT of a customer whose C_DATA records each payment.
pub const BAD_CREDIT: [u8; 2] = *b"BC";
/// C_CREDIT of the others.
pub const GOOD_CREDIT: [u8; 2] = *b"GC";
