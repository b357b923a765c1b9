//! Tests of the engine against a server that they start, and against the floor engine.

mod roles;
pub(crate) mod server;

use std::ops::ControlFlow;
use std::time::Duration;

use server::TestServer;

use super::connect::{Connection, Purpose, RemoteConfig};
use super::dialect::Dialect;
use super::session::PgSession;
use super::txn::turns::OF_WAREHOUSES;
use super::{Postgres, QueriesDone};
use tpcc_core::engines::floor::{Floor, LoadingMaps};
use tpcc_core::workload::abort::{AbortCause, EngineError};
use tpcc_core::workload::check::rule::Invariant;
use tpcc_core::workload::check::{WarehousesDone, check};
use tpcc_core::workload::engine::{Engine, OpenTransaction, Session};
use tpcc_core::workload::generate::Random;
use tpcc_core::workload::generate::deck::Kind;
use tpcc_core::workload::generate::input::{Input, InputSpace, LineInput};
use tpcc_core::workload::generate::nurand::Constants;
use tpcc_core::workload::load::{Population, RowsDone, populate};
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::ops::Read;
use tpcc_core::workload::schema::keys::HistoryKey;
use tpcc_core::workload::schema::rows::Timestamp;
use tpcc_core::workload::schema::tables::{
    Customer, District, History, Item, NewOrder, Order, OrderLine, Stock, Warehouse,
};
use tpcc_core::workload::schema::{Key, RowOf, Scale, TableDef};
use tpcc_core::workload::settings::{Durability, Isolation};
use tpcc_core::workload::txn::{self, Scratch, StepOrder, Verdict};

const WAREHOUSES: u32 = 2;

fn plan() -> Population {
    Population::new(WAREHOUSES, Scale::TINY, 7, Timestamp::at(1_700_000_000_000_000))
}

/// Starts a server with two small loaded warehouses, and connects to it.
fn loaded() -> Option<(TestServer, Postgres, Loaded)> {
    loaded_for(Isolation::Serializable)
}

fn loaded_for(isolation: Isolation) -> Option<(TestServer, Postgres, Loaded)> {
    let server = TestServer::start(None)?;
    let postgres = Postgres::connect(&config(&server.url(), isolation)).unwrap();
    assert_eq!(postgres.open().unwrap(), None);
    load(&postgres);
    let loaded = postgres.open().unwrap().unwrap();
    assert_eq!(loaded, plan().loaded());
    Some((server, postgres, loaded))
}

fn config(url: &str, isolation: Isolation) -> RemoteConfig {
    RemoteConfig {
        url: url.parse().unwrap(),
        dialect: Dialect::Postgres,
        connections: 2,
        durability: Durability::Sync,
        isolation,
    }
}

fn load(postgres: &Postgres) {
    assert!(postgres.load(&plan(), 2, &RowsDone::default()).unwrap());
}

fn floor() -> Floor {
    let maps = LoadingMaps::default();
    let _ = populate(&plan(), &maps, 1, &RowsDone::default()).unwrap();
    Floor::new(maps, &plan().loaded())
}

/// Returns deterministic inputs of all kinds. Some orders name an item twice.
fn inputs(count: u32) -> Vec<Input> {
    let constants = Constants { last: 10, customer: 20, item: 30 };
    let world = InputSpace { scale: Scale::TINY, warehouses: WAREHOUSES, constants };
    let mut random = Random::stream(3, 1);
    let kinds = [Kind::NewOrder, Kind::Payment, Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery];
    let mut all = Vec::new();
    for i in 0..count {
        let kind = if i % 13 == 12 { Kind::StockLevel } else { kinds[i as usize % kinds.len()] };
        let home = (1 + i % WAREHOUSES, 1 + (i / 3 % 2) as u8);
        let history = HistoryKey { run: 1, terminal: 0, sequence: u64::from(i) };
        let mut input =
            world.input(&mut random, kind, home, Timestamp::at(1_700_000_100_000_000 + u64::from(i)), history);
        if let Input::NewOrder(order) = &mut input
            && i % 4 == 0
        {
            let LineInput { item, supply_w, .. } = order.lines[0];
            for line in order.lines.iter_mut().take(3) {
                (line.item, line.supply_w) = (item, supply_w);
            }
            if i % 8 == 0
                && let Some(last) = order.lines.last_mut()
            {
                last.item = Scale::TINY.items + 1;
            }
        }
        all.push(input);
    }
    all
}

