//! New-Order in two round trips. The first has everything except the inserts, which need the order number and the stock
//! data. The second has the inserts and the end.

use std::hint::black_box;

use arrayvec::ArrayVec;
use futures_util::future::{join, join_all, join4, join5};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row, Statement};

use super::super::columns::SqlTimestamp;
use super::turns::Turn;
use super::{TxnContext, TxnOutcome, int, missing};
use tpcc_core::workload::generate::input::{LineInput, MAX_LINES, NewOrderInput};
use tpcc_core::workload::generate::string::is_original;
use tpcc_core::workload::schema::TableId;
use tpcc_core::workload::schema::keys::{CustomerKey, DistrictKey, StockKey, WarehouseKey};
use tpcc_core::workload::schema::text::Text;
use tpcc_core::workload::txn::new_order::{LineOutput, total};
use tpcc_core::workload::txn::{Scratch, StepOrder, Verdict};

const WAREHOUSE: &str = "SELECT w_tax FROM warehouse WHERE w_id = $1";
const DISTRICT: &str = "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 \
    RETURNING (d_next_o_id - 1)::int4, d_tax";
const CUSTOMER: &str =
    "SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
const ITEMS: &str = "SELECT i_id, i_price, i_name, i_data FROM item WHERE i_id = ANY($1::int4[])";
const ORDER: &str = "INSERT INTO orders \
    (o_w_id, o_d_id, o_id, o_carrier_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
    VALUES ($1, $2, $3, NULL, $4, $5, $6, $7)";
const NEW_ORDER: &str = "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3)";
const LINES: &str = "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_delivery_d, ol_i_id, \
    ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) \
    SELECT $1::int4, $2::int2, $3::int4, l.number, NULL, l.item, l.supply, l.quantity, l.amount, l.dist \
    FROM unnest($4::int2[], $5::int4[], $6::int4[], $7::int2[], $8::int8[], $9::varchar[]) \
    AS l (number, item, supply, quantity, amount, dist)";

/// Returns the SQL that updates the stock rows of lines, which must be distinct. `d` selects the column S_DIST_xx of the
/// result.
fn stock(d: usize) -> String {
    format!(
        "UPDATE stock SET s_quantity = CASE WHEN s_quantity >= l.quantity + 10 THEN s_quantity - l.quantity \
         ELSE s_quantity - l.quantity + 91 END, s_ytd = s_ytd + l.quantity, s_order_cnt = s_order_cnt + 1, \
         s_remote_cnt = s_remote_cnt + l.remote \
         FROM unnest($1::int4[], $2::int4[], $3::int4[], $4::int2[], $5::int4[]) \
         AS l (line, w, item, quantity, remote) WHERE s_w_id = l.w AND s_i_id = l.item \
         RETURNING l.line, s_quantity, s_data, s_dist_{d:02}"
    )
}

/// Maximum number of districts of a warehouse.
const DISTRICTS: usize = 10;

pub(super) struct NewOrderStatements {
    warehouse: Statement,
    district: Statement,
    customer: Statement,
    items: Statement,
    /// Statements that update stock rows, indexed by district.
    stock: Vec<Statement>,
    order: Statement,
    new_order: Statement,
    lines: Statement,
}

impl NewOrderStatements {
    pub(super) async fn prepare(client: &Client) -> Result<NewOrderStatements, Error> {
        let mut all = Vec::with_capacity(DISTRICTS);
        for d in 1..=DISTRICTS {
            all.push(
                client
                    .prepare_typed(
                        &stock(d),
                        &[Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT4_ARRAY, Type::INT2_ARRAY, Type::INT4_ARRAY],
                    )
                    .await?,
            );
        }
        Ok(NewOrderStatements {
            warehouse: client.prepare_typed(WAREHOUSE, &[Type::INT4]).await?,
            district: client.prepare_typed(DISTRICT, &[Type::INT4, Type::INT2]).await?,
            customer: client.prepare_typed(CUSTOMER, &[Type::INT4, Type::INT2, Type::INT4]).await?,
            items: client.prepare_typed(ITEMS, &[Type::INT4_ARRAY]).await?,
            stock: all,
            order: client
                .prepare_typed(
                    ORDER,
                    &[Type::INT4, Type::INT2, Type::INT4, Type::INT4, Type::TIMESTAMPTZ, Type::INT2, Type::INT2],
                )
                .await?,
            new_order: client.prepare_typed(NEW_ORDER, &[Type::INT4, Type::INT2, Type::INT4]).await?,
            lines: client
                .prepare_typed(
                    LINES,
                    &[
                        Type::INT4,
                        Type::INT2,
                        Type::INT4,
                        Type::INT2_ARRAY,
                        Type::INT4_ARRAY,
                        Type::INT4_ARRAY,
                        Type::INT2_ARRAY,
                        Type::INT8_ARRAY,
                        Type::VARCHAR_ARRAY,
                    ],
                )
                .await?,
        })
    }
}

