//! Payment (2.5.2).
//!
//! With [`StepOrder::HotLast`], D_YTD and W_YTD, on which all payments of a district and a warehouse contend, are updated
//! after the customer. The HISTORY row is inserted after these updates, because H_DATA contains the names of the warehouse
//! and the district.

use std::hint::black_box;

use arrayvec::ArrayVec;
use zerocopy::little_endian::{I64, U32};

use super::{Failure, Overflow, Scratch, StepOrder, TxnResult, Verdict, customer};
use crate::workload::generate::input::PaymentInput;
use crate::workload::ops::Ops;
use crate::workload::schema::Row;
use crate::workload::schema::keys::{CustomerKey, DistrictKey, WarehouseKey};
use crate::workload::schema::parts::CustomerDetails;
use crate::workload::schema::rows::{Address, BAD_CREDIT, CustomerCold, CustomerHot, HistoryCold, Timestamp};
use crate::workload::schema::tables::{Customer, District, History, Warehouse};
use crate::workload::schema::text::Text;

/// Output fields of Payment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PaymentOutput {
    /// Output fields of fixed size; `None` before the first Payment.
    pub fields: Option<PaymentFields>,
    /// First 200 characters of C_DATA if the customer has bad credit.
    pub data: CustomerData,
}

/// The first 200 characters of C_DATA.
pub type CustomerData = ArrayVec<u8, 200>;

/// Output fields of fixed size.
#[derive(Clone, Debug, PartialEq)]
pub struct PaymentFields {
    /// Columns of the customer of the payment.
    pub payer: Payer,
    /// W_STREET_1 .. W_ZIP.
    pub w_address: Address,
    /// D_STREET_1 .. D_ZIP.
    pub d_address: Address,
    /// H_AMOUNT, cents.
    pub amount: i64,
    /// H_DATE.
    pub date: Timestamp,
}

/// Columns of the customer of the payment.
#[derive(Clone, Debug, PartialEq)]
pub struct Payer {
    /// C_W_ID, C_D_ID, C_ID.
    pub key: CustomerKey,
    /// C_FIRST.
    pub first: Text<16>,
    /// C_MIDDLE.
    pub middle: [u8; 2],
    /// C_LAST.
    pub last: Text<16>,
    /// C_STREET_1 .. C_ZIP.
    pub address: Address,
    /// C_PHONE.
    pub phone: [u8; 16],
    /// C_SINCE.
    pub since: Timestamp,
    /// C_CREDIT.
    pub credit: [u8; 2],
    /// C_CREDIT_LIM, cents.
    pub credit_lim: i64,
    /// C_DISCOUNT, 1/10000.
    pub discount: i32,
    /// C_BALANCE after the payment, cents.
    pub balance: i64,
}

/// Name and address of a warehouse or district.
pub type NameAndAddress = (Text<10>, Address);

/// Runs a Payment except for its final commit or rollback.
pub(super) fn run<O: Ops>(ops: &mut O, steps: StepOrder, input: &PaymentInput, scratch: &mut Scratch) -> TxnResult<O> {
    let (warehouse, district, payer) = match steps {
        StepOrder::HotLast => {
            ops.prefetch_insert::<History>(&input.history);
            let key = customer::find(ops, input.customer, scratch)?;
            let payer = update_customer(ops, input, key, &mut scratch.out.payment.data)?;
            let district = update_district(ops, input)?;
            (update_warehouse(ops, input)?, district, payer)
        }
        StepOrder::Spec => {
            let (warehouse, district) = (update_warehouse(ops, input)?, update_district(ops, input)?);
            let key = customer::find(ops, input.customer, scratch)?;
            (warehouse, district, update_customer(ops, input, key, &mut scratch.out.payment.data)?)
        }
    };
    finish(ops, input, warehouse, district, payer, scratch)
}

/// Values that one of the two halves of a Payment has read. The halves can run at the same time.
pub enum Half {
    /// Warehouse and district.
    Places(NameAndAddress, NameAndAddress),
    /// Customer.
    Payer(Box<(Payer, CustomerData)>),
}

