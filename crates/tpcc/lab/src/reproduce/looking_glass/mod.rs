//! S. Harizopoulos, D. J. Abadi, S. Madden, M. Stonebraker, "OLTP Through the Looking Glass, and What We Found There",
//! SIGMOD 2008.
//!
//! The paper removes one component of Shore after the other, and counts the remaining instructions. Here the release binary
//! runs whole, and each of its instructions is counted and assigned to a component by its source file ([`attribution`]).
//! This gives the cost of a component in the presence of all others, but not the work that it causes in others. The last
//! step is therefore a real removal, `--engine floor`, which has none of the components.
//!
//! The time of a component is modelled ([`breakdown`](super::breakdown)): its instructions and their misses in simulated
//! caches, times the costs of events on this machine. The report has the measured time of a whole transaction beside the sum
//! of its components. The sum is larger: the work of services (cleaning pages, flushing the log) is counted with the
//! transactions that do this work, while other threads do it in the timed run.

mod attribution;
mod callgrind;
mod component;

use super::breakdown::{Events, ExposedCosts, LARGE_PAGES, Model, Probe, SECOND_LEVEL, SMALL_PAGES, THIRD_LEVEL};
use super::cachegrind::{Counts, DataCaches};
use super::claims::{self, ClaimSpec};
use super::lab::{CountSpec, Lab, SEED, Timings, arguments, arguments_with_path};
use super::report::{Series, Spread};
use super::{Experiment, Paper, Results, directory};
use crate::footprint::geometry::Geometry;
use callgrind::{ComponentCounts, LineTables};
use component::Component;
use tpcc_core::workload::error::Error;

/// The paper "OLTP Through the Looking Glass", and its experiments.
pub(super) const PAPER: Paper = Paper {
    id: "looking-glass",
    title: "Harizopoulos, Abadi, Madden and Stonebraker, OLTP Through the Looking Glass, and What We Found There, SIGMOD 2008",
    experiments: &[
        Experiment {
            id: "looking-glass-payment",
            title: "instructions of Payment by part, told apart by source file, their time modelled, and what is left without all (Figure 5)",
            minutes: (4.0, 1.0),
            run: payment,
        },
        Experiment {
            id: "looking-glass-new-order",
            title: "instructions of New-Order by part, told apart by source file, their time modelled, and what is left without all (Figures 6 and 7)",
            minutes: (4.0, 1.0),
            run: new_order,
        },
    ],
};

/// Components in the order of their removal. Trees, statements and the transaction remain.
const REMOVED: [Component; 5] =
    [Component::Locks, Component::Latches, Component::Log, Component::Pool, Component::Codec];

fn payment(lab: &mut Lab, results: &mut Results) -> Result<(), Error> {
    removal_steps(lab, results, "looking-glass-payment", "payment", &[], claims::GLASS_LEFT_PAYMENT)
}

fn new_order(lab: &mut Lab, results: &mut Results) -> Result<(), Error> {
    let (parts, left) = (&claims::GLASS_NEW_ORDER, claims::GLASS_LEFT_NEW_ORDER);
    removal_steps(lab, results, "looking-glass-new-order", "new-order", parts, left)
}

/// Measures one transaction on the whole engine and on the floor. `parts` are the claims on locks, latches, the log and the
/// pool, in this order.
fn removal_steps(
    lab: &mut Lab,
    results: &mut Results,
    id: &str,
    mix: &str,
    parts: &[ClaimSpec],
    left: ClaimSpec,
) -> Result<(), Error> {
    let timed = time_engines(lab, mix)?;
    let mut time = Series::new(format!("{id} time"), "engine", "us a transaction");
    for engine in ["whole", "floor"] {
        let us = timed.rates(engine).iter().map(|rate| 1e6 / rate);
        time.push(engine, Spread::of(us));
    }
    results.series.push(time);
    if let Some(why) = lab.uncountable.clone() {
        parts.iter().chain([&left]).for_each(|spec| results.add_claim(spec.missing(why.clone())));
        return Ok(());
    }
    let parts_counted = count_engine(lab, mix)?;
    let counted = &parts_counted.second;
    let floor = count_floor(lab, mix)?;
    let mut each = Series::new(format!("{id} parts"), "part", "instructions a transaction");
    for component in Component::ALL {
        each.push_exact(component.name(), Some(counted.of(component).instructions));
    }
    results.series.push(each);
    let mut rest = counted.all.instructions;
    let mut steps = Series::new(format!("{id} less each part's own"), "left", "instructions a transaction");
    steps.push_exact("everything", Some(rest));
    for component in REMOVED {
        rest -= counted.of(component).instructions;
        steps.push_exact(format!("less {}", component.name()), Some(rest));
    }
    steps.push_exact("floor", floor);
    results.series.push(steps);
    lab.say("probing what misses cost beside other work");
    match parts_counted.model() {
        Some(model) => results.series.push(parts_counted.times(id, &model, timed.rates("whole"))),
        None => lab.say("the probes are for x86-64: no time by part"),
    }
    let shares = [Component::Locks, Component::Latches, Component::Log, Component::Pool];
    let note = "of all instructions; told apart by source file while all parts are at work, where the paper takes the part \
                away";
    let label = "per cent of all instructions";
    let mut here = Series::new(format!("{id} shares"), "part", label);
    let mut paper = Series::new(format!("{id} shares, paper"), "part", label);
    for (place, component) in shares.into_iter().enumerate() {
        let share = counted.of(component).instructions / counted.all.instructions;
        here.push_exact(component.name(), Some(100.0 * share));
        if let Some(spec) = parts.get(place) {
            paper.push_exact(component.name(), spec.paper.map(|share| 100.0 * share));
            results.add_claim(spec.exact(share, note));
        }
    }
    results.series.push(here);
    if !parts.is_empty() {
        results.series.push(paper);
    }
    let note = "instructions of the floor, which has none of the parts, to those of the whole engine";
    results.add_claim(match floor {
        Some(floor) => left.exact(floor / counted.all.instructions, note),
        None => left.missing("the floor could not be counted"),
    });
    Ok(())
}

