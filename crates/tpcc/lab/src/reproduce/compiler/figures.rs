//! Experiments of the compiler paper: Table 1, figures 7 to 9, and the interaction of section 3.8.

use super::builds::{change_percent, find_build, matrix, measure_builds};
use super::rows::{Class, FIGURE_7, Optimisation, ROWS};
use crate::reproduce::Results;
use crate::reproduce::builds::{
    ALL, BOLT, Build, BuildFigures, Comparison, FEEDBACK, NO_LTO, NOTHING, ONLY_FEEDBACK, PLAIN, PerTransaction,
    SEQUENTIALLY_CONSISTENT, SHARED, SWITCHED_OFF, Timing, compare_in,
};
use crate::reproduce::claims::{self, ClaimSpec};
use crate::reproduce::lab::Lab;
use crate::reproduce::report::{Series, Spread};
use tpcc_core::workload::error::Error;

/// Selects one of the counts.
type Counter = fn(&PerTransaction) -> f64;

/// Returns the throughput of a build relative to another build, with its interval.
fn against(measured: &[BuildFigures], with: &str, without: &str) -> Option<Spread> {
    find_build(measured, with)?.against(find_build(measured, without)?).map(Timing::spread)
}

/// Returns the speed-up of a row in per cent, with its interval.
fn speed_up(measured: &[BuildFigures], row: &Optimisation) -> Option<Spread> {
    let (with, without) = row.builds?;
    let per_cent = |ratio: f64| 100.0 * (ratio - 1.0);
    let Spread { mid, low, high } = against(measured, with, without)?;
    Some(Spread { mid: per_cent(mid), low: per_cent(low), high: per_cent(high) })
}

/// Returns the measurements of the builds for the figures. If there are none, the report gives the reason.
fn builds(lab: &mut Lab, findings: &mut Results) -> Result<Vec<BuildFigures>, Error> {
    match measure_builds(lab, findings)? {
        Ok(measured) => Ok(measured),
        Err(why) => {
            lab.say(&format!("nothing was compared: {why}"));
            findings.config.insert("not_compared".into(), why.into());
            Ok(Vec::new())
        }
    }
}

fn notes(findings: &mut Results, rows: &[&Optimisation]) {
    let notes = rows.iter().map(|row| (row.name.to_owned(), row.note.into())).collect::<serde_json::Map<_, _>>();
    let all = findings.config.entry("rows").or_insert_with(|| serde_json::Map::new().into());
    if let Some(all) = all.as_object_mut() {
        all.extend(notes);
    }
}

