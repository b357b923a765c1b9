//! The machine that the program runs on. Values that the system does not report are `None`, never 0.

use std::fs;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit};
#[cfg(any(test, feature = "schemas"))]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workload::words::counted;

/// Machine as described by the operating system.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Machine {
    /// Number of CPUs that the program may use.
    pub cores: Option<usize>,
    /// Number of memory nodes with CPUs (NUMA); 1 on a machine with uniform memory access.
    pub numa_nodes: usize,
    /// Model name of the CPU.
    pub cpu: Option<String>,
    /// Main memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Fraction of CPU time that the hypervisor gave to other guests during the command, 0 to 1.
    pub steal: Option<f64>,
    /// Reason why there are no hardware counters; null if none is known.
    pub counters: Option<String>,
}

impl Machine {
    /// Describes the machine. `since` is the value of [`CpuTime::now`] at the start of the command.
    pub fn describe(since: Option<CpuTime>) -> Machine {
        let steal = since.zip(CpuTime::now()).and_then(|(before, after)| after.steal_since(before));
        Machine {
            cores: std::thread::available_parallelism().ok().map(usize::from),
            numa_nodes: storage::Nodes::of_this_machine().count(),
            cpu: field("/proc/cpuinfo", "model name"),
            memory_bytes: kib("/proc/meminfo", "MemTotal"),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|release| release.trim().to_owned()),
            steal,
            counters: None,
        }
    }

    /// Returns the description of the machine as one line, for the summary.
    pub fn line(&self) -> String {
        let unknown = || "unknown".to_owned();
        let cores = self.cores.map_or_else(unknown, |n| n.to_string());
        let cpu = self.cpu.clone().unwrap_or_else(unknown);
        let memory = self.memory_bytes.map_or_else(unknown, |bytes| format!("{} GiB", bytes.div_ceil(1 << 30)));
        let steal = self.steal.map_or_else(|| "not available".to_owned(), |steal| format!("{:.1}%", 100.0 * steal));
        let nodes = counted(self.numa_nodes as u64, "memory node");
        format!("{cores} x {cpu}, {memory}, {nodes}, steal {steal}")
    }
}

/// CPU time of all CPUs, total and stolen, in ticks of the system.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime {
    all: u64,
    stolen: u64,
}

impl CpuTime {
    /// Reads the current times; `None` if the system does not report them.
    pub fn now() -> Option<CpuTime> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let line = text.lines().find(|line| line.starts_with("cpu "))?;
        // user nice system idle iowait irq softirq steal; guest times are part of user.
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).map_while(|n| n.parse().ok()).collect();
        (ticks.len() == 8).then(|| CpuTime { all: ticks.iter().sum(), stolen: ticks[7] })
    }

    fn steal_since(self, before: CpuTime) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|&all| all > 0)?;
        Some(self.stolen.saturating_sub(before.stolen) as f64 / all as f64)
    }
}

/// Peak resident memory of the process, in bytes; `None` if the system does not report it.
pub fn peak_rss_bytes() -> Option<u64> {
    kib("/proc/self/status", "VmHWM")
}

/// Memory in bytes that programs can allocate without swapping; `None` if the system does not report it.
pub fn available_memory_bytes() -> Option<u64> {
    kib("/proc/meminfo", "MemAvailable")
}

/// Memory that this process may use, in bytes: the main memory, or less if a control group or a process limit (`ulimit -v`,
/// `ulimit -d`) allows less. `None` if the system does not report it.
pub fn memory_limit_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = control_group_limits(&groups, Path::new("/sys/fs/cgroup"));
    let own = [Resource::RLIMIT_AS, Resource::RLIMIT_DATA];
    let own = own.into_iter().filter_map(|limit| getrlimit(limit).ok()).map(|(soft, _)| soft);
    kib("/proc/meminfo", "MemTotal").into_iter().chain(groups).chain(own).min()
}

/// Memory limits of control groups, in bytes: of the groups listed in `groups` (`/proc/self/cgroup`), and of their
/// ancestors. Their files are in the directory `root`.
fn control_group_limits(groups: &str, root: &Path) -> Vec<u64> {
    let of_a_group = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (top, file) = match controllers {
            // Version 2 has a single hierarchy.
            "" => (root.to_owned(), "memory.max"),
            some if some.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        // A path with `..` is of a group outside this process's namespace: its limits are those of the root.
        let path = if path.contains("..") { "" } else { path.trim_start_matches('/') };
        let limits = Path::new(path).ancestors().map(move |group| top.join(group).join(file));
        Some(limits.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).collect::<Vec<u64>>())
    });
    of_a_group.flatten().collect()
}

fn field(file: &str, name: &str) -> Option<String> {
    field_of(&fs::read_to_string(file).ok()?, name).map(str::to_owned)
}

fn field_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

fn kib(file: &str, name: &str) -> Option<u64> {
    kib_of(&field(file, name)?)
}

fn kib_of(field: &str) -> Option<u64> {
    field.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_of_both_versions_have_limits() {
        let root = std::env::temp_dir().join(format!("tpcc-groups-{}", std::process::id()));
        let write = |group: &str, file: &str, text: &str| {
            fs::create_dir_all(root.join(group)).unwrap();
            fs::write(root.join(group).join(file), text).unwrap();
        };
        write("a/b", "memory.max", "max\n");
        write("a", "memory.max", "4096\n");
        write("memory/c", "memory.limit_in_bytes", "8192\n");
        let of = |groups: &str| control_group_limits(groups, &root);
        assert_eq!(of("0::/a/b\n"), [4096], "the group above has one");
        assert_eq!(of("12:cpu,cpuacct:/c\n5:memory:/c\n"), [8192]);
        assert_eq!(of("0::/../..\n"), [0_u64; 0]);
        assert_eq!(of("nonsense\n0::/none\n"), [0_u64; 0]);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn memory_that_is_to_be_had_is_read() {
        let available = |text| field_of(text, "MemAvailable").and_then(kib_of);
        assert_eq!(available("MemTotal:  9 kB\nMemAvailable:   24600000 kB\n"), Some(24_600_000 * 1024));
        assert_eq!(available("MemTotal:  9 kB\n"), None);
    }
}
