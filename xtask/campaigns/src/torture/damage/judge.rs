//! Judge of the engine on a damaged database: opens the database, reads everything in several ways, makes changes, and
//! decides if the engine's answers were permitted. The engine may refuse with an error that names the file, or repair damage
//! if it can prove the original content. It must never give a wrong answer.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use storage::{Database, OpenError, Options, Rule, StorageError, Transaction, TxnError};

use super::disk::CowDisk;
use super::subject::{ByMark, ByStamp, Change, LONG, Model, NUMBERS, ROWS, Subject, options};
use crate::sim::order::Sim;
use crate::sim::rng::Rng;
use crate::sim::run::run_with_teammate;
use crate::sim::scheduler::Scheduler;

/// Guarantee of the engine for a kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarantee {
    /// Every answer is correct or an error.
    Correct,
    /// The structure check reports a finding; otherwise every answer is correct or an error.
    Detected,
    /// No panic, no hang, no excessive use of memory or disk. Answers may be wrong, because the bytes have valid checksums
    /// although the engine has not written them.
    NoCrash,
}

/// Behaviour of the engine on a damaged database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// Typed errors: the first error of each step.
    pub(crate) errors: Vec<String>,
    /// Number of findings of the structure check.
    pub(crate) findings: usize,
    /// True if the rows are those after an earlier commit than the last one, so that the log seems to end earlier.
    pub(crate) earlier: bool,
    /// Description of the first behaviour that is not permitted, if any.
    pub(crate) failure: Option<String>,
}

impl Verdict {
    /// Returns the class of the behaviour, for statistics.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Verdict { failure: Some(_), .. } => "failed",
            Verdict { earlier: true, .. } => "end of the log taken for its tail",
            Verdict { errors, .. } if !errors.is_empty() => "typed error",
            Verdict { findings: 1.., .. } => "found by the structure check",
            _ => "harmless",
        }
    }

    fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(what());
        }
    }

    /// Records an error. The verdict is a failure unless damage may cause this kind of error and the message names a file.
    fn record_error(&mut self, step: &str, error: &TxnError) {
        let text = error.to_string();
        let kind = match error {
            TxnError::Storage(
                StorageError::CorruptPage { .. }
                | StorageError::CorruptFile { .. }
                | StorageError::Format { .. }
                | StorageError::Io { .. },
            ) => true,
            // These errors are permitted as consequences of an error that was reported before.
            TxnError::Storage(StorageError::Poisoned { .. }) | TxnError::Ended => !self.errors.is_empty(),
            _ => false,
        };
        if !kind {
            self.fail(|| format!("{step}: an error that damage should not cause: {text}"));
        } else if !matches!(error, TxnError::Storage(StorageError::Poisoned { .. }) | TxnError::Ended)
            && !names_a_file(&text)
        {
            self.fail(|| format!("{step}: an error that names no file: {text}"));
        }
        self.errors.push(format!("{step}: {text}"));
    }
}

/// Returns true if a message contains the name of a file of the database.
fn names_a_file(text: &str) -> bool {
    ["/control", "/pages.0", "/log."].iter().any(|name| text.contains(name))
}

/// Judges the engine on a damaged directory.
pub(crate) fn judge(subject: &Subject, disk: &CowDisk, guarantee: Guarantee, rng: &mut Rng) -> Verdict {
    let mut verdict = Verdict::default();
    let size = disk.used();
    let (mut model, mut open) = (subject.model.clone(), true);
    // In each of two rounds, the database is opened, read, changed and closed.
    for round in ["first open", "second open"] {
        if open {
            open = open_and_check(subject, disk, guarantee, rng, &mut model, round, &mut verdict);
        }
    }
    let grown = disk.used();
    if grown > 2 * size + (4 << 20) {
        verdict.fail(|| format!("the files grew from {size} to {grown} bytes"));
    }
    verdict
}

