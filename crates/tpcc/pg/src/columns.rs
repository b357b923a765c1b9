//! The columns of each table: the SQL types, and the layout of keys and rows in memory. The declarations of the tables,
//! their loading, and the statements on single rows are derived from this one description.

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use zerocopy::{FromBytes, IntoBytes};

use tpcc_core::workload::schema::rows::Timestamp as Moment;
use tpcc_core::workload::schema::{IndexId, TableId};

/// Type of a column in memory and in SQL. Numbers are big-endian in keys and little-endian in rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ColumnKind {
    /// `u8` of a key: int2.
    KeyU8,
    /// `u32` of a key: int4.
    KeyU32,
    /// `u64` of a key: int8.
    KeyU64,
    /// Zero-padded characters in the key of an index. The number is the length.
    KeyName(usize),
    /// `u8`: int2.
    U8,
    /// `u8`, with 0 for null: int2 or null.
    MaybeU8,
    /// `i16`: int2.
    I16,
    /// `i32`: int4.
    I32,
    /// `u32`: int4.
    U32,
    /// `i64`: int8.
    I64,
    /// `u64`, with the same 64 bits: int8.
    U64,
    /// Microseconds since 1970: timestamp with time zone.
    When,
    /// As `When`, with 0 for null: timestamp with time zone or null.
    MaybeWhen,
    /// A length of one byte, then characters. The number is the maximum length.
    Text(usize),
    /// A length of two bytes, then characters. The number is the maximum length.
    Long(usize),
    /// Characters. The number is the length.
    Fixed(usize),
}

/// Microseconds from 1970 to 2000, the epoch of the protocol's timestamps.
pub(super) const EPOCH: i64 = 946_684_800_000_000;

impl ColumnKind {
    /// Returns the size of a value in a key or row in memory, in bytes.
    pub(super) fn width(self) -> usize {
        match self {
            ColumnKind::KeyU8 | ColumnKind::U8 | ColumnKind::MaybeU8 => 1,
            ColumnKind::I16 => 2,
            ColumnKind::KeyU32 | ColumnKind::I32 | ColumnKind::U32 => 4,
            ColumnKind::KeyU64 | ColumnKind::I64 | ColumnKind::U64 | ColumnKind::When | ColumnKind::MaybeWhen => 8,
            ColumnKind::KeyName(n) | ColumnKind::Fixed(n) => n,
            ColumnKind::Text(n) => n + 1,
            ColumnKind::Long(n) => n + 2,
        }
    }

    /// Returns the SQL type. Integer types have the name that states the width, because `integer` has 8 bytes in
    /// CockroachDB.
    pub(super) fn sql(self) -> String {
        match self {
            ColumnKind::KeyU8 | ColumnKind::U8 | ColumnKind::MaybeU8 | ColumnKind::I16 => "int2".to_owned(),
            ColumnKind::KeyU32 | ColumnKind::I32 | ColumnKind::U32 => "int4".to_owned(),
            ColumnKind::KeyU64 | ColumnKind::I64 | ColumnKind::U64 => "int8".to_owned(),
            ColumnKind::When | ColumnKind::MaybeWhen => "timestamptz".to_owned(),
            ColumnKind::KeyName(n) | ColumnKind::Fixed(n) | ColumnKind::Text(n) | ColumnKind::Long(n) => {
                format!("varchar({n})")
            }
        }
    }

    /// Returns the type of a parameter for this column.
    pub(super) fn parameter(self) -> Type {
        match self {
            ColumnKind::KeyU8 | ColumnKind::U8 | ColumnKind::MaybeU8 | ColumnKind::I16 => Type::INT2,
            ColumnKind::KeyU32 | ColumnKind::I32 | ColumnKind::U32 => Type::INT4,
            ColumnKind::KeyU64 | ColumnKind::I64 | ColumnKind::U64 => Type::INT8,
            ColumnKind::When | ColumnKind::MaybeWhen => Type::TIMESTAMPTZ,
            ColumnKind::KeyName(_) | ColumnKind::Fixed(_) | ColumnKind::Text(_) | ColumnKind::Long(_) => Type::VARCHAR,
        }
    }

    /// Returns true if the column is text and therefore has a collation.
    pub(super) fn is_text(self) -> bool {
        matches!(self, ColumnKind::KeyName(_) | ColumnKind::Fixed(_) | ColumnKind::Text(_) | ColumnKind::Long(_))
    }

