//! Instruction-cache footprints of operations, and placement of context-switch points.
//!
//! A switch pays off just before the cache is full. The paper (3.1.2) extends a stretch of code while followers find the
//! code of the first execution in the cache, and switches before the knee of the followers' misses. [`choose_points`] does
//! so on a trace. It extends a stretch to the next candidate point while a second execution of the stretch, right after the
//! first execution, has at most a small share of the misses of the first.

use std::collections::HashSet;

use super::cache::Cache;
use super::geometry::Geometry;
use super::trace::{ExecutedInstruction, Operation};

/// Number of bytes of code that a switch executes at each live point; see `sched_steps`.
const SWITCH_BYTES: u32 = 64;
/// Maximum ratio of a follower's misses in a stretch to the misses of the first execution.
pub(super) const KNEE: f64 = 0.02;

/// Instruction-cache footprint of an operation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Footprint {
    /// Number of executed instructions.
    pub instructions: usize,
    /// Number of distinct bytes of code.
    pub bytes: usize,
    /// Number of distinct cache lines of code.
    pub lines: usize,
    /// Number of cache misses, starting from an empty cache.
    pub cold: u64,
    /// Number of cache misses right after another execution of the same operation, on other data.
    pub warm: u64,
}

/// Computes the footprint of an operation; `before` is another execution of the operation.
pub(super) fn footprint(operation: &Operation, before: &Operation, geometry: Geometry) -> Footprint {
    let (bytes, lines) = code_size(&operation.steps, geometry.line());
    let mut cold = Cache::new(geometry);
    run(&mut cold, &operation.steps);
    let mut warm = Cache::new(geometry);
    run(&mut warm, &before.steps);
    let since = warm.misses();
    run(&mut warm, &operation.steps);
    let (cold, warm) = (cold.misses(), warm.misses() - since);
    Footprint { instructions: operation.steps.len(), bytes, lines, cold, warm }
}

/// Returns the number of distinct bytes and the number of distinct lines of code of `steps`. `line` is the line size in
/// bytes.
pub(super) fn code_size(steps: &[ExecutedInstruction], line: u32) -> (usize, usize) {
    let (mut seen, mut lines) = (HashSet::new(), HashSet::new());
    let shift = line.trailing_zeros();
    for step in steps {
        if seen.insert((step.at, step.len)) {
            lines.extend(step.at >> shift..=(step.at + u64::from(step.len) - 1) >> shift);
        }
    }
    // The sum counts overlapping instructions twice; only a jump into the middle of an instruction would make two overlap.
    (seen.iter().map(|(_, len)| usize::from(*len)).sum(), lines.len())
}

/// Executes steps in the simulated cache.
fn run(cache: &mut Cache, steps: &[ExecutedInstruction]) {
    for step in steps {
        cache.refer(step.at, step.len.into());
    }
}

/// Returns the paper's knee: the number of steps from the start until a follower has more than [`KNEE`] of the misses of the
/// first execution, to within 1/64 of the operation. Returns `None` if the whole operation stays below `KNEE`.
pub(super) fn knee(steps: &[ExecutedInstruction], geometry: Geometry) -> Option<usize> {
    if fits(&[], steps, geometry) {
        return None;
    }
    let grain = (steps.len() / 64).max(1);
    let (mut low, mut high) = (0, steps.len().div_ceil(grain));
    while low + 1 < high {
        let middle = (low + high) / 2;
        if fits(&[], &steps[..middle * grain], geometry) { low = middle } else { high = middle }
    }
    Some(low * grain)
}

/// Returns true if a second execution of a stretch has at most `KNEE` of the misses of the first. `switch` is the address
/// of the code of the switch that ends the stretch.
fn fits(switch: &[u64], stretch: &[ExecutedInstruction], geometry: Geometry) -> bool {
    let mut cache = Cache::new(geometry);
    let once = |cache: &mut Cache| {
        let before = cache.misses();
        run(cache, stretch);
        switch.iter().for_each(|at| cache.refer(*at, SWITCH_BYTES));
        cache.misses() - before
    };
    let first = once(&mut cache);
    let second = once(&mut cache);
    second as f64 <= KNEE * first as f64
}

/// Chooses the points of an operation to make live, by index in [`Operation::points`]: the last point before each knee. If a
/// stretch between two points is itself too long, both points are chosen.
pub(super) fn choose_points(operation: &Operation, geometry: Geometry) -> Vec<usize> {
    let mut chosen: Vec<usize> = Vec::new();
    let (mut begin, mut candidate): (usize, Option<usize>) = (0, None);
    for (number, point) in operation.points.iter().enumerate() {
        if let Some(last) = candidate
            && !fits(&switch_at(operation, number), &operation.steps[begin..point.steps_before], geometry)
        {
            chosen.push(last);
            begin = operation.points[last].steps_before;
        }
        candidate = Some(number);
    }
    if let Some(last) = candidate
        && !fits(&[], &operation.steps[begin..], geometry)
    {
        chosen.push(last);
    }
    chosen.dedup();
    chosen
}

