//! Writes the log stream in whole blocks.
//!
//! Writes of whole blocks from aligned memory can bypass the system's cache. This saves the flusher a second copy of every
//! record, whose lines come from the caches of the cores that wrote them. The last block of a write is incomplete in most
//! cases. The writer keeps it, padded with zeros, and writes it again with the bytes that follow. The second write changes
//! nothing in the sectors before the new bytes, so a torn write loses no durable bytes.

use std::io::IoSlice;

use crate::base::error::StorageError;
use crate::io::{BLOCK, DiskFile, read_up_to_at, write_all_blocks_at};

#[derive(Debug)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

/// Writer that keeps the block at the end of the written stream.
#[derive(Debug)]
pub(super) struct BlockWriter {
    /// Contents of the block up to the end of the stream. The bytes after the end are arbitrary.
    begun: Box<Block>,
    /// Buffer for the last, incomplete block of a write. It is swapped with `begun` when the stream ends in it.
    next: Box<Block>,
}

impl BlockWriter {
    /// Creates a writer for a stream that ends at a block boundary.
    pub(super) fn new() -> BlockWriter {
        BlockWriter { begun: Box::new(Block([0; BLOCK])), next: Box::new(Block([0; BLOCK])) }
    }

    /// Reads the block that contains file offset `offset`, at which the next write continues the stream.
    pub(super) fn resume(&mut self, file: &dyn DiskFile, offset: u64) -> Result<(), StorageError> {
        let within = offset as usize % BLOCK;
        read_up_to_at(file, &mut self.begun.0[..within], offset - within as u64).map(drop)
    }

    /// Writes `bytes` at file offset `offset`, which is the end of the last write, or the start of another file's payload.
    /// The bytes have the same offset in a block of memory as in a block of the file.
    pub(super) fn write(&mut self, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> Result<(), StorageError> {
        let within = offset as usize % BLOCK;
        let (first, rest) = bytes.split_at(if within > 0 { bytes.len().min(BLOCK - within) } else { 0 });
        let (middle, last) = rest.split_at(rest.len() / BLOCK * BLOCK);
        put(&mut self.begun, within, first);
        put(&mut self.next, 0, last);
        let all = |wanted: bool, block| if wanted { block } else { &[][..] };
        let blocks = &mut [
            IoSlice::new(all(!first.is_empty(), &self.begun.0)),
            IoSlice::new(middle),
            IoSlice::new(all(!last.is_empty(), &self.next.0)),
        ];
        write_all_blocks_at(file, blocks, offset - within as u64)?;
        if within + first.len() >= BLOCK || within == 0 {
            std::mem::swap(&mut self.begun, &mut self.next);
        }
        Ok(())
    }
}

/// Copies bytes to their place in a block and clears the bytes after them.
fn put(block: &mut Block, at: usize, bytes: &[u8]) {
    let (place, behind) = block.0[at..].split_at_mut(bytes.len());
    place.copy_from_slice(bytes);
    behind.fill(0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::io::{Disk, MemDisk, OpenMode};

    proptest! {
        /// Property: for any division of the stream into writes, the file contains the stream, and zeros up to the end of
        /// the last block.
        #[test]
        fn any_cut_writes_the_stream(from in 0..3 * BLOCK, cuts in prop::collection::vec(1..9000_usize, 1..12), resumed: u16) {
            let file = MemDisk::new().open("f", OpenMode::Create).unwrap();
            let from = from / 8 * 8;
            let end = from + cuts.iter().sum::<usize>();
            #[repr(C, align(4096))]
            struct Aligned([u8; 32 * BLOCK]);
            let mut memory = Box::new(Aligned([0; 32 * BLOCK]));
            for (i, byte) in memory.0[..end].iter_mut().enumerate() {
                *byte = (i % 251) as u8 + 1;
            }
            file.write_at(&memory.0[..from], 0).unwrap();
            let mut writer = BlockWriter::new();
            writer.resume(&*file, from as u64).unwrap();
            let mut at = from;
            for (i, cut) in cuts.iter().enumerate() {
                if resumed & 1 << i != 0 {
                    writer = BlockWriter::new();
                    writer.resume(&*file, at as u64).unwrap();
                }
                writer.write(&*file, &memory.0[at..at + cut], at as u64).unwrap();
                at += cut;
            }
            let mut found = vec![9; end.next_multiple_of(BLOCK)];
            prop_assert_eq!(read_up_to_at(&*file, &mut found, 0).unwrap(), found.len());
            prop_assert_eq!(&found[..end], &memory.0[..end]);
            prop_assert!(found[end..].iter().all(|byte| *byte == 0));
        }
    }
}
