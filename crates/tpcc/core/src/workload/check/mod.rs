//! Consistency check of a loaded database: the twelve conditions of clause 3.3.2 and additional rules ([`rule`]).
//!
//! All sums are integers. Memory is bounded. The sums over HISTORY (`history`) need memory for the customers of a group of
//! warehouses; then each thread needs memory for the customers and some thousand orders of one district (`district`).
//! Condition 11 is checked in the form that also holds after a run, because the specification's form holds for the initial
//! population only.

mod district;
mod history;
pub mod rule;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::workload::engine::Engine;
use crate::workload::interrupt;
use crate::workload::loaded::Loaded;
use crate::workload::ops::Read;
use crate::workload::schema::TableId;
use crate::workload::schema::keys::{DistrictKey, ItemKey, StockKey, WarehouseKey};
use crate::workload::schema::tables::{District, Item, Stock, Warehouse};
use crate::workload::threads::{self, SharedWorkError};
use history::Payments;
use rule::{Invariant, Violations};

/// Number of rows of each of the nine tables, indexed by [`TableId`].
pub type RowCounts = [u64; 9];

/// Result of a consistency check.
#[derive(Debug)]
pub struct Audit {
    /// Violations of each rule.
    pub findings: Violations,
    /// Rules that were checked, including the twelve conditions.
    pub checked_rules: &'static [Invariant],
    /// Number of rows of each table.
    pub rows: RowCounts,
    /// Duration of the check in seconds.
    pub seconds: f64,
    /// True if a signal ended the check early. The result is then inconclusive.
    pub interrupted: bool,
}

impl Audit {
    /// Returns true if the check is complete and every rule holds.
    pub fn passed(&self) -> bool {
        !self.interrupted && self.checked_rules.iter().all(|&rule| self.findings.of(rule).times == 0)
    }

    /// Returns the number of the twelve conditions that hold.
    pub fn conditions_held(&self) -> usize {
        Invariant::ALL.iter().filter(|rule| rule.condition().is_some() && self.findings.of(**rule).times == 0).count()
    }
}

/// Number of warehouses whose payments one pass over HISTORY sums. The sums need 30 MB.
const GROUP: u32 = 64;

/// Progress of a check.
#[derive(Default)]
pub struct WarehousesDone {
    warehouses: AtomicU64,
}

impl WarehousesDone {
    /// Returns the number of checked warehouses.
    pub fn warehouses(&self) -> u64 {
        self.warehouses.load(Ordering::Relaxed)
    }
}

/// Checks the whole database with up to `threads` threads. No transaction may run meanwhile.
///
/// # Errors
/// Errors of the engine, or an error if the system provides too few threads.
pub fn check<E: Engine>(
    engine: &E,
    loaded: &Loaded,
    threads: usize,
    progress: &WarehousesDone,
) -> Result<Audit, SharedWorkError<E::Error>> {
    let reader = || engine.reader().map_err(SharedWorkError::Work);
    let start = Instant::now();
    let mut findings = Violations::default();
    let mut totals = Totals::new(loaded.warehouses);
    let mut stock_sums = vec![Sales::default(); loaded.warehouses as usize];
    let mut first = 1;
    while first <= loaded.warehouses && !interrupt::requested() {
        let last = first.saturating_add(GROUP - 1).min(loaded.warehouses);
        let payments =
            history::sum_payments(&mut reader()?, loaded, first, last, &mut findings).map_err(SharedWorkError::Work)?;
        totals.rows[TableId::History as usize] = payments.rows;
        let next = AtomicU64::new(u64::from(first));
        let work = || -> Result<Vec<WarehouseResult>, E::Error> {
            let mut reader = engine.reader()?;
            let mut parts = Vec::new();
            loop {
                let w = next.fetch_add(1, Ordering::Relaxed);
                if w > u64::from(last) || interrupt::requested() {
                    return Ok(parts);
                }
                parts.push(check_warehouse(&mut reader, loaded, &payments, w as u32)?);
                progress.warehouses.fetch_add(1, Ordering::Relaxed);
            }
        };
        let results = Mutex::new(Vec::new());
        let run = || {
            let result = work();
            results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        };
        let others = threads.min((last - first + 1) as usize).saturating_sub(1);
        threads::run_shared(others, "checker", run).map_err(SharedWorkError::Threads)?;
        let mut parts = Vec::new();
        for result in results.into_inner().unwrap_or_else(PoisonError::into_inner) {
            parts.extend(result.map_err(SharedWorkError::Work)?);
        }
        // Results are sorted by warehouse, so that the merged result does not depend on the distribution over threads.
        parts.sort_unstable_by_key(|part| part.w);
        for part in parts {
            stock_sums[part.w as usize - 1] = part.stock;
            findings.append(part.findings);
            totals.merge(&part.totals);
        }
        first = last + 1;
    }
    let interrupted = interrupt::requested();
    if !interrupted {
        check_items(&mut reader()?, loaded, &mut findings, &mut totals).map_err(SharedWorkError::Work)?;
        for (w, (counted, sold)) in (1..).zip(stock_sums.iter().zip(&totals.sold)) {
            if counted != sold {
                findings.add(Invariant::StockSums, || {
                    format!(
                        "warehouse {w}: stock says {} sold in {} lines, {} of them remote; lines say {} in {}, {} remote",
                        counted.quantity, counted.lines, counted.remote, sold.quantity, sold.lines, sold.remote
                    )
                });
            }
        }
    }
    let checked_rules = &Invariant::ALL;
    Ok(Audit { findings, checked_rules, rows: totals.rows, seconds: start.elapsed().as_secs_f64(), interrupted })
}

