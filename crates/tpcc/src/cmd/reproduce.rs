//! `tpcc reproduce`: rerun an experiment of a paper.

use super::{Ended, print};
use crate::error::Error;
use crate::report::output::JsonFile;
use crate::{flags, reproduce};

/// Carries the command out.
pub(crate) fn run(flags: flags::Reproduce) -> Result<Ended, Error> {
    let Some(id) = flags.id.filter(|_| !flags.list) else {
        print(&reproduce::list());
        return Ok(Ended::Well);
    };
    let file = flags.output.json.as_deref().map(JsonFile::open).transpose()?;
    let report = reproduce::run(&id, flags.quick, flags.data.as_deref())?;
    let written = file.map(|file| file.write(&report)).transpose()?;
    let mut text = reproduce::text(&report);
    if let Some(path) = written {
        text += &format!("written   {}\n", path.display());
    }
    print(&text);
    Ok(Ended::Well)
}
