//! Comparison of table locks with a simple model: a vector of holders and a vector of waiters for each table.

use proptest::prelude::*;

use super::*;

const OWNERS: usize = 5;
const TABLES: u32 = 3;
const MODES: [TableMode; 5] = [TableMode::IS, TableMode::IX, TableMode::S, TableMode::SIX, TableMode::X];

#[derive(Clone, Debug)]
enum Op {
    Lock {
        owner: usize,
        table: u32,
        mode: TableMode,
    },
    /// Intention lock that is requested through the fast path, if the model would grant it.
    Intent {
        owner: usize,
        table: u32,
        mode: TableMode,
    },
    ReleaseAll {
        owner: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..OWNERS, 0..TABLES, 0..5usize).prop_map(|(owner, table, mode)| Op::Lock { owner, table, mode: MODES[mode] }),
        4 => (0..OWNERS, 0..TABLES, 0..2usize).prop_map(|(owner, table, mode)| Op::Intent { owner, table, mode: MODES[mode] }),
        2 => (0..OWNERS).prop_map(|owner| Op::ReleaseAll { owner }),
    ]
}

#[derive(Clone, Default)]
struct Model {
    held: [[TableMode; TABLES as usize]; OWNERS],
    /// Waiting requests (table, owner, requested mode, true for a conversion): conversions first, then in order of arrival.
    waits: Vec<(u32, usize, TableMode, bool)>,
}

impl Model {
    fn blockers(&self, table: u32, owner: usize, want: TableMode, converts: bool, ahead: usize) -> Vec<usize> {
        let mine = self.held[owner][table as usize];
        let holders = (0..OWNERS).filter(|&o| o != owner && !self.held[o][table as usize].compatible(want));
        let waiters = self.waits[..ahead].iter().filter(|w| w.0 == table && (w.3 || !converts));
        let waiters = waiters.filter(|w| !w.2.compatible(want) && w.2.compatible(mine)).map(|w| w.1);
        holders.chain(waiters).collect()
    }

    fn lock(&mut self, table: u32, owner: usize, mode: TableMode) -> bool {
        let held = self.held[owner][table as usize];
        let want = held.union(mode);
        let converts = held != TableMode::None;
        if want == held || self.blockers(table, owner, want, converts, self.waits.len()).is_empty() {
            self.held[owner][table as usize] = want;
            return true;
        }
        let at = self.waits.iter().position(|w| w.0 == table && converts && !w.3).unwrap_or(self.waits.len());
        self.waits.insert(at, (table, owner, want, converts));
        false
    }

    fn grant(&mut self) {
        while let Some(at) = (0..self.waits.len()).find(|&i| {
            let (table, owner, want, converts) = self.waits[i];
            self.blockers(table, owner, want, converts, i).is_empty()
        }) {
            let (table, owner, want, _) = self.waits.remove(at);
            self.held[owner][table as usize] = want;
        }
    }

    fn withdraw(&mut self, owner: usize) {
        self.waits.retain(|w| w.1 != owner);
        self.grant();
    }

    fn victims(&self, owner: usize) -> Vec<usize> {
        let mut victims = Vec::new();
        self.walk(owner, &mut vec![owner], &mut victims);
        victims
    }

    fn walk(&self, start: usize, path: &mut Vec<usize>, victims: &mut Vec<usize>) {
        let here = path[path.len() - 1];
        let Some(at) = self.waits.iter().position(|w| w.1 == here) else { return };
        let (table, owner, want, converts) = self.waits[at];
        for next in self.blockers(table, owner, want, converts, at) {
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

fn run(ops: Vec<Op>) {
    let mut owners = owners(small(), OWNERS as u16);
    let locks = owners[0].locks.clone();
    let mut model = Model::default();
    for op in ops {
        let (Op::Lock { owner, .. } | Op::Intent { owner, .. } | Op::ReleaseAll { owner }) = op;
        if owners[owner].pending.is_some() {
            continue;
        }
        let mut ended = Vec::new();
        match op {
            Op::Lock { table, mode, .. } => {
                let granted = model.lock(table, owner, mode);
                match owners[owner].start_table(table, mode) {
                    Some(Err(LockRefusal::Deadlock { .. })) => ended.push(owner),
                    // The request was queued first, and then granted because a victim ahead of it was aborted.
                    Some(Ok(_)) if !granted => {}
                    got => assert_eq!(got.is_some(), granted, "{op:?}"),
                }
            }
            Op::Intent { table, mode, .. } => {
                let held = model.held[owner][table as usize];
                let (want, converts) = (held.union(mode), held != TableMode::None);
                let blockers = || model.blockers(table, owner, want, converts, model.waits.len());
                if want == held || blockers().is_empty() {
                    assert!(model.lock(table, owner, mode));
                    owners[owner].intent(table, mode).unwrap();
                }
            }
            Op::ReleaseAll { .. } => {
                owners[owner].release_all();
                owners[owner].begin(owner as u64);
                model.held[owner] = Default::default();
                model.grant();
            }
        }
        for (other, o) in owners.iter_mut().enumerate() {
            if o.pending.is_some() && o.shared().outcome() == WaitOutcome::Deadlock {
                assert!(o.poll().unwrap().is_err());
                ended.push(other);
            }
        }
        model = explain(&model, &ended, |m: &Model| m.victims(owner), Model::withdraw)
            .unwrap_or_else(|| panic!("{op:?}: {ended:?} die, {:?} might", model.victims(owner)));
        assert_eq!(model.victims(owner), [], "{op:?}: a deadlock is left");
        for (other, o) in owners.iter_mut().enumerate() {
            let waits = o.pending.is_some() && o.poll().is_none();
            assert_eq!(waits, model.waits.iter().any(|w| w.1 == other), "{op:?}: owner {other}");
            for table in 0..TABLES {
                assert_eq!(o.mode(table), model.held[other][table as usize], "{op:?}: owner {other} table {table}");
            }
        }
    }
    drop(owners);
    assert_idle(&locks);
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn agrees_with_the_model(ops in prop::collection::vec(op(), 1..60)) {
        run(ops);
    }
}
