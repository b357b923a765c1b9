//! Where the password comes from: the environment (`PGPASSWORD`), or a password file (`PGPASSFILE`, else `~/.pgpass`), as
//! libpq has it. Never a flag, and never printed.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::url::Url;
use crate::workload::error::Error;

/// The password for a user of a database; none where none is kept.
pub(super) fn password(url: &Url, port: u16) -> Result<Option<String>, Error> {
    if let Some(password) = env::var_os("PGPASSWORD").filter(|password| !password.is_empty()) {
        let password = password.into_string().map_err(|_| Error::failed("PGPASSWORD: is no text in UTF-8"))?;
        return Ok(Some(password));
    }
    let named = env::var_os("PGPASSFILE").map(PathBuf::from);
    let Some(path) = named.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".pgpass"))) else {
        return Ok(None);
    };
    let shown = path.display();
    let failed =
        |error| Error::failed(format!("{shown}: cannot be read: {error}")).help("it holds passwords of servers");
    let mode = match fs::metadata(&path) {
        Ok(found) if !found.is_file() => return Ok(None),
        Ok(found) => found.permissions().mode(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if mode & 0o077 != 0 {
        return Err(Error::failed(format!("{shown}: other users may read it")).help(format!("chmod 600 {shown}")));
    }
    let text = fs::read_to_string(&path).map_err(failed)?;
    Ok(find(&text, url, port))
}

/// The password of the first line whose four fields fit: `host:port:database:user:password`.
fn find(text: &str, url: &Url, port: u16) -> Option<String> {
    let port = port.to_string();
    // Sockets are written as the host that they lead to.
    let host = if url.host.starts_with('/') { "localhost" } else { &url.host };
    let wanted = [host, &port, &url.database, &url.user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        let fits = wanted.iter().all(|wanted| fields.next().is_some_and(|field| field == "*" || field == *wanted));
        fits.then(|| fields.next()).flatten()
    })
}

/// Fields between colons; a backslash takes the next character as it is.
fn fields(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        let last = all.len() - 1;
        match c {
            // The fifth is the rest of the line.
            ':' if last < 4 => all.push(String::new()),
            '\\' => all[last].extend(characters.next()),
            c => all[last].push(c),
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
        let file = "# a note\nother:5432:bank:me:no\ndb.example:5433:*:me:no\ndb.example:5432:bank:me:a:b\\\\c\n*:*:*:*:late\n";
        assert_eq!(find(file, &url, 5432).as_deref(), Some("a:b\\c"));
        assert_eq!(find(file, &url, 1).as_deref(), Some("late"));
        assert_eq!(find("db.example:5432:bank\n", &url, 5432), None);
        let socket: Url = "postgres://me@%2Ftmp/bank".parse().unwrap();
        assert_eq!(find("localhost:*:*:me:x", &socket, 5432).as_deref(), Some("x"));
        let odd: Url = "postgres://a%3Ab@h/x".parse().unwrap();
        assert_eq!(find("h:1:x:a\\:b:y", &odd, 1).as_deref(), Some("y"));
    }
}
