//! Measured runs with which the model is compared, on a machine that is not this one.

/// Number of cores of the measured machine, and of the claims.
pub(super) const CLAIMED: usize = 16;

/// Source of the measurements.
pub(super) const SOURCE: &str = "a virtual machine with 16 cores of a Sapphire Rapids processor, 2026-11, engine before splits for \
                                 contention, async durability, as many warehouses as workers";

/// Transactions per second of the standard mix, by number of workers. The last run was pinned; without pinning it had 810k.
pub(super) const MIX: [(usize, f64); 5] = [(1, 87.7e3), (2, 152e3), (4, 313e3), (8, 547e3), (16, 892e3)];

/// Transactions per second of one worker of the mix, by number of warehouses. More warehouses compete for the caches, as
/// those of several workers do.
const ONE_WORKER: [(usize, f64); 2] = [(1, MIX[0].1), (16, 64.7e3)];

/// Returns the factor by which the instructions of a transaction take longer with this number of warehouses than with one.
/// Between the two measured numbers of warehouses, each doubling has the same factor; beyond them, the factor does not grow.
pub(super) fn cache_factor(warehouses: usize) -> f64 {
    let [(few, fast), (many, slow)] = ONE_WORKER;
    let doublings = (warehouses.clamp(few, many) as f64 / few as f64).log2();
    (fast / slow).powf(doublings / (many as f64 / few as f64).log2())
}

/// Transactions per second on 16 cores, not pinned unless said.
pub(super) const PAYMENT_16: f64 = 686e3;
pub(super) const NEW_ORDER_16: f64 = 677e3;
/// Terminals of each warehouse on all workers (`--partition none`), with 1,804 rolled back deadlock victims.
pub(super) const SPREAD_16: f64 = 583e3;
/// The same under `--scheduler itas`, with 11,700 victims.
pub(super) const ITAS_16: f64 = 376e3;
/// Standard mix, not pinned.
pub(super) const MIX_UNPINNED_16: f64 = 810e3;

/// Time of a line from another core of the processor, in nanoseconds: median of a public measurement of a Xeon Platinum 8375C,
/// the preceding generation with the same kind of mesh (github.com/nviennot/core-to-core-latency). Assumed for this machine.
pub(super) const TRANSFER_NS: f64 = 51.0;
/// Ratio of the times between two processors and within one, in the same measurement: 108 to 51 ns.
pub(super) const FAR_FACTOR: f64 = 108.0 / 51.0;
/// Number of cores of a processor beyond which lines come from another one. Assumed.
pub(super) const NODE_CORES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_of_caches_has_the_measured_ends() {
        assert!((cache_factor(1) - 1.0).abs() < 1e-9);
        assert!((cache_factor(16) - 87.7 / 64.7).abs() < 1e-9);
        assert!((cache_factor(4).powi(2) - cache_factor(16)).abs() < 1e-9, "the same factor for each doubling");
        assert!((cache_factor(256) - cache_factor(16)).abs() < 1e-9);
    }
}
