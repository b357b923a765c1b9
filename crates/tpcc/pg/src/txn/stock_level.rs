//! Stock-Level in one round trip: the server counts the items.

use futures_util::future::join3;

use super::turns::Turn;
use super::{TxnContext, TxnOutcome, int};
use tpcc_core::workload::generate::input::StockLevelInput;
use tpcc_core::workload::schema::TableId;
use tpcc_core::workload::txn::stock_level::set_output;
use tpcc_core::workload::txn::{Scratch, Verdict};

/// SQL that counts the distinct items in the last twenty orders with a stock below the threshold.
pub(super) const COUNT: &str = "SELECT count(DISTINCT s_i_id) FROM district \
    JOIN order_line ON ol_w_id = d_w_id AND ol_d_id = d_id AND ol_o_id >= d_next_o_id - 20 AND ol_o_id < d_next_o_id \
    JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id \
    WHERE d_w_id = $1 AND d_id = $2 AND s_quantity < $3";

pub(super) fn run(work: &TxnContext<'_>, input: &StockLevelInput, scratch: &mut Scratch) -> TxnOutcome {
    let all = work.client();
    let (w_id, d_id, threshold) = (int(input.w), i16::from(input.d), input.threshold);
    let (begin, counted, end) = work.connection.wait(join3(
        work.begin_reading(Turn::Alone(input.w)),
        all.query_one(&work.statements.stock_level, &[&w_id, &d_id, &threshold]),
        work.end("COMMIT"),
    ))?;
    work.done(begin)?;
    let row = work.of(TableId::Stock, counted)?;
    work.done(end)?;
    set_output(input, work.get::<i64>(&row, 0)? as u32, scratch);
    Ok(Verdict::Commit)
}
