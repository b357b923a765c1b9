//! Results saved by `tpcc run --json`, and the differences between the settings of two of them.

use std::collections::BTreeSet;
use std::path::Path;

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use tpcc_core::report::model::schema_of;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::reading::{MAX_RESULT_BYTES, read_file};

/// Keys of `config` that are not settings: command, seeds, paths, checks and run lengths.
const NON_SETTINGS: &[&str] =
    &["command", "data", "seed", "load_seed", "c_load", "check", "duration_s", "warmup_s", "transactions"];
/// Keys of `config` that may always differ. A difference is reported.
const REPORTED_SETTINGS: &[&str] = &["duration_s", "warmup_s", "transactions"];
/// Name of the machine in a list of settings that may differ.
const MACHINE: &str = "machine";
/// Keys of `machine` that identify a machine.
const MACHINE_KEYS: &[&str] = &["cpu", "cores", "numa_nodes", "memory_bytes"];
/// Keys of `provenance` whose difference is reported.
const BUILD_KEYS: &[&str] = &["version", "commit", "dirty", "rustc", "flags", "profile", "built_with", "target"];

/// JSON result of a run.
#[derive(Clone, Debug)]
pub(super) struct SavedRun {
    /// File name, or flags.
    pub(super) name: String,
    object: Value,
}

impl SavedRun {
    /// Reads a result file.
    pub(super) fn read(path: &Path) -> Result<SavedRun, Error> {
        let name = path.display().to_string();
        let failed = |why: String| Error::failed(format!("{name}: {why}"));
        let text = read_file(path, MAX_RESULT_BYTES, "what 'tpcc run --json' wrote")?;
        let object = serde_json::from_slice(&text).map_err(|e| {
            failed(format!("damaged, or no JSON: {e}")).help("name files that 'tpcc run --json FILE' wrote")
        })?;
        SavedRun::of(name, object)
    }

    /// Checks and wraps the JSON result of a run.
    pub(super) fn of(name: String, object: Value) -> Result<SavedRun, Error> {
        let failed = |why: String| {
            Err(Error::failed(format!("{name}: {why}"))
                .help("name files that 'tpcc run --json FILE' of this version wrote"))
        };
        let wanted = schema_of("run");
        match object["schema"].as_str() {
            None => return failed("no result of tpcc: it names no schema".to_owned()),
            Some(schema) if schema == wanted => {}
            Some(schema) if schema.starts_with("tpcc-run/") => {
                return failed(format!("of another version: {schema}, this tpcc reads {wanted}"));
            }
            Some(schema) => return failed(format!("not of a run: {schema}")),
        }
        let run = SavedRun { name: name.clone(), object };
        for key in ["config", "machine", "provenance", "transactions"] {
            if !run.object[key].is_object() {
                return failed(format!("damaged: it has no {key}"));
            }
        }
        if run.object["series"]["throughput_per_s"].as_array().is_none() {
            return failed("damaged: it has no series".to_owned());
        }
        Ok(run)
    }

    fn part(&self, key: &str) -> &Map<String, Value> {
        static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        self.object[key].as_object().unwrap_or(&NONE)
    }

    /// Returns the transactions per second over the measured time; `None` if no transaction was measured.
    pub(super) fn throughput(&self) -> Option<f64> {
        self.object["throughput_per_s"].as_f64().filter(|rate| *rate > 0.0)
    }

    /// Returns the measured seconds.
    pub(super) fn measured_s(&self) -> Option<f64> {
        self.object["measured_s"].as_f64()
    }

    /// Returns the number of transactions in each second.
    pub(super) fn samples(&self) -> Vec<f64> {
        let series = self.object["series"]["throughput_per_s"].as_array();
        series.into_iter().flatten().filter_map(Value::as_f64).collect()
    }

    /// Returns a statistic of the service times of a transaction type, in microseconds.
    pub(super) fn time_us(&self, kind: &str, key: &str) -> Option<f64> {
        self.object["transactions"][kind][key].as_f64()
    }

    /// Returns the commit of the sources.
    pub(super) fn commit(&self) -> Option<String> {
        self.object["provenance"]["commit"].as_str().map(str::to_owned)
    }

