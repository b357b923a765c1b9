//! Deadlock tests: every deadlock is found, and exactly one member of it is aborted.

use super::*;
use TableMode::{IS, IX, S, X};

fn deadlock(table: u32) -> Option<Result<Acquired, LockRefusal>> {
    Some(Err(LockRefusal::Deadlock { table }))
}

fn waits(o: &mut LockOwner, k: u8, mode: RecordMode) {
    assert_eq!(o.start(key(k), mode, Prefix::MIN), None);
}

#[test]
fn two_each_want_what_the_other_has() {
    let mut o = owners(small(), 2);
    o[0].take(key(0), RecordMode::X);
    o[1].take(key(1), RecordMode::X);
    waits(&mut o[0], 1, RecordMode::S);
    assert_eq!(
        o[1].start(key(0), RecordMode::S, Prefix::MIN),
        deadlock(TABLE),
        "the younger, which closed the cycle, is aborted at once"
    );
    assert_eq!(o[0].poll(), None);
    o[1].release_all();
    assert_eq!(o[0].poll(), Some(Ok(Acquired::New)));
    assert_eq!((o[0].locks.stats().deadlocks, o[0].locks.table_stats(TABLE).deadlocks), (1, 1));
}

#[test]
fn the_youngest_goes_even_if_it_slept_already() {
    let mut o = owners(small(), 3);
    for (i, owner) in o.iter_mut().enumerate() {
        owner.take(key(i as u8), RecordMode::X);
    }
    waits(&mut o[1], 2, RecordMode::X);
    waits(&mut o[2], 0, RecordMode::X);
    waits(&mut o[0], 1, RecordMode::X);
    assert_eq!(o[2].poll(), deadlock(TABLE));
    assert!(o[0].poll().is_none() && o[1].poll().is_none());
    o[2].release_all();
    assert_eq!(o[1].poll(), Some(Ok(Acquired::New)));
    o[1].release_all();
    assert_eq!(o[0].poll(), Some(Ok(Acquired::New)));
    assert_eq!(o[0].locks.stats().deadlocks, 1);
}

#[test]
fn ages_decide_and_slots_break_ties() {
    for (ages, victim) in [([7, 3], 0), ([3, 7], 1), ([5, 5], 1)] {
        for first in [0, 1] {
            let mut o = owners(small(), 2);
            for i in 0..2 {
                o[i].begin(ages[i]);
                o[i].take(key(i as u8), RecordMode::X);
            }
            let ended = |got: Option<Result<_, _>>| got == deadlock(TABLE);
            let got = o[first].start(key(1 - first as u8), RecordMode::X, Prefix::MIN);
            assert_eq!(got, None);
            let got = o[1 - first].start(key(first as u8), RecordMode::X, Prefix::MIN);
            let died = [first, 1 - first].map(|i| if i == first { ended(o[i].poll()) } else { ended(got) });
            assert_eq!(died, [first == victim, first != victim], "ages {ages:?}, {first} first");
        }
    }
}

#[test]
fn two_readers_that_both_write() {
    let mut o = owners(small(), 3);
    o[0].take(key(1), RecordMode::S);
    o[1].take(key(1), RecordMode::S);
    waits(&mut o[2], 1, RecordMode::X);
    waits(&mut o[0], 1, RecordMode::X);
    assert_eq!(o[1].start(key(1), RecordMode::X, Prefix::MIN), deadlock(TABLE));
    assert_eq!(o[1].held(key(1)), RecordMode::S, "until it rolls back");
    o[1].release_all();
    assert_eq!(o[0].poll(), Some(Ok(Acquired::Converted)));
    assert_eq!(o[2].poll(), None);
}

#[test]
fn two_that_announce_it_with_u_only_wait() {
    let mut o = owners(small(), 2);
    o[0].take(key(1), RecordMode::U);
    waits(&mut o[1], 1, RecordMode::U);
    assert_eq!(o[0].try_acquire(TABLE, key(1), RecordMode::X, Prefix::MIN), Ok(Acquired::Converted));
    o[0].release_all();
    assert_eq!(o[1].poll(), Some(Ok(Acquired::New)));
    assert_eq!(o[0].locks.stats().deadlocks, 0);
}

#[test]
fn two_inserters_into_a_gap_both_have_read() {
    let mut o = owners(small(), 2);
    assert!(o[0].try_acquire(TABLE, key(10), RecordMode::GAP, at(3)).is_ok());
    assert!(o[1].try_acquire(TABLE, key(10), RecordMode::GAP, at(3)).is_ok());
    assert_eq!(o[0].start_insert(key(10), at(5)), None);
    assert_eq!(o[1].start_insert(key(10), at(6)), deadlock(TABLE));
    o[1].release_all();
    assert!(o[0].poll().unwrap().is_ok());
    o[0].release_all();
    assert_idle(&o[0].locks);
}

