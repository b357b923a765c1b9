//! When the operations of an epoch began, where its loop is traced.

use std::sync::OnceLock;
use std::time::Instant;

/// Times of an epoch, as taken.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// When each operation began, in nanoseconds since the body did.
    pub(crate) begun_ns: Vec<u64>,
    /// Time until the body began, since the worker was free for it.
    pub(crate) before_ns: u64,
    /// Time of the body.
    pub(crate) body_ns: u64,
    /// Time between homefree and the passing of the token.
    pub(crate) in_order_ns: u64,
}

impl Times {
    pub(crate) fn clear(&mut self) {
        self.begun_ns.clear();
        (self.before_ns, self.body_ns, self.in_order_ns) = (0, 0, 0);
    }
}

/// A run of a body that is timed. Replayed operations keep their times, and what follows is put behind them.
#[derive(Debug)]
pub(crate) struct Timing {
    begun: Instant,
    /// When the first operation that is done began in an earlier run; none once one has been done.
    resumes_at: Option<u64>,
    /// To be added to the time since `begun`.
    skew: i64,
}

impl Timing {
    /// A run that gets recorded answers up to an operation. It goes on where an earlier one has ended if it gets any, or is
    /// of later iterations.
    pub(crate) fn begin(times: &mut Times, is_later: bool, replayed: usize) -> Timing {
        let goes_on_at = (is_later || replayed > 0).then_some(times.body_ns);
        let resumes_at = times.begun_ns.get(replayed).copied().filter(|_| replayed > 0).or(goes_on_at);
        times.begun_ns.truncate(replayed);
        Timing { begun: Instant::now(), resumes_at, skew: 0 }
    }

    /// An operation begins.
    pub(crate) fn operation(&mut self, times: &mut Times) {
        let now = ns_since(self.begun);
        if let Some(at) = self.resumes_at.take() {
            self.skew = at as i64 - now;
        }
        times.begun_ns.push((now + self.skew).max(0) as u64);
    }

    /// The body has ended.
    pub(crate) fn end(self, times: &mut Times) {
        let skew = self.resumes_at.map_or(self.skew, |at| at as i64);
        times.body_ns = (ns_since(self.begun) + skew).max(0) as u64;
    }
}

/// Nanoseconds since then; at most half of what an `i64` holds, so that two can be added.
fn ns_since(begun: Instant) -> i64 {
    i64::try_from(begun.elapsed().as_nanos()).map_or(i64::MAX / 2, |ns| ns.min(i64::MAX / 2))
}

/// What it takes to read the clock, in nanoseconds.
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

/// Time between two moments, in nanoseconds.
pub(crate) fn ns_between(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}
