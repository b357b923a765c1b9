//! Terminal output of `tpcc footprint`.

use std::collections::BTreeSet;
use std::fmt::Write;

use storage::points;

use super::analysis::{choose_points, code_size, footprint, knee, team_misses};
use super::geometry::Geometry;
use super::trace::{Operation, OperationId, frames_apart};
use super::{FootprintSpec, KINDS, Traces, TransactionTrace};
use tpcc_core::workload::error::Error;

/// Number of team members for which misses are predicted.
const TEAM: usize = 10;

/// Result of a footprint analysis.
#[derive(Debug)]
pub struct FootprintResult {
    /// Tables for a terminal.
    pub text: String,
    /// Live points of each operation.
    pub placement: Vec<OperationPoints>,
}

/// Points of an operation to make live.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationPoints {
    /// Family and object of the operation, as named in `tpcc_core::driver::runner::steps::policy`.
    pub operation: (&'static str, String),
    /// Numbers of the sites, ascending.
    pub sites: Vec<u32>,
}

/// Formats the analysis and chooses the points to make live; see [`super::report`].
pub(super) fn report(traces: &Traces, wanted: &FootprintSpec) -> Result<FootprintResult, Error> {
    let geometry = wanted.geometry;
    let all = traces.operations();
    let chosen: Vec<_> =
        all.iter().filter(|(id, _)| is_wanted(&traces.name(*id), wanted.operation.as_deref())).collect();
    if chosen.is_empty() {
        let names: Vec<_> = all.iter().map(|(id, _)| traces.name(*id)).collect();
        let asked = wanted.operation.as_deref().unwrap_or("");
        return Err(Error::usage(format!("--operation {asked}: no such operation in the mix {}", wanted.mix.name()))
            .help(format!("one of {}", names.join(", "))));
    }
    let mut text = format!("footprint {} in an instruction cache of {}\n\n", wanted.mix.name(), geometry.in_words());
    let width = chosen.iter().map(|(id, _)| traces.name(*id).len()).max().unwrap_or(0).max(18);
    let _ = writeln!(
        text,
        "{:width$}  {:>5} {:>8} {:>8} {:>6} {:>6} {:>6} {:>8} {:>7}",
        "operation", "seen", "instr.", "bytes", "lines", "cold", "warm", "knee at", "points"
    );
    for (id, samples) in &chosen {
        let Some((last, before)) = last_two(samples) else { continue };
        let found = footprint(last, before, geometry);
        let knee = knee(&last.steps, geometry).map_or("-".to_owned(), |at| at.to_string());
        let _ = writeln!(
            text,
            "{:width$}  {:>5} {:>8} {:>8} {:>6} {:>6} {:>6} {:>8} {:>7}",
            traces.name(*id),
            samples.len(),
            found.instructions,
            found.bytes,
            found.lines,
            found.cold,
            found.warm,
            knee,
            last.points.len()
        );
    }
    if wanted.operation.is_none() {
        for traced in last_of_each_kind(traces) {
            text += &transaction_line(traced, traces, geometry, width);
        }
    }
    text += "\nseen: executions traced; cold: misses from an empty cache; warm: right after another execution;\n\
             knee: instructions after which a follower begins to miss; points: offered on the way.\n";
    let mut placement = Vec::new();
    for (id, samples) in &chosen {
        let sites: BTreeSet<u32> = samples
            .iter()
            .flat_map(|sample| choose_points(sample, geometry).into_iter().map(|point| sample.points[point].site))
            .collect();
        if let Some((last, _)) = last_two(samples) {
            text += &points_text(&traces.name(*id), last, &sites, geometry);
        }
        placement.push(OperationPoints { operation: traces.team(*id), sites: sites.into_iter().collect() });
    }
    Ok(FootprintResult { text, placement })
}

/// Returns the last two executions, or the last execution twice if there is only one.
fn last_two<'a>(samples: &[&'a Operation]) -> Option<(&'a Operation, &'a Operation)> {
    let last = samples.last()?;
    Some((last, samples.iter().rev().nth(1).unwrap_or(last)))
}

/// Returns the last transaction of each kind.
fn last_of_each_kind(traces: &Traces) -> Vec<&TransactionTrace> {
    let mut last: Vec<&TransactionTrace> = Vec::new();
    for traced in traces.transactions.iter().rev() {
        if !last.iter().any(|known| known.kind == traced.kind) {
            last.push(traced);
        }
    }
    last
}

