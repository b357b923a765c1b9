//! Guarantees of loops besides their results: other transactions, misuse, statistics, closures.
#![allow(clippy::unwrap_used, reason = "a test: a failure is told where it happens")]

mod common;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use common::{LARGE, Locks, Rows};
use speculate::{
    BuildError, Committer, Dependence, Epoch, Forwarding, LoopError, OpKind, Options, OptionsError, Seen, Speculator,
    Store, Writer, Written,
};

/// Increments a row.
fn count(epoch: &mut Epoch<'_, Rows>, key: u8) -> Result<u64, Infallible> {
    let value = epoch.get(&key)?.unwrap_or(0) + 1;
    epoch.put(key, value);
    Ok(value)
}

/// Sets a flag on drop, at the end of its scope or during a panic, to end the threads that run until the flag is set.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn no_update_of_another_transaction_is_lost() {
    let store = Rows::default();
    let done = AtomicBool::new(false);
    let others = AtomicU64::new(0);
    let mut loops = 0;
    std::thread::scope(|scope| {
        let _told = StopAtEnd(&done);
        scope.spawn(|| {
            let _told = StopAtEnd(&done);
            let mut key = 0;
            while !done.load(Ordering::Relaxed) {
                key = (key + 1) % 4;
                others.fetch_add(u64::from(store.count_up(key)), Ordering::Relaxed);
            }
        });
        let mut speculator = Speculator::new(Options::new().workers(3).grain(2)).unwrap();
        while loops < 300 || (others.load(Ordering::Relaxed) < 300 && !done.load(Ordering::Relaxed)) {
            let mut locks = Locks::default();
            speculator.run(&store, &mut locks, 0..20u8, |epoch, item| count(epoch, item % 4), |_, _| Ok(())).unwrap();
            store.commit(locks);
            loops += 1;
        }
    });
    assert_eq!(store.contents().values().sum::<u64>(), loops * 20 + others.into_inner());
}

#[test]
fn a_value_goes_from_epoch_to_epoch_and_results_come_in_order() {
    for workers in 1..5 {
        let store = Rows::default();
        let mut speculator = Speculator::new(Options::new().workers(workers)).unwrap();
        let mut results = Vec::new();
        speculator
            .run(
                &store,
                &mut Locks::default(),
                0..500,
                |epoch, _| count(epoch, 7),
                |_, value| {
                    results.push(value);
                    Ok(())
                },
            )
            .unwrap();
        assert_eq!(results, (1..=500).collect::<Vec<_>>());
        let stats = speculator.take_stats();
        assert_eq!((stats.epochs, stats.operations), (500, 1000));
        assert_eq!(speculator.take_stats().epochs, 0);
    }
}

#[test]
fn a_violation_late_in_an_epoch_redoes_only_its_sub_epoch() {
    let redone = |number, operations| {
        let store = Rows::default();
        let options = Options::new().workers(1).sub_epochs(number, operations).inject_violations(1.0, 3);
        let mut speculator = Speculator::new(options).unwrap();
        // The first read of an epoch is violated when the token arrives. Its only read is the last operation.
        let body = |epoch: &mut Epoch<'_, Rows>, _: &u8| {
            (0..12).for_each(|key| epoch.put(key, 1));
            epoch.get(&100).map(drop)
        };
        speculator.run(&store, &mut Locks::default(), 0..10, body, |_, ()| Ok(())).unwrap();
        let stats = speculator.take_stats();
        assert_eq!((stats.violations, stats.injected), (10, 10));
        (stats.rewound, stats.replayed)
    };
    assert_eq!(redone(1, 1), (130, 0));
    assert_eq!(redone(4, 4), (10, 120));
    assert_eq!(redone(2, 4), (90, 40));
}

#[test]
fn the_profile_names_the_lines_of_a_dependence() {
    let store = Rows::default();
    let mut speculator = Speculator::new(Options::new().forwarding(Forwarding::Always).workers(2)).unwrap();
    let second_has_read = AtomicBool::new(false);
    // The first epoch writes only after the second has read.
    let body = |epoch: &mut Epoch<'_, Rows>, item: &u8| {
        if *item == 1 {
            epoch.get(&1).map(drop)?;
            second_has_read.store(true, Ordering::Release);
            return Ok(());
        }
        while !second_has_read.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        epoch.put(1, 1);
        Ok::<_, Infallible>(())
    };
    speculator.run(&store, &mut Locks::default(), 0..2, body, |_, ()| Ok(())).unwrap();
    let profile = speculator.profile();
    let [Dependence { read, written: Writer::Epoch(written), violations: 1, .. }] = profile[..] else {
        panic!("{profile:?}")
    };
    assert!(read.file().ends_with("behaviour.rs") && written.file() == read.file(), "{read} {written}");
    assert_eq!(written.line() - read.line(), 7);
}

