//! Tests of fibers on real threads.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use itas::policy::{Fair, Itas, Policy, Tas};
use itas::{Aggregation, Builder, Placement, Progress, Role, RunError, Runtime};
use parking_lot::Mutex;

#[allow(unsafe_code)]
fn build(builder: Builder) -> Runtime {
    // SAFETY: the work of these tests has no thread-local scope open.
    unsafe { builder.build() }.unwrap()
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Sets a flag when it is dropped, at the end of its scope or by a panic: work that runs until the flag is set then ends.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn all_work_runs_under_each_policy() {
    fn run(policy: impl Policy + Clone + Sync + 'static, placement: Placement) {
        let builder = Runtime::builder().workers(3).fibers(5).policy(policy).placement(placement);
        let mut runtime = build(builder.slice(Duration::from_micros(5)));
        let groups: Vec<_> = (0..4).map(|i| runtime.group(&format!("g{i}")).unwrap()).collect();
        let sum = AtomicU64::new(0);
        let (seven, report) = runtime
            .run(|spawner| {
                for i in 0..200u64 {
                    let sum = &sum;
                    let mut left = 20;
                    let work = move || {
                        spin(Duration::from_micros(1));
                        itas::point();
                        sum.fetch_add(i, Ordering::Relaxed);
                        left -= 1;
                        if left == 0 { Progress::Done } else { Progress::More }
                    };
                    spawner.spawn_work(groups[i as usize % 4], work).unwrap();
                }
                7
            })
            .unwrap();
        assert_eq!((seven, sum.into_inner()), (7, 20 * 199 * 100));
        let total = report.total();
        assert!(total.groups.iter().all(|group| group.slices > 0));
        assert!(report.longest_wait_to_bound() <= 1.0, "{}", report.longest_wait_to_bound());
        for group in groups {
            runtime.groups().remove(group).unwrap();
        }
    }
    for placement in [Placement::Spread, Placement::Packed] {
        run(Fair, placement);
        run(Tas, placement);
        run(Itas, placement);
    }
}

/// On one core, siblings run one after the other; under the fair policy, groups take turns.
#[test]
fn siblings_run_back_to_back() {
    let between = |policy: Box<dyn Fn(usize) -> Box<dyn Policy> + Send + Sync>| {
        let builder = Runtime::builder().workers(1).policies(policy).slice(Duration::from_micros(1));
        let mut runtime = build(builder);
        let groups = [runtime.group("a").unwrap(), runtime.group("b").unwrap()];
        let all_there = AtomicBool::new(false);
        let (_, report) = runtime
            .run(|spawner| {
                for i in 0..16 {
                    let (all_there, mut left) = (&all_there, 50);
                    let work = move || {
                        while !all_there.load(Ordering::Relaxed) {
                            itas::point();
                        }
                        spin(Duration::from_micros(2));
                        left -= 1;
                        if left == 0 { Progress::Done } else { Progress::More }
                    };
                    spawner.spawn_work(groups[i % 2], work).unwrap();
                }
                all_there.store(true, Ordering::Relaxed);
            })
            .unwrap();
        let total = report.total();
        total.switches_between as f64 / (total.switches_between + total.switches_within) as f64
    };
    let fair = between(Box::new(|_| Box::new(Fair)));
    let tas = between(Box::new(|_| Box::new(Tas)));
    assert!(tas < fair / 2.0, "switches between groups: {tas} under tas, {fair} under fair");
}

#[test]
fn a_panic_is_told_and_the_rest_runs() {
    let mut runtime = build(Runtime::builder().workers(2).fibers(3));
    let group = runtime.group("g").unwrap();
    let ran = AtomicUsize::new(0);
    let error = runtime
        .run(|spawner| {
            for i in 0..50 {
                let ran = &ran;
                let work = move || {
                    assert!(i != 20, "twenty");
                    ran.fetch_add(1, Ordering::Relaxed);
                };
                spawner.spawn(group, work).unwrap();
            }
        })
        .unwrap_err();
    assert!(matches!(error, RunError::Failed { .. }) && error.to_string().contains("twenty"), "{error}");
    assert_eq!(ran.into_inner(), 49);
    runtime.groups().remove(group).unwrap();
}

/// A call that waits in the kernel runs on a helper: the worker continues with other fibers.
#[test]
fn blocking_work_leaves_the_core_to_others() {
    let mut runtime = build(Runtime::builder().workers(1).helpers(2));
    let group = runtime.group("g").unwrap();
    let order = Mutex::new(Vec::new());
    runtime
        .run(|spawner| {
            let order = &order;
            let sleeps = move || {
                let slept = itas::blocking(|| {
                    std::thread::sleep(Duration::from_millis(30));
                    "slept"
                });
                order.lock().push(slept);
            };
            spawner.spawn(group, sleeps).unwrap();
            spawner.spawn(group, move || order.lock().push("ran")).unwrap();
        })
        .unwrap();
    assert_eq!(*order.lock(), ["ran", "slept"]);
    assert_eq!(itas::blocking(|| 5), 5, "outside of a runtime");
}

/// Helpers are started on demand: a chain of calls, each of which waits for a message from the next one.
#[test]
fn blocking_calls_may_wait_for_each_other() {
    let mut runtime = build(Runtime::builder().workers(1).helpers(12));
    let group = runtime.group("g").unwrap();
    let (first, mut receive) = std::sync::mpsc::channel::<u32>();
    let (tell, told) = std::sync::mpsc::channel();
    runtime
        .run(|spawner| {
            for link in 0..10 {
                let (send, next) = std::sync::mpsc::channel();
                let receive = std::mem::replace(&mut receive, next);
                let tell = tell.clone();
                let pass = move || {
                    let got = itas::blocking(move || {
                        let got = receive.recv().unwrap_or(0);
                        // The last call has no receiver.
                        let _ = send.send(got + 1);
                        got
                    });
                    tell.send((link, got)).unwrap();
                };
                spawner.spawn(group, pass).unwrap();
            }
            let begins = move || itas::blocking(move || first.send(7)).unwrap();
            spawner.spawn(group, begins).unwrap();
        })
        .unwrap();
    drop(tell);
    let mut told: Vec<(u32, u32)> = told.iter().collect();
    told.sort_unstable();
    assert_eq!(told, (0..10).map(|link| (link, 7 + link)).collect::<Vec<_>>());
}

/// A trace may have an unlimited length: memory is allocated as slices are recorded.
#[test]
fn a_trace_without_end_is_no_reservation() {
    let mut runtime = build(Runtime::builder().workers(1).trace(usize::MAX));
    let group = runtime.group("g").unwrap();
    let ((), report) = runtime.run(|spawner| spawner.spawn(group, itas::point).unwrap()).unwrap();
    assert!(!report.slices[0].is_empty());
}

#[test]
fn an_idle_core_takes_over_work() {
    let mut runtime = build(Runtime::builder().workers(2).placement(Placement::Packed));
    let group = runtime.group("all on one core").unwrap();
    let threads = Mutex::new(std::collections::HashSet::new());
    runtime
        .run(|spawner| {
            for _ in 0..4 {
                let (threads, begun) = (&threads, Instant::now());
                let work = move || {
                    threads.lock().insert(std::thread::current().id());
                    spin(Duration::from_micros(50));
                    let over = begun.elapsed() > Duration::from_secs(20) || threads.lock().len() == 2;
                    if over { Progress::Done } else { Progress::More }
                };
                spawner.spawn_work(group, work).unwrap();
            }
        })
        .unwrap();
    assert_eq!(threads.lock().len(), 2);
}

#[test]
fn a_change_of_placement_moves_work() {
    let mut runtime = build(Runtime::builder().workers(2).pin(true));
    let groups = [runtime.group("a").unwrap(), runtime.group("b").unwrap()];
    let (stop, packed) = (AtomicBool::new(false), AtomicBool::new(false));
    let seen = Mutex::new(std::collections::HashSet::new());
    let (_, report) = {
        let changer = runtime.placement_changer();
        runtime
            .run(|spawner| {
                let _told = StopAtEnd(&stop);
                for i in 0..8 {
                    let (stop, packed, seen) = (&stop, &packed, &seen);
                    let work = move || {
                        spin(Duration::from_micros(20));
                        if packed.load(Ordering::SeqCst) {
                            seen.lock().insert((i % 2, std::thread::current().id()));
                        }
                        if stop.load(Ordering::SeqCst) { Progress::Done } else { Progress::More }
                    };
                    spawner.spawn_work(groups[i % 2], work).unwrap();
                }
                std::thread::sleep(Duration::from_millis(20));
                changer.set(Placement::Packed);
                // The workers move the groups in turns of their own, at times that the machine's other load decides.
                for _ in 0..100 {
                    seen.lock().clear();
                    packed.store(true, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(20));
                    packed.store(false, Ordering::SeqCst);
                    if seen.lock().len() == groups.len() {
                        break;
                    }
                }
            })
            .unwrap()
    };
    assert!(report.longest_wait_to_bound() <= 1.0);
    assert_eq!(seen.lock().len(), 2, "each group on one core");
}

#[test]
fn roles_and_parameters_change_while_fibers_run() {
    let mut runtime = build(Runtime::builder().workers(2).policy(Itas).slice(Duration::from_micros(2)));
    let group = runtime.group("g").unwrap();
    let (groups, board) = (runtime.groups().clone(), runtime.board().clone());
    let stop = AtomicBool::new(false);
    runtime
        .run(|spawner| {
            let _told = StopAtEnd(&stop);
            for _ in 0..6 {
                let stop = &stop;
                let work = move || {
                    spin(Duration::from_micros(3));
                    if stop.load(Ordering::Relaxed) { Progress::Done } else { Progress::More }
                };
                spawner.spawn_work(group, work).unwrap();
            }
            for limit in 0..40 {
                let aggregation = Aggregation { bonus: Duration::from_micros(10), limit };
                groups.set_aggregation(group, aggregation).unwrap();
                let role = if limit % 2 == 0 { Role::Master } else { Role::SlaveOf(0) };
                assert!(board.set_role(1, role));
                std::thread::sleep(Duration::from_micros(200));
            }
            assert!(groups.remove(group).is_err());
        })
        .unwrap();
}

#[test]
fn the_watchdog_names_what_does_not_give_way() {
    let told = std::sync::Arc::new(AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&told);
    let builder = Runtime::builder().workers(1).watchdog(Duration::from_millis(20), move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let mut runtime = build(builder);
    let group = runtime.group("g").unwrap();
    let (_, report) =
        runtime.run(|spawner| spawner.spawn(group, || spin(Duration::from_millis(300))).unwrap()).unwrap();
    assert!(!report.stuck.is_empty() && report.stuck.iter().all(|stuck| stuck.group == Some(group)));
    assert_eq!(told.load(Ordering::Relaxed), report.stuck.len());
    assert_eq!(report.total().groups[group.index()].overruns, 1);
}

#[test]
fn slices_are_recorded_up_to_the_number_asked_for() {
    let mut runtime = build(Runtime::builder().workers(1).trace(10).slice(Duration::from_micros(1)));
    let group = runtime.group("g").unwrap();
    let (_, report) = runtime
        .run(|spawner| {
            for _ in 0..2 {
                let work = || {
                    (0..20).for_each(|_| {
                        spin(Duration::from_micros(3));
                        itas::point();
                    })
                };
                spawner.spawn(group, work).unwrap();
            }
        })
        .unwrap();
    let slices = &report.slices[0];
    assert_eq!(slices.len(), 10);
    assert!(slices.windows(2).all(|two| two[0].ended_ns <= two[1].began_ns));
}

#[test]
#[allow(unsafe_code)]
fn settings_that_make_no_sense_are_refused() {
    let wrong = |builder: Builder, name| {
        // SAFETY: the build fails, so nothing runs.
        let error = unsafe { builder.build() }.unwrap_err();
        assert_eq!(error.name, name, "{error}");
    };
    wrong(Runtime::builder().workers(0), "workers");
    wrong(Runtime::builder().workers(1000), "workers");
    wrong(Runtime::builder().fibers(0), "fibers");
    wrong(Runtime::builder().stack_bytes(100), "stack bytes");
    wrong(Runtime::builder().slice(Duration::ZERO), "slice");
    wrong(Runtime::builder().helpers(0), "helpers");
    wrong(Runtime::builder().watchdog(Duration::ZERO, |_| {}), "watchdog");
    let mut runtime = build(Runtime::builder().workers(1));
    let mut other = build(Runtime::builder().workers(1));
    let unknown = other.group("of another runtime").unwrap();
    runtime.group("of the same number").unwrap();
    runtime.run(|spawner| assert!(spawner.spawn(unknown, || {}).is_err())).unwrap();
    let _ = other.run(|_| ()).unwrap();
}

/// A panic of the closure is resumed in the caller; spawned work runs to its end first.
#[test]
fn a_panic_of_the_closure_waits_for_what_was_spawned() {
    let mut runtime = build(Runtime::builder().workers(1));
    let group = runtime.group("g").unwrap();
    let ran = AtomicUsize::new(0);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.run(|spawner| {
            spawner.spawn(group, || _ = ran.fetch_add(1, Ordering::Relaxed)).unwrap();
            panic!("in the closure");
        })
    }));
    assert!(outcome.is_err() && ran.into_inner() == 1);
}

