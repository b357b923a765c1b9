//! Comparison of record locks with a simple model: a plain vector of holders and waiters per name, with all rules
//! implemented again.

use proptest::prelude::*;

use super::*;
use crate::lock::{InsertCheck, KeyMode, NotGranted};

const OWNERS: u16 = 5;
const NAMES: u8 = 3;

#[derive(Clone, Debug)]
enum Op {
    Acquire { owner: usize, name: u8, key: u8, low: Option<u8> },
    TryAcquire { owner: usize, name: u8, key: u8, low: Option<u8> },
    Insert { owner: usize, name: u8, at: u8 },
    CheckInsert { owner: usize, name: u8, at: u8 },
    Instant { owner: usize, name: u8 },
    ReleaseOne { owner: usize, name: u8 },
    ReleaseAll { owner: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let owner = 0..OWNERS as usize;
    let mode = || (0..4u8, prop::option::weighted(0.4, 0..4u8));
    prop_oneof![
        6 => (owner.clone(), 0..NAMES, mode()).prop_map(|(owner, name, (key, low))| Op::Acquire { owner, name, key, low }),
        3 => (owner.clone(), 0..NAMES, mode()).prop_map(|(owner, name, (key, low))| Op::TryAcquire { owner, name, key, low }),
        3 => (owner.clone(), 0..NAMES, 0..4u8).prop_map(|(owner, name, at)| Op::Insert { owner, name, at }),
        1 => (owner.clone(), 0..NAMES, 0..4u8).prop_map(|(owner, name, at)| Op::CheckInsert { owner, name, at }),
        1 => (owner.clone(), 0..NAMES).prop_map(|(owner, name)| Op::Instant { owner, name }),
        1 => (owner.clone(), 0..NAMES).prop_map(|(owner, name)| Op::ReleaseOne { owner, name }),
        2 => owner.prop_map(|owner| Op::ReleaseAll { owner }),
    ]
}

/// A lock or a request of the model: key part 0..=3, gap from `low`, insert at `at`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Want {
    key: u8,
    low: Option<u8>,
    at: Option<u8>,
}

impl Want {
    fn stops(self, other: Want) -> bool {
        let keys = match (self.key, other.key) {
            (0, _) | (_, 0) => false,
            (1, asked) => asked == 3,
            (2 | 3, _) => true,
            _ => unreachable!(),
        };
        let gap = |low: Option<u8>, at: Option<u8>| low.is_some_and(|low| at.is_some_and(|at| at >= low));
        keys || gap(self.low, other.at) || gap(other.low, self.at)
    }

    fn plus(self, other: Want) -> Want {
        let low = match (self.low, other.low) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Want { key: self.key.max(other.key), low, at: self.at.or(other.at) }
    }

    /// Removes the parts that `held` also contains.
    fn minus(self, held: Want) -> Want {
        let key = if self.key > held.key { self.key } else { 0 };
        let low = self.low.filter(|&low| held.low.is_none_or(|have| low < have));
        Want { key, low, at: self.at }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    owner: usize,
    held: Option<Want>,
    waits: Option<Want>,
    since: u64,
}

impl Entry {
    fn is_insert(&self) -> bool {
        self.held.or(self.waits).is_some_and(|want| want.at.is_some())
    }

    /// Returns the sort key of the queue order: conversions first, then in order of arrival.
    fn rank(&self) -> (bool, u64) {
        (self.held.is_none(), self.since)
    }
}

#[derive(Clone, Default)]
struct Model {
    names: Vec<Vec<Entry>>,
    now: u64,
}

impl Model {
    fn own(&mut self, name: u8, owner: usize) -> Option<&mut Entry> {
        self.names[name as usize].iter_mut().find(|e| e.owner == owner && !e.is_insert() && e.held.is_some())
    }

