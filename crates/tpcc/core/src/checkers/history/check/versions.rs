//! Orders the versions of each row, and finds anomalies of reads of a single row.

use std::collections::HashMap;

use super::super::{Op, Outcome, Txn, is_delete};
use super::{Findings, Phenomenon};

/// A version of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    /// Appended number of a list, or version number of a register.
    pub(super) value: u64,
    /// Position of the writing transaction in the history.
    pub(super) writer: u32,
    /// True if the row is absent in this version.
    pub(super) absent: bool,
}

/// A read by a committed transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    /// Position of the reading transaction in the history.
    pub(super) reader: u32,
    /// Number of versions up to and including the version that was read; 0 if no version was read.
    pub(super) versions: u32,
}

/// Ordered versions and reads of one row.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// Key of the row.
    pub(super) key: u64,
    /// True for a list: a read of a version includes all versions before it.
    is_list: bool,
    /// Versions, first to last. Excludes unread versions of transactions that did not commit, and the versions in `newer`.
    pub(super) versions: Vec<Version>,
    /// Versions that are newer than all of `versions`, in unknown order.
    pub(super) newer: Vec<Version>,
    /// Reads of the row by committed transactions.
    pub(super) reads: Vec<Observation>,
}

/// Operations of all transactions on one row.
#[derive(Default)]
struct Row<'h> {
    is_list: bool,
    writes: Vec<(u32, u64)>,
    lists: Vec<(u32, &'h [u64])>,
    reads: Vec<(u32, Option<u64>)>,
}

/// Orders the versions of every row.
pub(super) fn infer(txns: &[Txn], findings: &mut Findings) -> Vec<Order> {
    let mut rows: HashMap<u64, Row<'_>> = HashMap::new();
    for (at, txn) in txns.iter().enumerate() {
        let at = at as u32;
        for op in &txn.ops {
            match op {
                Op::Append(key, value) => {
                    let row = rows.entry(*key).or_default();
                    row.is_list = true;
                    row.writes.push((at, *value));
                }
                Op::Write(key, value) => rows.entry(*key).or_default().writes.push((at, *value)),
                Op::List(key, list) if txn.outcome == Outcome::Ok => {
                    let row = rows.entry(*key).or_default();
                    row.is_list = true;
                    row.lists.push((at, list));
                }
                Op::Read(key, version) if txn.outcome == Outcome::Ok => {
                    rows.entry(*key).or_default().reads.push((at, *version));
                }
                Op::List(..) | Op::Read(..) => {}
            }
        }
    }
    // Sorts the rows for a deterministic order, which hash maps do not have.
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_unstable_by_key(|(key, _)| *key);
    rows.iter().map(|(key, row)| Row::order(row, *key, txns, findings)).collect()
}

