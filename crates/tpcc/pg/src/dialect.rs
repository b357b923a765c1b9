//! Differences between servers that speak the protocol. All other statements are the same for all servers.

use clap::ValueEnum;

/// SQL dialect of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Dialect {
    /// SQL of PostgreSQL
    Postgres,
    /// SQL of CockroachDB
    Cockroach,
    /// SQL of YugabyteDB
    Yugabyte,
}

/// Settings of a terminal's session. The first setting exists since version 12. A deferrable read-only transaction would
/// wait for transactions that wait for its turn to end.
const TERMINAL_SETTINGS: [&str; 6] = [
    "SET plan_cache_mode = force_generic_plan",
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET jit = off",
    "SET default_transaction_deferrable = off",
];

impl Dialect {
    /// Returns the name of the dialect on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Postgres => "postgres",
            Dialect::Cockroach => "cockroach",
            Dialect::Yugabyte => "yugabyte",
        }
    }

    /// Returns the default port of a server of this dialect.
    pub fn port(self) -> u16 {
        match self {
            Dialect::Postgres => 5_432,
            Dialect::Cockroach => 26_257,
            Dialect::Yugabyte => 5_433,
        }
    }

    /// Returns the dialect of a server from its answer to `SELECT version()`.
    pub fn of(version: &str) -> Dialect {
        match version {
            other if other.contains("CockroachDB") => Dialect::Cockroach,
            other if other.contains("-YB-") => Dialect::Yugabyte,
            _ => Dialect::Postgres,
        }
    }

    /// Returns the minimum `server_version_num`, and the name of this version. Other servers report the version of
    /// PostgreSQL that they are compatible with.
    pub fn min_version(self) -> (u32, &'static str) {
        match self {
            Dialect::Postgres => (140_000, "14"),
            Dialect::Cockroach => (130_000, "13 (CockroachDB 22.2)"),
            // Since version 10, version numbers have two parts.
            Dialect::Yugabyte => (110_002, "11.2 (YugabyteDB 2.18)"),
        }
    }

    /// Returns true if a commit can be acknowledged before it is durable (`synchronous_commit`).
    pub fn has_async_commit(self) -> bool {
        self == Dialect::Postgres
    }

    /// Returns true if a session can wait for locks before a transaction begins (`pg_advisory_lock`). Other servers lack
    /// such locks, or queue the writers of a row themselves.
    pub fn has_session_locks(self) -> bool {
        self == Dialect::Postgres
    }

    /// Returns true if the server reports the size of tables.
    pub fn reports_sizes(self) -> bool {
        self != Dialect::Cockroach
    }

    /// Returns the settings of a terminal's session, in addition to isolation and durability.
    ///
    /// The planner would scan tables of one page as a whole, and join a few keys with all rows of a warehouse. A
    /// serializable scan conflicts with every writer of the scanned rows. These settings make the planner look up single
    /// rows by index. Plans are made once instead of for each set of parameters, if the server (`server_version_num`) has a
    /// setting for it.
    pub fn terminal_settings(self, version: u32) -> &'static [&'static str] {
        match self {
            Dialect::Postgres | Dialect::Yugabyte => match version {
                ..120_000 => &TERMINAL_SETTINGS[1..],
                _ => &TERMINAL_SETTINGS,
            },
            Dialect::Cockroach => &[],
        }
    }

    /// Returns the settings of a session for statements on whole tables. Each of its transactions is one statement, or only
    /// inserts. A stricter isolation of the role would have no benefit, but would cause conflicts with a concurrent run.
    pub fn tables_settings(self) -> &'static [&'static str] {
        match self {
            Dialect::Postgres | Dialect::Yugabyte => &["SET default_transaction_isolation = 'read committed'"],
            Dialect::Cockroach => &[],
        }
    }

    /// Returns true if a session can set the server's keepalives (`tcp_keepalives_idle` and related settings).
    pub fn has_keepalive_settings(self) -> bool {
        self != Dialect::Cockroach
    }

    /// Returns the collation clause of a text column. Texts compare by bytes, as in every engine of this program.
    pub fn collation(self) -> &'static str {
        match self {
            Dialect::Postgres | Dialect::Yugabyte => " COLLATE \"C\"",
            // Text compares by bytes by default.
            Dialect::Cockroach => "",
        }
    }

    /// Returns true if keys are added to a table after its rows are loaded. This is faster, but not all servers support it.
    pub fn keys_after_rows(self) -> bool {
        self == Dialect::Postgres
    }

    /// Formats the column list of a primary key or an index. YugabyteDB hashes the first column by default; `ASC` makes the
    /// first column ordered, for ranges.
    pub fn key_columns(self, columns: &[&str]) -> String {
        match self {
            Dialect::Postgres | Dialect::Cockroach => columns.join(", "),
            Dialect::Yugabyte => columns.iter().map(|column| format!("{column} ASC")).collect::<Vec<_>>().join(", "),
        }
    }

    /// Returns the storage clause of a table. The clause leaves free space in the pages, so that the new version of a row
    /// fits beside the old one.
    pub fn storage_of(self, fillfactor: u8) -> String {
        match self {
            Dialect::Postgres if fillfactor < 100 => format!(" WITH (fillfactor = {fillfactor})"),
            _ => String::new(),
        }
    }

    /// Returns the statement that follows the load of a table, and updates the statistics of the planner.
    pub fn after_load(self, table: &str) -> String {
        match self {
            Dialect::Postgres => format!("VACUUM (ANALYZE) {table}"),
            Dialect::Cockroach | Dialect::Yugabyte => format!("ANALYZE {table}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_version() {
        for (version, dialect) in [
            ("PostgreSQL 15.6 (Debian 15.6-0+deb12u1) on x86_64-pc-linux-gnu", Dialect::Postgres),
            ("CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27)", Dialect::Cockroach),
            ("PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu", Dialect::Yugabyte),
        ] {
            assert_eq!(Dialect::of(version), dialect, "{version}");
        }
    }

    #[test]
    fn dialects_differ_where_servers_do() {
        let columns = ["d_w_id", "d_id"];
        assert_eq!(Dialect::Postgres.key_columns(&columns), "d_w_id, d_id");
        assert_eq!(Dialect::Yugabyte.key_columns(&columns), "d_w_id ASC, d_id ASC");
        assert_eq!(Dialect::Postgres.storage_of(80), " WITH (fillfactor = 80)");
        assert_eq!(Dialect::Postgres.storage_of(100), "");
        assert_eq!(Dialect::Cockroach.storage_of(80), "");
        assert!(Dialect::Cockroach.terminal_settings(130_000).is_empty() && Dialect::Cockroach.collation().is_empty());
        let plans =
            |dialect: Dialect, version| dialect.terminal_settings(version).iter().any(|is| is.contains("plan_cache"));
        assert!(
            !plans(Dialect::Yugabyte, 110_002)
                && plans(Dialect::Yugabyte, 150_002)
                && plans(Dialect::Postgres, 140_000)
        );
        assert!(Dialect::Yugabyte.min_version().0 <= 110_002, "11.2 as server_version_num has it");
        assert!(Dialect::Postgres.after_load("item").starts_with("VACUUM"));
        assert_eq!(Dialect::Yugabyte.after_load("item"), "ANALYZE item");
        assert_eq!((Dialect::Cockroach.port(), Dialect::Yugabyte.port()), (26_257, 5_433));
        assert!(Dialect::Postgres.has_async_commit() && !Dialect::Cockroach.has_async_commit());
    }
}
