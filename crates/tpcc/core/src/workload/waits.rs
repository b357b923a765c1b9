//! Waits of an engine: of threads and fibers for each other, and for the log.

use std::collections::BTreeMap;

#[cfg(any(test, feature = "schemas"))]
use schemars::JsonSchema;
use serde::Serialize;

use super::counters::{Counters, WaitCounters};
use super::words::counted;

/// Waits during the measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct Waits {
    /// Waits for locks of rows, gaps and tables.
    pub lock: WaitCounters,
    /// Waits for page latches.
    pub latch: WaitCounters,
    /// Waits for room in the log's files: for a new file, or for a checkpoint that cuts the log.
    pub log_room: WaitCounters,
    /// Waits for a place in the log's buffer.
    pub log_place: WaitCounters,
    /// Waits by table, for each table that something waited for.
    pub tables: BTreeMap<String, TableWaits>,
}

/// Waits for a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schemas"), derive(JsonSchema))]
pub struct TableWaits {
    /// Waits for locks of the table, its rows and its gaps.
    pub lock: WaitCounters,
    /// Waits for latches of the pages of the table and its indexes.
    pub latch: WaitCounters,
}

impl Waits {
    /// Returns the difference from the earlier waits `before`.
    pub fn since(&self, before: &Waits) -> Waits {
        let since = |name: &String, now: &TableWaits| {
            let before = before.tables.get(name).copied().unwrap_or_default();
            TableWaits { lock: now.lock.since(&before.lock), latch: now.latch.since(&before.latch) }
        };
        let tables = self.tables.iter().map(|(name, now)| (name.clone(), since(name, now)));
        Waits {
            lock: self.lock.since(&before.lock),
            latch: self.latch.since(&before.latch),
            log_room: self.log_room.since(&before.log_room),
            log_place: self.log_place.since(&before.log_place),
            tables: tables.filter(|(_, waits)| *waits != TableWaits::default()).collect(),
        }
    }

    /// Returns a text for each kind of wait that occurred: number, duration, and the table with most of it.
    pub fn shown(&self) -> impl Iterator<Item = String> {
        let kinds = [
            ("lock", self.lock, self.longest(|table| table.lock.ns)),
            ("latch", self.latch, self.longest(|table| table.latch.ns)),
            ("log room", self.log_room, None),
            ("log place", self.log_place, None),
        ];
        kinds.into_iter().filter(|(_, waits, _)| waits.count > 0).map(|(kind, waits, table)| {
            let most = table.map_or(String::new(), |table| format!(" (most: {table})"));
            let (count, ms) = (counted(waits.count, &format!("{kind} wait")), waits.ns as f64 / 1e6);
            format!("{count} of {ms:.1} ms{most}")
        })
    }

    fn longest(&self, ns: impl Fn(&TableWaits) -> u64) -> Option<&str> {
        let longest = self.tables.iter().max_by_key(|(_, waits)| ns(waits))?;
        (ns(longest.1) > 0).then_some(longest.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(count: u64) -> WaitCounters {
        WaitCounters { count, ns: 1_000_000 * count }
    }

    fn table(name: &str, lock: u64) -> (String, TableWaits) {
        (name.to_owned(), TableWaits { lock: waits(lock), ..TableWaits::default() })
    }

    #[test]
    fn tables_without_waits_in_between_are_absent() {
        let before = Waits { lock: waits(3), tables: [table("item", 1), table("stock", 2)].into(), ..Waits::default() };
        let tables = [table("district", 1), table("item", 1), table("stock", 6)].into();
        let now = Waits { lock: waits(8), log_room: waits(1), tables, ..Waits::default() };
        let since = now.since(&before);
        assert_eq!(since.tables, [table("district", 1), table("stock", 4)].into());
        let shown: Vec<_> = since.shown().collect();
        assert_eq!(shown, ["5 lock waits of 5.0 ms (most: stock)", "1 log room wait of 1.0 ms"]);
    }
}
