//! Flags of `tpcc shell`.

use std::path::PathBuf;

use clap::Args;

use super::{EngineFlags, LatchFlags, SchedulingFlags};
use crate::cli::values::lab::table;

/// `tpcc shell`.
#[derive(Args, Debug)]
#[command(next_help_heading = "Data")]
#[command(after_long_help = SHELL_HELP)]
pub(crate) struct ShellFlags {
    /// Directory of the database, created if there is none [default: tpcc-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Table of the requests, created if absent
    #[arg(long, value_name = "NAME", default_value = "shell", value_parser = table)]
    pub(crate) table: String,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
    #[command(flatten)]
    pub(crate) latches: LatchFlags,
    #[command(flatten)]
    pub(crate) scheduling: SchedulingFlags,
}

/// The protocol of the shell, in short.
const SHELL_HELP: &str = "\
Requests, a line each, S being any word that names a session:
  S begin [serializable|repeatable-read|read-committed]
  S get K | getu K | insert K V | update K V | put K V | delete K | scan LO HI
  S lock table S|X|IS|IX|SIX
  S commit | rollback
  check | dump | quit
Replies, a line each: S ok [VALUES], S none, S deadlock, S error KIND TEXT;
S blocked at once when a lock has to be waited for, the real reply when it is granted.";