/// Returns the address of the code of a point's switch. It is assumed to be the address of the step before the point.
fn switch_at(operation: &Operation, point: usize) -> [u64; 1] {
    let steps_before = operation.points[point].steps_before;
    [operation.steps.get(steps_before.saturating_sub(1)).map_or(0, |step| step.at)]
}

/// Returns the misses of `members` executions that switch at the chosen points, starting from an empty cache: misses of the
/// first execution, and mean misses of the other executions.
pub(super) fn team_misses(operation: &Operation, chosen: &[usize], members: usize, geometry: Geometry) -> (f64, f64) {
    let mut cache = Cache::new(geometry);
    let (mut first, mut others) = (0, 0);
    let mut begin = 0;
    let ends = chosen.iter().map(|&point| (operation.points[point].steps_before, Some(point)));
    for (end, point) in ends.chain([(operation.steps.len(), None)]) {
        for member in 0..members {
            let before = cache.misses();
            run(&mut cache, &operation.steps[begin..end]);
            if let Some(point) = point {
                cache.refer(switch_at(operation, point)[0], SWITCH_BYTES);
            }
            *(if member == 0 { &mut first } else { &mut others }) += cache.misses() - before;
        }
        begin = end;
    }
    (first as f64, others as f64 / members.saturating_sub(1).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::trace::{OperationId, PassedPoint};

    /// Returns straight-line code of `bytes` bytes in instructions of 4 bytes, with a point every `every` bytes.
    fn straight(bytes: u64, every: u64) -> Operation {
        let steps: Vec<ExecutedInstruction> =
            (0..bytes / 4).map(|i| ExecutedInstruction { at: 0x1000 + 4 * i, len: 4 }).collect();
        let points = (1..bytes / every)
            .map(|i| PassedPoint { site: i as u32, steps_before: (i * every / 4) as usize, calls: vec![] })
            .collect();
        Operation { id: OperationId { kind: 3, index: 1 }, steps, points }
    }

    fn geometry(text: &str) -> Geometry {
        text.parse().unwrap()
    }

    #[test]
    fn footprints_of_straight_code() {
        let operation = straight(16 << 10, 1 << 10);
        let large = footprint(&operation, &operation, geometry("32768,8,64"));
        assert_eq!(large, Footprint { instructions: 4096, bytes: 16 << 10, lines: 256, cold: 256, warm: 0 });
        let small = footprint(&operation, &operation, geometry("8192,8,64"));
        assert_eq!((small.cold, small.warm), (256, 256), "twice the cache in turn: least recently used finds nothing");
    }

    #[test]
    fn a_loop_is_counted_once() {
        let mut operation = straight(1024, 512);
        let once = operation.steps.clone();
        operation.steps.extend(once);
        assert_eq!(code_size(&operation.steps, 64), (1024, 16));
    }

    #[test]
    fn the_knee_is_where_the_cache_is_full() {
        let operation = straight(16 << 10, 1 << 10);
        assert_eq!(knee(&operation.steps, geometry("32768,8,64")), None);
        assert_eq!(knee(&operation.steps, geometry("8192,8,64")), Some(2048), "8 KiB of 4-byte instructions");
    }

    #[test]
    fn points_part_what_does_not_fit() {
        let operation = straight(16 << 10, 1 << 10);
        assert_eq!(choose_points(&operation, geometry("32768,8,64")), [] as [usize; 0]);
        let chosen = choose_points(&operation, geometry("8192,8,64"));
        // The code of the switch needs a line, too: 7 KiB and a switch fit, 8 KiB and a switch do not.
        let steps_before: Vec<_> = chosen.iter().map(|&i| operation.points[i].steps_before * 4).collect();
        assert!(
            !steps_before.is_empty()
                && steps_before.iter().zip([0].iter().chain(&steps_before)).all(|(b, a)| b - a <= 8 << 10),
            "{steps_before:?}"
        );
        let (first, others) = team_misses(&operation, &chosen, 10, geometry("8192,8,64"));
        assert!(first >= 256.0 && others <= 8.0, "{first} {others}");
        let (_, serial) = team_misses(&operation, &[], 10, geometry("8192,8,64"));
        assert_eq!(serial, 256.0);
    }

    #[test]
    fn a_stretch_too_long_for_the_cache_gets_both_its_ends() {
        let mut operation = straight(16 << 10, 1 << 10);
        operation.points.retain(|p| !(2048..14 << 10).contains(&(p.steps_before * 4)));
        let chosen = choose_points(&operation, geometry("4096,8,64"));
        assert!(chosen.len() >= 2, "{chosen:?}");
    }
}
