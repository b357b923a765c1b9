//! `tpcc shell`: several transactions, controlled line by line, on one small table of the engine.
//!
//! Each line on stdin is a request. Its reply is one line on stdout, flushed, that starts with the session's name. A session
//! name is any word. The first request with a new name starts a session, which runs concurrently with the others.
//!
//! | request | reply |
//! | --- | --- |
//! | `S begin [serializable\|repeatable-read\|read-committed]` | `S ok` |
//! | `S get K`, `S getu K` (read for update) | `S ok V`, or `S none` |
//! | `S scan LO HI` (both included) | `S ok K=V K=V ...`, or `S none` |
//! | `S insert K V`, `S update K V`, `S put K V`, `S delete K` | `S ok`; `S error duplicate`, `S error not-found` |
//! | `S lock table S\|X\|IS\|IX\|SIX` | `S ok` |
//! | `S commit`, `S rollback` | `S ok` |
//! | `check` | `check ok N pages`, once every page is read and verified |
//! | `dump` | `dump ok K=V ...`, or `dump none`: all committed rows |
//! | `quit` | `quit ok`, once open transactions are rolled back and the database is closed |
//!
//! Keys are 64-bit integers, values are words. Blank lines and lines that start with `#` are ignored.
//!
//! **Waiting.** A request that has to wait for a lock is answered `S blocked` at once, and gets its final reply once the
//! lock is granted. Meanwhile other requests of `S` are answered `S error busy`. A deadlock victim is rolled back and
//! answered `S deadlock`. Other errors, `S error KIND TEXT`, undo their statement and leave the transaction open.
//!
//! **Order of replies.** A request is answered before the sessions that it wakes. These continue one after the other, in the
//! order in which they were woken. The next request is read when every session is idle or waits for a lock. Therefore a
//! script gets the same replies in the same order each time, even if it sends requests without waiting for replies.
//!
//! **`check` and `dump` beside open transactions.** `check` reads pages, which are consistent whenever no request is
//! executing, so it never waits. It also counts uncommitted rows. `dump` returns one committed state: its own transaction
//! locks the table for reading. If an open transaction has written the table, the reply is `dump blocked`, and the rows
//! follow when that transaction ends. `dump` waits without holding a lock, so it is never part of a deadlock.
//!
//! At the end of input, after `quit` and after a signal, open transactions are rolled back.

mod hook;
mod mailbox;
mod request;
mod session;
mod session_runner;
mod turns;

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use storage::{Database, Hook, OpenTable, ThreadHook};

use crate::checkers::history::Teams;
use crate::workload::error::Error;
use crate::workload::interrupt;
use crate::workload::threads::{self, SpawnError};
use mailbox::Mailbox;
use request::{Line, Request};
use session_runner::{SessionContext, SessionRunner};
use turns::{SessionId, TurnScheduler};

/// Maximum number of sessions, including the session of `dump`. Each session is a thread or a fiber and may have a
/// transaction.
pub const MOST_SESSIONS: usize = 500;
/// Maximum length of a request line, in bytes.
const LONGEST_LINE: usize = 1 << 16;
/// Interval of the checks for signals while no request arrives.
const LOOK: Duration = Duration::from_millis(100);

/// A shell before its database is open: the database must be opened with the shell's hook.
pub struct Shell {
    turns: Arc<TurnScheduler>,
    /// Fiber teams of the sessions; `None` if sessions are threads.
    teams: Option<Teams>,
}

/// Reason why a shell ended.
#[derive(Debug)]
pub enum ShellEnd {
    /// End of input, or a signal.
    Input,
    /// Request `quit`. Its reply is sent after the database is closed.
    Quit,
    /// Requests cannot be read, or sessions cannot be run.
    Failed(Error),
    /// Replies cannot be written.
    OutputFailed(io::Error),
}

impl Shell {
    /// Creates a shell that replies on `out`. Its sessions are threads, or fibers of one thread if `teams` is given.
    pub fn new(out: Box<dyn Write + Send>, teams: Option<Teams>) -> Shell {
        let tasks = teams.as_ref().map_or_else(|| Arc::new(ThreadHook::default()) as Arc<dyn Hook>, Teams::hook);
        Shell { turns: Arc::new(TurnScheduler::new(out, tasks)), teams }
    }

    /// Returns the hook with which the database must be opened.
    pub fn hook(&self) -> Arc<dyn Hook> {
        Arc::new(hook::ShellHook::new(Arc::clone(&self.turns)))
    }

    /// Serves the requests of `input`. Calls `step` between requests, when no session is executing.
    pub fn serve(
        &self,
        db: &Database,
        table: OpenTable<i64, String>,
        input: impl Read + Send + 'static,
        mut step: impl FnMut(),
    ) -> ShellEnd {
        let lines = match read_lines(input) {
            Ok(lines) => lines,
            Err(error) => return ShellEnd::Failed(error.into()),
        };
        let end = thread::scope(|scope| {
            let context = SessionContext { db, table, turns: &self.turns };
            let runner = match SessionRunner::new(scope, context, self.teams.as_ref()) {
                Ok(runner) => runner,
                Err(error) => {
                    let help = "pass --scheduler threads";
                    return ShellEnd::Failed(Error::failed(format!("no fibers for the sessions: {error}")).help(help));
                }
            };
            let mut sessions = Sessions { runner, context, by_name: HashMap::new() };
            loop {
                match lines.recv_timeout(LOOK) {
                    Ok(Err(error)) => {
                        let said = format!("stdin: requests cannot be read: {error}");
                        return ShellEnd::Failed(Error::failed(said).help("what was open is rolled back"));
                    }
                    Ok(Ok(line)) => {
                        if sessions.take(line) == Line::Quit {
                            return ShellEnd::Quit;
                        }
                        self.turns.wait_until_idle();
                        step();
                    }
                    Err(RecvTimeoutError::Timeout) if !interrupt::requested() => {}
                    Err(_) => return ShellEnd::Input,
                }
                if !self.turns.can_reply() || interrupt::requested() {
                    return ShellEnd::Input;
                }
            }
            // The sessions' mailboxes close here. An idle session rolls back, which wakes the sessions that wait for its
            // locks, and so on. Every session ends this way: without a deadlock, at least one of the blocked sessions' lock
            // holders is not blocked itself.
        });
        match self.turns.take_failure() {
            Some(error) => ShellEnd::OutputFailed(error),
            None => end,
        }
    }

