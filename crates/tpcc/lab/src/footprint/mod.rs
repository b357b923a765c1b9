//! `tpcc footprint`: instruction-cache footprints of the operations of running transactions, and placement of context-switch
//! points in them.
//!
//! The program runs itself as a child process, traces it instruction by instruction (`tracer`) through whole transactions,
//! cuts the trace at the start of each statement, and runs the trace through a simulated cache (`cache`). Needs Linux on
//! x86-64.

pub mod access;
mod analysis;
mod cache;
pub mod child;
pub mod geometry;
pub mod holds;
mod instruction;
pub mod lines;
mod marks;
pub mod operand;
pub mod place;
mod text;
mod trace;
mod tracer;

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::{Command, Stdio};

use geometry::Geometry;
use marks::Mark;
use tpcc_core::report::progress::{self, Progress};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::deck::{Kind, Mix};
use trace::{Operation, OperationId};
use tracer::{Tracer, Trap};

/// Number of transactions of each kind to trace.
const SAMPLES: usize = 4;
/// Number of transactions after which the trace ends even if kinds have not occurred often enough.
const MOST_TRANSACTIONS: u64 = 5_000;

/// Parameters of a footprint analysis.
#[derive(Clone, Debug)]
pub struct FootprintSpec {
    /// Mix of transaction types.
    pub mix: Mix,
    /// Geometry of the instruction cache.
    pub geometry: Geometry,
    /// Name of the operations to analyse, or the first words of their names; `None` for all operations.
    pub operation: Option<String>,
}

/// Trace of a transaction, cut into operations.
#[derive(Debug)]
struct TransactionTrace {
    kind: Kind,
    operations: Vec<Operation>,
}

/// Traces of all traced transactions.
#[derive(Debug)]
pub struct Traces {
    transactions: Vec<TransactionTrace>,
    /// Table name and index name, keyed by index number.
    indexes: BTreeMap<u32, (String, String)>,
}

/// Traces `command`, which must run [`child::run`], until each kind of the mix has been traced a few times.
pub fn trace(mut command: Command, mix: Mix) -> Result<Traces, Error> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(Error::failed("tracing instructions needs Linux on x86-64"));
    }
    let kinds = mix.kinds();
    let mut shown = Progress::start();
    let mut tracer = Tracer::start(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let mut transactions: Vec<TransactionTrace> = Vec::new();
    let mut next = tracer.run_to_mark()?;
    while let Some(trap) = next {
        let Some(kind) = transaction_kind(trap) else {
            next = tracer.run_to_mark()?;
            continue;
        };
        let seen = |kind| transactions.iter().filter(|traced| traced.kind == kind).count();
        if kinds.iter().all(|kind| seen(*kind) >= SAMPLES) || trap.second > MOST_TRANSACTIONS {
            break;
        }
        if seen(kind) >= SAMPLES {
            next = tracer.run_to_mark()?;
            continue;
        }
        let (traced, end) = trace_transaction(&mut tracer, kind)?;
        transactions.push(traced);
        let done: usize = kinds.iter().map(|kind| transactions.iter().filter(|t| t.kind == *kind).count()).sum();
        shown.show(|| {
            format!(
                "trace {done}/{} {}",
                kinds.len() * SAMPLES,
                progress::bar(done as f64 / (kinds.len() * SAMPLES) as f64)
            )
        });
        next = Some(end);
    }
    drop(shown);
    let names = tracer.finish()?;
    let indexes = names.lines().filter_map(parse_index).collect();
    Ok(Traces { transactions, indexes })
}

/// Returns the kind of the transaction that a mark begins; `None` for other marks.
fn transaction_kind(trap: Trap) -> Option<Kind> {
    (trap.mark == Mark::Transaction).then(|| Kind::ALL.get(trap.first as usize).copied())?
}

/// Traces a transaction. Returns the transaction, and the mark that begins the next transaction.
fn trace_transaction(tracer: &mut Tracer, kind: Kind) -> Result<(TransactionTrace, Trap), Error> {
    let mut calls = Vec::new();
    let mut operations = Vec::new();
    // The code before the first statement belongs to the terminal.
    let (_, mut trap) = tracer.step_through(OperationId { kind: 0, index: 0 }, &mut calls)?;
    while trap.mark == Mark::Enter {
        let id = OperationId { kind: trap.first as u8, index: trap.second as u32 };
        let (operation, end) = tracer.step_through(id, &mut calls)?;
        operations.push(operation);
        trap = end;
    }
    Ok((TransactionTrace { kind, operations }, trap))
}

