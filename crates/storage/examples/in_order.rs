//! A bulk import on several cores, in one transaction: orders with an index of the buyers, and a total of each buyer.
//!
//! The iterations of the import run at the same time. The results come in order, and the database is the same as after an
//! import on one core.

use std::collections::BTreeMap;
use std::time::Instant;

use storage::{Database, Options, SecondaryIndex, Table, TxnError};

/// Orders by their random identifiers: buyer and amount in cents.
const ORDERS: Table<u64, (u32, i64)> = Table::new("orders").with_index::<ByBuyer>();
/// Total amount of each buyer.
const TOTALS: Table<u32, i64> = Table::new("totals");

struct ByBuyer;

impl SecondaryIndex for ByBuyer {
    type Key = u64;
    type Row = (u32, i64);
    type By = u32;
    const NAME: &'static str = "by_buyer";

    fn by(_number: &u64, (buyer, _): &(u32, i64)) -> Option<u32> {
        Some(*buyer)
    }
}

/// Numbers of orders and buyers of the file that is imported.
const LINES: u64 = 100_000;
const BUYERS: u64 = 5_000;
/// Number of lines of an iteration.
const GROUP: usize = 64;

/// Lines of the file: identifier of the order, buyer, amount.
fn file() -> Vec<String> {
    let mixed = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (0..LINES).map(|n| format!("{:x};{};{}", mixed(n), mixed(n) % BUYERS, mixed(n + LINES) % 10_000)).collect()
}

fn parse(line: &str) -> Option<(u64, (u32, i64))> {
    let (identifier, rest) = line.split_once(';')?;
    let (buyer, amount) = rest.split_once(';')?;
    Some((u64::from_str_radix(identifier, 16).ok()?, (buyer.parse().ok()?, amount.parse().ok()?)))
}

/// Imports the file on this number of threads. Returns the seconds that it took, and the totals.
fn import(threads: usize, file: &[String]) -> Result<(f64, BTreeMap<u32, i64>), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("lockstep-in-order-{}-{threads}", std::process::id()));
    let db = Database::open(&directory, Options::new().buffer_pool(256 << 20).loop_threads(threads))?;
    let begun = Instant::now();
    let mut tx = db.begin()?;
    let mut totals = BTreeMap::<u32, i64>::new();
    tx.in_order(
        file.chunks(GROUP),
        |tx, lines| {
            let rows: Vec<_> = lines.iter().filter_map(|line| parse(line)).collect();
            tx.put_many(&ORDERS, &rows)?;
            Ok::<_, TxnError>(rows)
        },
        // Each iteration would change the same totals, so they are added up in order.
        |rows| rows.into_iter().for_each(|(_, (buyer, amount))| *totals.entry(buyer).or_default() += amount),
    )?;
    tx.put_many(&TOTALS, &totals.iter().map(|(buyer, total)| (*buyer, *total)).collect::<Vec<_>>())?;
    tx.commit()?;
    let seconds = begun.elapsed().as_secs_f64();

    let tx = db.begin()?;
    let found = tx.range(&TOTALS, ..)?.collect::<Result<BTreeMap<_, _>, _>>()?;
    assert_eq!(found, totals);
    drop(tx);
    db.close()?;
    std::fs::remove_dir_all(directory)?;
    Ok((seconds, totals))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = file();
    let (one, expected) = import(1, &file)?;
    let (two, found) = import(2, &file)?;
    assert_eq!(found, expected, "the import has the same result on any number of threads");
    println!("{LINES} orders of {} buyers: {one:.2} s on one thread, {two:.2} s on two", found.len());
    Ok(())
}
