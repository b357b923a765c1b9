//! Tests of table locks step by step, of covered record locks, and of escalation.

use super::*;
use crate::lock::{InsertCheck, KeyMode, NotGranted};
use TableMode::{IS, IX, S, SIX, X};

const MODES: [TableMode; 5] = [IS, IX, S, SIX, X];

#[test]
fn every_pair_of_modes() {
    for held in MODES {
        for asked in MODES {
            let mut o = owners(small(), 2);
            o[0].lock_table(3, held).unwrap();
            assert_eq!(o[1].start_table(3, asked).is_some(), held.compatible(asked), "{held:?} {asked:?}");
            o[0].release_all();
            if o[1].pending.is_some() {
                assert!(o[1].poll().unwrap().is_ok());
            }
            assert_eq!(o[1].mode(3), asked);
            o[1].release_all();
            assert_idle(&o[0].locks);
        }
    }
}

#[test]
fn every_conversion() {
    for first in MODES {
        for second in MODES {
            for other in MODES.into_iter().filter(|&m| first.compatible(m)) {
                let mut o = owners(small(), 2);
                o[0].lock_table(3, first).unwrap();
                o[1].lock_table(3, other).unwrap();
                let to = first.union(second);
                let got = o[0].start_table(3, second);
                assert_eq!(
                    got.is_some(),
                    to == first || to.compatible(other),
                    "{first:?} to {second:?} beside {other:?}"
                );
                assert_eq!(o[0].mode(3), if got.is_some() { to } else { first });
                o[1].release_all();
                if o[0].pending.is_some() {
                    assert!(o[0].poll().unwrap().is_ok());
                }
                assert_eq!(o[0].mode(3), to);
            }
        }
    }
}

#[test]
fn intentions_queue_behind_a_waiting_strong_request() {
    let mut o = owners(small(), 4);
    o[0].intent(3, IX).unwrap();
    assert_eq!(o[1].start_table(3, X), None);
    assert_eq!(o[2].start_table(3, IS), None);
    assert_eq!(o[3].start_table(3, IX), None);
    // The holder may still strengthen its mode, and request it again.
    o[0].intent(3, IX).unwrap();
    o[0].release_all();
    assert!(o[1].poll().unwrap().is_ok());
    assert!(o[2].poll().is_none() && o[3].poll().is_none());
    o[1].release_all();
    assert!(o[2].poll().unwrap().is_ok() && o[3].poll().unwrap().is_ok());
    // No strong mode is left, so the fast path is enabled again.
    assert_eq!(o[0].locks.tables.strong(3).load(crate::lock::sync::Ordering::SeqCst), 0);
    o[0].intent(3, IX).unwrap();
}

#[test]
fn what_a_table_lock_covers() {
    let mut o = owners(small(), 2);
    for (mode, reads, writes) in
        [(IS, false, false), (IX, false, false), (S, true, false), (SIX, true, false), (X, true, true)]
    {
        {
            o[0].lock_table(3, mode).unwrap();
            o[0].intent(3, if mode == IS || mode == S { IS } else { IX }).unwrap();
            assert_eq!(o[0].covers(3, KeyMode::S, true), reads);
            assert_eq!(o[0].covers(3, KeyMode::U, false), writes);
            assert_eq!(o[0].covers(3, KeyMode::X, true), writes);
            let got = |o: &mut LockOwner, mode| o.try_acquire(3, key(1), mode, Prefix::MIN);
            assert_eq!(got(&mut o[0], RecordMode::S_GAP), Ok(if reads { Acquired::Covered } else { Acquired::New }));
            assert_eq!(
                got(&mut o[0], RecordMode::X_GAP),
                Ok(if writes {
                    Acquired::Covered
                } else if reads {
                    Acquired::New
                } else {
                    Acquired::Converted
                })
            );
            assert_eq!(o[0].locks.is_referenced(key(1)), !writes);
            o[0].release_all();
            assert_eq!(got(&mut o[1], RecordMode::X), Ok(Acquired::New), "the cover ends with the transaction");
            o[1].release_all();
        }
    }
    assert_idle(&o[0].locks);
}

fn row(i: u32) -> LockName {
    LockName::new(IndexId(1), &i.to_be_bytes())
}