/// Also if the loop ends early, at an item whose body fails.
#[test]
fn what_follows_a_commit_runs_once_for_each_epoch() {
    let store = Rows::default();
    let committers = [Committer::Owner, Committer::Caller];
    for (committer, grain) in committers.into_iter().flat_map(|committer| [1, 2, 7].map(|grain| (committer, grain))) {
        let options = Options::new().workers(3).grain(grain).committer(committer).inject_violations(0.3, 9);
        let mut speculator = Speculator::new(options).unwrap();
        for ends in (0..200).step_by(2).chain(std::iter::repeat_n(200, 100)) {
            let ran = Arc::new(AtomicUsize::new(0));
            let body = |epoch: &mut Epoch<'_, Rows>, item: &u8| {
                let ran = Arc::clone(&ran);
                epoch.after_commit(move || drop(ran.fetch_add(1, Ordering::Relaxed).to_string()));
                let counted = count(epoch, item % 3);
                if *item == ends { Err(()) } else { Ok(counted) }
            };
            let mut locks = Locks::default();
            let ended = speculator.run(&store, &mut locks, 0..200, body, |_, _| Ok(()));
            store.commit(locks);
            assert_eq!(ended.is_ok(), ends == 200);
            let ran = ran.load(Ordering::Relaxed);
            assert_eq!(ran, usize::from(ends), "{committer:?}, {grain} iterations an epoch");
        }
    }
}

/// The values that a loop has read or written are discarded at its end, also if it ends early.
#[test]
fn a_loop_knows_nothing_of_the_one_before() {
    let (first, second) = (Rows::with(&BTreeMap::from([(9, 9)])), Rows::default());
    let mut speculator = Speculator::new(Options::new().workers(1).grain(2)).unwrap();
    // The second item reads a key that the first item has written and `then` has replaced.
    let body = |key: u8| {
        move |epoch: &mut Epoch<'_, Rows>, item: &u64| {
            let Ok(read) = epoch.get(&key);
            if *item == 0 {
                epoch.put(key, 1);
            }
            Ok::<_, ()>(read)
        }
    };
    let ended = speculator.run(&first, &mut Locks::default(), 0..2, body(1), |_, _| Err(()));
    assert!(matches!(ended, Err(LoopError::Body(()))));
    let mut read = Vec::new();
    let then = |locks: &mut Locks, value| {
        read.push(value);
        let Ok(()) = second.write(locks, &Written { key: &2, value: Some(&7), seen: None });
        Ok(())
    };
    speculator.run(&second, &mut Locks::default(), 0..2, body(2), then).unwrap();
    assert_eq!(read, [None, Some(7)]);
}

#[test]
fn a_body_that_is_not_deterministic_is_told() {
    let store = Rows::default();
    let mut speculator = Speculator::new(Options::new().workers(1).sub_epochs(8, 1).inject_violations(1.0, 1)).unwrap();
    let runs = AtomicUsize::new(0);
    let body = |epoch: &mut Epoch<'_, Rows>, _: &u8| {
        // The first operation of each run writes a different key.
        epoch.put(runs.fetch_add(1, Ordering::Relaxed) as u8, 1);
        epoch.get(&200).map(drop)
    };
    let result = speculator.run(&store, &mut Locks::default(), 0..1, body, |_, ()| Ok(()));
    let Err(error @ LoopError::NotDeterministic { operation: 0, .. }) = result else { panic!("{result:?}") };
    assert!(error.to_string().contains("behaviour.rs"), "{error}");
    assert!(store.contents().is_empty());
    // The speculator can still be used.
    speculator.run(&store, &mut Locks::default(), 0..3, |epoch, _| count(epoch, 1), |_, _| Ok(())).unwrap();
    assert_eq!(store.contents(), BTreeMap::from([(1, 3)]));
}

