//! Memory that the flags require. A number that does not fit into memory is refused before any allocation; the error names the
//! flag and the largest number that fits. The size of each object is defined beside the object, in functions `*_bytes`.

#[cfg(feature = "lab")]
pub(crate) mod lab;

use tpcc_core::driver;
use tpcc_core::driver::runner::stack_bytes;
use tpcc_core::engines::floor::Floor;
use tpcc_core::report::machine::memory_limit_bytes;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::settings::{EngineKind, LargePages, Pacing, RunConfig, StoreConfig};
use tpcc_core::workload::words::in_mib;

/// Memory that a command may use, and the demands of its flags.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget {
    /// Limit in bytes. `None` if the system does not report a limit; then everything fits.
    limit: Option<u64>,
    demands: Vec<Demand>,
}

/// An error about one flag names another flag only if that flag takes more than `limit >> MENTION_SHIFT` bytes.
const MENTION_SHIFT: u32 = 7;

/// Memory demand of a flag: `number` objects (as given, or the default) of `bytes_each` bytes.
#[derive(Clone, Copy, Debug)]
struct Demand {
    flag: &'static str,
    number: u64,
    bytes_each: u64,
}

impl Demand {
    fn bytes(&self) -> u64 {
        self.number.saturating_mul(self.bytes_each)
    }
}

impl MemoryBudget {
    /// Returns the budget of this process, without demands. Limit: [`memory_limit_bytes`].
    pub(crate) fn of_this_process() -> MemoryBudget {
        MemoryBudget { limit: memory_limit_bytes(), demands: Vec::new() }
    }

    /// Adds a demand of `flag`: `number` objects of `bytes_each` bytes.
    #[must_use]
    pub(crate) fn add_demand(mut self, flag: &'static str, number: u64, bytes_each: u64) -> MemoryBudget {
        match self.demands.iter_mut().find(|demand| demand.flag == flag && demand.number == number) {
            Some(demand) => demand.bytes_each = demand.bytes_each.saturating_add(bytes_each),
            None => self.demands.push(Demand { flag, number, bytes_each }),
        }
        self
    }

    /// Checks that all demands together fit.
    ///
    /// # Errors
    /// A usage error that names the flag with the largest demand, and the largest number with which all demands would fit.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let sum = |demands: &mut dyn Iterator<Item = &Demand>| {
            demands.fold(0, |all: u64, one| all.saturating_add(one.bytes()))
        };
        let (Some(limit), Some(most)) = (self.limit, self.demands.iter().max_by_key(|demand| demand.bytes())) else {
            return Ok(());
        };
        if sum(&mut self.demands.iter()) <= limit {
            return Ok(());
        }
        let others = || self.demands.iter().filter(|demand| demand.flag != most.flag);
        let named = others().filter(|demand| demand.bytes() > limit >> MENTION_SHIFT);
        let named: Vec<String> =
            named.map(|demand| format!("{} takes {}", demand.flag, in_mib(demand.bytes()))).collect();
        let beside = if named.is_empty() { String::new() } else { format!(", of which {}", named.join(", ")) };
        let error = Error::usage(format!(
            "{} {}: takes {} of memory, and this process may have {}{beside}",
            most.flag,
            most.number,
            in_mib(most.bytes()),
            in_mib(limit)
        ));
        Err(match limit.saturating_sub(sum(&mut others())) / most.bytes_each.max(1) {
            0 => error.help("not even 1 fits beside the other flags; pass smaller numbers with them"),
            fits => error.help(format!("pass {} {fits} or less", most.flag)),
        })
    }
}

/// Returns the budget of a command that opens the storage engine, with the demand of its buffer pool. A pool of at most the
/// default size is not counted, because it takes memory only as it fills.
pub(crate) fn of_store(config: &StoreConfig) -> MemoryBudget {
    let budget = MemoryBudget::of_this_process();
    match config.buffer_pool_mib {
        mib if mib <= StoreConfig::DEFAULT_POOL_MIB => budget,
        mib => budget.add_demand("--buffer-pool", mib, 1 << 20),
    }
}