/// Locks a record like real callers: first as if latches were held, then without latches.
fn lock(o: &mut LockOwner, table: u32, name: LockName, mode: RecordMode) -> Acquired {
    let got = o.try_acquire(table, name, mode, Prefix::MIN);
    got.unwrap_or_else(|_| o.acquire_wait(table, name, mode, Prefix::MIN).unwrap())
}

/// Checks that no escalation happens under a page latch, because it visits all locks of the owner, which takes too long.
#[test]
fn a_request_that_may_be_made_under_latches_does_not_escalate() {
    let mut o = owners(LockOptions { escalate_at: 100, ..small() }, 1);
    o[0].intent(3, IX).unwrap();
    assert_eq!(lock_rows(&mut o[0], 0..100, RecordMode::X), 100);
    assert_eq!(o[0].try_acquire(3, row(100), RecordMode::X, Prefix::MIN), Err(NotGranted::WouldBlock));
    assert_eq!((o[0].mode(3), o[0].stats().escalations), (IX, 0));
    assert_eq!(o[0].acquire_wait(3, row(100), RecordMode::X, Prefix::MIN), Ok(Acquired::Covered));
    assert_eq!((o[0].mode(3), o[0].stats().escalations, o[0].stats().waits), (X, 1, 0));
    assert_eq!(o[0].try_acquire(3, row(101), RecordMode::X, Prefix::MIN), Ok(Acquired::Covered));
    o[0].release_all();
    assert_idle(&o[0].locks);
}

fn lock_rows(o: &mut LockOwner, rows: std::ops::Range<u32>, mode: RecordMode) -> u32 {
    rows.filter(|&i| lock(o, 3, row(i), mode) == Acquired::New).count() as u32
}

#[test]
fn many_reads_become_one_table_lock() {
    let mut o = owners(LockOptions { escalate_at: 100, ..small() }, 2);
    o[0].intent(3, IS).unwrap();
    o[0].intent(4, IX).unwrap();
    assert!(o[0].try_acquire(4, key(200), RecordMode::X, Prefix::MIN).is_ok());
    assert_eq!(lock_rows(&mut o[0], 0..100, RecordMode::S_GAP), 100);
    assert_eq!(o[0].mode(3), IS);
    assert_eq!(lock_rows(&mut o[0], 100..300, RecordMode::S_GAP), 0);
    assert_eq!(o[0].mode(3), S);
    assert!(!o[0].locks.is_referenced(row(5)), "the record locks are gone");
    assert!(o[0].locks.is_referenced(key(200)), "those of other tables are not");
    assert_eq!((o[0].stats().escalations, o[0].locks.table_stats(3).escalations), (1, 1));
    o[1].intent(3, IS).unwrap();
    assert_eq!(o[1].start_table(3, IX), None);
    o[0].release_all();
    assert!(o[1].poll().unwrap().is_ok());
}

/// Keys of two tables may have the same name. A record lock that the table lock of one table makes unnecessary is still
/// needed for the other table.
#[test]
fn escalation_in_one_table_keeps_the_locks_of_another_under_the_same_names() {
    for second in [RecordMode::X, RecordMode::S_GAP] {
        let mut o = owners(LockOptions { escalate_at: 100, ..small() }, 2);
        o[0].intent(3, IX).unwrap();
        o[0].intent(4, IX).unwrap();
        o[1].intent(4, IX).unwrap();
        lock_rows(&mut o[0], 0..50, RecordMode::X);
        for i in 0..50 {
            assert!(o[0].try_acquire(4, row(i), second, Prefix::MIN).is_ok());
            assert_eq!(o[0].try_acquire(4, row(i), second, Prefix::MIN), Ok(Acquired::Already));
        }
        lock_rows(&mut o[0], 50..101, RecordMode::X);
        assert_eq!((o[0].mode(3), o[0].mode(4)), (X, IX));
        for i in 0..50 {
            assert_eq!(o[1].try_acquire(4, row(i), RecordMode::X, Prefix::MIN), Err(NotGranted::WouldBlock));
            let free = second == RecordMode::X;
            assert_eq!(o[1].check_insert(4, row(i), at(1)) == InsertCheck::Granted, free, "the gap below {i}");
        }
        o[0].release_all();
        assert_eq!(o[1].try_acquire(4, row(7), RecordMode::X, Prefix::MIN), Ok(Acquired::New));
        o[1].release_all();
        assert_idle(&o[0].locks);
    }
}

