//! Debug assertion that a thread that waits through the hook holds no latch and no mutex.
//!
//! A thread that waits through the hook may run another fiber meanwhile. If that fiber requested a latch or mutex that the
//! waiting fiber holds, the thread would block, and the waiting fiber could not run to release it. Every wait passes through
//! the hook, so one assertion in the hook covers all waits.

use std::sync::Arc;

use super::hook::Hook;

/// Returns the hook of a database. Debug builds wrap it in a hook that asserts, before each wait, that the thread holds no
/// latch and no mutex.
pub(crate) fn with_assertions(hook: Arc<dyn Hook>) -> Arc<dyn Hook> {
    #[cfg(all(debug_assertions, not(shuttle)))]
    return Arc::new(asserting::AssertingHook(hook));
    #[cfg(not(all(debug_assertions, not(shuttle))))]
    hook
}

#[cfg(all(debug_assertions, not(shuttle)))]
mod asserting {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::base::hook::{BlockReason, Hook, Operation, WaitToken};
    use crate::base::sites::PointSite;
    use crate::base::sync::assert_none_locked;

    #[derive(Debug)]
    pub(super) struct AssertingHook(pub(super) Arc<dyn Hook>);

    fn assert_nothing_held() {
        if !std::thread::panicking() {
            crate::base::latches::assert_none_held("a wait");
            assert_none_locked("a wait");
        }
    }

    impl Hook for AssertingHook {
        fn is_cooperative(&self) -> bool {
            self.0.is_cooperative()
        }

        fn may_stop_at(&self, site: &'static PointSite) -> bool {
            self.0.may_stop_at(site)
        }

        fn point(&self, site: u32) {
            self.0.point(site);
        }

        fn enter(&self, operation: Operation) {
            self.0.enter(operation);
        }

        fn task(&self) -> u64 {
            self.0.task()
        }

        fn block(&self, token: &WaitToken, reason: BlockReason) {
            assert_nothing_held();
            self.0.block(token, reason);
        }

        fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
            assert_nothing_held();
            self.0.block_for(token, reason, limit)
        }

        fn wake(&self, token: &WaitToken) {
            self.0.wake(token);
        }
    }
}
