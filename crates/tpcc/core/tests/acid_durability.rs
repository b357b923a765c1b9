//! Durability tests of clause 3.5: acknowledged transactions survive a failure of power, of the process, and of the log.
//! Loss of the only copy of the data is not tested, because one machine with one disk cannot survive it.
//!
//! The success file is outside the failing system: in the test's memory, or in the surviving process.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use storage::disk::{Call, Crash, Disk, Fault, FileDisk, SimDisk, When};
use storage::{Isolation, Options};
use tpcc_core::checkers::acid::{Answer, TestDatabase};

const WAREHOUSES: u32 = 2;
const TERMINALS: u32 = 6;

fn options() -> Options {
    Options::new().buffer_pool(2 << 20).log_segment(256 << 10).log_buffer(512 << 10).checkpoint_every(1 << 20)
}

fn on(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn orders_taken(test_db: &TestDatabase) -> u64 {
    let mut tx = test_db.begin(Isolation::Serializable, true).unwrap();
    let taken = tx.orders_taken(WAREHOUSES).unwrap();
    tx.commit().unwrap();
    taken
}

/// Runs terminals until the engine fails or `stop` is set; returns their success file.
fn serve(test_db: &TestDatabase, seed: u64, stop: &AtomicBool, checkpoints: bool) -> Vec<Answer> {
    let run = test_db.run_number().unwrap();
    let answers = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let terminals: Vec<_> = (0..TERMINALS)
            .map(|number| {
                let answers = &answers;
                scope.spawn(move || {
                    test_db.terminal(run, number, seed, stop, |answer| answers.lock().unwrap().push(answer))
                })
            })
            .collect();
        while checkpoints && terminals.iter().any(|t| !t.is_finished()) {
            if test_db.database().checkpoint().is_err() {
                break;
            }
        }
        for terminal in terminals {
            let _ = terminal.join().unwrap();
        }
    });
    answers.into_inner().unwrap()
}

/// Steps 5 to 7 of clause 3.5.4: every order of the success file exists, at most one further order per terminal exists, and
/// all conditions hold.
fn all_answered_is_there(test_db: &TestDatabase, before: u64, answers: &[Answer], what: &str) {
    let committed: BTreeSet<Answer> = answers.iter().copied().filter(|a| a.committed).collect();
    assert_eq!(committed.len(), answers.iter().filter(|a| a.committed).count(), "{what}: a number was given twice");
    let mut tx = test_db.begin(Isolation::Serializable, true).unwrap();
    for answer in &committed {
        let order = tx.order(answer.w, answer.d, answer.o).unwrap();
        let (_, _, lines, _) = order.unwrap_or_else(|| panic!("{what}: {answer:?} is lost"));
        assert_eq!(lines, answer.lines, "{what}: {answer:?}");
    }
    tx.commit().unwrap();
    let taken = orders_taken(test_db) - before;
    let told = committed.len() as u64;
    assert!((told..=told + u64::from(TERMINALS)).contains(&taken), "{what}: {told} told, {taken} there");
    assert_eq!(test_db.broken().unwrap(), [] as [String; 0], "{what}");
}

#[test]
fn power_fails() {
    let mut told = 0;
    for seed in 0..12 {
        let disk = SimDisk::new(seed);
        let test_db = TestDatabase::load(on(&disk), options(), WAREHOUSES).unwrap();
        let before = orders_taken(&test_db);
        disk.power_off_after(40 + 97 * seed);
        // Every other trial runs checkpoints.
        let answers = serve(&test_db, seed, &AtomicBool::new(false), seed % 2 == 1);
        drop(test_db);
        told += answers.len();
        for how in [Crash::Nothing, Crash::Random(seed)] {
            let crashed = disk.crash(how);
            let test_db = TestDatabase::open(on(&crashed), options()).unwrap();
            all_answered_is_there(&test_db, before, &answers, &format!("seed {seed}, {how:?}"));
        }
    }
    assert!(told > 100, "only {told} answers: nothing is proved");
}

