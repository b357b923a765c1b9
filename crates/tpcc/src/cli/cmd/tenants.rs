//! `tpcc tenants`: compares scheduling policies for several databases in one process.

use std::fmt::Write;

use super::{Outcome, load};
use crate::cli::flags::lab::TenantsFlags;
use crate::cli::memory;
use crate::cli::resolve::lab;
use tpcc_core::engines::storage::store::Store;
use tpcc_core::report;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::workload::database::Database;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::settings::{Durability, StoreConfig};
use tpcc_lab::reproduce::directory::Directory;
use tpcc_lab::tenants::{self, TenantMix, TenantsReport, Warehouse};

pub(crate) fn run(flags: &TenantsFlags) -> Result<Outcome, Error> {
    let plan = lab::tenants(flags)?;
    let json = JsonOut::open(flags.output.json.as_deref())?;
    let measured = if plan.mix == TenantMix::Tpcc {
        let directory = Directory::open(None)?;
        let defaults = StoreConfig::defaults(&directory.path().join("warehouse"), plan.terminals.max(2));
        let config = StoreConfig { durability: Durability::Async, ..defaults };
        let (store, loaded, _) = load::<Store>(&config, None, 1, plan.seed)?;
        memory::lab::of_warehouses(plan.tenants, &store, &config)?;
        let warehouse = Warehouse { store, loaded, config };
        let measured = tenants::run(&plan, Some(&warehouse));
        Database::close(warehouse.store)?;
        measured?
    } else {
        tenants::run(&plan, None)?
    };
    conclude(json, &measured, text(&measured), false)?;
    Ok(Outcome::Success)
}

fn text(measured: &TenantsReport) -> String {
    let mut text = format!("{}\n", report::NOTICE);
    let TenantsReport { tenants, terminals_per_tenant, mix, slice_us, workers, rounds, rounds_dropped, .. } = measured;
    // Writing into a String cannot fail.
    let _ = writeln!(
        text,
        "{tenants} tenants of {terminals_per_tenant} terminals, {mix}, slices of {slice_us} us on {workers} workers; {rounds} \
         rounds, {rounds_dropped} dropped"
    );
    for (name, figures) in &measured.policies {
        let ends = [&measured.ratio, &measured.ratio_low, &measured.ratio_high].map(|ends| ends.get(name));
        let ratio = match ends {
            [Some(ratio), Some(low), Some(high)] => format!("{ratio:.3} [{low:.3} {high:.3}]"),
            _ => String::new(),
        };
        let loops = figures.background_per_s.map_or(String::new(), |per_s| format!(", loops {per_s:.0}/s"));
        let chosen = figures.chosen.as_ref().map_or(String::new(), |mode| format!(", chose {mode}"));
        let _ = writeln!(
            text,
            "{name:<7} {:9.0}/s  {ratio:<20}  jain {:.3}, waits {:.0} us (p99), at most {:.0} of {:.0} us, {:.0} switches of \
             tenant/s{loops}{chosen}, cpu {:.1}%",
            figures.throughput_per_s,
            figures.jain,
            figures.wait_p99_us,
            figures.max_wait_us,
            figures.wait_bound_us,
            figures.group_switches,
            100.0 * figures.cpu_share,
        );
    }
    text
}
