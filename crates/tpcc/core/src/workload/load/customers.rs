//! Load of CUSTOMER, its index by name, and HISTORY.

use zerocopy::little_endian::{I32, I64, U32};

use super::places::{FIRST_PAYMENT, address};
use super::sink::{Append, AppendIndex, BulkSink};
use super::{LoadEnd, Population, RowsDone};
use crate::workload::generate::Random;
use crate::workload::generate::name::last_name;
use crate::workload::generate::nurand::Constants;
use crate::workload::schema::keys::{CustomerKey, CustomerNameKey, HistoryKey};
use crate::workload::schema::rows::{BAD_CREDIT, CustomerCold, CustomerHot, GOOD_CREDIT, HistoryCold};
use crate::workload::schema::tables::{Customer, CustomerByName, History};
use crate::workload::schema::text::LongText;
use crate::workload::schema::{IndexDef, Row, TableId};

/// Loads CUSTOMER, its index by name, and HISTORY.
pub(super) fn customers<S: BulkSink>(plan: &Population, sink: &S, progress: &RowsDone) -> Result<LoadEnd, S::Error> {
    let mut customers = sink.table::<Customer>()?;
    let mut by_name = sink.index::<CustomerByName>()?;
    let mut history = sink.table::<History>()?;
    let mut names: Vec<CustomerNameKey> = Vec::with_capacity(plan.scale.customers as usize);
    for w in 1..=plan.warehouses {
        let mut random = plan.stream(TableId::Customer, w);
        let mut payments = plan.stream(TableId::History, w);
        for d in 1..=plan.scale.districts {
            names.clear();
            for c in 1..=plan.scale.customers {
                let key = CustomerKey { w, d, c };
                let row = Row { hot: paid_once(), cold: customer(plan, &mut random, c) };
                customers.push(&key, &row)?;
                names.push(CustomerByName::key_of(&key, &row.cold));

                // The loader is run 0; its terminal number is the warehouse number.
                let sequence = u64::from(d - 1) * u64::from(plan.scale.customers) + u64::from(c);
                let payment = HistoryCold {
                    c_id: U32::new(c),
                    c_d_id: d,
                    c_w_id: U32::new(w),
                    d_id: d,
                    w_id: U32::new(w),
                    date: plan.now,
                    amount: I64::new(FIRST_PAYMENT),
                    data: payments.text(12, 24),
                };
                history.push(&HistoryKey { run: 0, terminal: w, sequence }, &Row { hot: (), cold: payment })?;
            }
            names.sort_unstable();
            for name in &names {
                by_name.push(name)?;
            }
            if progress.add(2 * u64::from(plan.scale.customers)) {
                return Ok(LoadEnd::Cancelled);
            }
        }
    }
    customers.finish()?;
    by_name.finish()?;
    history.finish()?;
    Ok(LoadEnd::Done)
}

fn paid_once() -> CustomerHot {
    CustomerHot {
        balance: I64::new(-FIRST_PAYMENT),
        ytd_payment: I64::new(FIRST_PAYMENT),
        payment_cnt: U32::new(1),
        delivery_cnt: U32::ZERO,
    }
}

fn customer(plan: &Population, random: &mut Random, c: u32) -> CustomerCold {
    let names = plan.scale.names;
    // The first customers of a district get all last names in turn, so that every name occurs in every district.
    let name =
        if c <= names { c - 1 } else { Constants { last: plan.c_load, customer: 0, item: 0 }.last_name(random, names) };
    CustomerCold {
        discount: I32::new(random.in_range(0, 5_000) as i32),
        credit: if random.percent(10) { BAD_CREDIT } else { GOOD_CREDIT },
        credit_lim: I64::new(5_000_000),
        since: plan.now,
        last: last_name(name),
        first: random.text(8, 16),
        middle: *b"OE",
        phone: random.phone(),
        address: address(random),
        data: LongText::filled(random.in_range(300, 500) as usize, |out| random.letters(out)),
    }
}
