//! Emulated terminal: a home district, a random stream and a deck of cards.

use super::{Clock, RunPlan};
use crate::workload::generate::Random;
use crate::workload::generate::deck::{Deck, Kind, Mix};
use crate::workload::generate::input::{Input, InputSpace};
use crate::workload::schema::Scale;
use crate::workload::schema::keys::HistoryKey;
use crate::workload::schema::rows::Timestamp;
use crate::workload::settings::ClockKind;

/// First logical date: the begin of 2008, in microseconds since 1970.
const LOGICAL_START: u64 = 1_199_145_600_000_000;

/// An emulated terminal. Without pacing, a terminal has no keying or think time: it is ready for its next transaction as
/// soon as it has received its response.
pub struct Terminal {
    number: u32,
    home: (u32, u8),
    random: Random,
    deck: Deck,
    /// Number of the terminal's last transaction, used as the key of a payment's HISTORY row and as the number of an
    /// acknowledgement.
    last: HistoryKey,
    /// Total number of terminals of the run if dates are logical; `None` for real dates.
    logical: Option<u32>,
    /// Kind of the terminal's next transaction, if already drawn.
    drawn: Option<Kind>,
    /// Time at which the terminal became ready for its next transaction, in nanoseconds of the run's clock.
    pub(super) ready_since: u64,
}

impl Terminal {
    /// Creates terminal `number` of a run. Terminals are assigned to the warehouses round-robin, and the terminals of a
    /// warehouse to its districts round-robin.
    pub fn new(number: u32, run: u32, plan: &RunPlan, scale: &Scale) -> Terminal {
        let w = number % plan.warehouses + 1;
        let d = (number / plan.warehouses % u32::from(scale.districts)) as u8 + 1;
        Terminal {
            number,
            home: (w, d),
            random: Random::stream(plan.seed, u64::from(number)),
            deck: Deck::new(plan.mix),
            last: HistoryKey { run, terminal: number, sequence: 0 },
            logical: (plan.clock == ClockKind::Logical).then_some(plan.terminals),
            drawn: None,
            ready_since: 0,
        }
    }

    /// Returns the number of bytes of a terminal, including its deck.
    pub(super) fn bytes(mix: Mix) -> usize {
        size_of::<Terminal>() + Deck::heap_bytes(mix)
    }

    /// Returns the number of the worker that serves the terminal.
    pub(super) fn worker(&self, plan: &RunPlan) -> usize {
        Terminal::worker_of(self.number, plan)
    }

    /// Returns the number of the worker that serves terminal `number`: home warehouse modulo number of workers. If there are
    /// more workers than warehouses, the workers of a warehouse divide its terminals. With `Placement::Spread`, the
    /// terminals of a warehouse are assigned to all workers round-robin.
    pub(super) fn worker_of(number: u32, plan: &RunPlan) -> usize {
        let (number, warehouses) = (number as usize, plan.warehouses as usize);
        let w = number % warehouses;
        if plan.placement == itas::Placement::Spread {
            return (w + number / warehouses) % plan.workers;
        }
        let first = w % plan.workers;
        let sharing = (plan.workers - first).div_ceil(warehouses).max(1);
        if plan.workers <= warehouses {
            return first;
        }
        first + warehouses * (number / warehouses % sharing)
    }

    /// Returns the number of the terminal's home warehouse.
    #[inline]
    pub(super) fn warehouse(&self) -> u32 {
        self.home.0
    }

    /// Draws the kind of the terminal's next transaction, unless already drawn. Returns the kind.
    #[inline]
    pub(super) fn draw(&mut self) -> Kind {
        *self.drawn.get_or_insert_with(|| self.deck.draw(&mut self.random))
    }

    /// Sets the kind of the terminal's next transaction, drawn from a shared deck.
    pub(super) fn deal(&mut self, card: Kind) {
        self.drawn = Some(card);
    }

    /// Generates the input of the terminal's next transaction.
    #[inline]
    pub fn next(&mut self, world: &InputSpace, clock: &Clock, now_ns: u64) -> Input {
        let kind = self.draw();
        self.drawn = None;
        self.last.sequence += 1;
        let now = match self.logical {
            Some(terminals) => self.logical_date(terminals),
            None => clock.date(now_ns),
        };
        world.input(&mut self.random, kind, self.home, now, self.last)
    }

