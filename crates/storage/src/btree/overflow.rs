//! Overflow values, which do not fit a slot together with their key: a reference in the slot, and chunks that hold the
//! value.
//!
//! A table has a second tree for such values, its *overflow tree*. A value is stored in this tree as a *chain* of chunks.
//! Each chunk is a row of the tree whose key consists of the chain's number and the chunk's number. The slot holds a
//! reference: chain number and length. Chunks are written once and never changed. A value that replaces another is a new
//! chain with a number that no chain has ever had. So chunks found under the number of a reference are chunks of the
//! referenced value, marked deleted or not, for as long as they exist.
//!
//! Chunks are rows like others: they are logged once, by the transaction that writes them, undone by key, deleted by a mark,
//! and removed as ghosts when no lock refers to them. A lock refers to the whole chain: see [`Tree::lock_key`].

use std::ops::Range;

use super::merge::{MergeLimits, Merger};
use super::{MAX_VALUE, StructureChange, Tree};
use crate::base::error::StorageError;
use crate::base::ids::IndexId;
use crate::buffer::BufferPool;
use crate::log::RecordBuf;
use crate::page::layout::{RECORD_HEAD, SLOT, SLOTS};

/// Number of bytes of each chunk of a chain except the last. Two such chunks fill a leaf.
pub(crate) const CHUNK: usize = 3968;
/// Maximum length of a value in bytes.
pub(crate) const MAX_LARGE: usize = u32::MAX as usize;

const _: () = assert!(
    CHUNK <= MAX_VALUE
        && SLOTS + 2 * CHUNK_KEY + 2 * (SLOT + RECORD_HEAD + CHUNK_KEY + CHUNK) <= crate::base::ids::PAGE_SIZE
);

/// Number of bytes of a chain's number in a key. The keys of all chunks of the chain begin with it.
const CHAIN_KEY: usize = 12;
const CHUNK_KEY: usize = CHAIN_KEY + 4;

/// Bit in an index number that marks the overflow tree of the index.
const OVERFLOW_TREE: u32 = 1 << 31;

/// Number of a chain. It is unique in the lifetime of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Chain {
    /// Number of a transaction that began when the chain was created, or number of the load that wrote the chain.
    pub(crate) number: u64,
    /// Number of the chain within a load.
    pub(crate) part: u32,
}

impl Chain {
    /// Returns the common beginning of the keys of all chunks of the chain.
    pub(crate) fn key(self) -> [u8; CHAIN_KEY] {
        let mut key = [0; CHAIN_KEY];
        key[..8].copy_from_slice(&self.number.to_be_bytes());
        key[8..].copy_from_slice(&self.part.to_be_bytes());
        key
    }

    /// Returns the key of the chunk with this number.
    pub(crate) fn chunk(self, number: usize) -> [u8; CHUNK_KEY] {
        let mut key = [0; CHUNK_KEY];
        key[..CHAIN_KEY].copy_from_slice(&self.key());
        key[CHAIN_KEY..].copy_from_slice(&(number as u32).to_be_bytes());
        key
    }

    /// Decodes the key of a chunk into its chain and chunk number.
    pub(crate) fn of_chunk(key: &[u8]) -> Option<(Chain, usize)> {
        let (number, rest) = key.split_first_chunk()?;
        let (part, rest) = rest.split_first_chunk()?;
        let chain = Chain { number: u64::from_be_bytes(*number), part: u32::from_be_bytes(*part) };
        Some((chain, u32::from_be_bytes(rest.try_into().ok()?) as usize))
    }
}

/// Reference that a slot holds in place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reference {
    /// The value consists of the last bytes of the key, as in the entries of most indexes. Contains the number of these
    /// bytes.
    OfKey(usize),
    /// The value is a chain of this length in bytes.
    Chain(Chain, usize),
}

/// Encoded form of a `Reference`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReferenceBytes {
    bytes: [u8; 16],
    len: usize,
}

impl ReferenceBytes {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Reference {
    pub(crate) fn encode(self) -> ReferenceBytes {
        let mut bytes = [0; 16];
        let len = match self {
            Reference::OfKey(len) => {
                bytes[..2].copy_from_slice(&(len as u16).to_le_bytes());
                2
            }
            Reference::Chain(chain, len) => {
                bytes[..8].copy_from_slice(&chain.number.to_le_bytes());
                bytes[8..12].copy_from_slice(&chain.part.to_le_bytes());
                bytes[12..].copy_from_slice(&(len as u32).to_le_bytes());
                16
            }
        };
        ReferenceBytes { bytes, len }
    }

    /// Decodes the reference in a slot. Returns `None` if the bytes are not a reference.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Reference> {
        if let Ok(len) = <[u8; 2]>::try_from(bytes) {
            return Some(Reference::OfKey(usize::from(u16::from_le_bytes(len))));
        }
        let (number, rest) = bytes.split_first_chunk()?;
        let (part, rest) = rest.split_first_chunk()?;
        let len = u32::from_le_bytes(rest.try_into().ok()?);
        let chain = Chain { number: u64::from_le_bytes(*number), part: u32::from_le_bytes(*part) };
        (len > 0).then_some(Reference::Chain(chain, len as usize))
    }
}