    /// Returns the owners that a request waits for. `rank` is the position of the request in the queue.
    fn blockers(&self, name: u8, owner: usize, beyond: Want, rank: (bool, u64)) -> Vec<usize> {
        let entries = &self.names[name as usize];
        let mut found = Vec::new();
        for other in entries.iter().filter(|e| e.owner != owner) {
            let holds = other.held.is_some_and(|held| held.stops(beyond));
            let ahead = other.waits.is_some_and(|waits| {
                let missing = waits.minus(other.held.unwrap_or_default());
                let waits_for_me =
                    entries.iter().any(|e| e.owner == owner && e.held.is_some_and(|held| held.stops(missing)));
                other.rank() < rank && waits.stops(beyond) && !waits_for_me
            });
            if holds || ahead {
                found.push(other.owner);
            }
        }
        found
    }

    fn waits_for(&self, owner: usize) -> Vec<usize> {
        for (name, entries) in self.names.iter().enumerate() {
            for e in entries.iter().filter(|e| e.owner == owner) {
                if let Some(waits) = e.waits {
                    return self.blockers(name as u8, owner, waits.minus(e.held.unwrap_or_default()), e.rank());
                }
            }
        }
        Vec::new()
    }

    fn is_waiting(&self, owner: usize) -> bool {
        self.names.iter().flatten().any(|e| e.owner == owner && e.waits.is_some())
    }

    fn grant_all(&mut self, name: u8) {
        loop {
            let mut waiting: Vec<Entry> =
                self.names[name as usize].iter().filter(|e| e.waits.is_some()).copied().collect();
            waiting.sort_by_key(Entry::rank);
            let free = waiting.iter().find(|e| {
                let waits = e.waits.unwrap();
                self.blockers(name, e.owner, waits.minus(e.held.unwrap_or_default()), e.rank()).is_empty()
            });
            let Some(free) = free else { return };
            let (owner, since) = (free.owner, free.since);
            let entry = self.names[name as usize]
                .iter_mut()
                .find(|e| e.owner == owner && e.waits.is_some() && e.since == since)
                .unwrap();
            entry.held = entry.waits.take();
        }
    }

    /// Acquires a lock. Returns `Some(how)` if the lock was granted, or `None` if the request would have to wait.
    fn acquire(&mut self, name: u8, owner: usize, want: Want, queue: bool) -> Option<Acquired> {
        self.now += 1;
        let now = self.now;
        let held = self.own(name, owner).map(|e| e.held.unwrap());
        let target = want.plus(held.unwrap_or_default());
        if held == Some(target) {
            return Some(Acquired::Already);
        }
        let beyond = target.minus(held.unwrap_or_default());
        let free = self.blockers(name, owner, beyond, (held.is_none(), now)).is_empty();
        if !free && !queue {
            return None;
        }
        if held.is_none() {
            self.names[name as usize].push(Entry { owner, held: None, waits: None, since: now });
        }
        let entry = self.names[name as usize]
            .iter_mut()
            .find(|e| e.owner == owner && e.held == held && !e.is_insert())
            .unwrap();
        entry.since = now;
        if free {
            entry.held = Some(target);
            return Some(if held.is_none() { Acquired::New } else { Acquired::Converted });
        }
        entry.waits = Some(target);
        None
    }

    fn insert(&mut self, name: u8, owner: usize, at: u8, queue: bool) -> bool {
        self.now += 1;
        let want = Want { at: Some(at), ..Want::default() };
        if self.blockers(name, owner, want, (true, self.now)).is_empty() {
            return true;
        }
        if queue {
            self.names[name as usize].push(Entry { owner, held: None, waits: Some(want), since: self.now });
        }
        false
    }

    fn withdraw(&mut self, owner: usize) {
        for name in 0..NAMES {
            for e in self.names[name as usize].iter_mut().filter(|e| e.owner == owner) {
                e.waits = None;
            }
            self.names[name as usize].retain(|e| e.held.is_some() || e.waits.is_some());
            self.grant_all(name);
        }
    }

    fn release(&mut self, owner: usize, only: Option<u8>) {
        for name in 0..NAMES {
            if only.is_none_or(|n| n == name) {
                self.names[name as usize].retain(|e| e.owner != owner || (only.is_some() && e.is_insert()));
                self.grant_all(name);
            }
        }
    }

    /// Returns the youngest members of all cycles through `owner`.
    fn victims(&self, owner: usize) -> Vec<usize> {
        let mut victims = Vec::new();
        let mut path = vec![owner];
        self.walk(owner, &mut path, &mut victims);
        victims
    }

