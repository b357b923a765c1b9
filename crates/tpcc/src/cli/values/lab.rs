//! Parsers of values that only flags of the laboratory's commands have.

use tpcc_core::workload::schema::TableId;
use tpcc_lab::footprint::geometry::Geometry;

use super::{Parsed, refused};

/// Maximum length of a table name in the engine, in bytes.
const LONGEST_TABLE_NAME: usize = 200;

/// Parses a number of `tpcc index-fetch`, from 1 to `MOST`.
pub(in crate::cli) fn up_to<const MOST: i64>(text: &str) -> Parsed<u64> {
    match text.parse()? {
        given @ 1.. if given <= MOST => Ok(given as u64),
        given => refused(format!(" {given}: from 1 to {MOST}"), "'tpcc index-fetch --help'"),
    }
}

/// Parses the geometry of an instruction cache.
pub(in crate::cli) fn geometry(text: &str) -> Parsed<Geometry> {
    let help = "bytes, ways and bytes of a line, each a power of two: 32768,8,64";
    text.parse().or_else(|why| refused(format!(" {text}: {why}"), help))
}

/// Parses the name of a table. Refuses names of the workload's tables.
pub(in crate::cli) fn table(text: &str) -> Parsed<String> {
    if text.is_empty() || text.len() > LONGEST_TABLE_NAME {
        let help = "leave it out for the table 'shell'";
        return refused(format!(" {text}: a name of 1 to {LONGEST_TABLE_NAME} bytes"), help);
    }
    if TableId::ALL.iter().any(|ours| ours.name() == text) {
        let said = format!(" {text}: belongs to the workload, whose rows are of another kind");
        return refused(said, "choose another name");
    }
    Ok(text.to_owned())
}

/// Parses a probability, from 0 to 1.
pub(in crate::cli) fn probability(text: &str) -> Parsed<f64> {
    let given: f64 = text.parse()?;
    if (0.0..=1.0).contains(&given) { Ok(given) } else { refused(format!(" {given}: from 0 to 1"), None) }
}
