//! Read guards of page latches.

use super::share::Share;
use super::superlatch::Promotion;
use super::{Latch, Version};
use crate::base::config::LatchKind;

/// Latch kind of a database, with the settings and counters of its superlatches.
#[derive(Debug, Default)]
pub(crate) struct Latching {
    kind: LatchKind,
    promotion: Promotion,
}

impl Latching {
    /// Creates the state for a latch kind. `promote_at`: number of reads that make a latch hot, under [`LatchKind::Super`].
    pub(crate) fn new(kind: LatchKind, promote_at: u16) -> Latching {
        Latching { kind, promotion: Promotion { promote_at, ..Promotion::default() } }
    }

    /// Returns the latch kind.
    pub(crate) fn kind(&self) -> LatchKind {
        self.kind
    }

    /// Returns the superlatch counters.
    pub(crate) fn stats(&self) -> super::LatchStats {
        self.promotion.counters.read()
    }
}

impl Drop for Latching {
    /// Frees the reader words of the database, whose latches no longer exist.
    fn drop(&mut self) {
        if self.kind == LatchKind::Super {
            super::words::give_back_all(&self.promotion.counters);
        }
    }
}

/// Read guard of a latch. Contains the version at the begin of the read and, unless latches are optimistic, a share.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a> {
    latch: &'a Latch,
    version: Version,
    share: Option<Share<'a>>,
}

impl<'a> ReadGuard<'a> {
    /// Begins a read under the latch kind of the database.
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

    /// Returns true if everything read so far through this guard was stable.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        self.share.is_some() || self.latch.validate(self.version)
    }

    /// Returns the version at the begin of the read.
    #[inline]
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Exchanges the share for the exclusive mode. Returns false if the page has changed since the guard was made.
    #[inline]
    pub(crate) fn upgrade(self) -> bool {
        drop(self.share);
        self.latch.upgrade(self.version)
    }
}
