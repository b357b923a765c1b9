//! Tests of roles: time limits, settings of their transactions, rights.

use std::time::Duration;

use super::super::connect::Purpose;
use super::super::{Postgres, QueriesDone};
use super::server::TestServer;
use super::{config, inputs, later, load, loaded, loaded_for, plan};
use tpcc_core::workload::abort::AbortCause;
use tpcc_core::workload::engine::{Engine, OpenTransaction, Session};
use tpcc_core::workload::generate::deck::Kind;
use tpcc_core::workload::load::RowsDone;
use tpcc_core::workload::settings::Isolation;
use tpcc_core::workload::txn::{Scratch, StepOrder, Verdict};

/// Runs an input of a kind and returns its verdict.
fn do_one(session: &mut super::PgSession<'_>, kind: Kind) -> Verdict {
    let input = inputs(60).into_iter().find(|input| input.kind() == kind).unwrap();
    let done = session.begin().unwrap().run(StepOrder::HotLast, &input, &mut Scratch::default());
    done.unwrap_or_else(|failure| panic!("{failure}"))
}

/// Sets the default settings of a role's sessions.
fn set(postgres: &Postgres, settings: &[(&str, &str)]) {
    for (name, value) in settings {
        postgres.connection.batch(&format!("ALTER ROLE postgres SET {name} = '{value}'")).unwrap();
    }
}

#[test]
fn a_session_that_idles_is_not_ended() {
    let Some((server, postgres, loaded)) = loaded() else { return };
    let limit = Duration::from_secs(1);
    set(&postgres, &[("idle_session_timeout", "1s"), ("idle_in_transaction_session_timeout", "1s")]);
    let limited = Postgres::connect(&config(&server.url(), Isolation::Serializable)).unwrap();
    let mut session = limited.session(0).unwrap();
    let idle = limited.server.open_connection(Purpose::Tables).unwrap();
    let held = limited.server.open_connection(Purpose::Tables).unwrap();
    held.batch("BEGIN; SELECT 1").unwrap();
    std::thread::sleep(2 * limit);
    assert_eq!(do_one(&mut session, Kind::Payment), Verdict::Commit);
    idle.batch("SELECT 1").unwrap();
    held.batch("COMMIT").unwrap();
    assert!(limited.check(&loaded, &QueriesDone::default()).unwrap().passed());
}

