//! `--engine postgres://..` from the point of view of users and scripts. Tests that need a server start one in a temporary
//! directory. If PostgreSQL is not installed, they report that they did not run.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

mod common;
#[path = "../pg/src/tests/server.rs"]
mod server;

use server::TestServer;

fn tpcc(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tpcc"));
    command.args(args).stdin(Stdio::null()).env_remove("PGPASSWORD").env("PGPASSFILE", "/nowhere/pgpass");
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the command. Asserts the exit status, and that one or two lines of errors contain all texts of `want`.
fn ends(status: i32, want: &[&str], args: &[&str]) -> Output {
    let output = tpcc(args).output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
    for want in want {
        assert!(text.contains(want), "{args:?}: '{want}' in {text}");
    }
    if status != 0 {
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("error: ")).collect();
        assert!((1..=2).contains(&lines.len()), "{args:?}: {text}");
    }
    output
}

/// The arguments with the server's URL appended.
fn on<'a>(url: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    let mut all = args.to_vec();
    all.extend(["--engine", url]);
    all
}

fn json(output: &Output) -> Value {
    common::parse(&String::from_utf8_lossy(&output.stdout))
}

#[test]
fn what_a_server_leaves_nothing_to_say_is_refused_by_name() {
    let url = "postgres://me@127.0.0.1:1/x";
    let cases: &[(&[&str], &str)] = &[
        (&["run", "--latches", "plain"], "--latches: means nothing"),
        (&["run", "--buffer-pool", "64"], "--buffer-pool: means nothing"),
        (&["run", "--data", "x"], "--data: means nothing"),
        (&["run", "--prefetch", "on"], "--prefetch: means nothing"),
        (&["run", "--preload", "on"], "--preload: means nothing"),
        (&["run", "--large-pages", "off"], "--large-pages: means nothing"),
        (&["run", "--read-delay-us", "1"], "--read-delay-us: means nothing"),
        (&["run", "--scheduler", "steps"], "--scheduler steps: means nothing"),
        (&["run", "--speculate", "on"], "--speculate: means nothing"),
        (&["run", "--partition", "server"], "--partition server: means nothing"),
        (&["run", "--ack-stdout"], "--ack-stdout: means nothing"),
        (&["run", "--connections", "0"], "--connections 0: at least 1"),
        (&["run", "--connections", "2", "--workers", "3"], "--workers 3: each of the 2 connections"),
        (&["run", "--connections", "1", "--workers", "2"], "--workers 2: the one connection has one thread"),
        (&["run", "--sql-dialect", "oracle"], "--sql-dialect oracle"),
        (&["run", "--sql-dialect", "cockroach", "--durability", "sync"], "--durability: means nothing"),
        (&["load", "--checkpoint-mib", "9"], "--checkpoint-mib: means nothing"),
        (&["check", "--structure"], "--structure: means nothing"),
        (&["check", "--fingerprint"], "--fingerprint: means nothing"),
        (&["copy", "--to", "x"], "'tpcc copy' is for storage"),
        (&["shell"], "'tpcc shell' is for storage"),
    ];
    for (args, want) in cases {
        ends(2, &[*want], &on(url, args));
    }
    ends(2, &["--connections: means nothing with --engine storage"], &["run", "--connections", "2"]);
    ends(
        2,
        &["--sql-dialect: means nothing with --engine floor"],
        &["run", "--engine", "floor", "--sql-dialect", "postgres"],
    );
    ends(2, &["names no database"], &["run", "--engine", "postgres://me@host"]);
    let secret = ends(2, &["PGPASSWORD"], &["run", "--engine", "postgres://me:s3cret@127.0.0.1/x"]);
    assert!(!stderr(&secret).contains("s3cret"));
    // No server listens on this port.
    ends(1, &["127.0.0.1:1: no server answers there"], &["run", "--engine", url]);
}

