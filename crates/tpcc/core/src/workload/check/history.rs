//! Sums of the payments in HISTORY, by customer and by the district that took the payment. The rows are ordered by terminal,
//! not by warehouse, so one pass over all rows computes the sums for a group of warehouses.

use std::ops::ControlFlow;

use super::rule::{Invariant, Violations};
use crate::workload::loaded::Loaded;
use crate::workload::ops::Read;
use crate::workload::schema::keys::HistoryKey;
use crate::workload::schema::tables::History;

/// Payment sums of the warehouses `first..=last`.
pub(super) struct Payments {
    first: u32,
    customers_per_district: usize,
    districts: usize,
    /// Sum of the payments in cents, and number of payments, for each customer.
    by_customer: Vec<(i64, u32)>,
    /// Sum of the payments that each district took, in cents.
    by_district: Vec<i64>,
    /// Total number of rows of HISTORY.
    pub(super) rows: u64,
}

impl Payments {
    fn district(&self, w: u32, d: u8) -> usize {
        (w - self.first) as usize * self.districts + usize::from(d - 1)
    }

    /// Returns the sum of the payments that a district took (H_W_ID, H_D_ID), in cents.
    pub(super) fn taken(&self, w: u32, d: u8) -> i64 {
        self.by_district[self.district(w, d)]
    }

    /// Returns the sum in cents and the number of the payments of each customer of a district (H_C_W_ID, H_C_D_ID).
    pub(super) fn customers(&self, w: u32, d: u8) -> &[(i64, u32)] {
        let at = self.district(w, d) * self.customers_per_district;
        &self.by_customer[at..at + self.customers_per_district]
    }
}

/// Sums the payments of customers of the warehouses `first..=last`, and the payments that these warehouses took.
pub(super) fn sum_payments<R: Read>(
    reader: &mut R,
    loaded: &Loaded,
    first: u32,
    last: u32,
    findings: &mut Violations,
) -> Result<Payments, R::Error> {
    let scale = &loaded.scale;
    let districts = (last - first + 1) as usize * usize::from(scale.districts);
    let mut payments = Payments {
        first,
        customers_per_district: scale.customers as usize,
        districts: usize::from(scale.districts),
        by_customer: vec![(0, 0); districts * scale.customers as usize],
        by_district: vec![0; districts],
        rows: 0,
    };
    let from = HistoryKey { run: 0, terminal: 0, sequence: 0 };
    let to = HistoryKey { run: u32::MAX, terminal: u32::MAX, sequence: u64::MAX };
    reader.scan::<History>(&from, &to, |key, row| {
        payments.rows += 1;
        let (w, d, c) = (row.cold.c_w_id.get(), row.cold.c_d_id, row.cold.c_id.get());
        let (taken_w, taken_d) = (row.cold.w_id.get(), row.cold.d_id);
        let exists = |w: u32, d: u8| (1..=loaded.warehouses).contains(&w) && (1..=scale.districts).contains(&d);
        if !exists(w, d) || !exists(taken_w, taken_d) || !(1..=scale.customers).contains(&c) {
            // An invalid row is reported in the first pass only, because every pass reads all rows.
            if first == 1 {
                findings.add(Invariant::Payments, || {
                    format!(
                        "{key:?}: customer {c} of warehouse {w}, district {d}, paid in {taken_w}, {taken_d}: no such"
                    )
                });
            }
            return ControlFlow::Continue(());
        }
        let amount = row.cold.amount.get();
        if (first..=last).contains(&w) {
            let at = payments.district(w, d) * payments.customers_per_district + c as usize - 1;
            let customer = &mut payments.by_customer[at];
            customer.0 += amount;
            customer.1 += 1;
        }
        if (first..=last).contains(&taken_w) {
            let at = payments.district(taken_w, taken_d);
            payments.by_district[at] += amount;
        }
        ControlFlow::Continue(())
    })?;
    Ok(payments)
}
