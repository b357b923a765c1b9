//! Codecs: keys as bytes that order like the values, rows as bytes of fixed layout.

pub(crate) mod name;

pub use name::Codec;

/// A value that can be a key, or part of one.
///
/// The encoding orders like the value: `a < b` exactly when the bytes of `a` come before the bytes of `b`, also when
/// other keys follow (tuples).
pub trait Key: Sized {
    /// What the encoding is called. A table can be opened only with the codecs that it was created with.
    const CODEC: Codec;
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);
    /// Takes the encoding off the front of `bytes`; `None` if it is not one.
    fn decode(bytes: &mut &[u8]) -> Option<Self>;
}

/// A value that can be a row.
pub trait Row: Sized {
    /// What the encoding is called. A table can be opened only with the codecs that it was created with.
    const CODEC: Codec;
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads the encoding; `None` if it is not one.
    fn decode(bytes: &[u8]) -> Option<Self>;
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
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                // Big-endian bytes order like unsigned numbers; flipping the sign bit makes signed ones do so too.
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
integers! {
    u8, 0; u16, 0; u32, 0; u64, 0; u128, 0;
    i8, i8::MIN; i16, i16::MIN; i32, i32::MIN; i64, i64::MIN; i128, i128::MIN;
}

impl Key for bool {
    const CODEC: Codec = Codec::built_in("bool");
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

impl Key for () {
    const CODEC: Codec = Codec::tuple(&[]);
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(_: &mut &[u8]) -> Option<Self> {
        Some(())
    }
}

impl<const N: usize> Key for [u8; N] {
    const CODEC: Codec = Codec::array(&<u8 as Key>::CODEC, N);
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes, N)?.try_into().ok()
    }
}

/// Bytes of any length: a zero is written as `00 FF`, the end as `00 00`, so that a shorter string comes first.
impl Key for Vec<u8> {
    const CODEC: Codec = Codec::built_in("bytes");
    fn encode(&self, out: &mut Vec<u8>) {
        for byte in self {
            out.push(*byte);
            if *byte == 0 {
                out.push(0xFF);
            }
        }
        out.extend_from_slice(&[0, 0]);
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
    fn encode(&self, out: &mut Vec<u8>) {
        for byte in self.bytes() {
            out.push(byte);
            if byte == 0 {
                out.push(0xFF);
            }
        }
        out.extend_from_slice(&[0, 0]);
    }
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        String::from_utf8(<Vec<u8> as Key>::decode(bytes)?).ok()
    }
}

macro_rules! tuples {
    ($(($($t:ident $i:tt),+))*) => {$(
        impl<$($t: Key),+> Key for ($($t,)+) {
            const CODEC: Codec = Codec::tuple(&[$($t::CODEC),+]);
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$i.encode(out);)+
            }
            #[inline]
            fn decode(bytes: &mut &[u8]) -> Option<Self> {
                Some(($($t::decode(bytes)?,)+))
            }
        }
    )*};
}
tuples! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) (A 0, B 1, C 2, D 3, E 4) (A 0, B 1, C 2, D 3, E 4, F 5) }

/// `None` comes before every value.
impl<T: Key> Key for Option<T> {
    const CODEC: Codec = Codec::optional(&T::CODEC);
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

impl Row for () {
    const CODEC: Codec = Codec::tuple(&[]);
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

impl<const N: usize> Row for [u8; N] {
    const CODEC: Codec = Codec::array(&<u8 as Row>::CODEC, N);
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes<K: Key>(key: &K) -> Vec<u8> {
        let mut out = Vec::new();
        key.encode(&mut out);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn bytes_order_like_values(
            a in (any::<i32>(), prop::collection::vec(0u8..3, 0..5), any::<u8>()),
            b in (any::<i32>(), prop::collection::vec(0u8..3, 0..5), any::<u8>()),
        ) {
            prop_assert_eq!(bytes(&a).cmp(&bytes(&b)), a.cmp(&b));
            prop_assert_eq!(key_from::<(i32, Vec<u8>, u8)>(&bytes(&a)), Some(a));
        }

        #[test]
        fn any_bytes_decode_or_do_not(raw in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = key_from::<(String, i64)>(&raw);
            if let Some(key) = key_from::<(Vec<u8>, bool)>(&raw) {
                prop_assert_eq!(bytes(&key), raw);
            }
        }
    }
}
