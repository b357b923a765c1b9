//! Prefixes of keys: the first parts of a tuple, the first bytes of a text.

use super::{Key, put_bytes};

/// A value with which keys of type `K` begin: the first parts of a tuple, or the first bytes of a text. See
/// [`Transaction::prefix`](crate::Transaction::prefix).
pub trait KeyPrefix<K: Key> {
    /// Appends bytes with which the encoding of a key begins if, and only if, the key begins with this value.
    fn encode_prefix(&self, out: &mut Vec<u8>);
}

/// The first bytes of a text, which need not end at the end of a word.
impl KeyPrefix<String> for str {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }
}

impl KeyPrefix<Vec<u8>> for [u8] {
    fn encode_prefix(&self, out: &mut Vec<u8>) {
        put_bytes(self, out);
    }
}

/// Implements [`KeyPrefix`] for the tuple of the parts before `;`, and for each longer tuple that still leaves out parts.
macro_rules! prefixes {
    ($($t:ident $i:tt),+;) => {};
    ($($t:ident $i:tt),+; $next:ident $n:tt $(, $rest:ident $r:tt)*) => {
        impl<$($t: Key,)+ $next: Key $(, $rest: Key)*> KeyPrefix<($($t,)+ $next, $($rest,)*)> for ($($t,)+) {
            fn encode_prefix(&self, out: &mut Vec<u8>) {
                $(self.$i.encode(out);)+
            }
        }
        prefixes! { $($t $i,)+ $next $n; $($rest $r),* }
    };
}
prefixes! { A 0; B 1 }
prefixes! { A 0; B 1, C 2 }
prefixes! { A 0; B 1, C 2, D 3 }
prefixes! { A 0; B 1, C 2, D 3, E 4 }
prefixes! { A 0; B 1, C 2, D 3, E 4, F 5 }
prefixes! { A 0; B 1, C 2, D 3, E 4, F 5, G 6 }
prefixes! { A 0; B 1, C 2, D 3, E 4, F 5, G 6, H 7 }

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix<K: Key>(prefix: &(impl KeyPrefix<K> + ?Sized)) -> Vec<u8> {
        let mut bytes = Vec::new();
        prefix.encode_prefix(&mut bytes);
        bytes
    }

    fn begins<K: Key>(key: &K, with: &(impl KeyPrefix<K> + ?Sized)) -> bool {
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        bytes.starts_with(&prefix::<K>(with))
    }

    #[test]
    fn texts_begin_with_their_first_bytes() {
        let texts = ["", "a", "ab", "a\0", "a\0b", "b", "\0", "\0\0"];
        for text in texts {
            for first in texts {
                assert_eq!(begins(&text.to_owned(), first), text.starts_with(first), "{text:?} {first:?}");
                let (text, first) = (text.as_bytes(), first.as_bytes());
                assert_eq!(begins(&text.to_vec(), first), text.starts_with(first));
            }
        }
    }

    #[test]
    fn tuples_begin_with_their_first_parts() {
        let key = (7_u32, "ab".to_owned(), -3_i64);
        assert!(begins(&key, &(7_u32,)) && begins(&key, &(7_u32, "ab".to_owned())));
        assert!(!begins(&key, &(8_u32,)) && !begins(&key, &(7_u32, "a".to_owned())));
    }
}
