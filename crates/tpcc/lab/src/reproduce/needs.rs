//! Memory and disk space that experiments need, reported before the experiments begin.

use std::path::Path;

use super::{Experiment, in_minutes};
use tpcc_core::workload::error::Error;

/// Memory and disk space, in MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Needs {
    pub(super) memory_mib: u64,
    pub(super) disk_mib: u64,
}

/// Returns the number of warehouses of the largest database of an experiment, and the GiB of memory besides buffer pools.
fn size(id: &str, quick: bool) -> (u64, u64) {
    match id {
        "steps-prefetch" if !quick => (40, 0),
        "steps-fig10" | "steps-fig11" | "steps-prefetch" => (20, 0),
        "steps-lookup" => (1, 2),
        "compiler-interaction" | "itanium-system" | "itanium-switches" | "itanium-coherence" => (8, 0),
        "scale-cores" => (16, 1),
        id if id.starts_with("itas-") => (0, 2),
        id if id.starts_with("speculate-") => (1, 2),
        _ => (1, 0),
    }
}

impl Needs {
    /// Returns the needs of one experiment. A loaded database takes about 100 MiB for each warehouse, and several times that
    /// with the data that runs add and with copies for counts. The log of a database takes up to two checkpoints.
    fn of(id: &str, quick: bool) -> Needs {
        let (warehouses, gib) = size(id, quick);
        let log = if warehouses > 0 { 4_096 } else { 0 };
        Needs { memory_mib: 1_152 + 240 * warehouses + 1_024 * gib, disk_mib: 400 * warehouses + log }
    }

    /// Returns the needs of several experiments, of which one runs at a time. The databases of a paper are kept until its
    /// experiments are over.
    pub(super) fn of_all<'a>(ids: impl Iterator<Item = &'a str>, quick: bool) -> Needs {
        ids.map(|id| Needs::of(id, quick)).fold(Needs { memory_mib: 0, disk_mib: 0 }, |all, one| Needs {
            memory_mib: all.memory_mib.max(one.memory_mib),
            disk_mib: all.disk_mib.max(one.disk_mib),
        })
    }
}

/// Formats the needs, for example as "21 experiments to run: about 32 min, up to 8.3 GiB of memory, 15.0 GiB of disk in
/// DIR". Experiments that are not in `timed` take no time.
pub(super) fn summary(experiments: &[&Experiment], timed: &[&Experiment], quick: bool, data: &Path) -> String {
    let minutes: f64 = timed.iter().map(|e| if quick { e.minutes.1 } else { e.minutes.0 }).sum();
    let needs = Needs::of_all(experiments.iter().map(|e| e.id), quick);
    let gib = |mib: u64| format!("{:.1} GiB", mib as f64 / 1_024.0);
    let some =
        if experiments.len() == 1 { "1 experiment".to_owned() } else { format!("{} experiments", experiments.len()) };
    format!(
        "{some} to run: about {}, up to {} of memory, {} of disk in {}",
        in_minutes(minutes),
        gib(needs.memory_mib),
        gib(needs.disk_mib),
        data.display(),
    )
}

/// Returns an error if the disk has too little space, and a warning if too little memory is available.
pub(super) fn check(experiments: &[&Experiment], quick: bool, data: &Path) -> Result<Option<String>, Error> {
    let needs = Needs::of_all(experiments.iter().map(|e| e.id), quick);
    let existing = data.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let free_mib = rustix::fs::statvfs(existing).ok().map(|disk| (disk.f_bavail * disk.f_frsize) >> 20);
    if let Some(free) = free_mib.filter(|free| *free < needs.disk_mib) {
        let shown = data.display();
        return Err(Error::failed(format!("{shown}: {free} MiB free, {} needed for databases", needs.disk_mib))
            .help("pass another directory with --data, or fewer experiments with --only"));
    }
    let available = tpcc_core::report::machine::available_memory_bytes().map(|bytes| bytes >> 20);
    Ok(available.filter(|mib| *mib < needs.memory_mib).map(|mib| {
        format!("warning: {mib} MiB of memory available, {} needed: experiments may fail or be slow", needs.memory_mib)
    }))
}

#[cfg(test)]
mod tests {
    use super::super::PAPERS;
    use super::*;

    #[test]
    fn needs_are_those_of_the_largest() {
        let all = Needs::of_all(PAPERS.iter().flat_map(|paper| paper.experiments).map(|e| e.id), false);
        assert_eq!(all, Needs::of("steps-prefetch", false));
        assert!(Needs::of("steps-prefetch", true).disk_mib < all.disk_mib);
    }

    #[test]
    fn what_is_needed_is_told() {
        let some: Vec<_> = PAPERS[0].experiments.iter().take(2).collect();
        let told = summary(&some, &some, true, Path::new("here"));
        assert!(
            told.starts_with("2 experiments to run: about 2 min, up to 1.4 GiB of memory, 4.4 GiB of disk in here"),
            "{told}"
        );
    }
}