/// Returns a counter that another thread increments, when it has stopped changing or after 20 seconds.
fn wait_until_unchanged(count: &AtomicUsize) -> usize {
    let begun = std::time::Instant::now();
    let mut quiet = (0, 0);
    while quiet.1 < 10_000 && begun.elapsed().as_secs() < 20 {
        let now = count.load(Ordering::Relaxed);
        quiet = if now == quiet.0 && now > 0 { (now, quiet.1 + 1) } else { (now, 0) };
        std::thread::yield_now();
    }
    count.load(Ordering::Relaxed)
}

/// A body that has read inconsistent values, and never ends because of them, is ended long before it is the oldest.
#[test]
fn a_body_that_is_led_astray_stops() {
    for committer in [Committer::Owner, Committer::Caller] {
        let (store, reads, held) = (Rows::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let options = Options::new().workers(2).forwarding(Forwarding::Always).committer(committer);
        let mut speculator = Speculator::new(options).unwrap();
        let body = |epoch: &mut Epoch<'_, Rows>, item: &u8| {
            if *item == 0 {
                epoch.put(1, 1);
                // The other body has seen only one of the two writes, and continues to read.
                held.store(wait_until_unchanged(&reads), Ordering::Relaxed);
                epoch.put(2, 1);
            } else {
                while epoch.get(&1)? != epoch.get(&2)? {
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<_, Infallible>(())
        };
        speculator.run(&store, &mut Locks::default(), 0..2u8, body, |_, ()| Ok(())).unwrap();
        let held = held.load(Ordering::Relaxed);
        assert!(held < 50_000, "{held} reads in vain, {committer:?}");
    }
}

/// The same for a body that keeps more and more memory in few operations.
#[test]
fn a_body_that_is_led_astray_keeps_little() {
    for committer in [Committer::Owner, Committer::Caller] {
        let (store, writes, held) = (Rows::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let options = Options::new().workers(2).forwarding(Forwarding::Never).committer(committer);
        let mut speculator = Speculator::new(options).unwrap();
        let body = |epoch: &mut Epoch<'_, Rows>, item: &u8| {
            if *item == 0 {
                held.store(wait_until_unchanged(&writes), Ordering::Relaxed);
                epoch.put(1, 1);
            } else {
                // This body ends once the other one has committed.
                let has_ended = epoch.get(&1)?.is_some();
                for write in 0..if has_ended { 20 } else { 5000 } {
                    writes.fetch_add(1, Ordering::Relaxed);
                    epoch.put(LARGE, write);
                }
            }
            Ok::<_, Infallible>(())
        };
        speculator.run(&store, &mut Locks::default(), 0..2u8, body, |_, ()| Ok(())).unwrap();
        let held = held.load(Ordering::Relaxed);
        assert!((16..=40).contains(&held), "{held} MiB written in vain, {committer:?}");
        assert_eq!(store.contents().get(&LARGE), Some(&19));
    }
}

#[test]
fn a_loop_inside_a_body_is_refused() {
    let (store, inner) = (Rows::default(), std::sync::Mutex::new(Speculator::new(Options::new()).unwrap()));
    let mut speculator = Speculator::new(Options::new()).unwrap();
    let body = |_: &mut Epoch<'_, Rows>, _: &u8| {
        let mut inner = inner.lock().unwrap();
        inner.run(&store, &mut Locks::default(), 0..1, |epoch, _| count(epoch, 1), |_, _| Ok(()))
    };
    let result = speculator.run(&store, &mut Locks::default(), 0..5, body, |_, ()| Ok(()));
    assert!(matches!(result, Err(LoopError::Body(LoopError::Nested))), "{result:?}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let error = |options| {
        let BuildError::Options(error) = Speculator::<Rows>::new(options).err().unwrap() else { panic!("no thread") };
        error
    };
    assert_eq!(error(Options::new().workers(0)), OptionsError::NoWorkers);
    assert_eq!(error(Options::new().workers(1000)), OptionsError::TooManyWorkers(1000));
    assert_eq!(error(Options::new().grain(0)), OptionsError::NoGrain);
    assert_eq!(error(Options::new().sub_epochs(8, 0)), OptionsError::NoSubEpoch { number: 8, operations: 0 });
    assert_eq!(error(Options::new().inject_violations(1.5, 1)), OptionsError::NoProbability(1.5));
}

#[test]
fn an_iterator_that_panics_ends_the_loop_after_the_items_before() {
    let store = Rows::default();
    let mut speculator = Speculator::new(Options::new().workers(2).grain(4)).unwrap();
    let items = (0..10u8).inspect(|item| {
        if *item == 6 {
            std::panic::resume_unwind(Box::new("the iterator"));
        }
    });
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        speculator.run(&store, &mut Locks::default(), items, |epoch, item| count(epoch, *item), |_, _| Ok(()))
    }));
    assert_eq!(run.unwrap_err().downcast_ref(), Some(&"the iterator"));
    assert_eq!(store.contents(), (0..6).map(|key| (key, 1)).collect());
}

