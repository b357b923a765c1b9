//! Text columns with a declared maximum width.

use std::fmt;

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `vtext(N)`, N at most 255: a length byte, then N bytes. Bytes past the length are zero.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Text<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// The empty text.
    pub const EMPTY: Self = Text { len: 0, bytes: [0; N] };

    /// Creates a text from the first N bytes of `text`.
    pub fn new(text: &[u8]) -> Self {
        let mut new = Self::EMPTY;
        let len = text.len().min(N);
        new.bytes[..len].copy_from_slice(&text[..len]);
        new.len = len as u8;
        new
    }

    /// Creates a text of `len` characters (at most N) that `fill` writes.
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut new = Self::EMPTY;
        let len = len.min(N);
        fill(&mut new.bytes[..len]);
        new.len = len as u8;
        new
    }

    /// Returns the characters. A damaged length is limited to the width.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len).min(N)]
    }

    /// Returns the characters, padded with zeros. Padded texts sort in the same order as the texts, because no character is
    /// zero.
    pub fn padded(&self) -> [u8; N] {
        self.bytes
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.as_bytes()), f)
    }
}

/// `vtext(500)`: C_DATA.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LongText {
    len: U16,
    bytes: [u8; LongText::WIDTH],
}

impl LongText {
    /// Declared width in characters.
    pub const WIDTH: usize = 500;

    /// Creates a text of `len` characters (at most [`Self::WIDTH`]) that `fill` writes.
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let len = len.min(Self::WIDTH);
        let mut bytes = [0; Self::WIDTH];
        fill(&mut bytes[..len]);
        LongText { len: U16::new(len as u16), bytes }
    }

    /// Returns the characters. A damaged length is limited to the width.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len.get()).min(Self::WIDTH)]
    }

    /// Inserts `front` at the beginning of the text and truncates the result to the declared width.
    pub fn prepend(&mut self, front: &[u8]) {
        let front = &front[..front.len().min(Self::WIDTH)];
        let old = self.as_bytes().len().min(Self::WIDTH - front.len());
        self.bytes.copy_within(..old, front.len());
        self.bytes[..front.len()].copy_from_slice(front);
        self.len = U16::new((front.len() + old) as u16);
    }
}

impl fmt::Debug for LongText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.as_bytes()), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepending_shifts_and_cuts() {
        let mut text = LongText::filled(498, |b| b.fill(b'x'));
        text.prepend(b"abc ");
        assert_eq!(text.as_bytes().len(), 500);
        assert!(text.as_bytes().starts_with(b"abc xxx"));
        let mut short = LongText::filled(2, |b| b.fill(b'y'));
        short.prepend(b"z");
        assert_eq!(short.as_bytes(), b"zyy");
    }

    #[test]
    fn padded_order_is_text_order() {
        let (a, b, c) = (Text::<4>::new(b"AB"), Text::<4>::new(b"ABA"), Text::<4>::new(b"AC"));
        assert!(a.padded() < b.padded() && b.padded() < c.padded());
    }
}
