//! Histories as lines of JSON, one transaction per line.

use std::fmt::Write as _;
use std::io::{BufRead, Read, Write};

use serde::Deserialize;
use serde_json::Value;

use super::{Form, Op, Outcome, Txn};

/// Maximum length of a transaction's line, in bytes: enough for reads of a few hundred thousand full lists.
const LONGEST_LINE: u64 = 256 << 20;

/// Reason why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A line is not a transaction.
    #[error("line {line}: {what}")]
    Line {
        /// Line number, counted from one.
        line: usize,
        /// Description of the error.
        what: String,
    },
}

impl Txn {
    /// Formats the transaction as a line of JSON, without a line end.
    pub fn line(&self) -> String {
        let status = match self.outcome {
            Outcome::Ok => "ok",
            Outcome::Fail => "fail",
            Outcome::Info => "info",
        };
        let mut line = format!(r#"{{"id":{},"session":{},"status":"{status}","ops":["#, self.id, self.session);
        for (i, op) in self.ops.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            // Writing to a `String` cannot fail.
            let _ = match op {
                Op::Append(key, number) => write!(line, r#"{comma}["a",{key},{number}]"#),
                Op::Write(key, version) => write!(line, r#"{comma}["w",{key},{version}]"#),
                Op::Read(key, Some(version)) => write!(line, r#"{comma}["r",{key},{version}]"#),
                Op::Read(key, None) => write!(line, r#"{comma}["r",{key},null]"#),
                Op::List(key, list) => {
                    let _ = write!(line, r#"{comma}["r",{key},["#);
                    for (i, number) in list.iter().enumerate() {
                        let _ = write!(line, "{}{number}", if i > 0 { "," } else { "" });
                    }
                    line.write_str("]]")
                }
            };
        }
        let _ = write!(line, r#"],"start":{},"end":{}}}"#, self.start, self.end);
        line
    }
}

/// Writes a history, one line per transaction.
///
/// # Errors
/// Error of the writer.
pub fn write(txns: &[Txn], out: &mut impl Write) -> std::io::Result<()> {
    for txn in txns {
        out.write_all(txn.line().as_bytes())?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

#[derive(Deserialize)]
struct Line {
    id: u64,
    session: u32,
    status: String,
    ops: Vec<(String, u64, Value)>,
    start: u64,
    end: u64,
}

/// Reads a history and determines its form.
///
/// # Errors
/// If a line is not a transaction, or the history mixes both forms. A line has at most 256 MiB.
pub fn read(mut from: impl BufRead) -> Result<(Form, Vec<Txn>), FormatError> {
    let (mut txns, mut form) = (Vec::new(), None);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        let wrong = |what: String| FormatError::Line { line, what };
        if text.len() as u64 == LONGEST_LINE {
            return Err(wrong("longer than 256 MiB, so no transaction of a history".to_owned()));
        }
        let line: Line = serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
        let outcome = match line.status.as_str() {
            "ok" => Outcome::Ok,
            "fail" => Outcome::Fail,
            "info" => Outcome::Info,
            other => return Err(wrong(format!("status {other:?} is none of ok, fail, info"))),
        };
        let mut ops = Vec::with_capacity(line.ops.len());
        for (kind, key, value) in line.ops {
            let op = match (kind.as_str(), &value) {
                ("a", _) => value.as_u64().map(|number| Op::Append(key, number)),
                ("w", _) => value.as_u64().map(|version| Op::Write(key, version)),
                ("r", Value::Array(list)) => {
                    list.iter().map(Value::as_u64).collect::<Option<_>>().map(|list| Op::List(key, list))
                }
                ("r", Value::Null) => Some(Op::Read(key, None)),
                ("r", _) => value.as_u64().map(|version| Op::Read(key, Some(version))),
                _ => None,
            };
            let op = op.ok_or_else(|| wrong(format!("[{kind:?},{key},{value}] is no operation")))?;
            let its = if matches!(op, Op::Append(..) | Op::List(..)) { Form::ListAppend } else { Form::Register };
            if *form.get_or_insert(its) != its {
                return Err(wrong("mixes lists and registers".to_owned()));
            }
            ops.push(op);
        }
        txns.push(Txn { id: line.id, session: line.session, outcome, ops, start: line.start, end: line.end });
    }
    Ok((form.unwrap_or(Form::ListAppend), txns))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn txn(ops: Vec<Op>) -> Txn {
        Txn { id: 7, session: 2, outcome: Outcome::Ok, ops, start: 10, end: 20 }
    }

    #[test]
    fn lines_are_as_promised() {
        let lists = txn(vec![Op::Append(3, 9), Op::List(4, vec![1, 2]), Op::List(5, vec![])]);
        let want =
            r#"{"id":7,"session":2,"status":"ok","ops":[["a",3,9],["r",4,[1,2]],["r",5,[]]],"start":10,"end":20}"#;
        assert_eq!(lists.line(), want);
        let registers = txn(vec![Op::Write(3, 9), Op::Read(4, Some(8)), Op::Read(5, None)]);
        let want = r#"{"id":7,"session":2,"status":"ok","ops":[["w",3,9],["r",4,8],["r",5,null]],"start":10,"end":20}"#;
        assert_eq!(registers.line(), want);
    }

    #[test]
    fn what_is_written_is_read() {
        for (form, ops) in [
            (Form::ListAppend, vec![Op::Append(3, 9), Op::List(4, vec![1, 2]), Op::List(5, vec![])]),
            (Form::Register, vec![Op::Write(3, 9), Op::Read(4, Some(8)), Op::Read(5, None)]),
        ] {
            let txns = vec![txn(ops), Txn { outcome: Outcome::Fail, ..txn(vec![]) }];
            let mut bytes = Vec::new();
            write(&txns, &mut bytes).unwrap();
            assert_eq!(read(bytes.as_slice()).unwrap(), (form, txns));
        }
    }

    #[test]
    fn what_is_no_history_names_its_line() {
        let good = txn(vec![Op::Append(1, 1)]).line();
        for bad in
            ["", "{}", &good.replace("ok", "good"), &good.replace("\"a\"", "\"b\""), &good.replace("\"a\"", "\"w\"")]
        {
            let error = read(format!("{good}\n{bad}\n").as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("line 2: "), "{error}");
        }
    }
}