    /// Returns the logical date of the terminal's last transaction. The date is unique in the run and the same in every run.
    fn logical_date(&self, terminals: u32) -> Timestamp {
        let number = self.last.sequence * u64::from(terminals) + u64::from(self.number);
        Timestamp::at(LOGICAL_START + number)
    }

    /// Returns run, terminal and number of the terminal's last transaction.
    #[inline]
    pub(super) fn last(&self) -> HistoryKey {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::workload::settings::Length;
    use crate::workload::txn::StepOrder;

    fn plan(warehouses: u32, workers: usize, terminals: u32) -> RunPlan {
        let length = Length { warmup: Duration::ZERO, duration: None, transactions: Some(1) };
        RunPlan {
            warehouses,
            workers,
            terminals,
            mix: Mix::Standard,
            steps: StepOrder::HotLast,
            admission: crate::workload::settings::Admission::Fifo,
            placement: itas::Placement::Packed,
            pin: false,
            counters: false,
            clock: ClockKind::Real,
            length,
            seed: 1,
        }
    }

    fn spread(plan: &RunPlan) -> Vec<Vec<(u32, u8)>> {
        let mut workers = vec![Vec::new(); plan.workers];
        for number in 0..plan.terminals {
            let terminal = Terminal::new(number, 1, plan, &Scale::FULL);
            workers[terminal.worker(plan)].push(terminal.home);
        }
        workers
    }

    #[test]
    fn spread_terminals_of_a_warehouse_have_all_workers() {
        let packed = plan(4, 2, 40);
        let plan = RunPlan { placement: itas::Placement::Spread, ..plan(4, 2, 40) };
        let of = |plan: &RunPlan| -> Vec<std::collections::BTreeSet<u32>> {
            spread(plan).iter().map(|homes| homes.iter().map(|(w, _)| *w).collect()).collect()
        };
        assert!(of(&plan).iter().all(|warehouses| warehouses.len() == 4), "{:?}", of(&plan));
        assert!(of(&packed).iter().all(|warehouses| warehouses.len() == 2), "{:?}", of(&packed));
    }

    #[test]
    fn logical_dates_are_unique_and_the_same_in_each_run() {
        let plan = RunPlan { clock: ClockKind::Logical, ..plan(1, 1, 3) };
        let dates = || {
            let mut dates = Vec::new();
            for number in 0..plan.terminals {
                let mut terminal = Terminal::new(number, 1, &plan, &Scale::FULL);
                for _ in 0..5 {
                    terminal.last.sequence += 1;
                    dates.push(terminal.logical_date(plan.terminals));
                }
            }
            dates
        };
        let unique: std::collections::BTreeSet<_> = dates().into_iter().map(|date| format!("{date:?}")).collect();
        assert_eq!(unique.len(), 15);
        assert_eq!(dates(), dates());
    }

    #[test]
    fn ten_terminals_use_ten_districts() {
        let workers = spread(&plan(2, 1, 20));
        for w in [1, 2] {
            let mut districts: Vec<u8> = workers[0].iter().filter(|home| home.0 == w).map(|home| home.1).collect();
            districts.sort_unstable();
            assert_eq!(districts, (1..=10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn workers_own_warehouses() {
        for (warehouses, workers) in [(2, 2), (20, 2), (5, 3), (7, 7)] {
            let plan = plan(warehouses, workers, 10 * warehouses);
            for (number, homes) in spread(&plan).iter().enumerate() {
                assert!(homes.iter().all(|home| (home.0 as usize - 1) % workers == number));
                assert!(!homes.is_empty());
            }
        }
    }

    #[test]
    fn workers_share_when_warehouses_are_few() {
        assert!(spread(&plan(1, 2, 10)).iter().all(|homes| homes.len() == 5));
        assert!(spread(&plan(2, 5, 20)).iter().all(|homes| homes.len() >= 3));
        assert!(spread(&plan(3, 4, 30)).iter().all(|homes| homes.len() >= 5));
    }
}
