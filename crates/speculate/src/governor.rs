//! Whether a loop runs ahead, and how: decided from the times that earlier runs of it took.
//!
//! A loop has several ways to run: in order, and ahead in epochs of some size. The governor tries each a few times, in
//! turn, keeps to the quickest, and tries the others again now and then, because what else the machine does changes which
//! is quickest (TLS paper, section 5.4: a scheduler enables loops that are off and disables loops that are on from time to
//! time). Trying costs as much as the tried way is slower, so a way that has lost is tried the more rarely the more it
//! cost, and the more often it has lost.

use std::time::Duration;

/// Runs of a way that are tried one after the other.
const BURST: u32 = 8;
/// The first of them that are not counted: threads have to wake, and caches to fill.
const UNCOUNTED: u32 = 2;
/// Bursts of each way before the first choice.
const ROUNDS: u32 = 4;
/// Times that are remembered of a way.
const REMEMBERED: usize = 12;
/// Runs between the first choice and the next trial.
const SHORTEST_PAUSE: u32 = 1 << 10;
/// Runs between trials, at most.
const LONGEST_PAUSE: u32 = 1 << 16;
/// Runs between trials, at most, while a loop runs ahead: it does so at the cost of other threads.
const LONGEST_PAUSE_AHEAD: u32 = 1 << 12;
/// Trials may take one part in so many of all time.
const SHARE: f64 = 128.0;
/// A way other than the first is chosen when it takes at most this share of the first one's time.
const WORTH: f64 = 0.97;

/// Chooses among ways to run a loop, of which the first is in order.
///
/// ```
/// use speculate::Governor;
/// use std::time::Duration;
///
/// // In order, and ahead with epochs of four and of eight iterations.
/// let mut governor = Governor::new(3);
/// for _ in 0..1_000 {
///     let turn = governor.next_turn();
///     let took = [20, 12, 15][turn.way()];
///     governor.took(turn, Duration::from_micros(took), 10);
/// }
/// assert_eq!(governor.chosen(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Governor {
    ways: Vec<Way>,
    chosen: usize,
    phase: Phase,
    /// Runs until the next trial, when it has ended.
    pause: u32,
    /// Trials since the choice has changed.
    confirmed: u32,
    /// The way that is tried next.
    challenger: usize,
}

/// What is known of a way.
#[derive(Clone, Debug, Default)]
struct Way {
    /// Nanoseconds for each unit of work, of the last runs, in a ring.
    times: Vec<f64>,
    next: usize,
}

/// What the governor is doing.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Bursts of all ways in turn, before the first choice.
    First { round: u32, way: usize, run: u32 },
    /// The last run of this way's burst is on: the choice follows.
    Choice { tried: usize },
    /// The chosen way, so many times more.
    Settled { left: u32 },
    /// A burst of the chosen way, then one of this one.
    Trial { way: usize, run: u32 },
}

/// How a run of the loop is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    way: usize,
    counts: bool,
}

impl Turn {
    /// Which of the ways to take.
    #[must_use]
    pub fn way(self) -> usize {
        self.way
    }

    /// Whether the governor wants to know how long it took. If not, the program need not look at the clock.
    #[must_use]
    pub fn is_timed(self) -> bool {
        self.counts
    }
}

impl Way {
    fn add(&mut self, time: f64) {
        if self.times.len() < REMEMBERED {
            self.times.push(time);
        } else {
            self.times[self.next] = time;
            self.next = (self.next + 1) % REMEMBERED;
        }
    }

    /// The mean, without the greatest quarter: those in which the thread lost its core. Infinite before the first run.
    fn time(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        let kept = &times[..times.len() - times.len() / 4];
        if kept.is_empty() { f64::INFINITY } else { kept.iter().sum::<f64>() / kept.len() as f64 }
    }
}

impl Governor {
    /// Of so many ways, at least one.
    #[must_use]
    pub fn new(ways: usize) -> Governor {
        Governor {
            ways: vec![Way::default(); ways.max(1)],
            chosen: 0,
            phase: Phase::First { round: 0, way: 0, run: 0 },
            pause: SHORTEST_PAUSE,
            confirmed: 0,
            challenger: 0,
        }
    }

    /// The way that has proved quickest; the first one before any has.
    #[must_use]
    pub fn chosen(&self) -> usize {
        self.chosen
    }

    /// Runs after which the first choice is made.
    #[must_use]
    pub fn warm_up(&self) -> u64 {
        u64::from(ROUNDS * BURST) * self.ways.len() as u64
    }

    /// How the loop is to run next.
    #[inline]
    pub fn next_turn(&mut self) -> Turn {
        if let Phase::Settled { left } = &mut self.phase
            && *left > 0
        {
            *left -= 1;
            return Turn { way: self.chosen, counts: false };
        }
        self.next_trial()
    }

    /// Takes into account how long a run took that is to be timed, for so many units of work: iterations, say, where
    /// loops are of different lengths.
    #[inline]
    pub fn took(&mut self, turn: Turn, time: Duration, units: u64) {
        if turn.counts {
            self.ways[turn.way].add(time.as_nanos() as f64 / units.max(1) as f64);
        }
    }

