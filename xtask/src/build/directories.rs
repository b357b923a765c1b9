//! Build directories. Consecutive builds in one directory reuse each other's compiled dependencies.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::files::create_directory;
use super::{BuildError, target};

/// Directories of a build. Only one build at a time may use them.
#[derive(Clone, Debug)]
pub(super) struct BuildDirectories {
    /// Directory for the finished programs.
    pub(super) programs: PathBuf,
    /// Cargo's target directory.
    pub(super) build: PathBuf,
    /// Directory for copies of sources that a build modifies.
    pub(super) sources: PathBuf,
}

impl BuildDirectories {
    /// Returns the directories for a command that makes its builds one after the other.
    pub(super) fn of(directory: &Path) -> BuildDirectories {
        BuildDirectories::numbered(directory, 0)
    }

    /// Returns the directories for build lane `number` of several concurrent lanes.
    pub(super) fn numbered(directory: &Path, number: usize) -> BuildDirectories {
        BuildDirectories {
            programs: directory.to_owned(),
            build: directory.join(format!("build-{number}")),
            sources: directory.join(format!("changed-sources-{number}")),
        }
    }
}

/// Environment variable with the compiler flags that the wrapper adds. Its flags are separated in the same way as in
/// `CARGO_ENCODED_RUSTFLAGS`.
pub(super) const WRAPPED_FLAGS: &str = "XTASK_WORKSPACE_RUSTFLAGS";

/// Script that cargo calls instead of the compiler for the workspace crates. It adds flags to these crates only.
/// Dependencies, which take a third of the time of a build, are therefore compiled once for many builds. Code for the build
/// machine, such as a build script, gets no flags, because it is compiled without `--target`.
const WRAPPER: &str = r#"#!/bin/sh
case " $* " in
*" --target "*) ;;
*) exec "$@" ;;
esac
set -f
IFS=$(printf '\037')
exec "$@" $XTASK_WORKSPACE_RUSTFLAGS
"#;

/// Writes the wrapper and returns its path. Mangled names of functions depend on the path, so all builds use the same path;
/// otherwise the functions of a build would not match those in the profile.
pub(super) fn wrapper() -> Result<PathBuf, BuildError> {
    let directory = target("ablate");
    create_directory(&directory)?;
    let path = directory.join("rustc-with-flags");
    if fs::read_to_string(&path).is_ok_and(|there| there == WRAPPER) {
        return Ok(path);
    }
    let failed = |e: std::io::Error| BuildError::new(format!("{}: {e}", path.display()));
    // A concurrent build may call the wrapper. The rename makes the complete file appear at once.
    let new = directory.join(format!("rustc-with-flags.{}", std::process::id()));
    fs::write(&new, WRAPPER).map_err(failed)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    fs::rename(&new, &path).map_err(failed)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::build::tools::output;

    #[test]
    fn flags_reach_what_is_built_for_a_target_alone() {
        let wrapper = wrapper().unwrap();
        let said = |words: &[&str]| {
            let mut command = Command::new(&wrapper);
            command.arg("echo").args(words).env(WRAPPED_FLAGS, "-Cllvm-args=-a *\u{1f}-Cb");
            output(&mut command).unwrap()
        };
        assert_eq!(said(&["--target", "here"]), "--target here -Cllvm-args=-a * -Cb\n");
        assert_eq!(said(&["--crate-name", "build_script_build"]), "--crate-name build_script_build\n");
    }
}
