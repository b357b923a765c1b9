//! Measures the work that epochs repeat after a violation, by number of sub-epochs (TLS paper, figures 10 and 11). In the
//! measured loops, each iteration depends on a row of the previous iteration, at a variable position in its body.

use std::time::Instant;

use speculate::{Forwarding, Options, Speculator};

use tpcc_core::engines::storage::ahead::RowStore;
use tpcc_core::engines::storage::store::{Store, StoreError};
use tpcc_core::workload::engine::OpenTransaction;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::Random;
use tpcc_core::workload::loaded::Loaded;
use tpcc_core::workload::ops::RowOps;
use tpcc_core::workload::schema::keys::{DistrictKey, StockKey};
use tpcc_core::workload::schema::tables::{District, Stock};

/// Number of rows that an iteration reads besides the row on which it depends.
pub const READS: usize = 32;
/// Number of iterations of a loop; each is an epoch.
const EPOCHS: usize = 8;

/// Measured cost of loops with a dependence.
#[derive(Clone, Copy, Debug)]
pub struct DependenceCost {
    /// Mean rewound work per violation, in microseconds.
    pub rewound_us: f64,
    /// Mean time of a loop, in microseconds.
    pub loop_us: f64,
}

/// Runs `loops` loops. Each iteration makes [`READS`] reads, and updates the shared row after the first `before` reads. Each
/// epoch has `sub_epochs` sub-epochs.
pub fn run(
    store: &Store,
    loaded: &Loaded,
    before: usize,
    sub_epochs: usize,
    loops: u32,
    seed: u64,
) -> Result<DependenceCost, Error> {
    let failed = |error: StoreError| Error::failed(error.to_string());
    let rows = RowStore::new(store);
    // Without forwarding, a premature read is detected when the epoch is validated, so that each epoch except the first is
    // violated once.
    let options = Options::new().workers(2).forwarding(Forwarding::Never);
    let options = options.sub_epochs(sub_epochs, READS.div_ceil(sub_epochs).max(1));
    let mut speculator = Speculator::new(options).map_err(|error| Error::failed(error.to_string()))?;
    let mut random = Random::stream(seed, 2);
    let district = DistrictKey { w: 1, d: 1 };
    let mut took = 0.0;
    for _ in 0..loops {
        let items: Vec<u32> = (0..EPOCHS * READS).map(|_| random.in_range(1, loaded.scale.items)).collect();
        let mut tx = store.begin().map_err(failed)?;
        let begun = Instant::now();
        let ran = tx.run_ahead(
            &mut speculator,
            &rows,
            items.chunks(READS),
            &[],
            |epoch, items| {
                for (i, &item) in items.iter().enumerate() {
                    if i == before {
                        epoch.update_row::<District, _>(&district, |hot, _| hot.ytd.set(hot.ytd.get() + 1))?;
                    }
                    let key = StockKey { w: 1, i: item };
                    std::hint::black_box(epoch.row::<Stock, _>(&key, |row| row.hot.quantity.get())?);
                }
                Ok(())
            },
            drop,
        );
        ran.map_err(|failure| Error::failed(failure.to_string()))?;
        took += begun.elapsed().as_secs_f64();
        tx.rollback().map_err(failed)?;
        store.database().step().map_err(|error| Error::failed(error.to_string()))?;
    }
    let stats = speculator.take_stats();
    Ok(DependenceCost {
        rewound_us: stats.rewound_ns as f64 / 1e3 / stats.violations.max(1) as f64,
        loop_us: took * 1e6 / f64::from(loops),
    })
}
