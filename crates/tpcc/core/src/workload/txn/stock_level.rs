//! Stock-Level (2.8.2).

use std::hint::black_box;
use std::ops::ControlFlow;

use arrayvec::ArrayVec;
use smallvec::SmallVec;

use super::{Failure, Scratch, TxnResult, Verdict};
use crate::workload::generate::input::StockLevelInput;
use crate::workload::ops::Ops;
use crate::workload::schema::keys::{DistrictKey, OrderLineKey, StockKey};
use crate::workload::schema::parts::StockQuantity;
use crate::workload::schema::tables::{District, OrderLine, Stock};

/// Output fields of Stock-Level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StockLevelOutput {
    /// W_ID.
    pub w: u32,
    /// D_ID.
    pub d: u8,
    /// Threshold, as entered at the terminal.
    pub threshold: i16,
    /// Number of distinct items in the recent orders whose stock is below the threshold.
    pub low_stock: u32,
}

/// Number of recent orders whose items are examined.
pub const ORDERS: u32 = 20;

/// Items with low stock of an epoch.
pub type LowItems = SmallVec<[u32; 64]>;

/// Number of stock rows announced at a time: enough to overlap their cache misses, few enough to stay in the first-level
/// cache.
const GROUP: usize = 16;

/// Runs a Stock-Level except for its final commit or rollback.
pub(super) fn run<O: Ops>(ops: &mut O, input: &StockLevelInput, scratch: &mut Scratch) -> TxnResult<O> {
    let next = next_order(ops, input)?;
    let items = &mut scratch.items;
    ordered_items(ops, input, next.saturating_sub(ORDERS), next.saturating_sub(1), items)?;
    let mut low_stock = 0;
    low_items(ops, input, items, |_| low_stock += 1)?;
    set_output(input, low_stock, scratch);
    Ok(Verdict::Commit)
}

/// Returns the items with low stock among those of the epoch's orders: at most `grain` orders from `from`, below `next`.
pub fn low_items_of_epoch<O: Ops>(
    ops: &mut O,
    input: &StockLevelInput,
    from: u32,
    grain: usize,
    next: u32,
) -> Result<LowItems, Failure<O::Error>> {
    let (mut items, mut low) = (Vec::new(), LowItems::new());
    let last = from.saturating_add(grain as u32).min(next) - 1;
    ordered_items(ops, input, from, last, &mut items)?;
    low_items(ops, input, &items, |item| low.push(item))?;
    Ok(low)
}

/// Sets the output fields from the items of all epochs, in which an item may occur several times.
pub fn set_output_of_epochs(input: &StockLevelInput, mut low: Vec<u32>, scratch: &mut Scratch) {
    low.sort_unstable();
    low.dedup();
    set_output(input, low.len() as u32, scratch);
}

/// Sets the output fields.
pub fn set_output(input: &StockLevelInput, low_stock: u32, scratch: &mut Scratch) {
    let StockLevelInput { w, d, threshold } = *input;
    let out = &mut scratch.out.stock_level;
    (out.w, out.d, out.threshold, out.low_stock) = (w, d, threshold, low_stock);
    black_box(&*out);
}

/// Returns the number of the district's next order.
pub fn next_order<O: Ops>(ops: &mut O, input: &StockLevelInput) -> Result<u32, Failure<O::Error>> {
    let key = DistrictKey { w: input.w, d: input.d };
    ops.read::<District, _>(&key, |row| row.hot.next_o_id.get())?.ok_or_else(|| Failure::missing::<District>(&key))
}

/// Collects the distinct item numbers of the orders `first..=last`.
fn ordered_items<O: Ops>(
    ops: &mut O,
    input: &StockLevelInput,
    first: u32,
    last: u32,
    items: &mut Vec<u32>,
) -> Result<(), Failure<O::Error>> {
    items.clear();
    let (from, to) = OrderLineKey::range(input.w, input.d, first, last);
    ops.scan::<OrderLine>(&from, &to, |_, row| {
        items.push(row.cold.i_id.get());
        ControlFlow::Continue(())
    })?;
    items.sort_unstable();
    items.dedup();
    Ok(())
}

/// Calls `low` for each item with low stock.
fn low_items<O: Ops>(
    ops: &mut O,
    input: &StockLevelInput,
    items: &[u32],
    mut low: impl FnMut(u32),
) -> Result<(), Failure<O::Error>> {
    for group in items.chunks(GROUP) {
        let keys: ArrayVec<StockKey, GROUP> = group.iter().map(|&i| StockKey { w: input.w, i }).collect();
        let mut quantities = [None; GROUP];
        ops.read_parts::<StockQuantity>(&keys, |at, part| quantities[at] = Some(part.quantity.get()))?;
        for (key, quantity) in keys.iter().zip(quantities) {
            if quantity.ok_or_else(|| Failure::missing::<Stock>(key))? < input.threshold {
                low(key.i);
            }
        }
    }
    Ok(())
}
