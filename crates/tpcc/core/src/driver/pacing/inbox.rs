//! Inbox of a worker: requests of terminals that wait for a response, and the queue of deferred Deliveries (2.7). Both
//! queues are bounded: a terminal has one request at a time, and a Delivery needs a free place in its queue.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::workload::generate::input::Input;

/// Queue time after which a deferred Delivery runs before requests, so that Deliveries do not starve at a busy worker.
const PATIENCE: Duration = Duration::from_secs(1);

/// Response to a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PacedAnswer {
    /// True if the order contained an unused item and was rolled back.
    pub(super) rolled_back: bool,
    /// Time from the start of the execution to the commit, in nanoseconds.
    pub(super) run_ns: u64,
    /// Time from the start of the execution until the response was durable, in nanoseconds.
    pub(super) service_ns: u64,
}

/// A transaction of a terminal that waits for the response.
#[derive(Debug)]
pub(super) struct PacedRequest {
    pub(super) input: Input,
    /// Channel for the response, which is sent once the transaction is durable.
    pub(super) reply: oneshot::Sender<PacedAnswer>,
}

/// A queued Delivery, whose terminal already has its response.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) input: Input,
    pub(super) queued: Instant,
    /// Time of queueing, in microseconds since 1970.
    pub(super) queued_us: u64,
    /// True if the Delivery was queued during the measurement.
    pub(super) counts: bool,
    /// Place of the Delivery in the queue, released on drop.
    pub(super) _place: OwnedSemaphorePermit,
}

/// Next work item of a worker.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "moved once, and a box would be an allocation each")]
pub(super) enum PacedWork {
    Request(PacedRequest),
    Deferred(Deferred),
    /// No work is available.
    Nothing,
    /// The run is over.
    Over,
}

/// Inbox of a worker; see the module's documentation.
#[derive(Debug)]
pub(super) struct Inbox {
    queues: Mutex<Queues>,
    filled: Condvar,
    places: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Queues {
    requests: VecDeque<PacedRequest>,
    deferred: VecDeque<Deferred>,
    is_over: bool,
}

/// Returns the number of bytes of a terminal's entries in an inbox.
pub(super) fn place_bytes() -> usize {
    size_of::<PacedRequest>() + size_of::<Deferred>()
}

impl Inbox {
    /// Creates an inbox for `terminals` terminals. The queue of Deliveries has one place per terminal.
    pub(super) fn new(terminals: usize) -> Inbox {
        let queues = Queues {
            requests: VecDeque::with_capacity(terminals),
            deferred: VecDeque::with_capacity(terminals),
            is_over: false,
        };
        Inbox { queues: Mutex::new(queues), filled: Condvar::new(), places: Arc::new(Semaphore::new(terminals)) }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a request. Returns the channel for its response. The channel is closed without a response if the run ends.
    pub(super) fn ask(&self, input: Input) -> oneshot::Receiver<PacedAnswer> {
        let (reply, answer) = oneshot::channel();
        self.queues().requests.push_back(PacedRequest { input, reply });
        self.filled.notify_one();
        answer
    }

    /// Waits for a place in the queue and queues a Delivery. Returns false if the run is over.
    pub(super) async fn queue(&self, input: Input, queued_us: impl FnOnce() -> u64, counts: bool) -> bool {
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return false };
        let deferred = Deferred { input, queued: Instant::now(), queued_us: queued_us(), counts, _place: place };
        self.queues().deferred.push_back(deferred);
        self.filled.notify_one();
        true
    }

    /// Takes the next work item. Waits for an item if there is none and `may_wait` is true.
    pub(super) fn take(&self, may_wait: bool) -> PacedWork {
        let mut queues = self.queues();
        loop {
            if queues.is_over {
                return PacedWork::Over;
            }
            let is_late = queues.deferred.front().is_some_and(|first| first.queued.elapsed() > PATIENCE);
            if !is_late && let Some(request) = queues.requests.pop_front() {
                return PacedWork::Request(request);
            }
            if let Some(deferred) = queues.deferred.pop_front() {
                return PacedWork::Deferred(deferred);
            }
            if !may_wait {
                return PacedWork::Nothing;
            }
            queues = self.filled.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the run: `take` returns no further work.
    pub(super) fn close(&self) {
        self.queues().is_over = true;
        self.filled.notify_all();
    }

    /// Returns the queueing times of Deliveries that will not be executed. Excludes Deliveries that were not queued during
    /// the measurement.
    pub(super) fn left(&self) -> Vec<Instant> {
        self.queues().deferred.iter().filter(|deferred| deferred.counts).map(|deferred| deferred.queued).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use super::*;
    use crate::workload::generate::input::{DeliveryInput, StockLevelInput};
    use crate::workload::schema::rows::Timestamp;

    fn delivery(w: u32) -> Input {
        Input::Delivery(DeliveryInput { w, districts: 10, carrier: NonZeroU8::MIN, now: Timestamp::at(1) })
    }

    fn request(w: u32) -> Input {
        Input::StockLevel(StockLevelInput { w, d: 1, threshold: 10 })
    }

    #[test]
    fn requests_come_first_and_a_late_delivery_before_them() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let inbox = Inbox::new(10);
        assert!(runtime.block_on(inbox.queue(delivery(1), || 5, true)));
        let _answers = [inbox.ask(request(1)), inbox.ask(request(2))];
        assert!(matches!(inbox.take(true), PacedWork::Request(first) if first.input == request(1)));
        inbox.queues().deferred[0].queued = Instant::now().checked_sub(2 * PATIENCE).unwrap();
        assert!(matches!(inbox.take(true), PacedWork::Deferred(late) if late.queued_us == 5));
        assert!(matches!(inbox.take(true), PacedWork::Request(_)));
        assert!(matches!(inbox.take(false), PacedWork::Nothing));
    }

    #[test]
    fn a_delivery_without_a_place_waits_until_another_one_is_done() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let inbox = Inbox::new(2);
        runtime.block_on(async {
            assert!(inbox.queue(delivery(1), || 0, true).await && inbox.queue(delivery(2), || 0, false).await);
            let third = tokio::time::timeout(Duration::from_millis(20), inbox.queue(delivery(3), || 0, true));
            assert!(third.await.is_err(), "the queue has two places");
            assert!(matches!(inbox.take(true), PacedWork::Deferred(_)));
            assert!(inbox.queue(delivery(3), || 0, true).await);
        });
        inbox.close();
        assert!(matches!(inbox.take(true), PacedWork::Over), "what is left is not begun");
        assert_eq!(inbox.left().len(), 1, "one of those two was not queued while measuring");
    }

    #[test]
    fn a_worker_that_waits_is_woken_at_the_end() {
        let inbox = Inbox::new(1);
        std::thread::scope(|s| {
            let worker = s.spawn(|| inbox.take(true));
            std::thread::sleep(Duration::from_millis(20));
            inbox.close();
            assert!(matches!(worker.join().unwrap(), PacedWork::Over));
        });
    }
}
