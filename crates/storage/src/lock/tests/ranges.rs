//! Ranges: what they exclude, and that waiting for one is waiting for a record.

use std::ops::Bound;
use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::lock::mode::{GapMode, KeyMode};
use crate::lock::seats::MOST;
use crate::lock::{InsertCheck, KeyAt, Opened, Refused, Span};

const INDEX: IndexId = IndexId(1);
const KEYS: u8 = 8;

fn key_at(key: &[u8]) -> KeyAt<'_> {
    KeyAt { table: TABLE, index: INDEX, key, name: LockName::new(INDEX, key) }
}

/// From `low` to `high`, both included.
fn span<'k>(low: &'k [u8], high: &'k [u8]) -> Span<'k> {
    Span { low, high: Bound::Included(high) }
}

impl LockOwner {
    /// Reads the keys from `low` to `high`, all of which are in one leaf, as a scan does; false if that must lock rows, or wait.
    fn scan(&mut self, low: u8, high: u8, mode: KeyMode) -> bool {
        let locks = Arc::clone(&self.locks);
        let step = RecordMode::new(mode, true);
        let (low, high) = ([low], [high]);
        let range = match locks.open_range(self, (TABLE, INDEX), mode, span(&low, &high)) {
            Opened::Rows => return false,
            Opened::Held => return true,
            Opened::Range(range) => range,
        };
        let free = (low[0]..=high[0]).all(|k| range.admits(self, &key_at(&[k]), step, Prefix::of(&low)));
        if free {
            range.keep(span(&low, &high));
        }
        free
    }

    /// Starts to lock a key of which the owner has no range; `None` if that waits.
    fn start_at(&mut self, k: u8, mode: RecordMode) -> Option<Result<Acquired, LockRefusal>> {
        self.write_down_key(&key_at(&[k]), mode.key());
        self.start(key(k), mode, Prefix::MIN)
    }

    fn try_at(&mut self, k: u8, mode: RecordMode) -> Result<Acquired, Refused> {
        self.try_acquire_at(key_at(&[k]), mode, Prefix::MIN)
    }

    /// Whether a key right behind `k` may be inserted.
    fn may_insert_behind(&self, k: u8) -> bool {
        let new = [k, 5];
        self.check_insert_at((TABLE, INDEX), key(k + 1), &new, &new) == InsertCheck::Granted
    }

    fn use_table(&mut self) {
        self.intent(TABLE, TableMode::IX).unwrap();
    }
}

fn users(n: u16) -> Vec<LockOwner> {
    let mut all = owners(small(), n);
    all.iter_mut().for_each(LockOwner::use_table);
    all
}

#[test]
fn a_range_excludes_what_its_keys_and_gaps_would() {
    let mut o = users(3);
    assert!(o[0].scan(2, 5, KeyMode::S));
    for k in 0..KEYS {
        let inside = (2..=5).contains(&k);
        assert_eq!(o[1].try_at(k, RecordMode::X).is_err(), inside, "{k}");
        assert!(o[2].try_at(k, RecordMode::S).is_ok() == inside, "{k}");
        // Behind 5 the range ends.
        assert_eq!(o[1].may_insert_behind(k), !(2..5).contains(&k), "{k}");
        assert!(o[0].may_insert_behind(k), "its own range");
        for owner in &mut o[1..] {
            owner.release_all();
            owner.use_table();
        }
    }
    // What was refused has left nothing behind.
    assert!(o[0].try_at(3, RecordMode::X).is_ok());
    assert!(o[1].try_at(3, RecordMode::S).is_err());
    o[0].release_all();
    assert!(o[1].try_at(3, RecordMode::X).is_ok() && o[1].may_insert_behind(3));
    let locks = Arc::clone(&o[0].locks);
    drop(o);
    assert_idle(&locks);
}

#[test]
fn an_exclusive_range_excludes_readers_of_all_kinds() {
    let mut o = users(3);
    assert!(o[0].scan(2, 5, KeyMode::X));
    assert!(o[1].try_at(2, RecordMode::S).is_err() && o[1].try_at(5, RecordMode::U).is_err());
    assert!(!o[1].try_instant_s_at(key_at(&[4])) && o[1].try_instant_s_at(key_at(&[6])));
    assert!(o[1].try_at(6, RecordMode::X).is_ok());
    assert!(!o[1].scan(5, 5, KeyMode::S) && !o[1].scan(1, 2, KeyMode::X) && o[1].scan(6, 7, KeyMode::S));
    assert!(o[0].try_instant_s_at(key_at(&[4])), "its own");
}