/// All time limits that the server's version supports are off, for all purposes of a session.
#[test]
fn no_limit_on_time_is_left() {
    let Some((server, postgres, _)) = loaded() else { return };
    let known = "SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE context = 'user' AND name IN \
                 ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_session_timeout', \
                 'idle_in_transaction_session_timeout')";
    let known = postgres.connection.text(known).unwrap();
    assert!(known.split(' ').count() >= 4, "{known}");
    known.split(' ').for_each(|name| set(&postgres, &[(name, "90s")]));
    let left = |isolation, purpose| {
        let postgres = Postgres::connect(&config(&server.url(), isolation)).unwrap();
        let connection = postgres.server.open_connection(purpose).unwrap();
        let is_left = |name: &&str| connection.text(&format!("SHOW {name}")).unwrap() != "0";
        known.split(' ').filter(is_left).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(left(Isolation::Serializable, Purpose::Terminal), "");
    assert_eq!(left(Isolation::Serializable, Purpose::Tables), "");
    assert_eq!(left(Isolation::ReadCommitted, Purpose::Tables), "");
    // Without turns, the lock timeout of the role remains.
    assert_eq!(left(Isolation::ReadCommitted, Purpose::Terminal), "lock_timeout");
}

/// Other settings of a role remain, because its user may have set them on purpose.
#[test]
fn other_settings_of_a_role_stay() {
    let Some((server, postgres, _)) = loaded() else { return };
    let own = [("work_mem", "9MB"), ("synchronous_commit", "local"), ("default_transaction_read_only", "on")];
    set(&postgres, &own);
    let limited = Postgres::connect(&config(&server.url(), Isolation::Serializable)).unwrap();
    for purpose in [Purpose::Terminal, Purpose::Tables] {
        let connection = limited.server.open_connection(purpose).unwrap();
        own.iter().for_each(|(name, value)| assert_eq!(connection.text(&format!("SHOW {name}")).unwrap(), *value));
    }
    // The error of a load names the setting that prevents writes.
    let said = limited.clear(&mut |_| Ok(())).unwrap_err().to_string();
    assert!(said.contains("25006") && said.contains("default_transaction_read_only"), "{said}");
}

/// A check waits for locks without a limit, even if the role has one.
#[test]
fn a_check_waits_for_locks_whatever_limit_the_role_has() {
    let Some((server, postgres, loaded)) = loaded() else { return };
    set(&postgres, &[("lock_timeout", "50ms")]);
    let limited = Postgres::connect(&config(&server.url(), Isolation::Serializable)).unwrap();
    let rival = postgres.server.open_connection(Purpose::Tables).unwrap();
    rival.batch("BEGIN; LOCK TABLE district").unwrap();
    let rival = later(rival, "COMMIT");
    assert!(limited.check(&loaded, &QueriesDone::default()).unwrap().passed());
    rival.join().unwrap();
}

/// At read committed, a role's lock timeout aborts a transaction, which is retried.
#[test]
fn a_limit_on_locks_makes_victims_at_read_committed() {
    let Some((server, postgres, _)) = loaded_for(Isolation::ReadCommitted) else { return };
    set(&postgres, &[("lock_timeout", "50ms")]);
    let limited = Postgres::connect(&config(&server.url(), Isolation::ReadCommitted)).unwrap();
    let mut session = limited.session(0).unwrap();
    let payment = inputs(10).into_iter().find(|input| input.kind() == Kind::Payment).unwrap();
    let rival = postgres.server.open_connection(Purpose::Tables).unwrap();
    rival.batch("BEGIN; LOCK TABLE warehouse").unwrap();
    let failure = session.begin().unwrap().run(StepOrder::HotLast, &payment, &mut Scratch::default()).unwrap_err();
    assert_eq!(failure.abort().map(|abort| abort.cause), Some(AbortCause::Timeout), "{failure}");
    rival.batch("ROLLBACK").unwrap();
    let again = session.begin_again().unwrap().run(StepOrder::HotLast, &payment, &mut Scratch::default());
    assert_eq!(again.unwrap_or_else(|failure| panic!("{failure}")), Verdict::Commit);
}

/// A deferrable read-only transaction would wait for the end of all serializable transactions, including those that wait for
/// its turn to end.
#[test]
fn a_transaction_that_reads_does_not_wait_for_others_to_end() {
    let Some((server, postgres, _)) = loaded() else { return };
    set(&postgres, &[("default_transaction_deferrable", "on")]);
    let limited = Postgres::connect(&config(&server.url(), Isolation::Serializable)).unwrap();
    let rival = postgres.server.open_connection(Purpose::Tables).unwrap();
    rival.batch("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM item").unwrap();
    let mut session = limited.session(0).unwrap();
    session.limit_answers(Duration::from_secs(10));
    assert_eq!(do_one(&mut session, Kind::OrderStatus), Verdict::Commit);
    rival.batch("ROLLBACK").unwrap();
}

/// A check of a role with a stricter default level does not run as one more serializable reader of whole tables, which would
/// conflict with a run.
#[test]
fn statements_on_whole_tables_take_no_isolation_from_a_role() {
    let Some((server, postgres, _)) = loaded() else { return };
    set(&postgres, &[("default_transaction_isolation", "serializable")]);
    let limited = Postgres::connect(&config(&server.url(), Isolation::RepeatableRead)).unwrap();
    let level = |purpose| limited.server.open_connection(purpose).unwrap().text("SHOW transaction_isolation").unwrap();
    assert_eq!(
        (level(Purpose::Tables).as_str(), level(Purpose::Terminal).as_str()),
        ("read committed", "repeatable read")
    );
}

#[test]
fn a_role_without_rights_is_told_so() {
    let Some((server, postgres, loaded)) = loaded() else { return };
    let sql = |sql: &str| postgres.connection.batch(sql).unwrap();
    sql("CREATE ROLE visitor LOGIN");
    let url = server.url().replace("postgres://postgres@", "postgres://visitor@");
    let visitor = Postgres::connect(&config(&url, Isolation::Serializable)).unwrap();
    let said = |right: &str| {
        let opened = visitor.open().unwrap_err().to_string();
        assert!(opened.contains("the role visitor") && opened.contains(right), "{opened}");
        let cleared = visitor.clear(&mut |_| panic!("asked")).unwrap_err().to_string();
        let over = visitor.load(&plan(), 1, &RowsDone::default()).unwrap_err().to_string();
        assert!(cleared == opened && over == opened, "{cleared}; {over}");
        opened
    };
    assert!(said("no right USAGE").contains("let postgres grant it (GRANT USAGE ON SCHEMA tpcc TO visitor)"));
    // The role could read the tables, but has no right to use the schema.
    sql("GRANT SELECT ON ALL TABLES IN SCHEMA tpcc TO visitor");
    said("no right USAGE");
    sql("GRANT USAGE ON SCHEMA tpcc TO visitor; REVOKE SELECT ON district FROM visitor");
    said("may not read the table 'district'");
    sql("GRANT SELECT (d_w_id, d_id) ON district TO visitor; GRANT INSERT ON district TO visitor");
    said("may not read the table 'district'");
    sql("GRANT SELECT ON district TO visitor");
    assert_eq!(visitor.open().unwrap(), Some(loaded));
    assert!(visitor.check(&loaded, &QueriesDone::default()).unwrap().passed());
    // The role can read, but not write.
    let refused = visitor.clear(&mut |_| Ok(())).unwrap_err().to_string();
    assert!(refused.contains("42501") && refused.contains("grant what is missing"), "{refused}");
    sql("CREATE TABLE tpcc.mine (a integer)");
    let others = visitor.open().unwrap_err().to_string();
    assert!(others.contains("not of this program") && others.contains("'mine'"), "{others}");
}

#[test]
fn a_role_that_has_the_schema_needs_no_right_to_create_one() {
    let Some(server) = TestServer::start(None) else { return };
    let owner = Postgres::connect(&config(&server.url(), Isolation::Serializable)).unwrap();
    let sql = |sql: &str| owner.connection.batch(sql).unwrap();
    sql("CREATE ROLE guest LOGIN");
    let url = server.url().replace("postgres://postgres@", "postgres://guest@");
    let guest = Postgres::connect(&config(&url, Isolation::Serializable)).unwrap();
    let refused = guest.load(&plan(), 1, &RowsDone::default()).unwrap_err().to_string();
    assert!(
        refused.contains("permission denied for database") && refused.contains("grant what is missing"),
        "{refused}"
    );
    sql("CREATE SCHEMA tpcc AUTHORIZATION guest");
    assert_eq!(guest.open().unwrap(), None);
    load(&guest);
    assert_eq!(guest.open().unwrap(), Some(plan().loaded()));
    sql("REVOKE CONNECT ON DATABASE postgres FROM public");
    let refused = Postgres::connect(&config(&url, Isolation::Serializable)).err().unwrap().to_string();
    assert!(refused.contains("refuses guest") && refused.contains("grant CONNECT"), "{refused}");
}
