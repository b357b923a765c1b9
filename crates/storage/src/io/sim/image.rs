//! The durable bytes of a simulated file: cheap to copy, because copies share the parts that neither has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sector::{SECTOR, Sector, bytes, pack};

/// Sectors that are shared or copied together: a page.
const CHUNK: u64 = 16;

type Chunk = [Sector; CHUNK as usize];

/// Sectors by number; those never written are zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Image(BTreeMap<u64, Arc<Chunk>>);

impl Image {
    pub(super) fn get(&self, sector: u64) -> &Sector {
        self.0.get(&(sector / CHUNK)).map_or(&None, |chunk| &chunk[(sector % CHUNK) as usize])
    }

    pub(super) fn put(&mut self, sector: u64, contents: Sector) {
        if contents.is_none() && !self.0.contains_key(&(sector / CHUNK)) {
            return;
        }
        let chunk = self.0.entry(sector / CHUNK).or_default();
        Arc::make_mut(chunk)[(sector % CHUNK) as usize] = contents;
    }

    /// The sectors from `first` on that are not zeros.
    pub(super) fn from(&self, first: u64) -> impl Iterator<Item = u64> + '_ {
        let chunks = self.0.range(first / CHUNK..);
        let sectors = chunks.flat_map(|(number, chunk)| {
            (number * CHUNK..).zip(chunk.iter()).filter(|(_, contents)| contents.is_some()).map(|(sector, _)| sector)
        });
        sectors.filter(move |sector| *sector >= first)
    }

    /// Forgets what lies at `len` bytes and beyond.
    pub(super) fn cut(&mut self, len: u64) {
        self.0.split_off(&len.div_ceil(SECTOR * CHUNK));
        let gone: Vec<u64> = self.from(len.div_ceil(SECTOR)).collect();
        for sector in gone {
            self.put(sector, None);
        }
        if !len.is_multiple_of(SECTOR) && self.get(len / SECTOR).is_some() {
            let mut contents = bytes(self.get(len / SECTOR));
            contents[(len % SECTOR) as usize..].fill(0);
            self.put(len / SECTOR, pack(contents));
        }
    }
}
