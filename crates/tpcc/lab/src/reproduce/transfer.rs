//! Costs of a cache line between the cores of this machine, measured for models of more cores.

use std::time::Duration;

use serde_json::{Value, json};

use super::report::Spread;
use crate::coherence::probe::{Changes, changes, changes_after_reads};

/// Number of tries of a probe, of which only tries without a disturbance by another program count; and the reason if no try
/// counts.
pub(super) const TRIES: usize = 31;
pub(super) const DISTURBED: &str =
    "two threads were never alone on two cores: other programs run there, or there is one core";

/// Costs of lines between the cores of this machine, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    /// Time of a transfer of a line from another core.
    pub(super) near_ns: f64,
    /// Time of an upgrade to exclusive of a line that the core has read.
    pub(super) upgrade_ns: f64,
    /// Time that a core keeps a line that has arrived.
    pub(super) hold_ns: f64,
}

impl Transfer {
    /// Computes the costs from changes of a word by one thread and by two, without and with a read of the word before each
    /// change. A core keeps a line for all changes that it makes in a row. In the rest of the time between two turns, the
    /// line travels to the other core and back. Each direction takes half a transfer, because the request of the receiving
    /// core has arrived before the line leaves; both directions together take one transfer. If each change follows a read,
    /// each direction takes one more upgrade.
    fn of([alone, read_alone, two, read_two]: [Changes; 4]) -> Transfer {
        let hold = |alone: Changes, two: Changes| (two.in_a_row - 1.0) * alone.ns;
        let away = |alone, two: Changes| two.in_a_row * two.ns - 2.0 * hold(alone, two);
        let near_ns = away(alone, two).max(two.ns);
        let upgrade_ns = ((away(read_alone, read_two) - near_ns) / 2.0).max(0.0);
        Transfer { near_ns, upgrade_ns, hold_ns: hold(alone, two) }
    }

    /// Measures the costs. Returns them with the measured values; `None` if other programs disturbed each try.
    pub(super) fn measure() -> Option<(Transfer, Value)> {
        let time = Duration::from_millis(20);
        // Each round measures all four kinds of changes, so that disturbances of the machine affect all of them.
        let mut rounds: [Vec<Changes>; 4] = Default::default();
        for _ in 0..TRIES {
            let round =
                [changes(1, time), changes_after_reads(1, time), changes(2, time), changes_after_reads(2, time)];
            if round.iter().all(Option::is_some) {
                rounds.iter_mut().zip(round).for_each(|(all, changes)| all.extend(changes));
            }
        }
        let middle = rounds.map(|all| {
            let of = |of: fn(&Changes) -> f64| median(all.iter().map(of));
            Some(Changes { ns: of(|changes| changes.ns)?, in_a_row: of(|changes| changes.in_a_row)? })
        });
        let [Some(alone), Some(read_alone), Some(two), Some(read_two)] = middle else { return None };
        let transfer = Transfer::of([alone, read_alone, two, read_two]);
        let values = json!({
            "change_ns": alone.ns, "change_of_two_ns": two.ns, "changes_in_a_row": two.in_a_row,
            "change_after_read_ns": read_alone.ns, "change_after_read_of_two_ns": read_two.ns,
            "changes_after_reads_in_a_row": read_two.in_a_row,
            "transfer_ns": transfer.near_ns, "upgrade_ns": transfer.upgrade_ns, "hold_ns": transfer.hold_ns,
        });
        Some((transfer, values))
    }
}

pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(values).map(|spread| spread.mid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_in_a_row_are_no_transfers() {
        let changes = |ns, in_a_row| Changes { ns, in_a_row };
        let of = |two, read_two| {
            let Transfer { near_ns, upgrade_ns, hold_ns } =
                Transfer::of([changes(2.0, 64.0), changes(2.0, 64.0), two, read_two]);
            (near_ns, upgrade_ns, hold_ns)
        };
        // One change in each turn: the line travels all of the time.
        assert_eq!(of(changes(30.0, 1.0), changes(50.0, 1.0)), (30.0, 10.0, 0.0));
        // Eight changes of 2 ns each: a line is kept for 14 ns, twice in the 58 ns between two turns of a core.
        assert_eq!(of(changes(7.25, 8.0), changes(8.75, 8.0)), (30.0, 6.0, 14.0));
        // A read that costs nothing.
        assert_eq!(of(changes(30.0, 1.0), changes(29.0, 1.0)), (30.0, 0.0, 0.0));
    }
}
