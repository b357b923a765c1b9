//! Choice of a scheduling mode: the `Chooser` takes the results of measurement windows and returns the mode of the
//! next window. It has no clock and no threads.

use std::collections::VecDeque;

use super::{GroupWork, Mode};

/// Minimum number of rounds of windows before a mode may be dropped. After `MAX_ROUNDS` rounds a mode is chosen.
const MIN_ROUNDS: usize = 4;
const MAX_ROUNDS: usize = 9;
/// A mode is dropped if its median score is below this fraction of the best mode's median score.
const DROP_RATIO: f64 = 0.93;
/// Factor by which the median score of a mode must exceed the score of the modes before it in the list to be chosen
/// instead.
const CHANGE_RATIO: f64 = 1.01;
/// Factor by which the score of a trial must exceed the score of the chosen mode for the trial to count as won.
const TRIAL_WIN_RATIO: f64 = 1.04;
/// Number of windows that establish the score of the chosen mode. If the median score of the next [`PHASE_WINDOWS`]
/// windows differs from it by the factor [`PHASE_RATIO`], the load has entered another phase.
const SCORE_WINDOWS: usize = 12;
const PHASE_WINDOWS: usize = 5;
const PHASE_RATIO: f64 = 1.25;
/// Maximum number of doublings of the gap between trials. The gap doubles each time that all other modes have had a
/// trial and lost, because a trial costs the difference in speed, and evicts cache contents.
const MAX_DOUBLINGS: usize = 5;

#[derive(Debug)]
enum ChooserState {
    /// The modes are compared: each remaining mode runs for one window per round.
    Exploring { left: Vec<Mode>, scores: Vec<(Mode, Vec<f64>)>, next: usize },
    /// The chosen mode runs, except in trials of other modes.
    Settled { mode: Mode, recent_scores: VecDeque<f64>, since_trial: u32, trial: Option<Trial>, turn: usize },
}

/// Trial of another mode, between windows of the chosen mode.
#[derive(Debug)]
struct Trial {
    of: Mode,
    score_before: f64,
    wins: u32,
    runs_now: bool,
}

/// Chooses among modes by measured work. See the module documentation.
#[derive(Debug)]
pub struct Chooser {
    modes: Vec<Mode>,
    state: ChooserState,
    windows_between_trials: u32,
    /// Nanoseconds per operation, indexed by group. They weight the operations of different groups on one scale.
    operation_ns: Vec<f64>,
    explorations: u32,
}

impl Chooser {
    /// Creates a chooser among `modes`. List the simplest mode first: among equally good modes the first is chosen.
    ///
    /// # Panics
    /// If `modes` is empty.
    #[must_use]
    pub fn new(modes: &[Mode], windows_between_trials: u32) -> Chooser {
        assert!(!modes.is_empty(), "there must be a mode to choose");
        let mut chooser = Chooser {
            modes: modes.to_vec(),
            state: ChooserState::Exploring { left: Vec::new(), scores: Vec::new(), next: 0 },
            windows_between_trials: windows_between_trials.max(1),
            operation_ns: Vec::new(),
            explorations: 0,
        };
        chooser.explore();
        chooser
    }

