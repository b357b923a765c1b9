//! The macro [`record!`](crate::record), which defines structs that are rows, keys, or both.

/// Defines a struct that is a row, a key, or both, with the name and version that the catalog stores.
///
/// `Row("name", version)` after the struct's name makes it a row, `Key("name", version)` a key, `Key + Row("name",
/// version)` both. Fields are encoded in the order of their declaration; keys are compared field by field in this
/// order. The types of all fields must themselves be [`Row`](crate::Row)s (or [`Key`](crate::Key)s): integers, `bool`,
/// `String`, `Vec<u8>`, arrays, tuples, options, other records. The codec of a record includes the codecs of its
/// fields, so the engine detects a new field or a changed type even if the version is the same. Increase the version if
/// the *meaning* of a field changes.
///
/// ```
/// use storage::{Database, Options, Table, record};
///
/// record! {
///     /// Data of an account.
///     #[derive(Clone, Debug, PartialEq)]
///     pub struct Account: Row("account", 1) {
///         pub owner: String,
///         pub cents: i64,
///         pub closed: Option<u32>,
///     }
/// }
/// record! {
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub struct Place: Key + Row("place", 1) { pub shelf: u16, pub slot: i8 }
/// }
///
/// const ACCOUNTS: Table<Place, Account> = Table::new("accounts");
/// # let directory = std::env::temp_dir().join(format!("lockstep-record-{}", std::process::id()));
/// let db = Database::open(&directory, Options::new())?;
/// let (place, ada) = (Place { shelf: 1, slot: -3 }, Account { owner: "Ada".into(), cents: 500, closed: None });
/// db.transact(|tx| tx.put(&ACCOUNTS, &place, &ada))?;
/// assert_eq!(db.begin()?.get(&ACCOUNTS, &place)?, Some(ada));
/// # drop(db); std::fs::remove_dir_all(directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! record {
    (@struct $(#[$meta:meta])* $vis:vis $name:ident { $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $of:ty),* }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $of),*
        }
    };
    (@row $name:ident, $text:literal, $version:literal { $($field:ident: $of:ty),* }) => {
        impl $crate::Row for $name {
            const CODEC: $crate::Codec = $crate::Codec::record($text, $version, &[$(<$of as $crate::Row>::CODEC),*]);
            const SIZE: ::core::option::Option<usize> = $crate::record_parts::size_of_all(&[$(<$of as $crate::Row>::SIZE),*]);
            fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
                $($crate::record_parts::put_part(&self.$field, out);)*
                let _ = out;
            }
            #[allow(unused_mut)]
            fn decode(bytes: &[u8]) -> ::core::option::Option<Self> {
                let mut rest = bytes;
                let whole = $name { $($field: $crate::record_parts::take_part(&mut rest)?),* };
                rest.is_empty().then_some(whole)
            }
        }
        impl $crate::record_parts::Fields for $name {
            const FIELDS: &'static [(&'static str, ::core::option::Option<usize>)] =
                &[$((::core::stringify!($field), <$of as $crate::Row>::SIZE)),*];
        }
    };
    (@key $name:ident, $text:literal, $version:literal { $($field:ident: $of:ty),* }) => {
        impl $crate::Key for $name {
            const CODEC: $crate::Codec = $crate::Codec::record($text, $version, &[$(<$of as $crate::Key>::CODEC),*]);
            type Borrowed = Self;
            fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
                $($crate::Key::encode(&self.$field, out);)*
                let _ = out;
            }
            fn decode(bytes: &mut &[u8]) -> ::core::option::Option<Self> {
                ::core::option::Option::Some($name { $($field: $crate::Key::decode(bytes)?),* })
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident: Row($text:literal, $version:literal) {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $of:ty),* $(,)?
    }) => {
        $crate::record!(@struct $(#[$meta])* $vis $name { $($(#[$field_meta])* $field_vis $field: $of),* });
        $crate::record!(@row $name, $text, $version { $($field: $of),* });
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident: Key($text:literal, $version:literal) {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $of:ty),* $(,)?
    }) => {
        $crate::record!(@struct $(#[$meta])* $vis $name { $($(#[$field_meta])* $field_vis $field: $of),* });
        $crate::record!(@key $name, $text, $version { $($field: $of),* });
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident: Key + Row($text:literal, $version:literal) {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $of:ty),* $(,)?
    }) => {
        $crate::record!(@struct $(#[$meta])* $vis $name { $($(#[$field_meta])* $field_vis $field: $of),* });
        $crate::record!(@key $name, $text, $version { $($field: $of),* });
        $crate::record!(@row $name, $text, $version { $($field: $of),* });
    };
}
