//! Flags of a run that depend on the machine: large pages, hardware counters, partitions.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

mod common;

use serde_json::Value;

/// A path for one test; Drop removes the directory.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("tpcc-hardware-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(scratch: &Scratch, args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tpcc"));
    command.arg("run").arg("--data").arg(&scratch.0).args(args.split_whitespace()).stdin(Stdio::null());
    command
}

/// Runs the command for a short time. Returns the JSON object and the summary.
fn run(scratch: &Scratch, args: &str) -> (Value, String) {
    let mut usual = "--warmup 0 --durability async --json -".to_owned();
    for (flag, value) in [("--buffer-pool", "256"), ("--check", "off")] {
        if !args.contains(flag) {
            usual += &format!(" {flag} {value}");
        }
    }
    let output = command(scratch, &format!("{usual} {args}")).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{args}: {said}");
    (common::parse(&String::from_utf8_lossy(&output.stdout)), said)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Returns true if this machine provides large pages. If it does not, the runs below report the reason.
fn has_large_pages() -> bool {
    storage::large_pages_available().is_ok()
}

#[test]
fn large_pages_are_told_by_region() {
    let scratch = Scratch::new("large");
    let (off, _) = run(&scratch, "--transactions 50 --large-pages off");
    assert_eq!(off["config"]["large_pages"], "off");
    for name in ["frames", "page_table", "shortcuts", "log_ring", "lock_table"] {
        let region = &off["large_pages"]["regions"][name];
        assert_eq!(bytes(&region["given_bytes"]), 0, "{name}: {off}");
        assert!(bytes(&region["bytes"]) >= bytes(&region["resident_bytes"]), "{name}");
    }
    assert!(off["large_pages"]["reason"].is_null(), "none were asked for");

    let (tried, said) = run(&scratch, "--transactions 50 --scheduler steps --workers 1 --team-size 3");
    let large = &tried["large_pages"];
    assert_eq!(large["asked"], "try");
    assert!(said.contains("large     pages try: "), "{said}");
    if has_large_pages() {
        assert!(bytes(&large["regions"]["frames"]["given_bytes"]) > 0, "{large}");
        assert!(bytes(&large["given_bytes"]) >= bytes(&large["regions"]["frames"]["given_bytes"]));
        assert!(large["regions"].get("stacks").is_some() && large["regions"].get("code").is_none(), "{large}");
    } else {
        assert!(large["reason"].is_string(), "{large}");
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn code_in_large_pages_runs_and_is_told() {
    if !has_large_pages() {
        return;
    }
    let scratch = Scratch::new("code");
    let (json, _) = run(&scratch, "--transactions 200 --large-pages code --check on");
    assert!(bytes(&json["large_pages"]["regions"]["code"]["given_bytes"]) >= 2 << 20, "{}", json["large_pages"]);
    assert_eq!(json["check"]["passed"], true);
}

#[cfg(target_os = "linux")]
#[test]
fn where_there_are_none_asking_for_them_is_an_error_that_says_what_to_do() {
    use std::os::unix::process::CommandExt;

    let scratch = Scratch::new("none");
    for (asked, named) in [("on", "--large-pages on: "), ("code", "--large-pages code: ")] {
        let mut without = command(&scratch, &format!("--transactions 1 --large-pages {asked}"));
        // SAFETY: between fork and exec, the closure makes one system call and allocates nothing.
        #[allow(unsafe_code)]
        unsafe {
            without.pre_exec(|| nix::sys::prctl::set_thp_disable(true).map_err(std::io::Error::from));
        }
        let output = without.output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.starts_with("error: ") && text.contains(named), "{text}");
        assert!(text.contains("\n  help: ") && text.contains("--large-pages try"), "{text}");
        assert!(!scratch.0.join("control").exists(), "nothing was made");
    }
}

#[test]
fn every_counter_is_a_figure_or_null_with_its_reason() {
    const EVENTS: [&str; 10] = [
        "cycles",
        "instructions",
        "l1i_misses",
        "l1d_misses",
        "llc_misses",
        "dtlb_misses",
        "itlb_misses",
        "branch_misses",
        "stalled_cycles_frontend",
        "stalled_cycles_backend",
    ];
    let scratch = Scratch::new("counters");
    let (off, _) = run(&scratch, "--transactions 20");
    assert!(off["counters"].is_null() && off["config"]["counters"] == false);
    for how in ["", "--scheduler steps --workers 1"] {
        let (on, said) = run(&scratch, &format!("--transactions 300 --mix new-order --counters on {how}"));
        let counters = &on["counters"];
        for event in EVENTS {
            let mean = &counters["all"][event];
            assert!(mean["user"].as_f64().is_some() || counters["reasons"][event].is_string(), "{event}: {counters}");
            assert!(counters["payment"][event].is_null(), "none ran");
        }
        let software = &counters["software"];
        assert!(software["task_clock_ms"].as_f64().unwrap() > 0.0, "{software}");
        assert!(software["page_faults"].is_u64() && software["context_switches"].is_u64());
        assert!(said.contains("counters  ") && said.contains(" ms on processors"), "{said}");
    }
}

#[test]
fn what_is_partitioned_is_told_and_leaves_the_same_rows() {
    let mut rows = Vec::new();
    for (how, pin) in
        [("", false), ("--partition none", false), ("--partition server", false), ("--partition both --pin", true)]
    {
        let scratch = Scratch::new("partition");
        // The data is larger than the pool, so pages are evicted.
        let args =
            format!("--warehouses 1 --workers 1 --seed 7 --clock logical --transactions 500 --buffer-pool 32 {how}");
        let (json, said) = run(&scratch, &format!("{args} --check on"));
        let want = how.split_whitespace().nth(1).unwrap_or("client");
        assert_eq!(json["config"]["partition"], want, "{how}");
        assert_eq!(json["config"]["pin"], pin, "{how}");
        assert_eq!(json["check"]["passed"], true, "{how}");
        assert!(said.contains(&format!("partition {want}")) && said.contains(" memory node"), "{said}");
        rows.push(json["rows"].clone());
    }
    assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "{rows:?}");
}