/// Updates the customer, or the warehouse and the district.
pub fn update_half<O: Ops>(
    ops: &mut O,
    input: &PaymentInput,
    key: CustomerKey,
    is_payer: bool,
) -> Result<Half, Failure<O::Error>> {
    if is_payer {
        let mut data = CustomerData::new();
        let payer = update_customer(ops, input, key, &mut data)?;
        return Ok(Half::Payer(Box::new((payer, data))));
    }
    Ok(Half::Places(update_warehouse(ops, input)?, update_district(ops, input)?))
}

/// The halves of a Payment that have run.
#[derive(Default)]
pub struct Halves {
    places: Option<(NameAndAddress, NameAndAddress)>,
    payer: Option<Box<(Payer, CustomerData)>>,
}

impl Halves {
    /// Adds a half.
    pub fn add(&mut self, half: Half) {
        match half {
            Half::Places(warehouse, district) => self.places = Some((warehouse, district)),
            Half::Payer(read) => self.payer = Some(read),
        }
    }

    /// Runs the steps after the halves, as [`finish`]. Returns `None` if a half has not run.
    pub fn finish<O: Ops>(self, ops: &mut O, input: &PaymentInput, scratch: &mut Scratch) -> Option<TxnResult<O>> {
        let ((warehouse, district), read) = self.places.zip(self.payer)?;
        let (payer, data) = *read;
        scratch.out.payment.data = data;
        Some(finish(ops, input, warehouse, district, payer, scratch))
    }
}

/// Inserts the HISTORY row of the payment, which combines the values read before, and sets the output fields.
pub fn finish<O: Ops>(
    ops: &mut O,
    input: &PaymentInput,
    (w_name, w_address): NameAndAddress,
    (d_name, d_address): NameAndAddress,
    payer: Payer,
    scratch: &mut Scratch,
) -> TxnResult<O> {
    let (w_name, d_name) = (w_name.as_bytes(), d_name.as_bytes());
    let data = Text::filled(w_name.len() + 4 + d_name.len(), |out| {
        out[..w_name.len()].copy_from_slice(w_name);
        out[w_name.len()..w_name.len() + 4].fill(b' ');
        out[w_name.len() + 4..].copy_from_slice(d_name);
    });
    let history = HistoryCold {
        c_id: U32::new(payer.key.c),
        c_d_id: payer.key.d,
        c_w_id: U32::new(payer.key.w),
        d_id: input.d,
        w_id: U32::new(input.w),
        date: input.now,
        amount: I64::new(input.amount),
        data,
    };
    ops.insert::<History>(&input.history, &Row { hot: (), cold: history })?;
    let out = &mut scratch.out.payment;
    out.fields = Some(PaymentFields { payer, w_address, d_address, amount: input.amount, date: input.now });
    black_box(&*out);
    Ok(Verdict::Commit)
}

/// Adds the amount to W_YTD. Returns the warehouse's name and address.
pub fn update_warehouse<O: Ops>(ops: &mut O, input: &PaymentInput) -> Result<NameAndAddress, Failure<O::Error>> {
    let key = WarehouseKey { w: input.w };
    ops.update::<Warehouse, _>(&key, |hot, cold| {
        hot.ytd.set(hot.ytd.get().checked_add(input.amount).ok_or(Overflow("W_YTD"))?);
        Ok((cold.name, cold.address))
    })?
    .ok_or_else(|| Failure::missing::<Warehouse>(&key))?
    .map_err(|o: Overflow| o.of::<Warehouse, _>())
}

/// Adds the amount to D_YTD. Returns the district's name and address.
pub fn update_district<O: Ops>(ops: &mut O, input: &PaymentInput) -> Result<NameAndAddress, Failure<O::Error>> {
    let key = DistrictKey { w: input.w, d: input.d };
    ops.update::<District, _>(&key, |hot, cold| {
        hot.ytd.set(hot.ytd.get().checked_add(input.amount).ok_or(Overflow("D_YTD"))?);
        Ok((cold.name, cold.address))
    })?
    .ok_or_else(|| Failure::missing::<District>(&key))?
    .map_err(|o: Overflow| o.of::<District, _>())
}

