//! The counters of a run, each described once: a line in a list gives a counter its JSON key, its unit and sentence in the
//! schema, its words in the summary and its sum. What remains is to count it.

#[cfg(any(test, feature = "schemas"))]
use schemars::JsonSchema;
use serde::Serialize;

use super::words::{counted, grouped};

/// How the summary names a counter.
pub enum Wording {
    /// Not in a line's list: a table, a rate or a share has it, or `--json` alone.
    Not,
    /// "reads 120".
    After(&'static str),
    /// "8,812 flushes".
    Before(&'static str),
    /// "2 checkpoints".
    Counted(&'static str),
    /// "2 districts" and what is said of them; nothing if there are none.
    IfAny(&'static str, &'static str),
}

impl Wording {
    fn text(&self, n: u64) -> Option<String> {
        match *self {
            Wording::Not => None,
            Wording::After(word) => Some(format!("{word} {}", grouped(n))),
            Wording::Before(word) => Some(format!("{} {word}", grouped(n))),
            Wording::Counted(one) => Some(counted(n, one)),
            Wording::IfAny(one, rest) => (n > 0).then(|| format!("{} {rest}", counted(n, one))),
        }
    }
}

/// How the summary names a counter, and how it gets its value.
pub type CounterWording<C> = (Wording, fn(&C) -> u64);

/// A list of counters.
pub trait Counters: Copy + 'static {
    /// How the summary names each, and its value.
    const SHOWN: &'static [CounterWording<Self>];

    /// Each counter made from its values here and in `other`.
    fn with(&self, other: &Self, make: impl Fn(u64, u64) -> u64) -> Self;

    /// Adds what another worker counted.
    fn add(&mut self, other: &Self) {
        *self = self.with(other, |here, there| here + there);
    }

    /// What was counted since these were `before`.
    fn since(&self, before: &Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// The counters that stand in a line of the summary, in words.
    fn shown(&self) -> impl Iterator<Item = String> {
        Self::SHOWN.iter().filter_map(|(shown, value)| shown.text(value(self)))
    }
}

macro_rules! counters {
    ($($(#[$about:meta])* $list:ident { $($key:ident: $unit:tt, $sentence:tt, $shown:expr;)* })*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
            #[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
            pub struct $list {
                $(#[doc = $sentence] #[cfg_attr(any(test, feature = "schemas"), schemars(extend("unit" = $unit)))] pub $key: u64,)*
            }

            impl Counters for $list {
                const SHOWN: &'static [CounterWording<Self>] = &[$(($shown, |list| list.$key)),*];

                fn with(&self, other: &Self, make: impl Fn(u64, u64) -> u64) -> Self {
                    $list { $($key: make(self.$key, other.$key)),* }
                }
            }
        )*
    };
}

counters! {
    /// Of the log of an engine.
    LogCounters {
        bytes: "bytes", "Bytes appended to the log.", Wording::Not;
        flushes: "flushes", "Times the log was made durable.", Wording::Before("flushes");
        checkpoints: "checkpoints", "Checkpoints completed.", Wording::Counted("checkpoint");
    }

    /// Of the buffer pool of an engine.
    PoolCounters {
        hits: "pages", "Page requests that found the page in the pool.", Wording::Not;
        reads: "pages", "Pages read from disk.", Wording::After("reads");
        evictions: "pages", "Pages dropped from the pool to make room.", Wording::After("evictions");
        page_writes: "pages", "Pages written to the data files.", Wording::Not;
    }

    /// Of superlatches, since the database was opened: most are promoted in the warm-up.
    LatchCounters {
        promotions: "latches", "Hot latches that got a reader word for each core.", Wording::Counted("promotion");
        demotions: "latches", "Promoted latches that a writer or an eviction has demoted.",
            Wording::Counted("demotion");
        refused: "latches", "Hot latches that stayed plain because the process had no more reader words.",
            Wording::IfAny("hot latch", "without reader words");
    }

    /// Of transactions whose loops ran ahead of them.
    SpeculationCounters {
        ahead: "transactions", "Transactions whose loop ran ahead of them.", Wording::Before("ran ahead");
        in_order: "transactions", "Transactions that ran in order.", Wording::Before("in order");
        epochs: "epochs", "Epochs that committed.", Wording::Counted("epoch");
        violations: "times", "Times that an epoch was rewound.", Wording::Counted("violation");
        operations: "operations", "Operations of committed epochs.", Wording::Not;
        rewound: "operations", "Operations that were done in vain.", Wording::Not;
        rewound_ns: "ns", "Time of what was done in vain.", Wording::Not;
        in_order_ns: "ns", "Time in which epochs held the token.", Wording::Not;
        waited_ns: "ns", "Time in which threads waited for the token.", Wording::Not;
    }

    /// Of the transactions of one kind.
    KindCounters {
        count: "transactions", "Completed, rolled-back ones included.", Wording::Not;
        rolled_back: "transactions", "Completed by rolling back.", Wording::Not;
        run_ns: "ns", "Time from first begin to commit, without the wait until the answer is durable.", Wording::Not;
    }

    /// Of the transactions of all kinds; each that is shown has a line of the summary.
    WorkCounters {
        skipped_deliveries: "districts", "Districts that had no order to deliver.",
            Wording::IfAny("district", "skipped: no order to deliver");
    }

    /// What the generator drew, from which its shares are made: cheap proof that it is right.
    Drawn {
        new_orders: "transactions", "New-Orders.", Wording::Not;
        rollbacks: "transactions", "New-Orders with an unused item number.", Wording::Not;
        lines: "lines", "Lines of New-Orders.", Wording::Not;
        remote_lines: "lines", "Lines supplied by another warehouse.", Wording::Not;
        payments: "transactions", "Payments.", Wording::Not;
        remote_payments: "transactions", "Payments by a customer of another warehouse.", Wording::Not;
        customers: "transactions", "Payments and Order-Statuses.", Wording::Not;
        by_name: "transactions", "Payments and Order-Statuses by last name.", Wording::Not;
    }

    /// Of the teams of all workers.
    TeamCounters {
        launches: "teams", "Teams that were run.", Wording::Not;
        waits: "waits", "Waits of transactions for a lock, a page or the log.", Wording::Not;
    }

    /// Of the teams in one operation.
    OperationCounters {
        begun: "transactions", "Times a transaction began it.", Wording::Not;
        teams: "teams", "Teams that went through it.", Wording::Not;
        strays: "members", "Times a member left its team, to wait.", Wording::Not;
        waits: "waits", "Waits, of strays too.", Wording::Not;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_added_and_subtracted() {
        let (a, b) =
            (LogCounters { bytes: 5, flushes: 2, checkpoints: 1 }, LogCounters { bytes: 7, ..Default::default() });
        let mut sum = a;
        sum.add(&b);
        assert_eq!(sum, LogCounters { bytes: 12, flushes: 2, checkpoints: 1 });
        assert_eq!(sum.since(&b), a);
        assert_eq!(b.since(&a), LogCounters { bytes: 2, flushes: 0, checkpoints: 0 });
    }

    #[test]
    fn a_counter_stands_in_the_summary_as_its_list_says() {
        let words = |list: &[String]| list.join(", ");
        let log = LogCounters { bytes: 1, flushes: 8_812, checkpoints: 1 };
        assert_eq!(words(&log.shown().collect::<Vec<_>>()), "8,812 flushes, 1 checkpoint");
        let pool = PoolCounters { hits: 1, reads: 1_200, evictions: 0, page_writes: 3 };
        assert_eq!(words(&pool.shown().collect::<Vec<_>>()), "reads 1,200, evictions 0");
        let skipped = |n| WorkCounters { skipped_deliveries: n }.shown().next();
        assert_eq!(skipped(0), None);
        assert_eq!(skipped(2).as_deref(), Some("2 districts skipped: no order to deliver"));
    }
}
