//! Flags of `tpcc shell`.

use std::path::PathBuf;

use clap::Args;

use super::{EngineFlags, SchedulingFlags};
use crate::cli::values::lab::table;
use crate::cli::values::number;
use tpcc_core::workload::settings::Latches;

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
    /// Page latch kind
    #[arg(long, default_value = "optimistic", value_name = "optimistic|plain|super", hide_possible_values = true)]
    #[arg(help_heading = "Engine")]
    #[arg(hide_short_help = true)]
    pub(crate) latches: Latches,
    /// Reader words of a promoted latch, at least one for each core, with --latches super [default: cores]
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, 128>, allow_negative_numbers = true, help_heading = "Engine")]
    #[arg(hide_short_help = true)]
    pub(crate) latch_words: Option<u64>,
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