    #[cold]
    fn next_trial(&mut self) -> Turn {
        let ways = self.ways.len();
        if ways == 1 {
            self.phase = Phase::Settled { left: u32::MAX };
            return Turn { way: 0, counts: false };
        }
        match self.phase {
            Phase::First { round, way, run } => {
                self.phase = match (run + 1 == BURST, way + 1 == ways) {
                    (false, _) => Phase::First { round, way, run: run + 1 },
                    (true, false) => Phase::First { round, way: way + 1, run: 0 },
                    (true, true) if round + 1 < ROUNDS => Phase::First { round: round + 1, way: 0, run: 0 },
                    (true, true) => Phase::Choice { tried: way },
                };
                Turn { way, counts: run >= UNCOUNTED }
            }
            Phase::Choice { tried } => {
                self.choose(tried);
                Turn { way: self.chosen, counts: false }
            }
            Phase::Settled { .. } => {
                self.challenger = (self.challenger + 1) % ways;
                if self.challenger == self.chosen {
                    self.challenger = (self.challenger + 1) % ways;
                }
                self.phase = Phase::Trial { way: self.challenger, run: 1 };
                Turn { way: self.chosen, counts: false }
            }
            Phase::Trial { way, run } => {
                let last = run + 1 == 2 * BURST;
                self.phase = if last { Phase::Choice { tried: way } } else { Phase::Trial { way, run: run + 1 } };
                let way = if run < BURST { self.chosen } else { way };
                Turn { way, counts: run % BURST >= UNCOUNTED }
            }
        }
    }

    /// Chooses anew after a trial of `tried`.
    fn choose(&mut self, tried: usize) {
        let in_order = self.ways[0].time();
        let mut best = 0;
        for (way, known) in self.ways.iter().enumerate().skip(1) {
            let (time, best_time) = (known.time(), self.ways[best].time());
            if time < best_time && time <= WORTH * in_order {
                best = way;
            }
        }
        let longest = if best == 0 { LONGEST_PAUSE } else { LONGEST_PAUSE_AHEAD };
        self.confirmed = if best == self.chosen { self.confirmed + 1 } else { 0 };
        let extra = self.ways[tried].time() / self.ways[best].time() - 1.0;
        // A trial of a way that takes `extra` longer must be a small share of the runs up to the next one.
        let dear = if extra.is_finite() { (SHARE * f64::from(BURST) * extra.max(0.0)) as u32 } else { 0 };
        self.pause = (SHORTEST_PAUSE << self.confirmed.min(6)).max(dear).min(longest);
        self.chosen = best;
        self.phase = Phase::Settled { left: self.pause };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a loop so many times; returns how often it went each way, and the time beyond that of the quickest way.
    fn drive(governor: &mut Governor, runs: u32, mut time_of: impl FnMut(usize, u32) -> u64) -> (Vec<u32>, f64) {
        let mut went = vec![0; governor.ways.len()];
        let (mut spent, mut least) = (0, 0);
        for run in 0..runs {
            let turn = governor.next_turn();
            went[turn.way()] += 1;
            let took = time_of(turn.way(), run);
            spent += took;
            least += (0..went.len()).map(|way| time_of(way, run)).min().unwrap_or(0);
            governor.took(turn, Duration::from_nanos(took), 1);
        }
        (went, spent as f64 / least as f64)
    }

    #[test]
    fn the_quickest_way_is_kept_to() {
        for (times, best) in [([100, 90, 80], 2), ([100, 60, 80], 1), ([100, 110, 250], 0), ([100, 98, 99], 0)] {
            let mut governor = Governor::new(3);
            let (went, _) = drive(&mut governor, 200, |way, _| times[way]);
            assert!(went.iter().all(|&runs| runs >= 32), "{went:?}");
            assert_eq!(governor.chosen(), best, "{times:?}");
            assert_eq!(governor.warm_up(), 96);
        }
    }

    #[test]
    fn trying_costs_little() {
        for times in [[100, 250], [100, 2_000], [100, 50], [100, 99]] {
            let mut governor = Governor::new(2);
            drive(&mut governor, 64, |way, _| times[way]);
            let (_, cost) = drive(&mut governor, 100_000, |way, _| times[way]);
            assert!(cost < 1.012, "{times:?}: {cost}");
        }
    }

    #[test]
    fn what_changes_is_noticed() {
        let mut governor = Governor::new(2);
        drive(&mut governor, 10_000, |way, _| [100, 60][way]);
        assert_eq!(governor.chosen(), 1);
        drive(&mut governor, 20_000, |way, _| [100, 300][way]);
        assert_eq!(governor.chosen(), 0);
        drive(&mut governor, 200_000, |way, _| [100, 60][way]);
        assert_eq!(governor.chosen(), 1);
    }

    #[test]
    fn a_thread_that_loses_its_core_does_not_decide() {
        let mut governor = Governor::new(2);
        drive(&mut governor, 1_000, |way, run| if way == 1 && run % 20 == 3 { 100_000 } else { [100, 60][way] });
        assert_eq!(governor.chosen(), 1);
    }

    #[test]
    fn one_way_is_no_choice() {
        let mut governor = Governor::new(1);
        let (went, cost) = drive(&mut governor, 1_000, |_, _| 5);
        assert_eq!((went, cost), (vec![1_000], 1.0));
        assert_eq!(Governor::new(0).chosen(), 0);
    }
}