    /// Returns true if the column is nullable.
    pub(super) fn may_be_null(self) -> bool {
        matches!(self, ColumnKind::MaybeU8 | ColumnKind::MaybeWhen)
    }

    /// Appends the column to `out` in the protocol's format, from its bytes in memory. Returns false for null. A number of a
    /// key beyond the range of its SQL type occurs only as the end of a key range, and is clamped to the maximum of the
    /// type.
    pub(super) fn encode(self, bytes: &[u8], out: &mut impl BufMut) -> bool {
        let long = || bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        match self {
            ColumnKind::MaybeU8 if bytes == [0] => return false,
            ColumnKind::MaybeWhen if long() == 0 => return false,
            ColumnKind::KeyU8 | ColumnKind::U8 | ColumnKind::MaybeU8 => out.put_i16(i16::from(bytes[0])),
            ColumnKind::I16 => out.put_i16(bytes.first_chunk().map_or(0, |bytes| i16::from_le_bytes(*bytes))),
            ColumnKind::I32 | ColumnKind::U32 => {
                out.put_i32(bytes.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes)))
            }
            ColumnKind::KeyU32 => {
                let number = bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                out.put_i32(i32::try_from(number).unwrap_or(i32::MAX));
            }
            ColumnKind::KeyU64 => {
                let number = bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                out.put_i64(i64::try_from(number).unwrap_or(i64::MAX));
            }
            ColumnKind::I64 | ColumnKind::U64 => out.put_i64(long()),
            ColumnKind::When | ColumnKind::MaybeWhen => out.put_i64(long() - EPOCH),
            ColumnKind::Fixed(_) => out.put_slice(bytes),
            ColumnKind::KeyName(n) => {
                // Names are ASCII. The byte 0xff, which sorts after all names, is not valid text; 0x7f, the last ASCII
                // character, replaces it.
                let name = &bytes[..bytes.iter().position(|&byte| byte == 0).unwrap_or(n)];
                name.iter().for_each(|&byte| out.put_u8(if byte == 0xff { 0x7f } else { byte }));
            }
            ColumnKind::Text(n) => out.put_slice(&bytes[1..][..usize::from(bytes[0]).min(n)]),
            ColumnKind::Long(n) => {
                let len = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
                out.put_slice(&bytes[2..][..len.min(n)]);
            }
        }
        true
    }

    /// Appends the column to `out` in the format of memory, from its bytes in the protocol's format. Returns false if
    /// `bytes` do not fit this type.
    pub(super) fn decode(self, bytes: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
        let end = out.len() + self.width();
        match (self, bytes) {
            (ColumnKind::MaybeU8 | ColumnKind::MaybeWhen, None) => {}
            (_, None) => return false,
            (ColumnKind::KeyU8 | ColumnKind::U8 | ColumnKind::MaybeU8, Some(&[0, byte])) => out.push(byte),
            (ColumnKind::KeyU32 | ColumnKind::KeyU64, Some(bytes)) if bytes.len() == self.width() => {
                out.extend_from_slice(bytes)
            }
            (ColumnKind::I16 | ColumnKind::I32 | ColumnKind::U32 | ColumnKind::I64 | ColumnKind::U64, Some(bytes))
                if bytes.len() == self.width() =>
            {
                out.extend(bytes.iter().rev());
            }
            (ColumnKind::When | ColumnKind::MaybeWhen, Some(bytes)) => match bytes.try_into() {
                Ok(bytes) => out.extend_from_slice(&(i64::from_be_bytes(bytes) + EPOCH).to_le_bytes()),
                Err(_) => return false,
            },
            (ColumnKind::KeyName(n) | ColumnKind::Fixed(n), Some(bytes)) if bytes.len() <= n => {
                out.extend_from_slice(bytes)
            }
            (ColumnKind::Text(n), Some(bytes)) if bytes.len() <= n => {
                out.push(bytes.len() as u8);
                out.extend_from_slice(bytes);
            }
            (ColumnKind::Long(n), Some(bytes)) if bytes.len() <= n => {
                out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
                out.extend_from_slice(bytes);
            }
            _ => return false,
        }
        // Texts are padded with zeros.
        out.resize(end, 0);
        true
    }
}

/// A column as a parameter of a statement.
#[derive(Debug)]
pub(super) struct Field {
    kind: ColumnKind,
    bytes: Vec<u8>,
}

