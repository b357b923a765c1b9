//! `tpcc load`: fill a directory.

use std::io::{BufRead, IsTerminal, StdinLock};
use std::time::Instant;

use super::{Ended, load};
use crate::cli::flags;
use crate::cli::resolve;
use crate::cli::resolve::LoadConfig;
use crate::engines::storage::store::Store;
use crate::report::json::{JsonOut, conclude};
use crate::report::machine::{CpuTime, Machine, peak_rss_bytes};
use crate::report::{self, model};
use crate::workload::database::Database;
use crate::workload::error::{Error, command};
use crate::workload::interrupt;
use crate::workload::words::{counted, grouped};

/// Most bytes of an answer that are looked at.
const MOST_ANSWER: u64 = 64;

/// Carries the command out.
pub(crate) fn run(flags: flags::Load) -> Result<Ended, Error> {
    let config = resolve::load(flags)?;
    load_into::<Store>(&config)
}

fn load_into<D: Database>(config: &LoadConfig) -> Result<Ended, Error> {
    let json = JsonOut::open(config.json.as_deref())?;
    let (cpu, start) = (CpuTime::now(), Instant::now());
    if config.replace {
        D::clear(&config.store, config.warehouses, &mut |goes| consent(config, goes, terminal()))?;
    }
    let (database, loaded, rows) = load::<D>(&config.store, None, config.warehouses, config.seed)?;
    database.close()?;
    let seconds = start.elapsed().as_secs_f64();
    let settings = model::Config {
        warehouses: Some(loaded.warehouses),
        warehouses_loaded: Some(loaded.warehouses),
        seed: Some(loaded.seed),
        load_seed: Some(loaded.seed),
        c_load: Some(loaded.c_load),
        ..report::store_config("load", &config.store)
    };
    let report = model::Load {
        schema: model::schema_of("load"),
        notice: report::NOTICE.to_owned(),
        provenance: model::Provenance::here(),
        machine: Machine::describe(cpu),
        config: settings,
        interrupted: false,
        load_s: seconds,
        loaded_rows: rows,
        peak_rss_bytes: peak_rss_bytes(),
    };
    let text = format!(
        "{}\nloaded    {} in {seconds:.2} s, {} rows, into {}; seed {}\n",
        report::NOTICE,
        counted(u64::from(loaded.warehouses), "warehouse"),
        grouped(rows),
        config.store.shown(),
        loaded.seed,
    );
    conclude(json, &report, text, false)?;
    Ok(Ended::Well)
}

/// A user who can be asked and can answer.
fn terminal() -> Option<StdinLock<'static>> {
    let (stdin, stderr) = (std::io::stdin(), std::io::stderr());
    (stdin.is_terminal() && stderr.is_terminal()).then(|| stdin.lock())
}

/// Whether what `goes` describes may be deleted: `--yes` says so, or the user.
fn consent(config: &LoadConfig, goes: &str, user: Option<impl BufRead>) -> Result<(), Error> {
    if config.yes {
        return Ok(());
    }
    let shown = config.store.shown();
    let again = command("load", &shown, &format!("--warehouses {} --replace --yes", config.warehouses));
    let Some(user) = user else {
        return Err(Error::usage(format!("--replace: {goes}, which would be deleted; nothing was"))
            .help(format!("{again} deletes it; or choose another directory with --data")));
    };
    eprint!("{goes}. Delete it and load {} anew? [y/N] ", counted(config.warehouses.into(), "warehouse"));
    let mut answer = String::new();
    let read = user.take(MOST_ANSWER).read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") && !interrupt::requested() {
        return Ok(());
    }
    Err(Error::failed(format!("{shown}: not replaced; nothing was deleted")).help(format!("{again} does not ask")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        let mut config = resolve::load(flags::load_of(&["--data", "d", "--replace", "--warehouses", "2"])).unwrap();
        let ask = |config: &LoadConfig, answer: Option<&str>| {
            consent(config, "d holds 1 warehouse, 120 MiB", answer.map(str::as_bytes))
        };
        for yes in ["y\n", "yes\n", " Y \n", "YES"] {
            assert!(ask(&config, Some(yes)).is_ok(), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "no\n", "yess\n", "ye\n", &"y".repeat(10_000)] {
            let refused = ask(&config, Some(no)).unwrap_err();
            assert!(refused.status() == 1 && refused.to_string().contains("nothing was deleted"), "{refused}");
        }
        let refused = ask(&config, None).unwrap_err();
        assert_eq!(refused.status(), 2);
        let text = refused.to_string();
        assert!(text.contains("1 warehouse, 120 MiB"), "{text}");
        assert!(text.contains("'tpcc load --data d --warehouses 2 --replace --yes'"), "{text}");
        config.yes = true;
        assert!(ask(&config, None).is_ok());
    }
}
