//! The engine as a shared object, as the database of the compiler paper was built before its section 2.7:
//! position-independent code whose public functions can be preempted, so that each call to one goes through a table.
//!
//! Cargo reads the kind of a library only from its manifest, and the `storage` of users is never a shared object. The
//! sources are therefore copied, and the manifest of the copy is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::{copy, create_directory};
use super::tools::{Compiler, output};
use super::{BuildError, root};

/// Manifest of the crate that becomes the shared object.
const ENGINE: &str = "crates/storage/Cargo.toml";

/// Copies the sources to a directory, with the engine as a shared object.
pub(super) fn sources(copied: &Path) -> Result<PathBuf, BuildError> {
    // Files that are no longer sources must not be built. It is no error if there was no copy.
    let _ = fs::remove_dir_all(copied);
    let files = output(Command::new("git").args(["ls-files", "-z"]).current_dir(root()))
        .ok_or_else(|| BuildError::new("git ls-files failed").help("build from a clone"))?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (root().join(file), copied.join(file));
        if let Some(parent) = to.parent() {
            create_directory(parent)?;
        }
        // A tracked file that was deleted is not a source.
        if from.is_file() {
            copy(&from, &to)?;
        }
    }
    let manifest = copied.join(ENGINE);
    let failed = |e: std::io::Error| BuildError::new(format!("{}: {e}", manifest.display()));
    let text = fs::read_to_string(&manifest).map_err(failed)?;
    fs::write(&manifest, as_shared_object(&text)?).map_err(failed)?;
    Ok(copied.to_owned())
}

/// Converts the manifest of a library to that of a shared object.
fn as_shared_object(manifest: &str) -> Result<String, BuildError> {
    if manifest.lines().any(|line| line.trim() == "[lib]") {
        return Err(BuildError::new(format!("{ENGINE} has a [lib] already: this command must learn to change it")));
    }
    Ok(format!("{manifest}\n[lib]\ncrate-type = [\"dylib\"]\n"))
}

/// Directory of the shared objects of a program.
fn libraries(program: &str) -> String {
    format!("{program}.lib")
}

/// Flags of all crates: the standard library is a shared object as well, or there would be two copies of it.
pub(super) const FLAGS: &[&str] = &["-Cprefer-dynamic"];

/// Flags of the program, which finds its shared objects in a directory beside it.
pub(super) fn program_flags(program: &str) -> [String; 1] {
    [format!("-Clink-arg=-Wl,-rpath,$ORIGIN/{}", libraries(program))]
}

/// Copies the shared objects of a build to a directory beside the program.
pub(super) fn copy_libraries(
    built: &Path,
    directory: &Path,
    program: &str,
    compiler: &Compiler,
) -> Result<(), BuildError> {
    let kept = directory.join(libraries(program));
    create_directory(&kept)?;
    copy(&built.join("libstorage.so"), &kept.join("libstorage.so"))?;
    let standard = compiler
        .libraries()
        .and_then(|libraries| fs::read_dir(libraries).ok())
        .into_iter()
        .flatten()
        .flatten()
        .find(|file| file.file_name().to_str().is_some_and(|name| name.starts_with("libstd-") && name.ends_with(".so")))
        .ok_or_else(|| BuildError::new("the compiler comes without a shared object of the standard library"))?;
    copy(&standard.path(), &kept.join(standard.file_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_manifest_can_be_made_one_of_a_shared_object() {
        let manifest = fs::read_to_string(root().join(ENGINE)).unwrap();
        let shared = as_shared_object(&manifest).unwrap();
        assert!(shared.starts_with(&manifest) && shared.contains("crate-type = [\"dylib\"]"), "{shared}");
        assert!(as_shared_object(&shared).unwrap_err().to_string().contains("[lib] already"));
    }
}
