//! Tests of all codecs: order of encodings, round trips, and decoding of arbitrary bytes.

use proptest::prelude::*;

use super::*;

fn key_bytes<K: Key>(key: &K) -> Vec<u8> {
    let mut out = Vec::new();
    key.encode(&mut out);
    out
}

/// Returns the encoding of the borrowed form of a key.
fn borrowed_bytes<K: Key>(key: &K) -> Vec<u8> {
    let mut out = Vec::new();
    key.borrow().encode_key(&mut out);
    out
}

fn row_bytes<V: Row>(row: &V) -> Vec<u8> {
    let mut out = Vec::new();
    row.encode(&mut out);
    if let Some(size) = V::SIZE {
        assert_eq!(out.len(), size, "{}", V::CODEC);
    }
    out
}

/// Checks that the encodings of `a` and `b` order like the values and decode to them, alone and as the first part of a
/// larger key.
fn is_key<K: Key + Ord + Clone + std::fmt::Debug>(a: &K, b: &K) -> Result<(), TestCaseError> {
    prop_assert_eq!(key_bytes(a).cmp(&key_bytes(b)), a.cmp(b), "{:?} {:?}", a, b);
    prop_assert_eq!(key_from::<K>(&key_bytes(a)), Some(a.clone()));
    prop_assert_eq!(borrowed_bytes(a), key_bytes(a));
    let pairs = ((a.clone(), 1u8), (b.clone(), 0u8));
    prop_assert_eq!(key_bytes(&pairs.0).cmp(&key_bytes(&pairs.1)), pairs.0.cmp(&pairs.1));
    Ok(())
}

fn is_row<V: Row + PartialEq + Clone + std::fmt::Debug>(row: &V) -> Result<(), TestCaseError> {
    prop_assert_eq!(V::decode(&row_bytes(row)), Some(row.clone()));
    let parts = (row.clone(), 7u16, row.clone());
    prop_assert_eq!(<(V, u16, V) as Row>::decode(&row_bytes(&parts)), Some(parts));
    Ok(())
}

/// Checks that arbitrary bytes either do not decode, or decode to a value that encodes to the same bytes.
fn takes_any_bytes<T: Key + Row>(bytes: &[u8]) -> Result<(), TestCaseError> {
    if let Some(key) = key_from::<T>(bytes) {
        prop_assert_eq!(key_bytes(&key), bytes);
    }
    if let Some(row) = <T as Row>::decode(bytes) {
        prop_assert_eq!(row_bytes(&row), bytes);
    }
    Ok(())
}

crate::record! {
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Sample: Key + Row("sample", 3) { low: i16, text: String, there: Option<[u8; 2]> }
}

crate::record! {
    #[derive(Clone, Debug, PartialEq)]
    struct Empty: Row("empty", 1) {}
}

/// Returns a strategy for strings of few different characters, so that common prefixes and zeros are frequent.
fn text() -> impl Strategy<Value = String> {
    "[\u{0}\u{1}a\u{e4}]{0,5}"
}

fn sample() -> impl Strategy<Value = Sample> {
    (any::<i16>(), text(), any::<Option<[u8; 2]>>()).prop_map(|(low, text, there)| Sample { low, text, there })
}

macro_rules! all_codecs {
    ($($test:ident: $t:ty, $values:expr;)*) => {$(
        proptest! {
            #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..Default::default() })]
            #[test]
            fn $test(a in $values, b in $values, raw in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xFF), any::<u8>()], 0..24)) {
                is_key::<$t>(&a, &b)?;
                is_row::<$t>(&a)?;
                is_row::<Option<$t>>(&Some(a.clone()))?;
                is_row::<Option<$t>>(&None)?;
                is_row::<[$t; 2]>(&[a.clone(), b])?;
                takes_any_bytes::<$t>(&raw)?;
                let mut damaged = row_bytes(&a);
                damaged.truncate(raw.len());
                takes_any_bytes::<$t>(&damaged)?;
            }
        }
    )*};
}

all_codecs! {
    unsigned: (u8, u16, u32, u64, u128), any::<(u8, u16, u32, u64, u128)>();
    signed: (i8, i16, i32, i64, i128), any::<(i8, i16, i32, i64, i128)>();
    small_signed: i64, -3..3i64;
    booleans: (bool, [bool; 3]), any::<(bool, [bool; 3])>();
    strings: String, text();
    bytes: Vec<u8>, prop::collection::vec(0u8..3, 0..5);
    options: (Option<u8>, Option<Option<i32>>), any::<(Option<u8>, Option<Option<i32>>)>();
    optional_strings: (Option<String>, String), (prop::option::of(text()), text());
    arrays: ([u8; 5], [i16; 3], [u8; 0]), any::<([u8; 5], [i16; 3], [u8; 0])>();
    nested: (String, (i32, (bool, String)), [String; 2]),
        (text(), (any::<i32>(), (any::<bool>(), text())), [text(), text()]);
    records: Sample, sample();
    records_in_tuples: (Sample, u8), (sample(), any::<u8>());
    units: ((), u8), any::<((), u8)>();
}

#[test]
fn records_tell_their_fields() {
    assert_eq!(<Sample as Key>::CODEC.text(), "sample(i16,str,option<[u8;2]>)@3");
    assert_eq!((Empty::CODEC.text().as_str(), Empty::SIZE), ("empty()@1", Some(0)));
    assert_eq!(<(u64, [i16; 3], bool) as Row>::SIZE, Some(15));
    assert_eq!(<(u64, String) as Row>::SIZE, None);
    // Encodings are part of the file format.
    assert_eq!(row_bytes(&(1u16, "a".to_owned(), true)), [1, 0, 1, 0, b'a', 1]);
    assert_eq!(row_bytes(&Some(2u8)), [1, 2]);
    assert_eq!(key_bytes(&(Some(-1i8), "a\0".to_owned(), [1u16, 2])), [1, 0x7F, b'a', 0, 0xFF, 0, 0, 0, 1, 0, 2]);
}
