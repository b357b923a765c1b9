//! One reader's share of a latch.

use super::{READER, READERS};
use crate::base::latches::note;
use crate::base::sync::word::{AtomicU64, Ordering};

/// A share of a latch, with the word that counts it: the latch's own word or, for a promoted latch, the word of a core. Any
/// thread may end the share; the same word is decremented.
#[derive(Debug)]
pub(crate) struct Share<'a>(pub(super) &'a AtomicU64);

impl Share<'_> {
    /// Ends the share. Not inlined: readers hold no share under optimistic latches, and guards are dropped in many places.
    #[cold]
    fn end(&self) {
        note(-1);
        let before = self.0.fetch_sub(READER, Ordering::Release);
        debug_assert!(before & READERS != 0);
    }
}

impl Drop for Share<'_> {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}
