//! A thread that makes commits durable behind the back of those who made them, for engines without one.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use storage::Durability;

use super::SYNC_EVERY;

/// The thread; ends when this is dropped.
pub(super) struct Syncer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Calls `sync` every [`SYNC_EVERY`] where commits are durable later; none where each is durable when it returns.
    pub(super) fn start<E: Send + Sync + 'static>(
        durability: Durability,
        engine: &Arc<E>,
        sync: impl Fn(&E) + Send + 'static,
    ) -> Option<Syncer> {
        if durability == Durability::Sync {
            return None;
        }
        let engine = Arc::clone(engine);
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(SYNC_EVERY) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                sync(&engine);
            }
        });
        Some(Syncer { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there.
            let _ = thread.join();
        }
    }
}
