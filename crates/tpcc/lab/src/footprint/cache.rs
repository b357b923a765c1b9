//! A cache with least-recently-used replacement, like the one that Cachegrind simulates: a reference that crosses the end of
//! a line touches two lines and counts as one miss if either is absent.

use super::geometry::Geometry;

/// Line number that marks an empty way of a set.
const NONE: u64 = u64::MAX;

/// A simulated cache. The number of a line is its address divided by the line size.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    /// Line numbers of all sets, stored set by set. The lines of a set are ordered from the most recently to the least
    /// recently used.
    lines: Vec<u64>,
    ways: usize,
    sets: u64,
    shift: u32,
    misses: u64,
}

impl Cache {
    /// Creates an empty cache.
    pub(super) fn new(geometry: Geometry) -> Cache {
        Cache {
            lines: vec![NONE; (geometry.sets() * geometry.ways()) as usize],
            ways: geometry.ways() as usize,
            sets: u64::from(geometry.sets()),
            shift: geometry.line().trailing_zeros(),
            misses: 0,
        }
    }

    /// Returns the number of references that missed.
    pub(super) fn misses(&self) -> u64 {
        self.misses
    }

    /// Simulates a reference to `len` bytes at `address`.
    #[inline]
    pub(super) fn refer(&mut self, address: u64, len: u32) {
        let (first, last) = (address >> self.shift, (address + u64::from(len.max(1)) - 1) >> self.shift);
        let mut missed = !self.touch(first);
        for line in first + 1..=last {
            missed |= !self.touch(line);
        }
        self.misses += u64::from(missed);
    }

    /// Makes a line the most recently used line of its set. Returns false if the line was absent.
    #[inline]
    fn touch(&mut self, line: u64) -> bool {
        let set = (line & (self.sets - 1)) as usize * self.ways;
        let set = &mut self.lines[set..set + self.ways];
        if set[0] == line {
            return true;
        }
        let (found, at) = match set.iter().position(|&held| held == line) {
            Some(at) => (true, at),
            None => (false, set.len() - 1),
        };
        set[..=at].rotate_right(1);
        set[0] = line;
        found
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn misses(geometry: &str, references: &[(u64, u32)]) -> Vec<u64> {
        let mut cache = Cache::new(geometry.parse().unwrap());
        references
            .iter()
            .map(|&(address, len)| {
                let before = cache.misses();
                cache.refer(address, len);
                cache.misses() - before
            })
            .collect()
    }

    #[test]
    fn the_least_recent_line_of_a_set_goes() {
        // Two sets of two ways: lines 0, 2 and 4 share a set, line 1 is in the other.
        let refs = [(0, 4), (128, 4), (64, 4), (0, 4), (256, 4), (0, 4), (128, 4), (64, 4)];
        assert_eq!(misses("256,2,64", &refs), [1, 1, 1, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn a_direct_mapped_cache_keeps_the_last_line_only() {
        assert_eq!(misses("256,1,64", &[(0, 4), (256, 4), (0, 4), (64, 4), (0, 4)]), [1, 1, 1, 1, 0]);
    }

    #[test]
    fn a_full_set_in_turn_always_misses() {
        // Nine lines cycle through one set of eight ways: the worst case of least-recently-used replacement.
        let turn: Vec<(u64, u32)> = (0..27).map(|i| (i % 9 * 64, 4)).collect();
        assert_eq!(misses("512,8,64", &turn).iter().sum::<u64>(), 27);
        let turn: Vec<(u64, u32)> = (0..27).map(|i| (i % 8 * 64, 4)).collect();
        assert_eq!(misses("512,8,64", &turn).iter().sum::<u64>(), 8);
    }

    #[test]
    fn a_reference_across_lines_is_one_miss_and_brings_both() {
        assert_eq!(misses("512,8,64", &[(60, 8), (0, 4), (64, 4), (124, 8), (124, 4)]), [1, 0, 0, 1, 0]);
    }

    /// Runs the same instruction stream through Cachegrind and through this cache. Valgrind loads a program at the same
    /// addresses under all its tools, but the environments of the tools differ, so that a few references in a hundred
    /// thousand may differ, too.
    #[test]
    fn agrees_with_cachegrind() {
        let environment = [("PATH", "/usr/bin:/bin"), ("LC_ALL", "C")];
        let valgrind = |args: &[&str]| {
            Command::new("valgrind").args(args).args(["/bin/true"]).env_clear().envs(environment).output()
        };
        for geometry in ["32768,8,64", "4096,2,64", "2048,1,32"] {
            let i1 = format!("--I1={geometry}");
            let counted = ["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null", &i1];
            let (Ok(theirs), Ok(trace)) = (valgrind(&counted), valgrind(&["--tool=lackey", "--trace-mem=yes"])) else {
                eprintln!("valgrind is not installed: not compared");
                return;
            };
            let theirs = String::from_utf8_lossy(&theirs.stderr).into_owned();
            let theirs = theirs.lines().find(|line| line.contains("I1  misses:")).expect("a count of misses");
            let theirs: f64 = theirs.rsplit(' ').next().unwrap().replace(',', "").parse().unwrap();
            let mut cache = Cache::new(geometry.parse().unwrap());
            for line in String::from_utf8_lossy(&trace.stderr).lines() {
                if let Some((address, len)) = line.strip_prefix("I  ").and_then(|rest| rest.split_once(',')) {
                    cache.refer(u64::from_str_radix(address, 16).unwrap(), len.parse().unwrap());
                }
            }
            let ours = cache.misses() as f64;
            assert!(
                theirs > 100.0 && (ours - theirs).abs() <= 0.01 * theirs,
                "{geometry}: {ours} here, {theirs} there"
            );
        }
    }
}