/// Returns the output of the last transaction of a kind.
fn shown(scratch: &Scratch, kind: Kind, verdict: Verdict) -> String {
    let out = &scratch.out;
    match kind {
        // Lines are not part of the output if an item number is invalid.
        Kind::NewOrder if verdict == Verdict::Rollback => {
            let mut out = out.new_order.clone();
            out.lines.clear();
            format!("{out:?}")
        }
        Kind::NewOrder => format!("{:?}", out.new_order),
        Kind::Payment => format!("{:?}", out.payment),
        Kind::OrderStatus => format!("{:?}", out.order_status),
        Kind::Delivery => format!("{:?}", out.delivery),
        Kind::StockLevel => format!("{:?}", out.stock_level),
    }
}

/// Runs inputs with the engine's own statements (`as_engine`) or row by row. Returns the output and verdict of each.
fn run<S: Session>(session: &mut S, steps: StepOrder, as_engine: bool) -> Vec<String> {
    let mut scratch = Scratch::default();
    let run = |input: &Input| {
        let mut transaction = session.begin().unwrap();
        let verdict = match as_engine {
            true => transaction.run(steps, input, &mut scratch),
            false => txn::run(&mut transaction, steps, input, &mut scratch),
        };
        let verdict = verdict.unwrap_or_else(|failure| panic!("{failure}: {input:?}"));
        match verdict {
            Verdict::Commit => transaction.commit().unwrap(),
            Verdict::Rollback => transaction.rollback().unwrap(),
        };
        format!("{verdict:?} {}", shown(&scratch, input.kind(), verdict))
    };
    inputs(60).iter().map(run).collect()
}

fn table<T: TableDef, R: Read>(reader: &mut R, to: &mut Vec<String>)
where
    R::Error: std::fmt::Debug,
{
    let (from, last) = (vec![0; T::Key::LEN], vec![0xff; T::Key::LEN]);
    let mut rows = Vec::new();
    let each = |key: &T::Key, row: &RowOf<T>| {
        rows.push(format!("{key:?} {row:?}"));
        ControlFlow::Continue(())
    };
    reader.scan::<T>(&T::Key::read(&from), &T::Key::read(&last), each).unwrap();
    to.extend(rows);
}

/// Returns all rows of the nine tables.
fn rows<R: Read>(mut reader: R) -> Vec<String>
where
    R::Error: std::fmt::Debug,
{
    let (reader, mut all) = (&mut reader, Vec::new());
    table::<Warehouse, _>(reader, &mut all);
    table::<District, _>(reader, &mut all);
    table::<Customer, _>(reader, &mut all);
    table::<History, _>(reader, &mut all);
    table::<NewOrder, _>(reader, &mut all);
    table::<Order, _>(reader, &mut all);
    table::<OrderLine, _>(reader, &mut all);
    table::<Item, _>(reader, &mut all);
    table::<Stock, _>(reader, &mut all);
    all
}

fn same(what: &str, left: &[String], right: &[String]) {
    for (left, right) in left.iter().zip(right) {
        assert_eq!(left, right, "{what}");
    }
    assert_eq!(left.len(), right.len(), "{what}");
}

#[test]
fn a_server_answers_as_the_floor_does_and_keeps_the_same_rows() {
    let Some((_server, postgres, loaded)) = loaded() else { return };
    for (steps, as_engine) in [(StepOrder::HotLast, true), (StepOrder::Spec, true), (StepOrder::HotLast, false)] {
        postgres.clear(&mut |_| Ok(())).unwrap();
        load(&postgres);
        let floor = floor();
        same("loaded rows", &rows(postgres.reader().unwrap()), &rows(floor.reader().unwrap()));
        let wanted = run(&mut floor.session(0).unwrap(), StepOrder::HotLast, true);
        let given = run(&mut postgres.session(0).unwrap(), steps, as_engine);
        same("answers", &given, &wanted);
        assert!(wanted.iter().any(|shown| shown.starts_with("Rollback")));
        same("rows", &rows(postgres.reader().unwrap()), &rows(floor.reader().unwrap()));
        // Runs both checkers: the one in SQL, and the one that reads rows and indexes.
        let audit = postgres.check(&loaded, &QueriesDone::default()).unwrap();
        assert!(audit.passed() && audit.conditions_held() == 12, "{:?}", audit.findings);
        let by_rows = check(&postgres, &loaded, 1, &WarehousesDone::default()).unwrap();
        assert!(by_rows.passed(), "{:?}", by_rows.findings);
        assert_eq!(audit.rows, by_rows.rows);
    }
}

