//! Stock-Level (2.8.2).

use std::hint::black_box;
use std::ops::ControlFlow;

use arrayvec::ArrayVec;

use super::{Failure, Scratch, TxnResult, Verdict};
use crate::workload::generate::input::StockLevelInput;
use crate::workload::ops::Ops;
use crate::workload::schema::keys::{DistrictKey, OrderLineKey, StockKey};
use crate::workload::schema::tables::{District, OrderLine, Stock};

/// What the terminal shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StockLevelOutput {
    /// W_ID.
    pub(crate) w: u32,
    /// D_ID.
    pub(crate) d: u8,
    /// As typed.
    pub(crate) threshold: i16,
    /// Distinct items of the last orders whose stock is below the threshold.
    pub(crate) low_stock: u32,
}

/// Orders looked back upon.
const ORDERS: u32 = 20;

/// Stock rows announced at a time: enough to overlap their misses, few enough to stay in the first-level cache.
const GROUP: usize = 16;

/// Runs the transaction up to its end.
pub(super) fn run<O: Ops>(ops: &mut O, input: &StockLevelInput, scratch: &mut Scratch) -> TxnResult<O> {
    let StockLevelInput { w, d, threshold } = *input;
    let key = DistrictKey { w, d };
    let next = ops
        .read::<District, _>(&key, |row| row.hot.next_o_id.get())?
        .ok_or_else(|| Failure::missing::<District>(&key))?;

    let items = &mut scratch.items;
    items.clear();
    let (from, to) = OrderLineKey::lines(w, d, next.saturating_sub(ORDERS), next.saturating_sub(1));
    ops.scan::<OrderLine>(&from, &to, |_, row| {
        items.push(row.cold.i_id.get());
        ControlFlow::Continue(())
    })?;
    items.sort_unstable();
    items.dedup();

    let mut low_stock = 0;
    for group in items.chunks(GROUP) {
        let keys: ArrayVec<StockKey, GROUP> = group.iter().map(|&i| StockKey { w, i }).collect();
        ops.prefetch::<Stock>(&keys);
        for key in &keys {
            let quantity = ops
                .read::<Stock, _>(key, |row| row.hot.quantity.get())?
                .ok_or_else(|| Failure::missing::<Stock>(key))?;
            low_stock += u32::from(quantity < threshold);
        }
    }
    let out = &mut scratch.out.stock_level;
    (out.w, out.d, out.threshold, out.low_stock) = (w, d, threshold, low_stock);
    black_box(&*out);
    Ok(Verdict::Commit)
}
