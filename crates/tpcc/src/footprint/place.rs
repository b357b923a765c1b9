//! The file that `--place` writes and `tpcc run --ctx-points` reads.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use storage::{PointKind, points};

use super::text::Placed;
use crate::error::Error;

/// Writes the sites that should be live.
pub(crate) fn write(path: &Path, placement: &[Placed], head: &str) -> Result<(), Error> {
    let live = |number: u32| placement.iter().any(|placed| placed.sites.contains(&number));
    write_sites(path, live, head)
}

/// Writes all sites of a kind.
pub(crate) fn write_kind(path: &Path, kind: PointKind) -> Result<(), Error> {
    let all = points();
    write_sites(path, |number| all.get(number as usize).is_some_and(|site| site.kind() == kind), "points of one kind")
}

/// One name a line.
fn write_sites(path: &Path, live: impl Fn(u32) -> bool, head: &str) -> Result<(), Error> {
    let mut text = String::new();
    head.lines().for_each(|line| text.extend(["# ", line, "\n"]));
    for (number, site) in points().iter().enumerate() {
        if live(number as u32) {
            let _ = writeln!(text, "{}", site.name());
        }
    }
    fs::write(path, text).map_err(|e| {
        Error::failed(format!("{}: cannot be written: {e}", path.display())).help("pass another file with --place")
    })
}
