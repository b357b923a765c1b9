//! Hardware counters through the system call `perf_event_open`.

use super::event::{Event, PLACES, Reading, Reasons, Ring, Source, place};

/// Hardware counters of the thread that opened them. Each event is a group of its own, with user and kernel counts, so that
/// the system can multiplex events if the processor has too few counters.
pub(super) struct PerfSource {
    #[cfg(target_os = "linux")]
    groups: Vec<linux::EventGroup>,
}

impl PerfSource {
    /// Opens the available counters, and returns the reasons for the missing ones.
    pub(super) fn open() -> (PerfSource, Reasons) {
        #[cfg(target_os = "linux")]
        {
            let (mut groups, mut reasons) = (Vec::new(), Reasons::new());
            for event in Event::ALL {
                match linux::EventGroup::open(event, &mut reasons) {
                    Ok(group) => groups.push(group),
                    Err(error) => drop(reasons.insert(event.name().to_owned(), why(&error, paranoid().as_deref()))),
                }
            }
            (PerfSource { groups }, reasons)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let why = |event: Event| (event.name().to_owned(), "counters are read on Linux only".to_owned());
            (PerfSource {}, Event::ALL.into_iter().map(why).collect())
        }
    }
}

impl Source for PerfSource {
    fn is_empty(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.groups.is_empty();
        #[cfg(not(target_os = "linux"))]
        return true;
    }

    fn read(&mut self) -> [Reading; PLACES] {
        #[cfg_attr(not(target_os = "linux"), allow(unused_mut))]
        let mut reading = [Reading::default(); PLACES];
        #[cfg(target_os = "linux")]
        for group in &mut self.groups {
            group.read(&mut reading);
        }
        reading
    }
}

/// Reads the setting `perf_event_paranoid`, which defines the events that unprivileged users may count. `None` if it cannot
/// be read.
#[cfg(target_os = "linux")]
fn paranoid() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok().map(|text| text.trim().to_owned())
}

/// Returns the reason why a counter is not available, with a remedy if there is one.
#[cfg(any(test, target_os = "linux"))]
fn why(error: &std::io::Error, paranoid: Option<&str>) -> String {
    use nix::errno::Errno;
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::ENODEV | Errno::ENXIO) => {
            format!("the processor, or the hypervisor above it, offers no such counter ({error})")
        }
        Some(Errno::EACCES | Errno::EPERM) => format!(
            "not allowed ({error}): /proc/sys/kernel/perf_event_paranoid is {}; write 1 there as root (2 is enough for user \
             code), or give the program CAP_PERFMON",
            paranoid.unwrap_or("not to be read")
        ),
        Some(Errno::ENOSYS) => format!("the kernel has no perf_event_open ({error})"),
        Some(Errno::EMFILE | Errno::ENFILE) => format!("no more files may be open ({error}): raise 'ulimit -n'"),
        _ => format!("perf_event_open: {error}"),
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use perf_event::events::{Cache, CacheOp, CacheResult, Event as Of, Hardware, WhichCache};
    use perf_event::{Builder, Counter, Group};

    use super::{Event, PLACES, Reading, Reasons, Ring, paranoid, place, why};

    /// One event at one or both privilege levels.
    pub(super) struct EventGroup {
        event: Event,
        group: Group,
        counters: Vec<(Ring, Counter)>,
    }

    impl EventGroup {
        /// Opens and enables the counters of an event. If the system refuses only the kernel counter, adds the reason to
        /// `reasons`.
        pub(super) fn open(event: Event, reasons: &mut Reasons) -> io::Result<EventGroup> {
            let mut group = Group::new()?;
            let mut open = |ring| {
                let mut builder = Builder::new().group(&mut group).kind(kind(event));
                builder.exclude_user(ring == Ring::Kernel).exclude_kernel(ring == Ring::User);
                builder.build()
            };
            let mut counters = vec![(Ring::User, open(Ring::User)?)];
            match open(Ring::Kernel) {
                Ok(counter) => counters.push((Ring::Kernel, counter)),
                Err(error) => {
                    reasons.insert(format!("{}, kernel", event.name()), why(&error, paranoid().as_deref()));
                }
            }
            group.enable()?;
            Ok(EventGroup { event, group, counters })
        }

        pub(super) fn read(&mut self, reading: &mut [Reading; PLACES]) {
            // A counter that can no longer be read is treated as a counter that did not run.
            let Ok(counts) = self.group.read() else { return };
            let (enabled, running) = (counts.time_enabled(), counts.time_running());
            for (ring, counter) in &self.counters {
                let count = counts.get(counter).copied().unwrap_or(0);
                reading[place(self.event, *ring)] = Reading { count, enabled, running };
            }
        }
    }

    fn kind(event: Event) -> Of {
        let misses = |which| Of::Cache(Cache { which, operation: CacheOp::READ, result: CacheResult::MISS });
        match event {
            Event::Cycles => Hardware::CPU_CYCLES.into(),
            Event::Instructions => Hardware::INSTRUCTIONS.into(),
            Event::L1iMisses => misses(WhichCache::L1I),
            Event::L1dMisses => misses(WhichCache::L1D),
            Event::LlcMisses => misses(WhichCache::LL),
            Event::DtlbMisses => misses(WhichCache::DTLB),
            Event::ItlbMisses => misses(WhichCache::ITLB),
            Event::BranchMisses => Hardware::BRANCH_MISSES.into(),
            Event::StalledFrontend => Hardware::STALLED_CYCLES_FRONTEND.into(),
            Event::StalledBackend => Hardware::STALLED_CYCLES_BACKEND.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_which_setting_to_change() {
        let of = |errno: nix::errno::Errno| std::io::Error::from_raw_os_error(errno as i32);
        let refused = why(&of(nix::errno::Errno::EACCES), Some("3"));
        assert!(refused.contains("perf_event_paranoid is 3") && refused.contains("write 1 there"), "{refused}");
        assert!(why(&of(nix::errno::Errno::ENOENT), None).contains("offers no such counter"));
        assert!(why(&of(nix::errno::Errno::ENOSYS), None).contains("no perf_event_open"));
    }

    #[test]
    fn every_event_is_there_or_has_its_reason() {
        let (mut source, reasons) = PerfSource::open();
        let reading = source.read();
        for event in Event::ALL {
            let there = reading[place(event, Ring::User)].enabled > 0;
            assert_ne!(there, reasons.contains_key(event.name()), "{}: {reasons:?}", event.name());
        }
        assert_eq!(source.is_empty(), Event::ALL.iter().all(|event| reasons.contains_key(event.name())));
    }
}
