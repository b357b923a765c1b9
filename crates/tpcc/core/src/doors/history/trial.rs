//! One trial of many: parameters drawn from a seed, a history on a disk in memory, and its judgement.

use std::sync::Arc;

use storage::disk::MemDisk;
use storage::{Background, Durability, Isolation, LatchKind, Options};

use super::check::{Findings, check};
use super::{Form, Params, SessionKind, Teams, Txn, run};
use crate::workload::generate::Random;

/// One trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What is run.
    pub params: Params,
    /// How readers of pages keep writers away.
    pub latches: LatchKind,
    /// Reads that promote a superlatch.
    pub promote_at: u16,
    /// Record locks of a transaction above which its table is locked.
    pub escalate_at: u32,
    /// What sessions are.
    pub kind: SessionKind,
}

/// What came of a trial.
#[derive(Debug)]
pub struct Tried {
    /// The history.
    pub txns: Vec<Txn>,
    /// What is in it.
    pub findings: Findings,
}

impl Trial {
    /// The trial of a seed, with about `transactions` of all sessions. Successive seeds go through the levels and forms.
    pub fn of_seed(seed: u64, transactions: u32) -> Trial {
        let mut random = Random::stream(seed, 0x0074_7269_616c);
        let isolation = match seed % 3 {
            0 => Isolation::Serializable,
            1 => Isolation::RepeatableRead,
            _ => Isolation::ReadCommitted,
        };
        // Every other round of levels and forms is of eight sessions, which others can compare with.
        let sessions = if (seed / 6).is_multiple_of(2) { 8 } else { random.within(2, 16) };
        let keys = match random.within(0, 2) {
            0 => random.within(2, 8),
            1 => random.within(9, 40),
            _ => random.within(41, 200),
        };
        let list_full = [8, 32, 128, 500][random.within(0, 3) as usize];
        Trial {
            params: Params {
                form: if (seed / 3).is_multiple_of(2) { Form::ListAppend } else { Form::Register },
                sessions,
                transactions: (transactions / sessions).max(1),
                keys: keys.into(),
                isolation,
                abort_percent: [0, 5, 20, 50][random.within(0, 3) as usize],
                range: [1, 4, 8, 30][random.within(0, 3) as usize],
                list_full,
                seed,
            },
            latches: if random.percent(75) { LatchKind::Optimistic } else { LatchKind::Plain },
            promote_at: [1, 3, 30, 512][(seed / 12 % 4) as usize],
            escalate_at: if random.percent(15) { random.within(3, 20) } else { 5000 },
            kind: SessionKind::Threads,
        }
    }

    /// The same trial with sessions that are fibers, in teams that follow from the seed.
    #[must_use]
    pub fn on_fibers(self) -> Trial {
        let teams = Teams::of_seed(self.params.seed, self.params.sessions);
        Trial { kind: SessionKind::Fibers(teams), ..self }
    }

    /// The same trial with sessions that are fibers of sibling groups, which follow from the seed.
    ///
    /// # Errors
    /// None that a seed could bring about.
    pub fn on_siblings(self) -> Result<Trial, String> {
        let teams = Teams::of_seed_as_siblings(self.params.seed, self.params.sessions)?;
        Ok(Trial { kind: SessionKind::Fibers(teams), ..self })
    }

    /// The same trial with steps that run ahead of their transaction: of lists, serializable.
    #[must_use]
    pub fn ahead(mut self) -> Trial {
        (self.params.form, self.params.isolation) = (Form::ListAppend, Isolation::Serializable);
        Trial { kind: SessionKind::Ahead, ..self }
    }

    /// The same trial with latches of this kind.
    #[must_use]
    pub fn with_latches(self, latches: LatchKind) -> Trial {
        Trial { latches, ..self }
    }

    /// Runs the sessions and judges what they wrote down.
    ///
    /// # Errors
    /// What went wrong beside isolation, in words.
    pub fn run(&self) -> Result<Tried, String> {
        let options = Options::new()
            .buffer_pool(8 << 20)
            .log_segment(4 << 20)
            .log_buffer(1 << 20)
            .durability(Durability::Async)
            .background(Background::Threads)
            .latches(self.latches)
            .promote_at(self.promote_at)
            .escalate_at(self.escalate_at)
            .transactions(self.params.sessions as usize + 2);
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
        Ok(Tried { txns: ran.txns, findings })
    }
}
