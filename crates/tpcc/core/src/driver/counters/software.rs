//! Operating system counters of a thread: CPU time, context switches, page faults, migrations.

#[cfg(target_os = "linux")]
use nix::sys::resource::{UsageWho, getrusage};

/// Operating system counts of one or more threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SoftwareCounts {
    /// CPU time in nanoseconds.
    pub task_clock_ns: u64,
    pub page_faults: u64,
    pub context_switches: u64,
    /// Migrations from one CPU to another; `None` if the system does not report them.
    pub migrations: Option<u64>,
}

impl SoftwareCounts {
    /// Returns the difference from an earlier reading.
    pub(super) fn since(&self, before: &SoftwareCounts) -> SoftwareCounts {
        SoftwareCounts {
            task_clock_ns: self.task_clock_ns.saturating_sub(before.task_clock_ns),
            page_faults: self.page_faults.saturating_sub(before.page_faults),
            context_switches: self.context_switches.saturating_sub(before.context_switches),
            migrations: self.migrations.zip(before.migrations).map(|(now, before)| now.saturating_sub(before)),
        }
    }

    /// Adds the counts of another thread.
    pub(super) fn add(&mut self, other: &SoftwareCounts) {
        self.task_clock_ns += other.task_clock_ns;
        self.page_faults += other.page_faults;
        self.context_switches += other.context_switches;
        self.migrations = self.migrations.zip(other.migrations).map(|(a, b)| a + b);
    }
}

/// Source of operating system counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SoftwareSource {
    /// `perf_event_open`.
    Perf,
    /// `getrusage` and `/proc`, if `perf_event_open` is refused.
    System,
}

impl SoftwareSource {
    /// Returns the name of the source, for reports.
    pub fn name(self) -> &'static str {
        match self {
            SoftwareSource::Perf => "perf_event_open",
            SoftwareSource::System => "getrusage and /proc",
        }
    }
}

/// Operating system counters of the thread that opened them.
pub(super) enum Software {
    #[cfg(target_os = "linux")]
    Perf([perf_event::Counter; 4]),
    System,
}

impl Software {
    pub(super) fn open() -> Software {
        #[cfg(target_os = "linux")]
        {
            use perf_event::events::Software as Of;
            let kinds = [Of::TASK_CLOCK, Of::PAGE_FAULTS, Of::CONTEXT_SWITCHES, Of::CPU_MIGRATIONS];
            let open = |kind| {
                let mut builder = perf_event::Builder::new().kind(kind);
                // Context switches and migrations happen in the kernel.
                builder.exclude_kernel(false).enabled(true);
                builder.build()
            };
            if let Ok(counters) = kinds.into_iter().map(open).collect::<Result<Vec<_>, _>>()
                && let Ok(counters) = counters.try_into()
            {
                return Software::Perf(counters);
            }
        }
        Software::of_the_system()
    }

    /// Creates counters that need no privileges.
    pub(super) fn of_the_system() -> Software {
        Software::System
    }

    pub(super) fn source(&self) -> SoftwareSource {
        match self {
            #[cfg(target_os = "linux")]
            Software::Perf(_) => SoftwareSource::Perf,
            Software::System => SoftwareSource::System,
        }
    }

    pub(super) fn read(&mut self) -> SoftwareCounts {
        match self {
            #[cfg(target_os = "linux")]
            Software::Perf(counters) => {
                let [clock, faults, switches, moves] = counters.each_mut().map(|counter| counter.read().ok());
                SoftwareCounts {
                    task_clock_ns: clock.unwrap_or(0),
                    page_faults: faults.unwrap_or(0),
                    context_switches: switches.unwrap_or(0),
                    migrations: moves,
                }
            }
            Software::System => of_thread(),
        }
    }
}

#[cfg(target_os = "linux")]
fn of_thread() -> SoftwareCounts {
    let migrations = std::fs::read_to_string("/proc/thread-self/sched").ok().and_then(|text| migrations(&text));
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return SoftwareCounts::default() };
    let ns = |time: nix::sys::time::TimeVal| (time.tv_sec() * 1_000_000 + time.tv_usec()) as u64 * 1_000;
    SoftwareCounts {
        task_clock_ns: ns(usage.user_time()) + ns(usage.system_time()),
        page_faults: (usage.minor_page_faults() + usage.major_page_faults()) as u64,
        context_switches: (usage.voluntary_context_switches() + usage.involuntary_context_switches()) as u64,
        migrations,
    }
}

#[cfg(not(target_os = "linux"))]
fn of_thread() -> SoftwareCounts {
    SoftwareCounts::default()
}

/// Parses a line such as "se.nr_migrations                             :                    3".
#[cfg(target_os = "linux")]
fn migrations(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.split_once(':')?.1.trim().parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_has_time_and_faults() {
        for mut software in [Software::open(), Software::of_the_system()] {
            let before = software.read();
            let begun = std::time::Instant::now();
            let mut pages = vec![0_u8; 16 << 20];
            pages.iter_mut().step_by(4096).for_each(|page| *page = 1);
            while begun.elapsed() < std::time::Duration::from_millis(30) {
                std::hint::black_box(&pages);
            }
            let counted = software.read().since(&before);
            assert!(counted.task_clock_ns > 0, "{counted:?}");
            assert!(counted.page_faults > 0, "{counted:?}");
        }
    }

    #[test]
    fn moves_are_read_from_the_scheduler() {
        let text = "tpcc (1, #threads: 2)\n---\nse.exec_start  :  5.1\nse.nr_migrations   :          17\n";
        assert_eq!(migrations(text), Some(17));
        assert_eq!(migrations("none"), None);
    }
}
