//! `tpcc copy`: copies a database into another directory.

use std::ops::ControlFlow;
use std::time::Instant;

use super::{Outcome, run_with_progress};
use crate::cli::flags::CopyFlags;
use crate::cli::resolve::on_disk;
use tpcc_core::engines::storage::copying::PagesDone;
use tpcc_core::engines::storage::store::Store;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::report::machine::{CpuTime, Machine, peak_rss_bytes};
use tpcc_core::report::progress::{self, Progress};
use tpcc_core::report::{self, model};
use tpcc_core::workload::database::Database;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::interrupt;
use tpcc_core::workload::words::counted;

pub(crate) fn run(flags: &CopyFlags) -> Result<Outcome, Error> {
    let config = on_disk("copy", flags.directory.data.as_deref(), &flags.engine, Some(1))?;
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let (cpu, start) = (CpuTime::now(), Instant::now());
    let Some((store, loaded)) = Store::open(&config, None)? else {
        let shown = config.shown();
        return Err(Error::failed(format!("{shown}: no database there"))
            .help("--data names the directory of the database to copy"));
    };
    let (done, mut shown) = (PagesDone::default(), Progress::start());
    let copied = run_with_progress(
        || {
            store.copy_to(&config.shown(), &flags.to, &done, || match interrupt::requested() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        },
        || {
            shown.show(|| {
                let (pages, in_all) = done.pages();
                let share = pages as f64 / in_all.max(1) as f64;
                format!("copy  {} {:.0}%  {pages} of {in_all} pages", progress::bar(share), 100.0 * share)
            });
        },
    )?;
    drop(shown);
    let closed = Database::close(store);
    let copied = copied?;
    closed?;
    let to = flags.to.display().to_string();
    let Some(copied) = copied else {
        return Err(Error::failed(format!("{to}: interrupted; nothing was left there")).help("let it run to its end"));
    };
    let seconds = start.elapsed().as_secs_f64();
    let report = model::Copied {
        schema: model::schema_of("copy"),
        notice: report::NOTICE.to_owned(),
        provenance: model::Provenance::here(),
        machine: Machine::describe(cpu),
        config: model::Config {
            warehouses_loaded: Some(loaded.warehouses),
            load_seed: Some(loaded.seed),
            c_load: Some(loaded.c_load),
            ..report::store_config("copy", &config)
        },
        to: to.clone(),
        copy_s: seconds,
        pages: copied.pages,
        log_bytes: copied.log_bytes,
        end_lsn: copied.end.0,
        peak_rss_bytes: peak_rss_bytes(),
    };
    let text = format!(
        "{}\ncopied    {} in {seconds:.2} s, {} MiB of pages, {} KiB of log, from {} into {to}\n",
        report::NOTICE,
        counted(u64::from(loaded.warehouses), "warehouse"),
        (copied.pages * storage::PAGE_SIZE as u64) >> 20,
        copied.log_bytes >> 10,
        config.shown(),
    );
    conclude(json, &report, text, false)?;
    Ok(Outcome::Success)
}
