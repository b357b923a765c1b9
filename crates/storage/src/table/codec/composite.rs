//! Codecs of composite values: tuples, arrays, options.
//!
//! The encodings of the parts of a key are concatenated: each encoding marks its own end and orders like the value. The
//! parts of a row are also concatenated. A part of variable size is preceded by its length in two bytes
//! (little-endian). A length of 65,535 or more is stored as 65,535 in two bytes, followed by the length in eight bytes.

use super::{Codec, Key, Row, take};

/// Two-byte length that marks that the length follows in eight bytes.
const LONG: u16 = u16::MAX;

/// Appends the encoding of one part of a row to `out`.
///
/// # Panics
/// If the part's codec declares a size and encodes to another one: the parts after it could not be decoded.
#[inline]
pub fn put_part<T: Row>(part: &T, out: &mut Vec<u8>) {
    let begin = out.len();
    if let Some(size) = T::SIZE {
        part.encode(out);
        check_size::<T>(out.len().wrapping_sub(begin), size);
        return;
    }
    out.extend_from_slice(&[0, 0]);
    part.encode(out);
    let len = out.len() - begin - 2;
    match u16::try_from(len) {
        Ok(len) if len < LONG => out[begin..begin + 2].copy_from_slice(&len.to_le_bytes()),
        _ => {
            let prefix = LONG.to_le_bytes().into_iter().chain((len as u64).to_le_bytes());
            out.splice(begin..begin + 2, prefix);
        }
    }
}

/// Checks that a codec encodes to its declared size.
///
/// # Panics
/// If the sizes differ.
#[inline]
pub(super) fn check_size<T: Row>(found: usize, promised: usize) {
    assert!(found == promised, "the codec {} promises {promised} bytes and has encoded to {found}", T::CODEC);
}

/// Decodes a part of a row and removes the part's bytes from the front of `bytes`; `None` if the bytes do not encode
/// such a part.
#[inline]
pub fn take_part<T: Row>(bytes: &mut &[u8]) -> Option<T> {
    let len = match T::SIZE {
        Some(size) => size,
        None => match u16::from_le_bytes(take(bytes, 2)?.try_into().ok()?) {
            LONG => usize::try_from(u64::from_le_bytes(take(bytes, 8)?.try_into().ok()?)).ok()?,
            len => usize::from(len),
        },
    };
    T::decode(take(bytes, len)?)
}

/// Returns the total size of all parts in bytes, if each has a fixed size.
pub const fn size_of_all(parts: &[Option<usize>]) -> Option<usize> {
    let (mut sum, mut i) = (0, 0);
    while i < parts.len() {
        match parts[i] {
            Some(size) => sum += size,
            None => return None,
        }
        i += 1;
    }
    Some(sum)
}

macro_rules! tuples {
    ($(($($t:ident $i:tt),+))*) => {$(
        impl<$($t: Key),+> Key for ($($t,)+) {
            const CODEC: Codec = Codec::tuple(&[$($t::CODEC),+]);
            type Borrowed = Self;
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$i.encode(out);)+
            }
            #[inline]
            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($t::decode(bytes)?,)+))
            }
        }
        impl<$($t: Row),+> Row for ($($t,)+) {
            const CODEC: Codec = Codec::tuple(&[$($t::CODEC),+]);
            const SIZE: Option<usize> = size_of_all(&[$($t::SIZE),+]);
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                $(put_part(&self.$i, out);)+
            }
            #[inline]
            fn decode(mut bytes: &[u8]) -> Option<Self> {
                let row = ($(take_part::<$t>(&mut bytes)?,)+);
                bytes.is_empty().then_some(row)
            }
        }
    )*};
}
tuples! {
    (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) (A 0, B 1, C 2, D 3, E 4) (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6) (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

/// `None` orders before every value.
impl<T: Key> Key for Option<T> {
    const CODEC: Codec = Codec::optional(&T::CODEC);
    type Borrowed = Self;
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes, 1)? {
            [0] => Some(None),
            [1] => T::decode(bytes).map(Some),
            _ => None,
        }
    }
}

impl<T: Row> Row for Option<T> {
    const CODEC: Codec = Codec::optional(&T::CODEC);
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (0, []) => Some(None),
            (1, value) => T::decode(value).map(Some),
            _ => None,
        }
    }
}

impl<T: Key, const N: usize> Key for [T; N] {
    const CODEC: Codec = Codec::array(&T::CODEC, N);
    type Borrowed = Self;
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode_all(self, out);
    }
    #[inline]
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        T::decode_all(bytes)
    }
}

impl<T: Row, const N: usize> Row for [T; N] {
    const CODEC: Codec = Codec::array(&T::CODEC, N);
    const SIZE: Option<usize> = match T::SIZE {
        Some(size) => Some(size * N),
        None => None,
    };
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode_all(self, out);
    }
    #[inline]
    fn decode(bytes: &[u8]) -> Option<Self> {
        T::decode_all(bytes)
    }
}

/// Returns all elements, or `None` if any element is `None`.
#[inline]
pub(crate) fn all<T, const N: usize>(parts: [Option<T>; N]) -> Option<[T; N]> {
    if parts.iter().any(Option::is_none) {
        return None;
    }
    Some(parts.map(|part| part.unwrap_or_else(|| unreachable!("looked at above"))))
}