/// Returns the number of chunks of a value of `len` bytes.
pub(crate) fn chunks_of(len: usize) -> usize {
    len.div_ceil(CHUNK)
}

impl Tree {
    /// Returns the index number of a table's overflow tree. It is derived from the number of the primary index, so both
    /// numbers are reused together.
    pub(crate) fn overflow_index(primary: IndexId) -> IndexId {
        IndexId(primary.0 | OVERFLOW_TREE)
    }

    /// Returns the number of the index. For an overflow tree, returns the number of the index whose large values the tree
    /// holds.
    pub(crate) fn index_number(&self) -> u32 {
        Tree::number_of(self.index)
    }

    /// Returns the number of the index to which a tree belongs, as its own tree or as its overflow tree.
    pub(crate) fn number_of(tree: IndexId) -> u32 {
        tree.0 & !OVERFLOW_TREE
    }

    pub(crate) fn is_overflow(&self) -> bool {
        self.index.0 & OVERFLOW_TREE != 0
    }

    /// Returns the part of a key of the tree that names its lock. For a chunk this is the chain, so that one lock covers all
    /// chunks of the chain.
    pub(crate) fn lock_key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        if self.is_overflow() { &key[..key.len().min(CHAIN_KEY)] } else { key }
    }

    /// Appends a range of bytes of a chain's value to `out`. Returns false if a chunk is missing; the bytes appended to
    /// `out` are then meaningless. Either the value was replaced, deleted or rolled back, or pages are damaged; the caller
    /// can distinguish these cases.
    ///
    /// # Errors
    /// Fails if a page cannot be read or is damaged.
    pub(crate) fn read_chain(
        &self,
        pool: &BufferPool,
        (chain, len): (Chain, usize),
        bytes: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<bool, StorageError> {
        let mut at = bytes.start;
        while at < bytes.end {
            let (begin, mut number) = (out.len(), at / CHUNK);
            let mut next = at;
            let leaf = self.find(pool, &chain.chunk(number))?;
            let page = leaf.read.page();
            let mut position = leaf.position;
            let mut whole = true;
            while next < bytes.end && position < page.count() && page.has_key(position, &chain.chunk(number)) {
                let slot = page.slot(position);
                let first = number * CHUNK;
                let in_chunk = (next - first)..(bytes.end - first).min(CHUNK).min(len - first);
                whole &= slot.value_len == CHUNK.min(len - first) && !slot.is_overflow();
                whole &= page.append_to(slot.value_at() + in_chunk.start, in_chunk.len(), out);
                if !whole {
                    break;
                }
                (number, position, next) = (number + 1, position + 1, first + in_chunk.end);
            }
            if !leaf.read.is_valid() {
                out.truncate(begin);
                continue;
            }
            if !whole || next == at {
                return Ok(false);
            }
            at = next;
        }
        Ok(true)
    }

    /// Removes the chunks of an unreferenced chain from the tree, and frees the pages that become empty. Tries each leaf
    /// once: remaining chunks are removed later like other ghosts.
    ///
    /// # Errors
    /// Fails if a page cannot be read, or if the log accepts no more records.
    pub(crate) fn free_chain(
        &self,
        change: StructureChange<'_>,
        rec: &mut RecordBuf,
        chain: Chain,
        chunks: usize,
    ) -> Result<(), StorageError> {
        let begins = chain.key();
        // A transaction with a table lock has no lock that refers to its ghosts. So only ghosts of this chain may be
        // removed.
        let mut of_others = |key: &[u8]| *key != begins;
        let mut number = 0;
        while number < chunks {
            let leaf = self.leaf(change.pool, &chain.chunk(number))?;
            let mut last = number;
            let page = leaf.page();
            for i in 0..page.count() {
                if let Some((of, n)) = Chain::of_chunk(&page.key(i))
                    && of == chain
                    && n < chunks
                {
                    last = last.max(n);
                }
            }
            let Some(mut leaf) = leaf.upgrade() else { continue };
            if self.purge(change, rec, &mut leaf, &mut of_others)? == 0 {
                leaf.release_unchanged();
            }
            number = last + 1;
        }
        // Empty leaves are merged with each other first, which costs little log.
        let mut number = 0;
        while number < chunks {
            let key = chain.chunk(number);
            let mut merger =
                Merger { change, rec, limits: MergeLimits::PASSING, waits: true, referenced: &mut |_| false };
            while self.merge(&mut merger, &key)?.merged {}
            number += 2;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_written() {
        let chain = Chain { number: 0x0102_0304_0506_0708, part: 9 };
        for reference in [
            Reference::OfKey(0),
            Reference::OfKey(2048),
            Reference::Chain(chain, 1),
            Reference::Chain(chain, MAX_LARGE),
        ] {
            assert_eq!(Reference::decode(reference.encode().as_bytes()), Some(reference));
        }
        for none in [&[][..], &[1], &[0; 3], &[0; 15], &[0; 16], &[1; 17]] {
            assert_eq!(Reference::decode(none), None, "{none:?}");
        }
        assert_eq!(Chain::of_chunk(&chain.chunk(7)), Some((chain, 7)));
        assert!(
            chain.chunk(255) < chain.chunk(256) && chain.chunk(usize::MAX >> 32) < Chain { part: 10, ..chain }.chunk(0)
        );
    }
}
