//! Parsers of flag values that have a range or a format. The message of a parser's error is appended to the name of the flag.

#[cfg(feature = "lab")]
pub(super) mod lab;

use std::time::Duration;

use tpcc_core::workload::settings::{EngineKind, SwitchPoints};
#[cfg(feature = "postgres")]
use tpcc_pg::url::{Url, UrlError};

/// Minimum size of the buffer pool, in MiB. A transaction may not get enough frames in a smaller pool.
pub(super) const MIN_POOL_MIB: i64 = 16;
/// Maximum of every size in MiB.
pub(super) const MAX_MIB: i64 = 1 << 24;
/// Maximum duration, in seconds: one year.
const MAX_SECONDS: f64 = 31_536_000.0;
/// Error about a value, with a help line unless the help text of the flag suffices.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct ValueError {
    pub(super) message: String,
    pub(super) help: Option<&'static str>,
}

/// Result of a value parser. The error is a [`ValueError`], or the number parser's error for a text that is not a number.
type ValueResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn value_error<T>(message: String, help: impl Into<Option<&'static str>>) -> ValueResult<T> {
    Err(ValueError { message, help: help.into() }.into())
}

/// Parses an integer from `MIN` to `MAX`.
pub(super) fn number<T: TryFrom<i64>, const MIN: i64, const MAX: i64>(text: &str) -> ValueResult<T> {
    let given: i64 = text.parse()?;
    match T::try_from(given) {
        Ok(number) if (MIN..=MAX).contains(&given) => Ok(number),
        _ if given < MIN => value_error(format!(" {given}: at least {MIN}"), None),
        _ => value_error(format!(" {given}: at most {MAX}"), None),
    }
}

/// Parses a seed: any unsigned integer of 64 bits.
pub(super) fn seed(text: &str) -> ValueResult<u64> {
    text.parse().or_else(|_| value_error(format!(" {text}: a whole number from 0 to {}", u64::MAX), None))
}

/// Parses a duration in seconds, at least `MIN_MS` milliseconds.
pub(super) fn seconds<const MIN_MS: u64>(text: &str) -> ValueResult<Duration> {
    let (given, least): (f64, f64) = (text.parse()?, MIN_MS as f64 / 1e3);
    if (least..=MAX_SECONDS).contains(&given) {
        return Ok(Duration::from_secs_f64(given));
    }
    value_error(format!(" {given}: from {least} to {MAX_SECONDS} seconds"), "seconds, also with a decimal point")
}

/// Parses the switch points of a team.
pub(super) fn ctx_points(text: &str) -> ValueResult<SwitchPoints> {
    Ok(match text {
        "all" => SwitchPoints::All,
        "none" => SwitchPoints::None,
        "" => return value_error(": needs a value".to_owned(), "a file, all, or none"),
        file => SwitchPoints::File(file.into()),
    })
}

/// Value of `--engine`.
#[derive(Clone, Debug)]
pub(crate) enum EngineChoice {
    /// Engine of this program.
    Local(EngineKind),
    /// Server that speaks PostgreSQL's protocol.
    #[cfg(feature = "postgres")]
    Server(Url),
}

impl EngineChoice {
    /// Returns the kind of the engine.
    pub(crate) fn kind(&self) -> EngineKind {
        match self {
            EngineChoice::Local(kind) => *kind,
            #[cfg(feature = "postgres")]
            EngineChoice::Server(_) => EngineKind::Postgres,
        }
    }
}

/// Parses the name of an engine of this program, or the URL of a server.
pub(super) fn engine(text: &str) -> ValueResult<EngineChoice> {
    let help = if cfg!(feature = "postgres") {
        "one of storage, floor, postgres://USER@HOST:PORT/DATABASE"
    } else {
        "one of storage, floor"
    };
    match text {
        "" => value_error(": needs a value".to_owned(), help),
        "storage" => Ok(EngineChoice::Local(EngineKind::Storage)),
        "floor" => Ok(EngineChoice::Local(EngineKind::Floor)),
        #[cfg(feature = "postgres")]
        url if Url::has_scheme(url) => match url.parse() {
            Ok(url) => Ok(EngineChoice::Server(url)),
            Err(bad @ UrlError { help, .. }) => value_error(bad.to_string(), help),
        },
        other => value_error(format!(" {}: not one of its values", without_password(other)), help),
    }
}

/// Returns the part of `word` that a message may show. A word with an `@` may be a URL with a password, so only the part before
/// its first `/` or `:` is shown.
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
            let error = engine(word).unwrap_err();
            assert!(!error.to_string().contains("s3cret"), "{word}: {error}");
        }
        assert_eq!(without_password("rocksdb:x"), "rocksdb:x");
    }
}
