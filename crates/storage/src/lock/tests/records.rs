//! Tests of record locks of several owners, step by step.

use super::*;
use crate::lock::{InsertCheck, KeyMode, NotGranted};

const KEYS: [KeyMode; 4] = [KeyMode::None, KeyMode::S, KeyMode::U, KeyMode::X];

fn allowed(held: KeyMode, asked: KeyMode) -> bool {
    match held {
        KeyMode::None => true,
        KeyMode::S => asked != KeyMode::X,
        KeyMode::U | KeyMode::X => asked == KeyMode::None,
    }
}

#[test]
fn every_pair_of_modes() {
    for (held, asked) in KEYS.iter().flat_map(|&h| KEYS.map(|a| (h, a))) {
        for (held_gap, asked_gap) in [(false, false), (false, true), (true, false), (true, true)] {
            let (held_mode, asked_mode) = (RecordMode::new(held, held_gap), RecordMode::new(asked, asked_gap));
            if held_mode.is_none() || asked_mode.is_none() {
                continue;
            }
            let mut o = owners(small(), 2);
            o[0].take(key(1), held_mode);
            let got = o[1].try_acquire(TABLE, key(1), asked_mode, Prefix::MIN);
            assert_eq!(
                got,
                if allowed(held, asked) { Ok(Acquired::New) } else { Err(NotGranted::WouldBlock) },
                "{held_mode:?} {asked_mode:?}"
            );
            o[0].release_all();
            o[1].release_all();
            assert_idle(&o[0].locks);
        }
    }
}

#[test]
fn every_conversion() {
    for (first, second) in KEYS.iter().flat_map(|&h| KEYS.map(|a| (h, a))) {
        for other in [KeyMode::None, KeyMode::S, KeyMode::U] {
            let mut o = owners(small(), 2);
            let mode = RecordMode::new(first, true);
            o[0].take(key(1), mode);
            if other != KeyMode::None {
                if !allowed(first, other) {
                    continue;
                }
                o[1].take(key(1), RecordMode::new(other, false));
            }
            let got = o[0].try_acquire(TABLE, key(1), RecordMode::new(second, true), Prefix::MIN);
            let expected = match (second > first, allowed(other, second)) {
                (false, _) => Ok(Acquired::Already),
                (true, true) => Ok(Acquired::Converted),
                (true, false) => Err(NotGranted::WouldBlock),
            };
            assert_eq!(got, expected, "{first:?} to {second:?} beside {other:?}");
            let now = if got.is_ok() { first.max(second) } else { first };
            assert_eq!(o[0].held(key(1)), RecordMode::new(now, true));
        }
    }
}

#[test]
fn first_come_first_served() {
    let mut o = owners(small(), 5);
    o[0].take(key(1), RecordMode::S);
    assert_eq!(o[1].start(key(1), RecordMode::X, Prefix::MIN), None);
    // A reader must not pass the waiting writer, although S is compatible with the S that another reader holds.
    assert_eq!(o[2].try_acquire(TABLE, key(1), RecordMode::S, Prefix::MIN), Err(NotGranted::WouldBlock));
    assert_eq!(o[2].start(key(1), RecordMode::S, Prefix::MIN), None);
    assert_eq!(o[3].start(key(1), RecordMode::S, Prefix::MIN), None);
    assert_eq!(o[4].start(key(1), RecordMode::X, Prefix::MIN), None);
    o[0].release_all();
    assert_eq!(o[1].poll(), Some(Ok(Acquired::New)));
    assert!(o[2].poll().is_none() && o[3].poll().is_none() && o[4].poll().is_none());
    o[1].release_all();
    assert_eq!(o[2].poll(), Some(Ok(Acquired::New)));
    assert_eq!(o[3].poll(), Some(Ok(Acquired::New)));
    o[2].release_all();
    assert_eq!(o[4].poll(), None);
    o[3].release_all();
    assert_eq!(o[4].poll(), Some(Ok(Acquired::New)));
}

#[test]
fn a_conversion_goes_before_new_requests() {
    let mut o = owners(small(), 4);
    o[0].take(key(1), RecordMode::S);
    o[1].take(key(1), RecordMode::S);
    assert_eq!(o[2].start(key(1), RecordMode::X, Prefix::MIN), None);
    assert_eq!(o[0].start(key(1), RecordMode::X, Prefix::MIN), None);
    o[1].release_all();
    assert_eq!(o[0].poll(), Some(Ok(Acquired::Converted)));
    assert_eq!(o[2].poll(), None);
    o[0].release_all();
    assert_eq!(o[2].poll(), Some(Ok(Acquired::New)));
}

#[test]
fn a_reader_asks_for_the_gap_beside_a_later_u() {
    // The owner already holds S. Only the gap is new, so the U granted beside the S does not block the request.
    let mut o = owners(small(), 2);
    o[0].take(key(1), RecordMode::S);
    o[1].take(key(1), RecordMode::U);
    assert_eq!(o[0].try_acquire(TABLE, key(1), RecordMode::S_GAP, at(1)), Ok(Acquired::Converted));
    assert_eq!(o[0].held(key(1)), RecordMode::S_GAP);
}

#[test]
fn instant_s_leaves_nothing() {
    let mut o = owners(small(), 3);
    assert!(o[0].try_instant_s(TABLE, key(1)));
    o[1].take(key(1), RecordMode::X);
    assert!(!o[0].try_instant_s(TABLE, key(1)));
    assert!(o[1].try_instant_s(TABLE, key(1)), "its own lock is not in its way");
    o[1].release_all();
    o[1].take(key(1), RecordMode::S_GAP);
    assert!(o[0].try_instant_s(TABLE, key(1)));
    assert!(!o[0].locks.is_referenced_by_others(&o[1], key(1)));
    assert!(o[0].locks.is_referenced(key(1)));
    o[1].release_all();
    assert!(!o[0].locks.is_referenced(key(1)));
    o[2].wait_instant_s(TABLE, key(1)).unwrap();
    assert_eq!(o[2].held(key(1)), RecordMode::NONE);
}