/// Measures Table 1: effects of five optimisations, each compared with the build without the optimisation.
pub(super) fn table1(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let measured = builds(lab, findings)?;
    let rows: Vec<&Optimisation> = ROWS.iter().filter(|row| row.paper_l1.is_some()).collect();
    let series = |metric: &str, unit: &str| Series::new(format!("compiler-table1 {metric}"), "optimisation", unit);
    let mut paper = series("throughput, the paper's", "per cent");
    let mut ours = series("throughput", "per cent");
    let mut paper_misses = series("L1 data read misses, the paper's", "per cent");
    for row in &rows {
        paper.push_exact(row.name, row.paper);
        ours.push(row.name, speed_up(&measured, row));
        paper_misses.push_exact(row.name, row.paper_l1);
    }
    findings.series.extend([paper, ours, paper_misses]);
    let counts: [(&str, Counter); 4] = [
        ("L1 data misses", |c| c.d1_misses),
        ("L1 instruction misses", |c| c.i1_misses),
        ("instructions", |c| c.instructions),
        ("mispredictions", |c| c.mispredictions),
    ];
    for (metric, count) in counts {
        let mut counted = series(&format!("{metric}, counted"), "per cent");
        for row in &rows {
            let pair =
                row.builds.and_then(|(with, without)| find_build(&measured, with).zip(find_build(&measured, without)));
            counted.push_exact(row.name, pair.and_then(|(with, without)| change_percent(with, without, count)));
        }
        findings.series.push(counted);
    }
    notes(findings, &rows);
    let why = match findings.config.get("not_compared").and_then(|why| why.as_str()) {
        Some(why) => why.to_owned(),
        None => "the build with everything, or the plain one, is not in the list of builds".to_owned(),
    };
    let against_plain = |spec: ClaimSpec, build: &str, what: &str| match find_build(&measured, build)
        .zip(find_build(&measured, PLAIN))
    {
        Some((build, plain)) => spec.measured(build.against(plain).map(Timing::spread), what),
        None if build == BOLT && find_build(&measured, PLAIN).is_some() => {
            spec.missing("llvm-bolt was not there when the builds were made: install it, and make them again")
        }
        None => spec.missing(&why),
    };
    let pairs = [
        (claims::PGO_ALONE, ONLY_FEEDBACK, NOTHING),
        (claims::COMPILER_ALL, ALL, SWITCHED_OFF),
        (claims::COMPILER_REST, ALL, ONLY_FEEDBACK),
        (claims::PREEMPTION, SWITCHED_OFF, SHARED),
        (claims::INLINING, ALL, NO_LTO),
        (claims::GROUPING, ALL, FEEDBACK),
        (claims::MEMORY_ORDERING, ALL, SEQUENTIALLY_CONSISTENT),
    ];
    for (spec, with, without) in pairs {
        findings.add_claim(match against(&measured, with, without) {
            Some(ratio) => {
                let note = format!("the build '{with}' against '{without}'; 1 warehouse, 1 worker");
                spec.measured(Some(ratio), note)
            }
            None if measured.is_empty() => spec.missing(&why),
            None => spec.missing(format!("the build '{with}' or '{without}' is not in the list of builds")),
        });
    }
    let all = [
        against_plain(
            claims::PGO_VS_PLAIN,
            FEEDBACK,
            "feedback, fixed addresses and the crate tpcc in one codegen unit, against the plain release, \
             which has the laboratory too; 1 warehouse, 1 worker",
        ),
        against_plain(
            claims::PGO_LAYOUT_VS_PLAIN,
            BOLT,
            "feedback, fixed addresses, the crate tpcc in one codegen unit and blocks laid out anew, against the plain release, \
             which has the laboratory too; 1 warehouse, 1 worker",
        ),
    ];
    all.into_iter().for_each(|claim| findings.add_claim(claim));
    Ok(())
}

/// Measures Figure 7: speed-up of each class of optimisations. The speed-up of a class is the product of the ratios of its
/// optimisations.
pub(super) fn fig7(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let measured = builds(lab, findings)?;
    let mut paper = Series::new("compiler-fig7 the paper's", "class", "per cent");
    let mut ours = Series::new("compiler-fig7 here", "class", "per cent");
    for (class, name, value) in FIGURE_7 {
        paper.push_exact(name, Some(value));
        // Only rows of the paper count. The other rows measure the same optimisations in another way.
        let rows = ROWS.iter().filter(|row| row.class == class && row.paper.is_some());
        let parts: Vec<Spread> = rows.filter_map(|row| speed_up(&measured, row)).collect();
        let product =
            |of: fn(&Spread) -> f64| 100.0 * (parts.iter().map(|part| 1.0 + of(part) / 100.0).product::<f64>() - 1.0);
        let all = Spread { mid: product(|s| s.mid), low: product(|s| s.low), high: product(|s| s.high) };
        ours.push(name, (!parts.is_empty()).then_some(all));
    }
    findings.series.extend([paper, ours]);
    Ok(())
}

/// Measures Figure 8: speed-ups of optimisations of data access.
pub(super) fn fig8(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let classes = [Class::Preemption, Class::DataLayout, Class::Context];
    bars(lab, findings, "compiler-fig8", &classes)
}

/// Measures Figure 9: speed-ups of optimisations of code.
pub(super) fn fig9(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    bars(lab, findings, "compiler-fig9", &[Class::Code, Class::Unclassed, Class::Feedback])
}

