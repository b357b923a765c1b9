//! Memory statistics of this process, with the amount of memory in large pages.

use std::fs;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::arena::{Arena, LARGE_PAGE, PageSize};

/// File with the machine's setting of transparent huge pages.
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Snapshot of the memory mappings of this process, with the memory that the system has allocated to each.
///
/// A snapshot walks the page tables of the whole process, which takes milliseconds for gigabytes of small pages.
#[derive(Clone, Debug, Default)]
pub struct MemoryMap {
    mappings: Vec<Mapping>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    range: Range<usize>,
    given: MemoryGiven,
}

/// Amount of memory that the system has allocated in an address range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryGiven {
    /// Number of bytes in pages of any size.
    pub resident: u64,
    /// Number of bytes in large pages, a part of `resident`. A large page is a single entry of the processor's page tables.
    pub large: u64,
}

impl MemoryMap {
    /// Reads the snapshot from the system (`/proc/self/smaps`).
    ///
    /// # Errors
    /// The system has no such file.
    pub fn read() -> io::Result<MemoryMap> {
        Ok(MemoryMap::parse(&fs::read_to_string("/proc/self/smaps")?))
    }

    fn parse(text: &str) -> MemoryMap {
        let mut mappings: Vec<Mapping> = Vec::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let Some(first) = words.next() else { continue };
            if let Some(name) = first.strip_suffix(':') {
                let (Some(mapping), Some(Ok(kib))) = (mappings.last_mut(), words.next().map(str::parse::<u64>)) else {
                    continue;
                };
                match name {
                    "Rss" => mapping.given.resident = kib << 10,
                    "AnonHugePages" | "FilePmdMapped" | "ShmemPmdMapped" => mapping.given.large += kib << 10,
                    _ => {}
                }
            } else if let Some((start, end)) = first.split_once('-')
                && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
            {
                mappings.push(Mapping { range: start..end, given: MemoryGiven::default() });
            }
        }
        MemoryMap { mappings }
    }

    /// Returns the amount of memory of the whole process.
    pub fn all(&self) -> MemoryGiven {
        self.within(&(0..usize::MAX))
    }

    /// Returns the amount of memory in an address range. A mapping that extends beyond the range counts for at most the
    /// number of bytes that it has in the range.
    pub fn within(&self, range: &Range<usize>) -> MemoryGiven {
        let mut sum = MemoryGiven::default();
        for Mapping { range: of, given } in &self.mappings {
            let shared = of.end.min(range.end).saturating_sub(of.start.max(range.start)) as u64;
            sum.resident += given.resident.min(shared);
            sum.large += given.large.min(shared);
        }
        sum
    }
}

/// Checks that the system gives this process large pages on request, with a mapping of 4 MiB.
///
/// # Errors
/// The reason why the system gives none, and advice.
pub fn large_pages_available() -> Result<(), String> {
    let arena = Arena::<AtomicU32>::new(2 * LARGE_PAGE / size_of::<AtomicU32>(), PageSize::Large)
        .map_err(|e| format!("no memory: {e}"))?;
    arena.as_slice()[0].store(1, Ordering::Relaxed);
    match MemoryMap::read().map(|map| map.within(&arena.range())) {
        Ok(given) if given.large > 0 => Ok(()),
        Ok(_) => Err(why_none(fs::read_to_string(SETTING).ok().as_deref(), is_forbidden())),
        Err(_) => Err("this system does not say which memory lies in large pages".to_owned()),
    }
}

/// Returns true if large pages are forbidden for this process.
fn is_forbidden() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.split_ascii_whitespace().eq(["THP_enabled:", "0"]))
}

fn why_none(setting: Option<&str>, forbidden: bool) -> String {
    match setting {
        None => "this kernel has no large pages for memory that asks for them (transparent huge pages)".to_owned(),
        Some(setting) if setting.contains("[never]") => {
            format!("the system gives none, because {SETTING} is 'never'; write 'madvise' there, as root")
        }
        Some(_) if forbidden => {
            "this process may have none: what started it has forbidden them (PR_SET_THP_DISABLE)".to_owned()
        }
        Some(_) => "the system has none free, because its memory is in pieces; end other programs, or write 1 to \
                    /proc/sys/vm/compact_memory, as root"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
Rss:                2052 kB
AnonHugePages:      2048 kB
FilePmdMapped:         0 kB
VmFlags: rd wr mr mw me ac sd hg 
7f0000600000-7f0000800000 r-xp 00002000 fe:00 12 /some/program: with a colon
Rss:                2048 kB
AnonHugePages:         0 kB
FilePmdMapped:      2048 kB
";

    #[test]
    fn large_pages_are_summed_by_address() {
        let map = MemoryMap::parse(SMAPS);
        assert_eq!(map.all(), MemoryGiven { resident: 4100 << 10, large: 4 << 20 });
        let first = 0x7f00_0000_0000..0x7f00_0040_0000;
        assert_eq!(map.within(&first), MemoryGiven { resident: 2052 << 10, large: 2 << 20 });
        let half = 0x7f00_0070_0000..0x7f00_0090_0000;
        assert_eq!(map.within(&half), MemoryGiven { resident: 1 << 20, large: 1 << 20 });
        assert_eq!(map.within(&(0..4096)), MemoryGiven::default());
    }

    #[test]
    fn a_reason_says_what_to_do() {
        assert!(why_none(None, false).contains("this kernel has no large pages"));
        assert!(why_none(Some("always madvise [never]"), true).contains("write 'madvise' there"));
        assert!(why_none(Some("always [madvise] never"), true).contains("PR_SET_THP_DISABLE"));
        assert!(why_none(Some("[always] madvise never"), false).contains("compact_memory"));
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn what_is_touched_is_seen() {
        let arena = Arena::<AtomicU32>::new(1 << 20, PageSize::Small).unwrap();
        arena.as_slice().iter().step_by(1024).for_each(|word| word.store(1, Ordering::Relaxed));
        let given = MemoryMap::read().unwrap().within(&arena.range());
        assert!(given.resident >= 4 << 20, "{given:?}");
        assert_eq!(given.large, 0, "small ones were asked for");
    }
}
