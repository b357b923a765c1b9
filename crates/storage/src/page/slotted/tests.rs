use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::access::{PageBytes, PageMut, PageRef};
use super::super::header::*;
use super::*;
use crate::base::ids::{IndexId, PAGE_SIZE, PageId};

fn page(low: Option<&[u8]>, high: Option<&[u8]>) -> Box<PageBytes> {
    let mut bytes = PageBytes::boxed();
    PageMut::of(&mut bytes).format(&Format {
        id: PageId(7),
        index: IndexId(1),
        level: 0,
        low,
        high,
        right: PageId::NONE,
        upper: PageId::NONE,
    });
    bytes
}

#[test]
fn a_head_is_the_first_four_bytes_padded_with_zeros() {
    for len in 0..12 {
        let key: Vec<u8> = (0..len).map(|i| 0xF1 - 7 * i as u8).collect();
        for prefix in 0..16 {
            let mut head = [0; 4];
            head.iter_mut().zip(key.iter().skip(prefix)).for_each(|(to, from)| *to = *from);
            assert_eq!(head_of(&key, prefix), u32::from_be_bytes(head), "{len} bytes, {prefix} left out");
        }
    }
}

fn check(page: PageRef<'_>, model: &BTreeMap<Vec<u8>, (Vec<u8>, bool)>) {
    assert_eq!(page.count(), model.len());
    assert_eq!(page.ghosts(), model.values().filter(|v| v.1).count());
    let mut used = usize::from(page.u16(LOW_LEN)) + usize::from(page.u16(HIGH_LEN));
    for (i, (key, (value, ghost))) in model.iter().enumerate() {
        assert_eq!(&page.key(i), key);
        let mut found = Vec::new();
        assert!(page.append_value(page.slot(i), &mut found));
        assert_eq!(&found, value);
        assert_eq!(page.slot(i).is_ghost(), *ghost);
        assert_eq!(page.lower_bound(key), (i, true), "key {key:?}");
        let mut after = key.clone();
        after.push(0);
        assert_eq!(page.lower_bound(&after), (i + 1, model.contains_key(&after)));
        if page.is_leaf() {
            assert_eq!(page.find_at(page.place_in_leaf(key), key), Some(i), "key {key:?} by the header");
            let found = page.find_at(page.place_in_leaf(&after), &after);
            assert_eq!(found, model.contains_key(&after).then_some(i + 1));
        }
        used += SLOT + page.slot(i).record_len();
    }
    assert_eq!(page.used_bytes(), used);
    let mut copy = [0; PAGE_SIZE];
    assert!(page.copy_to(0, &mut copy));
    assert_eq!(crate::page::sound::find_defect(&copy, PageId(7)), None);
}

#[derive(Debug, Clone)]
enum Op {
    Insert(Vec<u8>, usize),
    Remove(usize),
    Resize(usize, usize),
    Ghost(usize, bool),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (prop::collection::vec(0u8..4, 0..9), 0usize..300).prop_map(|(k, v)| Op::Insert(k, v)),
        2 => any::<usize>().prop_map(Op::Remove),
        2 => (any::<usize>(), 0usize..600).prop_map(|(i, n)| Op::Resize(i, n)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(i, g)| Op::Ghost(i, g)),
    ];
    prop::collection::vec(op, 0..if cfg!(miri) { 20 } else { 200 })
}

