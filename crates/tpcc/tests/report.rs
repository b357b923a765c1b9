//! Report pages, time series and histograms of a run; saved experiments and their pages; pages in a browser.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

mod common;

use serde_json::Value;

fn tpcc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tpcc")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn ends(status: i32, args: &[&str]) -> String {
    let output = tpcc(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
    said
}

/// A directory for one test; Drop removes it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn of(&self, file: &str) -> String {
        self.0.join(file).to_str().unwrap().to_owned()
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A run of two seconds that writes all output files.
fn run(scratch: &Scratch) {
    let [page, csv, hdr, json] = ["run.html", "run.csv", "run.hdr", "run.json"].map(|file| scratch.of(file));
    let args = ["run", "--engine", "floor", "--workers", "1", "--duration", "2.2", "--warmup", "0.1", "--check", "off"];
    let files = ["--report", &page, "--csv", &csv, "--hdr", &hdr, "--json", &json];
    ends(0, &[&args[..], &files[..]].concat());
}

#[test]
fn a_run_has_a_page_its_seconds_and_its_times() {
    let scratch = Scratch::new("run");
    run(&scratch);
    let json = common::parse(&scratch.read("run.json"));
    let csv = scratch.read("run.csv");
    assert_eq!(csv.lines().count() - 1, json["series"]["t_s"].as_array().unwrap().len(), "{csv}");
    assert!(csv.lines().count() >= 3, "two whole seconds: {csv}");
    let hdr = scratch.read("run.hdr");
    for kind in ["new-order", "payment", "order-status", "delivery", "stock-level"] {
        assert!(hdr.contains(&format!("Tag={kind},")) && hdr.contains(&format!("Tag={kind}-response,")), "{hdr}");
    }
    assert!(hdr.contains("HISTF"), "V2, compressed: {hdr}");
    let page = scratch.read("run.html");
    assert_eq!(page.matches("<svg").count(), 4, "throughput, service, response, where time goes");
    for text in ["Throughput over time", "How to repeat it", "new-order", "not a TPC-C result"] {
        assert!(page.contains(text), "{text}");
    }
    let again = scratch.of("again.html");
    ends(0, &["report", &scratch.of("run.json"), "--out", &again]);
    assert!(scratch.read("again.html") == page, "the page is the same from what was saved");
}

#[test]
fn files_that_cannot_be_written_are_known_before_the_work() {
    let scratch = Scratch::new("files");
    for flag in ["--report", "--csv", "--hdr"] {
        let begun = Instant::now();
        let said = ends(1, &["run", "--engine", "floor", flag, "/no/such/directory/file"]);
        assert!(said.contains("/no/such/directory/file") && said.contains(flag), "{said}");
        assert!(said.lines().count() <= 2 && begun.elapsed().as_secs() < 5, "{said}");
    }
    let args =
        ["run", "--engine", "floor", "--workers", "1", "--transactions", "100", "--check", "off", "--csv", "/dev/full"];
    let said = ends(1, &args);
    assert!(said.contains("/dev/full: cannot be written"), "{said}");
    let said = ends(1, &["reproduce", "all", "--quick", "--out", "/proc/none"]);
    assert!(said.contains("/proc/none: cannot be written") && said.contains("--out"), "{said}");
    drop(scratch);
}

