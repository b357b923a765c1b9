//! Files of a run beside its JSON: the page, the seconds, the times.

use std::path::Path;

use super::json::text_of;
use super::out::OutFile;
use super::page::run::run_page;
use super::{csv, hdr, model};
use crate::driver::measure::Stats;
use crate::workload::error::Error;

/// Open files of a run; none of what was not asked for.
pub(crate) struct RunFiles {
    page: Option<OutFile>,
    csv: Option<OutFile>,
    hdr: Option<OutFile>,
}

impl RunFiles {
    /// Opens what `--report`, `--csv` and `--hdr` name.
    pub(crate) fn open(page: Option<&Path>, csv: Option<&Path>, hdr: Option<&Path>) -> Result<RunFiles, Error> {
        Ok(RunFiles {
            page: OutFile::open_if(page, "--report")?,
            csv: OutFile::open_if(csv, "--csv")?,
            hdr: OutFile::open_if(hdr, "--hdr")?,
        })
    }

    /// Writes them all. Gives the lines of the summary that name them, and the first that failed: the others are written.
    pub(crate) fn write(self, run: &model::Run, stats: &Stats) -> (String, Result<(), Error>) {
        let (mut lines, mut result) = (String::new(), Ok(()));
        let mut write = |file: Option<OutFile>, content: &dyn Fn() -> Result<Vec<u8>, Error>| {
            let Some(file) = file else { return };
            match content().and_then(|content| file.write(&content)) {
                Ok(path) => lines += &format!("written   {}\n", path.display()),
                Err(error) if result.is_ok() => result = Err(error),
                Err(_) => {}
            }
        };
        write(self.page, &|| Ok(run_page(&value_of(run)?).into_bytes()));
        write(self.csv, &|| Ok(csv::over_time(&run.series).into_bytes()));
        write(self.hdr, &|| hdr::log(stats));
        (lines, result)
    }
}

/// The run as a saved file would give it.
fn value_of(run: &model::Run) -> Result<serde_json::Value, Error> {
    serde_json::from_str(&text_of(run)?).map_err(|e| Error::failed(format!("the page cannot be made: {e}")))
}
