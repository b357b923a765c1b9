//! The protocol under random schedules: `cargo xtask shuttle`. Small loops, most of them random, must have the same results
//! as sequential runs. A lost token, wake-up or epoch leaves all tasks waiting, which shuttle reports.
#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test: a failure is told where it happens")]

mod common;
mod loops;

use std::collections::BTreeMap;
#[cfg(feature = "mutants")]
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use common::{Locks, Rows};
#[cfg(feature = "mutants")]
use loops::NOT_GIVEN_BACK;
use loops::{KEYS, NOT_SEQUENTIAL, ResultClosure, Step, compare};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use speculate::{Committer, Epoch, Forwarding, Options, Speculator};

/// Runs a model under random schedules and under schedules of PCT, which change the order of priorities a few times.
/// `LOCKSTEP_SHUTTLE_ITERATIONS` sets the number of schedules of each kind (default: 100).
fn schedules(model: fn()) {
    let wanted = std::env::var("LOCKSTEP_SHUTTLE_ITERATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = shuttle::MaxSteps::FailAfter(1_000_000);
    shuttle::Runner::new(RandomScheduler::new(wanted), config.clone()).run(model);
    shuttle::Runner::new(PctScheduler::new(3, wanted), config).run(model);
}

fn below(n: u64) -> u64 {
    thread_rng().gen_range(0..n)
}

fn one_of<T: Copy>(all: &[T]) -> T {
    all[below(all.len() as u64) as usize]
}

/// Returns one of three keys: few, so that epochs depend on each other.
fn key() -> u8 {
    below(3) as u8
}

fn step() -> Step {
    match below(18) {
        0..5 => Step::Read(key()),
        5..9 => Step::Write(key()),
        9 => Step::Follow,
        10 => Step::Scatter,
        11 => Step::Delete(key()),
        12 => Step::Range(0, key(), below(4) as usize),
        13 => Step::ChangeEach(0, key(), below(4) as usize),
        14 => Step::Escape,
        15 => Step::TakeFirst(key()),
        16 => Step::ReadUntilEven(key()),
        _ if below(2) == 0 => Step::FailIf(7),
        _ => Step::PanicIf(7),
    }
}

fn options() -> Options {
    let (number, operations) = one_of(&[(1, 1), (8, 2), (usize::MAX, 1)]);
    Options::new().workers(2 + below(2) as usize).grain(one_of(&[1, 1, 2])).sub_epochs(number, operations)
}

/// `waits`: see [`compare`].
fn random_loop(options: Options, waits: u8) {
    let before: BTreeMap<u8, u64> = (0..below(4) as u8).map(|key| (key, below(100))).collect();
    let steps = |_| (0..1 + below(5)).map(|_| step()).collect();
    let items: Vec<Vec<Step>> = (0..2 + below(4)).map(steps).collect();
    compare(
        options.inject_violations(one_of(&[0.0, 0.0, 0.2]), below(1 << 20)),
        one_of(&[ResultClosure::Collects, ResultClosure::Runs, ResultClosure::Writes]),
        &before,
        &items,
        false,
        waits,
    );
}

/// Increments a row.
fn count(epoch: &mut Epoch<'_, Rows>, key: u8) -> Result<u64, Infallible> {
    let value = epoch.get(&key)?.unwrap_or(0) + 1;
    epoch.put(key, value);
    Ok(value)
}

/// Passes the token from epoch to epoch; the threads sleep and wake up between loops.
#[test]
fn shuttle_the_token_goes_from_epoch_to_epoch() {
    schedules(|| {
        let store = Rows::default();
        let mut speculator = Speculator::new(options().grain(1)).unwrap();
        let mut results = Vec::new();
        for _ in 0..2 {
            let body = |epoch: &mut Epoch<'_, Rows>, _: &u8| count(epoch, 1);
            speculator.collect(&store, &mut Locks::default(), 0..3, body, |value| results.push(value)).unwrap();
        }
        assert_eq!(results, [1, 2, 3, 4, 5, 6], "{NOT_SEQUENTIAL}");
        assert_eq!(speculator.take_stats().epochs, 6);
    });
}

#[test]
fn shuttle_epochs_are_confirmed_and_written_in_order() {
    schedules(|| random_loop(options().forwarding(Forwarding::Never), 0));
}

#[test]
fn shuttle_epochs_read_what_earlier_ones_forward() {
    schedules(|| random_loop(options().forwarding(Forwarding::Always), 0));
}

#[test]
fn shuttle_one_worker_commits_for_all() {
    schedules(|| {
        let forwarding = one_of(&[Forwarding::Never, Forwarding::Always]);
        random_loop(options().committer(Committer::Caller).forwarding(forwarding), 0);
    });
}

/// A closure given to `after_commit` has run once when the loop returns, if its iteration is committed, and otherwise
/// never: also if the loop ends early, because a body or `then` fails.
#[test]
fn shuttle_what_comes_after_a_commit_comes_once() {
    const ITEMS: u8 = 6;
    schedules(|| {
        let store = Rows::default();
        let committer = one_of(&[Committer::Caller, Committer::Owner]);
        let forwarding = one_of(&[Forwarding::Never, Forwarding::Always]);
        let mut speculator = Speculator::new(options().committer(committer).forwarding(forwarding)).unwrap();
        let ran: Arc<[AtomicU64; ITEMS as usize]> = Arc::default();
        // No item has the number 6 or 7: these loops run to completion.
        let (ends, in_body) = (below(u64::from(ITEMS) + 2) as u8, below(2) == 0);
        let body = |epoch: &mut Epoch<'_, Rows>, item: &u8| {
            let (ran, item) = (ran.clone(), *item);
            epoch.after_commit(move || drop(ran[usize::from(item)].fetch_add(1, Ordering::SeqCst)));
            let _ = count(epoch, item % 2);
            if in_body && item == ends { Err(()) } else { Ok(item) }
        };
        let then = |_: &mut Locks, item: u8| if !in_body && item == ends { Err(()) } else { Ok(()) };
        let ended = speculator.run(&store, &mut Locks::default(), 0..ITEMS, body, then);
        assert_eq!(ended.is_err(), ends < ITEMS);
        for (item, ran) in ran.iter().enumerate() {
            let times = ran.load(Ordering::SeqCst);
            match item.cmp(&usize::from(ends)) {
                std::cmp::Ordering::Less => assert_eq!(times, 1, "item {item} before the end at {ends}, {committer:?}"),
                std::cmp::Ordering::Equal => assert!(times <= 1, "the last item, {committer:?}"),
                std::cmp::Ordering::Greater => {
                    assert_eq!(times, 0, "item {item} behind the end at {ends}, {committer:?}")
                }
            }
        }
    });
}

