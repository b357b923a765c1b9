//! Progress report of a restart, for the program's callback.

use std::ops::ControlFlow;

/// Progress of a restart, as passed to the callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Pass in progress.
    pub pass: RecoveryPass,
    /// Number of log records read in this pass; in the undo pass, number of transactions rolled back.
    pub records: u64,
    /// Number of log bytes read in this pass; 0 in the undo pass.
    pub bytes: u64,
    /// Number of log bytes that this pass reads in all. Known in the redo pass, and after it.
    pub total_bytes: Option<u64>,
    /// Number of transactions that had not ended, known after analysis.
    pub losers: u64,
}

/// The passes of restart (ARIES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryPass {
    /// Finds the log's end and the transactions that had not ended.
    Analysis,
    /// Repeats history: reapplies the logged changes that pages lack.
    Redo,
    /// Rolls back the transactions that had not ended.
    Undo,
    /// Restart is complete. `records` and `bytes` have the values of the redo pass.
    Done,
}

/// Callback that receives the progress and may cancel the restart.
pub(crate) type OnRecovery = Box<dyn FnMut(&Recovery) -> ControlFlow<()> + Send>;
