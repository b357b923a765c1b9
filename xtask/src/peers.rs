//! `cargo xtask peers`: compares `storage` with other embedded engines. Builds the program of `benches` with the requested
//! engines, and runs it. Rules and results are in `benches/PEERS.md`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::programs;

/// Names of the engines, and the feature of `benches` that each requires.
const ENGINES: [(&str, &str); 6] = [
    ("storage", "peers"),
    ("redb", "peers"),
    ("fjall", "peers"),
    ("lmdb", "peers-lmdb"),
    ("rocksdb", "peers-rocksdb"),
    ("sqlite", "peers-sqlite"),
];

/// Flags of `cargo xtask peers`.
#[derive(Debug, Args)]
pub(crate) struct PeersFlags {
    /// Three short rounds.
    #[arg(long)]
    quick: bool,
    /// Number of rounds; in each, every engine does every operation once [default: 9, with --quick 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Writes all results as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Engines to compare with storage; lmdb and sqlite compile C, rocksdb C++ (20 minutes on two cores; requires
    /// libclang).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "redb,fjall")]
    engines: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(flags: &PeersFlags) -> ExitCode {
    let features = match features(&flags.engines) {
        Ok(features) => features,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(2);
        }
    };
    let mut command = programs::of_benches("peers", &features);
    command.args(["--engines", &flags.engines.join(",")]);
    if flags.quick {
        command.arg("--quick");
    }
    if let Some(rounds) = flags.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    if let Some(file) = &flags.json {
        command.arg("--json").arg(file);
    }
    programs::run(&mut command)
}

/// Returns the list of features that these engines require.
fn features(engines: &[String]) -> Result<String, String> {
    let mut features = vec!["peers"];
    for name in engines {
        let Some((_, feature)) = ENGINES.iter().find(|(known, _)| known == name) else {
            let all: Vec<&str> = ENGINES.iter().map(|(known, _)| *known).collect();
            return Err(format!("--engines {name}: no such engine; some of {}", all.join(",")));
        };
        if !features.contains(feature) {
            features.push(feature);
        }
    }
    Ok(features.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_bring_their_features() {
        let features = |list: &str| features(&list.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(features("redb,fjall").as_deref(), Ok("peers"));
        assert_eq!(features("sqlite,redb,lmdb,rocksdb").as_deref(), Ok("peers,peers-sqlite,peers-lmdb,peers-rocksdb"));
        let said = features("redb,mysql").unwrap_err();
        assert!(said.contains("mysql") && said.contains("fjall"), "{said}");
    }
}
