//! Load of ORDER, its index by customer, ORDER-LINE and NEW-ORDER.

use std::num::NonZeroU8;

use zerocopy::little_endian::{I64, U32};

use super::sink::{Append, AppendIndex, BulkSink};
use super::{LoadEnd, Population, RowsDone};
use crate::workload::schema::keys::{NewOrderKey, OrderCustomerKey, OrderKey, OrderLineKey};
use crate::workload::schema::rows::{OrderCold, OrderHot, OrderLineCold, OrderLineHot, Timestamp};
use crate::workload::schema::tables::{NewOrder, Order, OrderByCustomer, OrderLine};
use crate::workload::schema::{IndexDef, Row, TableId};

/// Loads ORDER, its index by customer, ORDER-LINE and NEW-ORDER.
pub(super) fn orders<S: BulkSink>(plan: &Population, sink: &S, progress: &RowsDone) -> Result<LoadEnd, S::Error> {
    let mut orders = sink.table::<Order>()?;
    let mut by_customer = sink.index::<OrderByCustomer>()?;
    let mut lines = sink.table::<OrderLine>()?;
    let mut new_orders = sink.table::<NewOrder>()?;
    let scale = &plan.scale;
    let mut customers: Vec<u32> = (1..=scale.customers).collect();
    let mut entries: Vec<OrderCustomerKey> = Vec::with_capacity(customers.len());
    for w in 1..=plan.warehouses {
        let mut random = plan.stream(TableId::Order, w);
        let mut line_random = plan.stream(TableId::OrderLine, w);
        for d in 1..=scale.districts {
            // Each customer has exactly one order, in random order. The list is sorted before it is shuffled, so that the
            // permutations of a warehouse do not depend on the permutations of the previous warehouse.
            customers.sort_unstable();
            random.shuffle(&mut customers);
            entries.clear();
            let mut rows = 0;
            for (o, &c) in (1..).zip(&customers) {
                let is_delivered = o <= scale.delivered();
                let key = OrderKey { w, d, o };
                let count = random.in_range(5, 15) as u8;
                let carrier = NonZeroU8::MIN.saturating_add(random.in_range(0, 9) as u8);
                let cold = OrderCold { c_id: U32::new(c), entry_d: plan.now, ol_cnt: count, all_local: 1 };
                let hot = OrderHot { carrier_id: is_delivered.then_some(carrier) };
                orders.push(&key, &Row { hot, cold })?;
                entries.push(OrderByCustomer::key_of(&key, &cold));
                if !is_delivered {
                    new_orders.push(&NewOrderKey { w, d, o }, &Row { hot: (), cold: () })?;
                }
                for number in 1..=count {
                    let i_id = line_random.in_range(1, scale.items);
                    let amount = if is_delivered { 0 } else { i64::from(line_random.in_range(1, 999_999)) };
                    let cold = OrderLineCold {
                        i_id: U32::new(i_id),
                        supply_w_id: U32::new(w),
                        quantity: 5,
                        amount: I64::new(amount),
                        dist_info: line_random.fixed(),
                    };
                    let hot = OrderLineHot { delivery_d: if is_delivered { plan.now } else { Timestamp::NULL } };
                    lines.push(&OrderLineKey { w, d, o, number }, &Row { hot, cold })?;
                }
                rows += 2 + u64::from(count);
            }
            entries.sort_unstable();
            for entry in &entries {
                by_customer.push(entry)?;
            }
            if progress.add(rows) {
                return Ok(LoadEnd::Cancelled);
            }
        }
    }
    orders.finish()?;
    by_customer.finish()?;
    lines.finish()?;
    new_orders.finish()?;
    Ok(LoadEnd::Done)
}
