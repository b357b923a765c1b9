//! The settings of a server in a report.

use tpcc_core::report::model::Config;
use tpcc_core::workload::settings::EngineKind;

use super::RemoteConfig;

/// A setting of every command that works on a server: `version` is how the server calls itself.
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