    /// Returns the mode of the current or next window.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match &self.state {
            ChooserState::Exploring { left, next, .. } => left[*next],
            ChooserState::Settled { trial: Some(trial), .. } if trial.runs_now => trial.of,
            ChooserState::Settled { mode, .. } => *mode,
        }
    }

    /// Returns the chosen mode; `None` while the modes are compared.
    #[must_use]
    pub fn chosen(&self) -> Option<Mode> {
        match &self.state {
            ChooserState::Exploring { .. } => None,
            ChooserState::Settled { mode, .. } => Some(*mode),
        }
    }

    /// Returns the number of times that the comparison of modes was started.
    #[must_use]
    pub fn explorations(&self) -> u32 {
        self.explorations
    }

    /// Ends a window of the current [`mode`](Chooser::mode). `work` is the work of each group in this window of
    /// `window_ns`.
    pub fn window(&mut self, window_ns: u64, work: &[GroupWork]) {
        let score = self.score(window_ns, work);
        if score <= 0.0 {
            return;
        }
        let modes = self.modes.clone();
        match &mut self.state {
            ChooserState::Exploring { left, scores, next } => {
                let mode = left[*next];
                match scores.iter_mut().find(|(of, _)| *of == mode) {
                    Some((_, list)) => list.push(score),
                    None => scores.push((mode, vec![score])),
                }
                *next += 1;
                if *next == left.len() {
                    *next = 0;
                    // The next round has another order, so that a mode does not always follow the same other mode.
                    left.rotate_left(1);
                    self.end_round();
                }
            }
            ChooserState::Settled { mode, recent_scores, since_trial, trial, turn } => match trial {
                Some(now) if now.runs_now => {
                    now.runs_now = false;
                    now.wins += u32::from(score > TRIAL_WIN_RATIO * now.score_before);
                    if now.wins == 0 {
                        *trial = None;
                    } else if now.wins == 2 {
                        self.explore();
                    }
                }
                Some(now) => {
                    now.score_before = score;
                    now.runs_now = true;
                }
                None => {
                    recent_scores.push_back(score);
                    if recent_scores.len() > SCORE_WINDOWS + PHASE_WINDOWS {
                        recent_scores.pop_front();
                    }
                    *since_trial += 1;
                    if is_another_phase(recent_scores) {
                        self.operation_ns.clear();
                        self.explore();
                        return;
                    }
                    let turns = *turn / modes.len().saturating_sub(1).max(1);
                    let gap = self.windows_between_trials << turns.min(MAX_DOUBLINGS);
                    if *since_trial >= gap && modes.len() > 1 {
                        *since_trial = 0;
                        let others: Vec<Mode> = modes.into_iter().filter(|other| other != mode).collect();
                        *turn += 1;
                        let of = others[*turn % others.len()];
                        *trial = Some(Trial { of, score_before: score, wins: 0, runs_now: true });
                    }
                }
            },
        }
    }

    /// Computes the score of a window: completed operations, weighted by `operation_ns`, per nanosecond of the window.
    fn score(&mut self, window_ns: u64, work: &[GroupWork]) -> f64 {
        if self.operation_ns.len() < work.len() {
            self.operation_ns.resize(work.len(), 0.0);
        }
        for (operation_ns, group) in self.operation_ns.iter_mut().zip(work) {
            if *operation_ns == 0.0 && group.operations > 0 {
                *operation_ns = group.run_ns as f64 / group.operations as f64;
            }
        }
        let done: f64 = self
            .operation_ns
            .iter()
            .zip(work)
            .map(|(operation_ns, group)| operation_ns * group.operations as f64)
            .sum();
        done / window_ns.max(1) as f64
    }

    fn explore(&mut self) {
        self.explorations += 1;
        self.state = ChooserState::Exploring { left: self.modes.clone(), scores: Vec::new(), next: 0 };
    }

    /// Ends a round, after each remaining mode has had one more window: drops modes with low scores. Chooses a mode if
    /// only one is left or the maximum number of rounds is reached.
    fn end_round(&mut self) {
        let ChooserState::Exploring { left, scores, .. } = &mut self.state else { return };
        let rounds = scores.iter().map(|(_, list)| list.len()).max().unwrap_or(0);
        if rounds < MIN_ROUNDS {
            return;
        }
        // The medians of all modes cover the same rounds, because the windows of one round are close together in time.
        let median_of = |mode: Mode| scores.iter().find(|(of, _)| *of == mode).map_or(0.0, |(_, list)| median(list));
        let best = left.iter().map(|mode| median_of(*mode)).fold(0.0, f64::max);
        left.retain(|mode| median_of(*mode) >= DROP_RATIO * best);
        if left.len() > 1 && rounds < MAX_ROUNDS {
            return;
        }
        let mut chosen = (self.modes[0], 0.0);
        for &mode in self.modes.iter().filter(|mode| left.contains(mode)) {
            let score = median_of(mode);
            if score > CHANGE_RATIO * chosen.1 {
                chosen = (mode, score);
            }
        }
        self.state = ChooserState::Settled {
            mode: chosen.0,
            recent_scores: VecDeque::new(),
            since_trial: 0,
            trial: None,
            turn: 0,
        };
    }
}