/// An automatic runtime packs work that is slower away from its group's home core.
#[test]
fn an_automatic_runtime_finds_the_placement_that_pays() {
    use itas::auto::{AutoSettings, Mode};
    let settings = AutoSettings { window: Duration::from_millis(20), windows_between_trials: 48 };
    let mut runtime = build(Runtime::builder().workers(2).automatic(settings).slice(Duration::from_micros(20)));
    let groups = [runtime.group("a").unwrap(), runtime.group("b").unwrap()];
    let stop = AtomicBool::new(false);
    let (_, report) = runtime
        .run(|spawner| {
            let _told = StopAtEnd(&stop);
            for i in 0..8 {
                let (stop, home) = (&stop, format!("itas-{}", groups[i % 2].index() % 2));
                let work = move || {
                    let at_home = std::thread::current().name() == Some(&home);
                    spin(Duration::from_micros(if at_home { 5 } else { 30 }));
                    if stop.load(Ordering::Relaxed) { Progress::Done } else { Progress::More }
                };
                spawner.spawn_work(groups[i % 2], work).unwrap();
            }
            std::thread::sleep(Duration::from_millis(1500));
        })
        .unwrap();
    assert!(runtime.chosen_mode().is_none_or(|mode| mode == Mode::Packed), "{:?}", runtime.chosen_mode());
    assert!(report.longest_wait_to_bound() <= 1.0 && !report.cpu[0].is_zero());
}

