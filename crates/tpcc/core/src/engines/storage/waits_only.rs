//! Fiber policy for schedulers that switch between transactions: within a transaction, a fiber lets other fibers run only
//! when it waits.

use sched_steps::team::TooManyOperations;
use storage::{Operation, PointSite};

use super::fiber_hook::FiberPolicy;

/// Fiber policy under which no fiber switches at a point.
#[derive(Debug)]
pub struct WaitsOnly;

impl FiberPolicy for WaitsOnly {
    fn may_switch_at(&self, _site: &'static PointSite) -> bool {
        false
    }

    fn switches_at(&self, _site: u32) -> bool {
        false
    }

    fn enter(&self, _operation: Operation) {}

    fn set_indexes(&self, _indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations> {
        Ok(())
    }
}
