//! The settings of a server in a report.

use tpcc_core::report::model::Config;
use tpcc_core::workload::settings::EngineKind;

use super::RemoteConfig;

/// Returns the report settings of a command on a server. `version` is the server's product and version.
pub fn remote_config(command: &str, remote: &RemoteConfig, version: String) -> Config {
    Config {
        command: command.to_owned(),
        engine: EngineKind::Postgres.name().to_owned(),
        server: Some(remote.shown()),
        server_version: Some(version),
        sql_dialect: Some(remote.dialect.name().to_owned()),
        connections: Some(remote.connections),
        ..Config::default()
    }
}