#[test]
fn a_server_is_loaded_run_and_checked() {
    let Some(server) = TestServer::start(None) else { return };
    let url = server.url();
    let call = |status: i32, want: &[&str], args: &[&str]| ends(status, want, &on(&url, args));
    call(1, &["no database there", "tpcc load --engine postgres://"], &["check"]);
    // A time limit of the role does not end connections that idle while others work.
    server.sql("ALTER ROLE postgres SET idle_session_timeout = '1s'");
    server.sql("ALTER ROLE postgres SET lock_timeout = '1s'");
    let load = json(&call(0, &[], &["load", "--seed", "5", "--connections", "2", "--json", "-"]));
    assert!(load["elapsed_s"].as_f64().unwrap() > 0.0 && load["loaded_rows"].as_u64().unwrap() > 500_000);
    assert_eq!((&load["config"]["engine"], &load["config"]["connections"]), (&"postgres".into(), &2.into()));
    assert!(load["config"]["server_version"].as_str().unwrap().starts_with("PostgreSQL "));
    call(1, &["already holds 1 warehouse", "--replace"], &["load"]);
    // The command distinguishes a database that does not exist from one that the role may not see.
    server.sql("CREATE ROLE visitor LOGIN");
    let visitor = url.replace("postgres://postgres@", "postgres://visitor@");
    for command in ["check", "run", "load"] {
        let output = ends(1, &["the role visitor may not look into its schema tpcc"], &on(&visitor, &[command]));
        assert!(!stderr(&output).contains("no database there"), "{}", stderr(&output));
    }
    // Without a terminal for the question, nothing is deleted.
    call(2, &["--replace: 127.0.0.1", "holds 1 warehouse", "MiB", "--yes"], &["load", "--replace"]);
    call(2, &["--warehouses 2: 127.0.0.1", "holds 1"], &["run", "--warehouses", "2"]);
    let few = ["run", "--connections", "3", "--terminals", "2"];
    call(2, &["--terminals 2: fewer than the 3 connections", "pass --connections 2, or --terminals 3"], &few);

    let args = ["run", "--connections", "2", "--transactions", "3000", "--durability", "async", "--json", "-"];
    let run = json(&call(0, &["fsync is off", "conditions hold"], &args));
    assert_eq!(run["check"]["passed"], true, "{run}");
    assert_eq!(run["check"]["conditions_held"], 12);
    assert_eq!(run["committed"].as_u64().unwrap() + run["rolled_back"].as_u64().unwrap(), 3000);
    assert!(run["throughput_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!((&run["config"]["sql_dialect"], &run["config"]["durability"]), (&"postgres".into(), &"async".into()));
    for kind in ["new-order", "payment", "order-status", "delivery", "stock-level"] {
        assert!(run["transactions"][kind]["p99_us"].as_f64().unwrap() > 0.0, "{kind}");
    }
    let aborted: u64 = run["aborts"].as_array().unwrap().iter().map(|abort| abort["count"].as_u64().unwrap()).sum();
    assert_eq!(run["aborted"].as_u64().unwrap(), aborted);

    // The further output files are the same as with every engine.
    let scratch = std::env::temp_dir().join(format!("tpcc-pg-files-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let [page, csv, hdr] = ["run.html", "run.csv", "run.hdr"].map(|name| scratch.join(name));
    let [page_name, csv_name, hdr_name] = [&page, &csv, &hdr].map(|file| file.to_str().unwrap());
    let args = ["run", "--connections", "2", "--duration", "2.2", "--warmup", "0.1", "--check", "off"];
    let files = ["--report", page_name, "--csv", csv_name, "--hdr", hdr_name];
    let output = call(0, &[], &[&args[..], &files[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!([page_name, csv_name, hdr_name].iter().all(|name| text.contains(&format!("written   {name}"))), "{text}");
    let read = |file| std::fs::read_to_string(file).unwrap();
    assert!(read(&page).contains("<svg") && read(&csv).lines().count() >= 3 && read(&hdr).contains("HISTF"));
    std::fs::remove_dir_all(&scratch).unwrap();
    call(1, &["/no/such/file: cannot be", "--report"], &["run", "--report", "/no/such/file"]);

    let check = json(&call(0, &[], &["check", "--json", "-"]));
    assert_eq!((&check["check"]["passed"], &check["check"]["conditions_held"]), (&true.into(), &12.into()));
    server.sql("UPDATE tpcc.district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 7");
    let output = tpcc(&on(&url, &["check"])).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("check: condition 2, warehouse 1, district 7: next order"), "{}", stderr(&output));
    server.sql("UPDATE tpcc.district SET d_next_o_id = d_next_o_id - 1 WHERE d_id = 7");

    // The server stops during the run: the error names the server, and the status is 1.
    let mut child = tpcc(&on(&url, &["run", "--connections", "2", "--duration", "60", "--check", "off"]));
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    server.stop();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("127.0.0.1") && text.contains("went away in the middle of the run"), "{text}");
    call(1, &["127.0.0.1", "no server answers there"], &["run", "--duration", "1"]);
    // After a restart, the database is consistent.
    server.launch();
    call(0, &[], &["check"]);
    call(1, &["is PostgreSQL", "pass --sql-dialect postgres"], &["check", "--sql-dialect", "cockroach"]);
    server.sql("CREATE TABLE tpcc.mine (a integer)");
    call(1, &["not of this program", "'mine'"], &["run"]);
}

#[test]
fn a_password_comes_from_the_environment_or_a_file() {
    let Some(server) = TestServer::start(Some("s3cret")) else { return };
    let url = &server.url();
    let args = ["check", "--engine", url];
    ends(1, &["127.0.0.1", "asks for a password", "PGPASSWORD"], &args);
    let with = |name: &str, value: &str| {
        let output = tpcc(&args).env(name, value).output().unwrap();
        assert!(!stderr(&output).contains("s3cret"), "{}", stderr(&output));
        (output.status.code(), stderr(&output))
    };
    let (status, text) = with("PGPASSWORD", "wrong");
    assert!(status == Some(1) && text.contains("password authentication failed"), "{text}");
    let (status, text) = with("PGPASSWORD", "s3cret");
    assert!(status == Some(1) && text.contains("no database there"), "{text}");
    let file = std::env::temp_dir().join(format!("tpcc-pgpass-{}", std::process::id()));
    std::fs::write(&file, "127.0.0.1:*:postgres:postgres:s3cret\n").unwrap();
    let mode = |mode| std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);
    let (status, text) = with("PGPASSFILE", file.to_str().unwrap());
    assert!(status == Some(1) && text.contains("other users may read it"), "{text}");
    assert!(text.contains("asks for a password") && text.contains("chmod 600"), "{text}");
    let below = file.join("below");
    let (status, text) = with("PGPASSFILE", below.to_str().unwrap());
    assert!(status == Some(1) && text.contains("asks for a password") && text.contains("is passed over"), "{text}");
    mode(0o600);
    let (status, text) = with("PGPASSFILE", file.to_str().unwrap());
    assert!(status == Some(1) && text.contains("no database there"), "{text}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_password_file_is_passed_over_where_no_password_is_asked_for() {
    let Some(server) = TestServer::start(None) else { return };
    let url = &server.url();
    let file = std::env::temp_dir().join(format!("tpcc-pgpass-open-{}", std::process::id()));
    std::fs::write(&file, "*:*:*:*:s3cret\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    for named in [file.clone(), file.join("below"), std::env::temp_dir()] {
        let output = tpcc(&["check", "--engine", url]).env("PGPASSFILE", &named).output().unwrap();
        let text = stderr(&output);
        assert!(output.status.code() == Some(1) && text.contains("no database there"), "{named:?}: {text}");
    }
    std::fs::remove_file(&file).unwrap();
}
