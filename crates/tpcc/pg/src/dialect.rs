//! Everything in which servers that speak the protocol differ, in one place. All other statements are the same for all.

use clap::ValueEnum;

/// Whose SQL it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Dialect {
    Postgres,
    Cockroach,
    Yugabyte,
}

/// The first is new in version 12. A deferrable transaction that reads would wait for those that wait for its turn to end.
const TERMINAL_SETTINGS: [&str; 6] = [
    "SET plan_cache_mode = force_generic_plan",
    "SET enable_seqscan = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET jit = off",
    "SET default_transaction_deferrable = off",
];

impl Dialect {
    /// As typed and as printed.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Postgres => "postgres",
            Dialect::Cockroach => "cockroach",
            Dialect::Yugabyte => "yugabyte",
        }
    }

    /// The port that such a server usually has.
    pub fn port(self) -> u16 {
        match self {
            Dialect::Postgres => 5_432,
            Dialect::Cockroach => 26_257,
            Dialect::Yugabyte => 5_433,
        }
    }

    /// Which dialect a server speaks that answers `SELECT version()` so.
    pub fn of(version: &str) -> Dialect {
        match version {
            other if other.contains("CockroachDB") => Dialect::Cockroach,
            other if other.contains("-YB-") => Dialect::Yugabyte,
            _ => Dialect::Postgres,
        }
    }

    /// The least `server_version_num` that is enough, and its name. The others imitate a version of PostgreSQL.
    pub fn least_version(self) -> (u32, &'static str) {
        match self {
            Dialect::Postgres => (140_000, "14"),
            Dialect::Cockroach => (130_000, "13 (CockroachDB 22.2)"),
            // Numbers of version 10 and later have one point.
            Dialect::Yugabyte => (110_002, "11.2 (YugabyteDB 2.18)"),
        }
    }

    /// Whether a commit may be answered before it is durable (`synchronous_commit`).
    pub fn has_async_commit(self) -> bool {
        self == Dialect::Postgres
    }

    /// Whether a session can wait for locks of its own before a transaction (`pg_advisory_lock`). The others either lack
    /// them or queue the writers of a row themselves.
    pub fn has_session_locks(self) -> bool {
        self == Dialect::Postgres
    }

    /// Whether the server says how many bytes a table has.
    pub fn tells_sizes(self) -> bool {
        self != Dialect::Cockroach
    }

    /// What a terminal's session is set to, beside isolation and durability.
    ///
    /// Tables of one page would be scanned whole, and a few keys joined with all rows of a warehouse; a serializable scan
    /// conflicts with every writer of what it has passed. So rows are found by index, one by one. Plans are made once, not for
    /// each set of parameters, where the server (`server_version_num`) has a setting for that.
    pub fn terminal_settings(self, version: u32) -> &'static [&'static str] {
        match self {
            Dialect::Postgres | Dialect::Yugabyte => match version {
                ..120_000 => &TERMINAL_SETTINGS[1..],
                _ => &TERMINAL_SETTINGS,
            },
            Dialect::Cockroach => &[],
        }
    }

    /// What a session for statements on whole tables is set to. Each of its transactions is one statement, or inserts alone:
    /// a role's stricter isolation would gain nothing, and have it refused, or refuse others, beside a run.
    pub fn tables_settings(self) -> &'static [&'static str] {
        match self {
            Dialect::Postgres | Dialect::Yugabyte => &["SET default_transaction_isolation = 'read committed'"],
            Dialect::Cockroach => &[],
        }
    }

    /// Whether a session can say when the server takes its client for dead (`tcp_keepalives_idle` and those beside it).
    pub fn has_keepalive_settings(self) -> bool {
        self != Dialect::Cockroach
    }

    /// Of a text column: bytes are compared, as in every engine of this program.
    pub fn collation(self) -> &'static str {
        match self {
            Dialect::Postgres | Dialect::Yugabyte => " COLLATE \"C\"",
            // Compares bytes unless told otherwise.
            Dialect::Cockroach => "",
        }
    }

    /// Whether rows are loaded before their table has its keys: that is quicker where keys can be added later.
    pub fn keys_after_rows(self) -> bool {
        self == Dialect::Postgres
    }

    /// The columns of a primary key or an index. Where the first column would be hashed, ranges need it said that it is not.
    pub fn key_columns(self, columns: &[&str]) -> String {
        match self {
            Dialect::Postgres | Dialect::Cockroach => columns.join(", "),
            Dialect::Yugabyte => columns.iter().map(|column| format!("{column} ASC")).collect::<Vec<_>>().join(", "),
        }
    }

    /// Room that pages of a table keep, so that a row's new version lies beside the old one.
    pub fn storage_of(self, fillfactor: u8) -> String {
        match self {
            Dialect::Postgres if fillfactor < 100 => format!(" WITH (fillfactor = {fillfactor})"),
            _ => String::new(),
        }
    }

    /// What a finished table gets, so that plans know how large it is.
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
        assert!(Dialect::Yugabyte.least_version().0 <= 110_002, "11.2 as server_version_num has it");
        assert!(Dialect::Postgres.after_load("item").starts_with("VACUUM"));
        assert_eq!(Dialect::Yugabyte.after_load("item"), "ANALYZE item");
        assert_eq!((Dialect::Cockroach.port(), Dialect::Yugabyte.port()), (26_257, 5_433));
        assert!(Dialect::Postgres.has_async_commit() && !Dialect::Cockroach.has_async_commit());
    }
}