    fn walk(&self, start: usize, path: &mut Vec<usize>, victims: &mut Vec<usize>) {
        for next in self.waits_for(*path.last().unwrap()) {
            if next == start {
                victims.extend(path.iter().max());
            } else if !path.contains(&next) {
                path.push(next);
                self.walk(start, path, victims);
                path.pop();
            }
        }
    }
}

/// Returns the locks of one name in the lock table, in the terms of the model, sorted.
fn real(locks: &LockTable, name: LockName) -> Vec<String> {
    let list = locks.buckets.of(name).latch();
    let want = |claim: crate::lock::mode::GapMode| {
        let byte = claim.low.to_bytes()[0];
        Want {
            key: claim.mode.key() as u8,
            low: claim.mode.gap().then_some(byte),
            at: claim.mode.is_insert().then_some(byte),
        }
    };
    let mut found: Vec<String> = list
        .iter()
        .filter(|r| r.name.get() == name)
        .map(|r| {
            let held = (!r.held.get().is_none()).then(|| want(r.holds()));
            let waits = r.waiting.get().then(|| want(r.wants()));
            format!("{} holds {held:?} waits for {waits:?}", r.owner)
        })
        .collect();
    found.sort();
    found
}

fn expected(entries: &[Entry]) -> Vec<String> {
    let mut all: Vec<String> =
        entries.iter().map(|e| format!("{} holds {:?} waits for {:?}", e.owner, e.held, e.waits)).collect();
    all.sort();
    all
}

fn mode_of(key: u8, low: Option<u8>) -> (RecordMode, Prefix) {
    let key = [KeyMode::None, KeyMode::S, KeyMode::U, KeyMode::X][usize::from(key)];
    (RecordMode::new(key, low.is_some()), low.map_or(Prefix::MIN, at))
}

fn run(ops: Vec<Op>, buckets: usize) {
    let mut owners = owners(LockOptions { buckets, ..small() }, OWNERS);
    let locks = owners[0].locks.clone();
    let mut model = Model { names: vec![Vec::new(); NAMES.into()], now: 0 };
    for op in ops {
        let owner = match op {
            Op::Acquire { owner, .. }
            | Op::TryAcquire { owner, .. }
            | Op::Insert { owner, .. }
            | Op::CheckInsert { owner, .. } => owner,
            Op::Instant { owner, .. } | Op::ReleaseOne { owner, .. } | Op::ReleaseAll { owner } => owner,
        };
        if owners[owner].pending.is_some() {
            continue;
        }
        let mut refused = None;
        let waits = match op {
            Op::Acquire { name, key: k, low, .. } if k > 0 || low.is_some() => {
                let (mode, prefix) = mode_of(k, low);
                let expected = model.acquire(name, owner, Want { key: k, low, at: None }, true);
                let got = owners[owner].start(key(name), mode, prefix);
                match got {
                    Some(Err(LockRefusal::Deadlock { .. })) => refused = Some(owner),
                    // The request was queued first, and then granted because a victim ahead of it was aborted.
                    Some(Ok(_)) if expected.is_none() => {}
                    got => assert_eq!(got.map(Result::unwrap), expected, "{op:?}"),
                }
                expected.is_none()
            }
            Op::TryAcquire { name, key: k, low, .. } if k > 0 || low.is_some() => {
                let (mode, prefix) = mode_of(k, low);
                let expected = model.acquire(name, owner, Want { key: k, low, at: None }, false);
                let got = owners[owner].try_acquire(TABLE, key(name), mode, prefix);
                assert_eq!(got, expected.ok_or(NotGranted::WouldBlock), "{op:?}");
                false
            }
            Op::Acquire { .. } | Op::TryAcquire { .. } => false,
            Op::Insert { name, at: place, .. } => {
                let expected = model.insert(name, owner, place, true);
                match owners[owner].start_insert(key(name), at(place)) {
                    Some(Err(LockRefusal::Deadlock { .. })) => refused = Some(owner),
                    Some(Ok(_)) if !expected => {}
                    got => assert_eq!(got.is_some(), expected, "{op:?}"),
                }
                !expected
            }
            Op::CheckInsert { name, at: place, .. } => {
                let free = model.insert(name, owner, place, false);
                let low = model.own(name, owner).and_then(|e| e.held.unwrap().low).filter(|&low| low <= place);
                let expected = match (free, low) {
                    (false, _) => InsertCheck::Blocked,
                    (true, Some(low)) => InsertCheck::OwnGap(at(low)),
                    (true, None) => InsertCheck::Granted,
                };
                assert_eq!(owners[owner].check_insert(TABLE, key(name), at(place)), expected, "{op:?}");
                false
            }
            Op::Instant { name, .. } => {
                let free = model.names[name as usize]
                    .iter()
                    .all(|e| e.owner == owner || e.held.is_none_or(|held| held.key < 2));
                let free = free || model.own(name, owner).is_some_and(|e| e.held.is_some_and(|held| held.key > 0));
                assert_eq!(owners[owner].try_instant_s(TABLE, key(name)), free, "{op:?}");
                false
            }
            Op::ReleaseOne { name, .. } => {
                assert_eq!(owners[owner].release_one(TABLE, key(name)), model.own(name, owner).is_some());
                model.release(owner, Some(name));
                false
            }
            Op::ReleaseAll { .. } => {
                owners[owner].release_all();
                owners[owner].begin(owner as u64);
                model.release(owner, None);
                false
            }
        };
        // Each victim must be the youngest of some cycle through the requester, and no cycle may be left.
        let mut ended: Vec<usize> = refused.into_iter().collect();
        for (other, o) in owners.iter_mut().enumerate() {
            if o.pending.is_some() && matches!(o.shared().outcome(), WaitOutcome::Deadlock) {
                assert!(matches!(o.poll(), Some(Err(LockRefusal::Deadlock { .. }))));
                ended.push(other);
            }
        }
        assert!(waits || ended.is_empty(), "{op:?}: victims {ended:?} without a wait");
        model = explain(&model, &ended, |m: &Model| m.victims(owner), Model::withdraw)
            .unwrap_or_else(|| panic!("{op:?}: {ended:?} die, {:?} might", model.victims(owner)));
        assert_eq!(model.victims(owner), [], "{op:?}: a deadlock is left");
        for (other, o) in owners.iter_mut().enumerate() {
            let waits = o.pending.is_some() && o.poll().is_none();
            assert_eq!(waits, model.is_waiting(other), "{op:?}: owner {other}");
        }
        for name in 0..NAMES {
            assert_eq!(real(&locks, key(name)), expected(&model.names[name as usize]), "{op:?}: name {name}");
            for (other, o) in owners.iter().enumerate().filter(|(_, o)| o.pending.is_none()) {
                let held = model
                    .own(name, other)
                    .map_or(RecordMode::NONE, |e| mode_of(e.held.unwrap().key, e.held.unwrap().low).0);
                assert_eq!(o.held(key(name)), held);
            }
        }
    }
    drop(owners);
    assert_idle(&locks);
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn agrees_with_the_model(ops in prop::collection::vec(op(), 1..60), buckets in prop_oneof![Just(2usize), Just(1024)]) {
        run(ops, buckets);
    }
}

/// Regression test for a failure of [`agrees_with_the_model`]: the owner's U lock was released first, and owner 3 was
/// granted the lock. But the owner's request to insert still blocked owner 1, which was ahead of owner 3 in the queue.
#[test]
fn nobody_is_overtaken_between_two_releases_of_one_owner() {
    let ops = [
        Op::TryAcquire { owner: 0, name: 0, key: 2, low: None },
        Op::Acquire { owner: 1, name: 0, key: 1, low: Some(0) },
        Op::TryAcquire { owner: 2, name: 0, key: 0, low: Some(0) },
        Op::Insert { owner: 0, name: 0, at: 0 },
        Op::Acquire { owner: 3, name: 0, key: 2, low: None },
        Op::ReleaseAll { owner: 2 },
        Op::ReleaseAll { owner: 0 },
    ];
    run(ops.to_vec(), 2);
}
