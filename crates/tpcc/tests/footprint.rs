//! `tpcc footprint`, `tpcc index-fetch` and `tpcc reproduce`, from the point of view of users.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

mod common;

fn tpcc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tpcc")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory for the temporary files of one test, to check that nothing remains in it.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        let path = std::env::temp_dir().join(format!("tpcc-left-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Temporary(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }

    fn command(&self, args: &[&str]) -> Command {
        self.program(Command::new(env!("CARGO_BIN_EXE_tpcc")), args)
    }

    /// As `command`, for a program with other arguments before these.
    fn program(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).env("TMPDIR", &self.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn mistakes_name_the_flag() {
    let cases: &[(&[&str], &str)] = &[
        (&["footprint", "--geometry", "30000,8,64"], "--geometry 30000,8,64: its size, 30000, is no power of two"),
        (&["footprint", "--geometry", "32768,7,64"], "--geometry 32768,7,64"),
        (&["footprint", "--geometry", "256,8,64"], "--geometry 256,8,64: no such cache"),
        (&["footprint", "--geometry", "large"], "--geometry large: is not SIZE,WAYS,LINE"),
        (&["footprint", "--mix", "nonsense"], "--mix nonsense"),
        (&["index-fetch", "--threads", "0"], "--threads 0: from 1 to"),
        (&["index-fetch", "--fetches", "-1"], "--fetches -1: from 1 to"),
        (&["index-fetch", "--ctx-points", "/none/such"], "--ctx-points /none/such"),
        (&["reproduce", "steps-fig99"], "steps-fig99: no such experiment"),
    ];
    for (args, want) in cases {
        let output = tpcc(args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(want) && !text.contains("panicked"), "{args:?}: {text}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn experiments_are_listed() {
    let text = stdout(&tpcc(&["reproduce", "--list"]));
    for id in ["steps ", "steps-fig2", "steps-fig5", "steps-fig8", "steps-fig9", "steps-table2", "steps-fig10"] {
        assert!(text.contains(id), "{id} in {text}");
    }
    for id in ["steps-table4", "steps-fig11", "steps-prefetch", "steps-switch"] {
        assert!(text.contains(id), "{id} in {text}");
    }
}

/// Returns true if the machine does not permit tracing, as opposed to an error of the program.
fn tracing_is_forbidden(output: &Output) -> bool {
    let text = stderr(output);
    let forbidden = cfg!(not(all(target_arch = "x86_64", target_os = "linux"))) || text.contains("cannot be traced");
    if forbidden {
        eprintln!("tracing is not possible here: {text}");
    }
    forbidden
}

#[test]
fn payments_are_traced_and_placed() {
    let temporary = Temporary::new("footprint");
    let file = temporary.path().join("points");
    let file = file.to_str().unwrap();
    let args = ["footprint", "--mix", "payment", "--geometry", "4096,8,64", "--place", file, "--seed", "1"];
    let output = temporary.command(&args).output().unwrap();
    if tracing_is_forbidden(&output) {
        return;
    }
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for operation in ["begin", "update customer", "update district", "update warehouse", "insert history", "commit"] {
        assert!(text.lines().any(|line| line.starts_with(operation)), "{operation} in {text}");
    }
    assert!(text.contains("whole payment") && text.contains("live "), "{text}");
    let placed = std::fs::read_to_string(file).unwrap();
    assert!(placed.contains("update customer"), "{placed}");
    std::fs::remove_file(file).unwrap();
    assert!(temporary.is_empty(), "the database is removed again");

    let output = temporary.command(&["footprint", "--mix", "payment", "--operation", "fly"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("--operation fly: no such operation"), "{}", stderr(&output));
    assert!(temporary.is_empty(), "also after an error");
}

#[test]
fn index_fetches_run_with_and_without_points() {
    for points in ["all", "none"] {
        let output = tpcc(&["index-fetch", "--threads", "4", "--fetches", "500", "--ctx-points", points]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).contains("2000 by 4 threads"), "{}", stdout(&output));
    }
}

#[test]
fn without_valgrind_claims_are_null_and_say_why() {
    let temporary = Temporary::new("uncounted");
    let file = temporary.path().join("out.json");
    let args = ["reproduce", "steps-fig8", "--quick", "--json", file.to_str().unwrap()];
    // With an empty PATH, no helper program is found.
    let output = temporary.command(&args).env("PATH", "").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let json = common::parse(&std::fs::read_to_string(&file).unwrap());
    assert_eq!(json["id"], "steps-fig8");
    let claim = json["claims"].as_array().unwrap().iter().find(|c| c["name"] == "index_fetch_i1_reduction").unwrap();
    assert!(claim["value"].is_null() && claim["holds"].is_null(), "{claim}");
    assert!(claim["note"].as_str().unwrap().contains("valgrind"), "{claim}");
    for key in ["paper", "machine", "config", "series"] {
        assert!(!json[key].is_null(), "{key}");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(temporary.is_empty());
}

#[test]
fn what_is_not_on_this_machine_is_said_and_not_left_out() {
    let temporary = Temporary::new("feedback");
    let file = temporary.path().join("out.json");
    let args = ["reproduce", "itanium-feedback", "--quick", "--json", file.to_str().unwrap()];
    // The directory is outside a clone of the sources, so no binary of 'cargo xtask pgo' is found.
    let outside = std::env::temp_dir().canonicalize().unwrap();
    let output = temporary.command(&args).current_dir(&outside).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let json = common::parse(&std::fs::read_to_string(&file).unwrap());
    assert!(json["config"]["feedback"].as_str().unwrap().contains("cargo xtask pgo"), "{}", json["config"]);
    let series = json["series"].as_array().unwrap();
    let of = |name: &str| series.iter().find(|s| s["name"].as_str().unwrap().contains(name)).unwrap();
    assert_eq!(of("table5 paper")["y"][2], 0.8);
    assert!(of("table5 here")["y"].as_array().unwrap().iter().all(serde_json::Value::is_null));
    let claim = json["claims"].as_array().unwrap().iter().find(|c| c["name"] == "profile_feedback_vs_none").unwrap();
    assert!(claim["value"].is_null() && claim["note"].as_str().unwrap().contains("not on this machine"), "{claim}");
    std::fs::remove_file(&file).unwrap();
    assert!(temporary.is_empty());

    // This flag is internal: tpcc passes it to the process that it traces.
    let output = tpcc(&["footprint", "--page-reads"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let temporary = Temporary::new("interrupted");
    let mut hearing = Command::new("env");
    hearing.args(["--default-signal=INT", env!("CARGO_BIN_EXE_tpcc")]);
    let mut child = temporary.program(hearing, &["reproduce", "steps-prefetch", "--quick"]).spawn().unwrap();
    while temporary.is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(temporary.is_empty(), "{:?}", std::fs::read_dir(temporary.path()).unwrap().collect::<Vec<_>>());
}