/// Returns the budget of a run. `warehouses` is `None` as long as the number of warehouses is not known.
pub(crate) fn of_run(config: &RunConfig, warehouses: Option<u32>) -> MemoryBudget {
    let budget = match config.engine {
        EngineKind::Storage => of_store(&config.store),
        EngineKind::Floor | EngineKind::Postgres => MemoryBudget::of_this_process(),
    };
    let (workers, team_size) = (config.store.workers as u64, config.scheduling.team_size() as u64);
    let threads = if config.engine == EngineKind::Postgres { "--connections" } else { "--workers" };
    let seconds = config.length.duration.map_or(0, |duration| duration.as_secs());
    let mut budget = budget.add_demand(threads, workers, driver::worker_bytes()).add_demand(
        "--duration",
        seconds,
        driver::second_bytes(),
    );
    let of_warehouses = warehouses.map(|warehouses| warehouses.saturating_mul(RunConfig::TERMINALS_OF_A_WAREHOUSE));
    // Each terminal occupies at most one fiber.
    if let (2.., Some(terminals)) = (team_size, config.terminals.or(of_warehouses)) {
        let fibers = workers.saturating_mul(team_size).min(terminals.into());
        let stacks = stack_bytes(config.store.large_pages != LargePages::Off).saturating_mul(fibers);
        budget = budget.add_demand("--team-size", team_size, stacks / team_size);
    }
    if let (EngineKind::Floor, Some(warehouses)) = (config.engine, warehouses) {
        budget = budget.add_demand("--warehouses", warehouses.into(), Floor::warehouse_bytes());
    }
    let terminal = match config.pacing {
        Pacing::None => driver::terminal_bytes(config.mix),
        Pacing::Spec => driver::pacing::terminal_bytes(),
    };
    match (config.terminals, warehouses) {
        (Some(terminals), _) => budget.add_demand("--terminals", terminals.into(), terminal),
        (None, Some(warehouses)) => budget.add_demand(
            "--warehouses",
            warehouses.into(),
            terminal * u64::from(RunConfig::TERMINALS_OF_A_WAREHOUSE),
        ),
        (None, None) => budget,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(limit: u64) -> MemoryBudget {
        MemoryBudget { limit: Some(limit), demands: Vec::new() }
    }

    #[test]
    fn what_does_not_fit_is_told_with_what_does() {
        let budget = |terminals| {
            of(10 << 20).add_demand("--buffer-pool", 4, 1 << 20).add_demand("--terminals", terminals, 1 << 10)
        };
        let error = budget(7_000).check().unwrap_err();
        let told = "error: --terminals 7000: takes 7 MiB of memory, and this process may have 10 MiB, of which \
                    --buffer-pool takes 4 MiB\n  help: pass --terminals 6144 or less";
        assert_eq!((error.to_string().as_str(), error.status()), (told, 2));
        assert!(budget(6_144).check().is_ok() && budget(6_145).check().is_err(), "the number that it names fits");
        let error = of(1).add_demand("--team-size", 1, 2).check().unwrap_err().to_string();
        assert!(error.contains("--team-size 1: takes 2 bytes") && error.contains("not even 1 fits"), "{error}");
    }

    #[test]
    fn a_flag_that_asks_for_two_things_is_told_of_both() {
        let budget = of(100).add_demand("--warehouses", 3, 30).add_demand("--warehouses", 3, 20);
        let error = budget.check().unwrap_err().to_string();
        assert!(error.contains("takes 150 bytes") && error.contains("pass --warehouses 2 or less"), "{error}");
    }

    #[test]
    fn no_number_is_too_large_to_be_refused() {
        assert!(of(1 << 30).add_demand("--warehouses", u64::MAX, u64::MAX).check().is_err());
        let unknown = MemoryBudget { limit: None, demands: Vec::new() };
        assert!(
            unknown.add_demand("--warehouses", u64::MAX, u64::MAX).check().is_ok(),
            "where the system says nothing"
        );
    }

    #[test]
    fn things_take_what_they_consist_of() {
        let terminal = driver::terminal_bytes(tpcc_core::workload::generate::deck::Mix::Standard);
        assert!((250..600).contains(&terminal), "{terminal}: a deck has 200 cards");
        assert!((600..5_000).contains(&driver::pacing::terminal_bytes()), "{}", driver::pacing::terminal_bytes());
        assert!((500 << 10..4 << 20).contains(&driver::worker_bytes()), "{}", driver::worker_bytes());
        let warehouse = Floor::warehouse_bytes();
        assert!((60 << 20..200 << 20).contains(&warehouse), "{warehouse}: about 100 MB are loaded");
        assert!(memory_limit_bytes().is_none_or(|bytes| bytes > 64 << 20));
    }
}
