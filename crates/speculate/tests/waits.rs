//! Reads that wait for earlier epochs instead of speculating.
#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, reason = "a test: a failure is told where it happens")]

mod common;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Locks, Rows};
use speculate::{
    BuildError, Committer, Epoch, Forwarding, LoopError, Options, OptionsError, Speculator, Stats, Waiting,
};

/// Number of epochs of a loop.
const EPOCHS: u64 = 30;

/// Increments a row in each iteration. Between its read and its write, each iteration waits a little until the next one has
/// read, so that speculation fails. It spins: a thread that yielded to other programs could be away for longer than the
/// limit of a read's wait.
fn count_up(speculator: &mut Speculator<Rows>) -> Stats {
    let (store, read) = (Rows::default(), AtomicU64::new(0));
    let body = |epoch: &mut Epoch<'_, Rows>, item: &u64| {
        let value = epoch.get(&1)?.unwrap_or(0) + 1;
        read.fetch_max(item + 1, Ordering::AcqRel);
        let begun = Instant::now();
        while read.load(Ordering::Acquire) < item + 2 && begun.elapsed() < Duration::from_micros(200) {
            std::hint::spin_loop();
        }
        epoch.put(1, value);
        Ok::<_, Infallible>(value)
    };
    let mut values = Vec::new();
    speculator.collect(&store, &mut Locks::default(), 0..EPOCHS, body, |value| values.push(value)).unwrap();
    assert_eq!(values, (1..=EPOCHS).collect::<Vec<_>>());
    speculator.take_stats()
}

/// Runs loops until the counters of one satisfy `holds`, and returns these. Other programs may keep one of two workers from
/// running. Then no epoch runs concurrently with an earlier one, or a read exceeds the limit of its wait and speculates
/// after all. One loop must be free of that.
fn loop_with(speculator: &mut Speculator<Rows>, holds: impl Fn(&Stats) -> bool) -> Stats {
    let begun = Instant::now();
    loop {
        let stats = count_up(speculator);
        if holds(&stats) {
            return stats;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the last of many loops: {stats:?}");
    }
}

fn has_many_violations(stats: &Stats) -> bool {
    stats.violations > EPOCHS / 4
}

fn has_many_waits(stats: &Stats) -> bool {
    10 * stats.violations <= EPOCHS && stats.waits > EPOCHS / 4
}

#[test]
fn a_known_dependence_violates_nothing_where_its_reads_wait() {
    for committer in [Committer::Owner, Committer::Caller] {
        for forwarding in [Forwarding::Adaptive, Forwarding::Always, Forwarding::Never] {
            let options = Options::new().committer(committer).forwarding(forwarding);
            let mut speculator = Speculator::new(options).unwrap();
            assert_eq!(loop_with(&mut speculator, has_many_violations).waits, 0);
            let read = speculator.profile()[0].read;
            speculator.wait_at(read);
            assert_eq!(speculator.waits_at(), [read.to_string()]);
            loop_with(&mut speculator, has_many_waits);
            // The place as another run of the program would specify it.
            let places: &'static [&'static str] = vec![&*read.to_string().leak()].leak();
            loop_with(&mut Speculator::new(options.wait_at(places)).unwrap(), has_many_waits);
        }
    }
}

#[test]
fn a_site_that_is_violated_often_waits_in_later_loops() {
    let mut speculator = Speculator::new(Options::new().waiting(Waiting::Adaptive)).unwrap();
    let begun = Instant::now();
    while speculator.waits_at().is_empty() {
        let stats = count_up(&mut speculator);
        assert!(begun.elapsed() < Duration::from_secs(60), "the last of many loops: {stats:?}");
    }
    assert_eq!(speculator.waits_at(), [speculator.profile()[0].read.to_string()]);
    loop_with(&mut speculator, has_many_waits);
    // Without a dependence, reads of no site wait.
    let mut speculator = Speculator::new(Options::new().waiting(Waiting::Adaptive)).unwrap();
    for _ in 0..20 {
        let body = |epoch: &mut Epoch<'_, Rows>, item: &u8| epoch.get(item).map(drop);
        speculator.run(&Rows::default(), &mut Locks::default(), 0..100, body, |_, ()| Ok(())).unwrap();
    }
    assert_eq!(speculator.waits_at(), [""; 0]);
}

fn read(epoch: &mut Epoch<'_, Rows>) {
    let Ok(_) = epoch.get(&1);
}

/// Runs two epochs; the second one has a read that waits. `first` is the body of the first epoch; it starts when the second
/// epoch is about to read, and gets a flag that is set after that read.
fn beside_one_that_waits<E: Send + std::fmt::Debug>(
    forwarding: Forwarding,
    first: impl Fn(&mut Epoch<'_, Rows>, &AtomicBool) -> Result<(), E> + Sync,
) -> (Result<(), LoopError<E, Infallible>>, Stats) {
    let store = Rows::default();
    let mut all_wrong = Speculator::new(Options::new().workers(1).inject_violations(1.0, 1)).unwrap();
    let body = |epoch: &mut Epoch<'_, Rows>, _: &u8| {
        read(epoch);
        Ok::<_, Infallible>(())
    };
    all_wrong.run(&store, &mut Locks::default(), 0..1, body, |_, ()| Ok(())).unwrap();

    let (begun, has_read) = (AtomicBool::new(false), AtomicBool::new(false));
    let body = |epoch: &mut Epoch<'_, Rows>, item: &u8| {
        if *item == 1 {
            begun.store(true, Ordering::Release);
            read(epoch);
            has_read.store(true, Ordering::Release);
            return Ok(());
        }
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        first(epoch, &has_read)
    };
    let mut speculator = Speculator::new(Options::new().forwarding(forwarding)).unwrap();
    speculator.wait_at(all_wrong.profile()[0].read);
    let ended = speculator.run(&store, &mut Locks::default(), 0..2, body, |_, ()| Ok(()));
    (ended, speculator.take_stats())
}

#[test]
fn a_wait_for_an_epoch_that_waits_for_the_reader_ends() {
    for forwarding in [Forwarding::Always, Forwarding::Never] {
        let (ended, stats) = beside_one_that_waits(forwarding, |epoch, has_read| {
            while !has_read.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            epoch.put(1, 1);
            Ok::<_, Infallible>(())
        });
        assert!(ended.is_ok());
        assert!(stats.waits >= 1 && stats.violations >= 1, "{stats:?}");
        assert!(stats.waits_ns >= 10_000_000, "{stats:?}");
    }
}

#[test]
fn a_wait_ends_when_the_earlier_epoch_fails_or_panics() {
    let soon = || std::thread::sleep(Duration::from_millis(1));
    for forwarding in [Forwarding::Always, Forwarding::Never] {
        let (ended, stats) = beside_one_that_waits(forwarding, |_, _| {
            soon();
            Err("the first")
        });
        assert!(matches!(ended, Err(LoopError::Body("the first"))), "{ended:?}");
        assert_eq!(stats.epochs, 0);
        let panics = std::panic::catch_unwind(|| {
            beside_one_that_waits(forwarding, |_, _| -> Result<(), Infallible> {
                soon();
                std::panic::resume_unwind(Box::new("the first"))
            })
        });
        assert_eq!(panics.unwrap_err().downcast_ref(), Some(&"the first"));
    }
}

#[test]
fn places_that_are_none_are_refused() {
    let refused = Speculator::<Rows>::new(Options::new().wait_at(&["loops.rs:12", "loops.rs"])).err().unwrap();
    assert!(matches!(refused, BuildError::Options(OptionsError::NoSite("loops.rs"))), "{refused}");
}