/// Formats the line in which the child names an index.
pub fn format_index(number: u32, table: &str, index: &str) -> String {
    format!("index\t{number}\t{table}\t{index}")
}

pub(crate) fn parse_index(line: &str) -> Option<(u32, (String, String))> {
    let mut words = line.strip_prefix("index\t")?.split('\t');
    let (number, table, index) = (words.next()?, words.next()?, words.next()?);
    Some((number.parse().ok()?, (table.to_owned(), index.to_owned())))
}

/// Names of statement kinds, indexed by `storage::OperationKind`.
const KINDS: [&str; 9] = ["begin", "commit", "rollback", "fetch", "insert", "update", "delete", "scan", "prefetch"];

impl Traces {
    /// Returns the name of an operation, such as "fetch stock", "scan customer (customer_name)" or "commit".
    fn name(&self, id: OperationId) -> String {
        let kind = KINDS.get(usize::from(id.kind)).copied().unwrap_or("other");
        match self.indexes.get(&id.index) {
            Some((table, index)) if table == index => format!("{kind} {table}"),
            Some((table, index)) => format!("{kind} {table} ({index})"),
            None if id.index == 0 => kind.to_owned(),
            None => format!("{kind} index {}", id.index),
        }
    }

    /// Returns the family and the object under which [`tpcc_core::driver::runner::steps::policy`] adds an operation to a
    /// team.
    fn team(&self, id: OperationId) -> (&'static str, String) {
        let index = self.indexes.get(&id.index).map(|(_, index)| index.clone()).unwrap_or_default();
        match KINDS.get(usize::from(id.kind)).copied().unwrap_or("other") {
            "prefetch" => ("announce", String::new()),
            "commit" | "rollback" => ("finish", String::new()),
            kind @ ("begin" | "scan") => (kind, String::new()),
            kind => (kind, index),
        }
    }

    /// Returns all operations with their traced executions, in order of first occurrence.
    fn operations(&self) -> Vec<(OperationId, Vec<&Operation>)> {
        let mut all: Vec<(OperationId, Vec<&Operation>)> = Vec::new();
        for operation in self.transactions.iter().flat_map(|traced| &traced.operations) {
            match all.iter_mut().find(|(id, _)| *id == operation.id) {
                Some((_, list)) => list.push(operation),
                None => all.push((operation.id, vec![operation])),
            }
        }
        all
    }
}

/// Formats the analysis for a terminal, and chooses the points to make live.
pub fn report(traces: &Traces, wanted: &FootprintSpec) -> Result<text::FootprintResult, Error> {
    text::report(traces, wanted)
}

/// Returns the command line of the traced program: `tpcc footprint --traced` on a database.
pub fn command(program: &Path, data: &Path, mix: Mix) -> Command {
    let mut command = Command::new(program);
    command.args(["footprint", "--traced", "--mix", mix.name(), "--data"]).arg(data);
    command
}

/// Overlap of the code of two executions of a kind of operation.
#[derive(Clone, Copy, Debug)]
pub struct Overlap {
    /// Kind of operation.
    pub kind: &'static str,
    /// True if both executions used the same index.
    pub same_index: bool,
    /// Number of lines that both executions touch, as a share of the lines that either of them touches.
    pub share: f64,
}

/// Compares every execution of an operation with the executions of the same kind in other transactions.
pub fn overlaps(traces: &Traces) -> Vec<Overlap> {
    let line = Geometry::DEFAULT.line().trailing_zeros();
    let lines =
        |operation: &Operation| -> HashSet<u64> { operation.steps.iter().map(|step| step.at >> line).collect() };
    let all: Vec<(usize, OperationId, HashSet<u64>)> = traces
        .transactions
        .iter()
        .enumerate()
        .flat_map(|(number, traced)| traced.operations.iter().map(move |o| (number, o.id, lines(o))))
        .collect();
    let mut found = Vec::new();
    for (i, (transaction, id, touched)) in all.iter().enumerate() {
        for (other_transaction, other_id, other) in &all[i + 1..] {
            let Some(kind) = KINDS.get(usize::from(id.kind)).filter(|_| id.kind == other_id.kind) else { continue };
            if transaction != other_transaction {
                let both = touched.intersection(other).count();
                let share = both as f64 / (touched.len() + other.len() - both).max(1) as f64;
                found.push(Overlap { kind, same_index: id.index == other_id.index, share });
            }
        }
    }
    found
}
