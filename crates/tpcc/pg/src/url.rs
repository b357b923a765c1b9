//! Address of a server: `postgres://user@host:port/database`.

use std::fmt;
use std::str::FromStr;

use super::dialect::Dialect;

/// URL schemes of a server.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// User, server and database. Never holds a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Name of the user.
    pub user: String,
    /// Host name, address, or directory of a Unix socket.
    pub host: String,
    /// Port of the server; `None` for the default port of the dialect.
    pub port: Option<u16>,
    /// Name of the database.
    pub database: String,
}

/// Error of an invalid URL. Never holds text that may be a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UrlError {
    /// Message that follows the flag's name.
    pub message: String,
    /// Hint for the user.
    pub help: &'static str,
}

/// Format of a URL.
const FORM: &str = "postgres://USER@HOST:PORT/DATABASE, with %XX for what is special in a URL";

impl Url {
    /// Returns true if `text` begins with the scheme of a server's URL.
    pub fn has_scheme(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Returns the port, or the default port of the dialect.
    pub fn port(&self, dialect: Dialect) -> u16 {
        self.port.unwrap_or(dialect.port())
    }
}

impl fmt::Display for Url {
    /// Prints the URL in the form of the flag.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = encoded(&self.host);
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { host };
        write!(f, "postgres://{}@{host}", encoded(&self.user))?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "/{}", encoded(&self.database))
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Url, UrlError> {
        let bad = |what: &str| UrlError { message: format!(": {what}"), help: FORM };
        let rest = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).ok_or_else(|| bad("not a URL"))?;
        let (place, database) = rest.split_once('/').ok_or_else(|| bad("names no database"))?;
        let (user, at) = place.rsplit_once('@').ok_or_else(|| bad("names no user"))?;
        if user.contains(':') {
            return Err(UrlError {
                message: ": a password in a URL can be read by all users of the machine".to_owned(),
                help: "leave it out of the URL; set PGPASSWORD, or write it into ~/.pgpass (or the file of PGPASSFILE)",
            });
        }
        if let Some((_, parameters)) = database.split_once('?') {
            let name = parameters.split('=').next().unwrap_or_default();
            return Err(bad(&format!("the parameter '{name}' is not taken; flags say how to run")));
        }
        let (host, port) = match at.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| bad("an address in [ has no ]"))?;
                (host, port.strip_prefix(':'))
            }
            None => at.split_once(':').map_or((at, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            None => None,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => Some(port),
                _ => return Err(bad(&format!("'{port}' is no port"))),
            },
        };
        let part = |text: &str, what: &str| match decoded(text) {
            Some(part) if !part.is_empty() => Ok(part),
            _ => Err(bad(&format!("names no {what}"))),
        };
        Ok(Url { user: part(user, "user")?, host: part(host, "host")?, port, database: part(database, "database")? })
    }
}

/// Decodes `%XX`; `None` if the result is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let hex = std::str::from_utf8(more.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        rest = &more[2..];
    }
    String::from_utf8(bytes).ok()
}

fn encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes().map(|b| if plain(&b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<Url, UrlError> {
        text.parse()
    }

    #[test]
    fn a_url_is_taken_apart_and_put_together() {
        let whole = url("postgres://me@db.example:5433/bank").unwrap();
        assert_eq!((whole.user.as_str(), whole.host.as_str(), whole.port), ("me", "db.example", Some(5433)));
        assert_eq!(whole.database, "bank");
        for text in [
            "postgres://me@127.0.0.1/x",
            "postgres://me@[::1]:5432/x",
            "postgres://a%40b@%2Ftmp%2Fpg:5432/x",
            "postgres://me@127.0.0.1:1/a%2Fb",
        ] {
            assert_eq!(url(text).unwrap().to_string(), text);
        }
        assert_eq!(url("postgresql://me@h/x").unwrap().to_string(), "postgres://me@h/x");
        assert_eq!(url("postgres://a%40b@%2Ftmp%2Fpg/x").unwrap().host, "/tmp/pg");
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, want) in [
            ("postgres://host/db", "no user"),
            ("postgres://me@host", "no database"),
            ("postgres://me@host/", "no database"),
            ("postgres://me@/db", "no host"),
            ("postgres://@host/db", "no user"),
            ("postgres://me@host:0/db", "'0' is no port"),
            ("postgres://me@host:many/db", "'many' is no port"),
            ("postgres://me@[::1/db", "no ]"),
            ("postgres://me@host/db?sslmode=require", "'sslmode'"),
            ("postgres://me@host/%zz", "no database"),
        ] {
            let bad = url(text).unwrap_err();
            assert!(bad.message.contains(want), "{text}: {bad}");
        }
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        for text in ["postgres://me:s3cret@host/db", "postgres://me:s3cret@@host/db?x=1", "postgres://me:@host/db"] {
            let bad = url(text).unwrap_err();
            assert!(!bad.message.contains("s3cret") && bad.message.contains("password"), "{bad}");
            assert!(bad.help.contains("PGPASSWORD"));
        }
    }
}
