//! Payment in one round trip: the server computes all values that depend on the customer or on names.

use std::hint::black_box;

use futures_util::future::join5;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use super::super::columns::SqlTimestamp;
use super::turns::Turn;
use super::{PgError, TxnContext, TxnOutcome, int, missing};
use tpcc_core::workload::generate::input::{CustomerSelector, PaymentInput};
use tpcc_core::workload::schema::TableId;
use tpcc_core::workload::schema::keys::{CustomerKey, DistrictKey, WarehouseKey};
use tpcc_core::workload::schema::rows::Address;
use tpcc_core::workload::schema::text::Text;
use tpcc_core::workload::txn::payment::{Payer, PaymentFields};
use tpcc_core::workload::txn::{Scratch, StepOrder, Verdict};

const WAREHOUSE: &str = "UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1 \
    RETURNING w_street_1, w_street_2, w_city, w_state, w_zip";
const DISTRICT: &str = "UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2 \
    RETURNING d_street_1, d_street_2, d_city, d_state, d_zip";
/// SQL expression of the customer's number: a parameter.
pub(super) const BY_ID: &str = "$3::int4";
/// SQL expression of the customer's number, selected by last name: of n customers sorted by first name, the one at position
/// ceil(n/2) counted from 1. The division is a shift, because `/` on integers gives a fraction in CockroachDB.
pub(super) const BY_NAME: &str = "(SELECT (array_agg(c_id ORDER BY c_first, c_id))[((count(*) + 1) >> 1)::int4] \
    FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3)";

/// Returns the SQL that updates the customer, and inserts the row of HISTORY.
fn customer(which: &str) -> String {
    format!(
        "WITH paid AS (UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4, \
         c_payment_cnt = c_payment_cnt + 1, c_data = CASE WHEN c_credit = 'BC' \
         THEN left(c_id::text || $5::text || c_data, 500) ELSE c_data END \
         WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = {which} \
         RETURNING c_id, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, \
         c_credit, c_credit_lim, c_discount, c_balance, CASE WHEN c_credit = 'BC' THEN left(c_data, 200) END AS shown), \
         noted AS (INSERT INTO history (h_run, h_terminal, h_sequence, h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, \
         h_date, h_amount, h_data) SELECT $6::int4, $7::int4, $8::int8, c_id, $2, $1, d_id, w_id, \
         $11::timestamptz, $4, w_name || '    ' || d_name \
         FROM paid, warehouse, district WHERE w_id = $9 AND d_w_id = $9 AND d_id = $10) \
         SELECT * FROM paid"
    )
}

/// Returns the types of the parameters. The third parameter selects the customer and has the type `who`.
fn parameters(who: Type) -> [Type; 11] {
    [
        Type::INT4,
        Type::INT2,
        who,
        Type::INT8,
        Type::TEXT,
        Type::INT4,
        Type::INT4,
        Type::INT8,
        Type::INT4,
        Type::INT2,
        Type::TIMESTAMPTZ,
    ]
}

pub(super) struct PaymentStatements {
    warehouse: Statement,
    district: Statement,
    by_id: Statement,
    by_name: Statement,
}

impl PaymentStatements {
    pub(super) async fn prepare(client: &Client) -> Result<PaymentStatements, Error> {
        Ok(PaymentStatements {
            warehouse: client.prepare_typed(WAREHOUSE, &[Type::INT4, Type::INT8]).await?,
            district: client.prepare_typed(DISTRICT, &[Type::INT4, Type::INT2, Type::INT8]).await?,
            by_id: client.prepare_typed(&customer(BY_ID), &parameters(Type::INT4)).await?,
            by_name: client.prepare_typed(&customer(BY_NAME), &parameters(Type::TEXT)).await?,
        })
    }
}

/// Returns the text that follows C_ID in the record that is prepended to C_DATA.
fn record(key: (u32, u8), input: &PaymentInput) -> String {
    let (cents, (w, d)) = (input.amount, key);
    format!(" {d} {w} {} {} {}.{:02} ", input.d, input.w, cents / 100, cents % 100)
}