#[test]
fn who_holds_s_reads_beside_a_later_u() {
    let mut o = owners(small(), 3);
    o[0].take(key(1), RecordMode::S);
    o[1].take(key(1), RecordMode::U);
    assert!(o[0].try_instant_s(TABLE, key(1)), "as acquire_wait would say; else it would ask for ever");
    assert!(!o[2].try_instant_s(TABLE, key(1)));
}

#[test]
fn release_one_wakes_and_frees() {
    let mut o = owners(small(), 2);
    for k in 0..10 {
        o[0].take(key(k), RecordMode::S);
    }
    assert_eq!(o[1].start(key(4), RecordMode::X, Prefix::MIN), None);
    assert!(o[0].release_one(TABLE, key(4)));
    assert!(!o[0].release_one(TABLE, key(4)));
    assert_eq!(o[1].poll(), Some(Ok(Acquired::New)));
    assert!(o[0].release_one(TABLE, key(9)) && o[0].release_one(TABLE, key(0)));
    for k in 0..10 {
        assert_eq!(o[0].held(key(k)).is_none(), [0, 4, 9].contains(&k));
    }
    o[0].release_all();
    o[1].release_all();
    assert_idle(&o[0].locks);
}

#[test]
fn dropping_an_owner_releases_even_while_it_waits() {
    let mut o = owners(small(), 3);
    o[0].take(key(1), RecordMode::S);
    o[1].take(key(2), RecordMode::X);
    assert_eq!(o[1].start(key(1), RecordMode::X, Prefix::MIN), None);
    assert_eq!(o[2].start(key(1), RecordMode::S, Prefix::MIN), None);
    drop(o.remove(1));
    assert_eq!(o[1].poll(), Some(Ok(Acquired::New)), "no request is ahead any more");
    assert_eq!(o[0].try_acquire(TABLE, key(2), RecordMode::X, Prefix::MIN), Ok(Acquired::New));
    let locks = o[0].locks.clone();
    let mut again = locks.attach(SlotId(1));
    again.begin(9);
    o.clear();
    again.take(key(1), RecordMode::X);
    drop(again);
    assert_idle(&locks);
}

#[test]
#[should_panic(expected = "has an owner already")]
fn a_slot_has_one_owner() {
    let o = owners(small(), 2);
    let _ = o[0].locks.attach(SlotId(1));
}

#[test]
fn the_number_of_locks_is_bounded() {
    let mut o = owners(LockOptions { records_per_owner: 128, ..small() }, 1);
    let name = |i: u32| LockName::new(IndexId(1), &i.to_be_bytes());
    for i in 0..128 {
        assert_eq!(o[0].try_acquire(TABLE, name(i), RecordMode::S, Prefix::MIN), Ok(Acquired::New));
    }
    assert_eq!(o[0].try_acquire(TABLE, name(128), RecordMode::S, Prefix::MIN), Err(NotGranted::TooManyLocks));
    assert_eq!(
        o[0].acquire_wait(TABLE, name(128), RecordMode::S, Prefix::MIN),
        Err(LockRefusal::TooManyLocks { limit: 128 })
    );
    assert_eq!(o[0].try_acquire(TABLE, name(3), RecordMode::X, Prefix::MIN), Ok(Acquired::Converted));
    assert!(o[0].release_one(TABLE, name(7)));
    assert_eq!(o[0].try_acquire(TABLE, name(128), RecordMode::S, Prefix::MIN), Ok(Acquired::New));
    o[0].release_all();
    assert_idle(&o[0].locks);
}

#[test]
fn closing_ends_waits() {
    let mut o = owners(small(), 4);
    o[0].take(key(1), RecordMode::X);
    o[0].intent(3, TableMode::IX).unwrap();
    assert_eq!(o[1].start(key(1), RecordMode::S, Prefix::MIN), None);
    assert_eq!(o[2].start_table(3, TableMode::X), None);
    o[0].locks.close();
    assert_eq!(o[1].poll(), Some(Err(LockRefusal::Closed)));
    assert_eq!(o[2].poll(), Some(Err(LockRefusal::Closed)));
    assert_eq!(o[3].acquire_wait(TABLE, key(1), RecordMode::S, Prefix::MIN), Err(LockRefusal::Closed));
    assert_eq!(o[3].wait_insert(TABLE, key(1), at(1)), Ok(()), "what is free is still granted");
    assert_eq!(o[3].check_insert(TABLE, key(1), at(1)), InsertCheck::Granted);
    o[0].release_all();
    assert_idle(&o[0].locks);
}

#[test]
fn a_reader_waiting_for_the_gap_does_not_wait_for_a_later_u() {
    let mut o = owners(small(), 4);
    o[0].take(key(10), RecordMode::S);
    assert!(o[1].try_acquire(TABLE, key(10), RecordMode::GAP, at(1)).is_ok());
    assert_eq!(o[2].start_insert(key(10), at(5)), None);
    o[1].release_all();
    assert!(o[2].poll().unwrap().is_ok());
    assert_eq!(o[0].start(key(10), RecordMode::S_GAP, at(1)), None, "behind the insert");
    o[3].take(key(10), RecordMode::U);
    o[2].release_all();
    assert_eq!(o[0].poll(), Some(Ok(Acquired::Converted)));
}