#[test]
fn a_range_meets_locks_on_records_and_gaps() {
    let mut o = users(3);
    o[1].take(key(3), RecordMode::X);
    assert!(!o[0].scan(2, 5, KeyMode::S));
    // What was begun and dropped holds nothing.
    assert!(o[2].try_at(4, RecordMode::X).is_ok());
    o[2].release_all();
    o[2].use_table();
    assert!(o[0].scan(4, 5, KeyMode::S));
    o[2].take(key(6), RecordMode::U);
    assert!(!o[0].scan(6, 7, KeyMode::S), "S is not granted beside U");
    assert!(o[0].scan(7, 7, KeyMode::S) && o[2].try_at(7, RecordMode::U).is_ok(), "U is granted beside S");
}

#[test]
fn a_wait_for_a_range_has_a_place_in_the_queue_of_the_record() {
    let mut o = users(4);
    assert!(o[0].scan(2, 5, KeyMode::S));
    assert!(o[1].start_at(3, RecordMode::X).is_none());
    // Later readers wait behind the writer, by ranges and by records.
    assert!(!o[2].scan(2, 5, KeyMode::S) && o[2].try_at(3, RecordMode::S).is_err());
    assert!(o[2].start_at(3, RecordMode::S).is_none());
    // The reader itself goes first, as with a lock on the record.
    assert!(o[0].scan(3, 4, KeyMode::S) && o[0].try_at(3, RecordMode::S).is_ok());
    assert!(o[0].try_at(3, RecordMode::X).is_ok());
    assert!(o[1].poll_if_waiting().is_none());
    o[0].release_all();
    assert!(matches!(o[1].poll(), Some(Ok(Acquired::New))));
    assert!(o[2].poll().is_none());
    o[1].release_all();
    assert!(matches!(o[2].poll(), Some(Ok(Acquired::New))));
    let locks = Arc::clone(&o[0].locks);
    drop(o);
    assert_idle(&locks);
}

impl LockOwner {
    fn poll_if_waiting(&mut self) -> Option<Result<Acquired, LockRefusal>> {
        if self.pending.is_some() { self.poll() } else { None }
    }
}

#[test]
fn an_insert_waits_for_a_range_and_later_scans_for_the_insert() {
    let mut o = users(3);
    assert!(o[0].scan(2, 5, KeyMode::S));
    let new = [3, 5];
    o[1].write_down_gap(&key_at(&new), key(4));
    assert!(o[1].start_insert(key(4), Prefix::of(&new)).is_none());
    assert!(!o[2].scan(3, 6, KeyMode::S), "overtakes the insert");
    o[0].release_all();
    assert!(o[1].poll().is_some() && o[1].may_insert_behind(3));
    assert!(!o[2].scan(3, 6, KeyMode::S), "the insert keeps its place");
}

#[test]
fn deadlocks_through_ranges_are_found() {
    let mut o = users(2);
    assert!(o[0].scan(1, 3, KeyMode::S) && o[1].scan(5, 7, KeyMode::S));
    assert!(o[0].start_at(6, RecordMode::X).is_none());
    assert!(matches!(o[1].start_at(2, RecordMode::X), Some(Err(LockRefusal::Deadlock { table: TABLE }))));
    o[1].release_all();
    assert!(matches!(o[0].poll(), Some(Ok(_))));
    o[0].release_all();

    // Two that have read a range and both write in it: as with locks on records one of them is the victim.
    o.iter_mut().for_each(LockOwner::use_table);
    assert!(o[0].scan(1, 3, KeyMode::S) && o[1].scan(1, 3, KeyMode::S));
    assert!(o[0].start_at(2, RecordMode::X).is_none());
    assert!(matches!(o[1].start_at(2, RecordMode::X), Some(Err(LockRefusal::Deadlock { .. }))));
    o[1].release_all();
    assert!(matches!(o[0].poll(), Some(Ok(_))));
    let locks = Arc::clone(&o[0].locks);
    drop(o);
    assert_idle(&locks);
}

#[test]
fn seats_and_ranges_run_out() {
    let options = LockOptions { slots: 80, ..small() };
    let mut all = owners(options, 66);
    all.iter_mut().for_each(LockOwner::use_table);
    assert!(all[1].scan(1, 2, KeyMode::S));
    assert!(!all[65].scan(1, 2, KeyMode::S), "the seat is taken");
    all[1].release_all();
    assert!(all[65].scan(1, 2, KeyMode::S));
    let locks = Arc::clone(&all[0].locks);
    for i in 0..=MOST as u16 {
        let low = [9, (i / 256) as u8, i as u8, 0];
        match locks.open_range(&mut all[2], (TABLE, INDEX), KeyMode::S, span(&low, &low)) {
            Opened::Range(range) => range.keep(span(&low, &low)),
            Opened::Held => panic!("{i} is held"),
            Opened::Rows => assert_eq!(usize::from(i), MOST),
        }
    }
    drop(all);
    assert_idle(&locks);
}

