//! Gap lock tests: inserts that a range read excludes, and inserts that it does not.

use super::*;
use crate::lock::InsertCheck::{Blocked, Granted, OwnGap};

#[test]
fn a_scan_keeps_inserts_out_of_its_range_only() {
    // The keys are 1, 2, 10, 20. A scan of 3..=9 reads only the part of the gap below 10 from 3 up.
    let mut o = owners(small(), 2);
    assert!(o[0].try_acquire(TABLE, key(10), RecordMode::GAP, at(3)).is_ok());
    assert_eq!(o[1].check_insert(TABLE, key(10), at(5)), Blocked);
    assert_eq!(o[1].check_insert(TABLE, key(10), at(3)), Blocked);
    assert_eq!(o[1].check_insert(TABLE, key(20), at(15)), Granted);
    // The gap lock does not lock the key, and inserts below the range are allowed.
    assert!(o[1].try_acquire(TABLE, key(10), RecordMode::X, Prefix::MIN).is_ok());
    o[1].release_all();
    assert_eq!(o[1].check_insert(TABLE, key(10), Prefix::of(&[2, 200])), Granted);
    assert!(!o[1].locks.is_referenced_by_others(&o[0], key(20)), "a granted check leaves nothing");
}

#[test]
fn a_scan_to_the_end_locks_the_supremum() {
    let mut o = owners(small(), 2);
    let end = LockName::supremum(IndexId(1));
    assert!(o[0].try_acquire(TABLE, end, RecordMode::GAP, at(20)).is_ok());
    assert_eq!(o[1].check_insert(TABLE, end, at(200)), Blocked);
    assert_eq!(o[1].check_insert(TABLE, LockName::supremum(IndexId(2)), at(200)), Granted);
}

#[test]
fn a_reader_at_the_low_end_of_a_district_lets_the_district_before_grow() {
    // Delivery reads the oldest order of (w, d) while New-Order appends to (w, d-1) in the same gap.
    let row = |d: u8, o: u32| Prefix::of(&[&[0, 0, 0, 1, d][..], &o.to_be_bytes()].concat());
    let first = LockName::new(IndexId(7), b"first order of district 5");
    let mut o = owners(small(), 2);
    assert!(o[0].try_acquire(TABLE, first, RecordMode::S_GAP, row(5, 0)).is_ok());
    assert_eq!(o[1].check_insert(TABLE, first, row(4, 3001)), Granted);
    assert_eq!(o[1].check_insert(TABLE, first, row(5, 0)), Blocked);
    assert_eq!(o[1].check_insert(TABLE, first, row(5, 2100)), Blocked);
}

#[test]
fn gaps_are_shared_and_rereading_widens() {
    let mut o = owners(small(), 3);
    assert!(o[0].try_acquire(TABLE, key(10), RecordMode::S_GAP, at(5)).is_ok());
    assert_eq!(o[1].try_acquire(TABLE, key(10), RecordMode::GAP, at(8)), Ok(Acquired::New));
    assert_eq!(o[2].check_insert(TABLE, key(10), at(4)), Granted);
    assert_eq!(o[0].try_acquire(TABLE, key(10), RecordMode::S_GAP, at(7)), Ok(Acquired::Already));
    assert_eq!(o[0].try_acquire(TABLE, key(10), RecordMode::GAP, at(3)), Ok(Acquired::Converted));
    assert_eq!(o[0].held(key(10)), RecordMode::S_GAP);
    assert_eq!(o[2].check_insert(TABLE, key(10), at(4)), Blocked);
    assert_eq!(o[0].try_acquire(TABLE, key(10), RecordMode::X, Prefix::MIN), Ok(Acquired::Converted));
    assert_eq!(o[2].check_insert(TABLE, key(10), at(4)), Blocked);
    assert_eq!(o[2].check_insert(TABLE, key(10), at(2)), Granted, "a key part says nothing about the gap");
}

#[test]
fn an_inserter_learns_of_its_own_gap() {
    let mut o = owners(small(), 2);
    assert!(o[0].try_acquire(TABLE, key(10), RecordMode::S_GAP, at(3)).is_ok());
    assert_eq!(o[0].check_insert(TABLE, key(10), at(5)), OwnGap(at(3)));
    assert_eq!(o[0].check_insert(TABLE, key(10), at(2)), Granted);
    // The owner locks the new key with its gap as instructed, so the new key still protects the lower half of the range.
    assert!(o[0].try_acquire(TABLE, key(5), RecordMode::X_GAP, at(3)).is_ok());
    assert_eq!(o[1].check_insert(TABLE, key(5), at(4)), Blocked);
    // The other owner has read the gap as well, so neither of the two owners may insert.
    assert!(o[1].try_acquire(TABLE, key(10), RecordMode::GAP, at(6)).is_ok());
    assert_eq!(o[0].check_insert(TABLE, key(10), at(7)), Blocked);
}

#[test]
fn a_waiting_insert_is_granted_in_its_turn_and_not_overtaken() {
    let mut o = owners(small(), 4);
    assert!(o[0].try_acquire(TABLE, key(10), RecordMode::GAP, at(3)).is_ok());
    assert_eq!(o[1].start_insert(key(10), at(5)), None);
    // A second reader of this position queues behind the insert. A reader of another part of the gap does not queue.
    assert_eq!(o[2].start(key(10), RecordMode::GAP, at(4)), None);
    assert!(o[3].try_acquire(TABLE, key(10), RecordMode::S_GAP, at(6)).is_ok());
    o[0].release_all();
    assert!(o[1].poll().unwrap().is_ok());
    assert_eq!(o[2].poll(), None, "the inserter comes first, also after its wait");
    assert_eq!(o[1].check_insert(TABLE, key(10), at(5)), Granted);
    o[1].take(key(5), RecordMode::X);
    o[1].release_all();
    assert_eq!(o[2].poll(), Some(Ok(Acquired::New)));
    o.iter_mut().for_each(LockOwner::release_all);
    assert_idle(&o[0].locks);
}

#[test]
fn a_reader_that_waits_for_the_inserter_is_passed_by_it() {
    // Owner 1 waits for the key that owner 0 holds. Owner 0 inserts into the gap that owner 1 has requested as well. If
    // owner 0 waited behind owner 1, this would be a deadlock.
    let mut o = owners(small(), 2);
    o[0].take(key(10), RecordMode::X);
    assert_eq!(o[1].start(key(10), RecordMode::S_GAP, at(3)), None);
    assert_eq!(o[0].check_insert(TABLE, key(10), at(5)), Granted);
}
