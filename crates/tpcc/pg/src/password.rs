//! Sources of the password, as in libpq: the environment (`PGPASSWORD`), or a password file (`PGPASSFILE`, else
//! `~/.pgpass`). A password is never a flag and never printed.
//!
//! A file that cannot be read, or that other users may read, is ignored: the server may not require a password. If the
//! server does, the error names the file and the reason.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::url::Url;

/// Hint for a missing password.
pub(super) const HELP: &str = "set PGPASSWORD, or write a line into ~/.pgpass (or the file of PGPASSFILE)";

/// Result of the search for a password. No `Debug`: the value may be a password.
pub(super) enum Password {
    /// A password was found; the bytes of the password.
    Known(Vec<u8>),
    /// No password was found.
    NotFound,
    /// A password file exists but was ignored.
    IgnoredFile(IgnoredFile),
}

/// A password file that was ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IgnoredFile {
    /// Name of the file, and reason for which it was ignored.
    pub(super) message: String,
    /// Hint for the user.
    pub(super) help: String,
}

/// Finds the password for a user of a database.
pub(super) fn password(url: &Url, port: u16) -> Password {
    // An empty variable counts as unset, as in libpq. An empty HOME would point to the current directory.
    let set = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
    if let Some(password) = set("PGPASSWORD") {
        return Password::Known(password.into_vec());
    }
    let named = set("PGPASSFILE").map(PathBuf::from);
    match named.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".pgpass"))) {
        Some(path) => in_file(&path, url, port),
        None => Password::NotFound,
    }
}

fn in_file(path: &Path, url: &Url, port: u16) -> Password {
    let shown = path.display();
    let ignored_file = |why: &str, help: String| {
        Password::IgnoredFile(IgnoredFile { message: format!("the password file {shown} is passed over: {why}"), help })
    };
    let read = || {
        let found = fs::metadata(path)?;
        let open_to_others = found.permissions().mode() & 0o077 != 0;
        let text = if found.is_file() && !open_to_others { fs::read(path)? } else { Vec::new() };
        Ok::<_, std::io::Error>((found.is_file(), open_to_others, text))
    };
    match read() {
        Ok((false, ..)) => ignored_file("it is no plain file", HELP.to_owned()),
        Ok((true, true, _)) => ignored_file("other users may read it", format!("chmod 600 {shown}")),
        Ok((true, false, text)) => find(&text, url, port).map_or(Password::NotFound, Password::Known),
        Err(error) if error.kind() == ErrorKind::NotFound => Password::NotFound,
        Err(error) => ignored_file(&error.to_string(), format!("let it be read, or {HELP}")),
    }
}

/// Returns the password of the first line that matches in all four fields: `host:port:database:user:password`.
fn find(text: &[u8], url: &Url, port: u16) -> Option<Vec<u8>> {
    let port = port.to_string();
    let fits = |field: &[u8], wanted: &str| field == b"*" || field == wanted.as_bytes();
    // A socket matches by its directory or by the host "localhost".
    let fits_host = |field: &[u8]| fits(field, &url.host) || url.host.starts_with('/') && field == b"localhost";
    let lines = text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.starts_with(b"#")).find_map(|line| {
        let [host, at, database, user, password]: [Vec<u8>; 5] = fields(line).try_into().ok()?;
        let all_fit = fits_host(&host) && fits(&at, &port) && fits(&database, &url.database) && fits(&user, &url.user);
        all_fit.then_some(password)
    })
}

/// Splits a line at colons; a backslash escapes the next character.
fn fields(line: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    let mut bytes = line.iter();
    while let Some(&byte) = bytes.next() {
        let last = all.len() - 1;
        match byte {
            // The fifth field is the rest of the line.
            b':' if last < 4 => all.push(Vec::new()),
            b'\\' => all[last].extend(bytes.next()),
            byte => all[last].push(byte),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let url: Url = "postgres://me@db.example/bank".parse().unwrap();
        let find = |text: &str, url: &Url, port| super::find(text.as_bytes(), url, port);
        let is = |text: &str| Some(text.as_bytes().to_vec());
        let file = "# a note\nother:5432:bank:me:no\ndb.example:5433:*:me:no\ndb.example:5432:bank:me:a:b\\\\c\n*:*:*:*:late\n";
        assert_eq!(find(file, &url, 5432), is("a:b\\c"));
        assert_eq!(find(file, &url, 1), is("late"));
        assert_eq!(find("db.example:5432:bank\n", &url, 5432), None);
        let socket: Url = "postgres://me@%2Ftmp/bank".parse().unwrap();
        assert_eq!(find("localhost:*:*:me:x", &socket, 5432), is("x"));
        assert_eq!(find("/tmp:*:*:me:x\r\n", &socket, 5432), is("x"));
        let odd: Url = "postgres://a%3Ab@h/x".parse().unwrap();
        assert_eq!(find("h:1:x:a\\:b:y", &odd, 1), is("y"));
    }

    #[test]
    fn a_password_is_bytes_in_any_encoding() {
        let url: Url = "postgres://me@h/x".parse().unwrap();
        assert_eq!(find(b"# caf\xe9\nh:*:*:me:\xe9\xff\n", &url, 1), Some(vec![0xe9, 0xff]));
    }

    #[test]
    fn a_file_that_cannot_be_looked_at_is_passed_over_and_named() {
        let url: Url = "postgres://me@h/x".parse().unwrap();
        let why = |path: &Path| match in_file(path, &url, 1) {
            Password::IgnoredFile(IgnoredFile { message, help }) => format!("{message}; {help}"),
            Password::Known(_) => "known".to_owned(),
            Password::NotFound => "nowhere".to_owned(),
        };
        let file = env::temp_dir().join(format!("tpcc-passed-over-{}", std::process::id()));
        fs::write(&file, "h:*:*:me:x\n").unwrap();
        let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o640);
        let shown = file.display();
        let others = format!("the password file {shown} is passed over: other users may read it; chmod 600 {shown}");
        assert_eq!(why(&file), others);
        mode(0o600);
        assert_eq!(why(&file), "known");
        // The parent is a file, not a directory.
        let below = why(&file.join("below"));
        assert!(below.contains("is passed over") && below.contains("PGPASSWORD"), "{below}");
        assert!(why(&env::temp_dir()).contains("it is no plain file"));
        fs::remove_file(&file).unwrap();
        assert_eq!(why(&file), "nowhere");
    }
}