pub(super) fn run(work: &TxnContext<'_>, input: &PaymentInput, scratch: &mut Scratch) -> TxnOutcome {
    let (own, all) = (&work.statements.payment, work.client());
    let name;
    let number;
    let (c_w, c_d, statement, who): (u32, u8, &Statement, &(dyn ToSql + Sync)) = match &input.customer {
        CustomerSelector::Id(CustomerKey { w, d, c }) => {
            number = int(*c);
            (*w, *d, &own.by_id, &number)
        }
        CustomerSelector::Name(w, d, last) => {
            name = String::from_utf8_lossy(last).trim_end_matches('\0').to_owned();
            (*w, *d, &own.by_name, &name)
        }
    };
    let record = record((c_w, c_d), input);
    let (c_w_id, c_d_id, w_id, d_id) = (int(c_w), i16::from(c_d), int(input.w), i16::from(input.d));
    let (run, terminal) = (int(input.history.run), int(input.history.terminal));
    let (sequence, now, amount) = (input.history.sequence.cast_signed(), SqlTimestamp(input.now), input.amount);
    let of_warehouse: [&(dyn ToSql + Sync); 2] = [&w_id, &amount];
    let of_district: [&(dyn ToSql + Sync); 3] = [&w_id, &d_id, &amount];
    let of_customer: [&(dyn ToSql + Sync); 11] =
        [&c_w_id, &c_d_id, who, &amount, &record, &run, &terminal, &sequence, &w_id, &d_id, &now];
    let turn = Turn::Payment(input.w, input.d);
    let (begin, end) = (work.begin(turn), work.end("COMMIT"));
    let warehouse = all.query(&own.warehouse, &of_warehouse);
    let district = all.query(&own.district, &of_district);
    let customer = all.query(statement, &of_customer);
    let (warehouse, district, customer) = match work.steps {
        StepOrder::HotLast => {
            let (begin, customer, district, warehouse, end) =
                work.connection.wait(join5(begin, customer, district, warehouse, end))?;
            work.done(begin)?;
            let customer = work.of(TableId::Customer, customer)?;
            let district = work.of(TableId::District, district)?;
            let warehouse = work.of(TableId::Warehouse, warehouse)?;
            work.done(end)?;
            (warehouse, district, customer)
        }
        StepOrder::Spec => {
            let (begin, warehouse, district, customer, end) =
                work.connection.wait(join5(begin, warehouse, district, customer, end))?;
            work.done(begin)?;
            let warehouse = work.of(TableId::Warehouse, warehouse)?;
            let district = work.of(TableId::District, district)?;
            let customer = work.of(TableId::Customer, customer)?;
            work.done(end)?;
            (warehouse, district, customer)
        }
    };

    let row = warehouse.first().ok_or_else(|| missing(TableId::Warehouse, &WarehouseKey { w: input.w }))?;
    let w_address = address(work, row, 0)?;
    let key = DistrictKey { w: input.w, d: input.d };
    let row = district.first().ok_or_else(|| missing(TableId::District, &key))?;
    let d_address = address(work, row, 0)?;
    let row = customer.first().ok_or_else(|| missing(TableId::Customer, &input.customer))?;
    let payer = Payer {
        key: CustomerKey { w: c_w, d: c_d, c: work.get::<i32>(row, 0)?.cast_unsigned() },
        first: work.text(row, 1)?,
        middle: work.fixed(row, 2)?,
        last: work.text(row, 3)?,
        address: address(work, row, 4)?,
        phone: work.fixed(row, 9)?,
        since: work.get::<SqlTimestamp>(row, 10)?.0,
        credit: work.fixed(row, 11)?,
        credit_lim: work.get(row, 12)?,
        discount: work.get(row, 13)?,
        balance: work.get(row, 14)?,
    };
    let out = &mut scratch.out.payment;
    out.data.clear();
    if let Some(data) = work.get::<Option<&str>>(row, 15)? {
        out.data.extend(data.bytes().take(out.data.capacity()));
    }
    out.fields = Some(PaymentFields { payer, w_address, d_address, amount, date: input.now });
    black_box(&*out);
    Ok(Verdict::Commit)
}

/// Reads two streets, city, state and zip, from column `at` on.
fn address(work: &TxnContext<'_>, row: &Row, at: usize) -> Result<Address, PgError> {
    let text = |at| -> Result<Text<20>, PgError> { work.text(row, at) };
    let (street_1, street_2, city) = (text(at)?, text(at + 1)?, text(at + 2)?);
    Ok(Address { street_1, street_2, city, state: work.fixed(row, at + 3)?, zip: work.fixed(row, at + 4)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tpcc_core::workload::schema::keys::HistoryKey;
    use tpcc_core::workload::schema::rows::Timestamp;

    #[test]
    fn the_record_is_that_of_all_engines() {
        let key = CustomerKey { w: 12, d: 10, c: 2999 };
        let history = HistoryKey { run: 1, terminal: 0, sequence: 0 };
        let input = PaymentInput {
            w: 3,
            d: 4,
            customer: CustomerSelector::Id(key),
            amount: 123_405,
            now: Timestamp::at(1),
            history,
        };
        assert_eq!(format!("2999{}", record((12, 10), &input)), "2999 10 12 4 3 1234.05 ");
    }
}
