//! `tpcc shell` from the point of view of scripts: the replies to each request, waits, and deadlock victims.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Maximum time for a reply.
const PATIENCE: Duration = Duration::from_secs(600);

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("tpcc-shell-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A shell process that a test drives line by line.
struct Shell {
    child: Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<String>,
}

impl Shell {
    fn start(data: &Directory, more: &[&str]) -> Shell {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tpcc"))
            .args(["shell", "--buffer-pool", "16", "--data", data.0.to_str().unwrap()])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (send, replies) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Shell { stdin: child.stdin.take(), child, replies }
    }

    /// A shell with `rows` in its table.
    fn with(data: &Directory, rows: &[(i64, i64)]) -> Shell {
        Shell::started_with(data, rows, &[])
    }

    fn started_with(data: &Directory, rows: &[(i64, i64)], more: &[&str]) -> Shell {
        let mut shell = Shell::start(data, more);
        shell.says("0 begin", &["0 ok"]);
        for (key, row) in rows {
            shell.says(&format!("0 put {key} {row}"), &["0 ok"]);
        }
        shell.says("0 commit", &["0 ok"]);
        shell
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn reply(&self) -> String {
        self.replies.recv_timeout(PATIENCE).unwrap_or_else(|_| "(nothing)".into())
    }

    /// Sends `line`. Asserts that exactly these replies follow, in this order. A `*` at the end of an expected reply matches
    /// any text.
    #[track_caller]
    fn says(&mut self, line: &str, wanted: &[&str]) {
        self.send(line);
        for want in wanted {
            let got = self.reply();
            let fits = want.strip_suffix('*').map_or(got == *want, |begin| got.starts_with(begin));
            assert!(fits, "'{line}' gave '{got}', wanted {wanted:?}");
        }
    }

    #[track_caller]
    fn script(&mut self, lines: &[(&str, &[&str])]) {
        for (line, wanted) in lines {
            self.says(line, wanted);
        }
        // A further reply would appear before this one.
        self.says("end get 1", &["end error no-transaction*"]);
    }

    fn end(mut self) -> (ExitStatus, Vec<String>) {
        drop(self.stdin.take());
        let status = self.child.wait().unwrap();
        (status, self.replies.iter().collect())
    }
}

/// Two transactions begin; 1 is the older.
const TWO: [(&str, &[&str]); 2] = [("1 begin", &["1 ok"]), ("2 begin", &["2 ok"])];

/// Schedulers and latches for sessions. All give the same replies in the same order.
const HOWS: [&[&str]; 5] = [
    &[],
    &["--latches", "super"],
    &["--scheduler", "steps", "--ctx-points", "all", "--latches", "plain"],
    &["--scheduler", "steps", "--teams", "operation", "--team-size", "2", "--background", "inline"],
    &["--scheduler", "itas", "--slice-us", "1"],
];

#[track_caller]
fn scripts(name: &str, rows: &[(i64, i64)], parts: &[&[(&str, &[&str])]]) {
    for (how, more) in HOWS.iter().enumerate() {
        let data = Directory::new(&format!("{name}-{how}"));
        let mut shell = Shell::started_with(&data, rows, more);
        for lines in parts {
            shell.script(lines);
        }
        let (status, _) = shell.end();
        assert!(status.success(), "{more:?}");
    }
}

#[track_caller]
fn two(name: &str, rows: &[(i64, i64)], lines: &[(&str, &[&str])]) {
    scripts(name, rows, &[&TWO, lines]);
}

const ROWS: [(i64, i64); 2] = [(1, 10), (2, 20)];

#[test]
fn statements_are_answered() {
    let data = Directory::new("statements");
    let mut shell = Shell::start(&data, &[]);
    shell.script(&[
        ("dump", &["dump none"]),
        ("a begin", &["a ok"]),
        ("a begin", &["a error in-transaction*"]),
        ("a get 1", &["a none"]),
        ("a insert 1 x=1", &["a ok"]),
        ("a insert 1 y", &["a error duplicate*"]),
        ("a get 1", &["a ok x=1"]),
        ("a update 2 y", &["a error not-found*"]),
        ("a delete 2", &["a error not-found*"]),
        ("a put -5 z", &["a ok"]),
        ("a put 1 w", &["a ok"]),
        ("a getu 1", &["a ok w"]),
        ("a scan -9 9", &["a ok -5=z 1=w"]),
        ("a scan 9 -9", &["a none"]),
        ("a lock table X", &["a ok"]),
        ("a delete -5", &["a ok"]),
        ("a commit", &["a ok"]),
        ("a get 1", &["a error no-transaction*"]),
        ("a rollback", &["a error no-transaction*"]),
        ("dump", &["dump ok 1=w"]),
        ("check", &["check ok*"]),
    ]);
    let long = "v".repeat(4_001);
    shell.says("a begin", &["a ok"]);
    // A row larger than a page.
    shell.says(&format!("a put 3 {long}"), &["a ok"]);
    shell.says("a get 3", &[&format!("a ok {long}")]);
    shell.says("a put 3 short", &["a ok"]);
    shell.says("a rollback", &["a ok"]);
    shell.says("quit", &["quit ok"]);
    assert!(shell.end().0.success());
}

#[test]
fn lines_that_are_none_are_told_so() {
    let data = Directory::new("malformed");
    let mut shell = Shell::start(&data, &[]);
    shell.says("", &[]);
    shell.script(&[
        ("# a note", &[]),
        ("1", &["1 error usage*"]),
        ("1 jump", &["1 error usage*"]),
        ("1 get one", &["1 error usage*"]),
        ("1 put 1 2 3", &["1 error usage*"]),
        ("1 begin soon", &["1 error usage*"]),
        ("1 get 9223372036854775808", &["1 error usage*"]),
        ("check it", &["check error usage*"]),
    ]);
    let long = "x".repeat(200_000);
    shell.says(&long, &["- error usage*"]);
    shell.says("1 begin", &["1 ok"]);
    assert!(shell.end().0.success());
}

#[test]
fn a_dirty_write_waits() {
    two(
        "dirty-write",
        &ROWS,
        &[
            ("1 put 1 11", &["1 ok"]),
            ("2 put 1 12", &["2 blocked"]),
            ("2 get 2", &["2 error busy*"]),
            ("1 commit", &["1 ok", "2 ok"]),
            ("2 commit", &["2 ok"]),
            ("3 begin", &["3 ok"]),
            ("3 get 1", &["3 ok 12"]),
        ],
    );
}

#[test]
fn a_dirty_read_waits_and_a_rollback_wakes() {
    two(
        "dirty-read",
        &ROWS,
        &[
            ("1 put 1 11", &["1 ok"]),
            ("2 get 1", &["2 blocked"]),
            ("1 rollback", &["1 ok", "2 ok 10"]),
            ("2 commit", &["2 ok"]),
        ],
    );
}

#[test]
fn a_read_is_repeatable() {
    two(
        "fuzzy-read",
        &ROWS,
        &[
            ("1 get 1", &["1 ok 10"]),
            ("2 put 1 11", &["2 blocked"]),
            ("1 get 1", &["1 ok 10"]),
            ("1 commit", &["1 ok", "2 ok"]),
        ],
    );
}

#[test]
fn a_phantom_waits_under_serializable() {
    two(
        "phantom",
        &ROWS,
        &[
            ("1 scan 3 9", &["1 none"]),
            ("2 insert 5 50", &["2 blocked"]),
            ("1 scan 3 9", &["1 none"]),
            ("1 commit", &["1 ok", "2 ok"]),
            ("2 commit", &["2 ok"]),
        ],
    );
    let rows = [(1, 10), (2, 20), (10, 100), (20, 200)];
    two("no-more", &rows, &[("1 scan 3 9", &["1 none"]), ("2 insert 15 50", &["2 ok"]), ("2 commit", &["2 ok"])]);
}

#[test]
fn an_absent_key_that_was_read_stays_absent() {
    two(
        "absent",
        &ROWS,
        &[
            ("1 get 5", &["1 none"]),
            ("2 insert 5 50", &["2 blocked"]),
            ("1 get 5", &["1 none"]),
            ("1 rollback", &["1 ok", "2 ok"]),
        ],
    );
}

#[test]
fn weaker_levels_let_phantoms_in() {
    for (level, first) in [("repeatable-read", "1 ok 5=50"), ("read-committed", "1 ok 5=50")] {
        let data = Directory::new(level);
        let mut shell = Shell::with(&data, &ROWS);
        shell.script(&[
            (&format!("1 begin {level}"), &["1 ok"]),
            ("2 begin", &["2 ok"]),
            ("1 scan 3 9", &["1 none"]),
            ("2 insert 5 50", &["2 ok"]),
            ("1 scan 3 9", &["1 blocked"]),
            ("2 commit", &["2 ok", first]),
            ("1 commit", &["1 ok"]),
        ]);
    }
}

#[test]
fn read_committed_reads_what_is_committed_now() {
    scripts(
        "committed",
        &ROWS,
        &[&[
            ("1 begin read-committed", &["1 ok"]),
            ("2 begin", &["2 ok"]),
            ("1 get 1", &["1 ok 10"]),
            ("2 put 1 11", &["2 ok"]),
            ("1 get 1", &["1 blocked"]),
            ("2 commit", &["2 ok", "1 ok 11"]),
            ("1 commit", &["1 ok"]),
        ]],
    );
}

#[test]
fn a_deadlock_has_one_victim_the_youngest() {
    two(
        "deadlock",
        &ROWS,
        &[
            ("1 put 1 11", &["1 ok"]),
            ("2 put 2 22", &["2 ok"]),
            ("1 put 2 12", &["1 blocked"]),
            ("2 put 1 21", &["2 deadlock", "1 ok"]),
            // The transaction has already been rolled back.
            ("2 get 1", &["2 error no-transaction*"]),
            ("1 commit", &["1 ok"]),
            ("dump", &["dump ok 1=11 2=12"]),
        ],
    );
    two(
        "deadlock-other",
        &ROWS,
        &[
            ("2 put 2 22", &["2 ok"]),
            ("1 put 1 11", &["1 ok"]),
            ("2 put 1 21", &["2 blocked"]),
            // The transaction that closes the cycle is the older one, so the other one aborts.
            ("1 put 2 12", &["1 blocked", "2 deadlock", "1 ok"]),
        ],
    );
}

#[test]
fn a_conversion_deadlocks_where_reading_for_update_waits() {
    two(
        "conversion",
        &ROWS,
        &[
            ("1 get 1", &["1 ok 10"]),
            ("2 get 1", &["2 ok 10"]),
            ("1 put 1 11", &["1 blocked"]),
            ("2 put 1 12", &["2 deadlock", "1 ok"]),
            ("1 commit", &["1 ok"]),
        ],
    );
    two(
        "update-lock",
        &ROWS,
        &[
            ("1 getu 1", &["1 ok 10"]),
            ("2 getu 1", &["2 blocked"]),
            ("1 put 1 11", &["1 ok"]),
            ("1 commit", &["1 ok", "2 ok 11"]),
            ("2 put 1 12", &["2 ok"]),
            ("2 commit", &["2 ok"]),
            ("dump", &["dump ok 1=12 2=20"]),
        ],
    );
}

#[test]
fn readers_pass_one_who_reads_for_update() {
    two(
        "update-read",
        &ROWS,
        &[
            ("2 get 1", &["2 ok 10"]),
            ("1 getu 1", &["1 ok 10"]),
            ("1 put 1 11", &["1 blocked"]),
            ("2 commit", &["2 ok", "1 ok"]),
        ],
    );
}

#[test]
fn who_came_first_is_served_first() {
    scripts(
        "fifo",
        &ROWS,
        &[&[
            ("1 begin", &["1 ok"]),
            ("2 begin", &["2 ok"]),
            ("3 begin", &["3 ok"]),
            ("4 begin", &["4 ok"]),
            ("1 put 1 11", &["1 ok"]),
            ("2 put 1 12", &["2 blocked"]),
            ("3 get 1", &["3 blocked"]),
            ("4 put 1 14", &["4 blocked"]),
            ("1 commit", &["1 ok", "2 ok"]),
            ("2 commit", &["2 ok", "3 ok 12"]),
            ("3 commit", &["3 ok", "4 ok"]),
            ("4 commit", &["4 ok"]),
            ("dump", &["dump ok 1=14 2=20"]),
        ]],
    );
}

#[test]
fn tables_are_locked_as_a_whole() {
    scripts(
        "tables",
        &ROWS,
        &[&[
            ("1 begin", &["1 ok"]),
            ("2 begin", &["2 ok"]),
            ("1 lock table S", &["1 ok"]),
            ("2 get 1", &["2 ok 10"]),
            ("2 put 1 11", &["2 blocked"]),
            ("1 commit", &["1 ok", "2 ok"]),
            ("3 begin", &["3 ok"]),
            ("3 lock table IX", &["3 ok"]),
            ("3 put 2 21", &["3 ok"]),
            ("4 begin", &["4 ok"]),
            ("4 lock table IS", &["4 ok"]),
            ("4 lock table SIX", &["4 blocked"]),
            ("2 commit", &["2 ok"]),
            ("3 commit", &["3 ok", "4 ok"]),
            ("4 scan 1 2", &["4 ok 1=11 2=21"]),
            ("4 lock table X", &["4 ok"]),
            ("1 begin", &["1 ok"]),
            ("1 get 1", &["1 blocked"]),
            ("4 rollback", &["4 ok", "1 ok 11"]),
        ]],
    );
}

#[test]
fn dump_waits_for_writers_and_check_does_not() {
    two(
        "dump",
        &ROWS,
        &[
            ("1 get 1", &["1 ok 10"]),
            ("dump", &["dump ok 1=10 2=20"]),
            ("1 put 1 11", &["1 ok"]),
            ("check", &["check ok*"]),
            ("dump", &["dump blocked"]),
            ("dump", &["dump error busy*"]),
            ("1 rollback", &["1 ok", "dump ok 1=10 2=20"]),
        ],
    );
}

#[test]
fn what_is_open_at_the_end_is_rolled_back() {
    HOWS.iter().for_each(|how| what_is_open_is_rolled_back(how));
}

fn what_is_open_is_rolled_back(how: &[&str]) {
    let data = Directory::new("end");
    let mut shell = Shell::started_with(&data, &ROWS, how);
    shell.script(&[
        ("1 begin", &["1 ok"]),
        ("1 put 1 11", &["1 ok"]),
        ("2 begin", &["2 ok"]),
        ("2 put 1 12", &["2 blocked"]),
        ("3 begin", &["3 ok"]),
        ("3 get 1", &["3 blocked"]),
    ]);
    let (status, rest) = shell.end();
    assert!(status.success(), "{rest:?}");
    let mut shell = Shell::start(&data, &[]);
    shell.says("dump", &["dump ok 1=10 2=20"]);
    shell.says("1 begin", &["1 ok"]);
    shell.says("1 put 1 11", &["1 ok"]);
    shell.says("quit", &["quit ok"]);
    assert!(shell.end().0.success());
    // After a kill, only committed rows remain.
    let mut shell = Shell::start(&data, &[]);
    shell.says("1 begin", &["1 ok"]);
    shell.says("1 put 3 30", &["1 ok"]);
    shell.says("1 commit", &["1 ok"]);
    shell.says("1 begin", &["1 ok"]);
    shell.says("1 put 4 40", &["1 ok"]);
    shell.child.kill().unwrap();
    let _ = shell.end();
    let mut shell = Shell::start(&data, &[]);
    shell.says("dump", &["dump ok 1=10 2=20 3=30"]);
}

/// A script in a pipe, which does not wait for replies, gets the same replies each time.
#[test]
fn a_script_in_a_pipe_is_answered_in_order() {
    let script = "1 begin\n2 begin\n3 begin\n1 put 1 11\n2 put 2 22\n3 put 3 33\n1 put 2 12\n2 put 3 23\n3 put 1 31\n\
                  1 commit\n2 commit\n1 begin\n1 scan 0 9\n1 rollback\nquit\n";
    let mut first = None;
    for round in 0..20 {
        let data = Directory::new("pipe");
        let mut shell = Shell::start(&data, HOWS[round % HOWS.len()]);
        shell.stdin.as_mut().unwrap().write_all(script.as_bytes()).unwrap();
        let (status, replies) = shell.end();
        assert!(status.success());
        assert_eq!(replies.last().map(String::as_str), Some("quit ok"));
        assert_eq!(replies.iter().filter(|line| line.ends_with("deadlock")).count(), 1, "{replies:?}");
        assert_eq!(first.get_or_insert_with(|| replies.clone()), &replies, "round {round}");
    }
}

#[test]
fn tables_have_names() {
    let data = Directory::new("names");
    let mut shell = Shell::start(&data, &["--table", "other"]);
    shell.script(&[("1 begin", &["1 ok"]), ("1 put 1 1", &["1 ok"]), ("1 commit", &["1 ok"])]);
    shell.says("quit", &["quit ok"]);
    assert!(shell.end().0.success());
    let mut shell = Shell::start(&data, &[]);
    shell.says("dump", &["dump none"]);
    drop(shell.end());
    for name in ["", "stock"] {
        let (status, _) = Shell::start(&data, &["--table", name]).end();
        assert_eq!(status.code(), Some(2), "{name}");
    }
}
