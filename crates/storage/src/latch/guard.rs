//! What a reader holds.

use super::share::Share;
use super::superlatch::Promotion;
use super::{Latch, Version};
use crate::base::config::LatchKind;

/// How the readers of a database hold latches.
#[derive(Debug, Default)]
pub(crate) struct Latching {
    kind: LatchKind,
    promotion: Promotion,
}

impl Latching {
    /// With `promote_at` reads a latch is hot, under [`LatchKind::Super`].
    pub(crate) fn new(kind: LatchKind, promote_at: u16) -> Latching {
        Latching { kind, promotion: Promotion { promote_at, ..Promotion::default() } }
    }

    /// The kind alone.
    pub(crate) fn kind(&self) -> LatchKind {
        self.kind
    }

    /// What became of superlatches so far.
    pub(crate) fn stats(&self) -> super::LatchStats {
        self.promotion.counters.read()
    }
}

impl Drop for Latching {
    /// The latches are gone; their reader words are for others.
    fn drop(&mut self) {
        if self.kind == LatchKind::Super {
            super::words::give_back_all(&self.promotion.counters);
        }
    }
}

/// A reader's hold on a latch: a noted version, and a share unless latches are optimistic.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a> {
    latch: &'a Latch,
    version: Version,
    share: Option<Share<'a>>,
}

impl<'a> ReadGuard<'a> {
    /// Begins to read under the latch kind in force.
    #[inline]
    pub(crate) fn new(latch: &'a Latch, latching: &Latching) -> ReadGuard<'a> {
        // An optimistic read is a data race by the language's definition: see `page::access`.
        let no_races = cfg!(any(miri, race_free));
        if latching.kind == LatchKind::Optimistic && !no_races {
            return ReadGuard { latch, version: latch.optimistic(), share: None };
        }
        let (share, version) = match latching.kind {
            LatchKind::Optimistic | LatchKind::Plain => latch.lock_shared(),
            LatchKind::Super => latch.lock_super(&latching.promotion),
        };
        ReadGuard { latch, version, share: Some(share) }
    }

    /// Whether everything read so far through this guard was stable.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.share.is_some() || self.latch.validate(self.version)
    }

    /// The version noted.
    #[inline]
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Exchanges reading for writing; false if the page has changed since the guard was made.
    #[inline]
    pub(crate) fn upgrade(self) -> bool {
        drop(self.share);
        self.latch.upgrade(self.version)
    }
}
