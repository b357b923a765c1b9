//! Load of ITEM and STOCK.

use zerocopy::little_endian::{I16, I64, U32, U64};

use super::sink::{Append, BulkSink};
use super::{LoadEnd, Population, RowsDone};
use crate::workload::generate::Random;
use crate::workload::schema::keys::{ItemKey, StockKey};
use crate::workload::schema::rows::{ItemCold, StockCold, StockHot};
use crate::workload::schema::tables::{Item, Stock};
use crate::workload::schema::{Row, RowOf, TableId};

/// Number of rows between two updates of the progress.
const STRIDE: u32 = 1_000;

/// Loads ITEM.
pub(super) fn items<S: BulkSink>(plan: &Population, sink: &S, progress: &RowsDone) -> Result<LoadEnd, S::Error> {
    let mut items = sink.table::<Item>()?;
    let mut random = plan.stream(TableId::Item, 0);
    for i in 1..=plan.scale.items {
        let cold = ItemCold {
            price: I64::new(i64::from(random.in_range(100, 10_000))),
            im_id: U32::new(random.in_range(1, 10_000)),
            name: random.text(14, 24),
            data: random.data(),
        };
        items.push(&ItemKey { i }, &Row { hot: (), cold })?;
        if i % STRIDE == 0 && progress.add(u64::from(STRIDE)) {
            return Ok(LoadEnd::Cancelled);
        }
    }
    items.finish()?;
    Ok(LoadEnd::Done)
}

/// Loads STOCK.
pub(super) fn stock<S: BulkSink>(plan: &Population, sink: &S, progress: &RowsDone) -> Result<LoadEnd, S::Error> {
    let mut stock = sink.table::<Stock>()?;
    for w in 1..=plan.warehouses {
        let mut random = plan.stream(TableId::Stock, w);
        for i in 1..=plan.scale.items {
            stock.push(&StockKey { w, i }, &row(&mut random))?;
            if i % STRIDE == 0 && progress.add(u64::from(STRIDE)) {
                return Ok(LoadEnd::Cancelled);
            }
        }
    }
    stock.finish()?;
    Ok(LoadEnd::Done)
}

fn row(random: &mut Random) -> RowOf<Stock> {
    let hot = StockHot {
        quantity: I16::new(random.in_range(10, 100) as i16),
        ytd: U64::ZERO,
        order_cnt: U32::ZERO,
        remote_cnt: U32::ZERO,
    };
    // One call generates 240 characters, a multiple of the ten characters that one random number gives.
    let mut dist = [[0; 24]; 10];
    random.letters(dist.as_flattened_mut());
    Row { hot, cold: StockCold { dist, data: random.data() } }
}
