//! Random transaction programs, drawn from a seed, independent of any engine.

use super::{Form, Params};
use crate::workload::generate::Random;

/// Maximum number of steps per transaction. The low bits of an appended number identify the step.
pub(super) const MOST_STEPS: u32 = 8;
/// Percentage of steps that access hot rows. One tenth of all rows are hot.
const HOT_PERCENT: u32 = 40;
/// Percentage of steps that are followed by a pause, in which other sessions run.
const PAUSE_PERCENT: u32 = 40;
/// Percentage of writes to a row that the transaction has read before. These writes detect lost updates.
const AGAIN_PERCENT: u32 = 35;
/// Maximum padding of a register's row, in bytes: so long that few rows fill a page.
const PADDING: u32 = 900;

/// One step of a transaction. Rows are named by their position among the rows in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read a row.
    Read(u64),
    /// Read a row with the intention to write it.
    ReadForUpdate(u64),
    /// Append to the row's list, or write a new version with the given number of padding bytes.
    Write(u64, u32),
    /// Delete a row.
    Delete(u64),
    /// Read all rows from `below` positions before the row `at` to `above` positions after it.
    Range {
        /// Position of the row in the middle.
        at: u64,
        /// Number of rows before `at`.
        below: u64,
        /// Number of rows after `at`.
        above: u64,
        /// Scan from the last row to the first.
        backward: bool,
    },
}

/// Program of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Steps, each with true if a pause follows the step.
    pub steps: Vec<(Step, bool)>,
    /// True to roll back at the end.
    pub abort: bool,
}

/// Generator of the random transaction programs of one session.
#[derive(Debug)]
pub struct Programs {
    random: Random,
    form: Form,
    keys: u32,
    range: u32,
    abort_percent: u32,
}

impl Programs {
    /// Creates the program generator of a session.
    pub fn new(params: &Params, session: u32) -> Programs {
        Programs {
            random: Random::stream(params.seed, u64::from(session)),
            form: params.form,
            keys: params.keys as u32,
            range: params.range.max(1),
            abort_percent: params.abort_percent,
        }
    }

    /// Draws the program of the next transaction.
    pub fn plan(&mut self) -> Program {
        let n = self.random.in_range(1, MOST_STEPS);
        let mut seen = Vec::new();
        let steps = (0..n).map(|_| (self.step(&mut seen), self.random.percent(PAUSE_PERCENT))).collect();
        Program { steps, abort: self.random.percent(self.abort_percent) }
    }

    fn step(&mut self, seen: &mut Vec<u64>) -> Step {
        let at = self.place();
        match self.random.in_range(1, 100) {
            1..=30 => {
                seen.push(at);
                Step::Read(at)
            }
            31..=36 => {
                seen.push(at);
                Step::ReadForUpdate(at)
            }
            37..=52 => {
                let below = u64::from(self.random.in_range(0, self.range - 1));
                let above = u64::from(self.range - 1) - below;
                let above = u64::from(self.random.in_range(0, above as u32));
                Step::Range { at, below, above, backward: self.random.percent(30) }
            }
            53..=68 if self.form == Form::Register => Step::Delete(self.again(seen, at)),
            _ => {
                let padding = if self.random.percent(20) { self.random.in_range(0, PADDING) } else { 0 };
                Step::Write(self.again(seen, at), padding)
            }
        }
    }

    fn place(&mut self) -> u64 {
        let hot = self.random.percent(HOT_PERCENT);
        let among = if hot { (self.keys / 10).max(1) } else { self.keys };
        u64::from(self.random.in_range(0, among - 1))
    }

    /// Returns, with a probability of [`AGAIN_PERCENT`] percent, a row that was read before, otherwise the row `at`.
    fn again(&mut self, seen: &[u64], at: u64) -> u64 {
        match seen.len() {
            0 => at,
            n if self.random.percent(AGAIN_PERCENT) => seen[self.random.in_range(0, n as u32 - 1) as usize],
            _ => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use storage::Isolation;

    use super::*;

    fn params(form: Form) -> Params {
        Params {
            form,
            sessions: 2,
            transactions: 1,
            keys: 20,
            isolation: Isolation::Serializable,
            abort_percent: 10,
            range: 5,
            list_full: 10,
            seed: 3,
        }
    }

    #[test]
    fn a_seed_repeats_and_sessions_differ() {
        let plans = |session| {
            let mut generator = Programs::new(&params(Form::Register), session);
            (0..100).map(|_| generator.plan()).collect::<Vec<_>>()
        };
        assert_eq!(plans(0), plans(0));
        assert_ne!(plans(0), plans(1));
    }

    #[test]
    fn every_kind_of_step_comes_within_its_bounds() {
        for form in [Form::ListAppend, Form::Register] {
            let mut generator = Programs::new(&params(form), 0);
            let (mut kinds, mut aborts) = ([0; 5], 0);
            for _ in 0..2000 {
                let plan = generator.plan();
                assert!((1..=MOST_STEPS as usize).contains(&plan.steps.len()));
                aborts += usize::from(plan.abort);
                for (step, _) in plan.steps {
                    let (kind, at) = match step {
                        Step::Read(at) => (0, at),
                        Step::ReadForUpdate(at) => (1, at),
                        Step::Write(at, _) => (2, at),
                        Step::Delete(at) => (3, at),
                        Step::Range { at, below, above, .. } => {
                            assert!(below + above < 5);
                            (4, at)
                        }
                    };
                    kinds[kind] += 1;
                    assert!(at < 20);
                }
            }
            assert!((120..300).contains(&aborts), "{aborts}");
            for (i, n) in kinds.into_iter().enumerate() {
                assert_eq!(n > 100, i != 3 || form == Form::Register, "{form:?} {kinds:?}");
            }
        }
    }
}
