//! Settings of commands whose engine is a server. A flag that has no effect there is refused by name.

use super::{cores, refuse_ineffective};
use crate::cli::flags::remote::RemoteFlags;
use crate::cli::flags::{CheckFlags, EngineFlags, GivenFlags, LoadFlags, RunFlags};
use crate::cli::values::EngineChoice;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::settings::{Durability, EngineKind, Isolation, Partition, Scheduler, Speculate};
use tpcc_pg::RemoteConfig;
use tpcc_pg::dialect::Dialect;

/// Resolves the server of `tpcc run`; `None` if the engine is one of this program.
pub(crate) fn of_run(flags: &RunFlags) -> Result<Option<RemoteConfig>, Error> {
    let how = &flags.transactions;
    let found = server(&flags.engine, &flags.remote, flags.machine.workers, how.durability, how.isolation)?;
    if let Some(RemoteConfig { dialect, .. }) = &found
        && !dialect.has_async_commit()
    {
        let with = format!("--sql-dialect {}", dialect.name());
        let help = "such a server answers a commit when it is durable; leave the flag out";
        refuse_ineffective(&[("--durability", how.durability.is_some())], &with, help)?;
    }
    Ok(found)
}

/// Resolves the server of `tpcc load`; `None` if the engine is one of this program.
pub(crate) fn of_load(flags: &LoadFlags) -> Result<Option<RemoteConfig>, Error> {
    let found = server(&flags.engine, &flags.remote, flags.machine.workers, None, None)?;
    if found.is_some() {
        refuse_of_storage(&flags.given)?;
    }
    Ok(found)
}

/// Resolves the server of `tpcc check`; `None` if the engine is one of this program.
pub(crate) fn of_check(flags: &CheckFlags) -> Result<Option<RemoteConfig>, Error> {
    let found = server(&flags.engine, &flags.remote, flags.machine.workers, None, None)?;
    if found.is_some() {
        refuse(&[("--structure", flags.structure), ("--fingerprint", flags.fingerprint)])?;
        refuse_of_storage(&flags.given)?;
    }
    Ok(found)
}

fn server(
    engine: &EngineFlags,
    flags: &RemoteFlags,
    workers: Option<usize>,
    durability: Option<Durability>,
    isolation: Option<Isolation>,
) -> Result<Option<RemoteConfig>, Error> {
    needs_server(engine, flags)?;
    let EngineChoice::Server(url) = &engine.engine else { return Ok(None) };
    Ok(Some(RemoteConfig {
        url: url.clone(),
        dialect: flags.sql_dialect.unwrap_or(Dialect::Postgres),
        connections: connections(flags, workers)?,
        durability: durability.unwrap_or(Durability::Sync),
        isolation: isolation.unwrap_or(Isolation::Serializable),
    }))
}

/// Refuses flags of `tpcc run` that have no effect on its engine: server flags without a server, and flags of the engines of
/// this program with a server.
pub(super) fn check_flags(flags: &RunFlags) -> Result<(), Error> {
    if flags.engine.engine.kind() == EngineKind::Postgres {
        refuse_ineffective_on_server(flags)?;
    }
    needs_server(&flags.engine, &flags.remote)
}

/// Refuses server flags if the engine is one of this program.
fn needs_server(engine: &EngineFlags, flags: &RemoteFlags) -> Result<(), Error> {
    let EngineChoice::Local(kind) = &engine.engine else { return Ok(()) };
    let given = [("--connections", flags.connections.is_some()), ("--sql-dialect", flags.sql_dialect.is_some())];
    let help = "name a server with --engine postgres://USER@HOST:PORT/DATABASE, or leave the flag out";
    refuse_ineffective(&given, &format!("--engine {}", kind.name()), help)
}

/// Returns the number of concurrent connections. Each has a thread of its own.
pub(super) fn connections(flags: &RemoteFlags, workers: Option<usize>) -> Result<usize, Error> {
    match (flags.connections, workers) {
        (Some(connections), Some(workers)) if connections != workers => {
            let threads = match connections {
                1 => "the one connection has one thread".to_owned(),
                _ => format!("each of the {connections} connections has a thread of its own"),
            };
            Err(Error::usage(format!("--workers {workers}: {threads}"))
                .help("leave --workers out, or pass --connections alone"))
        }
        (connections, workers) => Ok(connections.or(workers).unwrap_or_else(cores)),
    }
}

/// Refuses flags of `tpcc run` that have no effect on a server.
fn refuse_ineffective_on_server(flags: &RunFlags) -> Result<(), Error> {
    refuse_of_storage(&flags.given)?;
    let partition = flags.partition.partition;
    refuse(&[
        ("--partition server", partition == Some(Partition::Server)),
        ("--partition both", partition == Some(Partition::Both)),
        ("--ack-stdout", flags.ack_stdout),
        ("--speculate", flags.speculation.speculate != Speculate::Off),
        ("--scheduler steps", flags.scheduling.scheduler == Scheduler::Steps),
        ("--scheduler itas", flags.scheduling.scheduler == Scheduler::Itas),
    ])
}

/// Refuses flags that only the storage engine has.
fn refuse_of_storage(given: &GivenFlags) -> Result<(), Error> {
    let of_storage = given.first_of_storage();
    refuse(&[(of_storage.as_deref().unwrap_or_default(), of_storage.is_some())])
}

fn refuse(given: &[(&str, bool)]) -> Result<(), Error> {
    let help = "the server has settings of its own; leave the flag out, or pass --engine storage";
    refuse_ineffective(given, "--engine postgres://..", help)
}
