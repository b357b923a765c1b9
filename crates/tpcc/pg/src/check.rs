//! Checks the twelve consistency conditions and further rules. Each check is a query that selects the rows that violate a
//! rule. The queries are distributed over the connections; the server reads the tables.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::columns::table;
use super::connect::{Connection, Purpose, Server};
use super::error::PgError;
use tpcc_core::workload::check::rule::{Invariant, Violations};
use tpcc_core::workload::check::{Audit, RowCounts};
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::schema::TableId;
use tpcc_core::workload::threads;

/// A query whose result rows are violations of a rule.
pub(super) struct ViolationQuery {
    rule: Invariant,
    /// SQL text. Each result row is a violation, with at least two columns, all numeric.
    sql: &'static str,
    /// Message for a result row, with a `{}` for each column; `{s}` and `{have}` agree with the number before them.
    template: &'static str,
}

/// Number of queries of a check that the server has answered.
#[derive(Default)]
pub struct QueriesDone(AtomicUsize);

impl QueriesDone {
    /// Returns the number of answered queries, and the number of all queries.
    pub fn of(&self) -> (usize, usize) {
        (self.0.load(Ordering::Relaxed), VIOLATION_QUERIES.len())
    }
}

/// Maximum number of violations shown for each query. All violations are counted.
const SHOWN: usize = 10;

