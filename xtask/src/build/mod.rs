//! Builds of `tpcc` beyond `cargo build --release`: builds with profile feedback, and builds with another code layout.
//!
//! Settings of a build are a [`variant::Variant`]. Files of the builds are below `target/pgo`, `target/bolt` or
//! `target/ablate`. They never replace the plain release in `target/release`.

mod directories;
mod files;
mod lanes;
mod layout;
mod matrix;
mod pgo;
mod profile;
mod shared;
mod tools;
mod variant;

pub(crate) use layout::{BoltFlags, run as bolt};
pub(crate) use matrix::{AblateFlags, run as ablate};
pub(crate) use pgo::{PgoFlags, run as pgo};

use std::fmt;
use std::path::PathBuf;

/// Error of a build.
#[derive(Debug)]
pub(crate) struct BuildError {
    message: String,
    help: Option<String>,
}

impl BuildError {
    fn new(message: impl Into<String>) -> BuildError {
        BuildError { message: message.into(), help: None }
    }

    /// Adds a hint for the user to the error.
    fn help(mut self, help: impl Into<String>) -> BuildError {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

/// Returns the path of a directory below `target`.
fn target(name: &str) -> PathBuf {
    root().join("target").join(name)
}

/// Returns the root directory of the workspace.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}

/// Prints a progress message.
fn print_progress(what: &str) {
    eprintln!("{what}");
}