/// Each epoch reads a key that the previous epoch writes, writes a key that depends on the value, and reads all keys. A
/// rewound epoch must therefore withdraw its writes and rewind its readers.
#[test]
fn shuttle_a_violation_goes_down_the_chain_of_readers() {
    schedules(|| {
        let committer = one_of(&[Committer::Caller, Committer::Owner]);
        let options = options().committer(committer).forwarding(Forwarding::Always);
        let link = |item: u8| vec![Step::Read(item), Step::Write(item + 1), Step::Scatter, Step::Range(0, KEYS, 20)];
        let items: Vec<Vec<Step>> = (0..4).map(link).collect();
        compare(
            options.inject_violations(one_of(&[0.0, 0.3]), below(1 << 20)),
            one_of(&[ResultClosure::Runs, ResultClosure::Writes]),
            &BTreeMap::new(),
            &items,
            false,
            0,
        );
    });
}

/// An epoch waits only for earlier epochs, so all of them end. Without forwarding, a wait ends with the arrival of the
/// token.
#[test]
fn shuttle_reads_wait_for_earlier_epochs() {
    schedules(|| {
        let committer = one_of(&[Committer::Caller, Committer::Owner]);
        let forwarding = one_of(&[Forwarding::Never, Forwarding::Always]);
        random_loop(options().committer(committer).forwarding(forwarding), one_of(&[u8::MAX, below(256) as u8]));
    });
}

/// A dependence that always occurs, with a read at a site that waits: no violation.
#[test]
fn shuttle_a_read_that_waits_is_right() {
    /// Number of waits in all schedules.
    static WAITS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    schedules(|| {
        let committer = one_of(&[Committer::Caller, Committer::Owner]);
        let items = vec![vec![Step::Read(1), Step::Write(1)]; 4];
        let options = Options::new().workers(3).committer(committer);
        let stats = compare(
            options,
            one_of(&[ResultClosure::Collects, ResultClosure::Runs]),
            &BTreeMap::new(),
            &items,
            false,
            u8::MAX,
        );
        assert_eq!(stats.violations, 0);
        WAITS.fetch_add(stats.waits, Ordering::Relaxed);
    });
    assert!(WAITS.load(Ordering::Relaxed) > 0);
}

