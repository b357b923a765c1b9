//! Values of flags that have a range or a form: a parser for each kind. What it says follows the flag in a message.

#[cfg(feature = "lab")]
pub(super) mod lab;

use std::time::Duration;

use tpcc_core::workload::settings::{CtxPoints, EngineKind};
#[cfg(feature = "postgres")]
use tpcc_pg::url::{BadUrl, Url};

/// Least buffer pool, MiB: below this a worker's transaction may not find room for its pages.
pub(super) const LEAST_POOL_MIB: i64 = 16;
/// Most MiB of anything.
pub(super) const MOST_MIB: i64 = 1 << 24;
/// Longest run, seconds: a year.
const LONGEST: f64 = 31_536_000.0;
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
    #[cfg(feature = "postgres")]
    There(Url),
}

impl EngineChoice {
    /// Which engine it is.
    pub(crate) fn kind(&self) -> EngineKind {
        match self {
            EngineChoice::Here(kind) => *kind,
            #[cfg(feature = "postgres")]
            EngineChoice::There(_) => EngineKind::Postgres,
        }
    }
}

/// An engine of this program, or a server.
pub(super) fn engine(text: &str) -> Parsed<EngineChoice> {
    let help = if cfg!(feature = "postgres") {
        "one of storage, floor, postgres://USER@HOST:PORT/DATABASE"
    } else {
        "one of storage, floor"
    };
    match text {
        "" => refused(": needs a value".to_owned(), help),
        "storage" => Ok(EngineChoice::Here(EngineKind::Storage)),
        "floor" => Ok(EngineChoice::Here(EngineKind::Floor)),
        #[cfg(feature = "postgres")]
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