impl Field {
    /// Creates a parameter from the bytes of a column in memory.
    pub(super) fn new(kind: ColumnKind, bytes: &[u8]) -> Field {
        Field { kind, bytes: bytes.to_vec() }
    }

    /// Returns the SQL type of the parameter.
    pub(super) fn sql_type(&self) -> Type {
        self.kind.parameter()
    }
}

impl ToSql for Field {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        Ok(if self.kind.encode(&self.bytes, out) { IsNull::No } else { IsNull::Yes })
    }

    fn accepts(_: &Type) -> bool {
        // Statements declare the type of each parameter with `sql_type`.
        true
    }

    to_sql_checked!();
}

/// A column of a result in the protocol's format; `None` for null.
pub(super) struct RawColumn<'a>(pub(super) Option<&'a [u8]>);

impl<'a> FromSql<'a> for RawColumn<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<RawColumn<'a>, Box<dyn std::error::Error + Sync + Send>> {
        Ok(RawColumn(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<RawColumn<'a>, Box<dyn std::error::Error + Sync + Send>> {
        Ok(RawColumn(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A date as a parameter or a column; null for no date.
#[derive(Clone, Copy, Debug)]
pub(super) struct SqlTimestamp(pub(super) Moment);

impl ToSql for SqlTimestamp {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        Ok(if ColumnKind::MaybeWhen.encode(self.0.as_bytes(), out) { IsNull::No } else { IsNull::Yes })
    }

    fn accepts(to: &Type) -> bool {
        *to == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for SqlTimestamp {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<SqlTimestamp, Box<dyn std::error::Error + Sync + Send>> {
        let mut bytes = Vec::with_capacity(8);
        let is_date = ColumnKind::When.decode(Some(raw), &mut bytes);
        match Moment::read_from_bytes(&bytes) {
            Ok(when) if is_date => Ok(SqlTimestamp(when)),
            _ => Err("not a date".into()),
        }
    }

    fn from_sql_null(_: &Type) -> Result<SqlTimestamp, Box<dyn std::error::Error + Sync + Send>> {
        Ok(SqlTimestamp(Moment::NULL))
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TIMESTAMPTZ
    }
}

/// Name and type of a column.
pub(super) type Column = (&'static str, ColumnKind);

/// SQL definition of a table.
pub(super) struct SqlTable {
    /// Name of the table; "orders", because `order` is a reserved word.
    pub(super) name: &'static str,
    /// Columns of the key, in key order.
    pub(super) key: &'static [Column],
    /// Columns that transactions update, in row order.
    pub(super) hot: &'static [Column],
    /// All other columns, in row order.
    pub(super) cold: &'static [Column],
    /// True if the primary key is declared. HISTORY is never read by its key.
    pub(super) has_key: bool,
    /// Percentage of a page that the load fills with rows.
    pub(super) fillfactor: u8,
}

impl SqlTable {
    /// Returns all columns.
    pub(super) fn columns(&self) -> impl Iterator<Item = &Column> + Clone {
        self.key.iter().chain(self.hot).chain(self.cold)
    }

    /// Returns the names of all columns, separated by commas.
    pub(super) fn names(&self) -> String {
        self.columns().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }
}

/// SQL definition of a secondary index.
pub(super) struct SqlIndex {
    /// Name of the index.
    pub(super) name: &'static str,
    /// Table of the index.
    pub(super) table: TableId,
    /// Columns of the key of the index.
    pub(super) key: &'static [Column],
}

use ColumnKind::{
    Fixed, I16, I32, I64, KeyName, KeyU8, KeyU32, KeyU64, Long, MaybeU8, MaybeWhen, Text, U8, U32, U64, When,
};

macro_rules! place {
    ($tax:literal, $name:literal, $street_1:literal, $street_2:literal, $city:literal, $state:literal, $zip:literal) => {
        &[
            ($tax, I32),
            ($name, Text(10)),
            ($street_1, Text(20)),
            ($street_2, Text(20)),
            ($city, Text(20)),
            ($state, Fixed(2)),
            ($zip, Fixed(9)),
        ]
    };
}

/// Returns the SQL definition of a table.
pub(super) fn table(id: TableId) -> &'static SqlTable {
    match id {
        TableId::Warehouse => &SqlTable {
            name: "warehouse",
            key: &[("w_id", KeyU32)],
            hot: &[("w_ytd", I64)],
            cold: place!("w_tax", "w_name", "w_street_1", "w_street_2", "w_city", "w_state", "w_zip"),
            has_key: true,
            fillfactor: 10,
        },
        TableId::District => &SqlTable {
            name: "district",
            key: &[("d_w_id", KeyU32), ("d_id", KeyU8)],
            hot: &[("d_next_o_id", U32), ("d_ytd", I64)],
            cold: place!("d_tax", "d_name", "d_street_1", "d_street_2", "d_city", "d_state", "d_zip"),
            has_key: true,
            fillfactor: 10,
        },
        TableId::Customer => &SqlTable {
            name: "customer",
            key: &[("c_w_id", KeyU32), ("c_d_id", KeyU8), ("c_id", KeyU32)],
            hot: &[("c_balance", I64), ("c_ytd_payment", I64), ("c_payment_cnt", U32), ("c_delivery_cnt", U32)],
            cold: &[
                ("c_discount", I32),
                ("c_credit", Fixed(2)),
                ("c_credit_lim", I64),
                ("c_since", When),
                ("c_last", Text(16)),
                ("c_first", Text(16)),
                ("c_middle", Fixed(2)),
                ("c_phone", Fixed(16)),
                ("c_street_1", Text(20)),
                ("c_street_2", Text(20)),
                ("c_city", Text(20)),
                ("c_state", Fixed(2)),
                ("c_zip", Fixed(9)),
                ("c_data", Long(500)),
            ],
            has_key: true,
            fillfactor: 80,
        },
        TableId::History => &SqlTable {
            name: "history",
            key: &[("h_run", KeyU32), ("h_terminal", KeyU32), ("h_sequence", KeyU64)],
            hot: &[],
            cold: &[
                ("h_c_id", U32),
                ("h_c_d_id", U8),
                ("h_c_w_id", U32),
                ("h_d_id", U8),
                ("h_w_id", U32),
                ("h_date", When),
                ("h_amount", I64),
                ("h_data", Text(24)),
            ],
            has_key: false,
            fillfactor: 100,
        },
        TableId::NewOrder => &SqlTable {
            name: "new_order",
            key: &[("no_w_id", KeyU32), ("no_d_id", KeyU8), ("no_o_id", KeyU32)],
            hot: &[],
            cold: &[],
            has_key: true,
            fillfactor: 100,
        },
        TableId::Order => &SqlTable {
            name: "orders",
            key: &[("o_w_id", KeyU32), ("o_d_id", KeyU8), ("o_id", KeyU32)],
            hot: &[("o_carrier_id", MaybeU8)],
            cold: &[("o_c_id", U32), ("o_entry_d", When), ("o_ol_cnt", U8), ("o_all_local", U8)],
            has_key: true,
            fillfactor: 90,
        },
        TableId::OrderLine => &SqlTable {
            name: "order_line",
            key: &[("ol_w_id", KeyU32), ("ol_d_id", KeyU8), ("ol_o_id", KeyU32), ("ol_number", KeyU8)],
            hot: &[("ol_delivery_d", MaybeWhen)],
            cold: &[
                ("ol_i_id", U32),
                ("ol_supply_w_id", U32),
                ("ol_quantity", U8),
                ("ol_amount", I64),
                ("ol_dist_info", Fixed(24)),
            ],
            has_key: true,
            fillfactor: 90,
        },
        TableId::Item => &SqlTable {
            name: "item",
            key: &[("i_id", KeyU32)],
            hot: &[],
            cold: &[("i_price", I64), ("i_im_id", U32), ("i_name", Text(24)), ("i_data", Text(50))],
            has_key: true,
            fillfactor: 100,
        },
        TableId::Stock => &SqlTable {
            name: "stock",
            key: &[("s_w_id", KeyU32), ("s_i_id", KeyU32)],
            hot: &[("s_quantity", I16), ("s_ytd", U64), ("s_order_cnt", U32), ("s_remote_cnt", U32)],
            cold: &[
                ("s_dist_01", Fixed(24)),
                ("s_dist_02", Fixed(24)),
                ("s_dist_03", Fixed(24)),
                ("s_dist_04", Fixed(24)),
                ("s_dist_05", Fixed(24)),
                ("s_dist_06", Fixed(24)),
                ("s_dist_07", Fixed(24)),
                ("s_dist_08", Fixed(24)),
                ("s_dist_09", Fixed(24)),
                ("s_dist_10", Fixed(24)),
                ("s_data", Text(50)),
            ],
            has_key: true,
            fillfactor: 80,
        },
        TableId::Meta => &SqlTable {
            name: "meta",
            key: &[("fact", KeyU32)],
            hot: &[("value", U64)],
            cold: &[],
            has_key: true,
            fillfactor: 100,
        },
        TableId::Acknowledged => &SqlTable {
            name: "acknowledged",
            key: &[("run", KeyU32), ("terminal", KeyU32)],
            hot: &[("sequence", U64)],
            cold: &[],
            has_key: true,
            fillfactor: 100,
        },
    }
}

/// Returns the SQL definition of an index.
pub(super) fn index(id: IndexId) -> &'static SqlIndex {
    match id {
        IndexId::CustomerByName => &SqlIndex {
            name: "customer_by_name",
            table: TableId::Customer,
            key: &[
                ("c_w_id", KeyU32),
                ("c_d_id", KeyU8),
                ("c_last", KeyName(16)),
                ("c_first", KeyName(16)),
                ("c_id", KeyU32),
            ],
        },
        IndexId::OrderByCustomer => &SqlIndex {
            name: "order_by_customer",
            table: TableId::Order,
            key: &[("o_w_id", KeyU32), ("o_d_id", KeyU8), ("o_c_id", KeyU32), ("o_id", KeyU32)],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tpcc_core::workload::schema::tables::{
        Acknowledged, Customer, CustomerByName, District, History, Item, Meta, NewOrder, Order, OrderByCustomer,
        OrderLine, Stock, Warehouse,
    };
    use tpcc_core::workload::schema::{IndexDef, Key, RowOf, TableDef};

    fn fits<T: TableDef>() {
        let table = table(T::TABLE);
        let width = |columns: &[Column]| columns.iter().map(|(_, kind)| kind.width()).sum::<usize>();
        assert_eq!(width(table.key), T::Key::LEN, "{}", table.name);
        assert_eq!(width(table.hot), size_of::<T::Hot>(), "{}", table.name);
        assert_eq!(width(table.hot) + width(table.cold), size_of::<RowOf<T>>(), "{}", table.name);
    }

    #[test]
    fn columns_are_as_wide_as_keys_and_rows() {
        fits::<Warehouse>();
        fits::<District>();
        fits::<Customer>();
        fits::<History>();
        fits::<NewOrder>();
        fits::<Order>();
        fits::<OrderLine>();
        fits::<Item>();
        fits::<Stock>();
        fits::<Meta>();
        fits::<Acknowledged>();
        for (id, len) in [
            (IndexId::CustomerByName, <CustomerByName as IndexDef>::Key::LEN),
            (IndexId::OrderByCustomer, <OrderByCustomer as IndexDef>::Key::LEN),
        ] {
            assert_eq!(index(id).key.iter().map(|(_, kind)| kind.width()).sum::<usize>(), len);
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let when = 1_700_000_000_000_000i64.to_le_bytes();
        let cases: [(ColumnKind, &[u8]); 14] = [
            (KeyU8, &[7]),
            (KeyU32, &[0, 0, 1, 2]),
            (KeyU64, &[0, 0, 0, 0, 0, 0, 3, 4]),
            (KeyName(4), b"AB\0\0"),
            (U8, &[15]),
            (MaybeU8, &[0]),
            (MaybeU8, &[10]),
            (I16, &[0xff, 0xff]),
            (U64, &[0xff; 8]),
            (When, &when),
            (MaybeWhen, &[0; 8]),
            (Text(4), &[2, b'x', b'y', 0, 0]),
            (Long(4), &[3, 0, b'x', b'y', b'z', 0]),
            (Fixed(2), b"GC"),
        ];
        for (kind, memory) in cases {
            let mut wire = Vec::new();
            let there = kind.encode(memory, &mut wire);
            let mut again = Vec::new();
            assert!(kind.decode(there.then_some(&wire[..]), &mut again), "{kind:?}");
            assert_eq!(again, memory, "{kind:?}");
        }
        let mut end = Vec::new();
        assert!(KeyU32.encode(&[0xff; 4], &mut end));
        assert_eq!(end, i32::MAX.to_be_bytes());
        let mut end = Vec::new();
        assert!(KeyName(4).encode(&[0xff; 4], &mut end));
        assert_eq!(end, [0x7f; 4]);
        assert!(!I32.decode(None, &mut Vec::new()) && !Text(2).decode(Some(b"abc"), &mut Vec::new()));
    }
}
