//! Entry points of the fuzzer for decoders of on-disk data. Each takes arbitrary bytes and panics if a property is
//! violated.

use crate::base::ids::{IndexId, Lsn, PAGE_SIZE, PageId};
use crate::btree::ops::{self, PageChange, PageChanges};
use crate::log::decode_record;
use crate::page::header::Kind;
use crate::page::layout::RECORD_HEAD;
use crate::page::slotted::Format;
use crate::page::sound::find_defect;
use crate::page::{PageBytes, PageMut, PageRef, header};
use crate::recovery::checkpoint::CheckpointBody;
use crate::table::codec::{Key, Row, key_from};

/// Returns a page that begins with `bytes`, padded with zeros. The header in `bytes` contains the page number.
fn page_of(bytes: &[u8]) -> Box<PageBytes> {
    let mut page = PageBytes::boxed();
    let n = bytes.len().min(PAGE_SIZE);
    page.as_bytes_mut()[..n].copy_from_slice(&bytes[..n]);
    page
}

/// Searches arbitrary bytes as a page. If the page passes the consistency check, rows are also replaced, inserted and
/// removed, and the page must stay consistent.
pub fn page(bytes: &[u8]) {
    let mut page = page_of(bytes);
    let id = PageRef::of(&page).id();
    let keys: [&[u8]; 5] = [b"", b"\0", b"some key", &[0xFF; 40], bytes.get(200..260).unwrap_or_default()];
    for key in keys {
        let p = PageRef::of(&page);
        let (at, _) = p.lower_bound(key);
        assert!(at <= p.count());
        let _ = (p.child_position(key), p.child(at), p.covers(key), p.key(at.min(700)), p.low_fence(), p.high_fence());
    }
    let _ = header::damage(page.as_bytes(), id, true);
    if find_defect(page.as_bytes(), id).is_some() {
        return;
    }
    let p = PageRef::of(&page);
    if !matches!(p.kind(), Some(Kind::Leaf | Kind::Inner)) {
        return;
    }
    for i in 0..p.count() {
        assert_eq!(p.lower_bound(&p.key(i)), (i, true), "a key is found where it is");
        assert!(p.covers(&p.key(i)));
    }
    if p.kind() != Some(Kind::Leaf) {
        return;
    }
    for (i, key) in keys.into_iter().enumerate() {
        let p = PageRef::of(&page);
        let (at, there) = p.lower_bound(key);
        let row = vec![i as u8; 37 * i];
        if !p.covers(key) {
            continue;
        }
        if there
            && (row.len() <= p.slot(at).value_len || p.free_bytes() >= row.len() - p.slot(at).value_len + RECORD_HEAD)
        {
            ops::replace(&mut PageMut::of(&mut page), at, (&row, u16::from(i % 2 == 0)));
        } else if !there && p.has_room(key.len(), row.len()) {
            PageMut::of(&mut page).insert(at, key, 0, &row, 0);
        }
        assert_eq!(find_defect(page.as_bytes(), id), None, "a sound page stays sound");
    }
    while PageRef::of(&page).count() > 0 {
        let middle = PageRef::of(&page).count() / 2;
        PageMut::of(&mut page).remove(middle);
        assert_eq!(find_defect(page.as_bytes(), id), None, "a sound page stays sound");
    }
}

/// Decodes arbitrary bytes as the body of a log record, and also as a complete log record if the first byte is even.
/// Sections of a body are applied to a page only if they fit the page.
pub fn log_record(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    if how % 2 == 0
        && let Some(record) = decode_record(bytes, Lsn(4096))
    {
        sections(record.body);
    }
    sections(bytes);
    let _ = CheckpointBody::decode(bytes, Lsn(4096));
}

fn sections(body: &[u8]) {
    let mut page = PageBytes::boxed();
    PageMut::of(&mut page).format(&Format {
        id: PageId(7),
        index: IndexId(2),
        level: 0,
        low: Some(b"a"),
        high: None,
        right: PageId::NONE,
        upper: PageId::NONE,
    });
    for section in PageChanges::new(body) {
        let whole = matches!(section, PageChange::Image { .. } | PageChange::Free { .. });
        if !whole && !ops::fits(&section, PageRef::of(&page)) || matches!(section, PageChange::Space { .. }) {
            continue;
        }
        let before = page.clone();
        let done = ops::apply(&section, &mut PageMut::of(&mut page));
        let id = PageRef::of(&page).id();
        match find_defect(page.as_bytes(), id) {
            None => assert!(done, "what fits can be done: {section:?}"),
            // An image may hold any page; redo checks the result.
            Some(_) if whole => page = before,
            Some(flaw) => panic!("{section:?} broke a sound page: {flaw}"),
        }
    }
}

/// Decodes arbitrary bytes as a key. A decoded key must encode to the same bytes, and encodings must order like the
/// values.
pub fn key_codec(bytes: &[u8]) {
    fn one<K: Key>(bytes: &[u8]) {
        if let Some(key) = key_from::<K>(bytes) {
            let mut again = Vec::new();
            key.encode(&mut again);
            assert_eq!(again, bytes, "a key has one encoding");
        }
    }
    one::<u64>(bytes);
    one::<(i32, bool)>(bytes);
    one::<String>(bytes);
    one::<(Vec<u8>, u16)>(bytes);
    one::<(String, Vec<u8>, [u8; 3])>(bytes);
    one::<(Option<i64>, [String; 2], [i16; 2])>(bytes);
    fn row<V: Row>(bytes: &[u8]) {
        if let Some(row) = V::decode(bytes) {
            let mut again = Vec::new();
            row.encode(&mut again);
            assert_eq!(again, bytes, "a row has one encoding");
        }
    }
    row::<(u16, String, Option<(bool, [i32; 2])>)>(bytes);
    row::<[(u8, Vec<u8>); 2]>(bytes);
    let (a, b) = bytes.split_at(bytes.len() / 2);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    Key::encode(&a.to_vec(), &mut x);
    Key::encode(&b.to_vec(), &mut y);
    assert_eq!(x.cmp(&y), a.cmp(b), "encodings order like the values");
    assert_eq!(key_from::<Vec<u8>>(&x).as_deref(), Some(a));
}