/// Sales from a warehouse's stock since the load: totals over its rows of STOCK, or over order lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sales {
    quantity: u64,
    lines: u64,
    remote: u64,
}

/// Totals over the checked warehouses.
struct Totals {
    rows: RowCounts,
    /// Sales of each supplying warehouse, computed from order lines.
    sold: Vec<Sales>,
}

impl Totals {
    fn new(warehouses: u32) -> Totals {
        Totals { rows: [0; 9], sold: vec![Sales::default(); warehouses as usize] }
    }

    fn count(&mut self, table: TableId, rows: u64) {
        self.rows[table as usize] += rows;
    }

    fn merge(&mut self, other: &Totals) {
        for (to, from) in self.rows.iter_mut().zip(&other.rows) {
            *to += from;
        }
        for (to, from) in self.sold.iter_mut().zip(&other.sold) {
            to.quantity += from.quantity;
            to.lines += from.lines;
            to.remote += from.remote;
        }
    }
}

/// Result of the check of one warehouse.
struct WarehouseResult {
    w: u32,
    findings: Violations,
    totals: Totals,
    /// Sales computed from the warehouse's rows of STOCK.
    stock: Sales,
}

/// Columns of a DISTRICT row that are checked.
#[derive(Clone, Copy)]
struct DistrictRow {
    d: u8,
    next_o_id: u32,
    ytd: i64,
}

fn check_warehouse<R: Read>(
    reader: &mut R,
    loaded: &Loaded,
    payments: &Payments,
    w: u32,
) -> Result<WarehouseResult, R::Error> {
    let mut part = WarehouseResult {
        w,
        findings: Violations::default(),
        totals: Totals::new(loaded.warehouses),
        stock: Sales::default(),
    };
    let WarehouseResult { findings, totals, .. } = &mut part;

    let ytd = reader.read::<Warehouse, _>(&WarehouseKey { w }, |row| row.hot.ytd.get())?;
    totals.count(TableId::Warehouse, u64::from(ytd.is_some()));
    let mut districts = Vec::new();
    reader.scan::<District>(&DistrictKey { w, d: 0 }, &DistrictKey { w, d: u8::MAX }, |key, row| {
        districts.push(DistrictRow { d: key.d, next_o_id: row.hot.next_o_id.get(), ytd: row.hot.ytd.get() });
        ControlFlow::Continue(())
    })?;
    totals.count(TableId::District, districts.len() as u64);
    let expected = loaded.scale.districts;
    if ytd.is_none() || !districts.iter().map(|district| district.d).eq(1..=expected) {
        let found = districts.len();
        let there = if ytd.is_some() { "there" } else { "missing" };
        findings.add(Invariant::RowCounts, || {
            format!("warehouse {w}: its row is {there}, {found} districts, expected 1 to {expected}")
        });
    }
    if let Some(ytd) = ytd {
        let of_districts: i64 = districts.iter().map(|district| district.ytd).sum();
        if ytd != of_districts {
            findings.add(Invariant::C1, || format!("warehouse {w}: W_YTD {ytd}, its districts {of_districts} (cents)"));
        }
        let paid: i64 = (1..=expected).map(|d| payments.taken(w, d)).sum();
        if ytd != paid {
            findings.add(Invariant::C8, || format!("warehouse {w}: W_YTD {ytd}, history {paid} (cents)"));
        }
    }
    for district in districts.iter().filter(|district| district.d <= expected) {
        if interrupt::requested() {
            break;
        }
        district::check(reader, loaded, payments, w, *district, findings, totals)?;
    }
    part.stock = check_stock(reader, loaded, w, findings, totals)?;
    Ok(part)
}

fn check_stock<R: Read>(
    reader: &mut R,
    loaded: &Loaded,
    w: u32,
    findings: &mut Violations,
    totals: &mut Totals,
) -> Result<Sales, R::Error> {
    let (mut sold, mut rows) = (Sales::default(), 0);
    reader.scan::<Stock>(&StockKey { w, i: 0 }, &StockKey { w, i: u32::MAX }, |key, row| {
        rows += 1;
        sold.quantity += row.hot.ytd.get();
        sold.lines += u64::from(row.hot.order_cnt.get());
        sold.remote += u64::from(row.hot.remote_cnt.get());
        let quantity = row.hot.quantity.get();
        if !(10..=100).contains(&quantity) {
            findings.add(Invariant::StockRange, || format!("warehouse {w}, item {}: quantity {quantity}", key.i));
        }
        ControlFlow::Continue(())
    })?;
    totals.count(TableId::Stock, rows);
    let expected = loaded.scale.items;
    if rows != u64::from(expected) {
        findings.add(Invariant::RowCounts, || format!("warehouse {w}: {rows} rows of stock, expected {expected}"));
    }
    Ok(sold)
}

fn check_items<R: Read>(
    reader: &mut R,
    loaded: &Loaded,
    findings: &mut Violations,
    totals: &mut Totals,
) -> Result<(), R::Error> {
    let mut rows = 0;
    reader.scan::<Item>(&ItemKey { i: 0 }, &ItemKey { i: u32::MAX }, |_, _| {
        rows += 1;
        ControlFlow::Continue(())
    })?;
    totals.count(TableId::Item, rows);
    let expected = loaded.scale.items;
    if rows != u64::from(expected) {
        findings.add(Invariant::RowCounts, || format!("{rows} rows of item, expected {expected}"));
    }
    Ok(())
}