/// Runs a loop whose bodies may panic with a number; returns the number, and the number of completed iterations.
fn until_panic(body: impl Fn(&mut Epoch<'_, Rows>, &u64) -> Result<u64, Infallible> + Sync) -> (Option<u64>, u64) {
    let committer = one_of(&[Committer::Caller, Committer::Owner]);
    let forwarding = one_of(&[Forwarding::Never, Forwarding::Always]);
    let store = Rows::default();
    let mut speculator = Speculator::new(options().committer(committer).forwarding(forwarding)).unwrap();
    let mut done = 0;
    let ran = catch_unwind(AssertUnwindSafe(|| {
        speculator.collect(&store, &mut Locks::default(), 0..5, &body, |_| done += 1).unwrap();
    }));
    // The speculator can still be used.
    let Ok(()) = speculator.run(&store, &mut Locks::default(), 0..2, |epoch, _| count(epoch, 2), |_, _| Ok(())) else {
        panic!("nothing fails")
    };
    assert_eq!(store.contents().get(&2), Some(&2), "{NOT_SEQUENTIAL}");
    (ran.err().map(|panic| *panic.downcast_ref().unwrap()), done)
}

#[test]
fn shuttle_a_panic_in_a_doomed_epoch_is_forgotten() {
    schedules(|| {
        let body = |epoch: &mut Epoch<'_, Rows>, item: &u64| {
            let value = count(epoch, 1)?;
            // Only an epoch that has read too early panics.
            if value != item + 1 {
                resume_unwind(Box::new(*item));
            }
            Ok(value)
        };
        assert_eq!(until_panic(body), (None, 5), "{NOT_SEQUENTIAL}");
    });
}

#[test]
fn shuttle_a_panic_in_the_oldest_epoch_ends_the_loop() {
    schedules(|| {
        let first = below(5);
        // Later epochs panic too, and possibly earlier in time.
        let body = move |epoch: &mut Epoch<'_, Rows>, item: &u64| {
            let value = count(epoch, 1)?;
            if *item >= first {
                resume_unwind(Box::new(*item));
            }
            Ok(value)
        };
        let (panic, done) = until_panic(body);
        assert_eq!(panic, Some(first), "{NOT_SEQUENTIAL}");
        // Iterations of the same epoch are discarded with the one that panics.
        assert!(done <= first && first - done < 2, "{NOT_SEQUENTIAL}: {done} of {first}");
    });
}

#[test]
fn shuttle_no_update_of_another_transaction_is_lost() {
    schedules(|| {
        let (store, others) = (Arc::new(Rows::default()), Arc::new(AtomicU64::new(0)));
        let other = shuttle::thread::spawn({
            let (store, others) = (Arc::clone(&store), Arc::clone(&others));
            move || {
                for _ in 0..4 {
                    others.fetch_add(u64::from(store.count_up(1)), Ordering::SeqCst);
                }
            }
        });
        let options = options().forwarding(one_of(&[Forwarding::Never, Forwarding::Always]));
        let mut speculator = Speculator::new(options).unwrap();
        for _ in 0..2 {
            let mut locks = Locks::default();
            let body = |epoch: &mut Epoch<'_, Rows>, _: &u8| count(epoch, 1);
            speculator.run(&*store, &mut locks, 0..3, body, |_, _| Ok(())).unwrap();
            store.commit(locks);
        }
        other.join().unwrap();
        assert_eq!(store.contents()[&1], 6 + others.load(Ordering::SeqCst), "{NOT_SEQUENTIAL}");
    });
}

/// Canary: the models detect each protection that is removed.
#[cfg(feature = "mutants")]
#[test]
fn shuttle_every_mutant_is_found() {
    use speculate::mutants::{Mutant, VARIABLE};

    for mutant in Mutant::ALL {
        let mut models = std::process::Command::new(std::env::current_exe().unwrap());
        models.args(["shuttle_", "--skip", "every_mutant"]).env(VARIABLE, mutant.name());
        let ran = models.env("LOCKSTEP_SHUTTLE_ITERATIONS", "3000").env("RUST_BACKTRACE", "0").output().unwrap();
        let told = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        // A failure of another kind does not count as detection.
        let is_found = !ran.status.success() && [NOT_SEQUENTIAL, NOT_GIVEN_BACK].iter().any(|what| told.contains(what));
        assert!(is_found, "{}: {told}", mutant.name());
        let of = told.lines().filter(|line| line.starts_with("    shuttle_")).map(str::trim).collect::<BTreeSet<_>>();
        println!("{}: {of:?}", mutant.name());
    }
}
