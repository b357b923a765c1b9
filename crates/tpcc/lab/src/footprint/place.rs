//! The file that `--place` writes and `--ctx-points` reads: the live points of each operation of this build.

use std::path::Path;

use sched_steps::point::{Bitmap, BitmapError};
use sched_steps::team::Operations;
use storage::{PointKind, PointSite, points};

use super::text::OperationPoints;
use tpcc_core::workload::error::Error;

/// Writes the points to make live for each operation.
pub fn write(path: &Path, placement: &[OperationPoints]) -> Result<(), Error> {
    let mut operations = Operations::new();
    let mut live = vec![0; points().len()];
    for placed in placement {
        let (family, object) = &placed.operation;
        let id = operations
            .add(family, object)
            .map_err(|e| Error::failed(e.to_string()).help("look at fewer of them with --operation"))?;
        for site in &placed.sites {
            if let Some(live) = live.get_mut(*site as usize) {
                *live |= id.bit();
            }
        }
    }
    save(path, &operations, |number, _| live.get(number).copied().unwrap_or(0))
}

/// Writes a file in which all points of a kind are live for every operation.
pub fn write_kind(path: &Path, kind: PointKind) -> Result<(), Error> {
    save(path, &Operations::new(), |_, site| if site.kind() == kind { u64::MAX } else { 0 })
}

fn save(path: &Path, operations: &Operations, live: impl Fn(usize, &PointSite) -> u64) -> Result<(), Error> {
    let sites = points().iter().enumerate();
    let sites = sites.map(|(number, site)| (site.name(), site.file(), site.line(), live(number, site)));
    Bitmap::of_sites(operations, sites).save(path).map_err(|error| match error {
        BitmapError::Io { .. } => Error::failed(error.to_string()).help("pass another file with --place"),
        error => Error::failed(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_read_back() {
        let path = std::env::temp_dir().join(format!("tpcc-placement-{}", std::process::id()));
        let placed = |family, object: &str, sites: &[u32]| OperationPoints {
            operation: (family, object.to_owned()),
            sites: sites.to_vec(),
        };
        write(&path, &[placed("fetch", "stock", &[0, 2]), placed("scan", "", &[2])]).unwrap();
        let bitmap = Bitmap::load(&path).unwrap();
        assert_eq!(bitmap.operations, ["fetch stock", "scan"]);
        let live: Vec<u64> = bitmap.sites.iter().map(|site| site.live).collect();
        assert_eq!(live[..3], [0b01, 0, 0b11]);
        assert_eq!(live.len(), points().len());
        std::fs::remove_file(&path).unwrap();
        assert!(write(Path::new("/proc/none/such"), &[]).is_err());
    }
}
