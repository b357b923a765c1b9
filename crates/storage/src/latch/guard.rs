//! Read guards of page latches.

use super::share::Share;
use super::superlatch::Promotion;
use super::{Latch, LatchWaits, Version};
use crate::base::clock::Clock;
use crate::base::config::LatchKind;

/// Latch kind of a database, with the settings and counters of its superlatches.
#[derive(Debug, Default)]
pub(crate) struct Latching {
    kind: LatchKind,
    promotion: Promotion,
    waits: LatchWaits,
}

impl Latching {
    /// Creates the state for a latch kind. `promote_at`: number of reads that make a latch hot, under [`LatchKind::Super`].
    /// `clock`: clock of the waits.
    pub(crate) fn new(kind: LatchKind, promote_at: u16, clock: Clock) -> Latching {
        Latching { kind, promotion: Promotion { promote_at, ..Promotion::default() }, waits: LatchWaits::new(clock) }
    }

    /// Returns true if readers take no share.
    #[inline]
    fn is_optimistic(&self) -> bool {
        // An optimistic read is a data race by the language's definition: see `page::access`.
        let no_races = cfg!(any(miri, race_free));
        self.kind == LatchKind::Optimistic && !no_races
    }

    /// Returns the latch kind.
    pub(crate) fn kind(&self) -> LatchKind {
        self.kind
    }

    /// Returns the counters of waits for latches.
    pub(crate) fn waits(&self) -> &LatchWaits {
        &self.waits
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
    /// Begins an optimistic read, if readers take no share and no writer holds the latch.
    #[inline(always)]
    pub(crate) fn optimistic(latch: &'a Latch, latching: &Latching) -> Option<ReadGuard<'a>> {
        if !latching.is_optimistic() {
            return None;
        }
        latch.try_optimistic().map(|version| ReadGuard { latch, version, share: None })
    }

    /// Begins a read under the latch kind of the database, if it need not wait for another thread.
    pub(crate) fn try_new(latch: &'a Latch, latching: &Latching) -> Option<ReadGuard<'a>> {
        if latching.is_optimistic() {
            return ReadGuard::optimistic(latch, latching);
        }
        let held = match latching.kind {
            LatchKind::Optimistic | LatchKind::Plain => latch.try_lock_shared(),
            LatchKind::Super => latch.try_lock_super(&latching.promotion),
        };
        held.map(|(share, version)| ReadGuard { latch, version, share: Some(share) })
    }

    /// Begins a read under the latch kind of the database. Waits for a writer.
    pub(crate) fn new(latch: &'a Latch, latching: &Latching) -> ReadGuard<'a> {
        if latching.is_optimistic() {
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
