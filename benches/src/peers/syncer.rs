//! Background thread that makes commits durable, for engines without such a thread.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use storage::Durability;

use super::SYNC_EVERY;

/// Handle of the thread, which ends on drop.
pub(super) struct Syncer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts a thread that calls `sync` every [`SYNC_EVERY`], if commits are `async`; returns `None` if they are `sync`.
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
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}
