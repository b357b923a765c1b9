//! `tpcc shell`: several transactions, a line at a time, on one small table of the engine.
//!
//! One request a line on stdin; each is answered by one line on stdout, flushed, that begins with the session's name. A
//! session is any word; it is there as soon as it is named, and runs concurrently with the others.
//!
//! | request | reply |
//! | --- | --- |
//! | `S begin [serializable\|repeatable-read\|read-committed]` | `S ok` |
//! | `S get K`, `S getu K` (read for update) | `S ok V`, or `S none` |
//! | `S scan LO HI` (both included) | `S ok K=V K=V ...`, or `S none` |
//! | `S insert K V`, `S update K V`, `S put K V`, `S delete K` | `S ok`; `S error duplicate`, `S error not-found` |
//! | `S lock table S\|X\|IS\|IX\|SIX` | `S ok` |
//! | `S commit`, `S rollback` | `S ok` |
//! | `check` | `check ok N pages`: every page read and verified |
//! | `dump` | `dump ok K=V ...`, or `dump none`: all committed rows |
//! | `quit` | `quit ok`, when everything open is rolled back and the database is closed |
//!
//! Keys are integers of 64 bits, values are words. Blank lines and lines that begin with `#` are passed over.
//!
//! **Waiting.** A request that has to wait for a lock is answered `S blocked` at once, and by its real reply once it is
//! granted; meanwhile other requests of `S` are answered `S error busy`. A deadlock's victim is answered `S deadlock` and is
//! rolled back by then. Other errors, `S error KIND TEXT`, undo their statement and leave the transaction open.
//!
//! **Order of replies.** A request is answered before those whom it wakes; these go on one after the other, in the order
//! they were woken; and the next request is read when every session is idle or waits for a lock. So a script gives the same
//! replies in the same order each time, whether its author waits for them or not.
//!
//! **`check` and `dump` beside open transactions.** `check` looks at pages, which are whole whenever no request is being
//! carried out, so it never waits; rows that are not committed count like others. `dump` shows one committed state and
//! nothing else: it is a transaction of its own that locks the table for reading, so beside an open transaction that has
//! written it answers `dump blocked`, and the rows follow when that one ends. It waits holding nothing, so it is in no
//! deadlock.
//!
//! At the end of input, as at `quit` and a signal, open transactions are rolled back.

mod board;
mod hook;
mod mailbox;
mod places;
mod request;
mod session;

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use storage::{Database, Hook, OpenTable, ThreadHook};

use crate::doors::history::Teams;
use crate::workload::error::Error;
use crate::workload::interrupt;
use crate::workload::threads::{self, NoThread};
use board::{SessionId, Turns};
use mailbox::Mailbox;
use places::{Common, Places};
use request::{Line, Request};

/// Most sessions, `dump`'s own among them: each is a thread or a fiber and may have a transaction.
pub const MOST_SESSIONS: usize = 500;
/// Longest line, bytes.
const LONGEST_LINE: usize = 1 << 16;
/// How often a signal is looked for while no request comes.
const LOOK: Duration = Duration::from_millis(100);

/// A shell before there is a database: the database has to be opened with its hook.
pub struct Shell {
    board: Arc<Turns>,
    /// What its sessions are if they have no threads of their own.
    teams: Option<Teams>,
}

/// Why a shell ended.
#[derive(Debug)]
pub enum Hangup {
    /// No more input, or a signal.
    Input,
    /// `quit`: it is answered when the database is closed.
    Quit,
    /// Requests cannot be read, or sessions cannot be run.
    Failed(Error),
    /// No reader hears replies any more.
    Deaf(io::Error),
}

impl Shell {
    /// A shell that answers on `out`. Its sessions have threads of their own, or are fibers of one thread.
    pub fn new(out: Box<dyn Write + Send>, teams: Option<Teams>) -> Shell {
        let tasks = teams.as_ref().map_or_else(|| Arc::new(ThreadHook::default()) as Arc<dyn Hook>, Teams::hook);
        Shell { board: Arc::new(Turns::new(out, tasks)), teams }
    }

    /// What the database has to be opened with.
    pub fn hook(&self) -> Arc<dyn Hook> {
        Arc::new(hook::ShellHook::new(Arc::clone(&self.board)))
    }

