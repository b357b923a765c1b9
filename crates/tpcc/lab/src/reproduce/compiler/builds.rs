//! Builds that the rows compare: found in the directory of `cargo xtask ablate-build`, or made now.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::reproduce::Results;
use crate::reproduce::builds::{Build, BuildEntry, BuildFigures, Comparison, LIST, Matrix, PerTransaction, compare_in};
use crate::reproduce::child;
use crate::reproduce::lab::Lab;
use tpcc_core::report::model::Provenance;
use tpcc_core::workload::error::Error;

/// Directory of the list of builds, relative to a clone of the sources.
const WITHIN_SOURCES: &str = "target/ablate";

const NO_SOURCES: &str = "the builds are made from the sources: run this within a clone of them";

/// Returns the builds, or the reason for their absence.
pub(super) fn matrix(lab: &mut Lab, findings: &mut Results) -> Result<Result<Matrix, String>, Error> {
    let Some(root) = sources() else {
        return Ok(Err(NO_SOURCES.to_owned()));
    };
    let list = root.join(WITHIN_SOURCES).join(LIST);
    if !lab.builds {
        return Ok(existing_builds(&list).inspect(|matrix| describe(matrix, findings)));
    }
    let mut cargo = Command::new("cargo");
    // The command reports its progress, and does nothing if all builds exist.
    cargo.args(["xtask", "ablate-build", "--build-only"]).current_dir(&root);
    lab.say("making the builds that are not there yet: an hour on two cores");
    let ended = child::run(&mut cargo, lab.scratch())?;
    if !ended.status.success() {
        return Ok(Err(format!("cargo xtask ablate-build: {}", ended.last_lines())));
    }
    match Matrix::read(&list) {
        Ok(matrix) => {
            describe(&matrix, findings);
            Ok(Ok(matrix))
        }
        Err(e) => Ok(Err(format!("{}: {e}", list.display()))),
    }
}

fn describe(matrix: &Matrix, findings: &mut Results) {
    let versions: Vec<String> = matrix.builds.iter().map(|b| format!("{}: {}", b.name, b.version)).collect();
    findings.config.insert("builds".into(), json!(versions));
}

/// Returns the existing builds if they are of this program's commit. Otherwise returns the reason, and the command that
/// makes the builds.
fn existing_builds(list: &Path) -> Result<Matrix, String> {
    const HOW: &str =
        "'cargo xtask ablate-build --build-only' makes them, in an hour on two cores; then run this experiment again";
    let matrix = Matrix::read(list).map_err(|_| format!("the builds to compare are not there: {HOW}"))?;
    if matrix.builds.is_empty() || matrix.builds.iter().any(|build| !build.program.is_file()) {
        return Err(format!("some of the builds to compare are not there: {HOW}"));
    }
    let Some(commit) = Provenance::here().commit else {
        return Err(format!("this program does not know its commit, so the builds may be of other sources: {HOW}"));
    };
    if matrix.commit != commit {
        return Err(format!("the builds to compare are of commit {}, not of {commit}: {HOW}", matrix.commit));
    }
    Ok(matrix)
}

/// Returns the reason why there is nothing to compare unless builds are made first; `None` if the builds exist.
pub(in super::super) fn why_absent() -> Option<String> {
    match sources() {
        Some(root) => existing_builds(&root.join(WITHIN_SOURCES).join(LIST)).err(),
        None => Some(NO_SOURCES.to_owned()),
    }
}

/// Counts and times all builds at 1 warehouse on 1 worker, once for all figures. Returns the reason if there are no builds.
pub(super) fn measure_builds(
    lab: &mut Lab,
    findings: &mut Results,
) -> Result<Result<Vec<BuildFigures>, String>, Error> {
    const NAME: &str = "compiler builds";
    if let Some(known) = lab.stored_result(NAME) {
        return Ok(serde_json::from_value(known).map_err(|e| e.to_string()));
    }
    let matrix = match matrix(lab, findings)? {
        Ok(matrix) => matrix,
        Err(why) => return Ok(Err(why)),
    };
    let builds: Vec<Build> = matrix.builds.iter().map(BuildEntry::build).collect();
    let (rounds, seconds) = if lab.quick { (7, 2) } else { (11, 5) };
    let how = Comparison { warehouses: 1, workers: 1, flags: "", rounds, seconds, counted: true };
    let measured = compare_in(lab, &builds, how)?;
    lab.store_result(NAME.into(), json!(measured));
    Ok(Ok(measured))
}

/// Finds a build by name.
pub(super) fn find_build<'a>(measured: &'a [BuildFigures], name: &str) -> Option<&'a BuildFigures> {
    measured.iter().find(|build| build.name == name)
}

/// Returns the change of a count from one build to another, in per cent.
pub(super) fn change_percent(
    with: &BuildFigures,
    without: &BuildFigures,
    of: fn(&PerTransaction) -> f64,
) -> Option<f64> {
    let (with, without) = (of(with.counted.as_ref()?), of(without.counted.as_ref()?));
    (without > 0.0).then(|| 100.0 * (with / without - 1.0))
}

/// Returns the workspace that contains the current directory.
fn sources() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().find(|path| is_workspace(path)).map(Path::to_owned)
}

fn is_workspace(path: &Path) -> bool {
    path.join("xtask/Cargo.toml").is_file() && path.join("crates/tpcc/Cargo.toml").is_file()
}