/// A rule, the statement that violates it, the statement that repairs it, and the expected message.
const BREAKS: &[(Invariant, &str, &str, &str)] = &[
    (
        Invariant::C1,
        "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_w_id = 2 AND d_id = 1",
        "UPDATE district SET d_ytd = d_ytd - 1 WHERE d_w_id = 2 AND d_id = 1",
        "warehouse 2: W_YTD",
    ),
    (
        Invariant::C2,
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 2 AND d_id = 1",
        "UPDATE district SET d_next_o_id = d_next_o_id - 1 WHERE d_w_id = 2 AND d_id = 1",
        "warehouse 2, district 1: next order 32, largest order 30",
    ),
    (
        Invariant::C3,
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 2 AND no_o_id = 25",
        "INSERT INTO new_order VALUES (1, 2, 25)",
        "warehouse 1, district 2: new orders 22 to 30, but 8 rows",
    ),
    (
        Invariant::C4,
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = 3",
        "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = 3",
        "warehouse 1, district 2: orders count",
    ),
    (
        Invariant::C5,
        "UPDATE orders SET o_carrier_id = 4 WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = 30",
        "UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = 30",
        "warehouse 1, district 2, order 30: carrier 4, rows of new_order 1",
    ),
    (
        Invariant::C6,
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = 3",
        "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_w_id = 1 AND o_d_id = 2 AND o_id = 3",
        "warehouse 1, district 2, order 3: O_OL_CNT",
    ),
    (
        Invariant::C7,
        "UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = 2 AND ol_d_id = 2 AND ol_o_id = 29 AND ol_number = 1",
        "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 2 AND ol_d_id = 2 AND ol_o_id = 29",
        "warehouse 2, district 2, order 29: carrier none, but not so 1 of its lines",
    ),
    (
        Invariant::C8,
        "UPDATE warehouse SET w_ytd = w_ytd + 5 WHERE w_id = 1",
        "UPDATE warehouse SET w_ytd = w_ytd - 5 WHERE w_id = 1",
        "warehouse 1: W_YTD",
    ),
    (
        Invariant::C9,
        "UPDATE district SET d_ytd = d_ytd + 5 WHERE d_w_id = 2 AND d_id = 2",
        "UPDATE district SET d_ytd = d_ytd - 5 WHERE d_w_id = 2 AND d_id = 2",
        "warehouse 2, district 2: D_YTD",
    ),
    (
        Invariant::C10,
        "UPDATE customer SET c_balance = c_balance + 7 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 9",
        "UPDATE customer SET c_balance = c_balance - 7 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 9",
        "warehouse 1, district 1, customer 9: C_BALANCE -993, delivered 0, paid 1000 (cents)",
    ),
    (
        Invariant::C11,
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 2 AND no_o_id = 22",
        "INSERT INTO new_order VALUES (1, 2, 22)",
        "warehouse 1, district 2: 30 orders, 8 of them new, but 21 have a carrier",
    ),
    (
        Invariant::C12,
        "UPDATE customer SET c_ytd_payment = c_ytd_payment + 7 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 9",
        "UPDATE customer SET c_ytd_payment = c_ytd_payment - 7 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 9",
        "customer 9: C_BALANCE -1000, C_YTD_PAYMENT 1007, delivered 0 (cents)",
    ),
    (
        Invariant::RowCounts,
        "UPDATE stock SET s_i_id = 1000 WHERE s_w_id = 2 AND s_i_id = 5; UPDATE stock SET s_w_id = 3 WHERE s_i_id = 1000",
        "UPDATE stock SET s_w_id = 2, s_i_id = 5 WHERE s_i_id = 1000",
        "warehouse 2: 1 row of its own, 2 districts, 60 customers, 99 rows of stock",
    ),
    (
        Invariant::OrdersDense,
        "UPDATE orders SET o_id = 1000 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 4",
        "UPDATE orders SET o_id = 4 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 1000",
        "warehouse 1, district 1: orders 1 to 1000, but 30 rows",
    ),
    (
        Invariant::Payments,
        "UPDATE customer SET c_payment_cnt = 2 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 9",
        "UPDATE customer SET c_payment_cnt = 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 9",
        "customer 9: C_PAYMENT_CNT 2, history 1",
    ),
    (
        Invariant::Deliveries,
        "UPDATE customer SET c_delivery_cnt = 2 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 9",
        "UPDATE customer SET c_delivery_cnt = 0 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 9",
        "customer 9: C_DELIVERY_CNT 2, delivered orders 0",
    ),
    (
        Invariant::StockRange,
        "UPDATE stock SET s_quantity = s_quantity + 1000 WHERE s_w_id = 1 AND s_i_id = 7",
        "UPDATE stock SET s_quantity = s_quantity - 1000 WHERE s_w_id = 1 AND s_i_id = 7",
        "warehouse 1, item 7: quantity 1",
    ),
    (
        Invariant::StockSums,
        "UPDATE stock SET s_ytd = 4 WHERE s_w_id = 1 AND s_i_id = 7",
        "UPDATE stock SET s_ytd = 0 WHERE s_w_id = 1 AND s_i_id = 7",
        "warehouse 1: stock says 4 sold in 0 lines, 0 of them remote; lines say 0 in 0, 0 remote",
    ),
];

