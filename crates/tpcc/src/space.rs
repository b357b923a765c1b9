//! Free space, looked at before long work: hours are not spent on what cannot be kept.

use std::path::Path;

use crate::error::Error;

const MIB: u64 = 1 << 20;
/// What the files of one warehouse take after loading, rounded up.
const WAREHOUSE: u64 = 120 * MIB;
/// Log segments, control file, and what the first seconds add.
const LEAST: u64 = 128 * MIB;

/// Fails if the file system of `dir` has visibly too little space to load `warehouses` (0: to run on what is there), once
/// `freed` bytes are given back.
pub(crate) fn check(dir: &Path, warehouses: u32, freed: u64) -> Result<(), Error> {
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

/// Bytes that may still be written to the file system of `dir`; none if the system does not tell.
pub(crate) fn free(dir: &Path) -> Option<u64> {
    // Parts of the path may not exist yet.
    let mut dirs = dir.ancestors().map(|d| if d.as_os_str().is_empty() { Path::new(".") } else { d });
    let space = dirs.find_map(|d| rustix::fs::statvfs(d).ok())?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

/// What is needed, if that is more than is free.
fn suffices(free: u64, warehouses: u32) -> Result<(), u64> {
    let need = LEAST + u64::from(warehouses) * WAREHOUSE;
    if free < need { Err(need) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_needs_more_than_a_run() {
        assert_eq!(suffices(LEAST, 0), Ok(()));
        assert_eq!(suffices(LEAST - 1, 0), Err(LEAST));
        assert_eq!(suffices(LEAST + WAREHOUSE, 2), Err(LEAST + 2 * WAREHOUSE));
    }

    #[test]
    fn what_does_not_exist_yet_is_looked_for_above() {
        assert!(check(Path::new("no/such/directory"), 0, 0).is_ok());
        let error = check(Path::new("no/such/directory"), u32::MAX, 0).unwrap_err().to_string();
        assert!(error.contains("no/such/directory: ") && error.contains("MiB free"), "{error}");
    }
}
