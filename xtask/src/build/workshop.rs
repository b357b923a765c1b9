//! Where builds are made: a directory of cargo's, in which builds follow one another and share what they have in common.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::files::make;
use super::{BuildError, target};

/// A place in which one build is made at a time.
#[derive(Clone, Debug)]
pub(super) struct Workshop {
    /// Where finished programs go.
    pub(super) programs: PathBuf,
    /// Cargo's directory.
    pub(super) build: PathBuf,
    /// Where sources are copied to that a build changes.
    pub(super) sources: PathBuf,
}

impl Workshop {
    /// The only one of a command.
    pub(super) fn of(directory: &Path) -> Workshop {
        Workshop::numbered(directory, 0)
    }

    /// One of several of a command that work beside each other.
    pub(super) fn numbered(directory: &Path, number: usize) -> Workshop {
        Workshop {
            programs: directory.to_owned(),
            build: directory.join(format!("build-{number}")),
            sources: directory.join(format!("changed-sources-{number}")),
        }
    }
}

/// The variable that the wrapper takes flags from, which are parted as cargo's are.
pub(super) const WRAPPED_FLAGS: &str = "XTASK_WORKSPACE_RUSTFLAGS";

/// What cargo calls for the crates of this workspace in the compiler's place, so that flags reach these alone: dependencies,
/// which are a third of a build, are then built once for many builds. What is built for the machine that builds, a build
/// script, gets none of them: it has no `--target`.
const WRAPPER: &str = r#"#!/bin/sh
case " $* " in
*" --target "*) ;;
*) exec "$@" ;;
esac
set -f
IFS=$(printf '\037')
exec "$@" $XTASK_WORKSPACE_RUSTFLAGS
"#;

/// The wrapper. Names of functions depend on where it lies: it is the same for all builds, or no profile would fit.
pub(super) fn wrapper() -> Result<PathBuf, BuildError> {
    let directory = target("ablate");
    make(&directory)?;
    let path = directory.join("rustc-with-flags");
    if fs::read_to_string(&path).is_ok_and(|there| there == WRAPPER) {
        return Ok(path);
    }
    let failed = |e: std::io::Error| BuildError::new(format!("{}: {e}", path.display()));
    // Another build may be about to call it: it is there whole, or not at all.
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
