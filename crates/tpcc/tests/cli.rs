//! The command from the point of view of users and scripts: exit statuses, messages, JSON, Ctrl-C.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

mod common;

use serde_json::Value;

fn tpcc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tpcc")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A path for one test; Drop removes the file or directory.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("tpcc-cli-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn json(&self) -> Value {
        common::parse(&std::fs::read_to_string(&self.0).unwrap())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn mistakes_name_the_flag_and_exit_2() {
    let cases: &[(&[&str], &str)] = &[
        (&["run", "--warehouses", "0"], "--warehouses 0: at least 1"),
        (&["run", "--warehouses", "-1"], "--warehouses -1: at least 1"),
        (&["run", "--warehouses", "many"], "--warehouses many"),
        (&["load", "--warehouses", "0"], "--warehouses 0: at least 1"),
        (&["run", "--mix", "nonsense"], "--mix nonsense"),
        (&["run", "--scheduler", "nonsense"], "--scheduler nonsense"),
        (&["run", "--buffer-pool", "0"], "--buffer-pool 0: at least 16 MiB"),
        (&["run", "--buffer-pool", "15"], "--buffer-pool 15: at least 16 MiB"),
        (&["check", "--buffer-pool", "1"], "--buffer-pool 1: at least 16 MiB"),
        (&["run", "--workers", "0"], "--workers 0: at least 1"),
        (&["run", "--workers", "100000"], "--workers 100000: at most"),
        (&["run", "--terminals", "0"], "--terminals 0: at least 1"),
        (&["run", "--transactions", "0"], "--transactions 0: at least 1"),
        (&["run", "--duration", "0"], "--duration 0"),
        (&["run", "--duration", "nan"], "--duration NaN"),
        (&["run", "--duration"], "--duration: needs a value"),
        (&["run", "--warmup", "-1"], "--warmup -1"),
        (&["run", "--durability", "maybe"], "--durability maybe"),
        (&["run", "--isolation", "none"], "--isolation none"),
        (&["run", "--latches", "sticky"], "--latches sticky"),
        (&["run", "--latches", "super", "--latch-words", "129"], "--latch-words 129: at most 128"),
        (&["run", "--latch-words", "64"], "--latch-words 64: means nothing without '--latches super'"),
        (&["history", "--out", "x", "--latches", "plain", "--latch-words", "64"], "--latch-words 64: means nothing"),
        (&["run", "--partition", "all"], "--partition all"),
        (&["run", "--engine", "floor", "--partition", "both"], "--partition: means nothing"),
        (&["run", "--pin", "--workers", "1024"], "--pin: 1024 workers on "),
        (&["run", "--pin", "--speculate", "on"], "--pin: means nothing with --speculate on"),
        (&["run", "--large-pages", "maybe"], "--large-pages maybe"),
        (&["run", "--engine", "floor", "--large-pages", "off"], "--large-pages: means nothing"),
        (&["run", "--prefetch", "yes"], "--prefetch yes"),
        (&["run", "--preload", "yes"], "--preload yes"),
        (&["run", "--background", "none"], "--background none"),
        (&["run", "--checkpoint-mib", "0"], "--checkpoint-mib 0: at least 1"),
        (&["run", "--page-checksums", "maybe"], "--page-checksums maybe"),
        (&["run", "--read-delay-us", "-1"], "--read-delay-us -1: at least 0"),
        (&["run", "--engine", "floor", "--read-delay-us", "1"], "--read-delay-us: means nothing"),
        (&["run", "--order", "random"], "--order random"),
        (&["run", "--counters", "maybe"], "--counters maybe"),
        (&["run", "--check", "maybe"], "--check maybe"),
        (&["run", "--engine", "postgres"], "--engine postgres"),
        (&["run", "--pacing", "slow"], "--pacing slow"),
        (&["run", "--delivery-results", "x"], "--delivery-results: means nothing with --pacing none"),
        (&["run", "--pacing", "spec", "--transactions", "5"], "--transactions: means nothing with --pacing spec"),
        (&["run", "--pacing", "spec", "--engine", "floor"], "--engine floor: means nothing with --pacing spec"),
        (&["run", "--pacing", "spec", "--scheduler", "steps"], "--scheduler steps: means nothing with --pacing spec"),
        (&["run", "--pacing", "spec", "--terminals", "5"], "--terminals: means nothing with --pacing spec"),
        (&["run", "--pacing", "spec", "--mix", "payment"], "--mix: means nothing with --pacing spec"),
        (&["run", "--pacing", "spec", "--ack-stdout"], "--ack-stdout: means nothing with --pacing spec"),
        (&["compare"], "compare: what with what?"),
        (&["compare", "a.json"], "compare: what with what?"),
        (&["compare", "--run", "--prefetch on"], "compare: what with what?"),
        (&["compare", "a.json", "b.json", "--rounds", "3"], "--rounds: means nothing with saved results"),
        (&["compare", "a.json", "b.json", "c.json"], "c.json: a word too many"),
        (&["compare", "--run", "--x", "--run", "--y"], "--x: no such flag"),
        (&["compare", "--run", "--seed 1", "--run", "--seed 2", "--rounds", "1"], "--rounds 1: at least 2"),
        (&["compare", "--run", "--seed 1", "--run", "--json x"], "--json: means nothing with --run"),
        (&["compare", "--sweep", "workers"], "--sweep workers: has no values"),
        (&["compare", "--sweep", "workers=0,1"], "--workers 0: at least 1"),
        (&["run", "--seed", "-1"], "--seed -1: a whole number from 0 to 18446744073709551615"),
        (&["run", "--speculat"], "--speculat: no such flag"),
        (&["run", "--seed", "1", "--seed", "2"], "--seed"),
        (&["run", "--replace"], "--replace"),
        (&["run", "--engine", "floor", "--workers", "2"], "--workers 2: the floor is one thread"),
        (&["run", "--engine", "floor", "--latches", "plain"], "--latches: means nothing"),
        (&["run", "--engine", "floor", "--durability", "sync"], "--durability: means nothing"),
        (&["run", "--engine", "floor", "--data", "x"], "--data: means nothing"),
        (&["run", "--scheduler", "steps", "--team-size", "0"], "--team-size 0: at least 1"),
        (&["run", "--scheduler", "steps", "--team-size", "1000"], "--team-size 1000: at most 256"),
        (&["run", "--team-size", "8"], "--team-size: means nothing with --scheduler threads"),
        (&["run", "--ctx-points", "all"], "--ctx-points: means nothing with --scheduler threads"),
        (&["run", "--engine", "floor", "--scheduler", "steps"], "--scheduler steps: means nothing"),
        (&["load", "--engine", "floor"], "--engine floor"),
        (&["check", "--engine", "floor"], "--engine floor"),
        (&["run", "--engine", "floor", "--ack-stdout"], "--ack-stdout: means nothing"),
        (&["compact", "--engine", "floor"], "--engine floor"),
        (&["copy"], "--to <DIR>: missing"),
        (&["copy", "--to", "x", "--engine", "floor"], "--engine floor"),
        (&["shell", "--table", "stock"], "--table stock: belongs to the workload"),
        (&["shell", "--engine", "floor"], "--engine floor"),
        (&["renters"], "renters: no such command"),
        (&[], "no command given"),
    ];
    for (args, want) in cases {
        let output = tpcc(args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        assert!(first.starts_with("error: ") && first.contains(want), "{args:?}: {text}");
        assert!(lines.next().unwrap_or_default().starts_with("  help: "), "{args:?}: {text}");
        assert_eq!(lines.next(), None, "{args:?}: {text}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn what_is_unknown_leads_to_the_right_help() {
    for (args, want) in [
        (&["report", "--wide"][..], "'tpcc report -h' lists the flags"),
        (&["reproduce", "all", "--wide"], "'tpcc reproduce -h' lists the flags"),
        (&["load", "--wide"], "'tpcc load -h' lists the flags"),
        (&["--wide"], "'tpcc -h' lists the flags"),
        (&["renters"], "tenants"),
        (&[], "tenants"),
    ] {
        let output = tpcc(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(want), "{args:?}: '{want}' in {}", stderr(&output));
    }
}

#[test]
fn help_names_every_flag_under_its_heading() {
    let output = tpcc(&["run", "--help"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut from = 0;
    for heading in ["\nData:", "\nLoad:", "\nEngine:", "\nScheduling:", "\nMachine:", "\nOutput:"] {
        from += text[from..].find(heading).unwrap_or_else(|| panic!("{heading} in {text}"));
    }
    for flag in ["data", "warehouses", "terminals", "mix", "durability", "isolation", "order", "json", "check"] {
        assert!(text.contains(&format!("--{flag} ")), "{flag}");
    }
    assert!(tpcc(&["--version"]).status.success());
}

#[test]
fn an_output_that_cannot_be_written_is_told_before_the_work() {
    let start = Instant::now();
    let output = tpcc(&["run", "--engine", "floor", "--duration", "7200", "--json", "/nowhere/at/all.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nowhere/at/all.json"), "{}", stderr(&output));
    assert!(start.elapsed() < Duration::from_secs(3600), "it ran first");
}

#[test]
fn a_run_on_the_floor_says_everything() {
    let file = Scratch::new("floor");
    let args = ["run", "--engine", "floor", "--transactions", "20000", "--seed", "42", "--json", file.text()];
    let output = tpcc(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("derived from TPC-C; not a TPC-C result"), "{text}");
    for part in
        ["FLOOR", "seed 42", "throughput", "new-order", "stock-level", "as specified", "12 of 12 conditions hold"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }

    let json = file.json();
    let at = |path: &str| path.split('/').fold(&json, |value, key| &value[key]).clone();
    assert_eq!(at("check/passed"), true);
    assert_eq!(at("interrupted"), false);
    assert_eq!(at("config/engine"), "floor");
    assert_eq!(at("config/seed"), 42);
    assert_eq!(at("config/warehouses"), 1);
    assert_eq!(at("config/workers"), 1);
    assert_eq!(at("config/terminals"), 10);
    assert_eq!(at("config/durability"), Value::Null);
    assert_eq!(at("aborted"), 0);
    assert_eq!(at("aborts"), Value::Array(Vec::new()));
    let number = |path: &str| at(path).as_f64().unwrap_or_else(|| panic!("{path}: {}", at(path)));
    assert_eq!(number("committed") + number("rolled_back"), 20_000.0);
    assert!(number("throughput_per_s") > 0.0 && number("new_orders_per_min") > 0.0);
    assert!(number("peak_rss_bytes") > 1e6);
    for (kind, share) in
        [("new-order", 0.45), ("payment", 0.43), ("order-status", 0.04), ("delivery", 0.04), ("stock-level", 0.04)]
    {
        let of = |key: &str| number(&format!("transactions/{kind}/{key}"));
        assert!((of("count") / 20_000.0 - share).abs() < 0.005, "{kind} {}", of("count"));
        let times = [of("p50_us"), of("p90_us"), of("p99_us"), of("max_us")];
        assert!(times.is_sorted(), "{kind} {times:?}");
        assert!(of("mean_us") > 0.0 && of("response_p50_us") >= of("p50_us"));
        assert!(of("response_p99_us") > 0.0);
    }
    assert!((0.005..0.015).contains(&number("generator/rollback")));
    assert!((0.57..0.63).contains(&number("generator/by_name")));
    assert_eq!((number("generator/remote_lines"), number("generator/remote_payments")), (0.0, 0.0));
    assert!(at("series/t_s").is_array() && at("series/throughput_per_s").is_array());
    for key in ["commit", "dirty", "rustc", "flags", "command"] {
        assert!(json["provenance"].get(key).is_some(), "{key}");
    }
    assert!(json.get("schema").is_some() && json["machine"]["cores"].is_number());
    let orders = number("transactions/new-order/count") - number("rolled_back");
    assert_eq!(number("rows/order"), 30_000.0 + orders);
    assert_eq!(number("rows/history"), 30_000.0 + number("transactions/payment/count"));
    assert_eq!((number("rows/item"), number("rows/stock")), (100_000.0, 100_000.0));
    assert_eq!((number("rows/warehouse"), number("rows/district"), number("rows/customer")), (1.0, 10.0, 30_000.0));
    assert!(number("rows/order_line") > 250_000.0 && number("rows/new_order") > 0.0);
}

#[test]
fn a_single_type_runs_alone_and_unchecked_is_null() {
    let file = Scratch::new("payment");
    let output = tpcc(
        &[
            "run",
            "--engine",
            "floor",
            "--mix",
            "payment",
            "--duration",
            "1.2",
            "--warmup",
            "0",
            "--check",
            "off",
            "--order",
            "spec",
            "--json",
        ]
        .into_iter()
        .chain([file.text()])
        .collect::<Vec<_>>(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json = file.json();
    assert_eq!(json["check"]["passed"], Value::Null);
    assert_eq!(json["rows"], Value::Null);
    assert_eq!(json["transactions"]["new-order"]["count"], 0);
    assert_eq!(json["transactions"]["new-order"]["p50_us"], Value::Null);
    assert_eq!(json["generator"]["rollback"], Value::Null);
    assert!(json["transactions"]["payment"]["count"].as_u64().unwrap() > 0);
    assert_eq!(json["series"]["t_s"].as_array().unwrap().len(), 1);
}

/// Sends `signals` in order to a run that is measuring. The last one must end the run with `status` and `word`.
fn signals_end_a_run(mut command: Command, signals: &[&str], status: i32, word: &str) {
    let file = Scratch::new("interrupted");
    let mut child = command
        .args(["run", "--engine", "floor", "--duration", "7200", "--warmup", "0", "--json", file.text()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Interrupted during the load, the command would have nothing to report. It prints a line when it begins to measure.
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(told.any(|line| line.unwrap().starts_with("run ")), "it ended by itself");
    // A full pipe must not block the run.
    let rest = std::thread::spawn(move || told.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
    for signal in signals {
        assert!(child.try_wait().unwrap().is_none(), "{signal}: it has ended before");
        let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
    let start = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{signals:?}: {}", rest.join().unwrap());
    assert!(start.elapsed() < Duration::from_secs(3600), "it ran to its end");
    let json = file.json();
    assert_eq!(json["interrupted"], true);
    assert_eq!(json["check"]["passed"], Value::Null);
    assert!(json["committed"].as_u64().unwrap() > 0);
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("ended by {word}")));
}

#[cfg(unix)]
#[test]
fn signals_end_a_run_cleanly() {
    let tpcc = || {
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP,INT,TERM", env!("CARGO_BIN_EXE_tpcc")]);
        command
    };
    signals_end_a_run(tpcc(), &["INT"], 0, "Ctrl-C");
    signals_end_a_run(tpcc(), &["TERM"], 128 + 15, "SIGTERM");
    signals_end_a_run(tpcc(), &["HUP"], 128 + 1, "SIGHUP");
}

#[cfg(unix)]
#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap - TERM; trap '' HUP INT; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tpcc")]);
    signals_end_a_run(shell, &["HUP", "INT", "TERM"], 128 + 15, "SIGTERM");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_below_stderr_changes_no_status() {
    for (args, status) in
        [(&["run", "--engine", "floor", "--transactions", "10"][..], 0), (&["run", "--no-such-flag"], 2)]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended =
            Command::new(env!("CARGO_BIN_EXE_tpcc")).args(args).stdout(Stdio::null()).stderr(full).status().unwrap();
        assert_eq!(ended.code(), Some(status), "{args:?}");
    }
}

/// Runs the command. Asserts the exit status and that `want` is part of stderr.
fn ends(status: i32, want: &str, args: &[&str]) -> Output {
    let output = tpcc(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
    assert!(text.contains(want) && !text.contains("panicked"), "{args:?}: {text}");
    output
}

#[test]
fn a_database_is_loaded_run_and_checked() {
    let (data, file) = (Scratch::new("data"), Scratch::new("data-json"));
    let (data, json) = (data.text(), file.text());
    ends(1, "no database there", &["check", "--data", data]);
    ends(0, "", &["load", "--data", data, "--seed", "7", "--json", json]);
    let load = file.json();
    assert_eq!((&load["config"]["warehouses"], &load["config"]["seed"]), (&Value::from(1), &Value::from(7)));
    assert!(load["loaded_rows"].as_u64().unwrap() > 500_000 && load["load_s"].as_f64().unwrap() > 0.0);
    ends(1, "already holds 1 warehouse;", &["load", "--data", data]);
    ends(2, "--warehouses 7", &["run", "--data", data, "--warehouses", "7"]);
    let mut orders = 30_000;
    for durability in ["async", "sync"] {
        let args = ["run", "--data", data, "--transactions", "2000", "--durability", durability, "--json", json];
        let output = ends(0, "", &args);
        assert!(String::from_utf8_lossy(&output.stdout).contains("12 of 12 conditions hold"));
        let run = file.json();
        assert_eq!(run["check"]["passed"], true);
        assert_eq!(run["config"]["durability"], durability);
        assert_eq!(run["committed"].as_u64().unwrap() + run["rolled_back"].as_u64().unwrap(), 2_000);
        assert!(run["log"]["bytes"].as_u64().unwrap() > 100_000);
        orders += run["transactions"]["new-order"]["count"].as_u64().unwrap() - run["rolled_back"].as_u64().unwrap();
        assert_eq!(run["rows"]["order"].as_u64(), Some(orders));
    }
    ends(0, "", &["check", "--data", data, "--json", json]);
    assert_eq!(file.json()["rows"]["order"].as_u64(), Some(orders));
    assert_eq!(file.json()["check"]["passed"], true);

    // A copy has the same rows as the original, and is independent of it.
    let copy = Scratch::new("data-copy");
    let fingerprint = |data: &str| {
        ends(0, "", &["check", "--structure", "--fingerprint", "--data", data, "--json", json]);
        file.json()["fingerprint"].as_str().unwrap().to_owned()
    };
    let output = ends(0, "", &["copy", "--data", data, "--to", copy.text(), "--json", json]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("copied    1 warehouse in"), "{output:?}");
    let copied = file.json();
    assert_eq!((&copied["to"], &copied["config"]["command"]), (&Value::from(copy.text()), &Value::from("copy")));
    assert!(copied["pages"].as_u64().unwrap() > 1_000 && copied["end_lsn"].as_u64().unwrap() > 4_096);
    let original = fingerprint(data);
    assert_eq!(fingerprint(copy.text()), original);
    ends(1, "a copy needs a directory that is empty", &["copy", "--data", data, "--to", copy.text()]);
    ends(1, "a copy needs a directory that is empty", &["copy", "--data", data, "--to", data]);
    ends(1, "no database there", &["copy", "--data", "/nowhere/at/all", "--to", copy.text()]);
    ends(0, "", &["run", "--data", copy.text(), "--transactions", "500"]);
    assert_ne!(fingerprint(copy.text()), original);
    assert_eq!(fingerprint(data), original);

    // A compacted database has the same rows, and is not larger.
    let output = ends(0, "", &["compact", "--data", data, "--json", json]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("compacted"), "{output:?}");
    let compacted = file.json();
    let bytes = |key: &str| compacted[key].as_u64().unwrap();
    assert!(bytes("bytes_after") <= bytes("bytes_before") && bytes("bytes_after") > 8 << 20, "{compacted}");
    assert_eq!(compacted["config"]["command"], "compact");
    assert_eq!(fingerprint(data), original);
    ends(1, "no database there", &["compact", "--data", "/nowhere/at/all"]);
}

/// Names and bytes of all files of a directory, except the lock file.
fn files(dir: &str) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap).filter(|entry| entry.file_name() != "lock");
    let mut files: Vec<_> =
        entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect();
    files.sort_unstable();
    files
}

/// Only a requested replacement deletes a database, and only after all checks.
#[test]
fn a_database_is_replaced_only_as_a_whole_and_when_asked_for() {
    let (data, file) = (Scratch::new("replaced"), Scratch::new("replaced-json"));
    let (dir, json) = (data.text(), file.text());
    let fingerprint = || {
        ends(0, "", &["check", "--data", dir, "--fingerprint", "--json", json]);
        file.json()["fingerprint"].as_str().unwrap().to_owned()
    };
    // An empty directory needs no consent.
    ends(0, "", &["load", "--data", dir, "--seed", "7", "--replace"]);
    let before = fingerprint();
    // Hints contain the directory.
    let refused = stderr(&ends(1, "already holds 1 warehouse;", &["load", "--data", dir]));
    assert!(refused.contains(&format!("'tpcc load --data {dir} --warehouses 1 --replace'")), "{refused}");
    let refused = stderr(&ends(2, "--warehouses 7", &["run", "--data", dir, "--warehouses", "7"]));
    assert!(refused.contains(&format!("--data {dir}")), "{refused}");
    // Without a terminal, consent is a flag.
    let refused = stderr(&ends(2, "holds 1 warehouse, ", &["load", "--data", dir, "--replace"]));
    assert!(refused.contains(&format!("'tpcc load --data {dir} --warehouses 1 --replace --yes'")), "{refused}");
    ends(2, "--replace: missing", &["load", "--data", dir, "--yes"]);
    // A database larger than the free space.
    ends(1, "MiB free", &["load", "--data", dir, "--warehouses", "1000000", "--replace", "--yes"]);
    // Files that do not belong to the database.
    for name in ["notes.txt", "log.txt", "pages.doc", "log.900"] {
        std::fs::write(data.0.join(name), "mine").unwrap();
        ends(1, name, &["load", "--data", dir, "--replace", "--yes"]);
        assert_eq!(std::fs::read(data.0.join(name)).unwrap(), b"mine");
        std::fs::remove_file(data.0.join(name)).unwrap();
    }
    assert_eq!(fingerprint(), before, "a refusal changes nothing");
    ends(0, "", &["load", "--data", dir, "--seed", "8", "--replace", "--yes"]);
    assert_ne!(fingerprint(), before);
}

/// Commands that create a database do not follow symbolic links to an existing one.
#[test]
fn a_database_behind_links_is_not_overwritten() {
    let (away, links, out) = (Scratch::new("links-away"), Scratch::new("links"), Scratch::new("links-out"));
    ends(0, "", &["shell", "--data", away.text()]);
    let before = files(away.text());
    std::fs::create_dir(&links.0).unwrap();
    for (name, _) in &before {
        std::os::unix::fs::symlink(away.0.join(name), links.0.join(name)).unwrap();
    }
    let dir = links.text();
    for args in [
        &["shell", "--data", dir][..],
        &["history", "--data", dir, "--out", out.text(), "--transactions", "5"],
        &["run", "--data", dir, "--duration", "1"],
        &["load", "--data", dir],
        &["load", "--data", dir, "--replace", "--yes"],
        &["check", "--data", dir],
    ] {
        ends(1, "symbolic link", args);
        assert!(files(away.text()) == before, "{args:?}");
        assert!(!out.0.exists(), "what could not begin leaves no file");
    }
}

/// With `--json -`, stdout has only the JSON object, and stderr the summary.
#[test]
fn json_may_go_to_stdout() {
    let data = Scratch::new("json-stdout");
    let dir = data.text();
    ends(2, "--json -", &["run", "--data", dir, "--ack-stdout", "--json", "-"]);
    for (args, summary) in [
        (&["load", "--data", dir, "--json", "-"][..], "loaded    1 warehouse"),
        (&["run", "--data", dir, "--transactions", "500", "--preload", "off", "--json", "-"], "throughput"),
        (&["check", "--data", dir, "--structure", "--fingerprint", "--json", "-"], "12 of 12 conditions hold"),
        (&["latency", "--data", dir, "--transactions", "30", "--json", "-"], "equal after all four ways"),
        (&["index-fetch", "--threads", "2", "--fetches", "1000", "--json", "-"], "fetches   2000"),
    ] {
        let output = ends(0, summary, args);
        let json = common::parse(std::str::from_utf8(&output.stdout).unwrap());
        assert!(json["schema"].as_str().unwrap().contains(args[0]), "{args:?}");
    }
    assert!(!std::path::Path::new("-").exists());
    // Endless files are refused, not read.
    let steps = ["run", "--data", dir, "--scheduler", "steps", "--ctx-points", "/dev/zero"];
    ends(2, "--ctx-points /dev/zero", &steps);
    ends(1, "/dev/zero: line 1 is no acknowledgement", &["verify", "--data", dir, "--acks", "/dev/zero"]);
    // An empty file of acknowledgements proves nothing.
    let (empty, file) = (Scratch::new("no-acks"), Scratch::new("no-acks-json"));
    std::fs::write(&empty.0, "").unwrap();
    let args = ["verify", "--data", dir, "--acks", empty.text(), "--json", file.text()];
    ends(1, "holds no acknowledgement", &args);
    assert_eq!(file.json()["passed"], false);
}

#[test]
fn reproduce_without_an_id_names_them() {
    let said = stderr(&ends(2, "reproduce: which experiment?", &["reproduce"]));
    assert!(said.contains("steps-") && said.contains("'tpcc reproduce --list'"), "{said}");
    ends(0, "", &["reproduce", "--list"]);
}

/// An error in the middle of a run ends it, and the run reports its results up to that point. The test limits the file size
/// instead of filling a disk; this needs no privileges.
#[test]
fn a_run_that_fails_in_the_middle_keeps_its_figures() {
    let (data, file) = (Scratch::new("middle"), Scratch::new("middle-json"));
    ends(0, "", &["load", "--data", data.text()]);
    let pages = std::fs::metadata(data.0.join("pages.0")).unwrap().len();
    // The data file may grow by 4 MiB. The signal of the limit is ignored, so that the write fails.
    let blocks = (pages + (4 << 20)) / 1024;
    let command = format!(
        "trap '' XFSZ; ulimit -f {blocks}; exec {} run --data {} --durability async --duration 60 --warmup 0 --preload off --json {}",
        env!("CARGO_BIN_EXE_tpcc"),
        data.text(),
        file.text()
    );
    let output = Command::new("bash").args(["-c", &command]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let json = file.json();
    let why = json["interrupted"].as_str().unwrap_or_else(|| panic!("{}", json["interrupted"]));
    assert!(why.contains("pages.0"), "{why}");
    assert!(stderr(&output).contains(why) && stderr(&output).contains("--data"), "{}", stderr(&output));
    assert!(json["throughput_per_s"].as_f64().unwrap() > 0.0 && json["measured_s"].as_f64().unwrap() < 60.0);
    assert_eq!(json["check"]["passed"], Value::Null);
    let summary = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(summary.contains("throughput") && summary.contains("ended by an error"), "{summary}");
    ends(0, "", &["check", "--data", data.text()]);
}

#[test]
fn what_is_no_whole_database_is_said() {
    ends(1, "Cargo.toml", &["run", "--data", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    let (data, said) = (Scratch::new("half"), Scratch::new("half-said"));
    // The load takes seconds and fits on a small disk.
    let mut load = Command::new(env!("CARGO_BIN_EXE_tpcc"))
        .args(["load", "--data", data.text(), "--warehouses", "10"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(said.text()).unwrap())
        .spawn()
        .unwrap();
    while !data.0.join("control").exists() {
        let ended = load.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}: {}", std::fs::read_to_string(said.text()).unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
    // The process is stopped, so that it holds the lock while the other command runs.
    assert!(Command::new("kill").args(["-STOP", &load.id().to_string()]).status().unwrap().success());
    ends(1, "in use by process", &["check", "--data", data.text()]);
    load.kill().unwrap();
    load.wait().unwrap();
    ends(1, "incomplete load", &["run", "--data", data.text()]);
    ends(1, "incomplete load", &["check", "--data", data.text()]);
}

/// Acknowledged transactions survive a kill; forged acknowledgements are detected.
#[test]
fn acknowledgements_survive_a_kill_and_forged_ones_do_not() {
    let (data, acks, file) = (Scratch::new("acks-data"), Scratch::new("acks"), Scratch::new("acks-json"));
    let (dir, said, json) = (data.text(), acks.text(), file.text());
    ends(0, "", &["load", "--data", dir]);
    let mut run = Command::new(env!("CARGO_BIN_EXE_tpcc"))
        .args(["run", "--data", dir, "--terminals", "16", "--duration", "7200", "--preload", "off", "--ack-stdout"])
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(said).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while std::fs::metadata(said).unwrap().len() < 20_000 {
        assert!(run.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let output = ends(0, "recovered ", &["verify", "--data", dir, "--acks", said, "--json", json]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("12 of 12 conditions hold"));
    let verified = file.json();
    assert_eq!((&verified["passed"], &verified["acks"]["missing"]), (&Value::from(true), &Value::from(0)));
    assert!(verified["acks"]["read_write"].as_u64().unwrap() > 100);

    let lines = std::fs::read_to_string(said).unwrap();
    let whole = lines.rfind('\n').map_or("", |end| &lines[..=end]).to_owned();
    for forged in ["ack 1 3 1000000 payment\n", "ack 1 16 1 new-order\n", "ack 9 0 1 delivery\n"] {
        std::fs::write(said, format!("{whole}{forged}")).unwrap();
        ends(1, forged.trim_end(), &["verify", "--data", dir, "--acks", said]);
    }
    std::fs::write(said, format!("{whole}ack 1 3 10000")).unwrap();
    ends(0, "", &["verify", "--data", dir, "--acks", said]);
    std::fs::write(said, format!("ack 1 3 pay\n{whole}")).unwrap();
    ends(1, "line 1 is no acknowledgement", &["verify", "--data", dir, "--acks", said]);
    ends(1, "cannot be read", &["verify", "--data", dir, "--acks", "/nowhere/acks"]);
    ends(2, "--acks", &["verify", "--data", dir]);
}

/// A run whose stdout is closed ends cleanly with an error.
#[test]
fn acknowledgements_that_nobody_reads_end_the_run() {
    let data = Scratch::new("deaf");
    ends(0, "", &["load", "--data", data.text()]);
    let mut run = Command::new(env!("CARGO_BIN_EXE_tpcc"))
        .args(["run", "--data", data.text(), "--duration", "60", "--preload", "off", "--ack-stdout"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(run.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert!(line.starts_with("ack 1 "), "{line}");
    drop(stdout);
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("error: stdout: acknowledgements cannot be written"), "{}", stderr(&output));
    // The database was closed cleanly: recovery has nothing to do.
    let output = ends(0, "", &["check", "--data", data.text()]);
    assert!(!stderr(&output).contains("recover"), "{}", stderr(&output));
}

/// Four ways of running a transaction leave the same rows, also with injected violations. The database itself remains unchanged.
#[test]
fn a_transaction_in_epochs_leaves_the_same_rows() {
    let data = Scratch::new("latency");
    let dir = data.text();
    ends(0, "", &["load", "--data", dir, "--seed", "3"]);
    let print = || {
        let output = ends(0, "fingerprint", &["check", "--data", dir, "--fingerprint", "--json", "-"]);
        common::parse(std::str::from_utf8(&output.stdout).unwrap())["fingerprint"].clone()
    };
    let before = print();
    for (mix, more) in [
        ("new-order", &[][..]),
        ("new-order-150", &["--grain", "4"]),
        ("delivery-outer", &["--epoch-workers", "3"]),
        ("stock-level", &["--grain", "3", "--simulate"]),
        ("delivery", &[]),
        ("payment", &[]),
        ("order-status", &["--grain", "2"]),
    ] {
        let file = Scratch::new("latency-json");
        let args = ["latency", "--data", dir, "--mix", mix, "--transactions", "40", "--inject-violations", "0.05"];
        ends(0, "", &[&args[..], more, &["--json", file.text()]].concat());
        let json = file.json();
        assert_eq!(json["simulation"].is_object(), more.contains(&"--simulate"), "{mix}");
        let [violations, injected] = ["violations", "injected"].map(|key| json[key].as_u64().unwrap());
        assert!(violations >= injected && injected > 0, "{mix}: {violations}, {injected}");
        let ratios = ["ratio_low", "ratio", "ratio_high"].map(|key| json[key]["speculative"].as_f64().unwrap());
        assert!(ratios.is_sorted() && ratios[0] > 0.0, "{mix}: {ratios:?}");
        assert!(json["ideal"]["value"].as_f64().is_some_and(|ideal| ideal > 0.0) || json["cores"] == 1, "{mix}");
        if !["stock-level", "order-status"].contains(&mix) {
            assert_ne!(json["fingerprint"], before, "{mix} writes");
        }
    }
    assert_eq!(print(), before, "the copies were written to");
    for way in ["sequential", "sequential-prefetch", "tls-seq", "speculative"] {
        ends(0, "", &["latency", "--data", dir, "--mix", "delivery-outer", "--transactions", "20", "--only", way]);
    }
    ends(2, "--grain: means nothing with", &["latency", "--data", dir, "--only", "sequential", "--grain", "2"]);
    let governed = ["latency", "--data", dir, "--mix", "payment", "--speculate", "auto", "--transactions", "100"];
    ends(0, "", &governed);
    ends(2, "--grain", &[&governed[..], &["--grain", "2"]].concat());
    ends(2, "--epoch-workers", &["latency", "--data", dir, "--epoch-workers", "0"]);
    ends(2, "--inject-violations", &["latency", "--data", dir, "--inject-violations", "2"]);
    ends(2, "--mix", &["latency", "--data", dir, "--mix", "sideways"]);
    ends(1, "no database there", &["latency", "--data", "/nonexistent/of-latency"]);
}

/// Tenants share the cores under each policy. Waits are within their bounds, and a trace shows the placement.
#[test]
fn tenants_share_the_cores_in_several_ways() {
    let (file, trace) = (Scratch::new("tenants-json"), Scratch::new("tenants-trace"));
    for (mix, policies, more) in [
        ("point", "fair,tas,packed,itas,auto", &["--access", "gaussian", "--background", "1"][..]),
        ("sysbench-oltp", "itas", &["--agg-limit", "2", "--agg-bonus-us", "100"]),
        ("tpcc", "tas,fair", &["--trace", trace.text()]),
    ] {
        let args = ["tenants", "--tenants", "2", "--terminals-per-tenant", "3", "--mix", mix, "--policy", policies];
        let args = [&args[..], more, &["--duration", "0.4", "--seed", "1", "--json", file.text()]].concat();
        let args = if mix == "tpcc" { args } else { [&args[..], &["--rows", "500"]].concat() };
        ends(0, "", &args);
        let json = file.json();
        for policy in policies.split(',') {
            let figures = &json["policies"][policy];
            let number = |key: &str| figures[key].as_f64().unwrap_or_else(|| panic!("{policy}: {key}: {figures}"));
            assert!(number("throughput_per_s") > 0.0, "{policy}: {figures}");
            assert!(number("wait_to_bound") <= 1.0, "{policy}: {figures}");
            assert!(number("max_wait_us") <= number("wait_bound_us"), "{policy}: {figures}");
            assert_eq!(figures["background_per_s"].is_null(), mix != "point");
            let ratio = json["ratio"][policy].as_f64();
            assert_eq!(ratio.is_some(), policies.contains("fair") && policy != "fair", "{json}");
        }
    }
    let events = std::fs::read_to_string(trace.text()).unwrap().matches("\"ph\":\"X\"").count();
    assert!(events > 100, "{events} events");
    ends(2, "--workers 0", &["tenants", "--workers", "0"]);
    ends(2, "--policy", &["tenants", "--policy", "kind"]);
    ends(2, "--policy: fair twice", &["tenants", "--policy", "fair,fair"]);
    ends(2, "--slice-us 0", &["tenants", "--slice-us", "0"]);
    ends(2, "--access: means nothing", &["tenants", "--mix", "tpcc", "--access", "gaussian"]);
    ends(2, "fibers", &["tenants", "--tenants", "1000", "--terminals-per-tenant", "1000"]);
    ends(
        1,
        "--trace",
        &["tenants", "--rows", "10", "--duration", "0.1", "--policy", "fair", "--trace", "/nonexistent/x"],
    );
}

/// Transactions that are scheduled by home warehouse keep the consistency conditions and the bounds on waits, under each
/// policy.
#[test]
fn transactions_are_scheduled_by_home_warehouse() {
    let (data, file) = (Scratch::new("siblings"), Scratch::new("siblings-json"));
    let dir = data.text();
    let run = ["run", "--data", dir, "--warehouses", "2", "--workers", "2", "--terminals", "20", "--scheduler", "itas"];
    let switches = |policy: &str, partition: &str| {
        let how = ["--policy", policy, "--partition", partition, "--slice-us", "20"];
        let length = ["--duration", "0.5", "--warmup", "0.1", "--seed", "5", "--durability", "async"];
        let output = ends(0, "", &[&run[..], &how, &length, &["--json", file.text()]].concat());
        assert!(String::from_utf8_lossy(&output.stdout).contains("siblings "), "{how:?}");
        let json = file.json();
        let config = &json["config"];
        assert_eq!((config["policy"].as_str(), config["partition"].as_str()), (Some(policy), Some(partition)));
        assert_eq!(json["check"]["passed"], true, "{how:?}");
        let siblings = &json["siblings"];
        assert!(siblings["wait_to_bound"].as_f64().is_some_and(|part| part <= 1.0), "{how:?}: {siblings}");
        siblings["switches_between"].as_u64().unwrap()
    };
    for policy in ["fair", "tas", "itas"] {
        let (at_home, spread) = (switches(policy, "client"), switches(policy, "none"));
        // Each of the two workers is the home of one warehouse. Only fibers that get their first transaction after the warm-up
        // still change their group.
        assert!(10 * at_home < spread, "{policy}: {at_home} switches between warehouses at home, {spread} spread");
    }
    let histories = Scratch::new("itas-history");
    let to = ["--data", histories.text(), "--out", file.text(), "--scheduler", "itas"];
    let history = [&["history", "--sessions", "4", "--transactions", "50"][..], &to].concat();
    ends(0, "", &history);
    ends(2, "packed", &[&history[..], &["--policy", "packed"]].concat());
    ends(2, "--policy: means nothing", &["run", "--data", dir, "--policy", "tas"]);
    ends(2, "--slice-us: means nothing", &["run", "--data", dir, "--scheduler", "steps", "--slice-us", "5"]);
    ends(2, "--ctx-points: means nothing", &[&run[..], &["--ctx-points", "all"]].concat());
    ends(2, "--speculate: means nothing with --scheduler itas", &[&run[..], &["--speculate", "on"]].concat());
    ends(2, "--scheduler itas: means nothing", &["run", "--engine", "floor", "--scheduler", "itas"]);
}

/// Runs with the same seed leave the same rows, with loops on one and on several threads. There are enough transactions for
/// `auto` to try both.
#[test]
fn a_run_with_loops_on_several_threads_leaves_the_same_rows() {
    let loaded = Scratch::new("ahead");
    ends(0, "", &["load", "--data", loaded.text(), "--seed", "3"]);
    let run = |how: &str, terminals: &str| {
        let data = Scratch::new("ahead-copy");
        let dir = data.text();
        ends(0, "", &["copy", "--data", loaded.text(), "--to", dir]);
        let file = Scratch::new("ahead-json");
        let args = ["run", "--data", dir, "--workers", "1", "--terminals", terminals, "--transactions", "2200"];
        let more = ["--seed", "5", "--clock", "logical", "--durability", "async", "--json", file.text()];
        ends(0, "", &[&args[..], &more, &["--speculate", how, "--epoch-workers", "2"]].concat());
        let output = ends(0, "fingerprint", &["check", "--data", dir, "--fingerprint", "--json", "-"]);
        let print = common::parse(std::str::from_utf8(&output.stdout).unwrap())["fingerprint"].clone();
        (print, file.json())
    };
    for terminals in ["1", "10"] {
        let (print, off) = run("off", terminals);
        assert_eq!(off["speculation"], serde_json::Value::Null);
        for how in ["on", "auto"] {
            let (same, json) = run(how, terminals);
            assert_eq!(same, print, "--speculate {how}, {terminals} terminals");
            assert_eq!(json["check"]["passed"], true);
            let count = |key: &str| json["speculation"][key].as_u64().unwrap();
            assert_eq!(count("several_threads") + count("one_thread"), 2200);
            assert_eq!(count("one_thread") == 0, how == "on");
            assert!(count("epochs") > count("several_threads"), "{how}");
        }
    }
    let dir = loaded.text();
    let floor = ["run", "--engine", "floor", "--speculate", "on"];
    ends(2, "--speculate: means nothing with --engine floor", &floor);
    let steps = ["run", "--data", dir, "--scheduler", "steps", "--speculate", "on"];
    ends(2, "--speculate: means nothing with --scheduler steps", &steps);
    ends(2, "--speculate", &["run", "--data", dir, "--speculate", "sideways"]);
    ends(2, "--epoch-workers", &["run", "--data", dir, "--speculate", "on", "--epoch-workers", "0"]);
    ends(2, "one thread is too few", &["run", "--data", dir, "--speculate", "on", "--epoch-workers", "1"]);
}
