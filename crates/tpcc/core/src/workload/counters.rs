//! Counters of a run. Each is declared once: one line in a list gives a counter its JSON key, its unit and sentence in the
//! schema, its words in the summary, and its sum. The code that increments the counter is elsewhere.

#[cfg(any(test, feature = "schemas"))]
use schemars::JsonSchema;
use serde::Serialize;

use super::words::{counted, grouped};

/// Form of a counter in the summary.
pub enum Wording {
    /// Not listed: the counter appears in a table, a rate or a share, or in `--json` only.
    Hidden,
    /// Name and value: "reads 120".
    NameValue(&'static str),
    /// Value and name: "8,812 flushes".
    ValueName(&'static str),
    /// Value and noun, in the singular or plural: "2 checkpoints".
    Counted(&'static str),
    /// Value and noun ("2 districts"), then the second text; nothing if the value is 0.
    NonZero(&'static str, &'static str),
}

impl Wording {
    fn text(&self, n: u64) -> Option<String> {
        match *self {
            Wording::Hidden => None,
            Wording::NameValue(word) => Some(format!("{word} {}", grouped(n))),
            Wording::ValueName(word) => Some(format!("{} {word}", grouped(n))),
            Wording::Counted(one) => Some(counted(n, one)),
            Wording::NonZero(one, rest) => (n > 0).then(|| format!("{} {rest}", counted(n, one))),
        }
    }
}

/// Form of a counter in the summary, and the function that returns its value.
pub type CounterWording<C> = (Wording, fn(&C) -> u64);

/// A list of counters.
pub trait Counters: Copy + 'static {
    /// Form and value of each counter.
    const SHOWN: &'static [CounterWording<Self>];

    /// Applies `make` to each counter's values here and in `other`.
    fn zip_with(&self, other: &Self, make: impl Fn(u64, u64) -> u64) -> Self;

    /// Adds the counters of another worker.
    fn add(&mut self, other: &Self) {
        *self = self.zip_with(other, |here, there| here + there);
    }

    /// Difference to the earlier counters `before`.
    fn since(&self, before: &Self) -> Self {
        self.zip_with(before, u64::saturating_sub)
    }

    /// Texts of the counters that are listed in the summary.
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

                fn zip_with(&self, other: &Self, make: impl Fn(u64, u64) -> u64) -> Self {
                    $list { $($key: make(self.$key, other.$key)),* }
                }
            }
        )*
    };
}

counters! {
    /// Counters of an engine's log.
    LogCounters {
        bytes: "bytes", "Bytes appended to the log.", Wording::Hidden;
        flushes: "flushes", "Times the log was made durable.", Wording::ValueName("flushes");
        checkpoints: "checkpoints", "Checkpoints completed.", Wording::Counted("checkpoint");
    }

    /// Counters of an engine's buffer pool.
    PoolCounters {
        hits: "pages", "Page requests that found the page in the pool.", Wording::Hidden;
        reads: "pages", "Pages read from disk.", Wording::NameValue("reads");
        evictions: "pages", "Pages dropped from the pool to make room.", Wording::NameValue("evictions");
        page_writes: "pages", "Pages written to the data files.", Wording::Hidden;
    }

    /// Counters of superlatches since the database was opened. Most are promoted in the warm-up.
    LatchCounters {
        promotions: "latches", "Hot latches that got a reader word for each core.", Wording::Counted("promotion");
        demotions: "latches", "Promoted latches that a writer or an eviction has demoted.",
            Wording::Counted("demotion");
        refused: "latches", "Hot latches that stayed plain because the process had no more reader words.",
            Wording::NonZero("hot latch", "without reader words");
    }

    /// Counters of the leaves that writers contend for, since the database was opened.
    LeafCounters {
        contended: "writes", "Writes that found their leaf latched or changed by another writer, and searched again.",
            Wording::NonZero("write", "found the leaf taken");
        split_for_contention: "leaves", "Leaves split because writers of different rows contended for them.",
            Wording::NonZero("split", "for contention");
    }

    /// Waits of one kind.
    WaitCounters {
        count: "waits", "Waits that began.", Wording::Hidden;
        ns: "ns", "Duration of the waits that ended, in all.", Wording::Hidden;
    }

    /// Counters of loops that may run on several threads.
    SpeculationCounters {
        several_threads: "transactions", "Transactions whose loop ran on several threads.", Wording::ValueName("on several threads");
        one_thread: "transactions", "Transactions that ran on one thread.", Wording::ValueName("on one");
        epochs: "epochs", "Epochs of the loops.", Wording::Counted("epoch");
        violations: "times", "Times that an epoch was rolled back to run again.", Wording::Counted("violation");
    }

    /// Counters of one kind of transaction.
    KindCounters {
        count: "transactions", "Completed, rolled-back ones included.", Wording::Hidden;
        rolled_back: "transactions", "Completed by rolling back.", Wording::Hidden;
        run_ns: "ns", "Time from first begin to commit, without the wait until the answer is durable.", Wording::Hidden;
    }

    /// Counters of transactions of all kinds. Each counter that is shown has a line in the summary.
    WorkCounters {
        skipped_deliveries: "districts", "Districts that had no order to deliver.",
            Wording::NonZero("district", "skipped: no order to deliver");
    }

    /// Numbers of values drawn by the input generator. Reports derive its shares from them, as a cheap check of the
    /// generator.
    GeneratorCounters {
        new_orders: "transactions", "New-Orders.", Wording::Hidden;
        rollbacks: "transactions", "New-Orders with an unused item number.", Wording::Hidden;
        lines: "lines", "Lines of New-Orders.", Wording::Hidden;
        remote_lines: "lines", "Lines supplied by another warehouse.", Wording::Hidden;
        payments: "transactions", "Payments.", Wording::Hidden;
        remote_payments: "transactions", "Payments by a customer of another warehouse.", Wording::Hidden;
        customers: "transactions", "Payments and Order-Statuses.", Wording::Hidden;
        by_name: "transactions", "Payments and Order-Statuses by last name.", Wording::Hidden;
    }

    /// Counters of the teams of all workers.
    TeamCounters {
        launches: "teams", "Teams that were run.", Wording::Hidden;
        waits: "waits", "Waits of transactions for a lock, a page or the log.", Wording::Hidden;
    }

    /// Counters of the teams in one operation.
    OperationCounters {
        begun: "transactions", "Times a transaction began it.", Wording::Hidden;
        teams: "teams", "Teams that went through it.", Wording::Hidden;
        strays: "members", "Times a member left its team, to wait.", Wording::Hidden;
        waits: "waits", "Waits, of strays too.", Wording::Hidden;
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
