//! `tpcc shell`: runs interleaved transactions by hand or by script.

use super::Outcome;
use crate::cli::flags::shell::ShellFlags;
use crate::cli::resolve::lab;
use tpcc_core::checkers::shell::{MOST_SESSIONS, Shell, ShellEnd};
use tpcc_core::engines::storage::advice::storage_error;
use tpcc_core::engines::storage::database::open_for_shell;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::settings::Background;

pub(crate) fn run(flags: ShellFlags) -> Result<Outcome, Error> {
    let config = lab::shell(flags)?;
    let shell = Shell::new(Box::new(std::io::stdout()), config.teams);
    // The engine requires a table name with a static lifetime. One leak per process is harmless.
    let name: &'static str = config.table.leak();
    let (db, table) = open_for_shell(&config.store, shell.hook(), MOST_SESSIONS, name)?;
    let inline = config.store.background == Background::Inline;
    let end = shell.serve(&db, table, std::io::stdin(), || {
        if inline {
            // The error is ignored: the next commit reports it again.
            let _ = db.step();
        }
    });
    let closed = db.close();
    match end {
        ShellEnd::Quit => shell.answer_quit(closed.as_ref().copied()),
        ShellEnd::Input => {}
        ShellEnd::Failed(error) => return Err(error),
        ShellEnd::OutputFailed(error) => {
            return Err(Error::failed(format!("stdout: replies cannot be written: {error}"))
                .help("what was open is rolled back; what was committed is there"));
        }
    }
    closed.map(|()| Outcome::Success).map_err(|error| storage_error(&error, &config.store.shown()))
}
