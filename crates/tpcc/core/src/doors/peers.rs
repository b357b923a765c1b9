//! The workload on engines of other crates: load, the standard mix, the consistency conditions.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::driver::runner::threads::ThreadsRunner;
use crate::driver::{self, RunPlan};
pub use crate::engines::peer::{Access, Peer, PeerError, PeerSession, PeerTransaction, TABLES};
use crate::engines::peer::{Foreign, Loading};
use crate::report::out;
use crate::workload::check::{self, WarehousesDone};
use crate::workload::engine::{Engine, OpenTransaction, Session};
use crate::workload::generate::deck::Mix;
use crate::workload::load::{self, LoadEnd, Population, RowsDone};
use crate::workload::loaded::Loaded;
use crate::workload::ops::Ops;
use crate::workload::schema::Scale;
use crate::workload::schema::rows::When;
use crate::workload::schema::tables::Meta;
use crate::workload::settings::{Admission, ClockKind, Length};
use crate::workload::txn::StepOrder;

/// Replaces the content of a file of results, or makes it: whole, or, where there is an error, not at all.
///
/// # Errors
/// What the system says.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    out::replace(path, content)
}

/// When dates of the population begin: the same in every engine.
const LOADED_AT: u64 = 1_700_000_000_000_000;

/// How much of the standard mix to run.
#[derive(Clone, Copy, Debug)]
pub struct MixPlan {
    /// Threads; each has four terminals, which send one transaction after the other.
    pub workers: usize,
    /// Time measured, after a tenth of it as warm-up.
    pub duration: Duration,
    /// Inputs follow from it.
    pub seed: u64,
}

/// What the standard mix gave.
#[derive(Clone, Copy, Debug)]
pub struct MixDone {
    /// Completed transactions a second.
    pub throughput_per_s: f64,
    /// Completed.
    pub completed: u64,
    /// Tries that were rolled back for others' transactions, and run again.
    pub aborted: u64,
}

/// Loads warehouses into an empty engine.
///
/// # Errors
/// What the engine said.
pub fn load<P: Peer>(peer: &P, warehouses: u32, seed: u64) -> Result<(), String> {
    load_scaled(peer, warehouses, Scale::FULL, seed)
}

/// Loads warehouses of the sizes in `scale` into an empty engine.
///
/// # Errors
/// Error of the engine.
pub fn load_scaled<P: Peer>(peer: &P, warehouses: u32, scale: Scale, seed: u64) -> Result<(), String> {
    let plan = Population::new(warehouses, scale, seed, When::at(LOADED_AT));
    match load::populate(&plan, &Loading(peer), 1, &RowsDone::default()) {
        Ok(LoadEnd::Done) => {}
        Ok(LoadEnd::Cancelled) => return Err("the load was cancelled".to_owned()),
        Err(error) => return Err(error.to_string()),
    }
    let facts = || {
        let engine = Foreign(peer);
        let mut session = engine.session(0)?;
        let mut transaction = session.begin()?;
        for (key, row) in plan.loaded().rows() {
            transaction.insert::<Meta>(&key, &row)?;
        }
        transaction.commit().map(drop)
    };
    facts().map_err(|error| error.to_string())
}

/// Runs the standard mix on what was loaded.
///
/// # Errors
/// What the engine said.
pub fn standard_mix<P: Peer>(peer: &P, plan: &MixPlan) -> Result<MixDone, String> {
    let engine = Foreign(peer);
    let loaded = loaded(&engine)?;
    let plan = RunPlan {
        warehouses: loaded.warehouses,
        workers: plan.workers,
        terminals: 4 * plan.workers as u32,
        mix: Mix::Standard,
        steps: StepOrder::HotLast,
        admission: Admission::Fifo,
        placement: itas::Placement::Spread,
        pin: false,
        counters: false,
        length: Length { warmup: plan.duration / 10, duration: Some(plan.duration), transactions: None },
        clock: ClockKind::Real,
        seed: plan.seed,
    };
    let measured = driver::run(&engine, &ThreadsRunner, &loaded, &plan, None, |_| {})?;
    if let Some(why) = measured.failure {
        return Err(why);
    }
    let completed = measured.stats.completed();
    Ok(MixDone {
        throughput_per_s: completed as f64 / measured.seconds,
        completed,
        aborted: measured.stats.aborts_in_all(),
    })
}

/// How many of the twelve consistency conditions hold, and whether the further rules do as well.
///
/// # Errors
/// What the engine said.
pub fn conditions<P: Peer>(peer: &P) -> Result<(usize, bool), String> {
    let engine = Foreign(peer);
    let loaded = loaded(&engine)?;
    let audit = check::check(&engine, &loaded, 1, &WarehousesDone::default()).map_err(|error| error.to_string())?;
    Ok((audit.conditions_held(), audit.passed()))
}

fn loaded<P: Peer>(engine: &Foreign<'_, P>) -> Result<Loaded, String> {
    let found = engine.reader().and_then(|mut reader| Loaded::read(&mut reader)).map_err(|error| error.to_string())?;
    found.ok_or_else(|| "nothing is loaded".to_owned())
}
