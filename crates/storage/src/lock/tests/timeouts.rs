//! Tests of waits that reach their time limit: locks held before stay held, and the wait leaves no request.

use proptest::prelude::*;

use super::*;

/// Hook whose waits all end at once without a wake.
#[derive(Debug)]
struct GivesUp;

impl Hook for GivesUp {
    fn block(&self, _: &WaitToken, _: BlockReason) {
        panic!("a wait that was given up is over");
    }

    fn block_for(&self, _: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        assert_eq!((reason, limit), (BlockReason::Lock, LIMIT));
        false
    }

    fn wake(&self, token: &WaitToken) {
        token.set_woken();
    }
}

const LIMIT: Duration = Duration::from_millis(7);

fn given_up(n: u16) -> Vec<LockOwner> {
    attach(&LockTable::new(LockOptions { timeout: Some(LIMIT), ..small() }, Arc::new(GivesUp)).unwrap(), n)
}

#[test]
fn the_holder_is_named_and_the_wait_is_gone() {
    let mut all = given_up(2);
    let locks = Arc::clone(&all[0].locks);
    let [a, b] = all.as_mut_slice() else { unreachable!() };
    a.intent(TABLE, TableMode::IX).unwrap();
    b.intent(TABLE, TableMode::IX).unwrap();
    a.run_by(5);
    a.take(key(1), RecordMode::X);
    match b.acquire_wait(TABLE, key(1), RecordMode::S, Prefix::MIN) {
        Err(LockRefusal::TimedOut { holder: Some(holder) }) => {
            assert_eq!((holder.age, holder.waits, holder.task), (crate::base::ids::Age(0), false, 5));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(b.held(key(1)), RecordMode::NONE);
    a.release_all();
    b.acquire_wait(TABLE, key(1), RecordMode::X, Prefix::MIN).unwrap();
    drop(all);
    assert_idle(&locks);
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Acquire(u16, u8, RecordMode),
    Insert(u16, u8),
    Table(u16, TableMode),
    End(u16),
}

const OWNERS: u16 = 4;

fn op() -> impl Strategy<Value = Op> {
    let (owner, name) = (0..OWNERS, 0..4u8);
    let mode = prop::sample::select(vec![RecordMode::S, RecordMode::U, RecordMode::X, RecordMode::GAP]);
    let table = prop::sample::select(vec![TableMode::IS, TableMode::IX, TableMode::S, TableMode::SIX, TableMode::X]);
    prop_oneof![
        6 => (owner.clone(), name.clone(), mode).prop_map(|(o, n, m)| Op::Acquire(o, n, m)),
        2 => (owner.clone(), name).prop_map(|(o, n)| Op::Insert(o, n)),
        2 => (owner.clone(), table).prop_map(|(o, m)| Op::Table(o, m)),
        1 => owner.prop_map(Op::End),
    ]
}

proptest! {
    #![proptest_config(cases(600))]
    #[test]
    fn a_wait_that_was_given_up_changes_nothing(ops in prop::collection::vec(op(), 1..60)) {
        let mut all = given_up(OWNERS);
        let locks = Arc::clone(&all[0].locks);
        for op in ops {
            let (Op::Acquire(at, ..) | Op::Insert(at, _) | Op::Table(at, _) | Op::End(at)) = op;
            let owner = &mut all[usize::from(at)];
            let state = |owner: &LockOwner| {
                ((0..4).map(|n| owner.held(key(n))).collect::<Vec<_>>(), owner.mode(TABLE), owner.tables.get(1).map_or(0, |t| t.records))
            };
            if owner.mode(TABLE) == TableMode::None && !matches!(op, Op::Table(..) | Op::End(_)) {
                let _ = owner.intent(TABLE, TableMode::IX);
                if owner.mode(TABLE) == TableMode::None {
                    continue;
                }
            }
            let before = state(owner);
            let result = match op {
                Op::Acquire(_, name, mode) => owner.acquire_wait(TABLE, key(name), mode, Prefix::MIN).map(drop),
                Op::Insert(_, name) => owner.wait_insert(TABLE, key(name), Prefix::MIN),
                Op::Table(_, mode) => owner.lock_table(TABLE, mode),
                Op::End(_) => { owner.release_all(); continue }
            };
            match result {
                Ok(()) => {}
                Err(LockRefusal::TimedOut { holder }) => {
                    prop_assert!(holder.is_some_and(|holder| holder.age != crate::base::ids::Age(u64::from(at))));
                    prop_assert_eq!(state(owner), before, "{:?}", op);
                }
                other => prop_assert!(false, "{other:?}"),
            }
            prop_assert!(all.iter().all(|owner| owner.pending.is_none()));
        }
        drop(all);
        assert_idle(&locks);
    }
}