/// Formats the row of a whole transaction, which is treated as one operation.
fn transaction_line(traced: &TransactionTrace, traces: &Traces, geometry: Geometry, width: usize) -> String {
    let whole = whole_transaction(traced);
    let before =
        traces.transactions.iter().rev().filter(|other| other.kind == traced.kind).nth(1).map(self::whole_transaction);
    let found = footprint(&whole, before.as_ref().unwrap_or(&whole), geometry);
    let knee = knee(&whole.steps, geometry).map_or("-".to_owned(), |at| at.to_string());
    format!(
        "{:width$}  {:>5} {:>8} {:>8} {:>6} {:>6} {:>6} {:>8} {:>7}\n",
        format!("whole {}", traced.kind.name()),
        "",
        found.instructions,
        found.bytes,
        found.lines,
        found.cold,
        found.warm,
        knee,
        whole.points.len()
    )
}

fn whole_transaction(traced: &TransactionTrace) -> Operation {
    let mut all =
        Operation { id: OperationId { kind: KINDS.len() as u8, index: 0 }, steps: Vec::new(), points: Vec::new() };
    for operation in &traced.operations {
        let begin = all.steps.len();
        all.points.extend(operation.points.iter().cloned().map(|mut point| {
            point.steps_before += begin;
            point
        }));
        all.steps.extend_from_slice(&operation.steps);
    }
    all
}

/// Formats the points of an operation. Marks the points to make live, and shows the misses with and without them.
fn points_text(name: &str, operation: &Operation, sites: &BTreeSet<u32>, geometry: Geometry) -> String {
    if operation.points.is_empty() {
        return String::new();
    }
    let all = points();
    let mut text = format!("\n{name}\n");
    let (mut begin, mut calls): (usize, &[u64]) = (0, operation.points.first().map_or(&[], |point| &point.calls));
    let mut chosen = Vec::new();
    for (number, point) in operation.points.iter().enumerate() {
        let live = sites.contains(&point.site);
        let (site, place) = match all.get(point.site as usize) {
            Some(site) => (site.name(), format!("{}:{}", site.file(), site.line())),
            None => ("?", String::new()),
        };
        let (bytes, _) = code_size(&operation.steps[begin..point.steps_before], geometry.line());
        let apart = frames_apart(calls, &point.calls);
        let _ = write!(
            text,
            "  {} {:24} after {:>6} instructions, {:>6} B of code; call depth {}",
            if live { "live" } else { "    " },
            site,
            point.steps_before,
            bytes,
            point.calls.len(),
        );
        let _ = match live && apart > 1 && !chosen.is_empty() {
            true => writeln!(text, ", {apart} frames from the last  {place}"),
            false => writeln!(text, "  {place}"),
        };
        if live {
            chosen.push(number);
            (begin, calls) = (point.steps_before, &point.calls);
        }
    }
    let (bytes, _) = code_size(&operation.steps[begin..], geometry.line());
    let (first, others) = team_misses(operation, &chosen, TEAM, geometry);
    let (serial, repeated) = team_misses(operation, &[], TEAM, geometry);
    let _ = writeln!(
        text,
        "       end                      after {:>6} instructions, {bytes:>6} B of code\n       a team of {TEAM}: the first \
         misses {first:.0}, each follower {others:.1}; without points {serial:.0} and {repeated:.1}",
        operation.steps.len()
    );
    text
}

/// Returns true if the operation's name equals `asked` or begins with its words.
fn is_wanted(name: &str, asked: Option<&str>) -> bool {
    asked.is_none_or(|asked| {
        let (name, asked) = (name.to_lowercase(), asked.trim().to_lowercase());
        name == asked || name.strip_prefix(asked.as_str()).is_some_and(|rest| rest.starts_with(' '))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_asked_for_by_the_begin_of_their_name() {
        assert!(is_wanted("fetch stock", None));
        assert!(is_wanted("fetch stock", Some("fetch")));
        assert!(is_wanted("fetch stock", Some("Fetch Stock")));
        assert!(!is_wanted("fetch stock", Some("fetch st")));
        assert!(!is_wanted("fetch stock", Some("update")));
    }
}
