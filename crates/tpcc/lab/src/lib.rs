//! Experiments on the engine and its scheduler: instruction-cache footprints of operations, comparisons of runs, and
//! reproductions of the figures of papers.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod coherence;
pub mod compare;
mod filler;
pub mod footprint;
pub mod index_fetch;
mod interval;
pub mod latency;
pub mod page;
pub mod reproduce;
mod scale;
pub mod tenants;

#[cfg(test)]
mod tests {
    use tpcc_core::report::schemas::assert_published;

    #[test]
    fn the_schema_files_are_true() {
        for (name, schema) in [
            ("index-fetch", schemars::schema_for!(crate::index_fetch::IndexFetchReport)),
            ("tenants", schemars::schema_for!(crate::tenants::TenantsReport)),
            ("latency", schemars::schema_for!(crate::latency::LatencyReport)),
            ("latency-way", schemars::schema_for!(crate::latency::WayReport)),
            ("reproduce", schemars::schema_for!(crate::reproduce::Report)),
            ("compare", schemars::schema_for!(crate::compare::ComparedRuns)),
            ("sweep", schemars::schema_for!(crate::compare::sweep::Sweep)),
        ] {
            assert_published(name, schema);
        }
    }
}
