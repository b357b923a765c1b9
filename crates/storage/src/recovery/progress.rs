//! The progress of a restart, for the program's callback.

use std::ops::ControlFlow;

/// The progress of a restart, as the callback gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Which of the three passes is under way.
    pub pass: RecoveryPass,
    /// Log records looked at in this pass.
    pub records: u64,
    /// Log bytes looked at in this pass.
    pub bytes: u64,
    /// Transactions that had not ended, known once analysis is over.
    pub losers: u64,
}

/// The passes of restart (ARIES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryPass {
    /// Finding the log's end and the transactions that had not ended.
    Analysis,
    /// Repeating history.
    Redo,
    /// Rolling back the losers.
    Undo,
    /// Over: the figures are those of the whole restart.
    Done,
}

/// Hears of the progress, and may cancel the restart.
pub(crate) type OnRecovery = Box<dyn FnMut(&Recovery) -> ControlFlow<()> + Send>;
