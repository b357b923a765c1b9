//! Preload: reads a whole database into the pool.

use super::BufferPool;
use super::load::PageClaim;
use super::page_table::Residency;
use crate::base::error::StorageError;
use crate::base::ids::{PAGE_SIZE, PageId};

/// Number of pages that `preload` reads at a time.
const CHUNK: u32 = 128;

impl BufferPool {
    /// Reads pages 1 to `pages` - 1 into free frames, in order and with large reads, until the pool is nearly full. Evicts
    /// nothing. Returns the number of pages loaded. Skips damaged pages: a transaction that needs such a page gets the
    /// error. The caller holds no latch.
    ///
    /// # Errors
    /// Fails if a read fails.
    pub(crate) fn preload(&self, pages: u32) -> Result<u32, StorageError> {
        let pages = pages.min(self.file_pages());
        let mut buffer = vec![0; CHUNK as usize * PAGE_SIZE];
        let mut claimed = Vec::with_capacity(CHUNK as usize);
        let mut loaded = 0;
        for first in (1..pages).step_by(CHUNK as usize) {
            let count = CHUNK.min(pages - first);
            if self.free_frames() < (CHUNK as usize + self.shards.len() * self.reserve_high).min(self.frame_count() / 4)
            {
                break;
            }
            self.claim_chunk(first, count, &mut claimed);
            if claimed.is_empty() {
                continue;
            }
            let bytes = &mut buffer[..count as usize * PAGE_SIZE];
            let read = self.file.read_exact_at(bytes, PageId(first).offset());
            let (contents, _) = bytes.as_chunks::<PAGE_SIZE>();
            for claim in claimed.drain(..) {
                let content = &contents[(claim.id().0 - first) as usize];
                loaded += u32::from(claim.install_preloaded(read.is_ok().then_some(content)));
            }
            read?;
        }
        Ok(loaded)
    }

    /// Claims the absent pages of a chunk while free frames last.
    fn claim_chunk<'a>(&'a self, first: u32, count: u32, claimed: &mut Vec<PageClaim<'a>>) {
        for id in (first..first + count).map(PageId) {
            if let Some(Residency::Absent(entry)) = self.table.place(id) {
                let Some(free) = self.free_frame(self.shard_of_preloaded(id)) else { return };
                claimed.extend(self.claim(id, entry, free));
            }
        }
    }

    /// Returns the number of the shard that supplies the frame of a preloaded page. With home shards, pages that are
    /// neighbours in the file share a shard, so that they are neighbours in memory too and occupy few large pages.
    fn shard_of_preloaded(&self, id: PageId) -> usize {
        self.homes.as_ref().map_or_else(|| self.shard_of_page(id), |homes| id.0 as usize / homes.chunk())
    }

    /// Returns the number of frames that hold no page.
    pub(crate) fn free_frames(&self) -> usize {
        self.unused_frames() + self.shards.iter().map(|shard| shard.lock().free.len()).sum::<usize>()
    }
}
