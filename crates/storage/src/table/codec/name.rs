//! Names of encodings. They identify the codecs with which the tables of a database were written.

use std::fmt::{Display, Formatter, Write};

/// The identity of an encoding: a name, a version, and the codecs of its parts.
///
/// The catalog stores its text ([`Display`]) for the key, the row and each index of every table. A table is not opened
/// with codecs of another text ([`TxnError::OtherCodec`](crate::TxnError::OtherCodec)). So the name identifies a byte
/// layout, not a Rust type: two types with the same encoding may share the name, and a type whose encoding changes
/// needs a new version.
///
/// ```
/// use storage::{Codec, Key, Row};
///
/// /// Cents in descending order.
/// struct Descending(u64);
/// impl Key for Descending {
///     const CODEC: Codec = Codec::new("cents-descending", 1);
///     type Borrowed = Self;
///     fn encode(&self, out: &mut Vec<u8>) {
///         out.extend_from_slice(&(!self.0).to_be_bytes());
///     }
///     fn decode(bytes: &mut &[u8]) -> Option<Descending> {
///         <u64 as Key>::decode(bytes).map(|n| Descending(!n))
///     }
/// }
/// assert_eq!(Descending::CODEC.to_string(), "cents-descending@1");
/// assert_eq!(<(u64, String) as Key>::CODEC.to_string(), "(u64,str)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec {
    name: &'static str,
    /// Version of the codec; 0 for the codecs of this crate, which never change.
    version: u32,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Plain,
    Tuple(&'static [Codec]),
    Optional(&'static Codec),
    Array(&'static Codec, usize),
}

/// Maximum length of a codec's text in the catalog, in bytes. A longer text is truncated and ends with a hash of the
/// complete text.
const MAX_TEXT: usize = 200;

/// Codec text of tables that were created for statements on bytes only.
pub(crate) const RAW: &str = "raw";

impl Codec {
    /// Declares the name and version of your own encoding.
    ///
    /// # Panics
    /// (At compile time, in a constant.) If the name is empty, longer than 64 bytes, or has other characters than ASCII
    /// letters, digits, `-`, `_`, `.` and `:`.
    pub const fn new(name: &'static str, version: u32) -> Codec {
        Codec::plain(name, version)
    }

    const fn plain(name: &'static str, version: u32) -> Codec {
        let bytes = name.as_bytes();
        assert!(!bytes.is_empty() && bytes.len() <= 64, "a codec's name has 1 to 64 bytes");
        let mut i = 0;
        while i < bytes.len() {
            let fits = bytes[i].is_ascii_alphanumeric() || matches!(bytes[i], b'-' | b'_' | b'.' | b':');
            assert!(fits, "a codec's name has ASCII letters, digits, '-', '_', '.' and ':'");
            i += 1;
        }
        Codec { name, version, shape: Shape::Plain }
    }

    /// Declares the name of a codec of this crate, with version 0.
    pub(crate) const fn built_in(name: &'static str) -> Codec {
        Codec { name, version: 0, shape: Shape::Plain }
    }

    /// Declares the codec of a concatenation of parts.
    pub(crate) const fn tuple(parts: &'static [Codec]) -> Codec {
        Codec { name: "", version: 0, shape: Shape::Tuple(parts) }
    }

    /// Declares the codec of a record: its fields, with a name and a version.
    #[doc(hidden)]
    pub const fn record(name: &'static str, version: u32, fields: &'static [Codec]) -> Codec {
        Codec { shape: Shape::Tuple(fields), ..Codec::plain(name, version) }
    }

    /// Declares the codec of an optional value.
    pub(crate) const fn optional(of: &'static Codec) -> Codec {
        Codec { name: "option", version: 0, shape: Shape::Optional(of) }
    }

    /// Declares the codec of an array of `len` values of one codec.
    pub(crate) const fn array(of: &'static Codec, len: usize) -> Codec {
        Codec { name: "", version: 0, shape: Shape::Array(of, len) }
    }

    /// Returns the text of the codec that the catalog stores.
    pub(crate) fn text(&self) -> String {
        let mut text = self.to_string();
        if text.len() > MAX_TEXT {
            let hash = fnv(text.as_bytes());
            // Truncation is safe: all characters are ASCII.
            text.truncate(MAX_TEXT - 17);
            let _ = write!(text, "#{hash:016x}");
        }
        text
    }

    /// Returns true if two codecs are equal, without an allocation. Constants of one type often have the same address.
    #[inline]
    pub(crate) fn is(self: &'static Codec, other: &'static Codec) -> bool {
        std::ptr::eq(self, other) || *self == *other
    }
}

/// Returns the FNV-1a hash of `bytes`. The hash function is part of the file format, so it is implemented here.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Display for Codec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)?;
        match self.shape {
            Shape::Plain => {}
            Shape::Tuple(parts) => {
                for (i, part) in parts.iter().enumerate() {
                    write!(f, "{}{part}", if i == 0 { '(' } else { ',' })?;
                }
                f.write_str(if parts.is_empty() { "()" } else { ")" })?;
            }
            Shape::Optional(of) => write!(f, "<{of}>")?,
            Shape::Array(of, len) => write!(f, "[{of};{len}]")?,
        }
        match self.version {
            0 => Ok(()),
            version => write!(f, "@{version}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U64: Codec = Codec::built_in("u64");
    const STR: Codec = Codec::built_in("str");
    const ONE: Codec = Codec::tuple(&[U64]);
    const PAIR: Codec = Codec::array(&U64, 2);

    #[test]
    fn texts_say_what_is_composed_of_what() {
        const ALL: [Codec; 6] = [
            Codec::tuple(&[U64, STR]),
            Codec::tuple(&[ONE, Codec::optional(&STR)]),
            Codec::array(&PAIR, 3),
            Codec::record("account", 2, &[STR, U64]),
            Codec::new("my.own", 7),
            Codec::record("nothing", 1, &[]),
        ];
        assert_eq!(
            ALL.map(|codec| codec.text()),
            ["(u64,str)", "((u64),option<str>)", "[[u64;2];3]", "account(str,u64)@2", "my.own@7", "nothing()@1"]
        );
    }

    #[test]
    fn long_texts_stay_apart_and_fit_the_catalog() {
        const MANY: [Codec; 100] = [U64; 100];
        const OTHER: [Codec; 101] = [U64; 101];
        let (a, b) = (Codec::tuple(&MANY).text(), Codec::tuple(&OTHER).text());
        assert!(a != b && a.len() == MAX_TEXT && b.len() == MAX_TEXT && a.is_ascii());
    }
}
