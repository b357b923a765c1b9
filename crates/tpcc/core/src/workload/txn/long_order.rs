//! New-Order with any number of lines (the TLS paper's NEW ORDER and NEW ORDER 150). Groups of lines are processed together,
//! as in an ordinary transaction; the groups can run on several threads.

use std::hint::black_box;

use arrayvec::ArrayVec;

use super::new_order::{
    LineOutput, NewOrderOutput, customer, district, insert_order, items, order_line, prefetch, stock_order, stocks,
    total, warehouse,
};
use super::{Failure, Verdict};
use crate::workload::generate::input::{LineInput, MAX_LINES, OrderInput};
use crate::workload::ops::Ops;
use crate::workload::schema::RowOf;
use crate::workload::schema::keys::OrderLineKey;
use crate::workload::schema::tables::OrderLine;

/// Output fields of the transaction: the head of the order and the lines. Also contains the order in which lines are processed,
/// and the rows to be inserted.
#[derive(Default)]
pub struct LongOrderOutput {
    head: NewOrderOutput,
    lines: Vec<LineOutput>,
    rows: Vec<Option<(OrderLineKey, RowOf<OrderLine>)>>,
    placed: Vec<(OrderLineKey, RowOf<OrderLine>)>,
    /// The lines sorted by their stock rows, packed for the sort.
    packed: Vec<u64>,
    sorted: Vec<SortedLine>,
    group: LineGroup,
}

/// A line of the order, with its position.
#[derive(Clone, Copy, Debug)]
pub struct SortedLine {
    position: u8,
    input: LineInput,
}

impl LongOrderOutput {
    fn start(&mut self, order: OrderInput<'_>) {
        self.head.start(order);
        self.lines.clear();
        self.lines.extend(order.lines.iter().map(LineOutput::of));
        self.rows.clear();
        self.rows.resize(order.lines.len(), None);
        self.sort(order.lines);
    }

    /// Sorts the lines by their stock rows. Groups of neighbouring lines then use few pages, and a thread that processes the
    /// lower or the upper lines of each order finds their pages in its caches.
    fn sort(&mut self, lines: &[LineInput]) {
        self.packed.clear();
        self.packed.extend(lines.iter().enumerate().map(|(i, line)| stock_order::<POSITION_BITS>(line, i)));
        self.packed.sort_unstable();
        let positions = self.packed.iter().map(|packed| (packed % (1 << POSITION_BITS)) as u8);
        self.sorted.clear();
        self.sorted.extend(positions.map(|position| SortedLine { position, input: lines[usize::from(position)] }));
    }

    /// Takes the sorted lines out, for the epochs of a loop. [`LongOrderOutput::return_lines`] gives their memory back.
    pub fn take_lines(&mut self) -> Vec<SortedLine> {
        std::mem::take(&mut self.sorted)
    }

    /// Gives the memory of the sorted lines back.
    pub fn return_lines(&mut self, lines: Vec<SortedLine>) {
        self.sorted = lines;
    }
}

/// Number of bits of a line's position in the sort key.
const POSITION_BITS: u32 = 8;

/// Lines of a group: their positions and outputs, and the rows to be inserted, without the number of the order.
#[derive(Default)]
pub struct LineGroup {
    lines: Vec<(u8, LineOutput)>,
    rows: Vec<(OrderLineKey, RowOf<OrderLine>)>,
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
    let (sorted, mut group) = (out.take_lines(), std::mem::take(&mut out.group));
    for (number, lines) in sorted.chunks(MAX_LINES).enumerate() {
        add_lines(ops, order, lines, &mut group)?;
        if number == 0 {
            // The customer's row was prefetched together with the first items.
            customer(ops, order, &mut out.head)?;
        }
        add_group(out, &group);
        group.clear();
    }
    out.return_lines(sorted);
    out.group = group;
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

/// Runs the steps of several lines, except for the insertion.
pub fn run_group<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    lines: &[SortedLine],
) -> Result<LineGroup, Failure<O::Error>> {
    let mut group =
        LineGroup { lines: Vec::with_capacity(lines.len()), rows: Vec::with_capacity(lines.len()), invalid: false };
    lines.chunks(MAX_LINES).try_for_each(|lines| add_lines(ops, order, lines, &mut group))?;
    Ok(group)
}

/// Runs the steps of at most [`MAX_LINES`] lines, except for the insertion, and adds them to `group`.
fn add_lines<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    lines: &[SortedLine],
    group: &mut LineGroup,
) -> Result<(), Failure<O::Error>> {
    let inputs: ArrayVec<LineInput, MAX_LINES> = lines.iter().map(|line| line.input).collect();
    let mut outputs = ArrayVec::new();
    let found = items(ops, &inputs, &mut outputs)?;
    group.invalid |= found[..inputs.len()].contains(&false);
    let there: ArrayVec<usize, MAX_LINES> = (0..inputs.len()).filter(|&i| found[i]).collect();
    let dist_info = stocks(ops, order, &there, &mut outputs)?;
    for (i, output) in outputs.into_iter().enumerate().filter(|&(i, _)| found[i]) {
        let position = lines[i].position;
        // The order number is not known yet; it is set at the end.
        group.rows.push(order_line(order, 0, usize::from(position), &output, dist_info[i]));
        group.lines.push((position, output));
    }
    Ok(())
}

impl LineGroup {
    fn clear(&mut self) {
        self.lines.clear();
        self.rows.clear();
        self.invalid = false;
    }
}

/// Adds a group of lines to the output. Called in the order of the groups.
pub fn add_group(out: &mut LongOrderOutput, group: &LineGroup) {
    out.head.invalid |= group.invalid;
    for ((position, line), row) in group.lines.iter().zip(&group.rows) {
        out.lines[usize::from(*position)] = *line;
        out.rows[usize::from(*position)] = Some(*row);
    }
}

/// Runs the steps after the groups of lines: takes the number of the order and inserts its rows.
// Never inlined: experiments count its instructions under this name.
#[inline(never)]
pub fn end_groups<O: Ops>(
    ops: &mut O,
    order: OrderInput<'_>,
    out: &mut LongOrderOutput,
) -> Result<Verdict, Failure<O::Error>> {
    district(ops, order, &mut out.head)?;
    insert_order(ops, order, out.head.o_id)?;
    let o = out.head.o_id;
    out.placed.clear();
    out.placed.extend(out.rows.iter().flatten().map(|(key, row)| (OrderLineKey { o, ..*key }, *row)));
    ops.insert_run::<OrderLine>(&out.placed)?;
    warehouse(ops, order, &mut out.head)?;
    Ok(finish(out))
}

/// Runs the steps after the lines.
fn finish(out: &mut LongOrderOutput) -> Verdict {
    out.head.total = total(&out.head, &out.lines);
    black_box(&*out);
    if out.head.invalid { Verdict::Rollback } else { Verdict::Commit }
}