/// Opens the database, reads it, changes it and closes it. Returns false if it could not be opened.
fn open_and_check(
    subject: &Subject,
    disk: &CowDisk,
    guarantee: Guarantee,
    rng: &mut Rng,
    model: &mut Model,
    round: &str,
    verdict: &mut Verdict,
) -> bool {
    let team = (subject.scheduler == Scheduler::Steps).then(|| Team::draw(rng));
    let sim = team.as_ref().map(|team| &*team.sim);
    let options = match &team {
        Some(team) => team.options(options()),
        None => options(),
    };
    let db = match options.create(false).open_on(Arc::new(disk.clone())) {
        Ok(db) => db,
        Err(error) => {
            record_open_error(round, error, verdict);
            return false;
        }
    };
    for opened in [db.table(&NUMBERS).map(drop), db.table(&ROWS).map(drop), db.table(&LONG).map(drop)] {
        if let Err(error) = opened {
            // A damaged catalog may lack a table. A missing table counts as a wrong answer unless an error was reported.
            match error {
                TxnError::Schema { .. } if guarantee != Guarantee::Correct => verdict.errors.push(error.to_string()),
                error => verdict.record_error(round, &error),
            }
        }
    }
    // The structure check comes first, so that no other step has repaired or damaged anything.
    if guarantee == Guarantee::Detected {
        check_structure(&db, round, verdict);
    }
    let errors_before = verdict.errors.len();
    let mut wrong = read_with_teammate(&db, sim, model, rng, verdict, guarantee);
    if wrong.is_some() && errors_before == verdict.errors.len() && subject.past.iter().any(|past| agrees(&db, past)) {
        // The damage truncated the log. All effects of a prefix of the commits are present, and no effect of later commits.
        verdict.earlier = true;
        if let Some(past) = subject.past.iter().rev().find(|past| agrees(&db, past)) {
            *model = past.clone();
        }
        wrong = read_with_teammate(&db, sim, model, rng, verdict, guarantee);
    }
    if let Some(wrong) = wrong
        && (guarantee == Guarantee::Correct || guarantee == Guarantee::Detected && verdict.findings == 0)
    {
        verdict.fail(|| format!("{round}: a wrong answer: {wrong}"));
    }
    if guarantee != Guarantee::Detected {
        check_structure(&db, round, verdict);
    }
    let changing = run_with_teammate(sim, || change_some(&db, model, rng, verdict, guarantee), || ());
    team_result(changing, verdict);
    if let Err(error) = db.close() {
        record_close_error(round, &error, verdict);
    }
    true
}

/// Scheduler and clock of a team of two fibers: the reader and a teammate.
struct Team {
    sim: Arc<dyn Sim>,
    now_ns: Arc<AtomicU64>,
}

impl Team {
    fn draw(rng: &mut Rng) -> Team {
        let now_ns = Arc::new(AtomicU64::new(1));
        Team { sim: Scheduler::Steps.sim(rng.next(), 2, Arc::clone(&now_ns)), now_ns }
    }

    fn options(&self, options: Options) -> Options {
        let hook = Arc::clone(&self.sim);
        options.hook(hook).clock(Arc::clone(&self.now_ns))
    }
}

/// Returns the result of a team's work. A panic is raised again.
fn team_result<T>(result: Result<T, String>, verdict: &mut Verdict) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        // An empty message stands for a panic that the panic hook has already recorded.
        Err(what) if what.is_empty() => resume_unwind(Box::new(what)),
        Err(what) => {
            verdict.fail(|| format!("a team of two: {what}"));
            None
        }
    }
}

/// Reads everything. In a team, a teammate reads concurrently.
fn read_with_teammate(
    db: &Database,
    sim: Option<&dyn Sim>,
    model: &Model,
    rng: &mut Rng,
    verdict: &mut Verdict,
    guarantee: Guarantee,
) -> Option<String> {
    let mut of_mate = rng.clone();
    // Answers to the teammate are ignored, because other steps read the same rows.
    let meanwhile = || {
        let _ = db.transact(|tx| read_some(tx, model, &mut of_mate));
    };
    let result = run_with_teammate(sim, || read_all(db, model, rng, verdict, guarantee), meanwhile);
    team_result(result, verdict).flatten()
}

fn read_some(tx: &mut Transaction<'_>, model: &Model, rng: &mut Rng) -> Result<(), TxnError> {
    let rows = model.rows.keys().skip(rng.index(model.rows.len().max(1))).take(4).cloned().collect::<Vec<_>>();
    let long = model.long.keys().skip(rng.index(model.long.len().max(1))).take(4).cloned().collect::<Vec<_>>();
    tx.prefetch(&LONG, &long)?;
    for (row, long) in rows.iter().zip(&long) {
        tx.get(&ROWS, row)?;
        tx.get(&LONG, long)?;
    }
    tx.range(&NUMBERS, rng.below(5000)..)?.take(30).try_for_each(|row| row.map(drop))
}