/// Lines with distinct stock rows, as the parameter columns of a statement.
#[derive(Default)]
struct Layer {
    line: Vec<i32>,
    w: Vec<i32>,
    item: Vec<i32>,
    quantity: Vec<i16>,
    remote: Vec<i32>,
}

/// Distributes lines to layers. Lines with the same stock row update it one after the other, so each of them goes into a
/// layer of its own. Each layer is sorted by warehouse and item, the lock order of all transactions.
fn layers(lines: &[LineInput], home: u32) -> Vec<Layer> {
    let mut order: ArrayVec<usize, MAX_LINES> = (0..lines.len()).collect();
    let place = |i: usize| (lines[i].supply_w, lines[i].item);
    order.sort_by_key(|&i| (place(i), i));
    let mut layers: Vec<Layer> = Vec::with_capacity(1);
    let mut depth = 0;
    for (at, &i) in order.iter().enumerate() {
        depth = if at > 0 && place(order[at - 1]) == place(i) { depth + 1 } else { 0 };
        if layers.len() == depth {
            layers.push(Layer::default());
        }
        let (layer, line) = (&mut layers[depth], &lines[i]);
        layer.line.push(i as i32);
        layer.w.push(int(line.supply_w));
        layer.item.push(int(line.item));
        layer.quantity.push(i16::from(line.quantity));
        layer.remote.push(i32::from(line.supply_w != home));
    }
    layers
}

/// Results of the first batch.
struct FirstBatch {
    warehouse: Vec<Row>,
    district: Vec<Row>,
    customer: Vec<Row>,
    items: Vec<Row>,
    stock: Vec<Vec<Row>>,
}

/// Sends the first batch. With [`StepOrder::HotLast`], the district is locked last.
fn send_first_batch(work: &TxnContext<'_>, input: &NewOrderInput) -> Result<FirstBatch, super::PgError> {
    let CustomerKey { w, d, c } = input.customer;
    let (own, all) = (&work.statements.new_order, work.client());
    let (w_id, d_id, c_id) = (int(w), i16::from(d), int(c));
    let mut wanted: Vec<i32> = input.lines.iter().map(|line| int(line.item)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let layers = layers(&input.lines, w);
    let take = &own.stock[usize::from(d) - 1];
    let stocks = join_all(layers.iter().map(|layer| async move {
        let Layer { line, w, item, quantity, remote } = layer;
        all.query(take, &[line, w, item, quantity, remote]).await
    }));
    let key: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&w_id, &d_id, &c_id];
    let (begin, district) = (work.begin(Turn::NewOrder(w, d)), all.query(&own.district, &key[..2]));
    let (warehouse, customer) = (all.query(&own.warehouse, &key[..1]), all.query(&own.customer, &key));
    let items: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&wanted];
    let items = all.query(&own.items, &items);
    let (begin, warehouse, district, customer, items, stocks) = work.connection.wait(async {
        match work.steps {
            StepOrder::HotLast => {
                let first = join5(begin, customer, items, stocks, warehouse);
                let ((begin, customer, items, stocks, warehouse), district) = join(first, district).await;
                (begin, warehouse, district, customer, items, stocks)
            }
            StepOrder::Spec => {
                let first = join5(begin, warehouse, district, customer, items);
                let ((begin, warehouse, district, customer, items), stocks) = join(first, stocks).await;
                (begin, warehouse, district, customer, items, stocks)
            }
        }
    })?;
    work.done(begin)?;
    Ok(match work.steps {
        StepOrder::HotLast => {
            let customer = work.of(TableId::Customer, customer)?;
            let items = work.of(TableId::Item, items)?;
            let stock = stocks.into_iter().map(|rows| work.of(TableId::Stock, rows)).collect::<Result<_, _>>()?;
            let warehouse = work.of(TableId::Warehouse, warehouse)?;
            FirstBatch { warehouse, district: work.of(TableId::District, district)?, customer, items, stock }
        }
        StepOrder::Spec => {
            let warehouse = work.of(TableId::Warehouse, warehouse)?;
            let district = work.of(TableId::District, district)?;
            let customer = work.of(TableId::Customer, customer)?;
            let items = work.of(TableId::Item, items)?;
            let stock = stocks.into_iter().map(|rows| work.of(TableId::Stock, rows)).collect::<Result<_, _>>()?;
            FirstBatch { warehouse, district, customer, items, stock }
        }
    })
}