#[test]
fn adjacent_ranges_are_one() {
    let mut o = users(2);
    for k in [4, 5, 3, 2, 6] {
        let (low, next) = ([k], [k + 1]);
        let part = Span { low: &low, high: Bound::Excluded(&next) };
        let locks = Arc::clone(&o[0].locks);
        let Opened::Range(range) = locks.open_range(&mut o[0], (TABLE, INDEX), KeyMode::S, part) else { panic!() };
        range.keep(part);
    }
    let whole = span(&[2], &[6]);
    let locks = Arc::clone(&o[0].locks);
    assert!(matches!(locks.open_range(&mut o[0], (TABLE, INDEX), KeyMode::S, whole), Opened::Held));
    assert!(o[1].try_at(1, RecordMode::X).is_ok() && o[1].try_at(7, RecordMode::X).is_ok());
    assert!((2..7).all(|k| o[1].try_at(k, RecordMode::X).is_err()));
}

/// Gives up every wait at once.
#[derive(Debug)]
struct GivesUp;

impl Hook for GivesUp {
    fn block(&self, _: &WaitToken, _: BlockReason) {
        panic!("a wait that was given up is over");
    }

    fn block_for(&self, _: &WaitToken, _: BlockReason, _: Duration) -> bool {
        false
    }

    fn wake(&self, token: &WaitToken) {
        token.set_woken();
    }
}

fn impatient(n: u16) -> Vec<LockOwner> {
    let options = LockOptions { timeout: Some(Duration::from_millis(7)), ..small() };
    let mut all = attach(&LockTable::new(options, Arc::new(GivesUp)).unwrap(), n);
    all.iter_mut().for_each(LockOwner::use_table);
    all
}

#[test]
fn a_wait_for_a_range_that_lasts_too_long_names_the_holder() {
    let mut o = impatient(2);
    o[0].run_by(5);
    assert!(o[0].scan(2, 5, KeyMode::S));
    let new = [3, 5];
    for _ in 0..2 {
        let waits = [
            o[1].acquire_wait_at(&key_at(&[3]), RecordMode::X, Prefix::MIN).map(drop),
            o[1].wait_insert_at(&key_at(&new), key(4)),
        ];
        for wait in waits {
            let Err(LockRefusal::TimedOut { holder: Some(holder) }) = wait else { panic!("{wait:?}") };
            assert_eq!((holder.age, holder.task), (crate::base::ids::Age(0), 5));
        }
    }
    o[0].release_all();
    o[1].acquire_wait_at(&key_at(&[3]), RecordMode::X, Prefix::MIN).unwrap();
    let locks = Arc::clone(&o[0].locks);
    drop(o);
    assert_idle(&locks);
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Scan(u16, u8, u8, KeyMode),
    Row(u16, u8, KeyMode),
    Wait(u16, u8, KeyMode),
    Insert(u16, u8),
    End(u16),
}

fn op() -> impl Strategy<Value = Op> {
    let owner = 0..4u16;
    let mode = || prop::sample::select(vec![KeyMode::S, KeyMode::U, KeyMode::X]);
    prop_oneof![
        4 => (owner.clone(), 0..KEYS, 0..KEYS, any::<bool>()).prop_map(|(o, a, b, write)| {
            Op::Scan(o, a.min(b), a.max(b), if write { KeyMode::X } else { KeyMode::S })
        }),
        4 => (owner.clone(), 0..KEYS, mode()).prop_map(|(o, k, m)| Op::Row(o, k, m)),
        2 => (owner.clone(), 0..KEYS, mode()).prop_map(|(o, k, m)| Op::Wait(o, k, m)),
        2 => (owner.clone(), 0..KEYS).prop_map(|(o, k)| Op::Insert(o, k)),
        1 => owner.prop_map(Op::End),
    ]
}

/// What each owner has: a mode for each key, and the gaps behind keys.
#[derive(Clone, Default)]
struct Held {
    keys: [KeyMode; KEYS as usize],
    gaps: [bool; KEYS as usize],
}

fn excludes(held: KeyMode, asked: KeyMode) -> bool {
    let claim = |key| GapMode { mode: RecordMode::new(key, false), low: Prefix::MIN };
    claim(held).excludes(claim(asked))
}