#[test]
fn each_rule_is_seen_to_be_broken_where_it_is() {
    let Some((_server, postgres, loaded)) = loaded() else { return };
    let audit = || postgres.check(&loaded, &QueriesDone::default()).unwrap();
    assert!(audit().passed());
    for &rule in Invariant::WITHOUT_INDEXES {
        assert!(BREAKS.iter().any(|(broken, ..)| *broken == rule), "{}", rule.name());
    }
    for (rule, breaks, mends, said) in BREAKS {
        postgres.connection.batch(breaks).unwrap();
        let audit = audit();
        let broken = audit.findings.of(*rule);
        assert!(!audit.passed() && broken.times > 0, "{}: {broken:?}", rule.name());
        assert!(broken.first.iter().any(|first| first.contains(said)), "{}: {broken:?}", rule.name());
        postgres.connection.batch(mends).unwrap();
    }
    assert!(audit().passed());
}

fn kill_others(connection: &Connection) {
    connection
        .batch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND application_name = 'tpcc'",
        )
        .unwrap();
}

#[test]
fn a_lost_connection_is_counted_and_replaced_and_a_server_that_is_gone_is_named() {
    let Some((server, postgres, _)) = loaded() else { return };
    let mut session = postgres.session(0).unwrap();
    let mut scratch = Scratch::default();
    let input = &inputs(1)[0];
    let begin = |session: &mut super::PgSession<'_>, scratch: &mut Scratch| {
        let mut transaction = session.begin().unwrap();
        transaction.run(StepOrder::HotLast, input, scratch).map(|_| ())
    };
    begin(&mut session, &mut scratch).unwrap();
    kill_others(&postgres.connection);
    let failure = begin(&mut session, &mut scratch).unwrap_err();
    assert_eq!(failure.abort().map(|abort| abort.cause), Some(AbortCause::Connection), "{failure}");
    begin(&mut session, &mut scratch).unwrap();

    server.stop();
    let failure = begin(&mut session, &mut scratch).unwrap_err();
    assert_eq!(failure.abort().map(|abort| abort.cause), Some(AbortCause::Connection), "{failure}");
    let gone = session.begin_again().err().unwrap();
    assert!(gone.abort().is_none(), "{gone}");
    let text = gone.to_string();
    assert!(text.contains("127.0.0.1") && text.contains("went away in the middle of the run"), "{text}");
}

/// The socket accepts connections, but never answers.
#[test]
fn a_silent_server_is_named_within_the_limit() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let config = RemoteConfig {
        url: format!("postgres://me@{address}/x").parse().unwrap(),
        dialect: Dialect::Postgres,
        connections: 1,
        durability: Durability::Sync,
        isolation: Isolation::Serializable,
    };
    let begun = std::time::Instant::now();
    let said = Postgres::connect(&config).err().unwrap().to_string();
    assert!(said.contains(&format!("{address}: is silent")), "{said}");
    assert!(begun.elapsed() < 2 * super::connect::CONNECT_TIMEOUT, "{:?}", begun.elapsed());
}

