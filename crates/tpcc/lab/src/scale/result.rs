//! Result of a replay: throughput, and the causes of lost time.

use std::collections::BTreeMap;

use super::recording::ScaleRecording;
use crate::coherence::transfers::KindFigures;

/// Result of a replay. All times and counts are per committed transaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScaleResult {
    /// Transactions per second of all cores together.
    pub per_second: f64,
    /// Time of the instructions, each once.
    pub work_ns: f64,
    /// Accesses and waits for lines, in the order of [`ScaleRecording::classes`].
    pub lines: Vec<KindFigures>,
    /// Wait for latches that another core held, by class.
    pub latch_wait_ns: Vec<f64>,
    /// Time of sections that were run again because the page had changed, by class; and their number.
    pub again_ns: Vec<f64>,
    pub again: f64,
    /// Time of cores that waited for record locks, by number of the table; and the number of waits.
    pub lock_wait_ns: BTreeMap<u32, f64>,
    pub lock_waits: f64,
    /// Rolled back transactions, and the time of their instructions.
    pub aborts: f64,
    pub abort_ns: f64,
    /// Bytes of the log.
    pub log_bytes: f64,
    /// Part of the time of the instructions that is due to caches shared with other cores.
    pub caches_ns: f64,
}

impl ScaleResult {
    /// Returns the causes of lost time with their nanoseconds, the largest first.
    pub(crate) fn losses(&self, recording: &ScaleRecording) -> Vec<(String, f64)> {
        let mut losses: BTreeMap<String, f64> = BTreeMap::new();
        let mut add = |name: String, ns: f64| *losses.entry(name).or_default() += ns;
        for (n, class) in recording.classes.iter().enumerate() {
            add(format!("lines: {}", class.name()), self.lines[n].wait_ns);
            let table = class.table.as_deref().unwrap_or("other pages");
            add(format!("latch held: {table}"), self.latch_wait_ns[n]);
            add(format!("section again: {table}"), self.again_ns[n]);
        }
        for (table, ns) in &self.lock_wait_ns {
            let table = recording.tables.get(table).map_or("?", String::as_str);
            add(format!("record lock: {table}"), *ns);
        }
        add("rolled back".to_owned(), self.abort_ns);
        add("caches shared with the data of other cores".to_owned(), self.caches_ns);
        let mut losses: Vec<(String, f64)> = losses.into_iter().filter(|(_, ns)| *ns > 0.0).collect();
        losses.sort_by(|a, b| b.1.total_cmp(&a.1));
        losses
    }

    /// Returns the time that all causes together take.
    pub(crate) fn lost_ns(&self, recording: &ScaleRecording) -> f64 {
        self.losses(recording).iter().map(|(_, ns)| ns).sum()
    }
}
