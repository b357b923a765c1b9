//! Mailbox for one epoch: a worker posts the epoch, another worker commits it, and the first worker gets the epoch back.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Mailbox for one epoch. See the module documentation.
pub(crate) struct Mailbox<P> {
    /// [`EMPTY`], [`RETURNED`], or `2 * epoch + 2` for a posted epoch.
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
    /// Posts an epoch to an empty mailbox.
    pub(crate) fn post(&self, number: u64, epoch: P) {
        *self.epoch.lock() = Some(epoch);
        self.state.store(2 * number + 2, Ordering::Release);
    }

    /// Returns true if epoch `number` is posted in this mailbox.
    #[inline]
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.state.load(Ordering::Acquire) == 2 * number + 2
    }

    /// Takes the posted epoch; `None` if the epoch was taken before.
    pub(crate) fn take(&self) -> Option<P> {
        self.epoch.lock().take()
    }

    /// Returns a committed epoch to the worker that posted it.
    pub(crate) fn give_back(&self, epoch: P) {
        *self.epoch.lock() = Some(epoch);
        self.state.store(RETURNED, Ordering::Release);
    }

    /// Returns true if the posted epoch has been returned.
    #[inline]
    pub(crate) fn has_returned(&self) -> bool {
        self.state.load(Ordering::Acquire) == RETURNED
    }

    /// Takes the returned epoch and empties the mailbox.
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
