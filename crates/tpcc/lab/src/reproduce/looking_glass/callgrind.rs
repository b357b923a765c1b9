//! Runs this program under Callgrind and splits the counts by component. As in [`cachegrind`](crate::reproduce::cachegrind),
//! the difference of two lengths gives the counts of one transaction.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use addr2line::Loader;

use super::attribution::{ComponentCosts, ComponentMap, Costs, split};
use super::component::{COMPONENTS, Component};
use crate::footprint::geometry::Geometry;
use crate::reproduce::cachegrind::{Counts, DataCaches, Totals};
use crate::reproduce::child;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::reading::read_output;

/// Line tables of a program: source files of its instructions.
pub(super) struct LineTables {
    loader: Loader,
    object: String,
    known: HashMap<u64, Option<Component>>,
}

impl LineTables {
    /// Reads the program's line tables.
    pub(super) fn open(program: &Path) -> Result<LineTables, Error> {
        let unreadable = |why: &dyn std::fmt::Display| {
            Error::failed(format!("{}: its line tables cannot be read: {why}", program.display()))
        };
        let loader = Loader::new(program).map_err(|error| unreadable(&error))?;
        let whole = program.canonicalize().map_err(|error| unreadable(&error))?;
        Ok(LineTables { loader, object: whole.display().to_string(), known: HashMap::new() })
    }
}

impl ComponentMap for LineTables {
    fn component(&mut self, object: &str, address: u64) -> Option<Component> {
        if object != self.object {
            return None;
        }
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let mut found = None;
        if let Ok(mut frames) = self.loader.find_frames(address) {
            while let Ok(Some(frame)) = frames.next() {
                found = frame.location.and_then(|location| Component::of(location.file?));
                if found.is_some() {
                    break;
                }
            }
        }
        self.known.insert(address, found);
        found
    }
}

/// Counts of a transaction, for each component and for all code.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComponentCounts {
    pub(super) components: [Counts; COMPONENTS],
    pub(super) all: Counts,
}

impl ComponentCounts {
    /// Computes the counts of one unit of work. The long run has `units` more units than the short one.
    fn between(short: &ComponentCosts, long: &ComponentCosts, units: f64) -> ComponentCounts {
        let of = |short_costs: &Costs, long_costs: &Costs| {
            Totals::new(&short.events, short_costs).per_unit(&Totals::new(&long.events, long_costs), units)
        };
        let components = std::array::from_fn(|i| of(&short.components[i], &long.components[i]));
        ComponentCounts { components, all: of(&short.all, &long.all) }
    }

    /// Counts of one component.
    pub(super) fn of(&self, component: Component) -> &Counts {
        &self.components[component as usize]
    }
}

/// Counts a short and a long run, with `data_caches` as the data cache and the level behind both first-level caches. `args`
/// returns the arguments of a run of a given length, and is called before each run.
pub(super) fn count(
    program: &Path,
    lengths: (u64, u64),
    data_caches: DataCaches,
    places: &mut LineTables,
    scratch: &Path,
    mut args: impl FnMut(u64) -> Result<Vec<String>, Error>,
) -> Result<ComponentCounts, Error> {
    let (short, long) = lengths;
    let mut run = |length: u64| one(program, &args(length)?, data_caches, places, scratch);
    let (counted_short, counted_long) = (run(short)?, run(long)?);
    Ok(ComponentCounts::between(&counted_short, &counted_long, (long - short) as f64))
}

/// Counts one run with Callgrind.
fn one(
    program: &Path,
    args: &[String],
    data_caches: DataCaches,
    places: &mut LineTables,
    scratch: &Path,
) -> Result<ComponentCosts, Error> {
    let file = scratch.join("callgrind.out");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--dump-instr=yes", "--dump-line=no", "--compress-strings=no", "--compress-pos=no"])
        .args(["--cache-sim=yes", "--branch-sim=yes"])
        .args([
            format!("--I1={}", Geometry::DEFAULT),
            format!("--D1={}", data_caches.d1),
            format!("--LL={}", data_caches.ll),
        ])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(args);
    let ended = child::run(&mut command, scratch)?;
    let text = read_output(&file);
    let _ = std::fs::remove_file(&file);
    match split(&text, places) {
        Some(split) if ended.status.success() => Ok(split),
        _ => Err(Error::failed(format!("callgrind: tpcc {}: {}", args.join(" "), ended.last_lines()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::cachegrind;

    /// The counted program is this one, running a test that uses no engine.
    #[test]
    fn instructions_of_a_real_binary_find_their_component() {
        if let Some(why) = cachegrind::unavailable() {
            eprintln!("not run: {why}");
            return;
        }
        let program = std::env::current_exe().unwrap();
        let test = "reproduce::looking_glass::component::tests::files_belong_to_components";
        let scratch = std::env::temp_dir().join(format!("tpcc-callgrind-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).unwrap();
        let mut tables = LineTables::open(&program).unwrap();
        let args = ["--exact".to_owned(), test.to_owned()];
        let counted = one(&program, &args, DataCaches::DEFAULT, &mut tables, &scratch).unwrap();
        std::fs::remove_dir_all(&scratch).unwrap();
        let of = |component: Component| counted.components[component as usize].first().copied().unwrap_or(0.0);
        assert!(of(Component::Workload) > 1_000.0 && of(Component::Workload) < counted.all[0], "{counted:?}");
        assert_eq!((of(Component::Locks), of(Component::Pool)), (0.0, 0.0), "no engine ran");
        for event in ["I1mr", "D1mr", "DLmr", "ILmr", "Bcm"] {
            assert!(counted.events.iter().any(|name| name == event), "{event}: {:?}", counted.events);
        }
    }

    #[test]
    fn what_both_runs_did_cancels() {
        let counted = |each: [f64; 2], all: [f64; 2]| ComponentCosts {
            events: vec!["Ir".to_owned(), "D1mr".to_owned()],
            components: std::array::from_fn(|_| each.to_vec()),
            all: all.to_vec(),
        };
        let (short, long) = (counted([100.0, 10.0], [1_000.0, 20.0]), counted([300.0, 30.0], [4_000.0, 50.0]));
        let one = ComponentCounts::between(&short, &long, 10.0);
        let of = |counts: &Counts| (counts.instructions, counts.d1_reads);
        assert_eq!((of(one.of(Component::Log)), of(&one.all)), ((20.0, 2.0), (300.0, 3.0)));
    }
}
