//! `tpcc history` from the point of view of scripts: its lines, its errors, its directory.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn history(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tpcc")).arg("history").args(args).stdin(Stdio::null()).output().unwrap()
}

/// A directory for one test; Drop removes it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("tpcc-history-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// All isolation levels and forms use one directory in turn: each run begins with an empty database.
#[test]
fn a_history_is_one_line_per_transaction() {
    lines("lines", &[]);
}

#[test]
fn sessions_may_be_fibers() {
    lines("one", &["--scheduler", "steps", "--workers", "1", "--ctx-points", "all"]);
    lines("two", &["--scheduler", "steps", "--workers", "2", "--team-size", "2", "--durability", "sync"]);
    lines("alone", &["--scheduler", "steps", "--team-size", "1"]);
    lines("own-frames", &["--scheduler", "steps", "--workers", "2", "--partition", "server"]);
}

#[test]
fn steps_may_be_loops_on_several_threads() {
    lines_of("loops", &["--speculate", "on"], &["list-append"], &["serializable"]);
}

fn lines(name: &str, how: &[&str]) {
    lines_of(name, how, &["list-append", "register"], &["serializable", "repeatable-read", "read-committed"]);
}

fn lines_of(name: &str, how: &[&str], forms: &[&str], levels: &[&str]) {
    let scratch = Scratch::new(name);
    let (data, out) = (scratch.path("db"), scratch.path("history.jsonl"));
    for &form in forms {
        for &level in levels {
            let load = [
                "--data",
                &data,
                "--sessions",
                "5",
                "--transactions",
                "40",
                "--keys",
                "6",
                "--isolation",
                level,
                "--seed",
                "3",
                "--form",
                form,
                "--abort-percent",
                "20",
                "--out",
                &out,
            ];
            let output = history(&[&load[..], how].concat());
            assert!(output.status.success(), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("seed 3"), "{output:?}");
            check_lines(&fs::read_to_string(&out).unwrap(), form);
        }
    }
}

fn check_lines(text: &str, form: &str) {
    let mut ids = HashSet::new();
    let mut ends = [0; 5];
    let (mut written, mut aborted, mut absent) = (HashSet::new(), 0, 0);
    for line in text.lines() {
        let txn: Value = serde_json::from_str(line).unwrap();
        assert!(ids.insert(txn["id"].as_u64().unwrap()));
        let session = txn["session"].as_u64().unwrap() as usize;
        let (start, end) = (txn["start"].as_u64().unwrap(), txn["end"].as_u64().unwrap());
        assert!(ends[session] <= start && start <= end, "{line}");
        ends[session] = end;
        assert!(["ok", "fail"].contains(&txn["status"].as_str().unwrap()), "{line}");
        aborted += usize::from(txn["status"] == "fail");
        for op in txn["ops"].as_array().unwrap() {
            let (kind, value) = (op[0].as_str().unwrap(), &op[2]);
            match (form, kind) {
                ("list-append", "a") | ("register", "w") => assert!(written.insert(value.as_u64().unwrap()), "{line}"),
                ("list-append", "r") => absent += usize::from(value.as_array().unwrap().is_empty()),
                ("register", "r") => {
                    assert!(value.is_u64() || value.is_null(), "{line}");
                    absent += usize::from(value.is_null() || value.as_u64().unwrap() % 2 == 1);
                }
                _ => panic!("{line}"),
            }
        }
    }
    assert_eq!(ids.len(), 200);
    assert!(aborted > 20 && absent > 0 && written.len() > 50, "{aborted} {absent} {}", written.len());
}

#[test]
fn mistakes_name_the_flag_and_exit_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["--out", "x", "--sessions", "0"], "--sessions 0: at least 1"),
        (&["--out", "x", "--sessions", "101"], "--sessions 101: at most 100"),
        (&["--out", "x", "--transactions", "0"], "--transactions 0: at least 1"),
        (&["--out", "x", "--keys", "0"], "--keys 0: at least 1"),
        (&["--out", "x", "--keys", "many"], "--keys many"),
        (&["--out", "x", "--abort-percent", "101"], "--abort-percent 101: at most 100"),
        (&["--out", "x", "--isolation", "snapshot"], "--isolation snapshot"),
        (&["--out", "x", "--form", "sets"], "--form sets"),
        (&["--out", "x", "--buffer-pool", "1"], "--buffer-pool 1: at least 16"),
        (&["--out", "x", "--team-size", "4"], "--team-size: means nothing with --scheduler threads"),
        (&["--out", "x", "--ctx-points", "all"], "--ctx-points: means nothing with --scheduler threads"),
        (&["--out", "x", "--partition", "client"], "--partition client: means nothing here"),
        (&["--out", "x", "--workers", "2"], "--workers: means nothing with --scheduler threads"),
        (&["--out", "x", "--speculate", "auto"], "--speculate auto"),
        (
            &["--out", "x", "--speculate", "on", "--scheduler", "steps"],
            "--speculate: means nothing with --scheduler steps",
        ),
        (&["--out", "x", "--speculate", "on", "--form", "register"], "--speculate: means nothing with --form register"),
        (
            &["--out", "x", "--speculate", "on", "--isolation", "repeatable-read"],
            "--speculate: means nothing with --isolation repeatable-read",
        ),
        (&["--out", "x", "--scheduler", "steps", "--team-size", "0"], "--team-size 0: at least 1"),
        (&["--out", "x", "--scheduler", "steps", "--workers", "9"], "--workers 9: at most 8"),
        (&[], "--out"),
    ];
    for (args, want) in cases {
        let output = history(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(want) && text.contains("  help: "), "{args:?}: {text}");
    }
}

#[test]
fn what_cannot_be_written_or_is_somebody_elses_is_left_alone() {
    let scratch = Scratch::new("others");
    let (data, out) = (scratch.path("db"), scratch.path("history.jsonl"));
    let nowhere = scratch.path("none/history.jsonl");
    let output = history(&["--data", &data, "--out", &nowhere]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(&nowhere), "{output:?}");
    assert!(!PathBuf::from(&data).exists());

    const OTHER: storage::Table<u64, u64> = storage::Table::new("accounts");
    let db = storage::Database::open(&data, storage::Options::new()).unwrap();
    db.transact(|tx| tx.put(&OTHER, &1, &2)).unwrap();
    db.close().unwrap();
    let output = history(&["--data", &data, "--out", &out]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.starts_with("error: ") && text.contains(&data) && text.contains("  help: "), "{text}");
    let db = storage::Database::open(&data, storage::Options::new()).unwrap();
    assert_eq!(db.table_names(), ["accounts"]);
}
