//! Durable contents of a simulated file. Copies are cheap: they share the chunks that neither has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sector::{Contents, SECTOR, ZEROS, each_unit};

/// Number of sectors in a chunk: the unit of sharing and copying, of the size of a page.
const CHUNK: u64 = 16;
const CHUNK_BYTES: u64 = CHUNK * SECTOR;

type Chunk = [Contents; CHUNK as usize];

/// Chunks, indexed by chunk number. A chunk that is absent contains only zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Image(BTreeMap<u64, Arc<Chunk>>);

impl Image {
    pub(super) fn get(&self, sector: u64) -> &Contents {
        self.0.get(&(sector / CHUNK)).map_or(&ZEROS, |chunk| &chunk[(sector % CHUNK) as usize])
    }

    pub(super) fn put(&mut self, sector: u64, contents: &Contents) {
        if *contents == ZEROS && !self.0.contains_key(&(sector / CHUNK)) {
            return;
        }
        let chunk = self.0.entry(sector / CHUNK).or_insert_with(|| Arc::new([ZEROS; CHUNK as usize]));
        Arc::make_mut(chunk)[(sector % CHUNK) as usize] = *contents;
    }

    /// Fills `buf` with the bytes of the file at `off`.
    pub(super) fn read(&self, buf: &mut [u8], off: u64) {
        each_unit(CHUNK_BYTES, off, buf.len(), |number, within, range| match self.0.get(&number) {
            Some(chunk) => {
                let n = range.len();
                buf[range].copy_from_slice(&chunk.as_flattened()[within..within + n]);
            }
            None => buf[range].fill(0),
        });
    }

    /// Returns the numbers of the sectors, from `first` on, that are not all zeros.
    pub(super) fn from(&self, first: u64) -> impl Iterator<Item = u64> + '_ {
        let chunks = self.0.range(first / CHUNK..);
        let sectors = chunks.flat_map(|(number, chunk)| {
            (number * CHUNK..).zip(chunk.iter()).filter(|(_, contents)| **contents != ZEROS).map(|(sector, _)| sector)
        });
        sectors.filter(move |sector| *sector >= first)
    }

    /// Sets the bytes at `len` and beyond to zero.
    pub(super) fn cut(&mut self, len: u64) {
        self.0.split_off(&len.div_ceil(CHUNK_BYTES));
        let gone: Vec<u64> = self.from(len.div_ceil(SECTOR)).collect();
        for sector in gone {
            self.put(sector, &ZEROS);
        }
        if !len.is_multiple_of(SECTOR) && *self.get(len / SECTOR) != ZEROS {
            let mut contents = *self.get(len / SECTOR);
            contents[(len % SECTOR) as usize..].fill(0);
            self.put(len / SECTOR, &contents);
        }
    }
}
