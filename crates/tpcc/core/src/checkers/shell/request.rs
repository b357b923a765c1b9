//! Parser of request lines.

use storage::{Isolation, TableLock};

/// Words that are requests on their own and therefore cannot be session names.
const RESERVED: [&str; 3] = ["check", "dump", "quit"];

/// A parsed input line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// An empty line or a comment.
    Empty,
    /// `check`.
    Check,
    /// `dump`.
    Dump,
    /// `quit`.
    Quit,
    /// Request to a session: session name and request.
    Request(String, Request),
    /// An invalid line: name at the start of the reply, and reason.
    Malformed(String, String),
}

/// Request to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Begin a transaction.
    Begin(Isolation),
    /// Read a row.
    Get(i64),
    /// Read a row with the intention to write it.
    GetForUpdate(i64),
    /// Insert a row, which must not exist.
    Insert(i64, String),
    /// Replace a row, which must exist.
    Update(i64, String),
    /// Insert or replace a row.
    Put(i64, String),
    /// Delete a row, which must exist.
    Delete(i64),
    /// Read the rows of a range, both ends included.
    Scan(i64, i64),
    /// Lock the table.
    Lock(TableLock),
    /// Commit the transaction.
    Commit,
    /// Roll the transaction back.
    Rollback,
    /// Read every committed row: the line `dump`, which runs in a session of its own.
    Dump,
}

/// Parses an input line.
pub(super) fn parse(line: &str) -> Line {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [] => Line::Empty,
        [first, ..] if first.starts_with('#') => Line::Empty,
        ["check"] => Line::Check,
        ["dump"] => Line::Dump,
        ["quit"] => Line::Quit,
        [word, ..] if RESERVED.contains(word) => Line::Malformed((*word).to_owned(), "stands alone on its line".into()),
        [session] => Line::Malformed((*session).to_owned(), "a request is missing".into()),
        [session, request @ ..] => match self::request(request) {
            Ok(request) => Line::Request((*session).to_owned(), request),
            Err(why) => Line::Malformed((*session).to_owned(), why),
        },
    }
}

fn request(words: &[&str]) -> Result<Request, String> {
    Ok(match *words {
        ["begin"] => Request::Begin(Isolation::Serializable),
        ["begin", level] => Request::Begin(isolation(level)?),
        ["get", k] => Request::Get(key(k)?),
        ["getu", k] => Request::GetForUpdate(key(k)?),
        ["insert", k, v] => Request::Insert(key(k)?, v.to_owned()),
        ["update", k, v] => Request::Update(key(k)?, v.to_owned()),
        ["put", k, v] => Request::Put(key(k)?, v.to_owned()),
        ["delete", k] => Request::Delete(key(k)?),
        ["scan", lo, hi] => Request::Scan(key(lo)?, key(hi)?),
        ["lock", "table", mode] => Request::Lock(table_lock(mode)?),
        ["commit"] => Request::Commit,
        ["rollback"] => Request::Rollback,
        _ => {
            return Err(match words[0] {
                "begin" => "begin [serializable|repeatable-read|read-committed]".into(),
                word @ ("get" | "getu" | "delete") => format!("{word} K"),
                word @ ("insert" | "update" | "put") => format!("{word} K V, where V has no blanks"),
                "scan" => "scan LO HI".into(),
                "lock" => "lock table S|X|IS|IX|SIX".into(),
                word @ ("commit" | "rollback") => format!("{word} stands alone"),
                word => format!(
                    "{word}: no such request; one of begin, get, getu, insert, update, put, delete, scan, lock table, \
                     commit, rollback"
                ),
            });
        }
    })
}

fn key(word: &str) -> Result<i64, String> {
    word.parse().map_err(|_| format!("{word}: not an integer of 64 bits"))
}

fn isolation(word: &str) -> Result<Isolation, String> {
    match word {
        "serializable" => Ok(Isolation::Serializable),
        "repeatable-read" => Ok(Isolation::RepeatableRead),
        "read-committed" => Ok(Isolation::ReadCommitted),
        _ => Err(format!("{word}: one of serializable, repeatable-read, read-committed")),
    }
}

fn table_lock(word: &str) -> Result<TableLock, String> {
    match word {
        "S" => Ok(TableLock::Shared),
        "X" => Ok(TableLock::Exclusive),
        "IS" => Ok(TableLock::IntentShared),
        "IX" => Ok(TableLock::IntentExclusive),
        "SIX" => Ok(TableLock::SharedIntentExclusive),
        _ => Err(format!("{word}: one of S, X, IS, IX, SIX")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let of = |session: &str, request| Line::Request(session.into(), request);
        assert_eq!(parse("1 begin"), of("1", Request::Begin(Isolation::Serializable)));
        assert_eq!(parse(" a  begin read-committed\r\n"), of("a", Request::Begin(Isolation::ReadCommitted)));
        assert_eq!(parse("1 put -7 x=y"), of("1", Request::Put(-7, "x=y".into())));
        assert_eq!(parse("1 scan 3 9"), of("1", Request::Scan(3, 9)));
        assert_eq!(parse("1 lock table SIX"), of("1", Request::Lock(TableLock::SharedIntentExclusive)));
        assert_eq!((parse(""), parse("  # a note"), parse("quit")), (Line::Empty, Line::Empty, Line::Quit));
    }

    #[test]
    fn what_cannot_be_read_says_whom_to_answer() {
        for line in ["1", "1 get", "1 get x", "1 put 1", "1 put 1 2 3", "1 lock 1", "1 lock table U", "1 begin slowly"]
        {
            assert!(matches!(parse(line), Line::Malformed(who, _) if who == "1"), "{line}");
        }
        assert!(matches!(parse("check 1"), Line::Malformed(who, _) if who == "check"));
    }
}
