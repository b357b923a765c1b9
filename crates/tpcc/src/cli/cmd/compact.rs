//! `tpcc compact`: moves pages to the front of the data file, and returns free space at its end to the file system.

use std::time::Instant;

use super::Outcome;
use crate::cli::flags::CompactFlags;
use crate::cli::resolve::on_disk;
use tpcc_core::engines::storage::compacting;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::report::machine::{CpuTime, Machine, peak_rss_bytes};
use tpcc_core::report::{self, model};
use tpcc_core::workload::error::Error;

pub(crate) fn run(flags: &CompactFlags) -> Result<Outcome, Error> {
    let config = on_disk("compact", flags.directory.data.as_deref(), &flags.engine, Some(1))?;
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let (cpu, start) = (CpuTime::now(), Instant::now());
    let Some(compacted) = compacting::compact(&config)? else {
        let shown = config.shown();
        return Err(Error::failed(format!("{shown}: no database there"))
            .help("--data names the directory of the database to compact"));
    };
    let seconds = start.elapsed().as_secs_f64();
    let report = model::Compacted {
        schema: model::schema_of("compact"),
        notice: report::NOTICE.to_owned(),
        provenance: model::Provenance::here(),
        machine: Machine::describe(cpu),
        config: report::store_config("compact", &config),
        compact_s: seconds,
        bytes_before: compacted.before,
        bytes_after: compacted.after,
        pages_moved: compacted.moved,
        peak_rss_bytes: peak_rss_bytes(),
    };
    let text = format!(
        "{}\ncompacted {} in {seconds:.2} s: data file {} MiB, was {} MiB; {} pages moved\n",
        report::NOTICE,
        config.shown(),
        compacted.after >> 20,
        compacted.before >> 20,
        compacted.moved,
    );
    conclude(json, &report, text, false)?;
    Ok(Outcome::Success)
}