/// Queries of all rules. `:delivered` is the number of the last order of a district that was delivered by the load.
/// `:customers`, `:districts`, `:items` and `:warehouses` are the loaded numbers; a district's last loaded order has the
/// number `:customers`.
pub(super) const VIOLATION_QUERIES: &[ViolationQuery] = &[
    ViolationQuery {
        rule: Invariant::C1,
        sql: "SELECT w_id, w_ytd, coalesce(ytd, 0) FROM warehouse LEFT JOIN \
              (SELECT d_w_id, sum(d_ytd)::int8 AS ytd FROM district GROUP BY d_w_id) AS d ON d_w_id = w_id \
              WHERE w_ytd <> coalesce(ytd, 0)",
        template: "warehouse {}: W_YTD {}, its districts {} (cents)",
    },
    ViolationQuery {
        rule: Invariant::C2,
        sql: "SELECT d_w_id, d_id, d_next_o_id, coalesce(largest, 0) FROM district LEFT JOIN \
              (SELECT o_w_id, o_d_id, max(o_id) AS largest FROM orders GROUP BY o_w_id, o_d_id) AS o \
              ON o_w_id = d_w_id AND o_d_id = d_id WHERE d_next_o_id - 1 <> coalesce(largest, 0)",
        template: "warehouse {}, district {}: next order {}, largest order {}",
    },
    ViolationQuery {
        rule: Invariant::C2,
        sql: "SELECT d_w_id, d_id, d_next_o_id, largest FROM district JOIN \
              (SELECT no_w_id, no_d_id, max(no_o_id) AS largest FROM new_order GROUP BY no_w_id, no_d_id) AS n \
              ON no_w_id = d_w_id AND no_d_id = d_id WHERE d_next_o_id - 1 <> largest",
        template: "warehouse {}, district {}: next order {}, largest new order {}",
    },
    ViolationQuery {
        rule: Invariant::C3,
        sql: "SELECT no_w_id, no_d_id, min(no_o_id), max(no_o_id), count(*) FROM new_order GROUP BY no_w_id, no_d_id \
              HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
        template: "warehouse {}, district {}: new orders {} to {}, but {} row{s}",
    },
    ViolationQuery {
        rule: Invariant::C4,
        sql: "SELECT coalesce(o_w_id, ol_w_id), coalesce(o_d_id, ol_d_id), coalesce(counts, 0), coalesce(lines, 0) FROM \
              (SELECT o_w_id, o_d_id, sum(o_ol_cnt)::int8 AS counts FROM orders GROUP BY o_w_id, o_d_id) AS o FULL JOIN \
              (SELECT ol_w_id, ol_d_id, count(*) AS lines FROM order_line GROUP BY ol_w_id, ol_d_id) AS l \
              ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE coalesce(counts, 0) <> coalesce(lines, 0)",
        template: "warehouse {}, district {}: orders count {} line{s}, order_line has {}",
    },
    ViolationQuery {
        rule: Invariant::C5,
        sql: "SELECT o_w_id, o_d_id, o_id, o_carrier_id, (no_o_id IS NOT NULL)::int4 FROM orders LEFT JOIN new_order \
              ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
              WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
        template: "warehouse {}, district {}, order {}: carrier {}, rows of new_order {}",
    },
    ViolationQuery {
        rule: Invariant::C5,
        sql: "SELECT no_w_id, no_d_id, no_o_id FROM new_order LEFT JOIN orders \
              ON o_w_id = no_w_id AND o_d_id = no_d_id AND o_id = no_o_id WHERE o_id IS NULL",
        template: "warehouse {}, district {}, order {}: in new_order, but there is no such order",
    },
    ViolationQuery {
        rule: Invariant::C6,
        sql: "SELECT coalesce(o_w_id, ol_w_id), coalesce(o_d_id, ol_d_id), coalesce(o_id, ol_o_id), o_ol_cnt, \
              coalesce(lines, 0) FROM orders FULL JOIN \
              (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS lines FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) \
              AS l ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
              WHERE o_ol_cnt IS NULL OR o_ol_cnt <> coalesce(lines, 0)",
        template: "warehouse {}, district {}, order {}: O_OL_CNT {}, {} line{s}",
    },
    ViolationQuery {
        rule: Invariant::C7,
        sql: "SELECT ol_w_id, ol_d_id, ol_o_id, max(o_carrier_id), count(*) FROM order_line JOIN orders \
              ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
              WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL) GROUP BY ol_w_id, ol_d_id, ol_o_id",
        template: "warehouse {}, district {}, order {}: carrier {}, but not so {} of its lines",
    },
    ViolationQuery {
        rule: Invariant::C8,
        sql: "SELECT w_id, w_ytd, coalesce(paid, 0) FROM warehouse LEFT JOIN \
              (SELECT h_w_id, sum(h_amount)::int8 AS paid FROM history GROUP BY h_w_id) AS h ON h_w_id = w_id \
              WHERE w_ytd <> coalesce(paid, 0)",
        template: "warehouse {}: W_YTD {}, history {} (cents)",
    },
    ViolationQuery {
        rule: Invariant::C9,
        sql: "SELECT d_w_id, d_id, d_ytd, coalesce(paid, 0) FROM district LEFT JOIN \
              (SELECT h_w_id, h_d_id, sum(h_amount)::int8 AS paid FROM history GROUP BY h_w_id, h_d_id) AS h \
              ON h_w_id = d_w_id AND h_d_id = d_id WHERE d_ytd <> coalesce(paid, 0)",
        template: "warehouse {}, district {}: D_YTD {}, history {} (cents)",
    },
    ViolationQuery {
        rule: Invariant::C10,
        sql: "SELECT c_w_id, c_d_id, c_id, c_balance, coalesce(delivered, 0), coalesce(paid, 0) FROM customer LEFT JOIN \
              (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount)::int8 AS delivered FROM orders JOIN order_line \
              ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL \
              GROUP BY o_w_id, o_d_id, o_c_id) AS o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id LEFT JOIN \
              (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount)::int8 AS paid FROM history \
              GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
              WHERE c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)",
        template: "warehouse {}, district {}, customer {}: C_BALANCE {}, delivered {}, paid {} (cents)",
    },
    ViolationQuery {
        rule: Invariant::C11,
        sql: "SELECT o_w_id, o_d_id, orders, coalesce(new_orders, 0), carriers FROM \
              (SELECT o_w_id, o_d_id, count(*) AS orders, count(o_carrier_id) AS carriers FROM orders \
              GROUP BY o_w_id, o_d_id) AS o LEFT JOIN \
              (SELECT no_w_id, no_d_id, count(*) AS new_orders FROM new_order GROUP BY no_w_id, no_d_id) AS n \
              ON no_w_id = o_w_id AND no_d_id = o_d_id WHERE orders - coalesce(new_orders, 0) <> carriers",
        template: "warehouse {}, district {}: {} order{s}, {} of them new, but {} {have} a carrier",
    },
    ViolationQuery {
        rule: Invariant::C12,
        sql: "SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, coalesce(delivered, 0) FROM customer LEFT JOIN \
              (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount)::int8 AS delivered FROM orders JOIN order_line \
              ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL \
              GROUP BY o_w_id, o_d_id, o_c_id) AS o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
              WHERE c_balance + c_ytd_payment <> coalesce(delivered, 0)",
        template: "warehouse {}, district {}, customer {}: C_BALANCE {}, C_YTD_PAYMENT {}, delivered {} (cents)",
    },
    ViolationQuery {
        rule: Invariant::RowCounts,
        sql: "SELECT w, warehouses, districts, customers, stock FROM generate_series(1, :warehouses) AS g (w) LEFT JOIN \
              (SELECT w_id, count(*) AS warehouses FROM warehouse GROUP BY w_id) AS a ON w_id = w LEFT JOIN \
              (SELECT d_w_id, count(*) AS districts FROM district GROUP BY d_w_id) AS b ON d_w_id = w LEFT JOIN \
              (SELECT c_w_id, count(*) AS customers FROM customer GROUP BY c_w_id) AS c ON c_w_id = w LEFT JOIN \
              (SELECT s_w_id, count(*) AS stock FROM stock GROUP BY s_w_id) AS d ON s_w_id = w \
              WHERE warehouses IS NULL OR coalesce(districts, 0) <> :districts \
              OR coalesce(customers, 0) <> :districts * :customers OR coalesce(stock, 0) <> :items",
        template: "warehouse {}: {} row{s} of its own, {} district{s}, {} customer{s}, {} row{s} of stock",
    },
    ViolationQuery {
        rule: Invariant::RowCounts,
        sql: "SELECT count(*), :items FROM item HAVING count(*) <> :items",
        template: "{} row{s} of item, expected {}",
    },
    ViolationQuery {
        rule: Invariant::OrdersDense,
        sql: "SELECT o_w_id, o_d_id, min(o_id), max(o_id), count(*) FROM orders GROUP BY o_w_id, o_d_id \
              HAVING min(o_id) <> 1 OR max(o_id) <> count(*)",
        template: "warehouse {}, district {}: orders {} to {}, but {} row{s}",
    },
    ViolationQuery {
        rule: Invariant::Payments,
        sql: "SELECT c_w_id, c_d_id, c_id, c_payment_cnt, coalesce(payments, 0) FROM customer LEFT JOIN \
              (SELECT h_c_w_id, h_c_d_id, h_c_id, count(*) AS payments FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) \
              AS h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
              WHERE c_payment_cnt <> coalesce(payments, 0)",
        template: "warehouse {}, district {}, customer {}: C_PAYMENT_CNT {}, history {}",
    },
    ViolationQuery {
        rule: Invariant::Deliveries,
        sql: "SELECT c_w_id, c_d_id, c_id, c_delivery_cnt, coalesce(deliveries, 0) FROM customer LEFT JOIN \
              (SELECT o_w_id, o_d_id, o_c_id, count(*) AS deliveries FROM orders \
              WHERE o_carrier_id IS NOT NULL AND o_id > :delivered GROUP BY o_w_id, o_d_id, o_c_id) AS o \
              ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id WHERE c_delivery_cnt <> coalesce(deliveries, 0)",
        template: "warehouse {}, district {}, customer {}: C_DELIVERY_CNT {}, delivered orders {}",
    },
    ViolationQuery {
        rule: Invariant::StockRange,
        sql: "SELECT s_w_id, s_i_id, s_quantity FROM stock WHERE s_quantity < 10 OR s_quantity > 100",
        template: "warehouse {}, item {}: quantity {}",
    },
    ViolationQuery {
        rule: Invariant::StockSums,
        sql: "SELECT s_w_id, ytd, orders, remote, coalesce(sold, 0), coalesce(lines, 0), coalesce(others, 0) FROM \
              (SELECT s_w_id, sum(s_ytd)::int8 AS ytd, sum(s_order_cnt)::int8 AS orders, \
              sum(s_remote_cnt)::int8 AS remote FROM stock GROUP BY s_w_id) AS s LEFT JOIN \
              (SELECT ol_supply_w_id, sum(ol_quantity)::int8 AS sold, count(*) AS lines, \
              sum((ol_supply_w_id <> ol_w_id)::int4)::int8 AS others FROM order_line WHERE ol_o_id > :customers \
              GROUP BY ol_supply_w_id) AS l ON ol_supply_w_id = s_w_id \
              WHERE ytd <> coalesce(sold, 0) OR orders <> coalesce(lines, 0) OR remote <> coalesce(others, 0)",
        template: "warehouse {}: stock says {} sold in {} line{s}, {} of them remote; lines say {} in {}, {} remote",
    },
];

