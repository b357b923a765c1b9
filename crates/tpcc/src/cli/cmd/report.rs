//! `tpcc report`: makes an HTML page from saved results.

use std::path::Path;

use serde_json::Value;

use super::Outcome;
use crate::cli::flags::report::ReportFlags;
use tpcc_core::report::model::schema_of;
use tpcc_core::report::named;
use tpcc_core::report::out::OutFile;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::reading::{MAX_RESULT_BYTES, read_file};
use tpcc_core::workload::streams::print;
use tpcc_lab::page::run::run_page;
use tpcc_lab::reproduce::Report;
use tpcc_lab::reproduce::page::{ExperimentOutcome, reproduce_page};

pub(crate) fn run(flags: &ReportFlags) -> Result<Outcome, Error> {
    let _read: Vec<_> = flags.files.iter().filter_map(|path| named::to_read(path)).collect();
    let out = OutFile::open(&flags.out, "--out")?;
    let files: Vec<(&Path, Value)> =
        flags.files.iter().map(|path| Ok((path.as_path(), read(path)?))).collect::<Result<_, Error>>()?;
    let is_run = |(_, value): &(&Path, Value)| value["schema"].as_str() == Some(&schema_of("run"));
    let page = match files.iter().find(|file| is_run(file)) {
        Some((_, run)) if files.len() == 1 => run_page(run),
        Some((path, _)) => {
            return Err(Error::usage(format!("{}: a run has a page of its own", path.display()))
                .help("make a page of each run: 'tpcc report FILE.json --out FILE.html'"));
        }
        None => {
            let outcomes = files.iter().map(|(path, value)| experiment(path, value)).collect::<Result<Vec<_>, _>>()?;
            reproduce_page(&outcomes)
        }
    };
    let path = out.write(page.as_bytes())?;
    print(&format!("written   {}\n", path.display()));
    Ok(Outcome::Success)
}

fn read(path: &Path) -> Result<Value, Error> {
    let shown = path.display();
    let text = read_file(path, MAX_RESULT_BYTES, "what 'tpcc run --json' or 'tpcc reproduce --json' wrote")?;
    let value: Value =
        serde_json::from_slice(&text).map_err(|e| Error::failed(format!("{shown}: not a whole JSON object: {e}")))?;
    let Some(schema) = value["schema"].as_str() else {
        return Err(Error::failed(format!("{shown}: not written by 'tpcc run --json' or 'tpcc reproduce --json'")));
    };
    let known = [schema_of("run"), schema_of("reproduce")];
    if known.iter().any(|known| known == schema) {
        return Ok(value);
    }
    let name = schema.split('/').next().unwrap_or_default();
    match known.iter().find(|known| known.starts_with(&format!("{name}/"))) {
        Some(known) => Err(Error::failed(format!("{shown}: is {schema}, and this build reads {known}"))
            .help("run it again with this build, or make the page with the build that wrote it")),
        None => Err(Error::failed(format!("{shown}: is {schema}; there are pages of run and reproduce"))),
    }
}

fn experiment(path: &Path, value: &Value) -> Result<ExperimentOutcome, Error> {
    let report: Report = serde_json::from_value(value.clone()).map_err(|e| {
        Error::failed(format!("{}: not as this build writes it: {e}", path.display()))
            .help("run the experiment again with this build")
    })?;
    Ok(ExperimentOutcome::Done(Box::new(report)))
}