/// Case: keys like names. Hundreds of keys have few distinct heads, and lengths near the sizes of the words that are
/// compared.
#[test]
fn keys_with_equal_heads_are_found_among_each_other() {
    let tail = |n: u16| [&b"-abcdefgh"[..usize::from(n % 10)], &n.to_be_bytes()].concat();
    let mut keys: Vec<Vec<u8>> = (0..if cfg!(miri) { 40 } else { 260 })
        .map(|n| [&[b"BARB", b"BARC", b"\xff\xff\xff\xff"][usize::from(n % 7 / 3)][..], &tail(n)].concat())
        .chain([b"BAR".to_vec(), b"BARB".to_vec(), b"BAR\0".to_vec()])
        .collect();
    keys.sort();
    let mut bytes = page(None, None);
    let mut page = PageMut::of(&mut bytes);
    // Every second key is on the page.
    let there: Vec<&Vec<u8>> = keys.iter().step_by(2).collect();
    for (at, key) in there.iter().enumerate() {
        page.insert(at, key, 0, b"", 0);
    }
    let near = |key: &Vec<u8>| [key.clone(), key[..key.len() - 1].to_vec(), [&key[..], b"\0"].concat()];
    for key in keys.iter().flat_map(near) {
        let expected = match there.binary_search(&&key) {
            Ok(at) => (at, true),
            Err(at) => (at, false),
        };
        assert_eq!(page.read().lower_bound(&key), expected, "{key:?}");
    }
}