impl ViolationQuery {
    /// Returns the SQL text with its placeholders replaced. The first column counts all violations; at most [`SHOWN`] rows
    /// are returned.
    fn sql_for(&self, loaded: &Loaded) -> String {
        let scale = &loaded.scale;
        let mut sql = self.sql.to_owned();
        for (name, number) in [
            (":warehouses", loaded.warehouses),
            (":districts", u32::from(scale.districts)),
            (":delivered", scale.delivered()),
            (":customers", scale.customers),
            (":items", scale.items),
        ] {
            sql = sql.replace(name, &number.to_string());
        }
        let columns: Vec<String> = (2..2 + self.template.matches("{}").count()).map(|at| at.to_string()).collect();
        format!("SELECT count(*) OVER (), v.* FROM ({sql}) AS v ORDER BY {} LIMIT {SHOWN}", columns.join(", "))
    }

    /// Formats the values of a result row as a message.
    fn message(&self, values: &[Option<i64>]) -> String {
        let mut text = String::new();
        let mut values = values.iter();
        let mut number = None;
        for (at, part) in self.template.split("{}").enumerate() {
            if at > 0 {
                number = values.next().copied().flatten();
                text += &number.map_or("none".to_owned(), |number| number.to_string());
            }
            let (s, have) = if number == Some(1) { ("", "has") } else { ("s", "have") };
            text += &part.replace("{s}", s).replace("{have}", have);
        }
        text
    }
}