proptest! {
    #![proptest_config(cases(600))]

    /// Against a model that has a mode for each key: a lock is granted, by a range or on a record, exactly when no other owner's
    /// excludes it, and what is refused leaves nothing behind.
    #[test]
    fn ranges_are_locks_on_each_key_and_gap(ops in prop::collection::vec(op(), 1..60)) {
        let mut o = impatient(4);
        let locks = Arc::clone(&o[0].locks);
        let mut model: [Held; 4] = Default::default();
        for op in ops {
            let free = |model: &[Held; 4], me: u16, k: u8, mode: KeyMode| {
                let k = usize::from(k);
                let others = || (0..4).filter(|&i| i != usize::from(me));
                model[usize::from(me)].keys[k] >= mode || others().all(|i| !excludes(model[i].keys[k], mode))
            };
            match op {
                Op::Scan(me, low, high, mode) => {
                    let all_free = (low..=high).all(|k| free(&model, me, k, mode));
                    let got = o[usize::from(me)].scan(low, high, mode);
                    prop_assert!(!got || all_free, "{op:?}");
                    // A scan is also refused where another's exclusive range lies beside keys that are its own.
                    if got {
                        for k in low..=high {
                            let held = &mut model[usize::from(me)];
                            held.keys[usize::from(k)] = held.keys[usize::from(k)].max(mode);
                            held.gaps[usize::from(k)] |= k < high;
                        }
                    } else {
                        let overlaps = |i: usize| (low..=high).any(|k| model[i].keys[usize::from(k)] >= KeyMode::S);
                        prop_assert!((0..4).any(|i| i != usize::from(me) && overlaps(i)), "{op:?} is refused");
                    }
                }
                Op::Row(me, k, mode) | Op::Wait(me, k, mode) => {
                    let owner = &mut o[usize::from(me)];
                    let got = match op {
                        Op::Row(..) => owner.try_at(k, RecordMode::new(mode, false)).is_ok(),
                        _ => owner.acquire_wait_at(&key_at(&[k]), RecordMode::new(mode, false), Prefix::MIN).is_ok(),
                    };
                    prop_assert_eq!(got, free(&model, me, k, mode), "{:?}", op);
                    if got {
                        let held = &mut model[usize::from(me)].keys[usize::from(k)];
                        *held = (*held).max(mode);
                    }
                }
                Op::Insert(me, k) => {
                    let blocked = (0..4).any(|i| i != usize::from(me) && model[i].gaps[usize::from(k)]);
                    prop_assert_eq!(o[usize::from(me)].may_insert_behind(k), !blocked, "{:?}", op);
                }
                Op::End(me) => {
                    o[usize::from(me)].release_all();
                    o[usize::from(me)].use_table();
                    model[usize::from(me)] = Held::default();
                }
            }
        }
        drop(o);
        assert_idle(&locks);
    }
}

/// Money moves between accounts that scans add up; some scans write all of them.
#[test]
fn sums_of_ranges_are_consistent() {
    const ROUNDS: u32 = if cfg!(miri) { 5 } else { 4_000 };
    let locks = on_threads(small());
    let accounts: [AtomicI64; KEYS as usize] = Default::default();
    std::thread::scope(|scope| {
        for slot in 0..4u16 {
            let (accounts, mut owner) = (&accounts, locks.attach(SlotId(slot)));
            scope.spawn(move || {
                let mut state = u64::from(slot) + 1;
                let mut below = |n: u64| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) % n
                };
                for round in 0..ROUNDS {
                    owner.begin(u64::from(round) * 4 + u64::from(slot));
                    owner.use_table();
                    match below(3) {
                        0 => transfer(&mut owner, accounts, below(KEYS.into()) as u8, below(KEYS.into()) as u8),
                        kind => {
                            let mode = if kind == 1 { KeyMode::S } else { KeyMode::X };
                            if owner.scan(0, KEYS - 1, mode) {
                                let sum: i64 = accounts.iter().map(|a| a.load(Ordering::Relaxed)).sum();
                                assert_eq!(sum, 0);
                                if mode == KeyMode::X {
                                    accounts[0].fetch_add(7, Ordering::Relaxed);
                                    accounts[usize::from(KEYS) - 1].fetch_sub(7, Ordering::Relaxed);
                                }
                            }
                        }
                    }
                    owner.release_all();
                }
            });
        }
    });
    assert_idle(&locks);

    fn transfer(owner: &mut LockOwner, accounts: &[AtomicI64], from: u8, to: u8) {
        let lock =
            |owner: &mut LockOwner, k: u8| owner.acquire_wait_at(&key_at(&[k]), RecordMode::X, Prefix::MIN).is_ok();
        if lock(owner, from) && lock(owner, to) {
            accounts[usize::from(from)].fetch_sub(3, Ordering::Relaxed);
            std::thread::yield_now();
            accounts[usize::from(to)].fetch_add(3, Ordering::Relaxed);
        }
    }
}