    /// Returns the reason for an early end of the run, in words; `None` if the run ended normally.
    pub(super) fn ended_early(&self) -> Option<String> {
        match &self.object["interrupted"] {
            Value::Bool(true) => Some("was ended by a signal".to_owned()),
            Value::String(why) => Some(format!("failed: {why}")),
            _ => None,
        }
    }
}

/// A property in which two runs differ.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Difference {
    /// Key of `config`, or key of another part with the name of the part as a prefix: `machine.cpu`.
    pub name: String,
    pub base: Value,
    pub new: Value,
}

impl Difference {
    /// Formats a difference, for example "prefetch (true, false)".
    pub(super) fn in_words(&self) -> String {
        let word = |value: &Value| match value {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!("{} ({}, {})", self.name, word(&self.base), word(&self.new))
    }
}

/// Differences between two runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Differences {
    /// Differences of settings, which forbid the comparison.
    pub(super) forbidden: Vec<Difference>,
    /// Other differences, which are reported.
    pub(super) reported: Vec<Difference>,
}

/// Finds the differences between two runs. Settings named in `may_differ` may differ.
pub(super) fn differences(base: &SavedRun, new: &SavedRun, may_differ: &[String]) -> Result<Differences, Error> {
    let may_differ: Vec<String> =
        may_differ.iter().map(|name| name.trim_start_matches('-').replace('-', "_")).collect();
    let settings: BTreeSet<&String> = base.part("config").keys().chain(new.part("config").keys()).collect();
    if let Some(unknown) = may_differ.iter().find(|name| *name != MACHINE && !settings.contains(name)) {
        let names: Vec<&str> = settings
            .iter()
            .map(|name| name.as_str())
            .filter(|name| !NON_SETTINGS.contains(name))
            .chain([MACHINE])
            .collect();
        return Err(Error::usage(format!("--may-differ {unknown}: no such setting"))
            .help(format!("one of {}", names.join(", "))));
    }
    let in_part = |part: &str, key: &str| {
        let of = |run: &SavedRun| run.part(part).get(key).cloned().unwrap_or(Value::Null);
        let (base, new) = (of(base), of(new));
        let name = if part == "config" { key.to_owned() } else { format!("{part}.{key}") };
        (base != new).then_some(Difference { name, base, new })
    };
    let mut found = Differences::default();
    for key in settings {
        let is_setting = !NON_SETTINGS.contains(&key.as_str());
        match in_part("config", key) {
            Some(difference) if is_setting && !may_differ.contains(key) => found.forbidden.push(difference),
            Some(difference) if is_setting || REPORTED_SETTINGS.contains(&key.as_str()) => {
                found.reported.push(difference)
            }
            _ => {}
        }
    }
    let machines = MACHINE_KEYS.iter().filter_map(|key| in_part("machine", key));
    if may_differ.iter().any(|name| name == MACHINE) {
        found.reported.extend(machines);
    } else {
        found.forbidden.extend(machines);
    }
    found.reported.extend(in_part("machine", "kernel"));
    found.reported.extend(BUILD_KEYS.iter().filter_map(|key| in_part("provenance", key)));
    Ok(found)
}