    /// Serves the requests of `input`. `step` is called between requests, when every session rests.
    pub fn serve(
        &self,
        db: &Database,
        table: OpenTable<i64, String>,
        input: impl Read + Send + 'static,
        mut step: impl FnMut(),
    ) -> Hangup {
        let lines = match read_lines(input) {
            Ok(lines) => lines,
            Err(error) => return Hangup::Failed(error.into()),
        };
        let end = thread::scope(|scope| {
            let common = Common { db, table, board: &self.board };
            let places = match Places::new(scope, common, self.teams.as_ref()) {
                Ok(places) => places,
                Err(error) => {
                    let help = "pass --scheduler threads";
                    return Hangup::Failed(Error::failed(format!("no fibers for the sessions: {error}")).help(help));
                }
            };
            let mut sessions = Sessions { places, common, by_name: HashMap::new() };
            loop {
                match lines.recv_timeout(LOOK) {
                    Ok(Err(error)) => {
                        let said = format!("stdin: requests cannot be read: {error}");
                        return Hangup::Failed(Error::failed(said).help("what was open is rolled back"));
                    }
                    Ok(Ok(line)) => {
                        if sessions.take(line) == Line::Quit {
                            return Hangup::Quit;
                        }
                        self.board.wait_until_idle();
                        step();
                    }
                    Err(RecvTimeoutError::Timeout) if !interrupt::requested() => {}
                    Err(_) => return Hangup::Input,
                }
                if !self.board.is_heard() || interrupt::requested() {
                    return Hangup::Input;
                }
            }
            // Here the sessions' inboxes close. An idle one rolls back, which lets those go on that wait for it, and so on:
            // one session in every queue waits for no other, or it would have been a deadlock.
        });
        match self.board.take_failure() {
            Some(error) => Hangup::Deaf(error),
            None => end,
        }
    }

    /// Answers `quit`.
    pub fn answer_quit(&self, closed: Result<(), &storage::StorageError>) {
        match closed {
            Ok(()) => self.board.say("quit ok"),
            Err(error) => {
                self.board.say(&format!("quit error {} {}", session::kind_below(error), session::one_line(error)))
            }
        }
    }
}

/// A line as it was read.
enum Received {
    Text(String),
    TooLong,
    NotText,
}

struct Sessions<'scope, 'env> {
    places: Places<'scope, 'env>,
    common: Common<'env>,
    by_name: HashMap<String, (SessionId, Arc<Mailbox<Request>>)>,
}

impl Drop for Sessions<'_, '_> {
    fn drop(&mut self) {
        for (_, inbox) in self.by_name.values() {
            inbox.close(&**self.common.board.tasks());
        }
        self.places.close(self.common.board);
    }
}

impl Sessions<'_, '_> {
    /// Does what a line says, as far as it can be done here; returns the line as understood.
    fn take(&mut self, line: Received) -> Line {
        let line = match line {
            Received::Text(line) => request::parse(&line),
            Received::TooLong => Line::Malformed("-".into(), format!("a line is longer than {LONGEST_LINE} bytes")),
            Received::NotText => Line::Malformed("-".into(), "a line is not UTF-8".into()),
        };
        match &line {
            Line::Empty | Line::Quit => {}
            Line::Check => self.check(),
            Line::Dump => self.ask("dump", Request::Dump),
            Line::Request(session, request) => self.ask(session, request.clone()),
            Line::Malformed(whom, why) => self.common.board.say(&format!("{whom} error usage {why}")),
        }
        line
    }

    fn check(&self) {
        let board = self.common.board;
        match self.common.db.verify_pages() {
            Ok(pages) => board.say(&format!("check ok {pages} pages")),
            Err(error) => {
                board.say(&format!("check error {} {}", session::kind_below(&error), session::one_line(&error)))
            }
        }
    }

    fn ask(&mut self, name: &str, request: Request) {
        if !self.by_name.contains_key(name) && !self.open(name) {
            return;
        }
        let Some((id, inbox)) = self.by_name.get(name) else { return };
        let board = self.common.board;
        if !board.start(*id) {
            board.say(&format!("{name} error busy its last request waits for a lock"));
        } else if !inbox.put(&**board.tasks(), request) {
            board.reply(*id, "error fault the session has ended; this is a fault of the program");
        }
    }

    /// Begins a new session.
    fn open(&mut self, name: &str) -> bool {
        let board = self.common.board;
        if self.by_name.len() >= MOST_SESSIONS {
            board.say(&format!("{name} error too-many {MOST_SESSIONS} sessions are open"));
            return false;
        }
        let (id, inbox) = (board.add(name), Arc::new(Mailbox::new()));
        if let Err(error) = self.places.open(self.common, id, Arc::clone(&inbox)) {
            board.say(&format!("{name} error too-many {error}"));
            return false;
        }
        self.by_name.insert(name.to_owned(), (id, inbox));
        true
    }
}

/// Reads lines in a thread of its own, which no thread waits for: a read from a terminal cannot be broken off.
fn read_lines(input: impl Read + Send + 'static) -> Result<mpsc::Receiver<io::Result<Received>>, NoThread> {
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

/// The next line; none at the end of input.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<Received>> {
    let mut bytes = Vec::new();
    if input.by_ref().take(LONGEST_LINE as u64 + 1).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.len() > LONGEST_LINE && bytes.last() != Some(&b'\n') {
        // The rest of it in pieces, so that no line takes more memory than the longest.
        while bytes.last() != Some(&b'\n') {
            bytes.clear();
            if input.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
        }
        return Ok(Some(Received::TooLong));
    }
    Ok(Some(String::from_utf8(bytes).map_or(Received::NotText, Received::Text)))
}