/// Returns the arguments of a run of one worker with inline services, so that one thread does all work.
fn single_worker_args(mix: &str) -> String {
    format!(
        "run --warehouses 1 --workers 1 --mix {mix} --warmup 0 --seed {SEED} --durability async --buffer-pool 456 \
         --check off --background inline"
    )
}

/// Numbers of transactions of the short and of the long counted run.
fn lengths(lab: &Lab) -> (u64, u64) {
    if lab.quick { (1_000, 3_000) } else { (2_000, 8_000) }
}

/// Counts of a transaction by component, with each set of simulated caches.
struct CountsByCache {
    second: ComponentCounts,
    third: ComponentCounts,
    pages: ComponentCounts,
}

impl CountsByCache {
    fn events(&self, counts: impl Fn(&ComponentCounts) -> Counts) -> Events {
        Events::of_counts(&counts(&self.second), &counts(&self.third), &counts(&self.pages))
    }

    /// Measures the costs of events beside the work of this transaction.
    fn model(&self) -> Option<Model> {
        let exposed = ExposedCosts::measure(&self.events(|split| split.all))?;
        Some(Model { probe: Probe::measure(), exposed })
    }

    /// Returns the modelled nanoseconds of each component, and the measured nanoseconds of the whole transaction at these
    /// `rates`.
    fn times(&self, id: &str, model: &Model, rates: &[f64]) -> Series {
        let modelled = |events: &Events| Some(model.breakdown(events).sum());
        let mut times = Series::new(format!("{id} time of parts, modelled"), "part", "ns a transaction");
        for component in Component::ALL {
            times.push_exact(component.name(), modelled(&self.events(|split| *split.of(component))));
        }
        times.push_exact("sum, services included", modelled(&self.events(|split| split.all)));
        times.push("measured", Spread::of(rates.iter().map(|rate| 1e9 / rate)));
        times
    }
}

/// Counts a transaction on the whole engine.
fn count_engine(lab: &mut Lab, mix: &str) -> Result<CountsByCache, Error> {
    let pages = if storage::large_pages_available().is_ok() { LARGE_PAGES } else { SMALL_PAGES };
    let untouched = lab.untouched(1)?;
    let own = lab.scratch().join("looking-glass");
    let mut tables = LineTables::open(lab.program())?;
    let mut count = |data_caches| {
        lab.say(&format!("counting {mix}, instruction by instruction"));
        callgrind::count(lab.program(), lengths(lab), data_caches, &mut tables, lab.scratch(), |transactions| {
            directory::copy(&untouched, &own)?;
            Ok(arguments_with_path(&format!("{} --transactions {transactions} --data", single_worker_args(mix)), &own))
        })
    };
    let counted = CountsByCache { second: count(SECOND_LEVEL)?, third: count(THIRD_LEVEL)?, pages: count(pages)? };
    // Errors are ignored: the parent directory is removed at the end.
    let _ = std::fs::remove_dir_all(&own);
    Ok(counted)
}

/// Counts the instructions of a transaction on the floor.
fn count_floor(lab: &mut Lab, mix: &str) -> Result<Option<f64>, Error> {
    lab.say(&format!("counting {mix} on the floor"));
    let args = format!("run --engine floor --warehouses 1 --mix {mix} --warmup 0 --seed {SEED} --check off");
    let count = CountSpec {
        args: arguments(&args),
        length_flag: "--transactions",
        lengths: lengths(lab),
        work_per_unit: 1.0,
        i1: Geometry::DEFAULT,
        data_caches: DataCaches::DEFAULT,
        warehouses: None,
    };
    Ok(lab.count(&[count])?.and_then(|counts| Some(counts.first()?.instructions)))
}

/// Measures the transactions per second on the whole engine and on the floor, in alternation.
fn time_engines(lab: &mut Lab, mix: &str) -> Result<Timings, Error> {
    let (rounds, seconds) = if lab.quick { (3, 1) } else { (7, 3) };
    let whole = lab.run_args(1, 1, &format!("--workers 1 --mix {mix} --warmup 1 --duration {seconds}"))?;
    let floor = format!(
        "run --engine floor --warehouses 1 --mix {mix} --check off --seed {SEED} --warmup 1 --duration {seconds}"
    );
    lab.interleave(rounds, &[("whole", whole), ("floor", arguments(&floor))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_taken_away_once_and_the_rest_stays() {
        let rest: Vec<_> = Component::ALL.into_iter().filter(|part| !REMOVED.contains(part)).collect();
        assert_eq!(rest, [Component::Workload, Component::Statements, Component::Trees]);
        assert_eq!(REMOVED.len() + rest.len(), Component::ALL.len());
    }
}
