//! The storage engine on teams of fibers: its hook, implemented by `sched_steps`.
//!
//! Storage calls [`Hook::point`] where it has just asked for memory or where a stretch of code ends; here that becomes a
//! hop to the next fiber of the team. Where storage must wait ([`Hook::block`]) the fiber leaves its team and the thread
//! goes on with the others. Threads without fibers (loading, checking, the engine's services) wait as threads do.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sched_steps::fiber::{self, Waker};
use storage::{BlockReason, Database, Hook, Operation, OperationKind, PointKind, ThreadHook, WaitToken, points};

use crate::config::{CtxPoints, Scheduling};
use crate::error::Error;

/// Runs storage on the fibers of whichever thread calls.
#[derive(Debug)]
pub(crate) struct StepsHook {
    threads: ThreadHook,
    /// By number of the point: whether it is live.
    live: Box<[bool]>,
    /// By number of the index: whether its rows are hot.
    hot: OnceLock<Box<[bool]>>,
}

thread_local! {
    /// By number of the fiber: whether its transaction has come to its hot rows.
    static HOT: [Cell<bool>; 256] = const { [const { Cell::new(false) }; 256] };
}

/// The hook for this way of scheduling; none for threads, and for teams of one, which never switch.
pub(crate) fn hook(scheduling: &Scheduling) -> Result<Option<Arc<StepsHook>>, Error> {
    let points = match scheduling {
        Scheduling::Threads | Scheduling::Steps { team_size: 1, .. } => return Ok(None),
        Scheduling::Steps { points, .. } => points,
    };
    Ok(Some(Arc::new(StepsHook { threads: ThreadHook::default(), live: live(points)?, hot: OnceLock::new() })))
}

/// Which points are live.
fn live(chosen: &CtxPoints) -> Result<Box<[bool]>, Error> {
    let all = points().iter();
    Ok(match chosen {
        CtxPoints::None => all.map(|_| false).collect(),
        CtxPoints::All => all.map(|_| true).collect(),
        CtxPoints::BuiltIn => all.map(|site| site.kind() == PointKind::Data).collect(),
        CtxPoints::File(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|e| Error::usage(format!("--ctx-points {}: {e}", path.display())))?;
            all.map(|site| text.lines().any(|line| line.trim() == site.name())).collect()
        }
    })
}

impl StepsHook {
    /// Learns which indexes hold hot rows: those that every transaction of a warehouse or a district locks. From the
    /// moment a transaction asks for one until its end it lets nobody run.
    pub(crate) fn know(&self, db: &Database, hot: &[&str]) {
        let indexes = db.indexes();
        let last = indexes.iter().map(|(number, ..)| *number).max().unwrap_or(0) as usize;
        let mut is_hot = vec![false; last + 1];
        for (number, table, _) in &indexes {
            is_hot[*number as usize] = hot.contains(&table.as_str());
        }
        let _ = self.hot.set(is_hot.into());
    }
}

impl Hook for StepsHook {
    fn is_cooperative(&self) -> bool {
        true
    }

    #[inline]
    fn point(&self, site: u32) {
        if self.live[site as usize] && !fiber::index().is_some_and(|fiber| HOT.with(|hot| hot[fiber].get())) {
            fiber::hop();
        }
    }

    fn enter(&self, operation: Operation) {
        let Some(fiber) = fiber::index() else { return };
        if operation.kind == OperationKind::Begin {
            HOT.with(|hot| hot[fiber].set(false));
        } else if self.hot.get().is_some_and(|hot| hot.get(operation.index as usize) == Some(&true)) {
            HOT.with(|hot| hot[fiber].set(true));
        }
    }

    fn block(&self, token: &WaitToken, reason: BlockReason) {
        let Some(waker) = fiber::waker() else { return self.threads.block(token, reason) };
        token.scheduler_word.store(waker.to_bits(), Ordering::SeqCst);
        // Whoever wakes first leaves the wake and then looks at the word, so one of us sees the other.
        while !token.try_consume() {
            fiber::park();
        }
        token.scheduler_word.store(0, Ordering::Relaxed);
    }

    fn block_for(&self, token: &WaitToken, reason: BlockReason, limit: Duration) -> bool {
        if !fiber::is_fiber() {
            return self.threads.block_for(token, reason, limit);
        }
        let until = Instant::now() + limit;
        let woken = std::cell::Cell::new(false);
        fiber::block_until(|| {
            woken.set(woken.get() || token.try_consume());
            woken.get() || Instant::now() >= until
        });
        woken.get()
    }

    fn wake(&self, token: &WaitToken) {
        self.threads.wake(token);
        if let Some(waker) = Waker::from_bits(token.scheduler_word.load(Ordering::SeqCst)) {
            waker.wake();
        }
    }
}