/// Returns true if the median score of the last windows differs from the median of the previous windows by more than
/// noise.
fn is_another_phase(recent_scores: &VecDeque<f64>) -> bool {
    if recent_scores.len() < SCORE_WINDOWS + PHASE_WINDOWS {
        return false;
    }
    let all: Vec<f64> = recent_scores.iter().copied().collect();
    let (before, now) = all.split_at(SCORE_WINDOWS);
    let ratio = median(now) / median(before);
    !(1.0 / PHASE_RATIO..=PHASE_RATIO).contains(&ratio)
}

fn median(list: &[f64]) -> f64 {
    let mut sorted = list.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates windows of a machine on which a mode completes operations at `rate`, with relative noise `noise`.
    fn run(chooser: &mut Chooser, windows: usize, noise: f64, rate: impl Fn(Mode) -> f64) -> Vec<Mode> {
        let mut rng = fastrand::Rng::with_seed(7);
        (0..windows)
            .map(|_| {
                let shift = 1.0 + noise * (2.0 * rng.f64() - 1.0);
                let mode = chooser.mode();
                let operations = (1000.0 * rate(mode) * shift) as u64;
                chooser.window(1_000_000, &[GroupWork { operations, run_ns: 900_000 }]);
                mode
            })
            .collect()
    }

    #[test]
    fn the_best_mode_is_chosen_through_noise() {
        for best in Mode::ALL {
            let mut chooser = Chooser::new(&Mode::ALL, 48);
            let rate = |mode| if mode == best { 1.15 } else { 1.0 };
            let modes = run(&mut chooser, 400, 0.1, rate);
            assert_eq!(chooser.chosen(), Some(best));
            let wrong = modes[40..].iter().filter(|mode| **mode != best).count();
            assert!(wrong < 20, "{wrong} of 360 windows in other modes than {best:?}");
        }
    }

    #[test]
    fn of_equals_the_first_is_chosen() {
        let mut chooser = Chooser::new(&Mode::ALL, 48);
        run(&mut chooser, 100, 0.0, |_| 1.0);
        assert_eq!(chooser.chosen(), Some(Mode::Fair));
    }

    #[test]
    fn a_phase_change_is_seen() {
        let mut chooser = Chooser::new(&Mode::ALL, 48);
        run(&mut chooser, 60, 0.05, |mode| if mode == Mode::Itas { 1.5 } else { 1.0 });
        assert_eq!(chooser.chosen(), Some(Mode::Itas));
        run(&mut chooser, 60, 0.05, |mode| if mode == Mode::Itas { 0.5 } else { 1.0 });
        assert!(chooser.chosen().is_some_and(|mode| mode != Mode::Itas) && chooser.explorations() == 2);
    }

    /// Trials find a mode that has become better while the chosen one has not changed.
    #[test]
    fn trials_find_what_has_become_better() {
        let mut chooser = Chooser::new(&Mode::ALL, 10);
        run(&mut chooser, 60, 0.02, |mode| if mode == Mode::Tas { 1.2 } else { 1.0 });
        assert_eq!(chooser.chosen(), Some(Mode::Tas));
        let better = |mode| match mode {
            Mode::Packed => 1.4,
            Mode::Tas => 1.2,
            _ => 1.0,
        };
        run(&mut chooser, 120, 0.02, better);
        assert_eq!(chooser.chosen(), Some(Mode::Packed));
    }

    /// A group of many cheap operations does not outweigh a group of few expensive ones.
    #[test]
    fn operations_count_by_what_they_cost() {
        let mut chooser = Chooser::new(&[Mode::Fair, Mode::Tas], 48);
        for _ in 0..30 {
            let tas = chooser.mode() == Mode::Tas;
            let (cheap, dear) = if tas { (90_000, 20) } else { (100_000, 10) };
            let half = 500_000;
            let work = [GroupWork { operations: cheap, run_ns: half }, GroupWork { operations: dear, run_ns: half }];
            chooser.window(1_000_000, &work);
        }
        assert_eq!(chooser.chosen(), Some(Mode::Tas));
    }
}
