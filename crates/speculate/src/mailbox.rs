//! A place for one epoch, which a worker leaves for another one to commit and gets back.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// See the module's documentation.
pub(crate) struct Mailbox<P> {
    /// [`EMPTY`], [`RETURNED`], or 2 more than twice the number of the epoch.
    state: AtomicU64,
    epoch: Mutex<Option<P>>,
}

const EMPTY: u64 = 0;
const RETURNED: u64 = 1;

impl<P> Default for Mailbox<P> {
    fn default() -> Mailbox<P> {
        Mailbox { state: AtomicU64::new(EMPTY), epoch: Mutex::new(None) }
    }
}

impl<P> Mailbox<P> {
    /// Leaves an epoch in an empty box.
    pub(crate) fn post(&self, number: u64, epoch: P) {
        *self.epoch.lock() = Some(epoch);
        self.state.store(2 * number + 2, Ordering::Release);
    }

    /// Whether this epoch was left here.
    #[inline]
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.state.load(Ordering::Acquire) == 2 * number + 2
    }

    /// Takes what was left, unless it was taken before.
    pub(crate) fn take(&self) -> Option<P> {
        self.epoch.lock().take()
    }

    /// Leaves an epoch that has committed for its owner.
    pub(crate) fn give_back(&self, epoch: P) {
        *self.epoch.lock() = Some(epoch);
        self.state.store(RETURNED, Ordering::Release);
    }

    /// Whether the epoch has come back.
    #[inline]
    pub(crate) fn has_returned(&self) -> bool {
        self.state.load(Ordering::Acquire) == RETURNED
    }

    /// Takes an epoch that has come back; the box is empty again.
    pub(crate) fn collect(&self) -> Option<P> {
        let epoch = self.epoch.lock().take();
        self.state.store(EMPTY, Ordering::Relaxed);
        epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_goes_and_comes_back() {
        let mail = Mailbox::default();
        assert!(!mail.holds(0) && !mail.has_returned());
        mail.post(0, 'a');
        assert!(mail.holds(0) && !mail.holds(1) && !mail.has_returned());
        assert_eq!((mail.take(), mail.take()), (Some('a'), None));
        mail.give_back('b');
        assert!(mail.has_returned() && !mail.holds(0));
        assert_eq!((mail.collect(), mail.has_returned()), (Some('b'), false));
    }
}
