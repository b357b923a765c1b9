//! Memory of the laboratory's commands.

use tpcc_core::checkers::history;
use tpcc_core::engines::storage::store::Store;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::settings::StoreConfig;
use tpcc_core::workload::words::in_mib;
use tpcc_lab::latency::LatencyPlan;
use tpcc_lab::tenants::TenantsPlan;

use super::{MemoryBudget, of_store};

/// Returns the budget of `tpcc history`, with the demands of its buffer pool and of the recorded transactions, which stay in
/// memory until the end of the run.
pub(crate) fn of_history(store: &StoreConfig, params: &history::Params) -> MemoryBudget {
    let each = u64::from(params.sessions) * history::RecordedSession::transaction_bytes();
    of_store(store).add_demand("--transactions", params.transactions.into(), each)
}

/// Checks that the rows of one tenant fit into memory, and then the databases of all tenants with the stacks of all fibers
/// under each policy.
///
/// # Errors
/// As [`MemoryBudget::check`].
pub(crate) fn of_tenants(plan: &TenantsPlan) -> Result<(), Error> {
    MemoryBudget::of_this_process().add_demand("--rows", plan.rows, TenantsPlan::row_bytes()).check()?;
    let (tenants, stacks) = (plan.tenants as u64, plan.stack_bytes());
    MemoryBudget::of_this_process()
        .add_demand("--background", plan.background as u64, stacks)
        .add_demand("--terminals-per-tenant", plan.terminals as u64, tenants.saturating_mul(stacks))
        .add_demand("--tenants", tenants, plan.tenant_bytes())
        .check()
}

/// Checks that the copies of an open database that `tpcc latency` makes fit into memory, beside the buffer pool of the database
/// itself. All pages of a copy are in its buffer pool.
///
/// # Errors
/// A usage error that names the database.
pub(crate) fn of_latency(plan: &LatencyPlan, database: &Store, config: &StoreConfig) -> Result<(), Error> {
    let (copies, each, shown) = (plan.copies(), copy_bytes(database)?, config.shown());
    let budget = of_store(config).add_demand("--data", copies, each);
    budget.check().map_err(|_| {
        let (all, limit) = (in_mib(each.saturating_mul(copies)), budget.limit.map_or_else(String::new, in_mib));
        let without = if plan.simulate {
            ", fewer --epoch-workers, or leave --simulate out"
        } else {
            ", or fewer --epoch-workers"
        };
        let what =
            format!("--data {shown}: {copies} copies of it take {all} of memory, and this process may have {limit}");
        Error::usage(what).help(format!("name a database of fewer warehouses{without}"))
    })
}

/// Checks that a copy of a loaded warehouse for each of `tenants` tenants fits into memory, beside the warehouse itself.
///
/// # Errors
/// As [`MemoryBudget::check`].
pub(crate) fn of_warehouses(tenants: usize, database: &Store, config: &StoreConfig) -> Result<(), Error> {
    of_store(config).add_demand("--tenants", tenants as u64, copy_bytes(database)?).check()
}

fn copy_bytes(database: &Store) -> Result<u64, Error> {
    database.copy_bytes().map_err(|error| Error::failed(error.to_string()))
}