/// A failed sync or write closes the instance: nothing is acknowledged after it, and everything acknowledged before survives
/// a reopen.
#[test]
fn the_log_fails() {
    let mut told = 0;
    for seed in 0..8 {
        let disk = SimDisk::new(100 + seed);
        let test_db = TestDatabase::load(on(&disk), options(), WAREHOUSES).unwrap();
        let before = orders_taken(&test_db);
        let call = if seed % 2 == 0 { Call::Sync } else { Call::Write };
        disk.plan(Some(call), When::Once(20 + 30 * seed), Fault::Eio);
        let answers = serve(&test_db, seed, &AtomicBool::new(false), false);
        told += answers.len();
        let again = serve_one(&test_db);
        assert!(again.is_err(), "seed {seed}: the instance goes on after {call:?} failed");
        drop(test_db);
        let crashed = disk.crash(Crash::Random(seed));
        let test_db = TestDatabase::open(on(&crashed), options()).unwrap();
        all_answered_is_there(&test_db, before, &answers, &format!("seed {seed}, {call:?}"));
    }
    assert!(told > 100, "only {told} answers: nothing is proved");
}

fn serve_one(test_db: &TestDatabase) -> Result<(), String> {
    let mut tx = test_db.begin(Isolation::Serializable, true)?;
    tx.payment((1, 1, 1), 100)?;
    tx.commit()?;
    let end = test_db.database().begin().map_err(|e| e.to_string())?.commit_async().map_err(|e| e.to_string())?;
    test_db.database().wait_durable(end).map_err(|e| e.to_string())
}

/// Environment variable with the directory for the child process.
const DIRECTORY: &str = "TPCC_ACID_DIRECTORY";

/// A child process serves terminals and reports their answers until it is killed.
#[test]
fn the_process_is_killed() {
    let directory = std::env::temp_dir().join(format!("tpcc-acid-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    TestDatabase::load(Arc::new(FileDisk::create(&directory).unwrap()), options(), WAREHOUSES)
        .unwrap()
        .close()
        .unwrap();
    for trial in 0..3 {
        let test_db = open(&directory);
        let before = orders_taken(&test_db);
        test_db.close().unwrap();
        let answers = served_until_killed(&directory, 50 + 100 * trial);
        let test_db = open(&directory);
        all_answered_is_there(&test_db, before, &answers, &format!("trial {trial}"));
        test_db.close().unwrap();
    }
    let _ = std::fs::remove_dir_all(&directory);
}

fn open(directory: &Path) -> TestDatabase {
    TestDatabase::open(Arc::new(FileDisk::open(directory).unwrap()), options()).unwrap()
}

/// Starts the child, kills it after `answers` answers, and returns all answers that it reported.
fn served_until_killed(directory: &Path, answers: usize) -> Vec<Answer> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_serves_until_it_is_killed", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = Vec::new();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The output of the killed child is read to its end; only a complete line is an answer.
    for line in lines {
        let line = line.unwrap();
        let Some((_, answer)) = line.split_once("answer ") else { continue };
        if let [w, d, o, lines, committed, "."] = answer.split(' ').collect::<Vec<_>>()[..] {
            told.push(Answer {
                w: w.parse().unwrap(),
                d: d.parse().unwrap(),
                o: o.parse().unwrap(),
                lines: lines.parse().unwrap(),
                committed: committed.parse().unwrap(),
            });
        }
        if told.len() == answers {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success() && told.len() >= answers, "{} answers", told.len());
    told
}

/// Not a test: the child process of the test above.
#[test]
#[ignore = "serves until it is killed"]
fn a_process_that_serves_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let test_db = open(Path::new(&directory));
    let run = test_db.run_number().unwrap();
    let never = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..TERMINALS {
            let (test_db, never) = (&test_db, &never);
            scope.spawn(move || {
                test_db
                    .terminal(run, number, u64::from(run), never, |Answer { w, d, o, lines, committed }| {
                        let line = format!("answer {w} {d} {o} {lines} {committed} .\n");
                        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                    })
                    .unwrap();
            });
        }
    });
}
