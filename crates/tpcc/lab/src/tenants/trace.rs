//! Writes scheduling slices in the trace format of Chrome and Perfetto.

use std::path::Path;

use itas::{Groups, Report};
use serde_json::{Value, json};

use tpcc_core::workload::error::Error;

/// Writes the slices of runs to `path`. Each run is a process named after its policy.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(path: &Path, runs: &[(&str, &std::sync::Arc<Groups>, &Report)]) -> Result<(), Error> {
    let mut events: Vec<Value> = Vec::new();
    for (process, (policy, groups, report)) in runs.iter().enumerate() {
        events.push(json!({"ph": "M", "name": "process_name", "pid": process, "args": {"name": policy}}));
        let begin = report.slices.iter().flatten().map(|slice| slice.began_ns).min().unwrap_or(0);
        for (core, slices) in report.slices.iter().enumerate() {
            let name = format!("core {core}");
            events.push(json!({"ph": "M", "name": "thread_name", "pid": process, "tid": core, "args": {"name": name}}));
            for slice in slices {
                let group = groups.name(slice.group).unwrap_or_default();
                let (ts, dur) = ((slice.began_ns - begin) as f64 / 1e3, (slice.ended_ns - slice.began_ns) as f64 / 1e3);
                events.push(json!({
                    "ph": "X", "name": group, "cat": "slice", "pid": process, "tid": core,
                    "ts": ts, "dur": dur, "args": {"fiber": slice.fiber},
                }));
            }
        }
    }
    let text = json!({"displayTimeUnit": "ns", "traceEvents": events}).to_string();
    std::fs::write(path, text).map_err(|error| Error::failed(format!("--trace {}: {error}", path.display())))
}
