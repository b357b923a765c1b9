//! Order-Status in one round trip: each statement finds the customer and its newest order again, in one snapshot.

use std::hint::black_box;
use std::num::NonZeroU8;

use futures_util::future::join5;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Statement};

use super::super::columns::SqlTimestamp;
use super::payment::{BY_ID, BY_NAME};
use super::turns::Turn;
use super::{TxnContext, TxnOutcome, int, missing};
use tpcc_core::workload::generate::input::{CustomerSelector, OrderStatusInput};
use tpcc_core::workload::schema::TableId;
use tpcc_core::workload::schema::keys::{CustomerKey, OrderKey};
use tpcc_core::workload::txn::order_status::OrderedLine;
use tpcc_core::workload::txn::{Scratch, Verdict};

fn customer(which: &str) -> String {
    format!(
        "SELECT c_id, c_first, c_middle, c_last, c_balance FROM customer \
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = {which}"
    )
}

fn order(which: &str) -> String {
    format!(
        "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = {which} \
         ORDER BY o_id DESC LIMIT 1"
    )
}

fn lines(which: &str) -> String {
    format!(
        "SELECT ol_supply_w_id, ol_i_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
         WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = (SELECT o_id FROM orders \
         WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = {which} ORDER BY o_id DESC LIMIT 1) ORDER BY ol_number"
    )
}

pub(super) struct OrderStatusStatements {
    by_id: LookupStatements,
    by_name: LookupStatements,
}

/// Statements for the customer, the order and its lines.
struct LookupStatements(Statement, Statement, Statement);

impl OrderStatusStatements {
    pub(super) async fn prepare(client: &Client) -> Result<OrderStatusStatements, Error> {
        Ok(OrderStatusStatements {
            by_id: LookupStatements::prepare(client, BY_ID, Type::INT4).await?,
            by_name: LookupStatements::prepare(client, BY_NAME, Type::TEXT).await?,
        })
    }
}

impl LookupStatements {
    /// Prepares the statements. `which` is the SQL expression of the customer's number, and `who` the type of its parameter.
    async fn prepare(client: &Client, which: &str, who: Type) -> Result<LookupStatements, Error> {
        let types = [Type::INT4, Type::INT2, who];
        let customer = client.prepare_typed(&customer(which), &types).await?;
        let order = client.prepare_typed(&order(which), &types).await?;
        Ok(LookupStatements(customer, order, client.prepare_typed(&lines(which), &types).await?))
    }
}

pub(super) fn run(work: &TxnContext<'_>, input: &OrderStatusInput, scratch: &mut Scratch) -> TxnOutcome {
    let (own, all) = (&work.statements.order_status, work.client());
    let name;
    let number;
    let (w, d, LookupStatements(customer, order, lines), who): (u32, u8, &LookupStatements, &(dyn ToSql + Sync)) =
        match &input.customer {
            CustomerSelector::Id(CustomerKey { w, d, c }) => {
                number = int(*c);
                (*w, *d, &own.by_id, &number)
            }
            CustomerSelector::Name(w, d, last) => {
                name = String::from_utf8_lossy(last).trim_end_matches('\0').to_owned();
                (*w, *d, &own.by_name, &name)
            }
        };
    let (w_id, d_id) = (int(w), i16::from(d));
    let key: [&(dyn ToSql + Sync); 3] = [&w_id, &d_id, who];
    let (begin, customer, order, lines, end) = work.connection.wait(join5(
        work.begin_reading(Turn::Alone(w)),
        all.query(customer, &key),
        all.query(order, &key),
        all.query(lines, &key),
        work.end("COMMIT"),
    ))?;
    work.done(begin)?;
    let customer = work.of(TableId::Customer, customer)?;
    let order = work.of(TableId::Order, order)?;
    let lines = work.of(TableId::OrderLine, lines)?;
    work.done(end)?;

    let out = &mut scratch.out.order_status;
    let row = customer.first().ok_or_else(|| missing(TableId::Customer, &input.customer))?;
    out.customer = CustomerKey { w, d, c: work.get::<i32>(row, 0)?.cast_unsigned() };
    (out.first, out.middle, out.last) = (work.text(row, 1)?, work.fixed(row, 2)?, work.text(row, 3)?);
    out.balance = work.get(row, 4)?;
    // The load creates an order for each customer.
    let row = order.first().ok_or_else(|| missing(TableId::Order, &OrderKey { w, d, o: 0 }))?;
    (out.o_id, out.entry_d) = (work.get::<i32>(row, 0)?.cast_unsigned(), work.get::<SqlTimestamp>(row, 1)?.0);
    out.carrier = work.get::<Option<i16>>(row, 2)?.and_then(|carrier| NonZeroU8::new(carrier as u8));
    out.lines.clear();
    for row in lines.iter().take(out.lines.capacity()) {
        out.lines.push(OrderedLine {
            supply_w: work.get::<i32>(row, 0)?.cast_unsigned(),
            item: work.get::<i32>(row, 1)?.cast_unsigned(),
            quantity: work.get::<i16>(row, 2)? as u8,
            amount: work.get(row, 3)?,
            delivery_d: work.get::<SqlTimestamp>(row, 4)?.0,
        });
    }
    black_box(&*out);
    Ok(Verdict::Commit)
}
