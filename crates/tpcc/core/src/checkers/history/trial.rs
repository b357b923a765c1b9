//! A trial draws parameters from a seed, runs a history on an in-memory disk, and checks this history.

use std::sync::Arc;

use storage::disk::MemDisk;
use storage::{Background, Durability, Isolation, LatchKind, Options};

use super::check::{Findings, check};
use super::{Form, Params, SessionKind, Teams, Txn, run};
use crate::workload::generate::Random;

/// Parameters of a trial: history run, engine options and session kind.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Parameters of the history run.
    pub params: Params,
    /// Page latch kind.
    pub latches: LatchKind,
    /// Number of reads after which a latch is promoted to a superlatch.
    pub promote_at: u16,
    /// Maximum number of record locks of a transaction before lock escalation to a table lock.
    pub escalate_at: u32,
    /// Kind of tasks that execute the sessions.
    pub kind: SessionKind,
}

/// Result of a trial.
#[derive(Debug)]
pub struct TrialResult {
    /// Recorded transactions of the history run.
    pub txns: Vec<Txn>,
    /// Result of the history check.
    pub findings: Findings,
}

impl Trial {
    /// Draws the trial of a seed, with about `transactions` transactions over all sessions. Successive seeds cycle through
    /// the isolation levels and forms.
    pub fn of_seed(seed: u64, transactions: u32) -> Trial {
        let mut random = Random::stream(seed, 0x0074_7269_616c);
        let isolation = match seed % 3 {
            0 => Isolation::Serializable,
            1 => Isolation::RepeatableRead,
            _ => Isolation::ReadCommitted,
        };
        // Every other cycle through the levels and forms has eight sessions, so that these trials can be compared.
        let sessions = if (seed / 6).is_multiple_of(2) { 8 } else { random.in_range(2, 16) };
        let keys = match random.in_range(0, 2) {
            0 => random.in_range(2, 8),
            1 => random.in_range(9, 40),
            _ => random.in_range(41, 200),
        };
        let list_full = [8, 32, 128, 500][random.in_range(0, 3) as usize];
        Trial {
            params: Params {
                form: if (seed / 3).is_multiple_of(2) { Form::ListAppend } else { Form::Register },
                sessions,
                transactions: (transactions / sessions).max(1),
                keys: keys.into(),
                isolation,
                abort_percent: [0, 5, 20, 50][random.in_range(0, 3) as usize],
                range: [1, 4, 8, 30][random.in_range(0, 3) as usize],
                list_full,
                seed,
            },
            latches: if random.percent(75) { LatchKind::Optimistic } else { LatchKind::Plain },
            promote_at: [1, 3, 30, 512][(seed / 12 % 4) as usize],
            escalate_at: if random.percent(15) { random.in_range(3, 20) } else { 5000 },
            kind: SessionKind::Threads,
        }
    }

    /// Returns the trial with its sessions in fibers, in teams drawn from the seed.
    #[must_use]
    pub fn on_fibers(self) -> Trial {
        let teams = Teams::of_seed(self.params.seed, self.params.sessions);
        Trial { kind: SessionKind::Fibers(teams), ..self }
    }

    /// Returns the trial with its sessions in fibers of sibling groups, drawn from the seed.
    ///
    /// # Errors
    /// Errors do not depend on the seed.
    pub fn on_siblings(self) -> Result<Trial, String> {
        let teams = Teams::of_seed_as_siblings(self.params.seed, self.params.sessions)?;
        Ok(Trial { kind: SessionKind::Fibers(teams), ..self })
    }

    /// Returns the trial with steps in loops on several threads. Changes the form to list-append and the isolation level to
    /// serializable.
    #[must_use]
    pub fn in_loops(mut self) -> Trial {
        (self.params.form, self.params.isolation) = (Form::ListAppend, Isolation::Serializable);
        Trial { kind: SessionKind::InLoops, ..self }
    }

    /// Returns the trial with this page latch kind.
    #[must_use]
    pub fn with_latches(self, latches: LatchKind) -> Trial {
        Trial { latches, ..self }
    }

    /// Runs the sessions and checks their history.
    ///
    /// # Errors
    /// Description of any failure other than an isolation anomaly.
    pub fn run(&self) -> Result<TrialResult, String> {
        let loop_threads = if matches!(self.kind, SessionKind::InLoops) { 2 } else { 1 };
        let options = Options::new()
            .buffer_pool(8 << 20)
            .log_segment(4 << 20)
            .log_buffer(1 << 20)
            .durability(Durability::Async)
            .background(Background::Threads)
            .latches(self.latches)
            .promote_at(self.promote_at)
            .escalate_at(self.escalate_at)
            .loop_threads(loop_threads)
            .transactions(self.params.sessions as usize * (1 + loop_threads * speculate::DEPTH) + 2);
        let options = match self.kind.hook() {
            Some(hook) => options.hook(hook),
            None => options,
        };
        let db = options.open_on(Arc::new(MemDisk::new())).map_err(|e| format!("cannot be opened: {e}"))?;
        let ran = run(&db, &self.params, &self.kind, &|| false).map_err(|e| format!("did not begin: {e}"))?;
        if let Some(error) = ran.error {
            return Err(format!("a transaction failed: {error}"));
        }
        db.verify_pages().map_err(|e| format!("left damaged pages: {e}"))?;
        db.close().map_err(|e| format!("cannot be closed: {e}"))?;
        let findings = check(&ran.txns, self.params.isolation);
        Ok(TrialResult { txns: ran.txns, findings })
    }
}
