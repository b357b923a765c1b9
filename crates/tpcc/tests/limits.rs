//! Files and flags beyond their limits: files that are no results, results with extreme numbers and of any length, and more
//! memory than the machine has. Each case ends with a report page, or with an error of one or two lines.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn tpcc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tpcc")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs the command, asserts its exit status and returns its stderr.
fn said(status: i32, args: &[&str]) -> String {
    let output = tpcc(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
    said
}

/// A directory for one test; Drop removes it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("limits-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn of(&self, file: &str) -> String {
        self.0.join(file).to_str().unwrap().to_owned()
    }

    fn write(&self, file: &str, value: &Value) -> String {
        std::fs::write(self.0.join(file), value.to_string()).unwrap();
        self.of(file)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A result of a run with other time series.
fn with_series(times: &Value, rates: &Value) -> Value {
    json!({
        "schema": "tpcc-run/1", "interrupted": false, "measured_s": 1e308, "throughput_per_s": 1e308,
        "committed": u64::MAX, "rolled_back": u64::MAX, "aborted": u64::MAX,
        "series": { "t_s": times, "throughput_per_s": rates, "checkpoints": times },
        "provenance": {}, "machine": { "steal": 5e-324 }, "config": { "workers": 5e-324 },
        "transactions": { "payment": {
            "count": 1, "run_ns": 1e308, "p99_us": 5e-324,
            "curve": { "share": [0.5, 1e308, -1.0], "service_us": [1e308, null, 5e-324], "response_us": [] },
        } },
        "pool": { "hit_rate": 1e308, "more": [{ "a": 1 }, 2, { "b": [1, [2, { "c": null }]] }] },
    })
}

#[test]
fn runs_of_extreme_numbers_have_pages() {
    let scratch = Scratch::new("extreme");
    let long: Vec<u32> = (0..200_000).collect();
    let cases = [
        (json!([1, 2]), json!([0, 5e-324])),
        (json!([1e308, 1e308, 1e308]), json!([1, 2, 3])),
        (json!([-1e308, 1e308]), json!([f64::MAX, f64::MIN])),
        (json!([null, 2, "x", 3]), json!([1, null, 7])),
        (json!([]), json!([1, 2])),
        (json!({ "a": 1 }), json!(7)),
        (json!(long), json!(long)),
    ];
    for (times, rates) in cases {
        let run = scratch.write("run.json", &with_series(&times, &rates));
        let page = scratch.of("page.html");
        said(0, &["report", &run, "--out", &page]);
        let page = std::fs::read_to_string(page).unwrap();
        assert!(
            page.ends_with("</html>") && !page.contains("NaN") && !page.contains("inf%"),
            "{times:.100} {rates:.100}"
        );
        assert!(page.len() < 2 << 20, "{} bytes", page.len());
    }
}

#[test]
fn what_is_no_result_is_refused_by_name_and_bound() {
    let scratch = Scratch::new("device");
    let run = scratch.write("run.json", &with_series(&json!([1, 2]), &json!([1, 2])));
    let page = scratch.of("page.html");
    for args in
        [&["report", "/dev/zero", "--out", &page][..], &["compare", "/dev/zero", &run], &["compare", &run, "/dev/zero"]]
    {
        let said = said(1, args);
        let told = said.contains("/dev/zero: larger than 128 MiB, so not what 'tpcc run --json'");
        assert!(told && said.lines().count() == 2, "{said}");
    }
    let huge = scratch.write("huge.json", &with_series(&json!([1, 2]), &json!([1e308, 1e308])));
    let said = said(1, &["compare", &run, &huge]);
    assert!(said.contains("huge.json: the samples of a second are no rates") && said.lines().count() == 2, "{said}");
}

/// Runs the command with an address space limit in KiB. Returns its status and its stderr.
fn within(kib: u64, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {kib}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_tpcc")]);
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn numbers_beyond_their_range_or_any_memory_are_usage_errors() {
    let scratch = Scratch::new("usage");
    let data = scratch.of("none");
    let out = scratch.of("out");
    let pool = ["--buffer-pool", "16777216"];
    let cases: [(&[&str], &str); 12] = [
        (&["run", "--data", &data, "--terminals", "4000000000"], "--terminals 4000000000: at most 10000000"),
        (&["run", "--data", &data, pool[0], pool[1]], "--buffer-pool 16777216: takes 16,777,216 MiB of memory"),
        (&["load", "--data", &data, pool[0], pool[1]], "--buffer-pool 16777216: takes"),
        (&["check", "--data", &data, pool[0], pool[1]], "--buffer-pool 16777216: takes"),
        (&["verify", "--data", &data, "--acks", "x", pool[0], pool[1]], "--buffer-pool 16777216: takes"),
        (&["copy", "--data", &data, "--to", &out, pool[0], pool[1]], "--buffer-pool 16777216: takes"),
        (&["compact", "--data", &data, pool[0], pool[1]], "--buffer-pool 16777216: takes"),
        (&["shell", "--data", &data, pool[0], pool[1]], "--buffer-pool 16777216: takes"),
        (&["latency", "--data", &data, pool[0], pool[1]], "--buffer-pool 16777216: takes"),
        (&["history", "--data", &data, "--out", &out, pool[0], pool[1]], "--buffer-pool 16777216: takes"),
        (&["run", "--engine", "floor", "--warehouses", "1000000"], "--warehouses 1000000: takes"),
        (
            &["tenants", "--tenants", "1000", "--terminals-per-tenant", "1", "--policy", "fair", "--rows", "10000000"],
            "--tenants 1000: takes",
        ),
    ];
    for (args, want) in cases {
        let said = said(2, args);
        assert!(said.contains(want) && said.contains("\n  help: ") && said.lines().count() == 2, "{args:?}: {said}");
        assert!(!PathBuf::from(&data).exists() && !PathBuf::from(&out).exists(), "{args:?}: nothing was begun");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_this_process_may_not_have_is_refused_with_what_fits() {
    let scratch = Scratch::new("memory");
    let out = scratch.of("out");
    // No directory can be created below a file.
    let nowhere = scratch.write("file", &json!({})) + "/data";
    for (flag, number, args) in [
        ("--terminals", "10000000", &["run", "--data", &nowhere, "--workers", "1"][..]),
        ("--terminals", "10000000", &["run", "--data", &nowhere, "--workers", "1", "--scheduler", "steps"]),
        ("--warehouses", "1000000", &["run", "--data", &nowhere, "--workers", "1"]),
        (
            "--warehouses",
            "1000000",
            &["run", "--data", &nowhere, "--workers", "1", "--pacing", "spec", "--delivery-results", "/dev/null"],
        ),
        ("--buffer-pool", "4096", &["load", "--data", &nowhere]),
        ("--transactions", "268435456", &["history", "--data", &nowhere, "--out", &out, "--sessions", "1"]),
    ] {
        let kib = 2_000_000;
        let (status, said) = within(kib, &[args, &[flag, number]].concat());
        assert!(status == Some(2) && said.contains(&format!("{flag} {number}: takes ")), "{args:?}: {said}");
        let most = said.split_once(&format!("pass {flag} ")).and_then(|(_, rest)| rest.split_once(' ')).unwrap().0;
        assert!(most.parse::<u64>().unwrap() < number.parse().unwrap(), "{said}");
        // The reported maximum is accepted; the run then fails because of the directory.
        let (status, said) = within(kib, &[args, &[flag, most]].concat());
        assert!(status == Some(1) && !said.contains("takes"), "{args:?} {flag} {most}: {said}");
    }
    let (status, said) = within(2_000_000, &["tenants", "--rows", "100000000"]);
    assert!(status == Some(2) && said.contains("--rows 100000000: takes"), "{said}");
    let (status, said) = within(4_000_000, &["tenants", "--tenants", "300", "--terminals-per-tenant", "190"]);
    assert!(status == Some(2) && said.contains("--terminals-per-tenant 190: takes"), "{said}");
}