/// Returns an error if settings of the two runs differ.
pub(super) fn refuse(base: &SavedRun, new: &SavedRun, forbidden: &[Difference]) -> Result<(), Error> {
    if forbidden.is_empty() {
        return Ok(());
    }
    let words: Vec<String> = forbidden.iter().map(Difference::in_words).collect();
    let mut names: Vec<&str> = forbidden.iter().map(|one| one.name.split('.').next().unwrap_or_default()).collect();
    names.dedup();
    let what = format!("{}, {}: unlike settings: {}", base.name, new.name, words.join(", "));
    Err(Error::usage(what).help(format!("if that is what you compare, pass --may-differ {}", names.join(","))))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the JSON result of a run, with the keys that comparisons read.
    pub(crate) fn object(rates: &[f64]) -> Value {
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        json!({
            "schema": schema_of("run"), "interrupted": false, "measured_s": rates.len() as f64,
            "throughput_per_s": mean, "series": {"throughput_per_s": rates},
            "provenance": {"commit": "abc", "rustc": "1.90"},
            "machine": {"cpu": "some", "cores": 2, "kernel": "6", "steal": 0.1},
            "config": {"prefetch": true, "seed": 1, "data": "a", "workers": 2, "duration_s": 10.0},
            "transactions": {"new-order": {"p50_us": 10.0, "p99_us": 100.0}, "payment": {"p50_us": null}},
        })
    }

    pub(crate) fn saved(name: &str, object: Value) -> SavedRun {
        SavedRun::of(name.to_owned(), object).unwrap()
    }

    #[test]
    fn what_is_random_or_a_path_is_no_setting() {
        let base = saved("a", object(&[1.0, 2.0]));
        let mut other = object(&[3.0, 4.0]);
        other["config"]["seed"] = json!(2);
        other["config"]["data"] = json!("b");
        other["machine"]["steal"] = json!(0.9);
        other["config"]["duration_s"] = json!(20.0);
        other["provenance"]["commit"] = json!("def");
        let found = differences(&base, &saved("b", other), &[]).unwrap();
        assert_eq!(found.forbidden, []);
        let reported: Vec<String> = found.reported.iter().map(Difference::in_words).collect();
        assert_eq!(reported, ["duration_s (10.0, 20.0)", "provenance.commit (abc, def)"]);
    }

    #[test]
    fn unlike_settings_are_named_each_and_may_differ_when_told() {
        let base = saved("a", object(&[1.0, 2.0]));
        let mut other = object(&[3.0, 4.0]);
        other["config"]["prefetch"] = json!(false);
        other["config"]["pacing"] = json!("spec");
        other["machine"]["cpu"] = json!("another");
        let new = saved("b", other);
        let found = differences(&base, &new, &[]).unwrap();
        let error = refuse(&base, &new, &found.forbidden).unwrap_err();
        assert_eq!(error.status(), 2);
        let said = error.to_string();
        assert!(said.contains("prefetch (true, false)") && said.contains("pacing (none, spec)"), "{said}");
        assert!(
            said.contains("machine.cpu (some, another)") && said.contains("--may-differ pacing,prefetch,machine"),
            "{said}"
        );

        let told = ["prefetch", "--pacing", "machine"].map(str::to_owned);
        let found = differences(&base, &new, &told).unwrap();
        assert!(refuse(&base, &new, &found.forbidden).is_ok() && found.reported.len() == 3);
        let error = differences(&base, &new, &["nonsense".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("--may-differ nonsense: no such setting"), "{error}");
    }

    #[test]
    fn what_is_no_saved_run_is_told_in_a_line() {
        let refused = |change: &dyn Fn(&mut Value)| {
            let mut value = object(&[1.0, 2.0]);
            change(&mut value);
            let error = SavedRun::of("x.json".to_owned(), value).unwrap_err();
            assert_eq!(error.status(), 1);
            error.to_string().lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(
            refused(&|v| v["schema"] = json!("tpcc-run/9")),
            format!("error: x.json: of another version: tpcc-run/9, this tpcc reads {}", schema_of("run"))
        );
        assert_eq!(refused(&|v| v["schema"] = json!("tpcc-load/1")), "error: x.json: not of a run: tpcc-load/1");
        assert_eq!(refused(&|v| *v = json!([1, 2])), "error: x.json: no result of tpcc: it names no schema");
        assert_eq!(refused(&|v| v["config"] = json!(3)), "error: x.json: damaged: it has no config");
        assert_eq!(refused(&|v| v["series"] = json!({})), "error: x.json: damaged: it has no series");

        let path = std::env::temp_dir().join(format!("tpcc-saved-{}", std::process::id()));
        std::fs::write(&path, "{\"schema\": \"tpcc-run/1\", \"con").unwrap();
        let error = SavedRun::read(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains("damaged, or no JSON: EOF while parsing"), "{error}");
        let error = SavedRun::read(Path::new("/no/such.json")).unwrap_err().to_string();
        assert!(error.contains("/no/such.json: cannot be read"), "{error}");
    }
}
