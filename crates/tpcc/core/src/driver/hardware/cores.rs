//! CPUs on which workers run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the numbers of the CPUs that this process may use, sorted so that CPUs of a memory node are adjacent. Empty if
/// the system does not report the CPUs.
pub fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    let nodes = storage::Nodes::of_this_machine();
    let mut cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect();
    cores.sort_by_key(|&core| (nodes.of(core), core));
    cores
}

/// Pins the calling thread to a CPU. Threads that it starts inherit the pinning.
///
/// # Errors
/// A message for the user if the system refuses.
pub fn pin_to(core: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|e| format!("--pin: core {core}: {e}; leave out --pin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays_where_it_was_put() {
        let all = allowed();
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert!(!all.is_empty() && unique.len() == all.len());
        for core in all {
            let pinned = move || {
                pin_to(core).unwrap();
                (allowed(), rustix::thread::sched_getcpu())
            };
            let seen = std::thread::scope(|s| s.spawn(pinned).join().unwrap());
            assert_eq!(seen, (vec![core], core));
        }
        assert!(pin_to(CpuSet::MAX_CPU - 1).unwrap_err().contains("--pin"));
    }
}
