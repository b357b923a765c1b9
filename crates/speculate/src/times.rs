//! Times of the operations of an epoch, if its loop is traced.

use std::sync::OnceLock;
use std::time::Instant;

/// Measured times of an epoch, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Start time of each operation, since the start of the body.
    pub(crate) begun_ns: Vec<u64>,
    /// Time from the moment at which the worker was free for the epoch to the start of the body.
    pub(crate) before_ns: u64,
    /// Duration of the body.
    pub(crate) body_ns: u64,
    /// Time between the arrival of the token and its release.
    pub(crate) in_order_ns: u64,
}

impl Times {
    pub(crate) fn clear(&mut self) {
        self.begun_ns.clear();
        (self.before_ns, self.body_ns, self.in_order_ns) = (0, 0, 0);
    }
}

/// Timer of one run of a body. Replayed operations keep their times. The times of later operations continue from them.
#[derive(Debug)]
pub(crate) struct Timing {
    begun: Instant,
    /// Start time, in an earlier run, of the first operation that this run executes; `None` after this operation has begun.
    resumes_at: Option<u64>,
    /// Offset that is added to the time since `begun`, so that the run continues the times of an earlier run.
    skew: i64,
}

impl Timing {
    /// Starts the timer of a run that replays the first `replayed` operations. The run continues the times of an earlier run
    /// if it replays any operations, or if `is_later` is true: it then runs later iterations of the epoch.
    pub(crate) fn begin(times: &mut Times, is_later: bool, replayed: usize) -> Timing {
        let goes_on_at = (is_later || replayed > 0).then_some(times.body_ns);
        let resumes_at = times.begun_ns.get(replayed).copied().filter(|_| replayed > 0).or(goes_on_at);
        times.begun_ns.truncate(replayed);
        Timing { begun: Instant::now(), resumes_at, skew: 0 }
    }

    /// Records the start of an operation.
    pub(crate) fn operation(&mut self, times: &mut Times) {
        let now = ns_since(self.begun);
        if let Some(at) = self.resumes_at.take() {
            self.skew = at as i64 - now;
        }
        times.begun_ns.push((now + self.skew).max(0) as u64);
    }

    /// Records the end of the body.
    pub(crate) fn end(self, times: &mut Times) {
        let skew = self.resumes_at.map_or(self.skew, |at| at as i64);
        times.body_ns = (ns_since(self.begun) + skew).max(0) as u64;
    }
}

/// Returns the nanoseconds since `begun`, at most half of `i64::MAX`, so that two results can be added.
fn ns_since(begun: Instant) -> i64 {
    i64::try_from(begun.elapsed().as_nanos()).map_or(i64::MAX / 2, |ns| ns.min(i64::MAX / 2))
}

/// Returns the time that one reading of the clock takes, in nanoseconds.
pub(crate) fn clock_ns() -> u64 {
    static CLOCK: OnceLock<u64> = OnceLock::new();
    *CLOCK.get_or_init(|| {
        const READINGS: u32 = 1_000;
        let once = || {
            let begun = Instant::now();
            (0..READINGS).for_each(|_| {
                std::hint::black_box(Instant::now().elapsed());
            });
            u64::try_from((begun.elapsed() / (2 * READINGS)).as_nanos()).unwrap_or(u64::MAX)
        };
        (0..5).map(|_| once()).min().unwrap_or_default()
    })
}

/// Returns the duration between two instants, in nanoseconds.
pub(crate) fn ns_between(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}
