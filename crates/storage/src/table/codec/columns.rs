//! Columns: a type for some fields of a row, for statements that do not need the whole row.

use std::ops::Range;

use super::Row;
use super::composite::check_size;

/// A selection of columns of rows of type `V`. The columns have the same position in the encoding of every row.
/// [`columns!`](crate::columns) implements this for a struct in one line, checked against the row's fields. For a row
/// with your own codec, implement this trait together with the codec.
///
/// Used by [`Transaction::get_columns`](crate::Transaction::get_columns) and
/// [`Transaction::update_columns`](crate::Transaction::update_columns).
pub trait Columns<V: Row>: Sized {
    /// Byte range of the row's encoding that contains the columns, and perhaps other columns between them. With a wrong
    /// range, statements read and write wrong columns: the range is part of the row's codec. Both ends lie in the row,
    /// and the start is not above the end.
    const RANGE: Range<usize>;
    /// Decodes the columns from the bytes of [`Columns::RANGE`]; `None` if the bytes are no such columns.
    fn decode(bytes: &[u8]) -> Option<Self>;
    /// Overwrites the columns in `bytes`, the bytes of [`Columns::RANGE`]. Bytes between the columns must stay
    /// unchanged. If the length of `bytes` changes, the update is refused.
    fn encode(&self, bytes: &mut Vec<u8>);
}

/// The fields of a record, for [`columns!`](crate::columns).
pub trait Fields {
    /// Name of each field, and its size in bytes if the size is fixed.
    const FIELDS: &'static [(&'static str, Option<usize>)];
}

/// Returns the byte range of a field in the encoding of every record.
///
/// # Panics
/// If this field or a field before it has no fixed size, or no field has the name. Evaluated in a constant, so a panic
/// is a compile error.
pub const fn place_of(fields: &[(&str, Option<usize>)], name: &str) -> Range<usize> {
    let (mut at, mut i) = (0, 0);
    while i < fields.len() {
        let size = match fields[i].1 {
            Some(size) => size,
            None => panic!("columns lie at a fixed place: they and all fields before them have a fixed size"),
        };
        if is_same(fields[i].0, name) {
            return at..at + size;
        }
        at += size;
        i += 1;
    }
    panic!("no field of the record has this name")
}

/// Returns the smallest byte range that contains all fields in `names`.
///
/// # Panics
/// Panics as [`place_of`] does.
pub const fn span_of(fields: &[(&str, Option<usize>)], names: &[&str]) -> Range<usize> {
    let mut span = place_of(fields, names[0]);
    let mut i = 1;
    while i < names.len() {
        let place = place_of(fields, names[i]);
        if place.start < span.start {
            span.start = place.start;
        }
        if place.end > span.end {
            span.end = place.end;
        }
        i += 1;
    }
    span
}

const fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Overwrites the column at the byte range `place` of `bytes`.
///
/// # Panics
/// If the column's codec declares a size and encodes to another one.
pub fn put_column<T: Row>(column: &T, place: Range<usize>, bytes: &mut Vec<u8>) {
    let end = bytes.len();
    column.encode(bytes);
    check_size::<T>(bytes.len().wrapping_sub(end), place.len());
    bytes.copy_within(end.., place.start);
    bytes.truncate(end);
}

/// Decodes the column at the byte range `place` of `bytes`; `None` if the bytes are no such column.
pub fn take_column<T: Row>(bytes: &[u8], place: Range<usize>) -> Option<T> {
    T::decode(bytes.get(place)?)
}