#[test]
fn other_files_have_no_page() {
    let scratch = Scratch::new("other");
    let write = |name: &str, text: &str| {
        std::fs::write(scratch.0.join(name), text).unwrap();
        scratch.of(name)
    };
    let out = scratch.of("page.html");
    let cases = [
        (write("later.json", r#"{"schema": "tpcc-run/99"}"#), "is tpcc-run/99, and this build reads tpcc-run/1"),
        (write("load.json", r#"{"schema": "tpcc-load/1"}"#), "is tpcc-load/1; there are pages of run and reproduce"),
        (write("half.json", r#"{"schema": "tpcc-ru"#), "not a whole JSON object"),
        (write("none.json", "{}"), "not written by"),
        (write("old.json", r#"{"schema": "tpcc-reproduce/1", "id": "steps"}"#), "not as this build writes it"),
        (scratch.of("absent.json"), "cannot be read"),
    ];
    for (file, why) in cases {
        let said = ends(1, &["report", &file, "--out", &out]);
        assert!(said.contains(why) && said.contains(&file) && said.lines().count() <= 2, "{said}");
        assert!(!Path::new(&out).exists(), "no page is begun");
    }
    ends(2, &["report"]);
}

/// A quick experiment, and two that need builds which do not exist here.
const ONLY: &str = "itas-decision,compiler-fig7,compiler-table1";

fn reproduce(scratch: &Scratch, more: &[&str]) -> String {
    let (out, data) = (scratch.of("out"), scratch.of("data"));
    let outside = std::env::temp_dir();
    let args = [&["reproduce", "all", "--quick", "--only", ONLY, "--out", &out, "--data", &data], more].concat();
    // The directory is outside the sources, so no builds are found.
    let output = Command::new(env!("CARGO_BIN_EXE_tpcc"))
        .args(&args)
        .current_dir(outside)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    said
}

#[test]
fn experiments_are_kept_and_not_run_twice() {
    let scratch = Scratch::new("kept");
    let said = reproduce(&scratch, &["--json", &scratch.of("all.json")]);
    for told in ["3 experiments to run: about ", " of memory, ", " of disk in ", "compiler will find nothing: "] {
        assert!(said.contains(told), "what it takes is told: {said}");
    }
    let result = common::parse(&scratch.read("out/itas-decision/result.json"));
    assert_eq!(result["id"], "itas-decision");
    let verdicts = ["reached", "missed"];
    let claim = &result["claims"][0];
    assert!(verdicts.contains(&claim["verdict"].as_str().unwrap()) && !claim["note"].as_str().unwrap().is_empty());
    let absent = common::parse(&scratch.read("out/compiler-table1/result.json"));
    for claim in absent["claims"].as_array().unwrap() {
        assert_eq!(claim["verdict"], "not on this machine", "{claim}");
    }
    let files = |id: &str, end: &str| {
        let all = std::fs::read_dir(scratch.0.join("out").join(id)).unwrap();
        all.filter(|file| file.as_ref().unwrap().file_name().to_str().unwrap().ends_with(end)).count()
    };
    assert_eq!((files("itas-decision", ".csv"), files("itas-decision", ".svg")), (2, 1));
    assert!(files("compiler-fig7", ".csv") >= 2);
    let page = scratch.read("out/index.html");
    assert!(page.contains("itas-decision") && page.contains("not on this machine") && page.contains("<svg"));
    let all = common::parse(&scratch.read("all.json"));
    assert_eq!(all["id"], "all");

    let before = scratch.read("out/itas-decision/result.json");
    let said = reproduce(&scratch, &["--resume"]);
    assert!(said.contains("3 with a result of this build") && !said.contains("to run"), "{said}");
    std::fs::remove_dir_all(scratch.0.join("out/compiler-fig7")).unwrap();
    let said = reproduce(&scratch, &["--resume"]);
    assert!(said.contains("1 experiment to run"), "{said}");
    assert!(scratch.read("out/itas-decision/result.json") == before, "what has a result is left alone");

    let saved = [scratch.of("out/itas-decision/result.json"), scratch.of("out/compiler-table1/result.json")];
    ends(0, &["report", &saved[0], &saved[1], "--out", &scratch.of("page.html")]);
    assert!(scratch.read("page.html").contains("pick_next_ns"));
}

#[test]
fn ctrl_c_leaves_a_page_of_what_is_done() {
    let scratch = Scratch::new("interrupted");
    let (out, data) = (scratch.of("out"), scratch.of("data"));
    let args = [
        "reproduce",
        "all",
        "--quick",
        "--resume",
        "--only",
        "steps-prefetch,itas-decision",
        "--out",
        &out,
        "--data",
        &data,
    ];
    let whole = Path::new(&data).join("warehouses-20");
    let part = whole.with_extension("part");
    // The remainder of an interrupted load is no database: the second call loads again.
    for _ in 0..2 {
        let _ = std::fs::remove_file(part.join("control"));
        let mut command = Command::new("env");
        let mut child = command
            .args(["--default-signal=INT", env!("CARGO_BIN_EXE_tpcc")])
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The first experiment begins with a load.
        while !part.join("control").exists() {
            if child.try_wait().unwrap().is_some() {
                panic!("it has ended: {}", String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("loading 20 warehouses"), "{said}");
        assert!(said.contains("interrupted after 0 of 2; --resume goes on"), "{said}");
        assert!(!whole.exists());
        let page = scratch.read("out/index.html");
        assert!(page.contains("Not run yet: steps-prefetch, itas-decision"), "{page}");
    }
}

#[test]
fn what_cannot_be_kept_or_chosen_is_refused() {
    for (args, why) in [
        (&["reproduce", "itas-decision", "--resume"][..], "--resume: means nothing"),
        (&["reproduce", "itas-decision", "--only", "steps"], "--only: means nothing"),
        (&["reproduce", "all", "--only", "nonsense"], "--only nonsense: no such experiment"),
        (&["reproduce", "itas", "--out", "x", "--only", "steps-fig2"], "--only steps-fig2: none of itas"),
    ] {
        let said = ends(2, args);
        assert!(said.contains(why), "{said}");
    }
}

/// The page in frames of two widths, with a script that measures both.
fn measuring(page: &str) -> String {
    let inside = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = |width: u32| {
        format!(
            "<iframe scrolling=\"no\" style=\"border:0;width:{width}px;height:4000px\" srcdoc=\"{inside}\"></iframe>"
        )
    };
    format!(
        r#"<!DOCTYPE html><body>{}{}<pre id="found"></pre><script>
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const page = frame.contentDocument, wide = page.documentElement.clientWidth, wrong = [];
    if (page.documentElement.scrollWidth > wide) wrong.push("the page is " + page.documentElement.scrollWidth + " wide");
    for (const part of page.querySelectorAll("main *")) {{
      const box = part.getBoundingClientRect();
      if (box.right > wide + 1 && !part.closest(".scroll, pre, details")) wrong.push(part.tagName + " to " + box.right);
    }}
    const figures = [...page.querySelectorAll("figure svg")];
    for (const figure of figures) {{
      const box = figure.getBoundingClientRect(), drawn = figure.getBBox();
      if (box.width < 100 || box.height < 60) wrong.push("a figure of " + box.width + " x " + box.height);
      if (drawn.width < 50 || drawn.height < 40) wrong.push("an empty figure");
      // Ours in the colours of series, a paper's in that of text.
      const inks = ["s", "text"].flatMap(ink => [`[stroke^='var(--${{ink}}']`, `[fill^='var(--${{ink}}']`]);
      const data = [...figure.querySelectorAll(inks.map(ink => ink + ":not(text)").join())].map(part => part.getBoundingClientRect());
      if (!data.some(part => part.width > 1 || part.height > 1)) wrong.push("a figure without data");
      for (const text of figure.querySelectorAll("text")) {{
        const at = text.getBoundingClientRect();
        if (at.left < box.left - 2 || at.right > box.right + 2) wrong.push("text outside of its figure: " + text.textContent.trim());
      }}
    }}
    return {{ wide, figures: figures.length, wrong: wrong.slice(0, 20) }};
  }});
  document.getElementById("found").textContent = "FOUND" + JSON.stringify(found) + "END";
}});
</script>"#,
        frame(400),
        frame(1400)
    )
}

/// Measurements of a page in a browser at 400 and at 1400 pixels; none if no browser is installed.
fn opened(scratch: &Scratch, page: &str) -> Option<Vec<Value>> {
    let browser = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()))?;
    let file = scratch.of("measured.html");
    std::fs::write(&file, measuring(page)).unwrap();
    let profile = format!("--user-data-dir={}", scratch.of("profile"));
    let args = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom", &profile];
    let output = Command::new(browser).args(args).arg(format!("file://{file}")).output().unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    // The text of the script contains these words as well, before the output.
    let (before, _) = dom.split_once("END</pre>").unwrap_or_else(|| panic!("the browser measured nothing: {dom:.500}"));
    let (_, found) = before.rsplit_once("FOUND").unwrap();
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&found).unwrap())
}