/// Keys of two tables with the same name have separate locks. Otherwise a table lock, which covers all locks in its table,
/// would let its owner ignore the lock on the other table's key.
#[test]
fn locks_of_two_tables_under_one_name_do_not_meet() {
    let mut o = owners(small(), 2);
    for owner in &mut o {
        owner.intent(3, IX).unwrap();
        owner.intent(4, IX).unwrap();
    }
    assert_eq!(o[0].try_acquire(3, key(9), RecordMode::X_GAP, at(2)), Ok(Acquired::New));
    assert_eq!(o[0].try_acquire(4, key(9), RecordMode::GAP, at(5)), Ok(Acquired::New));
    assert_eq!(o[0].check_insert(3, key(9), at(7)), InsertCheck::OwnGap(at(2)));
    assert_eq!(o[0].check_insert(4, key(9), at(7)), InsertCheck::OwnGap(at(5)));
    assert_eq!(o[1].try_acquire(4, key(9), RecordMode::X, Prefix::MIN), Ok(Acquired::New));
    assert!(!o[1].try_instant_s(3, key(9)) && o[1].try_instant_s(4, key(9)));
    assert_eq!(o[1].check_insert(3, key(9), at(3)), InsertCheck::Blocked);
    assert_eq!(o[1].check_insert(4, key(9), at(3)), InsertCheck::Granted);
    o.iter_mut().for_each(LockOwner::release_all);
    assert_idle(&o[0].locks);
}

#[test]
fn many_writes_become_one_table_lock() {
    let mut o = owners(LockOptions { escalate_at: 100, ..small() }, 2);
    o[0].intent(3, IX).unwrap();
    lock_rows(&mut o[0], 0..50, RecordMode::S);
    lock_rows(&mut o[0], 50..101, RecordMode::X);
    assert_eq!(o[0].mode(3), X);
    assert!(!o[0].locks.is_referenced(row(70)) && !o[0].locks.is_referenced(row(5)));
    assert_eq!(o[1].start_table(3, IS), None);
    o[0].release_all();
    assert!(o[1].poll().unwrap().is_ok());
    o[1].release_all();
    assert_idle(&o[0].locks);
}

#[test]
fn reads_under_ix_escalate_to_six_then_writes_to_x() {
    let mut o = owners(LockOptions { escalate_at: 100, ..small() }, 1);
    o[0].intent(3, IX).unwrap();
    lock_rows(&mut o[0], 0..101, RecordMode::S);
    assert_eq!(o[0].mode(3), SIX);
    assert_eq!(lock_rows(&mut o[0], 0..100, RecordMode::X), 100);
    assert_eq!(o[0].mode(3), SIX);
    assert_eq!(lock_rows(&mut o[0], 100..101, RecordMode::X), 0);
    assert_eq!(o[0].mode(3), X);
    assert_eq!(o[0].stats().escalations, 2);
    o[0].release_all();
    assert_idle(&o[0].locks);
}

#[test]
fn escalation_never_waits_and_tries_again_later() {
    let mut o = owners(LockOptions { escalate_at: 100, ..small() }, 2);
    o[0].intent(3, IX).unwrap();
    o[1].intent(3, IX).unwrap();
    assert_eq!(lock_rows(&mut o[0], 0..150, RecordMode::X), 150);
    assert_eq!(o[0].mode(3), IX);
    o[1].release_all();
    assert_eq!(lock_rows(&mut o[0], 150..200, RecordMode::X), 50, "not due yet");
    assert_eq!(lock_rows(&mut o[0], 200..201, RecordMode::X), 0);
    assert_eq!(o[0].mode(3), X);
    assert_eq!(o[0].stats().escalations, 1);
}

#[test]
fn a_record_refused_to_the_reader_is_not_covered_by_its_table_lock() {
    // While one owner holds SIX, another owner may read records. So a U of the first owner must still be a record lock.
    let mut o = owners(small(), 2);
    o[0].lock_table(3, SIX).unwrap();
    o[1].intent(3, IS).unwrap();
    assert_eq!(o[0].try_acquire(3, key(1), RecordMode::X, Prefix::MIN), Ok(Acquired::New));
    assert_eq!(o[1].try_acquire(3, key(1), RecordMode::S, Prefix::MIN), Err(NotGranted::WouldBlock));
}