fn bars(lab: &mut Lab, findings: &mut Results, figure: &str, classes: &[Class]) -> Result<(), Error> {
    let measured = builds(lab, findings)?;
    let rows: Vec<&Optimisation> = ROWS.iter().filter(|row| classes.contains(&row.class)).collect();
    let mut paper = Series::new(format!("{figure} the paper's"), "optimisation", "per cent");
    let mut ours = Series::new(format!("{figure} here"), "optimisation", "per cent");
    let mut instructions = Series::new(format!("{figure} instructions, counted"), "optimisation", "per cent");
    let mut misses = Series::new(format!("{figure} L1 instruction misses, counted"), "optimisation", "per cent");
    for row in &rows {
        paper.push_exact(row.name, row.paper);
        ours.push(row.name, speed_up(&measured, row));
        let pair =
            row.builds.and_then(|(with, without)| find_build(&measured, with).zip(find_build(&measured, without)));
        instructions
            .push_exact(row.name, pair.and_then(|(with, without)| change_percent(with, without, |c| c.instructions)));
        misses.push_exact(row.name, pair.and_then(|(with, without)| change_percent(with, without, |c| c.i1_misses)));
    }
    findings.series.extend([paper, ours, instructions, misses]);
    notes(findings, &rows);
    Ok(())
}

/// Flags of `tpcc run` that turn everything off, in addition to the build.
const RUN_OFF: &str = "--prefetch off --latches plain --large-pages off --partition none";

/// Measures section 3.8: throughput with everything on against everything off, with two workers on eight warehouses.
pub(super) fn interaction(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let alone = builds(lab, findings)?;
    let missing = "the build with everything, or that with nothing, is not in the list of builds";
    let matrix = match matrix(lab, findings)? {
        Ok(matrix) => matrix,
        Err(why) => {
            findings.add_claim(claims::ALL_ON_VS_OFF.missing(why));
            return Ok(());
        }
    };
    let Some((on, off)) = matrix.program(ALL).zip(matrix.program(SWITCHED_OFF)) else {
        findings.add_claim(claims::ALL_ON_VS_OFF.missing(missing));
        return Ok(());
    };
    let builds = [
        Build { name: "everything off".into(), program: off.to_owned(), flags: RUN_OFF.into() },
        Build { name: "everything on".into(), program: on.to_owned(), flags: String::new() },
    ];
    let (rounds, seconds) = if lab.quick { (7, 4) } else { (11, 8) };
    let how = Comparison { warehouses: 8, workers: 2, flags: "", rounds, seconds, counted: false };
    let measured = compare_in(lab, &builds, how)?;
    let whole = measured.get(1).and_then(|on| on.timed).map(Timing::spread);
    let parts: f64 = ROWS
        .iter()
        // Rows of the paper's figure 7 without feedback.
        .filter(|row| row.paper.is_some() && !matches!(row.class, Class::Unclassed | Class::Feedback))
        .filter_map(|row| speed_up(&alone, row))
        .map(|part| 1.0 + part.mid / 100.0)
        .product();
    let mut ours = Series::new("compiler-interaction here", "what", "times");
    ours.push("everything on / off, 2 workers, 8 warehouses", whole);
    for (name, off) in [("the builds / off", NOTHING), ("the builds / only feedback", ONLY_FEEDBACK)] {
        let together = find_build(&alone, ALL).zip(find_build(&alone, off)).and_then(|(on, off)| on.against(off));
        ours.push(format!("{name}, 1 worker, 1 warehouse"), together.map(Timing::spread));
    }
    ours.push_exact("product of the parts but feedback, 1 worker, 1 warehouse", (!alone.is_empty()).then_some(parts));
    let mut paper = Series::new("compiler-interaction the paper's", "what", "times");
    paper.push_exact("everything but feedback, measured", Some(1.1876));
    paper.push_exact("everything but feedback, product of the parts", Some(1.2188));
    paper.push_exact("with feedback", Some(1.4));
    findings.series.extend([paper, ours]);
    findings.add_claim(claims::ALL_ON_VS_OFF.measured(
        whole,
        "feedback, inlining across crates, fixed addresses, prefetch, optimistic latches, large pages, terminals kept by a \
         worker, against none of them; atomics are ordered alike",
    ));
    Ok(())
}
