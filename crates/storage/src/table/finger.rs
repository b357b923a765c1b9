//! Fingers: cached leaf positions of the last insert of a run of ascending keys. The next insert of the run then needs
//! no descent of the tree.
//!
//! Rows often arrive in runs: the orders of one district, the events of one device. The keys of a run differ only in
//! their last bytes, which increase. A finger stores for one run the leaf, the leaf's version after the insert, the
//! inserted key and the next key above it. While the version is unchanged, a key of the run between these two keys
//! belongs in the next slot of the leaf, so no page is searched, not even the leaf. (Searching from the last position
//! is the idea of finger search trees: Guibas, McCreight, Plass and Roberts, STOC 1977.)
//!
//! Each thread has its own fingers, shared by the fibers of the thread; no other thread writes them.

use std::cell::RefCell;

use super::index::Index;
use crate::base::ids::PageId;
use crate::btree::search::LeafAt;
use crate::buffer::frame::FrameWrite;
use crate::latch::Version;
use crate::txn::engine::Engine;
use crate::txn::transaction::Txn;

/// Number of fingers of a thread: a power of two.
const FINGERS: usize = 2048;
/// Length of the tail: the last bytes of a key, which may increase within a run.
const TAIL: usize = 4;
/// Maximum length of the stem: the bytes before the tail.
const STEM: usize = 16;

/// Cached position of the last insert of a run: see the module's documentation.
#[derive(Clone, Copy)]
struct Finger {
    stem: u128,
    /// Database instance, index number and key length, packed into one number. Never 0 for a run.
    run: u128,
    /// Tail of the last inserted key.
    last: u32,
    frame: u32,
    /// Page that the frame contained at the insert.
    leaf: PageId,
    /// Upper bound (exclusive) of the tails that belong in the gap above the last inserted key.
    below: u64,
    version: Version,
    position: u16,
    /// Offset of the start of the page's heap after the insert.
    heap: u16,
}

const NO_FINGER: Finger = Finger {
    stem: 0,
    run: 0,
    last: 0,
    frame: 0,
    leaf: PageId::NONE,
    below: 0,
    version: Version::NEVER,
    position: 0,
    heap: 0,
};

thread_local! {
    /// The fingers of this thread, allocated at the first insert of a run.
    static FINGERS_OF_THREAD: RefCell<Vec<Finger>> = const { RefCell::new(Vec::new()) };
}

/// Returns the finger in a slot of this thread's table of fingers.
#[inline]
fn finger_at(slot: usize) -> Option<Finger> {
    FINGERS_OF_THREAD.try_with(|fingers| fingers.borrow().get(slot).copied()).ok().flatten()
}

/// A key, split into stem and tail, with the identity of its run.
#[derive(Clone, Copy)]
struct SplitKey {
    stem: u128,
    run: u128,
    tail: u32,
}

impl SplitKey {
    #[inline]
    fn new(engine: &Engine, index: &Index, key: &[u8]) -> Option<SplitKey> {
        let (stem, tail) = key.split_last_chunk::<TAIL>()?;
        if stem.len() > STEM {
            return None;
        }
        let mut whole = [0; STEM];
        whole[..stem.len()].copy_from_slice(stem);
        let run = u128::from(engine.instance) << 64 | u128::from(index.id().0) << 32 | key.len() as u128;
        Some(SplitKey { stem: u128::from_be_bytes(whole), run, tail: u32::from_be_bytes(*tail) })
    }

    #[inline]
    fn slot(&self) -> usize {
        let mixed = (self.stem >> 64) as u64 ^ (self.stem as u64).rotate_left(29) ^ (self.run as u64).rotate_left(47);
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - FINGERS.trailing_zeros())) as usize
    }
}

impl<'db> Txn<'db> {
    /// Returns the leaf position of a new key that continues a run; `None` if no finger matches the key. The caller
    /// validates it like any optimistic position.
    #[inline]
    pub(super) fn finger(&self, index: &Index, key: &[u8]) -> Option<LeafAt<'db>> {
        let engine = self.engine;
        let split = SplitKey::new(engine, index, key)?;
        let finger = finger_at(split.slot())?;
        let continues = finger.stem == split.stem
            && finger.run == split.run
            && finger.last < split.tail
            && u64::from(split.tail) < finger.below;
        if !continues {
            return None;
        }
        let read = engine.pool.frame(finger.frame).read(engine.pool.latches());
        if read.version() == finger.version {
            return Some(LeafAt { read, position: usize::from(finger.position) + 1, exact: false });
        }
        drop(read);
        index.tree().find_in(&engine.pool, (finger.frame, finger.leaf), key)
    }

    /// Releases the latch of a leaf after an insert, and sets the finger if the insert continued a run. `key` is the
    /// last inserted key, at slot `position`. The key buffer of the transaction slot contains the next key above `key`;
    /// the buffer is empty if there is none.
    #[inline]
    pub(super) fn release_inserted(&self, index: &Index, key: &[u8], position: usize, leaf: FrameWrite<'_>) {
        let frame = leaf.frame();
        let id = frame.page_id();
        let (is_run, heap) = (leaf.page().insert_run() > 0, leaf.page().heap_start());
        let version = leaf.release();
        if !is_run {
            return;
        }
        let Some(split) = SplitKey::new(self.engine, index, key) else { return };
        let stem = &key[..key.len() - TAIL];
        let below = match self.slot.peek().key.strip_prefix(stem) {
            // The next key has another stem, so it lies above all keys with this stem.
            None => u64::from(u32::MAX) + 1,
            Some(rest) => {
                let mut tail = [0; TAIL];
                let n = rest.len().min(TAIL);
                tail[..n].copy_from_slice(&rest[..n]);
                u64::from(u32::from_be_bytes(tail))
            }
        };
        let finger = Finger {
            stem: split.stem,
            run: split.run,
            last: split.tail,
            frame: self.engine.pool.index_of(frame),
            leaf: id,
            below,
            version,
            position: position as u16,
            heap: heap as u16,
        };
        // The thread may be ending and may have dropped its fingers.
        let _ = FINGERS_OF_THREAD.try_with(|fingers| {
            let mut fingers = fingers.borrow_mut();
            if fingers.is_empty() {
                fingers.resize(FINGERS, NO_FINGER);
            }
            fingers[split.slot()] = finger;
        });
    }

    /// Prefetches the cache lines that an insert of this key will read and write, if there is a finger for the key's
    /// run. The tail of the key is ignored.
    pub(crate) fn prefetch_insert(&self, index: &Index, key: &[u8]) {
        let Some(split) = SplitKey::new(self.engine, index, key) else { return };
        let Some(finger) = finger_at(split.slot()) else { return };
        if finger.stem == split.stem && finger.run == split.run {
            let frame = self.engine.pool.frame(finger.frame);
            frame.prefetch_insert(usize::from(finger.position) + 1, usize::from(finger.heap));
        }
    }
}