/// Precondition of remembered positions: exactly one slot has a given key, and exactly one gap fits a missing key.
#[test]
fn a_slot_is_that_of_its_whole_key_alone() {
    let rests: Vec<&[u8]> =
        vec![b"", b"a", b"ab", b"abc", b"abcd", b"abcde", b"abcdefg", b"abcdefgh", b"abcdefghi", b"abcdefghijklmnop"];
    // Prefixes of 2 bytes, of the maximum length that the header can contain, and of greater length.
    let commons: [&[u8]; 4] = [b"", b"common", b"common!", b"much that is common"];
    let inner = commons.map(|common| (true, common, [b"k-l".as_slice(), b"k-k"]));
    for (is_fenced, common, leads) in [(false, b"".as_slice(), [b"".as_slice(), b"k-"])].into_iter().chain(inner) {
        let (low, high) = ([common, b"k-k"].concat(), [common, b"k-m"].concat());
        let fences = if is_fenced { (Some(&low[..]), Some(&high[..])) } else { (None, None) };
        let keys = |leads: &[&[u8]]| -> BTreeSet<Vec<u8>> {
            leads.iter().flat_map(|lead| rests.iter().map(move |rest| [common, *lead, *rest].concat())).collect()
        };
        let there: Vec<Vec<u8>> = keys(&leads).into_iter().step_by(2).collect();
        let mut bytes = page(fences.0, fences.1);
        for (at, key) in there.iter().enumerate() {
            PageMut::of(&mut bytes).insert(at, key, 0, b"row", 0);
        }
        let page = PageRef::of(&bytes);
        assert_eq!(page.prefix_len(), if is_fenced { common.len() + 2 } else { 0 });
        for (i, key) in there.iter().enumerate() {
            assert_eq!((page.key(i), page.lower_bound(key)), (key.clone(), (i, true)));
        }
        // Keys that differ in one byte, and keys whose rest is on the page after another prefix.
        let others = keys(&[b"", b"k-", b"k-l", b"k-k", b"k-j", b"k-m", b"j-l", b"k+l", b"k"]);
        let changed = others.iter().flat_map(|key| {
            (0..key.len()).map(|at| {
                let mut key = key.clone();
                key[at] ^= 1;
                key
            })
        });
        let step = if cfg!(miri) { 97 } else { 1 };
        for key in others.iter().cloned().chain(changed).step_by(step) {
            let lies_here = fences.0.is_none_or(|low| low <= &key[..]) && fences.1.is_none_or(|high| &key[..] < high);
            let expected = there.binary_search(&key);
            for i in 0..there.len() + 2 {
                assert_eq!(page.has_key(i, &key), expected == Ok(i), "slot {i}, {key:?}");
                assert_eq!(page.lacks_key(i, &key), lies_here && expected == Err(i), "slot {i}, {key:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, failure_persistence: None, ..Default::default() })]
    #[test]
    fn behaves_like_a_sorted_map(ops in ops(), fenced in any::<bool>()) {
        let (low, high): (Option<&[u8]>, Option<&[u8]>) = if fenced { (Some(b"ab"), Some(b"abz")) } else { (None, None) };
        let mut bytes = page(low, high);
        let mut model: BTreeMap<Vec<u8>, (Vec<u8>, bool)> = BTreeMap::new();
        for (n, op) in ops.into_iter().enumerate() {
            let mut p = PageMut::of(&mut bytes);
            let nth = |model: &BTreeMap<Vec<u8>, (Vec<u8>, bool)>, i: usize| (!model.is_empty()).then(|| {
                let i = i % model.len();
                (i, model.keys().nth(i).cloned().unwrap())
            });
            match op {
                Op::Insert(rest, len) => {
                    let key = if fenced { [b"ab".as_slice(), &rest].concat() } else { rest };
                    let (at, found) = p.read().lower_bound(&key);
                    prop_assert_eq!(found, model.contains_key(&key));
                    for i in at.saturating_sub(1)..at + 2 {
                        let is_gap = i == at && !found && p.read().covers(&key);
                        prop_assert_eq!(p.read().has_key_at(i, &key), i == at && found, "slot {}", i);
                        prop_assert_eq!(p.read().is_gap_at(i, &key), is_gap, "slot {}", i);
                    }
                    if !found && p.read().has_room(key.len(), len) {
                        let value = vec![n as u8; len];
                        p.insert(at, &key, n as u32, &value, 0);
                        p.note_insert(at);
                        model.insert(key, (value, false));
                    }
                }
                Op::Remove(i) => if let Some((i, key)) = nth(&model, i) {
                    p.remove(i);
                    model.remove(&key);
                },
                Op::Resize(i, len) => if let Some((i, key)) = nth(&model, i) {
                    let slot = p.read().slot(i);
                    if len <= slot.value_len || p.read().free_bytes() >= len - slot.value_len + RECORD_HEAD {
                        let value = vec![n as u8; len];
                        p.set_value(i, &value);
                        model.get_mut(&key).unwrap().0 = value;
                    }
                },
                Op::Ghost(i, ghost) => if let Some((i, key)) = nth(&model, i) {
                    p.set_ghost(i, ghost);
                    model.get_mut(&key).unwrap().1 = ghost;
                },
            }
            check(p.read(), &model);
        }
    }
}

/// Case: a page at the edge of its tree takes the records of two pages. The keys of the first page share bytes, and the keys
/// of the second page do not.
#[test]
fn records_of_two_pages_are_found_on_one() {
    let mut model = BTreeMap::new();
    let mut halves = [page(None, Some(b"b")), page(Some(b"b"), None)];
    for (half, start) in halves.iter_mut().zip([b"aaaa", b"bcde"]) {
        for i in 0..20u8 {
            let key = [start.as_slice(), &[i]].concat();
            PageMut::of(half).insert(usize::from(i), &key, 0, &[i], 0);
            model.insert(key, (vec![i], false));
        }
    }
    let mut both = page(None, None);
    let mut to = PageMut::of(&mut both);
    for half in &halves {
        to.append_all(PageRef::of(half), 0..20);
    }
    check(to.read(), &model);
}

/// Case: keys that are numbers without holes, with some holes, and with many, in one to four bytes after the page's prefix.
#[test]
fn numbers_are_found_by_the_header_with_and_without_holes() {
    let kept: [&dyn Fn(u32) -> bool; 4] = [&|_| true, &|n| n % 37 != 5, &|n| n % 2 == 0, &|n| n < 3];
    let starts: &[u32] = if cfg!(miri) { &[200] } else { &[0, 200, 65_500, 0x00FF_FF80, 0xFFFF_FF00] };
    let span = if cfg!(miri) { 60 } else { 255 };
    for (is_kept, start) in kept.iter().flat_map(|kept| starts.iter().map(move |start| (kept, *start))) {
        let numbers: Vec<u32> = (start..=start.saturating_add(span)).filter(|n| is_kept(n - start)).collect();
        let key = |n: u32| [b"prefix".as_slice(), &n.to_be_bytes()].concat();
        for high in [key(numbers[numbers.len() - 1]), b"prefiy".to_vec()] {
            let (low, high) = (key(start), [&high[..], b"\0"].concat());
            let mut bytes = page(Some(&low), Some(&high));
            let mut model = BTreeMap::new();
            for (at, n) in numbers.iter().enumerate() {
                PageMut::of(&mut bytes).insert(at, &key(*n), 0, b"row", 0);
                model.insert(key(*n), (b"row".to_vec(), false));
            }
            let page = PageRef::of(&bytes);
            check(page, &model);
            for n in (start..=start.saturating_add(span)).filter(|n| !is_kept(n - start)) {
                assert_eq!(page.find_at(page.place_in_leaf(&key(n)), &key(n)), None, "{n} is missing");
            }
        }
    }
}

/// Several rows inserted together, before, between and after others, are placed as if they had been inserted one by one.
#[test]
fn rows_come_together_as_they_do_one_by_one() {
    let key = |n: u32| [b"a".as_slice(), &n.to_be_bytes()].concat();
    // Under Miri fewer combinations, because each of them takes seconds.
    let some = |all: &'static [u32]| &all[..if cfg!(miri) { 2 } else { all.len() }];
    for (before, behind, n) in some(&[0, 3, 1, 14, 70]).iter().flat_map(|before| {
        some(&[0, 2, 1, 60])
            .iter()
            .flat_map(move |behind| some(&[1, 5, 2, 16, 50]).iter().map(move |n| (*before, *behind, *n)))
    }) {
        // On a page at the edge, heads begin after the bytes that all keys share, until a key is inserted that does not
        // share them.
        for (low, lead) in [(None, 7u32), (None, 0x0700_0000), (Some(b"a".as_slice()), 7)] {
            let (mut one, mut many) = (page(low, Some(b"b")), page(low, Some(b"b")));
            let mut model = BTreeMap::new();
            let there = (0..before).chain(1000..1000 + behind).map(|n| key(lead + n));
            for (at, key) in there.enumerate() {
                for page in [&mut one, &mut many] {
                    PageMut::of(page).insert(at, &key, 0, b"there", 0);
                }
                model.insert(key, (b"there".to_vec(), false));
            }
            let keys: Vec<Vec<u8>> = (500..500 + n).map(|n| key(lead + n)).collect();
            let rows: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"new"[..])).collect();
            for (i, (key, row)) in rows.iter().enumerate() {
                let mut page = PageMut::of(&mut one);
                page.insert(before as usize + i, key, 0, row, 0);
                page.note_insert(before as usize + i);
                model.insert(key.to_vec(), (row.to_vec(), false));
            }
            PageMut::of(&mut many).insert_rows(before as usize, &rows);
            check(PageRef::of(&one), &model);
            check(PageRef::of(&many), &model);
            assert_eq!(PageRef::of(&one).insert_run(), PageRef::of(&many).insert_run());
        }
    }
}

#[test]
fn ascending_inserts_are_recognised() {
    let mut bytes = page(None, None);
    let mut p = PageMut::of(&mut bytes);
    for i in 0..40u32 {
        let (at, _) = p.read().lower_bound(&i.to_be_bytes());
        p.insert(at, &i.to_be_bytes(), 0, b"row", 0);
        p.note_insert(at);
    }
    assert_eq!(p.read().u16(RUN), 39);
}

#[test]
fn any_bytes_can_be_searched() {
    let mut bytes = PageBytes::boxed();
    for seed in 0..if cfg!(miri) { 3 } else { 2000 } {
        fastrand::Rng::with_seed(seed).fill(bytes.as_bytes_mut());
        let p = PageRef::of(&bytes);
        let (at, _) = p.lower_bound(b"some key");
        let _ = (p.key(at.min(600)), p.child(at), p.high_fence(), p.free_bytes());
        let _ = p.find_at(p.place_in_leaf(b"some key"), b"some key");
    }
}
