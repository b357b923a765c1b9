//! Loops of random steps, compared with a sequential run.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use speculate::{Change, Epoch, EpochTrace, LoopError, OpKind, Options, Speculator, Stats, Store, Written};

use crate::common::{Locks, Rows};

/// Few keys, so that dependences are frequent.
pub(crate) const KEYS: u8 = 12;

/// Start of the message of a failure with a result that differs from a sequential run.
pub(crate) const NOT_SEQUENTIAL: &str = "the loop does something else than sequentially";

/// Start of the message of a failure with an escaped operation of a rewound epoch that was not undone, or undone too often.
pub(crate) const NOT_GIVEN_BACK: &str = "what doomed epochs have taken is not what was given back";

/// Step of an iteration. Each iteration has a number, which its reads change.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Reads a fixed key.
    Read(u8),
    /// Reads the key that is derived from the number.
    Follow,
    /// Writes the number.
    Write(u8),
    /// Writes the number to the key that is derived from it.
    Scatter,
    Delete(u8),
    /// Fails if the number is divisible by this value.
    FailIf(u64),
    PanicIf(u64),
    /// Takes a unit outside speculation, and returns it if the epoch does not commit.
    Escape,
    /// Reads the first rows between two keys, at most this many.
    Range(u8, u8, usize),
    /// Changes the first rows between two keys, at most this many.
    ChangeEach(u8, u8, usize),
    /// Deletes the first row at or after a key.
    TakeFirst(u8),
    /// Reads keys from a key on until one has an even value, so the number of operations depends on the values.
    ReadUntilEven(u8),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Failed(u64),
    Panicked(u64),
}

/// Data that the steps of a body access.
trait Data {
    #[track_caller]
    fn get(&mut self, key: u8) -> Option<u64>;
    fn put(&mut self, key: u8, value: u64);
    fn delete(&mut self, key: u8);
    #[track_caller]
    fn range(&mut self, first: u8, last: u8, most: usize) -> Vec<(u8, u64)>;
    /// Changes each row of a range by [`changed`]; returns the number of rows.
    #[track_caller]
    fn change_each(&mut self, first: u8, last: u8, most: usize, number: u64) -> usize;
    fn escape(&mut self);
}

/// New state of a row.
fn changed(value: u64, number: u64) -> Change<u64> {
    match mix(number, Some(value)) % 3 {
        0 => Change::Keep,
        1 => Change::Replace(value + number + 1),
        _ => Change::Delete,
    }
}

fn mix(number: u64, more: Option<u64>) -> u64 {
    more.map_or(number ^ 0x55, |more| number.wrapping_mul(31).wrapping_add(more)) % 1_000_003
}

fn key_of(number: u64) -> u8 {
    (number % u64::from(KEYS)) as u8
}

fn iterate(data: &mut impl Data, item: u64, steps: &[Step]) -> Result<u64, u64> {
    let mut number = item;
    for step in steps {
        match *step {
            Step::Read(key) => number = mix(number, data.get(key)),
            Step::Follow => number = mix(number, data.get(key_of(number))),
            Step::Write(key) => data.put(key, number),
            Step::Scatter => data.put(key_of(number), number + 1),
            Step::Delete(key) => data.delete(key),
            Step::FailIf(by) if number.is_multiple_of(by) => return Err(number),
            Step::PanicIf(by) if number.is_multiple_of(by) => resume_unwind(Box::new(number)),
            Step::Range(first, last, most) => {
                for (key, value) in data.range(first, last, most) {
                    number = mix(mix(number, Some(value)), Some(u64::from(key)));
                }
            }
            Step::ChangeEach(first, last, most) => {
                number = mix(number, Some(data.change_each(first, last, most, number) as u64));
            }
            Step::TakeFirst(from) => {
                if let [(key, value)] = data.range(from, KEYS, 1)[..] {
                    number = mix(number, Some(value));
                    data.delete(key);
                }
            }
            Step::Escape => data.escape(),
            Step::ReadUntilEven(from) => {
                for at in 0..u64::from(KEYS) {
                    let value = data.get(key_of(u64::from(from) + at));
                    number = mix(number, value);
                    if value.is_some_and(|value| value % 2 == 0) {
                        break;
                    }
                }
            }
            Step::FailIf(_) | Step::PanicIf(_) => {}
        }
    }
    Ok(number)
}

