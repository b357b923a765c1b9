//! `tpcc compare` and paced runs, from the point of view of users.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

mod common;

fn tpcc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tpcc")).args(args).stdin(Stdio::null()).output().unwrap()
}

/// A directory for one test; Drop removes it.
struct Own(PathBuf);

impl Own {
    fn new(name: &str) -> Own {
        let path = std::env::temp_dir().join(format!("tpcc-compare-cli-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Own(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn json(path: &str) -> Value {
    common::parse(&std::fs::read_to_string(Path::new(path)).unwrap())
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn saved_runs_are_compared_and_unlike_ones_refused() {
    let own = Own::new("files");
    let (a, b, c, out) = (own.file("a.json"), own.file("b.json"), own.file("c.json"), own.file("out.json"));
    for (file, seed, order) in [(&a, "1", "spec"), (&b, "2", "spec"), (&c, "2", "hot-last")] {
        let floor =
            ["run", "--engine", "floor", "--duration", "3", "--warmup", "0", "--check", "off", "--order", order];
        let output = tpcc(&[&floor[..], &["--seed", seed, "--json", file.as_str()][..]].concat());
        assert!(output.status.success(), "{}", said(&output));
    }
    let output = tpcc(&["compare", &a, &b, "--json", &out]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let found = json(&out);
    assert!(String::from_utf8_lossy(&output.stdout).contains(found["verdict"].as_str().unwrap()), "{}", said(&output));
    let ratio = |key: &str| found["ratio"][key].as_f64().unwrap();
    assert!(ratio("low") <= ratio("value") && ratio("value") <= ratio("high"));
    assert!(found["latencies"]["payment"]["p99"]["base_us"].as_f64().unwrap() > 0.0);

    let output = tpcc(&["compare", &a, &c]);
    assert!(output.status.code() == Some(2) && said(&output).contains("order (spec, hot-last)"), "{}", said(&output));
    assert_eq!(said(&output).lines().count(), 2, "{}", said(&output));
    let output = tpcc(&["compare", &a, &b, "--report", &own.file("page.html")]);
    let nothing = "--report: means nothing with saved results";
    assert!(output.status.code() == Some(2) && said(&output).contains(nothing), "{}", said(&output));
    assert_eq!(tpcc(&["compare", &a, &c, "--may-differ", "order"]).status.code(), Some(0));

    // A result of another schema version, and a truncated result.
    let text = std::fs::read_to_string(&a).unwrap();
    std::fs::write(&b, text.replace("\"tpcc-run/", "\"tpcc-run/9")).unwrap();
    let output = tpcc(&["compare", &a, &b]);
    assert!(output.status.code() == Some(1) && said(&output).contains("of another version"), "{}", said(&output));
    std::fs::write(&b, &text[..text.len() / 2]).unwrap();
    let output = tpcc(&["compare", &a, &b]);
    assert!(output.status.code() == Some(1) && said(&output).contains("damaged, or no JSON"), "{}", said(&output));
    let output = tpcc(&["compare", &a, &own.file("none.json")]);
    assert!(
        output.status.code() == Some(1) && said(&output).contains("none.json: cannot be read"),
        "{}",
        said(&output)
    );
}

#[test]
fn runs_take_turns_and_grids_are_tables() {
    let own = Own::new("rounds");
    let (data, out, csv) = (own.file("data"), own.file("out.json"), own.file("grid.csv"));
    let short = "--engine floor --check off --warmup 0 --transactions 4000";
    let [one, two] = ["spec", "hot-last"].map(|order| format!("{short} --order {order}"));
    let page = own.file("page.html");
    let pair = ["compare", "--run", &one, "--run", &two, "--rounds", "2", "--data", &data, "--json", &out];
    let output = tpcc(&[&pair[..], &["--report", &page]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains(&format!("written   {page}")), "{}", said(&output));
    let drawn = std::fs::read_to_string(&page).unwrap();
    assert!(drawn.matches("<svg").count() == 2 && drawn.contains("Throughput of each round"), "{drawn}");
    let found = json(&out);
    assert_eq!(found["rounds"].as_array().unwrap().len(), 2);
    assert!(found["differences"].as_array().unwrap().iter().any(|one| one["name"] == "order"), "{found}");
    assert!(found["latencies"]["new-order"]["p50"]["ratio"]["low"].as_f64().unwrap() > 0.0);

    let grid = ["compare", "--run", short, "--sweep", "order=spec,hot-last", "--rounds", "2", "--data", data.as_str()];
    let output =
        tpcc(&[&grid[..], &["--csv", csv.as_str(), "--json", out.as_str(), "--report", page.as_str()][..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let found = json(&out);
    assert_eq!(found["cells"].as_array().unwrap().len(), 2);
    assert_eq!(found["cells"][0]["ratio"]["value"], 1.0);
    let drawn = std::fs::read_to_string(&page).unwrap();
    assert!(drawn.matches("<svg").count() == 2 && drawn.contains("Throughput by order"), "{drawn}");
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert!(lines.lines().count() == 3 && lines.starts_with("order,throughput_per_s,"), "{lines}");
}

#[cfg(unix)]
#[test]
fn a_paced_run_is_ended_at_once_by_ctrl_c() {
    let own = Own::new("paced");
    // The result file is beside the directory, whose name ends with a slash.
    let (data, out) = (own.file("data/"), own.file("out.json"));
    let mut child = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_tpcc")])
        .args(["run", "--pacing", "spec", "--data", &data, "--buffer-pool", "300", "--duration", "7200"])
        .args(["--warmup", "5", "--json", &out])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(told.any(|line| line.unwrap().starts_with("run ")), "it ended by itself");
    let rest = std::thread::spawn(move || told.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
    let start = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", rest.join().unwrap());
    assert!(start.elapsed() < Duration::from_secs(60), "terminals that wait kept it");
    let found = json(&out);
    assert_eq!((&found["interrupted"], &found["config"]["terminals"]), (&Value::from(true), &Value::from(10)));
    assert!(found["pacing"]["deliveries_queued"].as_u64().is_some() && found["committed"].as_u64().unwrap() < 50);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\npacing "), "{}", said(&output));
    assert!(std::fs::read_to_string(own.file("data.deliveries")).unwrap().starts_with("# queued_us"));
}
