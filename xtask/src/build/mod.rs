//! Builds of `tpcc` beyond `cargo build --release`: with profile feedback, with a new layout of its code.
//!
//! A build is a [`variant::Variant`]; what it takes lies below `target/pgo` and `target/bolt`, so that `target/release` is
//! left as it is.

mod files;
mod lanes;
mod layout;
mod matrix;
mod pgo;
mod profile;
mod shared;
mod tools;
mod variant;
mod workshop;

pub(crate) use layout::{BoltFlags, run as bolt};
pub(crate) use matrix::{AblateFlags, run as ablate};
pub(crate) use pgo::{PgoFlags, run as pgo};

use std::fmt;
use std::path::PathBuf;

/// Why a build has not been made.
#[derive(Debug)]
pub(crate) struct BuildError {
    message: String,
    help: Option<String>,
}

impl BuildError {
    fn new(message: impl Into<String>) -> BuildError {
        BuildError { message: message.into(), help: None }
    }

    /// Adds what to do about it.
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

/// A directory below `target`.
fn target(name: &str) -> PathBuf {
    root().join("target").join(name)
}

/// Where the workspace lies.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}

/// Says what is being done.
fn say(what: &str) {
    eprintln!("{what}");
}