impl Row<'_> {
    fn order(&self, key: u64, txns: &[Txn], findings: &mut Findings) -> Order {
        let mut writers: HashMap<u64, u32> = HashMap::with_capacity(self.writes.len());
        for &(writer, value) in &self.writes {
            if let Some(other) = writers.insert(value, writer) {
                let ids = [txns[other as usize].id, txns[writer as usize].id];
                findings.add(Phenomenon::Duplicate, &ids, || {
                    format!("row {key}: {value} was written by {} and by {}", ids[0], ids[1])
                });
            }
        }
        let mut order = Order { key, is_list: self.is_list, ..Order::default() };
        if self.is_list {
            self.lists(&writers, &mut order, txns, findings);
        } else {
            self.registers(&writers, &mut order, txns, findings);
        }
        findings.reads += order.reads.len();
        judge(&order, txns, findings);
        order
    }

    /// Orders the versions of a register by version number.
    fn registers(&self, writers: &HashMap<u64, u32>, order: &mut Order, txns: &[Txn], findings: &mut Findings) {
        let outcome = |writer: u32| txns[writer as usize].outcome;
        let mut values: Vec<u64> =
            self.writes.iter().filter(|w| outcome(w.0) == Outcome::Ok).map(|(_, value)| *value).collect();
        // Includes versions that were read although their writers did not commit.
        let seen = self.reads.iter().filter_map(|(_, version)| *version);
        values.extend(seen.filter(|v| writers.get(v).is_some_and(|w| outcome(*w) != Outcome::Ok)));
        values.sort_unstable();
        values.dedup();
        order.versions = values
            .iter()
            .map(|value| Version { value: *value, writer: writers[value], absent: is_delete(*value) })
            .collect();
        for &(reader, version) in &self.reads {
            let versions = match version {
                None => 0,
                Some(version) => match values.binary_search(&version) {
                    Ok(at) => at as u32 + 1,
                    Err(_) => {
                        let id = txns[reader as usize].id;
                        findings.add(Phenomenon::Impossible, &[id], || {
                            format!("{id} read version {version} of row {}, which nobody wrote", order.key)
                        });
                        continue;
                    }
                },
            };
            order.reads.push(Observation { reader, versions });
        }
    }

    /// Orders the versions of a list as in the longest list that was read.
    fn lists(&self, writers: &HashMap<u64, u32>, order: &mut Order, txns: &[Txn], findings: &mut Findings) {
        let key = order.key;
        let Some((reader, longest)) = self.lists.iter().max_by_key(|(_, list)| list.len()) else { return };
        let longest_id = txns[*reader as usize].id;
        let mut at = HashMap::with_capacity(longest.len());
        for (i, value) in longest.iter().enumerate() {
            if at.insert(*value, i).is_some() {
                findings.add(Phenomenon::Duplicate, &[longest_id], || {
                    format!("{longest_id} read {value} twice in row {key}")
                });
            }
            let Some(writer) = writers.get(value) else {
                findings.add(Phenomenon::Impossible, &[longest_id], || {
                    format!("{longest_id} read {value} in row {key}, which nobody appended there")
                });
                // The remaining numbers of the list still have an order.
                continue;
            };
            order.versions.push(Version { value: *value, writer: *writer, absent: false });
        }
        let whole = order.versions.len() == longest.len();
        for &(reader, list) in &self.lists {
            let id = txns[reader as usize].id;
            if longest.starts_with(list) {
                if whole {
                    order.reads.push(Observation { reader, versions: list.len() as u32 });
                }
                continue;
            }
            for value in list.iter().filter(|value| !writers.contains_key(value)) {
                findings.add(Phenomenon::Impossible, &[id], || {
                    format!("{id} read {value} in row {key}, which nobody appended there")
                });
            }
            findings.add(Phenomenon::IncompatibleOrder, &[id, longest_id], || {
                format!("row {key}: {id} read {list:?}, {longest_id} read {longest:?}")
            });
        }
        let committed = self.writes.iter().filter(|(writer, _)| txns[*writer as usize].outcome == Outcome::Ok);
        let unseen = committed.filter(|(_, value)| !at.contains_key(value));
        order.newer = unseen.map(|(writer, value)| Version { value: *value, writer: *writer, absent: false }).collect();
    }
}

/// Finds G1a, G1b and lost writes of one row.
fn judge(order: &Order, txns: &[Txn], findings: &mut Findings) {
    let key = order.key;
    let txn = |at: u32| &txns[at as usize];
    // For each prefix of the versions: the rolled-back version that a read of this prefix observes; in a list, the last one.
    let mut aborted: Vec<Option<Version>> = vec![None];
    for version in &order.versions {
        let is_aborted = txn(version.writer).outcome == Outcome::Fail;
        let before = if order.is_list { aborted.last().copied().flatten() } else { None };
        aborted.push(if is_aborted { Some(*version) } else { before });
    }
    // `last_of`: position of the last version of each writer. `first_end`: for each suffix of the versions, the version
    // whose writer ended first.
    let mut last_of: HashMap<u32, usize> = HashMap::new();
    for (i, version) in order.versions.iter().enumerate() {
        last_of.insert(version.writer, i);
    }
    let end = |v: &Version| if txn(v.writer).outcome == Outcome::Ok { txn(v.writer).end } else { u64::MAX };
    let mut first_end = vec![order.newer.iter().map(|v| (end(v), *v)).min_by_key(|e| e.0)];
    for version in order.versions.iter().rev() {
        let here = (end(version), *version);
        let rest = first_end[first_end.len() - 1];
        first_end.push(Some(rest.filter(|rest| rest.0 <= here.0).unwrap_or(here)));
    }
    first_end.reverse();

    for read in &order.reads {
        let (reader, id) = (txn(read.reader), txn(read.reader).id);
        let n = read.versions as usize;
        if let Some(version) = aborted[n].filter(|v| v.writer != read.reader) {
            let writer = txn(version.writer).id;
            findings.add(Phenomenon::G1a, &[id, writer], || {
                format!("{id} read {} of row {key}, written by {writer}, which rolled back", version.value)
            });
        }
        if n > 0 {
            let version = order.versions[n - 1];
            if version.writer != read.reader && last_of[&version.writer] >= n {
                let writer = txn(version.writer).id;
                findings.add(Phenomenon::G1b, &[id, writer], || {
                    format!("{id} read {} of row {key}, which {writer} went on to overwrite itself", version.value)
                });
            }
        }
        if let Some((ended, version)) = first_end[n]
            && ended < reader.start
        {
            let writer = txn(version.writer).id;
            findings.add(Phenomenon::LostWrite, &[writer, id], || {
                format!(
                    "{writer} wrote {} to row {key} and had ended when {id} began, which did not see it",
                    version.value
                )
            });
        }
    }
}
