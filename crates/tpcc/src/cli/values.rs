//! Values of flags that have a range or a form: a parser for each kind. What it says follows the flag in a message.

use std::time::Duration;

use crate::engines::postgres::url::{BadUrl, Url};
use crate::lab::footprint::geometry::Geometry;
use crate::workload::schema::TableId;
use crate::workload::settings::{CtxPoints, EngineKind};

/// Least buffer pool, MiB: below this a worker's transaction may not find room for its pages.
pub(super) const LEAST_POOL_MIB: i64 = 16;
/// Most MiB of anything.
pub(super) const MOST_MIB: i64 = 1 << 24;
/// Longest run, seconds: a year.
const LONGEST: f64 = 31_536_000.0;
/// Longest name of a table, as the engine has it, bytes.
const LONGEST_TABLE_NAME: usize = 200;

/// What is wrong with a value, and what to do unless the help text of the flag says it.
#[derive(Debug, thiserror::Error)]
#[error("{said}")]
pub(super) struct Refused {
    pub(super) said: String,
    pub(super) help: Option<&'static str>,
}

/// Also what is no number at all.
type Parsed<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn refused<T>(said: String, help: impl Into<Option<&'static str>>) -> Parsed<T> {
    Err(Refused { said, help: help.into() }.into())
}

/// A whole number of a range.
pub(super) fn number<T: TryFrom<i64>, const LEAST: i64, const MOST: i64>(text: &str) -> Parsed<T> {
    let given: i64 = text.parse()?;
    match T::try_from(given) {
        Ok(number) if (LEAST..=MOST).contains(&given) => Ok(number),
        _ if given < LEAST => refused(format!(" {given}: at least {LEAST}"), None),
        _ => refused(format!(" {given}: at most {MOST}"), None),
    }
}

/// A seed: any number of 64 bits.
pub(super) fn seed(text: &str) -> Parsed<u64> {
    text.parse().or_else(|_| refused(format!(" {text}: a whole number from 0 to {}", u64::MAX), None))
}

/// How many of something `tpcc index-fetch` has.
pub(super) fn up_to<const MOST: i64>(text: &str) -> Parsed<u64> {
    match text.parse()? {
        given @ 1.. if given <= MOST => Ok(given as u64),
        given => refused(format!(" {given}: from 1 to {MOST}"), "'tpcc index-fetch --help'"),
    }
}

/// A time of at least so many milliseconds, in seconds.
pub(super) fn seconds<const LEAST_MS: u64>(text: &str) -> Parsed<Duration> {
    let (given, least): (f64, f64) = (text.parse()?, LEAST_MS as f64 / 1e3);
    if (least..=LONGEST).contains(&given) {
        return Ok(Duration::from_secs_f64(given));
    }
    refused(format!(" {given}: from {least} to {LONGEST} seconds"), "seconds, also with a decimal point")
}

/// Points where a team switches.
pub(super) fn ctx_points(text: &str) -> Parsed<CtxPoints> {
    Ok(match text {
        "all" => CtxPoints::All,
        "none" => CtxPoints::None,
        "" => return refused(": needs a value".to_owned(), "a file, all, or none"),
        file => CtxPoints::File(file.into()),
    })
}

/// What `--engine` names.
#[derive(Clone, Debug)]
pub(crate) enum EngineChoice {
    /// An engine of this program.
    Here(EngineKind),
    /// A server.
    There(Url),
}

impl EngineChoice {
    /// Which engine it is.
    pub(crate) fn kind(&self) -> EngineKind {
        match self {
            EngineChoice::Here(kind) => *kind,
            EngineChoice::There(_) => EngineKind::Postgres,
        }
    }
}

/// An engine of this program, or a server.
pub(super) fn engine(text: &str) -> Parsed<EngineChoice> {
    let help = "one of storage, floor, postgres://USER@HOST:PORT/DATABASE";
    match text {
        "" => refused(": needs a value".to_owned(), help),
        "storage" => Ok(EngineChoice::Here(EngineKind::Storage)),
        "floor" => Ok(EngineChoice::Here(EngineKind::Floor)),
        url if Url::is_meant(url) => match url.parse() {
            Ok(url) => Ok(EngineChoice::There(url)),
            Err(bad @ BadUrl { help, .. }) => refused(bad.to_string(), help),
        },
        other => refused(format!(" {}: not one of its values", without_password(other)), help),
    }
}

/// A word for a message. What may be a URL with a user in it may hold a password: only what stands before that is shown.
pub(super) fn without_password(word: &str) -> &str {
    match word.split_once('@') {
        Some(_) => word.split(['/', ':']).next().unwrap_or_default(),
        None => word,
    }
}

/// The shape of an instruction cache.
pub(super) fn geometry(text: &str) -> Parsed<Geometry> {
    let help = "bytes, ways and bytes of a line, each a power of two: 32768,8,64";
    text.parse().or_else(|why| refused(format!(" {text}: {why}"), help))
}

/// The name of a table that is not the workload's.
pub(super) fn table(text: &str) -> Parsed<String> {
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

/// A probability.
pub(super) fn probability(text: &str) -> Parsed<f64> {
    let given: f64 = text.parse()?;
    if (0.0..=1.0).contains(&given) { Ok(given) } else { refused(format!(" {given}: from 0 to 1"), None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_hold_a_password_is_not_shown_again() {
        for word in ["postgres:/me:s3cret@h/db", "jdbc:postgresql://me:s3cret@h/db", "me:s3cret@h", "//me:s3cret@h"] {
            assert!(!without_password(word).contains("s3cret"), "{word}");
            let refused = engine(word).unwrap_err();
            assert!(!refused.to_string().contains("s3cret"), "{word}: {refused}");
        }
        assert_eq!(without_password("rocksdb:x"), "rocksdb:x");
    }
}
