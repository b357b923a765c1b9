//! Counted instructions of loops in epochs: of the whole transaction, and of the part that the order of the epochs makes
//! sequential. Both relative to the transaction on one core that announces groups of rows.
//!
//! The epochs run on one thread. On several, the waits of idle threads would be counted too.

use std::path::Path;
use std::process::Command;

use crate::footprint::geometry::Geometry;
use crate::reproduce::Results;
use crate::reproduce::cachegrind::DataCaches;
use crate::reproduce::child;
use crate::reproduce::claims::{self, VsBest};
use crate::reproduce::directory;
use crate::reproduce::lab::{CountSpec, Lab, SEED, arguments, arguments_with_path};
use crate::reproduce::report::Series;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::reading::read_output;

/// The counted transactions.
pub(super) const COUNTED: [&str; 3] = ["new-order-150", "delivery-outer", "stock-level"];

/// Numbers of epochs into which the iterations of a loop are divided.
const EPOCHS: [usize; 3] = [1, 2, 4];

/// Functions whose instructions are sequential because of the order of the epochs: the beginning and the end of epochs, with
/// the last closure of the loop. The steps of a New-Order after its loop place the rows of all epochs.
const IN_ORDER: [&str; 3] = ["*LoopOrder*::next*", "*LoopOrder*::end*", "*long_order::end_groups*"];

/// Counts the three transactions.
pub(super) fn counts(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    if let Some(why) = lab.uncountable.clone() {
        for VsBest { instructions, in_order, .. } in claims::VS_BEST {
            findings.add_claim(instructions.missing(why.clone()));
            findings.add_claim(in_order.missing(why.clone()));
        }
        return Ok(());
    }
    let lengths = if lab.quick { (40, 140) } else { (100, 400) };
    for (mix, claims) in COUNTED.into_iter().zip(claims::VS_BEST) {
        lab.say(&format!("counting {mix} in epochs"));
        let in_epochs = EPOCHS.map(|number| format!("--only tls-seq --epoch-workers {number}"));
        let best = "--only sequential-prefetch".to_owned();
        let specs: Vec<CountSpec> = in_epochs.iter().chain([&best]).map(|how| count_spec(mix, how, lengths)).collect();
        let Some(counted) = lab.count(&specs)? else { return Ok(()) };
        let Some((best, in_epochs_counted)) = counted.split_last() else { return Ok(()) };
        let mut whole = Series::new(format!("speculate-counts {mix}"), "epochs of a loop", RATIO);
        let mut part = Series::new(format!("speculate-counts {mix}, in order"), "epochs of a loop", RATIO);
        let (mut most, mut most_in_order) = (0.0_f64, 0.0_f64);
        for ((number, how), counts) in EPOCHS.iter().zip(&in_epochs).zip(in_epochs_counted) {
            let ratio = counts.instructions / best.instructions;
            let in_order = count_in_order(lab, mix, how, lengths.1)? / best.instructions;
            (most, most_in_order) = (most.max(ratio), most_in_order.max(in_order));
            whole.push_exact(number.to_string(), Some(ratio));
            part.push_exact(number.to_string(), Some(in_order));
        }
        findings.series.extend([whole, part]);
        let note = "counted on one thread, the largest of 1, 2 and 4 epochs of a loop; relative to one core \
                    that announces groups of rows";
        findings.add_claim(claims.instructions.exact(most, note));
        findings.add_claim(claims.in_order.exact(most_in_order, note));
    }
    Ok(())
}

const RATIO: &str = "instructions, one core at its best = 1";

/// Returns the arguments of a run without its number of transactions and its database.
fn run_args(mix: &str, how: &str) -> String {
    format!("latency --mix {mix} --seed {SEED} {how}")
}

fn count_spec(mix: &str, how: &str, lengths: (u64, u64)) -> CountSpec {
    CountSpec {
        args: arguments(&run_args(mix, how)),
        length_flag: "--transactions",
        lengths,
        work_per_unit: 1.0,
        i1: Geometry::DEFAULT,
        data_caches: DataCaches::DEFAULT,
        warehouses: Some(1),
    }
}

/// Counts the instructions of a transaction in the functions [`IN_ORDER`], with what they call. Nothing else calls them.
fn count_in_order(lab: &mut Lab, mix: &str, how: &str, transactions: u64) -> Result<f64, Error> {
    let untouched = lab.untouched(1)?;
    let own = lab.scratch().join("counted-in-order");
    directory::copy(&untouched, &own)?;
    let args = arguments_with_path(&format!("{} --transactions {transactions} --data", run_args(mix, how)), &own);
    let counted = collected(lab.program(), &args, lab.scratch());
    // Errors are ignored: the parent directory is removed at the end.
    let _ = std::fs::remove_dir_all(&own);
    Ok(counted? / transactions as f64)
}

/// Runs a program under Callgrind and returns the number of instructions in the functions [`IN_ORDER`].
fn collected(program: &Path, args: &[String], scratch: &Path) -> Result<f64, Error> {
    let file = scratch.join("callgrind-in-order.out");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--collect-atstart=no"]);
    command.args(IN_ORDER.map(|function| format!("--toggle-collect={function}")));
    command.arg(format!("--callgrind-out-file={}", file.display())).arg(program).args(args);
    let ended = child::run(&mut command, scratch)?;
    let text = read_output(&file);
    let _ = std::fs::remove_file(&file);
    match total_of(&text) {
        Some(total) if ended.status.success() => Ok(total),
        _ => Err(Error::failed(format!("callgrind: tpcc {}: {}", args.join(" "), ended.last_lines()))),
    }
}

/// Returns the number of instructions that a file of Callgrind reports for the whole run.
fn total_of(file: &str) -> Option<f64> {
    let mut totals =
        file.lines().filter_map(|line| line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")));
    totals.next_back()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_callgrind_file_is_read() {
        assert_eq!(total_of("events: Ir\nsummary: 12\nfn=(1) a\n+1 5\ntotals: 17\n"), Some(17.0));
        assert_eq!(total_of("events: Ir\nsummary: 12 3\n"), Some(12.0));
        assert_eq!(total_of("events: Ir\n"), None);
    }

    #[test]
    fn each_counted_transaction_has_its_claims() {
        for (mix, claims) in COUNTED.into_iter().zip(claims::VS_BEST) {
            assert!(claims.instructions.name.ends_with(&mix.replace('-', "_")), "{mix}");
        }
    }
}