/// A worker that cannot allocate its stacks ends the run before the closure is called, which would wait for its work.
#[test]
fn a_worker_that_cannot_begin_is_told_before_the_program_is_called() {
    let mut runtime = build(Runtime::builder().workers(2).fibers(64).stack_bytes(1 << 42));
    let ended = runtime.run(|_| panic!("it was called"));
    assert!(matches!(ended, Err(RunError::Worker { .. })), "{:?}", ended.err());
}

/// A fiber that does not give up its core delays no work while another core is idle: neither work that is submitted
/// later, nor work that already has a fiber on its core.
#[test]
fn an_idle_core_takes_what_waits_behind_a_fiber_that_does_not_give_way() {
    let mut runtime = build(Runtime::builder().workers(2).placement(Placement::Packed));
    let group = runtime.group("all").unwrap();
    let (held, done) = (AtomicBool::new(true), AtomicUsize::new(0));
    let all_ran = runtime
        .run(|spawner| {
            let hold = || {
                // Another core runs this work while this one is held.
                let begun = Instant::now();
                while done.load(Ordering::SeqCst) < 8 && begun.elapsed() < Duration::from_secs(20) {
                    std::hint::spin_loop();
                }
                held.store(false, Ordering::SeqCst);
            };
            spawner.spawn(group, hold).unwrap();
            for _ in 0..8 {
                let work = || {
                    let beside = usize::from(held.load(Ordering::SeqCst));
                    done.fetch_add(beside, Ordering::SeqCst);
                };
                spawner.spawn(group, work).unwrap();
            }
        })
        .map(|_| done.load(Ordering::SeqCst) == 8)
        .unwrap();
    assert!(all_ran);
}
