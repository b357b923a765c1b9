//! Codecs: keys encoded to bytes that order like the values, rows encoded to bytes in a fixed layout.

pub(crate) mod columns;
mod composite;
pub(crate) mod name;
mod prefix;
pub(crate) mod record;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;

pub use columns::{Columns, Fields, place_of, put_column, span_of, take_column};
pub use composite::{put_part, size_of_all, take_part};
pub use name::Codec;
pub use prefix::KeyPrefix;

/// A value that can be a key, or part of a key.
///
/// The encoding orders like the value: `a < b` if and only if the bytes of `a` order before the bytes of `b`, also when
/// other keys follow (tuples).
pub trait Key: Sized + Borrow<<Self as Key>::Borrowed> {
    /// Name of the encoding. A table can be opened only with the codecs that it was created with.
    const CODEC: Codec;
    /// The type of keys in arguments of statements on one row: `str` for `String`, `[u8]` for `Vec<u8>`, so that a row
    /// can be found by borrowed text or bytes. For all other key types of this crate, `Borrowed` is the type itself;
    /// your own types can also use `type Borrowed = Self`.
    ///
    /// ```
    /// # use storage::{Database, Options, Table};
    /// # let directory = std::env::temp_dir().join(format!("lockstep-borrowed-{}", std::process::id()));
    /// # let db = Database::open(&directory, Options::new())?;
    /// const AGES: Table<String, u32> = Table::new("ages");
    /// db.transact(|tx| tx.put(&AGES, "Ada", &36))?;
    /// for line in "Ada,Charles".split(',') {
    ///     println!("{line}: {:?}", db.begin()?.get(&AGES, line)?);
    /// }
    /// let name = String::from("Ada");
    /// assert_eq!(db.begin()?.get(&AGES, &name)?, Some(36));
    /// # drop(db); std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A function that is generic over `K: Key` passes `key.borrow()` ([`Borrow`] is implied by the bound).
    type Borrowed: BorrowedKey + ?Sized;
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);
    /// Decodes a value and removes it from the front of `bytes`; `None` if the bytes are no such value.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;

    /// Encodes all elements of an array. A trait method, so that arrays of bytes can be copied as a whole.
    #[doc(hidden)]
    #[inline]
    fn encode_all(values: &[Self], out: &mut Vec<u8>) {
        values.iter().for_each(|value| value.encode(out));
    }

    /// Decodes all elements of an array, as encoded by [`Key::encode_all`].
    #[doc(hidden)]
    #[inline]
    fn decode_all<const N: usize>(bytes: &mut &[u8]) -> Option<[Self; N]> {
        composite::all(std::array::from_fn(|_| Self::decode(bytes)))
    }
}

/// A value that can replace a [`Key`] in an argument of a statement ([`Key::Borrowed`]): every key itself, `str` and
/// `[u8]`. Other types can implement this if a key [borrows](Borrow) as the type and has the same encoding.
pub trait BorrowedKey {
    /// Appends the encoding of the corresponding key.
    fn encode_key(&self, out: &mut Vec<u8>);
}

impl<K: Key> BorrowedKey for K {
    #[inline]
    fn encode_key(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
}

impl BorrowedKey for str {
    fn encode_key(&self, out: &mut Vec<u8>) {
        self.as_bytes().encode_key(out);
    }
}

/// Bytes of any length: a zero byte is encoded as `00 FF`, the end as `00 00`, so that a prefix orders before longer
/// strings.
impl BorrowedKey for [u8] {
    fn encode_key(&self, out: &mut Vec<u8>) {
        put_bytes(self, out);
        out.extend_from_slice(&[0, 0]);
    }
}

/// Appends the encoding of bytes without the end.
fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xFF);
        }
    }
}

