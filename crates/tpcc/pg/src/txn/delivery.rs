//! Delivery of all districts of a warehouse in three round trips: the oldest NEW-ORDER rows; their orders and lines; their
//! customers.

use std::hint::black_box;

use futures_util::future::{OptionFuture, join, join3};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

use super::super::columns::SqlTimestamp;
use super::turns::{OF_WAREHOUSES, Turn};
use super::{TxnContext, TxnOutcome, int, missing};
use tpcc_core::workload::generate::input::DeliveryInput;
use tpcc_core::workload::schema::TableId;
use tpcc_core::workload::schema::keys::{CustomerKey, OrderKey, OrderLineKey};
use tpcc_core::workload::txn::{Scratch, Verdict};

/// Deletes the oldest NEW-ORDER row of each district.
const TAKE: &str = "DELETE FROM new_order USING (SELECT d.d_id, (SELECT min(no_o_id) FROM new_order \
    WHERE no_w_id = $1 AND no_d_id = d.d_id) AS o_id FROM generate_series(1, $2::int4) AS d (d_id)) AS oldest \
    WHERE no_w_id = $1 AND no_d_id = oldest.d_id AND no_o_id = oldest.o_id RETURNING no_d_id, no_o_id";
const MARK: &str = "UPDATE orders SET o_carrier_id = $2 FROM unnest($3::int2[], $4::int4[]) AS l (d, o) \
    WHERE o_w_id = $1 AND o_d_id = l.d AND o_id = l.o RETURNING o_d_id, o_c_id";
const DATE: &str = "UPDATE order_line SET ol_delivery_d = $2 FROM unnest($3::int2[], $4::int4[]) AS l (d, o) \
    WHERE ol_w_id = $1 AND ol_d_id = l.d AND ol_o_id = l.o RETURNING ol_d_id, ol_amount";
const CREDIT: &str = "UPDATE customer SET c_balance = c_balance + l.amount, c_delivery_cnt = c_delivery_cnt + 1 \
    FROM unnest($2::int2[], $3::int4[], $4::int8[]) AS l (d, c, amount) \
    WHERE c_w_id = $1 AND c_d_id = l.d AND c_id = l.c";

/// Maximum number of districts of a warehouse.
const DISTRICTS: usize = 10;

pub(super) struct DeliveryStatements {
    /// Statement that waits for the end of other Deliveries of the warehouse, if transactions take no turns. Its lock lasts
    /// until the transaction ends.
    alone: Option<Statement>,
    take: Statement,
    mark: Statement,
    date: Statement,
    credit: Statement,
}

impl DeliveryStatements {
    pub(super) async fn prepare(client: &Client, in_turns: bool) -> Result<DeliveryStatements, Error> {
        let alone = format!("SELECT pg_advisory_xact_lock({OF_WAREHOUSES}, $1)");
        Ok(DeliveryStatements {
            alone: if in_turns { Some(client.prepare(&alone).await?) } else { None },
            take: client.prepare_typed(TAKE, &[Type::INT4, Type::INT4]).await?,
            mark: client.prepare_typed(MARK, &[Type::INT4, Type::INT2, Type::INT2_ARRAY, Type::INT4_ARRAY]).await?,
            date: client
                .prepare_typed(DATE, &[Type::INT4, Type::TIMESTAMPTZ, Type::INT2_ARRAY, Type::INT4_ARRAY])
                .await?,
            credit: client
                .prepare_typed(CREDIT, &[Type::INT4, Type::INT2_ARRAY, Type::INT4_ARRAY, Type::INT8_ARRAY])
                .await?,
        })
    }
}

pub(super) fn run(work: &TxnContext<'_>, input: &DeliveryInput, scratch: &mut Scratch) -> TxnOutcome {
    let (own, all) = (&work.statements.delivery, work.client());
    let out = &mut scratch.out.delivery;
    out.delivered.clear();
    let (w_id, districts) = (int(input.w), i32::from(input.districts));
    let alone = OptionFuture::from(own.alone.as_ref().map(|alone| async { all.execute(alone, &[&w_id]).await }));
    let (begin, alone, taken) = work.connection.wait(join3(
        work.begin(Turn::Alone(input.w)),
        alone,
        all.query(&own.take, &[&w_id, &districts]),
    ))?;
    work.done(begin)?;
    work.done(alone.unwrap_or(Ok(0)).map(|_| ()))?;
    let taken = work.of(TableId::NewOrder, taken)?;
    out.delivered.extend((0..input.districts).map(|_| None));
    for row in &taken {
        let (d, o) = (work.get::<i16>(row, 0)?, work.get::<i32>(row, 1)?.cast_unsigned());
        match out.delivered.get_mut((d as usize).wrapping_sub(1)) {
            Some(place) => *place = Some(o),
            None => return Err(work.connection.unexpected(format!("district {d} was not asked for")).into()),
        }
    }

    let orders = || (1..).zip(&out.delivered).filter_map(|(d, o): (u8, _)| o.map(|o| OrderKey { w: input.w, d, o }));
    let d_ids: Vec<i16> = orders().map(|key| i16::from(key.d)).collect();
    let o_ids: Vec<i32> = orders().map(|key| int(key.o)).collect();
    let (carrier, now) = (i16::from(input.carrier.get()), SqlTimestamp(input.now));
    let (marked, dated) = work.connection.wait(join(
        all.query(&own.mark, &[&w_id, &carrier, &d_ids, &o_ids]),
        all.query(&own.date, &[&w_id, &now, &d_ids, &o_ids]),
    ))?;
    let (marked, dated) = (work.of(TableId::Order, marked)?, work.of(TableId::OrderLine, dated)?);
    let mut customers = [None; DISTRICTS];
    let mut sums = [None; DISTRICTS];
    let place = |d: i16| (d as usize).wrapping_sub(1).min(DISTRICTS - 1);
    for row in &marked {
        customers[place(work.get(row, 0)?)] = Some(work.get::<i32>(row, 1)?);
    }
    for row in &dated {
        *sums[place(work.get(row, 0)?)].get_or_insert(0) += work.get::<i64>(row, 1)?;
    }
    let (mut c_ids, mut amounts) = (Vec::new(), Vec::new());
    for key in orders() {
        let at = usize::from(key.d) - 1;
        c_ids.push(customers[at].ok_or_else(|| missing(TableId::Order, &key))?);
        let line = OrderLineKey { w: key.w, d: key.d, o: key.o, number: 1 };
        amounts.push(sums[at].ok_or_else(|| missing(TableId::OrderLine, &line))?);
    }

    let (credited, end) =
        work.connection.wait(join(all.execute(&own.credit, &[&w_id, &d_ids, &c_ids, &amounts]), work.end("COMMIT")))?;
    let credited = work.of(TableId::Customer, credited)?;
    work.done(end)?;
    if credited != c_ids.len() as u64 {
        return Err(missing(TableId::Customer, &CustomerKey { w: input.w, d: 0, c: 0 }));
    }
    black_box(&*out);
    Ok(Verdict::Commit)
}