#[test]
fn a_server_that_falls_silent_is_a_lost_connection() {
    let Some((_server, postgres, _)) = loaded() else { return };
    let mut session = postgres.session(0).unwrap();
    let mut scratch = Scratch::default();
    let input = &inputs(1)[0];
    // No statement completes while the table is locked.
    postgres.connection.batch("BEGIN; LOCK TABLE district").unwrap();
    session.limit_answers(Duration::from_millis(200));
    let failure = session.begin().unwrap().run(StepOrder::HotLast, input, &mut scratch).unwrap_err();
    assert_eq!(failure.abort().map(|abort| abort.cause), Some(AbortCause::Connection), "{failure}");
    let text = failure.to_string();
    assert!(text.contains("127.0.0.1") && text.contains("no answer within 0.2 s"), "{text}");
    postgres.connection.batch("ROLLBACK").unwrap();
    // The new connection has the default limit.
    let _ = session.begin_again().unwrap().run(StepOrder::HotLast, input, &mut scratch).unwrap();
    let terminal = postgres.server.open_connection(Purpose::Terminal).unwrap();
    assert_eq!(terminal.text("SHOW tcp_keepalives_idle").unwrap(), "10");
}

/// Ends the rival's transaction after a delay, while a session waits for it.
fn later(rival: Connection, how: &'static str) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        rival.batch(how).unwrap();
    })
}

#[test]
fn two_that_change_one_row_are_not_both_right() {
    let Some((_server, postgres, _)) = loaded() else { return };
    let mut session = postgres.session(0).unwrap();
    let mut scratch = Scratch::default();
    let payment = inputs(10).into_iter().find(|input| input.kind() == Kind::Payment).unwrap();
    let Input::Payment(paid) = &payment else { panic!("{payment:?}") };
    let rival = postgres.server.open_connection(Purpose::Tables).unwrap();
    // The rival holds the row and commits while the session waits for it.
    rival.batch(&format!("BEGIN; UPDATE warehouse SET w_ytd = w_ytd WHERE w_id = {}", paid.w)).unwrap();
    let rival = later(rival, "COMMIT");
    let failure = session.begin().unwrap().run(StepOrder::Spec, &payment, &mut scratch).unwrap_err();
    let abort = failure.abort().unwrap();
    assert_eq!((abort.cause, abort.table), (AbortCause::Serialization, Some(Warehouse::TABLE)), "{failure}");
    rival.join().unwrap();
    let _ = session.begin_again().unwrap().run(StepOrder::Spec, &payment, &mut scratch).unwrap();
}

/// A session waits for the end of the other's transaction before it takes its snapshot.
#[test]
fn payments_of_a_warehouse_wait_for_their_turn() {
    let Some((_server, postgres, _)) = loaded() else { return };
    let payments: Vec<Input> = inputs(120).into_iter().filter(|input| input.kind() == Kind::Payment).collect();
    let pay = |part: usize| {
        let mut session = postgres.session(part).unwrap();
        let mut scratch = Scratch::default();
        for payment in payments.iter().skip(part).step_by(2).cycle().take(100) {
            let paid = session.begin().unwrap().run(StepOrder::HotLast, payment, &mut scratch);
            let _ = paid.unwrap_or_else(|failure| panic!("{failure}"));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| pay(0));
        scope.spawn(|| pay(1));
    });
}

/// A Delivery that waits for an order which a concurrent one deletes takes the next order, at every isolation level.
#[test]
fn deliveries_beside_each_other_skip_no_district() {
    let Some((_server, postgres, _)) = loaded_for(Isolation::ReadCommitted) else { return };
    let mut session = postgres.session(0).unwrap();
    let mut scratch = Scratch::default();
    let delivery = inputs(20).into_iter().find(|input| input.kind() == Kind::Delivery).unwrap();
    let Input::Delivery(delivered) = &delivery else { panic!("{delivery:?}") };
    let rival = postgres.server.open_connection(Purpose::Tables).unwrap();
    let w = delivered.w;
    let take = format!(
        "BEGIN; SELECT pg_advisory_xact_lock({OF_WAREHOUSES}, {w}); DELETE FROM new_order AS n WHERE no_w_id = {w} AND \
         no_o_id = (SELECT min(no_o_id) FROM new_order WHERE no_w_id = {w} AND no_d_id = n.no_d_id)"
    );
    rival.batch(&take).unwrap();
    let rival = later(rival, "COMMIT");
    let done = session.begin().unwrap().run(StepOrder::HotLast, &delivery, &mut scratch);
    assert_eq!(done.unwrap_or_else(|failure| panic!("{failure}")), Verdict::Commit);
    rival.join().unwrap();
    assert_eq!(scratch.out.delivery.skipped(), 0);
}

