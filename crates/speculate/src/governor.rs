//! Governor: decides from measured running times whether a loop runs speculatively, and with which settings.
//!
//! A loop can run in several ways: in order, or speculatively with epochs of some size. The governor first tries each way a
//! few times in turn and chooses the fastest. It tries the other ways again from time to time, because other load on the
//! machine changes the fastest way (TLS paper, section 5.4: a scheduler enables disabled loops and disables enabled loops
//! from time to time). A trial costs the extra time of the tried way. Therefore the pause between trials is longer if the
//! last trial cost much, and grows with the number of consecutive trials that did not change the choice.

use std::time::Duration;

/// Number of consecutive runs of a way in a burst.
const BURST: u32 = 8;
/// Number of runs at the start of a burst whose times are not used: threads have to wake up, and caches to fill.
const UNCOUNTED: u32 = 2;
/// Number of bursts of each way before the first choice.
const ROUNDS: u32 = 4;
/// Number of the most recent running times kept for each way.
const HISTORY_LEN: usize = 12;
/// Minimum number of runs between trials.
const SHORTEST_PAUSE: u32 = 1 << 10;
/// Maximum number of runs between trials.
const LONGEST_PAUSE: u32 = 1 << 16;
/// Divisor of the maximum number of runs between trials while the chosen way is speculative, because speculation takes
/// processor time from other threads.
const AHEAD_DIVISOR: u32 = 16;
/// The extra time of trials is at most the fraction 1 / `SHARE` of the running time, unless the maximum pauses require more
/// frequent trials.
const SHARE: f64 = 128.0;
/// Maximum ratio of the running time of another way to the running time of way 0 at which the other way is chosen.
const MAX_TIME_RATIO: f64 = 0.97;

/// Chooses among several ways to run a loop. Way 0 runs the loop in order.
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
    /// Least and greatest number of runs between trials.
    pauses: (u32, u32),
    /// Number of runs from the last choice to the next trial.
    pause: u32,
    /// Number of consecutive trials that did not change the choice.
    confirmed: u32,
    /// Way of the most recent trial.
    challenger: usize,
}

/// Measured running times of a way.
#[derive(Clone, Debug, Default)]
struct Way {
    /// Ring buffer of the most recent running times, in nanoseconds per unit of work.
    times: Vec<f64>,
    next: usize,
}

/// Phase of the governor.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Initial phase: bursts of all ways in turn, before the first choice.
    First { round: u32, way: usize, run: u32 },
    /// The last run of a burst of way `tried` is in progress; a choice follows.
    Choice { tried: usize },
    /// The chosen way runs without timing. The next trial begins after `left` more runs.
    Settled { left: u32 },
    /// Trial: a burst of the chosen way, followed by a burst of `way`.
    Trial { way: usize, run: u32 },
}

/// Decision of the governor for one run of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    way: usize,
    counts: bool,
}

impl Turn {
    /// Returns the index of the way to use.
    #[must_use]
    pub fn way(self) -> usize {
        self.way
    }

    /// Returns true if the governor needs the duration of this run. If not, the program can avoid reading the clock.
    #[must_use]
    pub fn is_timed(self) -> bool {
        self.counts
    }
}

impl Way {
    fn add(&mut self, time: f64) {
        if self.times.len() < HISTORY_LEN {
            self.times.push(time);
        } else {
            self.times[self.next] = time;
            self.next = (self.next + 1) % HISTORY_LEN;
        }
    }

    /// Returns the mean of the running times without the slowest quarter, in which the thread may have lost its core.
    /// Infinite if no run was measured.
    fn time(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        let kept = &times[..times.len() - times.len() / 4];
        if kept.is_empty() { f64::INFINITY } else { kept.iter().sum::<f64>() / kept.len() as f64 }
    }
}

impl Governor {
    /// Creates a governor that chooses among `ways` ways, at least one.
    #[must_use]
    pub fn new(ways: usize) -> Governor {
        Governor {
            ways: vec![Way::default(); ways.max(1)],
            chosen: 0,
            phase: Phase::First { round: 0, way: 0, run: 0 },
            pauses: (SHORTEST_PAUSE, LONGEST_PAUSE),
            pause: SHORTEST_PAUSE,
            confirmed: 0,
            challenger: 0,
        }
    }

    /// Sets the least and the greatest number of runs between trials, for runs that are longer than a loop. While another way
    /// than way 0 is chosen, the greatest number is a sixteenth.
    #[must_use]
    pub fn pauses(mut self, shortest: u32, longest: u32) -> Governor {
        self.pauses = (shortest, longest.max(shortest));
        self.pause = shortest;
        self
    }

    /// Returns the fastest way so far, or way 0 before the first choice.
    #[must_use]
    pub fn chosen(&self) -> usize {
        self.chosen
    }

    /// Returns the number of runs before the first choice.
    #[must_use]
    pub fn warm_up(&self) -> u64 {
        u64::from(ROUNDS * BURST) * self.ways.len() as u64
    }

    /// Returns the decision for the next run of the loop.
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

    /// Records the duration of a timed run that did `units` units of work. A unit is, for example, one iteration, if loops
    /// differ in length.
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

    /// Chooses a way after a trial of `tried`.
    fn choose(&mut self, tried: usize) {
        let in_order = self.ways[0].time();
        let mut best = 0;
        for (way, known) in self.ways.iter().enumerate().skip(1) {
            let (time, best_time) = (known.time(), self.ways[best].time());
            if time < best_time && time <= MAX_TIME_RATIO * in_order {
                best = way;
            }
        }
        let (shortest, longest) = self.pauses;
        let longest = if best == 0 { longest } else { (longest / AHEAD_DIVISOR).max(shortest) };
        self.confirmed = if best == self.chosen { self.confirmed + 1 } else { 0 };
        let extra = self.ways[tried].time() / self.ways[best].time() - 1.0;
        // The extra time of a trial, `extra` times the time of the fastest way per run, must be a small share of the time
        // until the next trial.
        let min_pause = if extra.is_finite() { (SHARE * f64::from(BURST) * extra.max(0.0)) as u32 } else { 0 };
        self.pause = shortest.saturating_mul(1 << self.confirmed.min(6)).max(min_pause).min(longest);
        self.chosen = best;
        self.phase = Phase::Settled { left: self.pause };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a loop `runs` times. Returns the number of runs of each way, and the ratio of the total time to the total time
    /// of the fastest way.
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