fn record_open_error(round: &str, error: OpenError, verdict: &mut Verdict) {
    match error {
        OpenError::Storage(error) => verdict.record_error(round, &TxnError::Storage(error)),
        OpenError::Catalog(error @ TxnError::Storage(_)) => verdict.record_error(round, &error),
        // These errors name the missing object or the directory, which counts as a file.
        error @ (OpenError::Missing { .. } | OpenError::NotADatabase { .. } | OpenError::Catalog(_)) => {
            verdict.errors.push(error.to_string());
        }
        error => verdict.fail(|| format!("{round}: refused for a reason that is no damage: {error}")),
    }
}

fn record_close_error(round: &str, error: &StorageError, verdict: &mut Verdict) {
    verdict.record_error(&format!("{round}, closing"), &TxnError::Storage(error.clone()));
}

fn check_structure(db: &Database, round: &str, verdict: &mut Verdict) {
    match db.check_structure(|_, _| ControlFlow::Continue(())) {
        // Orphaned pages of an interrupted change are not an error: only their space is lost.
        Ok(found) => {
            let wrong = found.findings.iter().filter(|finding| finding.rule != Rule::Orphan);
            if let Some(first) = wrong.clone().next() {
                verdict.findings += wrong.count();
                verdict.errors.push(format!("{round}, structure: {first}"));
            }
        }
        Err(error) => verdict.record_error(&format!("{round}, structure"), &TxnError::Storage(error)),
    }
}

/// Returns true if a scan of each table yields exactly the rows of the model.
fn agrees(db: &Database, model: &Model) -> bool {
    let same = db.transact(|tx| {
        Ok::<_, TxnError>(
            tx.range(&NUMBERS, ..)?.map_while(Result::ok).eq(model.numbers.iter().map(|(k, v)| (*k, *v)))
                && tx.range(&ROWS, ..)?.map_while(Result::ok).eq(model.rows.clone())
                && tx.range(&LONG, ..)?.map_while(Result::ok).eq(model.long.clone()),
        )
    });
    same.unwrap_or(false)
}

/// Reads each table in several ways. Records errors, and returns a description of the first wrong answer.
fn read_all(
    db: &Database,
    model: &Model,
    rng: &mut Rng,
    verdict: &mut Verdict,
    guarantee: Guarantee,
) -> Option<String> {
    type ReadCheck = fn(&Database, &Model, &mut Rng) -> Result<Option<String>, TxnError>;
    let checks: [(&str, ReadCheck); 8] = [
        ("scan of numbers", |db, model, _| scan(db, &NUMBERS, &model.numbers, false)),
        ("scan of rows", |db, model, _| scan(db, &ROWS, &model.rows, false)),
        ("scan of long keys", |db, model, _| scan(db, &LONG, &model.long, false)),
        ("scan back of rows", |db, model, _| scan(db, &ROWS, &model.rows, true)),
        ("scan back of long keys", |db, model, _| scan(db, &LONG, &model.long, true)),
        ("single reads", |db, model, rng| single(db, model, rng)),
        ("index that is not unique", |db, model, _| by_mark(db, model)),
        ("unique index", |db, model, _| by_stamp(db, model)),
    ];
    let first = rng.index(checks.len());
    let mut wrong = None;
    for i in 0..checks.len() {
        let (name, check) = checks[(first + i) % checks.len()];
        match check(db, model, rng) {
            Ok(None) => {}
            Ok(Some(what)) => wrong = wrong.or(Some(format!("{name}: {what}"))),
            // An index entry without a valid row is damage, and the engine reports it as an error of the table.
            Err(TxnError::Decode { .. } | TxnError::Schema { .. }) if guarantee != Guarantee::Correct => {}
            Err(error) => verdict.record_error(name, &error),
        }
    }
    wrong
}

fn scan<K, V>(
    db: &Database,
    table: &storage::Table<K, V>,
    model: &std::collections::BTreeMap<K, V>,
    back: bool,
) -> Result<Option<String>, TxnError>
where
    K: storage::Key + PartialEq + std::fmt::Debug,
    V: storage::Row + PartialEq + std::fmt::Debug,
{
    let tx = db.begin()?;
    let mut rows = tx.range(table, ..)?;
    let mut expected = model.iter();
    loop {
        let (row, expected) =
            if back { (rows.next_back(), expected.next_back()) } else { (rows.next(), expected.next()) };
        match (row.transpose()?, expected) {
            (None, None) => return Ok(None),
            (Some((key, row)), Some((k, v))) if key == *k && row == *v => {}
            (found, expected) => return Ok(Some(differ(&found, &expected))),
        }
    }
}

