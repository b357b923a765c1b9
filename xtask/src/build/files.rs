//! Directories and copies of files, with errors that name them.

use std::path::Path;

use super::BuildError;

/// Makes a directory, and those that it lies in.
pub(super) fn make(directory: &Path) -> Result<(), BuildError> {
    std::fs::create_dir_all(directory).map_err(|e| BuildError::new(format!("{}: {e}", directory.display())))
}

/// Removes a directory with all that is in it, where there is one: what an interrupted command has left, say.
pub(super) fn remove(directory: &Path) -> Result<(), BuildError> {
    match std::fs::remove_dir_all(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(BuildError::new(format!("{}: cannot be removed: {e}", directory.display())))
        }
        _ => Ok(()),
    }
}

/// Copies a file; a program that runs under the name of the copy goes on.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), BuildError> {
    let failed = |e: std::io::Error| BuildError::new(format!("{} to {}: {e}", from.display(), to.display()));
    let new = to.with_extension("new");
    std::fs::copy(from, &new).map_err(failed)?;
    std::fs::rename(&new, to).map_err(failed)
}