/// Runs all queries over the connections of the configuration.
pub(super) fn check(server: &Server, loaded: &Loaded, progress: &QueriesDone) -> Result<Audit, Error> {
    let start = Instant::now();
    let wanted = server.config().connections.min(VIOLATION_QUERIES.len());
    let connections = (0..wanted).map(|_| server.open_connection(Purpose::Tables)).collect::<Result<Vec<_>, _>>()?;
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    let ask_some = |connection: &Connection| {
        while let Some(query) = VIOLATION_QUERIES.get(next.fetch_add(1, Ordering::Relaxed)) {
            if interrupt::requested() {
                return;
            }
            let answer = ask(connection, query, loaded);
            answers.lock().unwrap_or_else(PoisonError::into_inner).push((query, answer));
            progress.0.fetch_add(1, Ordering::Relaxed);
        }
    };
    let ask_some = &ask_some;
    threads::run_each("checker", connections.iter().map(|connection| move || ask_some(connection)))?;
    let interrupted = interrupt::requested();
    let mut findings = Violations::default();
    let mut answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    answers.sort_by_key(|(query, _)| (query.rule as u8, query.template));
    for (query, answer) in answers {
        let (times, first) = answer.map_err(|error| server.failed(error))?;
        findings.add_counted(query.rule, times, first);
    }
    let rows = match connections.first() {
        Some(connection) if !interrupted => count(connection).map_err(|error| server.failed(error))?,
        _ => RowCounts::default(),
    };
    let checked_rules = Invariant::WITHOUT_INDEXES;
    Ok(Audit { findings, checked_rules, rows, seconds: start.elapsed().as_secs_f64(), interrupted })
}

