//! Use of large pages by a database's memory.

use std::io;

use super::database::Database;
use crate::base::config::LargePages;
use crate::io::memory::MemoryMap;

/// Large page setting ([`Options::large_pages`](crate::Options::large_pages)), and the large pages that the system has
/// allocated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LargePagesGiven {
    /// The large page setting of the database.
    pub asked: LargePages,
    /// Sizes of each memory region.
    pub regions: Vec<MemoryRegion>,
}

/// A memory region with one purpose. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryRegion {
    /// Name of the region: `frames`, `page_table` or `shortcuts` (all of the buffer pool), `log_ring`, or `lock_table`.
    pub name: &'static str,
    /// Size of the reserved address range.
    pub bytes: u64,
    /// Allocated memory, in pages of any size. The system allocates a part of the region when it is first accessed.
    pub resident_bytes: u64,
    /// Memory allocated in large pages. Included in `resident_bytes`.
    pub large_bytes: u64,
}

impl Database {
    /// Returns the sizes of each memory region, and the part of it in large pages. The allocated memory of the pool
    /// grows with its use. Not part of [`Database::stats`], because the query takes milliseconds.
    ///
    /// # Errors
    /// An error if the system does not provide the information (there is no `/proc/self/smaps`).
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
        // The machine may have no large pages at the moment; then requesting them is an error, which the tests of the
        // command check.
        if large_pages_available().is_ok() {
            let on = open(LargePages::On).large_pages().unwrap();
            assert_eq!(on.asked, LargePages::On);
            assert!(on.regions.iter().any(|region| region.name == "frames" && region.large_bytes > 0), "{on:?}");
            assert!(on.regions.iter().all(|region| region.bytes.is_multiple_of(2 << 20)), "{on:?}");
        }
    }
}
