//! Build with the engine as a shared object, as in the compiler paper before its section 2.7. Its code is
//! position-independent, and its public functions can be preempted by other definitions, so that each call of a public
//! function goes through a table.
//!
//! Cargo reads the kind of a library only from the manifest, and `storage` is never a shared object for its users. The
//! sources are therefore copied, and the manifest of the copy is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::files::{copy, create_directory};
use super::tools::{Compiler, output};
use super::{BuildError, root};

/// Manifest of the crate that becomes a shared object.
const ENGINE: &str = "crates/storage/Cargo.toml";

/// Copies the sources to the directory `copied`. The engine is a shared object in the copy.
pub(super) fn sources(copied: &Path) -> Result<PathBuf, BuildError> {
    // Remove an older copy, because some of its files may no longer be sources. There may be no copy, so an error is
    // ignored.
    let _ = fs::remove_dir_all(copied);
    let files = output(Command::new("git").args(["ls-files", "-z"]).current_dir(root()))
        .ok_or_else(|| BuildError::new("git ls-files failed").help("build from a clone"))?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (root().join(file), copied.join(file));
        if let Some(parent) = to.parent() {
            create_directory(parent)?;
        }
        // A tracked file that was deleted from the work tree is not a source.
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

/// Converts the manifest of a library to the manifest of a shared object.
fn as_shared_object(manifest: &str) -> Result<String, BuildError> {
    const LIBRARY: &str = "[lib]\n";
    match manifest.split_once(LIBRARY) {
        Some((before, after)) if !manifest.contains("crate-type") => {
            Ok(format!("{before}{LIBRARY}crate-type = [\"dylib\"]\n{after}"))
        }
        _ => Err(BuildError::new(format!(
            "{ENGINE}: no [lib] without a crate-type: this command must learn to change it"
        ))),
    }
}

/// Returns the name of the directory for the shared objects of a program.
fn libraries(program: &str) -> String {
    format!("{program}.lib")
}

/// Compiler flags for all crates. The standard library is a shared object as well; otherwise program and engine would each
/// contain a copy of it.
pub(super) const FLAGS: &[&str] = &["-Cprefer-dynamic"];

/// Returns the compiler flags for the program, by which it finds its shared objects in a directory beside it.
pub(super) fn program_flags(program: &str) -> [String; 1] {
    [format!("-Clink-arg=-Wl,-rpath,$ORIGIN/{}", libraries(program))]
}

/// Copies the shared objects of a build to the directory beside the program.
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
        assert_eq!(shared.replace("crate-type = [\"dylib\"]\n", ""), manifest);
        assert!(shared.contains("[lib]\ncrate-type = [\"dylib\"]\n"), "{shared}");
        assert!(as_shared_object(&shared).unwrap_err().to_string().contains("crate-type"));
    }
}