/// Adds `what` to `taken` outside speculation; subtracts it again if the epoch does not commit.
fn take(epoch: &mut Epoch<'_, Rows>, taken: &Arc<AtomicU64>, what: u64) {
    let (take, give_back) = (Arc::clone(taken), Arc::clone(taken));
    epoch.escape(
        move || {
            take.fetch_add(what, Ordering::Relaxed);
            what
        },
        move |what| {
            give_back.fetch_sub(what, Ordering::Relaxed);
        },
    );
}

#[test]
fn what_iterations_took_before_a_failure_in_order_stays_and_nothing_else() {
    for (workers, panics) in [(1, false), (1, true), (3, false), (3, true)] {
        let store = Rows::default();
        let mut speculator = Speculator::new(Options::new().workers(workers).grain(4)).unwrap();
        let taken = Arc::new(AtomicU64::new(0));
        let body = |epoch: &mut Epoch<'_, Rows>, item: &u8| {
            take(epoch, &taken, 1 << item);
            epoch.put(*item, 1);
            Ok(*item)
        };
        // The third iteration of the second epoch fails after its body, in order.
        let in_order = |_: &mut Locks, item| match item {
            6 if panics => std::panic::resume_unwind(Box::new("in order")),
            6 => Err("in order"),
            _ => Ok(()),
        };
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            speculator.run(&store, &mut Locks::default(), 0..20u8, body, in_order)
        }));
        match run {
            Ok(Err(LoopError::Body("in order"))) => assert!(!panics),
            Err(panic) => assert!(panics && panic.downcast_ref() == Some(&"in order")),
            other => panic!("{other:?}"),
        }
        assert_eq!(store.contents(), (0..7).map(|key| (key, 1)).collect());
        assert_eq!(taken.load(Ordering::Relaxed), (1 << 7) - 1, "{workers} workers, panics: {panics}");
    }
}

#[test]
fn what_was_taken_before_the_iterator_panics_stays() {
    let store = Rows::default();
    let mut speculator = Speculator::new(Options::new().workers(2).grain(4)).unwrap();
    let taken = Arc::new(AtomicU64::new(0));
    let items = (0..10u8).inspect(|item| {
        if *item == 6 {
            std::panic::resume_unwind(Box::new("the iterator"));
        }
    });
    let body = |epoch: &mut Epoch<'_, Rows>, item: &u8| {
        take(epoch, &taken, 1 << item);
        count(epoch, *item)
    };
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        speculator.run(&store, &mut Locks::default(), items, body, |_, _| Ok(()))
    }));
    assert_eq!(run.unwrap_err().downcast_ref(), Some(&"the iterator"));
    assert_eq!(taken.load(Ordering::Relaxed), (1 << 6) - 1);
}

/// Two keys that each iteration changes together: an epoch that reads different values never ends by itself.
#[test]
fn a_body_that_would_never_end_runs_again_in_order() {
    for (forwarding, workers) in [(Forwarding::Never, 2), (Forwarding::Always, 2), (Forwarding::Never, 3)] {
        let store = Rows::with(&BTreeMap::from([(1, 0), (2, 0)]));
        let mut speculator = Speculator::new(Options::new().workers(workers).forwarding(forwarding)).unwrap();
        for _ in 0..20 {
            let body = |epoch: &mut Epoch<'_, Rows>, _: &u64| {
                let first = epoch.get(&1)?.unwrap();
                // Gives the other epochs time to commit in between.
                std::thread::sleep(std::time::Duration::from_micros(50));
                while epoch.get(&2)?.unwrap() != first {}
                epoch.put(1, first + 1);
                epoch.put(2, first + 1);
                Ok::<_, Infallible>(())
            };
            speculator.run(&store, &mut Locks::default(), 0..6, body, |_, ()| Ok(())).unwrap();
        }
        assert_eq!(store.contents(), BTreeMap::from([(1, 120), (2, 120)]));
    }
}

