//! Checks that the database contains every acknowledged transaction.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead, Read as _};

use crate::driver::ack::{Ack, AckKind};
use crate::workload::generate::deck::Kind;
use crate::workload::interrupt;
use crate::workload::ops::Read;
use crate::workload::schema::keys::{AckKey, HistoryKey};
use crate::workload::schema::tables::{Acknowledged, History};

/// Maximum length of the line of an acknowledgement, in bytes.
const LONGEST_LINE: u64 = 128;
/// Maximum number of runs whose acknowledgements one file may contain.
const MOST_RUNS: usize = 100_000;
/// Maximum number of missing transactions listed in the result.
const NAMED: usize = 5;

/// Result of comparing a file of acknowledgements with the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckComparison {
    /// Numbers of the runs in the file.
    pub runs: BTreeSet<u32>,
    /// Number of acknowledged transactions that write. Each was looked up in the database.
    pub read_write: u64,
    /// Number of acknowledged transactions that only read. They leave nothing in the database to look up.
    pub read_only: u64,
    /// Number of acknowledged New-Orders that were rolled back. They leave nothing in the database to look up.
    pub rolled_back: u64,
    /// True if the last line was incomplete, and was skipped.
    pub torn: bool,
    /// Number of looked-up transactions that are not in the database.
    pub missing: u64,
    /// Descriptions of the first missing transactions, with the content of the database in their place.
    pub first_missing: Vec<String>,
}

/// Reason why the comparison of acknowledgements failed.
#[derive(Debug)]
pub enum CompareError<E> {
    /// The file cannot be read.
    File(io::Error),
    /// A line is not an acknowledgement: line number, counted from 1, and text of the line.
    Line(u64, String),
    /// The comparison stopped at this line: the file has more than the maximum number of runs, or the user interrupted it.
    Interrupted(u64),
    /// The database cannot be read.
    Engine(E),
}

/// Looks up every acknowledged transaction of `acks`.
pub fn compare<R: Read>(reader: &mut R, acks: impl BufRead) -> Result<AckComparison, CompareError<R::Error>> {
    let mut acks = acks;
    let mut compared = AckComparison::default();
    // Last sequence number of each run and terminal. Contains only numbers that are in the database, so the size of the map
    // is bounded by the size of the database.
    let mut written: HashMap<(u32, u32), u64> = HashMap::new();
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let read = acks.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(CompareError::File)?;
        if read == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        if line.last() != Some(&b'\n') {
            if (read as u64) < LONGEST_LINE {
                compared.torn = true;
                break;
            }
            return Err(CompareError::Line(number, text.into_owned()));
        }
        let ack: Ack = text.parse().map_err(|_| CompareError::Line(number, text.trim_end().to_owned()))?;
        compared.runs.insert(ack.run);
        if compared.runs.len() > MOST_RUNS || interrupt::requested() {
            return Err(CompareError::Interrupted(number));
        }
        let kind = match ack.kind {
            AckKind::Committed(kind) if kind.writes() => kind,
            AckKind::Committed(_) => {
                compared.read_only += 1;
                continue;
            }
            AckKind::RolledBack => {
                compared.rolled_back += 1;
                continue;
            }
        };
        compared.read_write += 1;
        let key = AckKey { run: ack.run, terminal: ack.terminal };
        let last = match written.get(&(ack.run, ack.terminal)) {
            Some(last) => Some(*last),
            None => {
                let last = reader.read::<Acknowledged, _>(&key, |row| row.hot.sequence.get());
                let last = last.map_err(CompareError::Engine)?;
                written.extend(last.map(|last| ((ack.run, ack.terminal), last)));
                last
            }
        };
        let why = match last {
            _ if ack.sequence == 0 => Some("a terminal's first is 1".to_owned()),
            None => Some("no such terminal in that run".to_owned()),
            Some(last) if last < ack.sequence => Some(format!("the terminal's last is {last}")),
            Some(_) if kind == Kind::Payment && !has_history(reader, &ack).map_err(CompareError::Engine)? => {
                Some("no row of it in history".to_owned())
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            compared.missing += 1;
            if compared.first_missing.len() < NAMED {
                compared.first_missing.push(format!("line {number}, {ack}: {why}"));
            }
        }
    }
    Ok(compared)
}