#[test]
fn through_a_place_in_the_queue() {
    // Owner 2 waits behind owner 1 in the queue, not for the holder 0; owner 1 waits for owner 2 on another key. Only the
    // end of owner 0 would let owner 1 continue.
    let mut o = owners(small(), 3);
    o[0].take(key(1), RecordMode::S);
    o[2].take(key(2), RecordMode::X);
    waits(&mut o[1], 1, RecordMode::X);
    waits(&mut o[2], 1, RecordMode::S);
    // Owner 0 runs, so there is no deadlock yet. Then it requests the lock that owner 2 holds: 0 -> 2 -> 1 -> 0.
    waits(&mut o[0], 2, RecordMode::S);
    assert_eq!(o[2].poll(), deadlock(TABLE));
    assert!(o[0].poll().is_none());
    o[2].release_all();
    assert_eq!(o[0].poll(), Some(Ok(Acquired::New)));
}

#[test]
fn through_table_locks() {
    let mut o = owners(small(), 2);
    o[0].intent(3, IX).unwrap();
    o[1].intent(4, IX).unwrap();
    assert_eq!(o[0].start_table(4, S), None);
    assert_eq!(o[1].start_table(3, S), deadlock(3));
    o[1].release_all();
    assert!(o[0].poll().unwrap().is_ok());
    // Both owners read the table, and both request to write the whole table.
    o[1].intent(3, IS).unwrap();
    assert_eq!(o[0].start_table(3, X), None);
    assert_eq!(o[1].start_table(3, X), deadlock(3));
}

#[test]
fn through_a_record_a_table_and_a_gap() {
    let mut o = owners(small(), 3);
    o[0].intent(TABLE, IX).unwrap();
    o[0].take(key(1), RecordMode::X);
    o[1].intent(TABLE, IX).unwrap();
    assert!(o[1].try_acquire(TABLE, key(10), RecordMode::GAP, at(2)).is_ok());
    o[2].lock_table(4, X).unwrap();
    assert_eq!(o[1].start_table(4, IS), None);
    assert_eq!(o[2].start(key(1), RecordMode::S, Prefix::MIN), None);
    assert_eq!(o[0].start_insert(key(10), at(5)), None);
    assert_eq!(o[2].poll(), deadlock(TABLE));
    o[2].release_all();
    assert!(o[1].poll().unwrap().is_ok());
    o[1].release_all();
    assert!(o[0].poll().unwrap().is_ok());
}

#[test]
fn a_holder_that_waits_for_the_last_of_a_long_queue_leaves_the_others_alone() {
    let mut o = owners(small(), 8);
    o[0].take(key(0), RecordMode::X);
    o[3].take(key(3), RecordMode::X);
    for i in [7, 6, 5, 4, 3] {
        waits(&mut o[i], 0, RecordMode::X);
    }
    waits(&mut o[0], 3, RecordMode::S);
    assert_eq!(o[3].poll(), deadlock(TABLE), "not one of the younger ones ahead of it");
    for i in [4, 5, 6, 7] {
        assert_eq!(o[i].poll(), None);
    }
    o[3].release_all();
    assert_eq!(o[0].poll(), Some(Ok(Acquired::New)));
}

#[test]
fn one_wait_that_closes_two_cycles() {
    let mut o = owners(small(), 3);
    o[1].take(key(5), RecordMode::S);
    o[2].take(key(5), RecordMode::S);
    o[0].take(key(0), RecordMode::X);
    waits(&mut o[1], 0, RecordMode::S);
    waits(&mut o[2], 0, RecordMode::S);
    waits(&mut o[0], 5, RecordMode::X);
    assert_eq!(o[1].poll(), deadlock(TABLE));
    assert_eq!(o[2].poll(), deadlock(TABLE));
    o[1].release_all();
    assert_eq!(o[0].poll(), None);
    o[2].release_all();
    assert_eq!(o[0].poll(), Some(Ok(Acquired::New)));
}

#[test]
fn what_only_looked_like_a_cycle_harms_nobody() {
    let mut o = owners(small(), 3);
    o[0].take(key(1), RecordMode::X);
    waits(&mut o[1], 1, RecordMode::X);
    waits(&mut o[2], 1, RecordMode::X);
    let mut wakes = crate::lock::wait::Wakes::default();
    for cycle in [&[1, 0][..], &[1, 2], &[2, 1], &[2, 1, 0], &[1]] {
        let cycle: Vec<SlotId> = cycle.iter().map(|&slot| SlotId(slot)).collect();
        o[0].locks.break_cycle(&cycle, &mut wakes);
    }
    o[0].locks.deliver(wakes);
    assert!(o[1].poll().is_none() && o[2].poll().is_none());
}