/// A trace has the epochs of a loop in order, with their operations. Loops beyond the requested number, and loops that
/// failed, leave no trace.
#[test]
fn traces_have_what_epochs_did() {
    for workers in [1, 2, 3] {
        for committer in [Committer::Owner, Committer::Caller] {
            let store = Rows::default();
            let options = Options::new().workers(workers).committer(committer).grain(2).trace(2);
            let mut speculator = Speculator::new(options).unwrap();
            let mut run = |fails: bool| {
                let body = |epoch: &mut Epoch<'_, Rows>, item: &u8| {
                    if fails && *item == 9 {
                        return Err("fails");
                    }
                    count(epoch, item % 8).map_err(|_| "cannot fail")
                };
                let ran = speculator.run(&store, &mut Locks::default(), 0..20u8, body, |_, _| Ok(()));
                assert_eq!(ran.is_err(), fails);
            };
            run(true);
            run(false);
            run(false);
            run(false);
            let traces = speculator.take_traces();
            assert_eq!(traces.len(), 2);
            for trace in &traces {
                let numbers: Vec<_> = trace.epochs.iter().map(|epoch| epoch.number).collect();
                assert_eq!(numbers, (0..10).collect::<Vec<_>>());
                for epoch in &trace.epochs {
                    let kinds: Vec<_> = epoch.operations.iter().map(|op| op.kind).collect();
                    assert_eq!(kinds, [OpKind::Read, OpKind::Write, OpKind::Read, OpKind::Write]);
                    let of = |at: usize| &epoch.operations[at].keys;
                    assert!(of(0) == of(1) && of(2) == of(3) && of(0) != of(2));
                    assert!(epoch.operations.is_sorted_by_key(|op| op.at_ns), "{epoch:?}");
                    assert!(epoch.body_ns > 0 && epoch.in_order_ns > 0);
                }
                // The same rows are accessed again eight iterations later.
                assert_eq!(trace.epochs[0].operations[0].keys, trace.epochs[4].operations[0].keys);
            }
            assert!(speculator.take_traces().is_empty());
        }
    }
}

/// An empty store that refuses writes of some keys and reads of others.
struct RefusingStore;

const NO_WRITES: u8 = 7;
const NO_READS: u8 = 8;

impl Store for RefusingStore {
    type Key = u8;
    type Value = u8;
    type Stamp = ();
    type Local = ();
    type Order = ();
    type Error = &'static str;

    fn peek(&self, _: &mut (), key: &u8) -> Result<(Option<u8>, ()), &'static str> {
        if *key == NO_READS { Err("not peeked at") } else { Ok((None, ())) }
    }

    fn confirm(&self, _: &mut (), _: Seen<'_, RefusingStore>) -> Result<bool, &'static str> {
        Ok(true)
    }

    fn read(&self, _: &mut (), key: &u8) -> Result<Option<u8>, &'static str> {
        if *key == NO_READS { Err("not read") } else { Ok(None) }
    }

    fn write(&self, _: &mut (), write: &Written<'_, RefusingStore>) -> Result<(), &'static str> {
        if *write.key == NO_WRITES { Err("not written") } else { Ok(()) }
    }
}

#[test]
fn a_write_that_was_refused_is_told_rather_than_the_failure_of_the_body_after_it() {
    for grain in 1..4 {
        let mut speculator = Speculator::new(Options::new().grain(grain)).unwrap();
        let body = |epoch: &mut Epoch<'_, RefusingStore>, item: &u8| {
            epoch.put(*item, 0);
            if *item == NO_WRITES { Err("the body's") } else { Ok(()) }
        };
        let ended = speculator.run(&RefusingStore, &mut (), 0..20, body, |(), ()| Ok(()));
        assert!(matches!(ended, Err(LoopError::Store("not written"))), "{ended:?}");
    }
}

#[test]
fn a_read_that_was_refused_is_told_rather_than_what_fails_after_it() {
    for grain in 1..4 {
        let mut speculator = Speculator::new(Options::new().grain(grain)).unwrap();
        let body = |epoch: &mut Epoch<'_, RefusingStore>, item: &u8| {
            if *item == NO_READS {
                epoch.put(NO_WRITES, 0);
            }
            epoch.get(item).map(drop)
        };
        let ended = speculator.run(&RefusingStore, &mut (), NO_READS - 2..20, body, |(), ()| Ok(()));
        assert!(matches!(ended, Err(LoopError::Body("not read"))), "{ended:?}");
    }
}
