//! A terminal of a tenant, which runs one transaction after the other.

use storage::TxnError;

use super::Access;
use super::tenant::{ROW_BYTES, Tenant, TenantMix, TenantRows, failed};
use tpcc_core::engines::storage::store::Store;
use tpcc_core::workload::engine::OpenTransaction;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::generate::Random;
use tpcc_core::workload::generate::deck::{Deck, Mix};
use tpcc_core::workload::generate::input::InputSpace;
use tpcc_core::workload::schema::keys::HistoryKey;
use tpcc_core::workload::schema::rows::Timestamp;
use tpcc_core::workload::txn::{self, Scratch, StepOrder, Verdict};

/// Number of rows that a transaction reads one by one.
const READS: usize = 10;
/// Number of ranges of a sysbench transaction, and number of rows of a range.
const RANGES: usize = 4;
const RANGE_ROWS: u64 = 100;

/// State of a terminal.
pub struct TenantTerminal<'a> {
    tenant: &'a Tenant,
    mix: TenantMix,
    access: Access,
    random: Random,
    /// Input space; `None` if the tenant is not a warehouse.
    world: Option<&'a InputSpace>,
    deck: Deck,
    scratch: Box<Scratch>,
    number: u32,
    sequence: u64,
}

impl<'a> TenantTerminal<'a> {
    /// Creates terminal `number`. `run` differs between the runs on one database.
    pub fn new(
        tenant: &'a Tenant,
        world: Option<&'a InputSpace>,
        (mix, access): (TenantMix, Access),
        (number, run, seed): (u32, u32, u64),
    ) -> TenantTerminal<'a> {
        TenantTerminal {
            tenant,
            mix,
            access,
            random: Random::stream(seed, u64::from(run) << 32 | u64::from(number)),
            world,
            deck: Deck::new(Mix::Standard),
            scratch: Box::default(),
            number,
            sequence: u64::from(run) << 32,
        }
    }

    /// Runs the next transaction to its end. Retries it after a deadlock abort.
    pub fn transact(&mut self) -> Result<(), Error> {
        match self.tenant {
            Tenant::Rows(rows) if self.mix == TenantMix::Point => self.point(rows),
            Tenant::Rows(rows) => self.sysbench(rows),
            Tenant::Warehouse(store) => self.of_tpcc(store),
        }
    }

    /// Draws the number of a row.
    fn row(&mut self, rows: u64) -> u64 {
        let uniform = |random: &mut Random| random.bits() % rows;
        match self.access {
            Access::Uniform => uniform(&mut self.random),
            Access::Gaussian => {
                // The mean of twelve uniform numbers has a standard deviation of a twelfth of the range; the factor 1.2
                // makes it a tenth.
                let sum: u64 = (0..12).map(|_| uniform(&mut self.random)).sum();
                let from_the_middle = sum as f64 / 12.0 - rows as f64 / 2.0;
                let number = rows as f64 / 2.0 + 1.2 * from_the_middle;
                (number.max(0.0) as u64).min(rows - 1)
            }
        }
    }

    fn point(&mut self, rows: &TenantRows) -> Result<(), Error> {
        let tx = rows.database.begin().map_err(failed)?;
        let mut sum = 0u64;
        for _ in 0..READS {
            let key = self.row(rows.len).to_be_bytes();
            let read = tx.raw().read(&rows.table, &key, |row| row.iter().map(|byte| u64::from(*byte)).sum::<u64>());
            sum += read.map_err(failed)?.unwrap_or(0);
        }
        std::hint::black_box(sum);
        tx.commit().map(drop).map_err(failed)
    }

    fn sysbench(&mut self, rows: &TenantRows) -> Result<(), Error> {
        let reads: [u64; READS] = std::array::from_fn(|_| self.row(rows.len));
        let ranges: [u64; RANGES] = std::array::from_fn(|_| self.row(rows.len));
        let (updates, moved) = ([self.row(rows.len), self.row(rows.len)], self.row(rows.len));
        let fresh = self.random.bits().to_le_bytes();
        let ran: Result<(), TxnError> = rows.database.transact(|tx| {
            let mut sum = 0u64;
            let add = |row: &[u8]| row.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            for key in reads {
                sum += tx.raw().read(&rows.table, &key.to_be_bytes(), add)?.unwrap_or(0);
            }
            for from in ranges {
                for row in tx.range(&rows.table, from..from.saturating_add(RANGE_ROWS))? {
                    sum += u64::from(row?.1[0]);
                }
            }
            std::hint::black_box(sum);
            for key in updates {
                if let Some(mut row) = tx.get_for_update(&rows.table, &key)? {
                    row[..8].copy_from_slice(&fresh);
                    tx.update(&rows.table, &key, &row)?;
                }
            }
            let row = tx.get_for_update(&rows.table, &moved)?.unwrap_or([0; ROW_BYTES]);
            tx.delete(&rows.table, &moved)?;
            tx.put(&rows.table, &moved, &row)?;
            Ok(())
        });
        ran.map_err(failed)
    }

    fn of_tpcc(&mut self, store: &Store) -> Result<(), Error> {
        let Some(world) = self.world else { return Ok(()) };
        self.sequence += 1;
        let kind = self.deck.draw(&mut self.random);
        let district = (self.number % u32::from(world.scale.districts)) as u8 + 1;
        let history = HistoryKey { run: 0, terminal: self.number, sequence: self.sequence };
        let input = world.input(&mut self.random, kind, (1, district), Timestamp::at(self.sequence), history);
        loop {
            let mut tx = store.begin().map_err(|error| Error::failed(error.to_string()))?;
            let ended = match txn::run(&mut tx, StepOrder::HotLast, &input, &mut self.scratch) {
                Ok(Verdict::Commit) => tx.commit().map(drop),
                Ok(Verdict::Rollback) => tx.rollback().map(drop),
                Err(failure) if failure.abort().is_some() => continue,
                Err(failure) => return Err(Error::failed(failure.to_string())),
            };
            return ended.map_err(|error| Error::failed(error.to_string()));
        }
    }
}
