//! Parsers of values that only flags of the laboratory's commands have.

use tpcc_core::workload::schema::TableId;
use tpcc_lab::footprint::geometry::Geometry;

use super::{ValueResult, value_error};

/// Maximum length of a table name in the engine, in bytes.
const MAX_TABLE_NAME: usize = 200;

/// Parses a number of `tpcc index-fetch`, from 1 to `MAX`.
pub(in crate::cli) fn up_to<const MAX: i64>(text: &str) -> ValueResult<u64> {
    match text.parse()? {
        given @ 1.. if given <= MAX => Ok(given as u64),
        given => value_error(format!(" {given}: from 1 to {MAX}"), "'tpcc index-fetch --help'"),
    }
}

/// Parses the geometry of an instruction cache.
pub(in crate::cli) fn geometry(text: &str) -> ValueResult<Geometry> {
    let help = "bytes, ways and bytes of a line, each a power of two: 32768,8,64";
    text.parse().or_else(|why| value_error(format!(" {text}: {why}"), help))
}

/// Parses the name of a table. Refuses names of the workload's tables.
pub(in crate::cli) fn table(text: &str) -> ValueResult<String> {
    if text.is_empty() || text.len() > MAX_TABLE_NAME {
        let help = "leave it out for the table 'shell'";
        return value_error(format!(" {text}: a name of 1 to {MAX_TABLE_NAME} bytes"), help);
    }
    if TableId::ALL.iter().any(|ours| ours.name() == text) {
        let message = format!(" {text}: belongs to the workload, whose rows are of another kind");
        return value_error(message, "choose another name");
    }
    Ok(text.to_owned())
}

/// Parses a probability, from 0 to 1.
pub(in crate::cli) fn probability(text: &str) -> ValueResult<f64> {
    let given: f64 = text.parse()?;
    if (0.0..=1.0).contains(&given) { Ok(given) } else { value_error(format!(" {given}: from 0 to 1"), None) }
}
