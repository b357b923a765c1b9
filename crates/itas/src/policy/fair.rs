//! Rule of the completely fair scheduler (CFS).

use super::{Choice, Policy, View};

/// The fiber with the smallest vruntime runs next, regardless of the previous one (CFS of Linux 2.6.24, the paper's
/// comparison).
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair;

impl Policy for Fair {
    fn name(&self) -> &'static str {
        "fair"
    }

    #[inline]
    fn choose(&mut self, view: &View<'_>) -> Choice {
        Choice::highest(view)
    }
}
