//! New-Order with any number of lines (the TLS paper's NEW ORDER and NEW ORDER 150), in two forms. In the first, groups of
//! lines are processed together, as in an ordinary transaction; the groups can run on several threads. In the second, single
//! lines are, and can run ahead of the transaction.

use std::hint::black_box;

use arrayvec::ArrayVec;

use super::new_order::{
    self, LineOutput, NewOrderOutput, by_stock, customer, district, insert_order, items, order_line, prefetch, stocks,
    total, warehouse,
};
use super::{Failure, Verdict};
use crate::workload::generate::input::{LineInput, MAX_LINES, OrderInput};
use crate::workload::ops::{Ops, RowOps};
use crate::workload::schema::RowOf;
use crate::workload::schema::keys::OrderLineKey;
use crate::workload::schema::tables::OrderLine;

/// Output fields of the transaction: the head of the order and the lines. Also contains the rows to be inserted.
#[derive(Default)]
pub struct LongOrderOutput {
    head: NewOrderOutput,
    lines: Vec<LineOutput>,
    rows: Vec<(OrderLineKey, RowOf<OrderLine>)>,
}

impl LongOrderOutput {
    fn start(&mut self, order: OrderInput<'_>) {
        self.head.start(order);
        self.lines.clear();
        self.rows.clear();
    }
}

/// Lines of a group: their outputs, and the rows to be inserted, without the number of the order.
#[derive(Default)]
pub struct LineGroup {
    lines: ArrayVec<LineOutput, MAX_LINES>,
    rows: ArrayVec<(OrderLineKey, RowOf<OrderLine>), MAX_LINES>,
    /// True if the item of a line does not exist.
    invalid: bool,
}

/// Runs the transaction except for its final commit or rollback. Processes lines in groups, and accesses contended rows as
/// late as possible.
pub fn run<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    out: &mut LongOrderOutput,
) -> Result<Verdict, Failure<O::Error>> {
    out.start(order);
    prefetch(ops, order);
    for (number, group) in order.lines.chunks(MAX_LINES).enumerate() {
        let group = run_group(ops, order, number * MAX_LINES, group)?;
        if number == 0 {
            // The customer's row was prefetched together with the first items.
            customer(ops, order, &mut out.head)?;
        }
        add_group(out, &group);
    }
    end_groups(ops, order, out)
}

/// Runs the steps before the groups of lines.
pub fn begin_groups<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    out: &mut LongOrderOutput,
) -> Result<(), Failure<O::Error>> {
    out.start(order);
    prefetch(ops, order);
    customer(ops, order, &mut out.head)
}

/// Runs the steps of a group of lines, of which `first` is the position of the first one, except for the insertion.
pub fn run_group<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    first: usize,
    inputs: &[LineInput],
) -> Result<LineGroup, Failure<O::Error>> {
    let mut group = LineGroup::default();
    let found = items(ops, inputs, &mut group.lines)?;
    group.invalid = found[..inputs.len()].contains(&false);
    let by_stock: ArrayVec<usize, MAX_LINES> = by_stock(inputs).filter(|&i| found[i]).collect();
    let dist_info = stocks(ops, order, &by_stock, &mut group.lines)?;
    for (i, line) in group.lines.iter().enumerate().filter(|&(i, _)| found[i]) {
        // The order number is not known yet; it is set at the end.
        group.rows.push(order_line(order, 0, first + i, line, dist_info[i]));
    }
    Ok(group)
}

/// Adds a group of lines to the output. Called in the order of the groups.
pub fn add_group(out: &mut LongOrderOutput, group: &LineGroup) {
    out.head.invalid |= group.invalid;
    out.lines.extend_from_slice(&group.lines);
    out.rows.extend_from_slice(&group.rows);
}

/// Runs the steps after the groups of lines: takes the number of the order and inserts its rows.
pub fn end_groups<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    out: &mut LongOrderOutput,
) -> Result<Verdict, Failure<O::Error>> {
    district(ops, order, &mut out.head)?;
    insert_order(ops, order, out.head.o_id)?;
    out.rows.iter_mut().for_each(|(key, _)| key.o = out.head.o_id);
    ops.insert_run::<OrderLine>(&out.rows)?;
    warehouse(ops, order, &mut out.head)?;
    Ok(finish(out))
}

/// Runs all steps before the lines, in order. Returns the order number.
pub fn begin<O: Ops>(ops: &mut O, order: OrderInput<'_>, out: &mut LongOrderOutput) -> Result<u32, Failure<O::Error>> {
    out.start(order);
    warehouse(ops, order, &mut out.head)?;
    customer(ops, order, &mut out.head)?;
    district(ops, order, &mut out.head)?;
    insert_order(ops, order, out.head.o_id)?;
    Ok(out.head.o_id)
}

/// Runs all steps of a line. Returns `None` if the item does not exist.
pub fn run_line<O: RowOps>(
    ops: &mut O,
    order: OrderInput<'_>,
    o: u32,
    i: usize,
) -> Result<Option<LineOutput>, Failure<O::Error>> {
    new_order::line(ops, order, o, i)
}

/// Adds the output of a line. Must be called in the order of the lines. `line` is `None` if the item of the line does not
/// exist.
pub fn add_line_output(out: &mut LongOrderOutput, line: Option<LineOutput>) {
    out.head.invalid |= line.is_none();
    out.lines.extend(line);
}

/// Runs the steps after the lines.
pub fn finish(out: &mut LongOrderOutput) -> Verdict {
    out.head.total = total(&out.head, &out.lines);
    black_box(&*out);
    if out.head.invalid { Verdict::Rollback } else { Verdict::Commit }
}
