//! Operations on directories and files whose errors name the path.

use std::path::Path;

use super::BuildError;

/// Creates a directory and its parents.
pub(super) fn create_directory(directory: &Path) -> Result<(), BuildError> {
    std::fs::create_dir_all(directory).map_err(|e| BuildError::new(format!("{}: {e}", directory.display())))
}

/// Removes a directory with its contents. A directory that does not exist is no error. An interrupted command may have left
/// one.
pub(super) fn remove_directory(directory: &Path) -> Result<(), BuildError> {
    match std::fs::remove_dir_all(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(BuildError::new(format!("{}: cannot be removed: {e}", directory.display())))
        }
        _ => Ok(()),
    }
}

/// Copies a file and replaces the old file by a rename, so that a program that runs from the old file continues.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), BuildError> {
    let failed = |e: std::io::Error| BuildError::new(format!("{} to {}: {e}", from.display(), to.display()));
    let new = to.with_extension("new");
    std::fs::copy(from, &new).map_err(failed)?;
    std::fs::rename(&new, to).map_err(failed)
}
