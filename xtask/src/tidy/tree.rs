//! Files of a workspace, as text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use thiserror::Error;
use walkdir::{DirEntry, WalkDir};

/// File name extensions that the rules check.
const EXTENSIONS: [&str; 3] = ["rs", "md", "toml"];

#[derive(Debug, Error)]
pub(super) enum TreeError {
    #[error("no workspace at or above {0}: begin in one, or name it with --root")]
    NoWorkspace(PathBuf),
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Files of a workspace. Their paths are relative to the root, with `/` as the separator.
#[derive(Debug, Default)]
pub(super) struct Tree {
    files: BTreeMap<String, String>,
    /// Paths of all other files and folders, as targets of links.
    others: Vec<String>,
}

impl Tree {
    /// Reads all files except hidden files and build output.
    pub(super) fn read(root: &Path) -> Result<Tree, TreeError> {
        let mut tree = Tree::default();
        for entry in WalkDir::new(root).sort_by_file_name().into_iter().filter_entry(|entry| is_ours(root, entry)) {
            let entry = entry.map_err(|error| {
                let path = error.path().unwrap_or(root).to_owned();
                TreeError::Read { path, source: error.into() }
            })?;
            let Ok(relative) = entry.path().strip_prefix(root) else { continue };
            let name = relative.to_string_lossy().replace('\\', "/");
            let known = relative.extension().is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known));
            if !entry.file_type().is_file() || !known {
                tree.others.push(name);
                continue;
            }
            let text = fs::read_to_string(entry.path())
                .map_err(|source| TreeError::Read { path: entry.path().to_owned(), source })?;
            tree.files.insert(name, text);
        }
        Ok(tree)
    }

    /// Creates a tree from paths and texts, for a test.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        let own = |&(path, text): &(&str, &str)| (path.to_owned(), text.to_owned());
        Tree { files: files.iter().map(own).collect(), others: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns the paths and texts of the files whose paths end with `end`.
    pub(super) fn ending<'t>(&'t self, end: &'t str) -> impl Iterator<Item = (&'t str, &'t str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.ends_with(end))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns true if the workspace has a file or folder with this path.
    pub(super) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.keys().any(|file| file.starts_with(&below))
            || self.others.iter().any(|other| other == path || other.starts_with(&below))
    }
}

fn is_ours(root: &Path, entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    let built = entry.depth() == 1 && (name == "target" || name.starts_with("tpcc-data"));
    entry.path() == root || !(built || (name.starts_with('.') && name != ".ci"))
}

/// Finds the root of the workspace to which the running command belongs.
pub(super) fn workspace() -> Result<PathBuf, TreeError> {
    let here = env::current_dir().map_err(|source| TreeError::Read { path: ".".into(), source })?;
    let found = here.ancestors().find(|folder| folder.join("xtask").is_dir() && folder.join("Cargo.toml").is_file());
    found.map(Path::to_owned).ok_or_else(|| TreeError::NoWorkspace(here.clone()))
}
