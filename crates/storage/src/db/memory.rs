//! What of a database's memory lies in large pages.

use std::io;

use super::database::Database;
use crate::base::config::LargePages;
use crate::io::memory::MemoryMap;

/// What [`Options::large_pages`](crate::Options::large_pages) asked for, and what the system has given until now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LargePagesGiven {
    /// What was asked for.
    pub asked: LargePages,
    /// By region.
    pub regions: Vec<MemoryRegion>,
}

/// Memory of one purpose. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryRegion {
    /// `frames`, `page_table` and `shortcuts` of the pool, `log_ring`, `lock_table`.
    pub name: &'static str,
    /// Addresses reserved.
    pub bytes: u64,
    /// Memory given, in pages of any size: what was touched.
    pub resident_bytes: u64,
    /// Memory given in large pages: a part of `resident_bytes`.
    pub large_bytes: u64,
}

impl Database {
    /// Which of the database's memory lies in large pages now. The pool's grows as it is used. Not part of
    /// [`Database::stats`], because asking takes milliseconds.
    ///
    /// # Errors
    /// Where the system does not say (it has no `/proc/self/smaps`).
    pub fn large_pages(&self) -> io::Result<LargePagesGiven> {
        let map = MemoryMap::read()?;
        let ring = ("log_ring", self.engine.log.ring_range());
        let locks = ("lock_table", self.engine.locks.range());
        let regions = self.engine.pool.regions().into_iter().chain([ring, locks]).map(|(name, range)| {
            let given = map.within(&range);
            MemoryRegion { name, bytes: range.len() as u64, resident_bytes: given.resident, large_bytes: given.large }
        });
        Ok(LargePagesGiven { asked: self.large_pages, regions: regions.collect() })
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Options;
    use crate::io::MemDisk;
    use crate::io::memory::large_pages_available;

    fn open(asked: LargePages) -> Database {
        let options = Options::new().buffer_pool(64 << 20).large_pages(asked);
        options.open_on(Arc::new(MemDisk::new())).expect("a database in memory opens")
    }

    #[test]
    fn off_gives_none_and_on_gives_some_in_each_region_that_is_used() {
        let off = open(LargePages::Off).large_pages().unwrap();
        let names: Vec<_> = off.regions.iter().map(|region| region.name).collect();
        assert_eq!(names, ["frames", "page_table", "shortcuts", "log_ring", "lock_table"]);
        assert!(off.regions.iter().all(|region| region.large_bytes == 0), "{off:?}");
        // A machine may have none at the moment; then asking for them is an error, which the command's tests see.
        if large_pages_available().is_ok() {
            let on = open(LargePages::On).large_pages().unwrap();
            assert_eq!(on.asked, LargePages::On);
            assert!(on.regions.iter().any(|region| region.name == "frames" && region.large_bytes > 0), "{on:?}");
            assert!(on.regions.iter().all(|region| region.bytes.is_multiple_of(2 << 20)), "{on:?}");
        }
    }
}
