//! Runs the workload on engines of other crates: load, standard mix, consistency conditions.

use std::io;
use std::path::Path;
use std::time::Duration;

use crate::driver::runner::threads::ThreadsRunner;
use crate::driver::{self, RunPlan};
pub use crate::engines::peer::{Access, Peer, PeerError, PeerSession, PeerTransaction, TABLES};
use crate::engines::peer::{PeerEngine, PeerLoader};
use crate::report::out;
use crate::workload::check::{self, WarehousesDone};
use crate::workload::engine::{Engine, OpenTransaction, Session};
use crate::workload::generate::deck::Mix;
use crate::workload::load::{self, LoadEnd, Population, RowsDone};
use crate::workload::loaded::Loaded;
use crate::workload::ops::Ops;
use crate::workload::schema::Scale;
use crate::workload::schema::rows::Timestamp;
use crate::workload::schema::tables::Meta;
use crate::workload::settings::{Admission, ClockKind, Length};
use crate::workload::txn::StepOrder;

/// Replaces the content of a result file, or creates the file. On an error the file is unchanged.
///
/// # Errors
/// Error of the operating system.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    out::replace(path, content)
}

/// First date of the population, in microseconds since 1970. The same for every engine.
const LOADED_AT: u64 = 1_700_000_000_000_000;

/// Parameters of a run of the standard mix.
#[derive(Clone, Copy, Debug)]
pub struct MixPlan {
    /// Number of threads. Each has four terminals, which send one transaction after the other.
    pub workers: usize,
    /// Duration of the measurement. The warm-up before the measurement takes a tenth of this duration.
    pub duration: Duration,
    /// Seed of the input generator.
    pub seed: u64,
}

/// Results of a run of the standard mix.
#[derive(Clone, Copy, Debug)]
pub struct MixDone {
    /// Completed transactions per second.
    pub throughput_per_s: f64,
    /// Number of completed transactions.
    pub completed: u64,
    /// Number of attempts that were aborted because of other transactions, and retried.
    pub aborted: u64,
}

/// Loads warehouses into an empty engine.
///
/// # Errors
/// Error of the engine.
pub fn load<P: Peer>(peer: &P, warehouses: u32, seed: u64) -> Result<(), String> {
    load_scaled(peer, warehouses, Scale::FULL, seed)
}

/// Loads warehouses of the sizes in `scale` into an empty engine.
///
/// # Errors
/// Error of the engine.
pub fn load_scaled<P: Peer>(peer: &P, warehouses: u32, scale: Scale, seed: u64) -> Result<(), String> {
    let plan = Population::new(warehouses, scale, seed, Timestamp::at(LOADED_AT));
    match load::populate(&plan, &PeerLoader(peer), 1, &RowsDone::default()) {
        Ok(LoadEnd::Done) => {}
        Ok(LoadEnd::Cancelled) => return Err("the load was cancelled".to_owned()),
        Err(error) => return Err(error.to_string()),
    }
    let facts = || {
        let engine = PeerEngine(peer);
        let mut session = engine.session(0)?;
        let mut transaction = session.begin()?;
        for (key, row) in plan.loaded().rows() {
            transaction.insert::<Meta>(&key, &row)?;
        }
        transaction.commit().map(drop)
    };
    facts().map_err(|error| error.to_string())
}

/// Runs the standard mix on the loaded database.
///
/// # Errors
/// Error of the engine.
pub fn standard_mix<P: Peer>(peer: &P, plan: &MixPlan) -> Result<MixDone, String> {
    let engine = PeerEngine(peer);
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

/// Returns the number of the twelve consistency conditions that hold, and true if all of them and all additional rules
/// hold.
///
/// # Errors
/// Error of the engine.
pub fn conditions<P: Peer>(peer: &P) -> Result<(usize, bool), String> {
    let engine = PeerEngine(peer);
    let loaded = loaded(&engine)?;
    let audit = check::check(&engine, &loaded, 1, &WarehousesDone::default()).map_err(|error| error.to_string())?;
    Ok((audit.conditions_held(), audit.passed()))
}

fn loaded<P: Peer>(engine: &PeerEngine<'_, P>) -> Result<Loaded, String> {
    let found = engine.reader().and_then(|mut reader| Loaded::read(&mut reader)).map_err(|error| error.to_string())?;
    found.ok_or_else(|| "nothing is loaded".to_owned())
}
