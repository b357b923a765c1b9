//! Tests of paced terminals with real workers, on the engine of the driver tests, which has late responses and aborts.
//! Terminals are faster than specified, and everything else is as in a real run.

use std::collections::HashMap;

use super::*;
use crate::driver::tests::{lagging_engine, paced_plan};
use crate::workload::check;
use crate::workload::generate::deck::Kind;
use crate::workload::settings::Length;

/// Speed factor of the terminals: a cycle takes 0.2 s.
const SPEED: u32 = 100;

fn results(name: &str) -> DeliveryResults {
    let path = std::env::temp_dir().join(format!("tpcc-paced-{}-{name}", std::process::id()));
    DeliveryResults::open(&path).unwrap()
}

fn lines(results: &DeliveryResults) -> Vec<String> {
    let text = std::fs::read_to_string(results.path()).unwrap();
    std::fs::remove_file(results.path()).unwrap();
    text.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn terminals_are_answered_and_deliveries_are_done_later() {
    // Commits become durable three tickets late, and every seventh commit aborts.
    let (engine, loaded) = lagging_engine(3, 7, u64::MAX);
    let results = results("all");
    let plan = paced_plan(2, 1);
    let measured = run(&engine, &loaded, &plan, &results, SPEED, |_| {}).unwrap();
    assert_eq!(measured.failure, None);
    let (stats, paced) = (&measured.stats, measured.paced.as_ref().unwrap());
    let count = |kind: Kind| stats.kinds[kind as usize].counters.count;
    // Twenty terminals with cycles of 0.207 s send 193 requests in two seconds.
    assert!((100..=220).contains(&stats.completed()), "{}", stats.completed());
    assert!((1.9..3.0).contains(&measured.seconds), "{}", measured.seconds);
    assert!(count(Kind::NewOrder) > count(Kind::StockLevel) && count(Kind::StockLevel) > 0);
    assert!(stats.drawn.new_orders == count(Kind::NewOrder) && stats.drawn.payments == count(Kind::Payment));
    assert!(stats.aborts_in_all() > 0);
    let (cycles, deferrals) = (&paced.cycles, &paced.deferrals);
    assert_eq!(cycles.queued, count(Kind::Delivery));
    assert!(cycles.queued > 0 && deferrals.done + deferrals.left >= cycles.queued, "{deferrals:?}");
    assert!(deferrals.done > 0 && deferrals.limit_holds() == Some(true));
    assert_eq!(figures::limits_hold(stats, deferrals), Some(true));
    assert!(cycles.share_of_offered().unwrap() > 0.8);

    // The file has a line for each committed Delivery, including Deliveries of the warm-up, and no order occurs twice.
    let lines = lines(&results);
    assert!(lines.len() as u64 >= deferrals.done);
    let mut last: HashMap<(String, String), u64> = HashMap::new();
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[0].parse::<u64>().unwrap() <= words[1].parse::<u64>().unwrap(), "{line}");
        assert_eq!(words.len(), 4 + usize::from(loaded.scale.districts), "{line}");
        for district in &words[4..] {
            let (district, order) = district.split_once(':').unwrap();
            let Ok(order) = order.parse::<u64>() else { continue };
            let before = last.insert((words[2].to_owned(), district.to_owned()), order);
            assert!(before.is_none_or(|before| before < order), "{line}");
        }
    }
    let checked = check::check(&engine, &loaded, 1, &check::WarehousesDone::default()).unwrap();
    assert!(checked.passed(), "{:?}", checked.findings);
}

#[test]
fn a_failure_of_a_worker_ends_the_run_with_its_message() {
    let (engine, loaded) = lagging_engine(2, 5, 60);
    let results = results("failure");
    let measured = run(&engine, &loaded, &paced_plan(2, 1), &results, SPEED, |_| {}).unwrap();
    assert_eq!(measured.failure.as_deref(), Some("log: no space left; free some"));
    assert!(!measured.interrupted && measured.seconds < 1.9, "{}", measured.seconds);
    lines(&results);
}

#[test]
fn a_result_file_that_cannot_be_written_ends_the_run() {
    let (engine, loaded) = lagging_engine(0, 1_000, u64::MAX);
    let full = DeliveryResults::open(std::path::Path::new("/dev/full")).unwrap();
    let why = run(&engine, &loaded, &paced_plan(2, 1), &full, SPEED, |_| {}).err().unwrap();
    assert!(why.starts_with("/dev/full: results of Deliveries cannot be written"), "{why}");
}

#[test]
fn a_run_that_ends_in_its_warm_up_has_counted_nothing() {
    let (engine, loaded) = lagging_engine(2, 5, 60);
    let results = results("warm-up");
    let length = Length { warmup: Duration::from_secs(60), duration: None, transactions: None };
    let plan = RunPlan { length, ..paced_plan(2, 1) };
    let measured = run(&engine, &loaded, &plan, &results, SPEED, |_| {}).unwrap();
    assert!(measured.failure.is_some());
    assert_eq!((measured.stats.completed(), measured.seconds), (0, 0.0));
    assert_eq!(measured.paced.unwrap().cpu, None);
    lines(&results);
}