#[test]
fn pages_are_whole_in_a_browser() {
    let scratch = Scratch::new("browser");
    run(&scratch);
    reproduce(&scratch, &[]);
    let short = "--engine floor --check off --warmup 0 --transactions 4000";
    let turns = ["compare", "--rounds", "2", "--run", short, "--report"];
    ends(0, &[&turns[..], &[&scratch.of("pair.html"), "--run", &format!("{short} --order spec")]].concat());
    let grid = ["--sweep", "seed=1,2,3", "--sweep", "order=spec,hot-last"];
    ends(0, &[&turns[..], &[&scratch.of("grid.html")], &grid[..]].concat());
    for name in ["run.html", "out/index.html", "pair.html", "grid.html"] {
        let page = scratch.read(name);
        let Some(found) = opened(&scratch, &page) else {
            eprintln!("no Chromium is installed: pages were not opened, and this test did not run");
            return;
        };
        assert_eq!(found.len(), 2);
        // A figure without values has no drawing to measure.
        assert!(name == "out/index.html" || !page.contains("Nothing could be measured"), "{name}");
        for (found, width) in found.iter().zip([400, 1400]) {
            assert_eq!(found["wide"], width);
            assert_eq!(found["figures"], page.matches("<svg").count(), "{name} at {width}");
            assert_eq!(found["wrong"], Value::Array(vec![]), "{name} at {width}");
        }
    }
    // Broken pages are detected.
    let broken = scratch.read("run.html").replace("<main>", "<main><p style=\"min-width:2000px\">wide</p>");
    let without_data = scratch.read("run.html").replace("var(--s", "var(--t");
    for (page, what) in [(broken, "wide"), (without_data, "a figure without data")] {
        let found = opened(&scratch, &page).unwrap();
        assert!(found.iter().all(|found| found["wrong"].to_string().contains(what)), "{what}: {found:?}");
    }
}
