//! Watchdog: a thread that detects fibers that do not give up the CPU.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use parking_lot::Mutex;
use sched_steps::fiber::{Monitor, Sample};

use super::order::CorePublicState;
use crate::group::GroupId;

/// A fiber that has kept its core for longer than the watchdog permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Number of the core.
    pub core: usize,
    /// Slot of the fiber on the core.
    pub fiber: usize,
    /// Group of the fiber; `None` if the fiber ended before the lookup.
    pub group: Option<GroupId>,
    /// Time that the fiber had kept its core at the time of the report; a lower bound.
    pub for_at_least: Duration,
}

/// A core that the watchdog monitors.
#[derive(Clone)]
pub(super) struct MonitoredCore {
    pub(super) monitor: Monitor,
    pub(super) public_state: Arc<CorePublicState>,
}

/// Samples all cores until `over` is closed. Calls `report` for each fiber that has not given up the CPU for `limit`.
/// Calls `report` again for the same fiber each time that this duration has doubled.
pub(super) fn watch(
    cores: &Mutex<Vec<Option<MonitoredCore>>>,
    limit: Duration,
    over: &Receiver<()>,
    mut report: impl FnMut(Stuck),
) {
    let mut seen: Vec<Option<(Sample, Instant, Duration)>> = Vec::new();
    while let Err(RecvTimeoutError::Timeout) = over.recv_timeout(limit / 4) {
        let cores = cores.lock().clone();
        seen.resize(cores.len(), None);
        for (core, (monitored, seen)) in cores.iter().zip(&mut seen).enumerate() {
            let Some(monitored) = monitored else { continue };
            let sample = monitored.monitor.sample();
            match seen {
                Some((earlier, since, told_at)) if sample.is_stalled_since(earlier) => {
                    let stalled = since.elapsed();
                    let Some(fiber) = sample.fiber.filter(|_| stalled >= *told_at) else { continue };
                    *told_at = 2 * stalled;
                    let group = monitored.public_state.group_of(fiber);
                    report(Stuck { core, fiber, group, for_at_least: stalled });
                }
                _ => *seen = Some((sample, Instant::now(), limit)),
            }
        }
    }
}