pub(super) fn run(work: &TxnContext<'_>, input: &NewOrderInput, scratch: &mut Scratch) -> TxnOutcome {
    let CustomerKey { w, d, c } = input.customer;
    let out = &mut scratch.out.new_order;
    out.lines.clear();
    out.start(input.order());
    let batch = send_first_batch(work, input)?;

    let row = batch.warehouse.first().ok_or_else(|| missing(TableId::Warehouse, &WarehouseKey { w }))?;
    out.w_tax = work.get(row, 0)?;
    let row = batch.district.first().ok_or_else(|| missing(TableId::District, &DistrictKey { w, d }))?;
    out.o_id = work.get::<i32>(row, 0)?.cast_unsigned();
    out.d_tax = work.get(row, 1)?;
    let row = batch.customer.first().ok_or_else(|| missing(TableId::Customer, &input.customer))?;
    (out.discount, out.last, out.credit) = (work.get(row, 0)?, work.text(row, 1)?, work.fixed(row, 2)?);

    let mut items: ArrayVec<(u32, i64, Text<24>, bool), MAX_LINES> = ArrayVec::new();
    for row in &batch.items {
        let original = is_original(&work.text(row, 3)?);
        items.push((work.get::<i32>(row, 0)?.cast_unsigned(), work.get(row, 1)?, work.text(row, 2)?, original));
    }
    let mut taken: [Option<(i16, bool, &str)>; MAX_LINES] = [None; MAX_LINES];
    for row in batch.stock.iter().flatten() {
        let original = is_original(&work.text(row, 2)?);
        let stock = (work.get(row, 1)?, original, work.get(row, 3)?);
        match taken.get_mut(work.get::<i32>(row, 0)? as usize) {
            Some(place) => *place = Some(stock),
            None => return Err(work.connection.unexpected("a line that was not asked for").into()),
        }
    }

    let mut order_lines = OrderLineColumns::default();
    for (i, line) in input.lines.iter().enumerate() {
        // All lines are processed before an order with an unused item number is rolled back.
        let Some((_, price, name, item_original)) = items.iter().find(|(id, ..)| *id == line.item) else {
            out.invalid = true;
            continue;
        };
        let (stock, stock_original, dist) =
            taken[i].ok_or_else(|| missing(TableId::Stock, &StockKey { w: line.supply_w, i: line.item }))?;
        let output = LineOutput {
            supply_w: line.supply_w,
            item: line.item,
            name: *name,
            quantity: line.quantity,
            stock,
            brand: if *item_original && stock_original { b'B' } else { b'G' },
            price: *price,
            amount: price * i64::from(line.quantity),
        };
        order_lines.push(i, &output, dist);
        out.lines.push(output);
    }
    let verdict = if out.invalid { Verdict::Rollback } else { Verdict::Commit };
    let all_local = i16::from(input.lines.iter().all(|line| line.supply_w == w));
    let (w_id, d_id, c_id, o_id) = (int(w), i16::from(d), int(c), int(out.o_id));
    let (now, count) = (SqlTimestamp(input.now), input.lines.len() as i16);
    let (own, all) = (&work.statements.new_order, work.client());
    let OrderLineColumns { number, item, supply, quantity, amount, dist } = &order_lines;
    let (order, new_order, lines, end) = work.connection.wait(join4(
        all.execute(&own.order, &[&w_id, &d_id, &o_id, &c_id, &now, &count, &all_local]),
        all.execute(&own.new_order, &[&w_id, &d_id, &o_id]),
        all.execute(&own.lines, &[&w_id, &d_id, &o_id, number, item, supply, quantity, amount, dist]),
        work.end(if verdict == Verdict::Commit { "COMMIT" } else { "ROLLBACK" }),
    ))?;
    work.of(TableId::Order, order)?;
    work.of(TableId::NewOrder, new_order)?;
    work.of(TableId::OrderLine, lines)?;
    work.done(end)?;
    out.total = total(out, &out.lines);
    black_box(&*out);
    Ok(verdict)
}

/// Lines to insert, as the parameter columns of a statement.
#[derive(Default)]
struct OrderLineColumns<'r> {
    number: Vec<i16>,
    item: Vec<i32>,
    supply: Vec<i32>,
    quantity: Vec<i16>,
    amount: Vec<i64>,
    dist: Vec<&'r str>,
}

impl<'r> OrderLineColumns<'r> {
    fn push(&mut self, i: usize, line: &LineOutput, dist: &'r str) {
        self.number.push(i as i16 + 1);
        self.item.push(int(line.item));
        self.supply.push(int(line.supply_w));
        self.quantity.push(i16::from(line.quantity));
        self.amount.push(line.amount);
        self.dist.push(dist);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_stock_row_go_one_after_the_other() {
        let line = |item, supply_w, quantity| LineInput { item, supply_w, quantity };
        let layers = layers(&[line(9, 1, 1), line(5, 2, 2), line(9, 1, 3), line(5, 1, 4), line(9, 1, 5)], 1);
        let lines: Vec<&[i32]> = layers.iter().map(|layer| &layer.line[..]).collect();
        assert_eq!(lines, [&[3, 0, 1][..], &[2], &[4]]);
        assert_eq!((&layers[0].w[..], &layers[0].item[..]), (&[1, 1, 2][..], &[5, 9, 5][..]));
        assert_eq!((&layers[0].remote[..], &layers[0].quantity[..]), (&[0, 0, 1][..], &[4, 1, 2][..]));
    }
}
