//! Checks the free disk space before long work, so that a load of several hours does not fail at its end.

use std::path::Path;

use crate::workload::error::Error;
use crate::workload::settings::{Length, StoreConfig};

const MIB: u64 = 1 << 20;
/// Size of the files per warehouse after loading, in bytes, rounded up.
const WAREHOUSE: u64 = 120 * MIB;
/// Size of the log segments, the control file and the data of the first seconds of a run, in bytes.
const MIN_FREE: u64 = 128 * MIB;

/// Fails if the file system of `dir` has too little space to load `warehouses` (0: to run on the existing database). `freed`
/// bytes count as free. Succeeds if the system does not report the free space.
pub fn check(dir: &Path, warehouses: u32, freed: u64) -> Result<(), Error> {
    let Some(free) = free(dir) else { return Ok(()) };
    suffices(free.saturating_add(freed), warehouses).map_err(|need| {
        let given_back = if freed > 0 { format!(", {} MiB given back", freed / MIB) } else { String::new() };
        Error::failed(format!(
            "{}: {} MiB free{given_back}, about {} needed; nothing was done",
            dir.display(),
            free / MIB,
            need / MIB
        ))
        .help("make room, or choose another directory with --data")
    })
}

/// Returns the number of bytes available on the file system of `dir`. `None` if the system does not report it.
pub fn free(dir: &Path) -> Option<u64> {
    // Parts of the path may not exist yet.
    let mut dirs = dir.ancestors().map(|d| if d.as_os_str().is_empty() { Path::new(".") } else { d });
    let space = dirs.find_map(|d| rustix::fs::statvfs(d).ok())?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

/// Log bytes per second of a worker on a fast core that never waits for the disk.
const LOG_RATE: u64 = 60 * MIB;
/// Estimated log bytes per transaction.
const LOG_OF_ONE: u64 = 700;
/// Ratio of the log size to the size of the new rows.
const KEPT: u64 = 2;

/// Returns a warning if the file system may fill before the run ends, at the rate of a fast machine. It is not an error,
/// because the rate of this machine is unknown before the run.
pub fn may_fill(store: &StoreConfig, workers: usize, length: &Length) -> Option<String> {
    let free = free(&store.data)?;
    let need = expected(workers, length, store.checkpoint_mib.saturating_mul(MIB));
    (need > free).then(|| {
        format!(
            "warning: {}: {} MiB free; log and rows of this run may take {} MiB. It ends early if the disk fills, with \
             its figures; make room, or pass a smaller --checkpoint-mib or --duration",
            store.shown(),
            free / MIB,
            need / MIB
        )
    })
}

/// Returns the maximum number of bytes that a run writes: the new rows, and the log since the second last checkpoint (older
/// log is freed).
fn expected(workers: usize, length: &Length, checkpoint: u64) -> u64 {
    let seconds = length.duration.map(|duration| (length.warmup + duration).as_secs().saturating_add(1));
    let timed = seconds.map(|seconds| seconds.saturating_mul(LOG_RATE).saturating_mul(workers as u64));
    let counted = length.transactions.map(|n| n.saturating_mul(LOG_OF_ONE));
    let log = timed.unwrap_or(u64::MAX).min(counted.unwrap_or(u64::MAX));
    log.min(checkpoint.saturating_mul(2)).saturating_add(log / KEPT)
}

/// Fails with the number of required bytes if fewer bytes are free.
fn suffices(free: u64, warehouses: u32) -> Result<(), u64> {
    let need = MIN_FREE + u64::from(warehouses) * WAREHOUSE;
    if free < need { Err(need) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_load_needs_more_than_a_run() {
        assert_eq!(suffices(MIN_FREE, 0), Ok(()));
        assert_eq!(suffices(MIN_FREE - 1, 0), Err(MIN_FREE));
        assert_eq!(suffices(MIN_FREE + WAREHOUSE, 2), Err(MIN_FREE + 2 * WAREHOUSE));
    }

    #[test]
    fn a_run_needs_room_for_its_log_and_rows() {
        let length = |warmup, duration: Option<u64>, transactions| Length {
            warmup: Duration::from_secs(warmup),
            duration: duration.map(Duration::from_secs),
            transactions,
        };
        let short = expected(1, &length(0, Some(9), None), 1 << 40);
        assert_eq!(short, 10 * LOG_RATE * 3 / 2);
        assert_eq!(expected(2, &length(4, Some(15), None), 1 << 40), 4 * short);
        assert_eq!(expected(1, &length(0, Some(9), Some(1_000)), 1 << 40), 1_000 * LOG_OF_ONE * 3 / 2);
        assert_eq!(
            expected(1, &length(0, Some(9), None), MIB),
            2 * MIB + 10 * LOG_RATE / 2,
            "checkpoints give log back"
        );
        assert_eq!(expected(1, &length(0, None, None), MIB), u64::MAX / 2 + 2 * MIB, "until the user ends it");
    }

    #[test]
    fn what_does_not_exist_yet_is_looked_for_above() {
        assert!(check(Path::new("no/such/directory"), 0, 0).is_ok());
        let error = check(Path::new("no/such/directory"), u32::MAX, 0).unwrap_err().to_string();
        assert!(error.contains("no/such/directory: ") && error.contains("MiB free"), "{error}");
    }
}