/// A value that can be a row.
pub trait Row: Sized {
    /// Name of the encoding. A table can be opened only with the codecs that it was created with.
    const CODEC: Codec;
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);
    /// Decodes a row; `None` if the bytes are no such row.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// Size of every encoding in bytes, if it is fixed. In another row, a part of fixed size has no length prefix. The
    /// size is part of the encoding: changing it requires a new version of the codec. Encoding a part of a row panics
    /// if its codec writes another size.
    const SIZE: Option<usize> = None;

    /// Encodes all elements of an array. A trait method, so that arrays of bytes can be copied as a whole.
    #[doc(hidden)]
    #[inline]
    fn encode_all(values: &[Self], out: &mut Vec<u8>) {
        values.iter().for_each(|value| composite::put_part(value, out));
    }

    /// Decodes all elements of an array, as encoded by [`Row::encode_all`].
    #[doc(hidden)]
    #[inline]
    fn decode_all<const N: usize>(mut bytes: &[u8]) -> Option<[Self; N]> {
        let all = composite::all(std::array::from_fn(|_| composite::take_part(&mut bytes)))?;
        bytes.is_empty().then_some(all)
    }
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(n)?;
    *bytes = tail;
    Some(head)
}

macro_rules! integers {
    ($($t:ty, $flip:expr;)*) => {$(
        impl Key for $t {
            const CODEC: Codec = Codec::built_in(stringify!($t));
            type Borrowed = $t;
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                // Big-endian bytes order like unsigned integers; flipping the sign bit makes signed integers do so too.
                out.extend_from_slice(&(*self ^ $flip).to_be_bytes());
            }
            #[inline]
            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                let head = take(bytes, size_of::<$t>())?;
                Some(<$t>::from_be_bytes(head.try_into().ok()?) ^ $flip)
            }
        }
        impl Row for $t {
            const CODEC: Codec = Codec::built_in(stringify!($t));
            const SIZE: Option<usize> = Some(size_of::<$t>());
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(<$t>::from_le_bytes(bytes.try_into().ok()?))
            }
        }
    )*};
}
/// Arrays of bytes are encoded and decoded by one copy of all bytes: see [`Key::encode_all`].
impl Key for u8 {
    const CODEC: Codec = Codec::built_in("u8");
    type Borrowed = u8;
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    #[inline]
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes, 1).map(|byte| byte[0])
    }
    #[inline]
    fn encode_all(values: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(values);
    }
    #[inline]
    fn decode_all<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
        take(bytes, N)?.try_into().ok()
    }
}

impl Row for u8 {
    const CODEC: Codec = Codec::built_in("u8");
    const SIZE: Option<usize> = Some(1);
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    #[inline]
    fn decode(bytes: &[u8]) -> Option<Self> {
        <[u8; 1]>::try_from(bytes).ok().map(|[byte]| byte)
    }
    #[inline]
    fn encode_all(values: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(values);
    }
    #[inline]
    fn decode_all<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
}

integers! {
    u16, 0; u32, 0; u64, 0; u128, 0;
    i8, i8::MIN; i16, i16::MIN; i32, i32::MIN; i64, i64::MIN; i128, i128::MIN;
}

impl Key for bool {
    const CODEC: Codec = Codec::built_in("bool");
    type Borrowed = bool;
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes, 1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl Row for bool {
    const CODEC: Codec = Codec::built_in("bool");
    const SIZE: Option<usize> = Some(1);
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl Key for () {
    const CODEC: Codec = Codec::tuple(&[]);
    type Borrowed = ();
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(_: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl Key for Vec<u8> {
    const CODEC: Codec = Codec::built_in("bytes");
    type Borrowed = [u8];
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_slice().encode_key(out);
    }
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let mut value = Vec::new();
        loop {
            match take(bytes, 1)?[0] {
                0 => match take(bytes, 1)?[0] {
                    0 => return Some(value),
                    0xFF => value.push(0),
                    _ => return None,
                },
                byte => value.push(byte),
            }
        }
    }
}

impl Key for String {
    const CODEC: Codec = Codec::built_in("str");
    type Borrowed = str;
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_str().encode_key(out);
    }
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        String::from_utf8(<Vec<u8> as Key>::decode(bytes)?).ok()
    }
}

impl Row for () {
    const CODEC: Codec = Codec::tuple(&[]);
    const SIZE: Option<usize> = Some(0);
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

impl Row for Vec<u8> {
    const CODEC: Codec = Codec::built_in("bytes");
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

impl Row for String {
    const CODEC: Codec = Codec::built_in("str");
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

/// Decodes a whole key.
pub(crate) fn key_from<K: Key>(mut bytes: &[u8]) -> Option<K> {
    let key = K::decode(&mut bytes)?;
    bytes.is_empty().then_some(key)
}