/// Describes a difference between two values in one line.
fn differ(found: &impl std::fmt::Debug, expected: &impl std::fmt::Debug) -> String {
    let short = |text: String| text.chars().take(120).collect::<String>();
    format!("found {}, expected {}", short(format!("{found:?}")), short(format!("{expected:?}")))
}

fn single(db: &Database, model: &Model, rng: &mut Rng) -> Result<Option<String>, TxnError> {
    let tx = db.begin()?;
    let some: Vec<Vec<u8>> = model.long.keys().take(16).cloned().collect();
    tx.prefetch(&LONG, &some)?;
    for (key, row) in &model.long {
        let found = tx.get(&LONG, key)?;
        if found.as_ref() != Some(row) {
            return Ok(Some(differ(&found, &row)));
        }
    }
    for (key, row) in &model.rows {
        let found = tx.get(&ROWS, key)?;
        if found.as_ref() != Some(row) {
            return Ok(Some(differ(&found, &row)));
        }
    }
    for _ in 0..300 {
        let key = rng.below(5000);
        let (found, expected) = (tx.get_for_update(&NUMBERS, &key)?, model.numbers.get(&key));
        if found.as_ref() != expected {
            return Ok(Some(differ(&found, &expected)));
        }
    }
    Ok(None)
}

fn by_mark(db: &Database, model: &Model) -> Result<Option<String>, TxnError> {
    let tx = db.begin()?;
    for mark in 0..7u8 {
        let mut found: Vec<(Vec<u8>, Vec<u8>)> =
            tx.range_by::<ByMark>(&ROWS, mark..=mark)?.collect::<Result<_, _>>()?;
        found.sort();
        let expected = model.rows.iter().filter(|(_, row)| mark != 0 && row.first() == Some(&mark));
        if !found.iter().map(|(k, v)| (k, v)).eq(expected) {
            return Ok(Some(format!("{} rows of mark {mark} are not those expected", found.len())));
        }
    }
    Ok(None)
}

fn by_stamp(db: &Database, model: &Model) -> Result<Option<String>, TxnError> {
    let tx = db.begin()?;
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = tx.range_by::<ByStamp>(&ROWS, ..)?.rev().collect::<Result<_, _>>()?;
    found.sort();
    Ok((!found.iter().map(|(k, v)| (k, v)).eq(&model.rows)).then(|| differ(&found.len(), &model.rows.len())))
}

/// Makes random changes to the database and to the model. A failed change must have no effect.
fn change_some(db: &Database, model: &mut Model, rng: &mut Rng, verdict: &mut Verdict, guarantee: Guarantee) {
    for _ in 0..6 {
        let changes: Vec<Change> = (0..6).map(|_| model.draw(rng)).collect();
        match db.transact(|tx| changes.iter().try_for_each(|change| change.apply(tx))) {
            Ok(()) => changes.iter().for_each(|change| model.apply(change)),
            Err(TxnError::Decode { .. } | TxnError::DuplicateKey { .. }) if guarantee != Guarantee::Correct => {}
            Err(error) => verdict.record_error("changing", &error),
        }
    }
}

/// Judges the undamaged databases and returns the failures. A failure shows a defect of the judge or of the engine.
pub(crate) fn check_undamaged(subjects: &[Subject]) -> Vec<String> {
    let wrong = |subject: &Subject| {
        let disk = CowDisk::over(&subject.image, 4 * subject.image.bytes());
        let verdict = judge(subject, &disk, Guarantee::Correct, &mut Rng::of_case(1, 1));
        let failed = verdict.failure.is_some() || !verdict.errors.is_empty();
        failed.then(|| format!("undamaged, {:?}: {:?}; told: {:?}", subject.shutdown, verdict.failure, verdict.errors))
    };
    subjects.iter().filter_map(wrong).collect()
}

/// Returns the maximum number of bytes of memory for judging one of these databases: the maximum for the undamaged
/// databases, plus twice the size of the files.
pub(crate) fn memory_limit(subjects: &[Subject]) -> u64 {
    static USUAL: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let usual = USUAL.get_or_init(|| {
        let one = |subject: &Subject| {
            let disk = CowDisk::over(&subject.image, 4 * subject.image.bytes());
            super::memory::peak_during(|| judge(subject, &disk, Guarantee::Correct, &mut Rng::of_case(0, 0))).1
        };
        subjects.iter().map(one).max().unwrap_or(0)
    });
    usual + 2 * subjects.iter().map(|subject| subject.image.bytes()).max().unwrap_or(0)
}