/// A lock timeout that an administrator has set must not end the wait for a turn: the Payment behind it in the same message
/// would commit, and then run again.
#[test]
fn a_turn_is_waited_for_whatever_limit_the_role_has() {
    let Some((_server, postgres, _)) = loaded() else { return };
    let limits = "ALTER ROLE postgres SET lock_timeout = '50ms'; ALTER ROLE postgres SET statement_timeout = '50ms'";
    postgres.connection.batch(limits).unwrap();
    let mut session = postgres.session(0).unwrap();
    let mut scratch = Scratch::default();
    let payment = inputs(10).into_iter().find(|input| input.kind() == Kind::Payment).unwrap();
    let Input::Payment(paid) = &payment else { panic!("{payment:?}") };
    let booked = || postgres.connection.text("SELECT count(*) FROM history").unwrap().parse::<u64>().unwrap();
    let before = booked();
    let rival = postgres.server.open_connection(Purpose::Tables).unwrap();
    rival.text(&format!("SELECT pg_advisory_lock({OF_WAREHOUSES}, {})", paid.w)).unwrap();
    let rival = later(rival, "SELECT pg_advisory_unlock_all()");
    let done = session.begin().unwrap().run(StepOrder::HotLast, &payment, &mut scratch);
    assert_eq!(done.unwrap_or_else(|failure| panic!("{failure}")), Verdict::Commit);
    rival.join().unwrap();
    assert_eq!(booked(), before + 1);
}

/// A transaction that fails in its first message does not send its end. The session's next transaction gives the turn back,
/// both one of the five and one of single statements.
#[test]
fn a_failed_transaction_keeps_no_turn() {
    let Some((_server, postgres, _)) = loaded() else { return };
    let (mut one, mut other) = (postgres.session(0).unwrap(), postgres.session(1).unwrap());
    other.limit_answers(Duration::from_secs(10));
    let mut scratch = Scratch::default();
    let order = inputs(1).remove(0);
    let Input::NewOrder(ordered) = &order else { panic!("{order:?}") };
    let (w, district) = (ordered.customer.w, ordered.customer.d);
    let elsewhere = inputs(60)
        .into_iter()
        .find(|input| matches!(input, Input::Payment(paid) if (paid.w, paid.d) != (w, district)))
        .unwrap();
    let mut fail = |session: &mut PgSession<'_>| {
        postgres.connection.batch("ALTER TABLE district RENAME COLUMN d_tax TO taxed").unwrap();
        assert!(session.begin().unwrap().run(StepOrder::Spec, &order, &mut scratch).is_err());
        postgres.connection.batch("ALTER TABLE district RENAME COLUMN taxed TO d_tax").unwrap();
    };
    fail(&mut one);
    let _ = one.begin_again().unwrap().run(StepOrder::Spec, &elsewhere, &mut Scratch::default()).unwrap();
    let _ = other.begin().unwrap().run(StepOrder::Spec, &order, &mut Scratch::default()).unwrap();
    fail(&mut one);
    let mut single = one.begin_again().unwrap();
    let _ = txn::run(&mut single, StepOrder::Spec, &elsewhere, &mut Scratch::default()).unwrap();
    single.commit().unwrap();
    let _ = other.begin().unwrap().run(StepOrder::Spec, &order, &mut Scratch::default()).unwrap();
}

#[test]
fn what_is_not_a_whole_database_is_said() {
    let Some((_server, postgres, _)) = loaded() else { return };
    let sql = |sql: &str| postgres.connection.batch(sql).unwrap();
    let said = || postgres.open().unwrap_err().to_string();
    sql("UPDATE meta SET value = 0 WHERE fact = 1");
    assert!(said().contains("incomplete load") && said().contains("--replace"), "{}", said());
    sql("ALTER TABLE item ADD COLUMN colour integer");
    assert!(said().contains("a table 'item' with a column 'colour'"), "{}", said());
    sql("ALTER TABLE item DROP COLUMN colour; CREATE TABLE tpcc.mine (a integer)");
    assert!(said().contains("a table 'mine'"), "{}", said());
    let refused = postgres.clear(&mut |_| Ok(())).unwrap_err().to_string();
    assert!(refused.contains("a table 'mine'") && refused.contains("nothing was changed"), "{refused}");
    sql("DROP TABLE tpcc.mine");
    // An incomplete load is deleted without consent.
    postgres.clear(&mut |_| panic!("asked")).unwrap();
    assert_eq!(postgres.open().unwrap(), None);
}
