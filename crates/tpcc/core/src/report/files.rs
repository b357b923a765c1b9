//! Output files of a run in addition to its JSON: HTML page, time series (CSV) and latency histograms.

use std::path::Path;

use super::json::text_of;
use super::out::OutFile;
use super::{csv, hdr, model};
use crate::driver::measure::Stats;
use crate::workload::error::Error;

/// Function that renders the HTML page of a run from its JSON object.
pub type RenderPage = fn(&serde_json::Value) -> String;

/// Open output files of a run; `None` for files that were not requested.
pub struct RunFiles {
    page: Option<(OutFile, RenderPage)>,
    csv: Option<OutFile>,
    hdr: Option<OutFile>,
}

impl RunFiles {
    /// Opens the output files of `--report`, `--csv` and `--hdr`.
    pub fn open(page: Option<(&Path, RenderPage)>, csv: Option<&Path>, hdr: Option<&Path>) -> Result<RunFiles, Error> {
        let render = page.map(|(_, render)| render);
        Ok(RunFiles {
            page: OutFile::open_if(page.map(|(path, _)| path), "--report")?.zip(render),
            csv: OutFile::open_if(csv, "--csv")?,
            hdr: OutFile::open_if(hdr, "--hdr")?,
        })
    }

    /// Writes all files. Returns the summary lines that name them, and the first error. After an error the remaining files
    /// are still written.
    pub fn write(self, run: &model::Run, stats: &Stats) -> (String, Result<(), Error>) {
        let (mut lines, mut result) = (String::new(), Ok(()));
        let mut write = |file: Option<OutFile>, content: &dyn Fn() -> Result<Vec<u8>, Error>| {
            let Some(file) = file else { return };
            match content().and_then(|content| file.write(&content)) {
                Ok(path) => lines += &format!("written   {}\n", path.display()),
                Err(error) if result.is_ok() => result = Err(error),
                Err(_) => {}
            }
        };
        if let Some((file, render)) = self.page {
            write(Some(file), &|| Ok(render(&value_of(run)?).into_bytes()));
        }
        write(self.csv, &|| Ok(csv::over_time(&run.series).into_bytes()));
        write(self.hdr, &|| hdr::log(stats));
        (lines, result)
    }
}

/// Converts a run to the JSON object that `--json` writes.
fn value_of(run: &model::Run) -> Result<serde_json::Value, Error> {
    serde_json::from_str(&text_of(run)?).map_err(|e| Error::failed(format!("the page cannot be made: {e}")))
}