    /// Writes the reply to `quit`.
    pub fn answer_quit(&self, closed: Result<(), &storage::StorageError>) {
        match closed {
            Ok(()) => self.turns.say("quit ok"),
            Err(error) => {
                self.turns.say(&format!("quit error {} {}", session::kind_below(error), session::one_line(error)))
            }
        }
    }
}

/// A line received on the input.
enum ReceivedLine {
    Text(String),
    TooLong,
    NotText,
}

struct Sessions<'scope, 'env> {
    runner: SessionRunner<'scope, 'env>,
    context: SessionContext<'env>,
    by_name: HashMap<String, (SessionId, Arc<Mailbox<Request>>)>,
}

impl Drop for Sessions<'_, '_> {
    fn drop(&mut self) {
        for (_, inbox) in self.by_name.values() {
            inbox.close(&**self.context.turns.tasks());
        }
        self.runner.close(self.context.turns);
    }
}

impl Sessions<'_, '_> {
    /// Executes a line, or passes its request to the session. Returns the parsed line.
    fn take(&mut self, line: ReceivedLine) -> Line {
        let line = match line {
            ReceivedLine::Text(line) => request::parse(&line),
            ReceivedLine::TooLong => Line::Malformed("-".into(), format!("a line is longer than {LONGEST_LINE} bytes")),
            ReceivedLine::NotText => Line::Malformed("-".into(), "a line is not UTF-8".into()),
        };
        match &line {
            Line::Empty | Line::Quit => {}
            Line::Check => self.check(),
            Line::Dump => self.ask("dump", Request::Dump),
            Line::Request(session, request) => self.ask(session, request.clone()),
            Line::Malformed(whom, why) => self.context.turns.say(&format!("{whom} error usage {why}")),
        }
        line
    }

    fn check(&self) {
        let turns = self.context.turns;
        match self.context.db.verify_pages() {
            Ok(pages) => turns.say(&format!("check ok {pages} pages")),
            Err(error) => {
                turns.say(&format!("check error {} {}", session::kind_below(&error), session::one_line(&error)))
            }
        }
    }

    fn ask(&mut self, name: &str, request: Request) {
        if !self.by_name.contains_key(name) && !self.open(name) {
            return;
        }
        let Some((id, inbox)) = self.by_name.get(name) else { return };
        let turns = self.context.turns;
        if !turns.start(*id) {
            turns.say(&format!("{name} error busy its last request waits for a lock"));
        } else if !inbox.put(&**turns.tasks(), request) {
            turns.reply(*id, "error fault the session has ended; this is a fault of the program");
        }
    }

    /// Starts the session `name`. Returns false if it cannot be started.
    fn open(&mut self, name: &str) -> bool {
        let turns = self.context.turns;
        if self.by_name.len() >= MOST_SESSIONS {
            turns.say(&format!("{name} error too-many {MOST_SESSIONS} sessions are open"));
            return false;
        }
        let (id, inbox) = (turns.add(name), Arc::new(Mailbox::new()));
        if let Err(error) = self.runner.open(self.context, id, Arc::clone(&inbox)) {
            turns.say(&format!("{name} error too-many {error}"));
            return false;
        }
        self.by_name.insert(name.to_owned(), (id, inbox));
        true
    }
}

/// Starts a thread that reads lines. The thread is never joined, because a read from a terminal cannot be cancelled.
fn read_lines(input: impl Read + Send + 'static) -> Result<mpsc::Receiver<io::Result<ReceivedLine>>, SpawnError> {
    let (lines, inbox) = mpsc::sync_channel(16);
    let work = move || {
        let mut input = BufReader::new(input);
        while let Some(line) = read_line(&mut input).transpose() {
            let is_last = line.is_err();
            if lines.send(line).is_err() || is_last {
                break;
            }
        }
    };
    threads::unjoined("requests", work)?;
    Ok(inbox)
}

/// Reads the next line; `None` at the end of input.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<ReceivedLine>> {
    let mut bytes = Vec::new();
    if input.by_ref().take(LONGEST_LINE as u64 + 1).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.len() > LONGEST_LINE && bytes.last() != Some(&b'\n') {
        // Reads the rest of a too long line in pieces and discards it, so that memory stays bounded.
        while bytes.last() != Some(&b'\n') {
            bytes.clear();
            if input.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
        }
        return Ok(Some(ReceivedLine::TooLong));
    }
    Ok(Some(String::from_utf8(bytes).map_or(ReceivedLine::NotText, ReceivedLine::Text)))
}
