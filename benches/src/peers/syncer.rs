//! Background thread that makes commits durable at regular intervals, for engines that have no such thread.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use storage::Durability;

use super::SYNC_EVERY;

/// Handle of the background thread. The thread ends when the handle is dropped.
pub(super) struct Syncer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts a thread that calls `sync` every [`SYNC_EVERY`] if commits are `async`. Returns `None` if commits are `sync`.
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
            // A panic of the thread has already been printed, so the result is ignored.
            let _ = thread.join();
        }
    }
}