/// Returns true if the closure that receives the results in order fails for this result.
fn refused_in_order(result: u64) -> bool {
    result % 61 == 60
}

/// Kind of the closure that receives the results of the iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultClosure {
    /// A closure without access to the store.
    Collects,
    /// A closure that runs in order and may fail.
    Runs,
    /// A closure that also writes rows that bodies read.
    Writes,
}

/// The write of the in-order closure for a result.
fn written_in_order(result: u64) -> Option<(u8, Option<u64>)> {
    let to = key_of(result / 7);
    match result % 5 {
        0 | 1 => Some((to, Some(result + 3))),
        2 => Some((to, None)),
        _ => None,
    }
}

/// An operation in the form of a trace: its kind, its group (for rows: the key), and its number of keys.
type OpSummary = (OpKind, u64, usize);

/// Source location of a read in a body: the same for the oracle and for epochs.
type Site = &'static Location<'static>;

/// The oracle: a map, the number of units taken, the operations performed, and the read sites.
struct Oracle<'a>(&'a mut BTreeMap<u8, u64>, &'a mut i64, &'a mut Vec<OpSummary>, &'a mut HashSet<Site>);

impl Data for Oracle<'_> {
    fn get(&mut self, key: u8) -> Option<u64> {
        self.2.push((OpKind::Read, u64::from(key), 1));
        self.3.insert(Location::caller());
        self.0.get(&key).copied()
    }
    fn put(&mut self, key: u8, value: u64) {
        self.2.push((OpKind::Write, u64::from(key), 1));
        self.0.insert(key, value);
    }
    fn delete(&mut self, key: u8) {
        self.2.push((OpKind::Write, u64::from(key), 1));
        self.0.remove(&key);
    }
    fn range(&mut self, first: u8, last: u8, most: usize) -> Vec<(u8, u64)> {
        let rows: Vec<_> = self.0.range(first..=last).take(most).map(|(key, value)| (*key, *value)).collect();
        self.2.push((OpKind::Read, u64::from(first), rows.len()));
        self.3.insert(Location::caller());
        rows
    }
    fn change_each(&mut self, first: u8, last: u8, most: usize, number: u64) -> usize {
        let rows = self.range(first, last, most);
        for (key, value) in &rows {
            match changed(*value, number) {
                Change::Keep => {}
                Change::Replace(value) => self.put(*key, value),
                Change::Delete => self.delete(*key),
            }
        }
        rows.len()
    }
    fn escape(&mut self) {
        self.2.push((OpKind::Escape, 0, 0));
        *self.1 += 1;
    }
}

