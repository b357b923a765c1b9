//! Fibers that let others run only where they wait: for schedulers that switch between transactions.

use sched_steps::team::TooManyOperations;
use storage::{Operation, PointSite};

use super::fiber_hook::FiberPolicy;

/// See the module.
#[derive(Debug)]
pub struct WaitsOnly;

impl FiberPolicy for WaitsOnly {
    fn may_stop_at(&self, _site: &'static PointSite) -> bool {
        false
    }

    fn stops_at(&self, _site: u32) -> bool {
        false
    }

    fn enter(&self, _operation: Operation) {}

    fn know(&self, _indexes: &[(u32, String, String)]) -> Result<(), TooManyOperations> {
        Ok(())
    }
}