/// Defines a struct of some columns of a [`record!`](crate::record) row, for statements that need only these columns:
/// they neither read nor copy the rest of the row.
///
/// The columns have the names and types of the record's fields. They and all fields before them must have a fixed size
/// (integers, `bool`, arrays and tuples of such; not `Option`, `String` and `Vec`): put such fields first in a record.
/// Other columns are compile errors.
///
/// ```
/// use storage::{Database, Options, Table, columns, record};
///
/// record! {
///     pub struct Account: Row("account", 1) {
///         pub cents: i64,
///         pub opened: u32,
///         pub closed: bool,
///         pub owner: String,
///     }
/// }
/// columns! {
///     /// The columns that a transfer reads.
///     pub struct Balance of Account { pub cents: i64, pub closed: bool }
/// }
///
/// const ACCOUNTS: Table<u64, Account> = Table::new("accounts");
/// # let directory = std::env::temp_dir().join(format!("lockstep-columns-{}", std::process::id()));
/// let db = Database::open(&directory, Options::new())?;
/// db.transact(|tx| {
///     tx.put(&ACCOUNTS, &7, &Account { cents: 500, opened: 2024, closed: false, owner: "Ada".into() })?;
///     tx.update_columns(&ACCOUNTS, &7, |account: &mut Balance| account.cents -= 120)
/// })?;
/// let left: Option<Balance> = db.begin()?.get_columns(&ACCOUNTS, &7)?;
/// assert_eq!(left.map(|account| account.cents), Some(380));
/// # drop(db); std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A column whose position differs between rows is refused:
///
/// ```compile_fail
/// storage::record! { pub struct Entry: Row("entry", 1) { pub text: String, pub count: u32 } }
/// storage::columns! { pub struct Count of Entry { pub count: u32 } }
/// const _: std::ops::Range<usize> = <Count as storage::Columns<Entry>>::RANGE;
/// ```
#[macro_export]
macro_rules! columns {
    ($(#[$meta:meta])* $vis:vis struct $name:ident of $row:ty {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $of:ty),+ $(,)?
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $of),+
        }

        impl $crate::Columns<$row> for $name {
            const RANGE: ::core::ops::Range<usize> = $crate::record_parts::span_of(
                <$row as $crate::record_parts::Fields>::FIELDS,
                &[$(::core::stringify!($field)),+],
            );
            fn decode(bytes: &[u8]) -> ::core::option::Option<Self> {
                ::core::option::Option::Some($name {
                    $($field: $crate::record_parts::take_column(bytes, const {
                        let place = $crate::record_parts::place_of(
                            <$row as $crate::record_parts::Fields>::FIELDS,
                            ::core::stringify!($field),
                        );
                        let from = <$name as $crate::Columns<$row>>::RANGE.start;
                        place.start - from..place.end - from
                    })?),+
                })
            }
            fn encode(&self, bytes: &mut ::std::vec::Vec<u8>) {
                $($crate::record_parts::put_column(&self.$field, const {
                    let place = $crate::record_parts::place_of(
                        <$row as $crate::record_parts::Fields>::FIELDS,
                        ::core::stringify!($field),
                    );
                    let from = <$name as $crate::Columns<$row>>::RANGE.start;
                    place.start - from..place.end - from
                }, bytes);)+
            }
        }

        // The columns have the types of the record's fields and fixed positions.
        const _: fn(&$row) = |row| {
            $(let _: &$of = &row.$field;)+
        };
        const _: ::core::ops::Range<usize> = <$name as $crate::Columns<$row>>::RANGE;
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::record! {
        #[derive(Clone, Debug, PartialEq)]
        struct Wide: Row("wide", 1) {
            a: u16,
            b: [u8; 3],
            c: (u32, bool),
            d: i64,
            text: String,
        }
    }
    crate::columns! {
        #[derive(Clone, Debug, PartialEq)]
        struct Outer of Wide { d: i64, b: [u8; 3] }
    }
    crate::columns! {
        #[derive(Clone, Debug, PartialEq)]
        struct First of Wide { a: u16 }
    }

    fn wide() -> Wide {
        Wide { a: 0x0102, b: [3, 4, 5], c: (6, true), d: -7, text: "eight".into() }
    }

    fn encoded(row: &Wide) -> Vec<u8> {
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        bytes
    }

    #[test]
    fn columns_lie_where_the_record_has_them() {
        let bytes = encoded(&wide());
        assert_eq!(First::RANGE, 0..2);
        assert_eq!(First::decode(&bytes[First::RANGE]), Some(First { a: 0x0102 }));
        assert_eq!(Outer::RANGE.start, 2);
        assert_eq!(Outer::decode(&bytes[Outer::RANGE]), Some(Outer { d: -7, b: [3, 4, 5] }));
        assert_eq!(Outer::decode(&bytes[..3]), None, "too few bytes are no columns");
    }

    #[test]
    fn what_lies_between_columns_stays() {
        let mut bytes = encoded(&wide());
        let mut part = bytes[Outer::RANGE].to_vec();
        Outer { d: 70, b: [9; 3] }.encode(&mut part);
        assert_eq!(part.len(), Outer::RANGE.len());
        bytes[Outer::RANGE].copy_from_slice(&part);
        assert_eq!(Wide::decode(&bytes), Some(Wide { b: [9; 3], d: 70, ..wide() }));
    }
}