struct EpochData<'a, 'e>(&'a mut Epoch<'e, Rows>, &'a Arc<AtomicI64>);

fn unwrap_infallible<T>(result: Result<T, Infallible>) -> T {
    result.unwrap_or_else(|never| match never {})
}

impl Data for EpochData<'_, '_> {
    fn get(&mut self, key: u8) -> Option<u64> {
        unwrap_infallible(self.0.get(&key))
    }
    fn put(&mut self, key: u8, value: u64) {
        self.0.put(key, value);
    }
    fn delete(&mut self, key: u8) {
        self.0.delete(key);
    }
    fn range(&mut self, first: u8, last: u8, most: usize) -> Vec<(u8, u64)> {
        unwrap_infallible(self.0.range(first, last, most)).to_vec()
    }
    fn change_each(&mut self, first: u8, last: u8, most: usize, number: u64) -> usize {
        let Ok(rows) = self.0.change_each(first, last, most, |_, &value| changed(value, number));
        rows
    }
    fn escape(&mut self) {
        let taken = Arc::clone(self.1);
        self.0.escape(|| taken.fetch_add(1, Ordering::Relaxed), {
            let taken = Arc::clone(self.1);
            move |_| drop(taken.fetch_sub(1, Ordering::Relaxed).to_string())
        });
    }
}

/// Runs a loop sequentially and speculatively, and compares the results; returns the counters. Bit `line % 8` of `waits`
/// selects the read sites that wait for earlier epochs.
pub(crate) fn compare(
    options: Options,
    taking: ResultClosure,
    before: &BTreeMap<u8, u64>,
    items: &[Vec<Step>],
    traces: bool,
    waits: u8,
) -> Stats {
    let mut rows = before.clone();
    let (mut results, mut escaped, mut done, mut sites) = (Vec::new(), 0, Vec::new(), HashSet::new());
    let mut end = End::Done;
    for (item, steps) in items.iter().enumerate() {
        let iteration = || iterate(&mut Oracle(&mut rows, &mut escaped, &mut done, &mut sites), item as u64, steps);
        match catch_unwind(AssertUnwindSafe(iteration)) {
            Ok(Ok(result)) if taking != ResultClosure::Collects && refused_in_order(result) => {
                end = End::Failed(result)
            }
            Ok(Ok(result)) => {
                results.push(result);
                match written_in_order(result).filter(|_| taking == ResultClosure::Writes) {
                    Some((key, Some(value))) => drop(rows.insert(key, value)),
                    Some((key, None)) => drop(rows.remove(&key)),
                    None => {}
                }
            }
            Ok(Err(number)) => end = End::Failed(number),
            Err(panic) => end = End::Panicked(*panic.downcast_ref().unwrap()),
        }
        if end != End::Done {
            break;
        }
    }

    let store = Rows::with(before);
    let mut speculator = Speculator::new(options.trace(usize::from(traces))).unwrap();
    sites.iter().filter(|site| waits >> (site.line() % 8) & 1 == 1).for_each(|site| speculator.wait_at(site));
    let taken = Arc::new(AtomicI64::new(0));
    let mut seen = Vec::new();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let (mut locks, items) = (Locks::default(), items.iter().enumerate());
        let body = |epoch: &mut Epoch<'_, Rows>, (item, steps): &(usize, &Vec<Step>)| {
            iterate(&mut EpochData(epoch, &taken), *item as u64, steps)
        };
        if taking == ResultClosure::Collects {
            return speculator.collect(&store, &mut locks, items, body, |result| seen.push(result));
        }
        speculator.run(&store, &mut locks, items, body, |locks, result| {
            if refused_in_order(result) {
                return Err(result);
            }
            seen.push(result);
            if let Some((key, value)) = written_in_order(result).filter(|_| taking == ResultClosure::Writes) {
                let write = Written { key: &key, value: value.as_ref(), seen: None };
                unwrap_infallible(store.write(locks, &write));
            }
            Ok(())
        })
    }));
    let ended = match ran {
        Ok(Ok(())) => End::Done,
        Ok(Err(LoopError::Body(number))) => End::Failed(number),
        Ok(Err(other)) => panic!("{other:?}"),
        Err(panic) => End::Panicked(*panic.downcast_ref().unwrap()),
    };
    let is_traced = traces && end == End::Done;
    assert_eq!((ended, seen, store.contents()), (end, results, rows), "{NOT_SEQUENTIAL}");
    assert_eq!(taken.load(Ordering::Relaxed), escaped, "{NOT_GIVEN_BACK}");
    let stats = speculator.take_stats();
    assert!(stats.epochs <= items.len() as u64);
    assert!(stats.waits == 0 || waits != 0);
    let recorded = speculator.take_traces();
    assert_eq!(recorded.len(), usize::from(is_traced));
    if let [trace] = &recorded[..] {
        let traced =
            trace.epochs.iter().flat_map(|epoch| &epoch.operations).map(|op| (op.kind, op.group, op.keys.len()));
        assert_eq!(traced.collect::<Vec<_>>(), done, "the trace is that of a sequential run");
        let in_time = |epoch: &EpochTrace| epoch.operations.iter().all(|op| op.at_ns <= epoch.body_ns);
        assert!(trace.epochs.iter().all(in_time));
    }
    stats
}