/// Updates the customer's balance and payment counters by the amount. If the customer has bad credit, `data` receives the
/// first characters of C_DATA.
pub fn update_customer<O: Ops>(
    ops: &mut O,
    input: &PaymentInput,
    key: CustomerKey,
    data: &mut CustomerData,
) -> Result<Payer, Failure<O::Error>> {
    let payer = ops
        .update_part::<CustomerDetails, _>(&key, |hot, cold| {
            pay(hot, input.amount)?;
            Ok(Payer {
                key,
                first: cold.first,
                middle: cold.middle,
                last: cold.last,
                address: cold.address,
                phone: cold.phone,
                since: cold.since,
                credit: cold.credit,
                credit_lim: cold.credit_lim.get(),
                discount: cold.discount.get(),
                balance: hot.balance.get(),
            })
        })?
        .ok_or_else(|| Failure::missing::<Customer>(&key))?
        .map_err(|o: Overflow| o.of::<Customer, _>())?;
    data.clear();
    if payer.credit == BAD_CREDIT {
        let front = record(key, input);
        ops.rewrite::<Customer, _>(&key, |row| prepend_record(&mut row.cold, &front, data))?
            .ok_or_else(|| Failure::missing::<Customer>(&key))?;
    }
    Ok(payer)
}

fn pay(hot: &mut CustomerHot, amount: i64) -> Result<(), Overflow> {
    hot.balance.set(hot.balance.get().checked_sub(amount).ok_or(Overflow("C_BALANCE"))?);
    hot.ytd_payment.set(hot.ytd_payment.get().checked_add(amount).ok_or(Overflow("C_YTD_PAYMENT"))?);
    hot.payment_cnt.set(hot.payment_cnt.get().checked_add(1).ok_or(Overflow("C_PAYMENT_CNT"))?);
    Ok(())
}

/// Inserts the text record of the payment at the beginning of C_DATA. Copies the first characters of the result to `shown`.
fn prepend_record(cold: &mut CustomerCold, front: &[u8], shown: &mut CustomerData) {
    cold.data.prepend(front);
    shown.clear();
    shown.extend(cold.data.as_bytes().iter().take(200).copied());
}

/// Maximum length of the text record of a payment: six numbers of at most ten digits, cents, and blanks.
const RECORD: usize = 80;

/// Returns the text record of a payment: C_ID, C_D_ID, C_W_ID, D_ID, W_ID, H_AMOUNT.
fn record(key: CustomerKey, input: &PaymentInput) -> ArrayVec<u8, RECORD> {
    let mut text = ArrayVec::new();
    for number in [key.c, u32::from(key.d), key.w, u32::from(input.d), input.w] {
        decimal(&mut text, u64::from(number));
        text.push(b' ');
    }
    let cents = input.amount.unsigned_abs();
    decimal(&mut text, cents / 100);
    text.extend([b'.', b'0' + (cents / 10 % 10) as u8, b'0' + (cents % 10) as u8, b' ']);
    text
}

fn decimal(text: &mut ArrayVec<u8, RECORD>, mut number: u64) {
    let start = text.len();
    loop {
        text.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    text[start..].reverse();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::generate::input::CustomerSelector;
    use crate::workload::schema::keys::HistoryKey;

    #[test]
    fn the_record_names_customer_place_and_amount() {
        let key = CustomerKey { w: 12, d: 10, c: 2999 };
        let history = HistoryKey { run: 1, terminal: 0, sequence: 0 };
        let mut input = PaymentInput {
            w: 3,
            d: 4,
            customer: CustomerSelector::Id(key),
            amount: 123_405,
            now: Timestamp::at(1),
            history,
        };
        assert_eq!(&record(key, &input)[..], b"2999 10 12 4 3 1234.05 ");
        input.amount = 100;
        assert!(record(key, &input).ends_with(b" 1.00 "));
        let widest = CustomerKey { w: u32::MAX, d: u8::MAX, c: u32::MAX };
        assert!(record(widest, &PaymentInput { w: u32::MAX, d: u8::MAX, amount: 500_000, ..input }).len() <= RECORD);
    }
}