/// Runs a query. Returns the number of violations, and messages for the first ones.
fn ask(connection: &Connection, query: &ViolationQuery, loaded: &Loaded) -> Result<(u64, Vec<String>), PgError> {
    let rows = connection.query(&query.sql_for(loaded), &[])?;
    let mut times = 0;
    let mut first = Vec::new();
    for row in &rows {
        let values = (0..row.len()).map(|at| number(connection, row, at)).collect::<Result<Vec<_>, _>>()?;
        times = values[0].unwrap_or(0).max(0) as u64;
        first.push(query.message(&values[1..]));
    }
    Ok((times, first))
}

fn number(connection: &Connection, row: &Row, at: usize) -> Result<Option<i64>, PgError> {
    let failed = |error| connection.error(error, None);
    match *row.columns()[at].type_() {
        Type::INT2 => Ok(row.try_get::<_, Option<i16>>(at).map_err(failed)?.map(i64::from)),
        Type::INT4 => Ok(row.try_get::<_, Option<i32>>(at).map_err(failed)?.map(i64::from)),
        _ => row.try_get(at).map_err(failed),
    }
}

/// Counts the rows of each of the nine tables.
fn count(connection: &Connection) -> Result<RowCounts, PgError> {
    let mut rows = RowCounts::default();
    for (id, count) in TableId::ALL.into_iter().zip(&mut rows) {
        let found = connection.query(&format!("SELECT count(*) FROM {}", table(id).name), &[])?;
        if let Some(row) = found.first() {
            *count = number(connection, row, 0)?.unwrap_or(0) as u64;
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_but_those_of_indexes_is_asked_and_says_its_columns() {
        for &rule in Invariant::WITHOUT_INDEXES {
            assert!(VIOLATION_QUERIES.iter().any(|query| query.rule == rule), "{}", rule.name());
        }
        for query in VIOLATION_QUERIES {
            let text = query.message(&[Some(1), Some(2), None, Some(4), Some(5), Some(6), Some(7)]);
            assert!(!text.contains('{'), "{text}");
        }
        let c2 = &VIOLATION_QUERIES[1];
        assert_eq!(
            c2.message(&[Some(3), Some(7), Some(3413), Some(3411)]),
            "warehouse 3, district 7: next order 3413, largest order 3411"
        );
    }

    #[test]
    fn words_agree_with_their_numbers() {
        let of = |rule| VIOLATION_QUERIES.iter().find(|query| query.rule == rule).unwrap();
        let own = |n| of(Invariant::RowCounts).message(&[Some(2), Some(n), Some(n), Some(n), Some(n)]);
        assert_eq!(own(1), "warehouse 2: 1 row of its own, 1 district, 1 customer, 1 row of stock");
        assert_eq!(own(3), "warehouse 2: 3 rows of its own, 3 districts, 3 customers, 3 rows of stock");
        let told = |n| of(Invariant::C11).message(&[Some(1), Some(2), Some(n), Some(0), Some(n)]);
        assert_eq!(told(1), "warehouse 1, district 2: 1 order, 0 of them new, but 1 has a carrier");
        assert_eq!(told(2), "warehouse 1, district 2: 2 orders, 0 of them new, but 2 have a carrier");
        for query in VIOLATION_QUERIES {
            let counted = ["{} rows", "{} lines", "{} districts", "{} customers", "{} orders", "{} have"];
            assert!(!counted.iter().any(|words| query.template.contains(words)), "{}", query.template);
        }
    }
}
