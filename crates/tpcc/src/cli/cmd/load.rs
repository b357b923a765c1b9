//! `tpcc load`: loads warehouses into a directory.

use std::io::{self, BufRead, BufReader, IsTerminal, Read, StdinLock};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{Outcome, load};
use crate::cli::flags::LoadFlags;
use crate::cli::resolve::on_disk;
use tpcc_core::engines::storage::store::Store;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::report::machine::{CpuTime, Machine, peak_rss_bytes};
use tpcc_core::report::{self, model};
use tpcc_core::workload::database::Database;
use tpcc_core::workload::error::{Error, command};
use tpcc_core::workload::interrupt;
use tpcc_core::workload::streams::say_text;
use tpcc_core::workload::words::{counted, grouped};

/// Maximum number of bytes that are read of a user's answer.
const MAX_ANSWER: u64 = 64;

pub(crate) fn run(flags: &LoadFlags) -> Result<Outcome, Error> {
    let config = on_disk("load", flags.directory.data.as_deref(), &flags.engine, flags.machine.workers)?;
    let warehouses = flags.loaded.warehouses.unwrap_or(1);
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let (cpu, start) = (CpuTime::now(), Instant::now());
    if flags.replace {
        let shown = config.shown();
        Store::clear(&config, warehouses, &mut |description| match flags.yes {
            true => Ok(()),
            false => {
                confirm_deletion(&shown, warehouses, &replace_command(&shown, warehouses), description, terminal())
            }
        })?;
    }
    let begun = Instant::now();
    let (database, loaded, rows) = load::<Store>(&config, None, warehouses, flags.random.seed)?;
    Database::close(database)?;
    let (load_s, elapsed_s) = (begun.elapsed().as_secs_f64(), start.elapsed().as_secs_f64());
    let settings = model::Config {
        warehouses: Some(loaded.warehouses),
        warehouses_loaded: Some(loaded.warehouses),
        seed: Some(loaded.seed),
        load_seed: Some(loaded.seed),
        c_load: Some(loaded.c_load),
        ..report::store_config("load", &config)
    };
    let report = model::Load {
        schema: model::schema_of("load"),
        notice: report::NOTICE.to_owned(),
        provenance: model::Provenance::here(),
        machine: Machine::describe(cpu),
        config: settings,
        interrupted: false,
        load_s,
        elapsed_s,
        loaded_rows: rows,
        peak_rss_bytes: peak_rss_bytes(),
    };
    let text = format!(
        "{}\nloaded    {} in {load_s:.2} s, {} rows, into {}; seed {}\n",
        report::NOTICE,
        counted(u64::from(loaded.warehouses), "warehouse"),
        grouped(rows),
        config.shown(),
        loaded.seed,
    );
    conclude(json, &report, text, false)?;
    Ok(Outcome::Success)
}

/// Input of a terminal at which a user can answer a question. A signal ends the input.
pub(super) struct TerminalInput(StdinLock<'static>);

/// Returns the input of the terminal, or `None` unless stdin and stderr are terminals.
pub(super) fn terminal() -> Option<BufReader<TerminalInput>> {
    let (stdin, stderr) = (std::io::stdin(), std::io::stderr());
    (stdin.is_terminal() && stderr.is_terminal()).then(|| BufReader::new(TerminalInput(stdin.lock())))
}

impl Read for TerminalInput {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while !interrupt::requested() {
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&POLL_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return self.0.read(to),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }
}

/// Returns the command that deletes the database and loads again without a confirmation.
fn replace_command(shown: &str, warehouses: u32) -> String {
    command("load", shown, &format!("--warehouses {warehouses} --replace --yes"))
}

/// Asks the user to confirm the deletion of the database at `shown`, which `description` describes, before a load of
/// `warehouses` warehouses. `command` is the command that does not ask.
///
/// # Errors
/// A usage error if there is no user to ask; a failure if the answer is not yes. Both say that nothing was deleted.
pub(super) fn confirm_deletion(
    shown: &str,
    warehouses: u32,
    command: &str,
    description: &str,
    user: Option<impl BufRead>,
) -> Result<(), Error> {
    let Some(user) = user else {
        return Err(Error::usage(format!("--replace: {description}, which would be deleted; nothing was"))
            .help(format!("{command} deletes it; or choose another place")));
    };
    say_text(format_args!(
        "{description}. Delete it and load {} anew? [y/N] ",
        counted(warehouses.into(), "warehouse")
    ));
    let mut answer = String::new();
    let read = user.take(MAX_ANSWER).read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") && !interrupt::requested() {
        return Ok(());
    }
    Err(Error::failed(format!("{shown}: not replaced; nothing was deleted")).help(format!("{command} does not ask")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        let ask = |answer: Option<&str>| {
            confirm_deletion(
                "d",
                2,
                &replace_command("d", 2),
                "d holds 1 warehouse, 120 MiB",
                answer.map(str::as_bytes),
            )
        };
        for yes in ["y\n", "yes\n", " Y \n", "YES"] {
            assert!(ask(Some(yes)).is_ok(), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "no\n", "yess\n", "ye\n", &"y".repeat(10_000)] {
            let refused = ask(Some(no)).unwrap_err();
            assert!(refused.status() == 1 && refused.to_string().contains("nothing was deleted"), "{refused}");
        }
        let refused = ask(None).unwrap_err();
        assert_eq!(refused.status(), 2);
        let text = refused.to_string();
        assert!(text.contains("1 warehouse, 120 MiB"), "{text}");
        assert!(text.contains("'tpcc load --data d --warehouses 2 --replace --yes'"), "{text}");
    }
}