fn has_history<R: Read>(reader: &mut R, ack: &Ack) -> Result<bool, R::Error> {
    let key = HistoryKey { run: ack.run, terminal: ack.terminal, sequence: ack.sequence };
    Ok(reader.read::<History, _>(&key, |_| ())?.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::driver;
    use crate::driver::ack::Sink;
    use crate::driver::runner::threads::ThreadsRunner;
    use crate::engines::floor::{Floor, LoadingMaps};
    use crate::workload::engine::Engine;
    use crate::workload::generate::deck::Mix;
    use crate::workload::load;
    use crate::workload::schema::Scale;
    use crate::workload::schema::rows::Timestamp;
    use crate::workload::settings::Length;
    use crate::workload::txn::StepOrder;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Runs transactions on the floor engine. Returns the engine and the lines of their acknowledgements.
    fn acknowledged() -> (Floor, String) {
        let plan = load::Population::new(2, Scale::TINY, 1, Timestamp::at(77));
        let maps = LoadingMaps::default();
        assert_eq!(load::populate(&plan, &maps, 1, &load::RowsDone::default()).unwrap(), load::LoadEnd::Done);
        let floor = Floor::new(maps, &plan.loaded());
        let length = Length { warmup: Duration::ZERO, duration: None, transactions: Some(1_000) };
        let out = Buffer::default();
        let run = driver::RunPlan {
            warehouses: 2,
            workers: 1,
            terminals: 5,
            mix: Mix::Standard,
            steps: StepOrder::HotLast,
            admission: crate::workload::settings::Admission::Fifo,
            placement: itas::Placement::Packed,
            pin: false,
            counters: false,
            clock: crate::workload::settings::ClockKind::Real,
            length,
            seed: 3,
        };
        driver::run(&floor, &ThreadsRunner, &plan.loaded(), &run, Some(&Sink::new(Box::new(out.clone()))), |_| {})
            .unwrap();
        let text = String::from_utf8(out.0.lock().unwrap().clone()).unwrap();
        (floor, text)
    }

    fn compared(floor: &Floor, acks: &str) -> AckComparison {
        compare(&mut floor.reader().unwrap(), acks.as_bytes()).unwrap()
    }

    #[test]
    fn everything_acknowledged_is_found() {
        let (floor, acks) = acknowledged();
        let all = compared(&floor, &acks);
        assert_eq!((all.missing, all.torn), (0, false), "{all:?}");
        assert_eq!(all.read_write + all.read_only + all.rolled_back, 1_000);
        assert!(all.read_write > 850 && all.read_only > 60 && all.rolled_back > 0, "{all:?}");
        assert_eq!(all.runs, BTreeSet::from([1]));
        // The sequence numbers of each terminal have no gaps.
        for terminal in 0..5 {
            let of: Vec<u64> = acks
                .lines()
                .map(|line| line.parse::<Ack>().unwrap())
                .filter(|ack| ack.terminal == terminal)
                .map(|ack| ack.sequence)
                .collect();
            assert!(of.iter().copied().eq(1..=of.len() as u64), "{of:?}");
        }
    }

    #[test]
    fn what_never_happened_is_noticed() {
        let (floor, acks) = acknowledged();
        let never = ["1 2 100000 new-order", "1 5 1 payment", "2 0 1 delivery", "0 0 1 payment", "1 0 0 new-order"];
        for forged in never.map(|never| format!("ack {never}")) {
            let all = compared(&floor, &format!("{acks}{forged}\n"));
            assert_eq!((all.missing, all.first_missing.len()), (1, 1), "{forged}");
            assert!(all.first_missing[0].contains(&forged), "{all:?}");
        }
        // A payment in place of a transaction of another kind has no HISTORY row.
        let order = acks.lines().find(|line| line.ends_with("new-order")).unwrap();
        assert_eq!(compared(&floor, &format!("{}\n", order.replace("new-order", "payment"))).missing, 1);
    }

    #[test]
    fn a_torn_last_line_is_passed_over_and_others_are_named() {
        let (floor, acks) = acknowledged();
        let all = compared(&floor, &format!("{acks}ack 1 2 99999 pay"));
        assert_eq!((all.missing, all.torn), (0, true));
        for wrong in ["ack 1 2 pay\n", "\n", "hello\n", &"x".repeat(1_000)] {
            let text = format!("ack 1 0 1 stock-level\n{wrong}ack 1 0 2 stock-level\n");
            let error = compare(&mut floor.reader().unwrap(), text.as_bytes()).unwrap_err();
            assert!(matches!(error, CompareError::Line(2, _)), "{error:?}");
        }
    }
}
