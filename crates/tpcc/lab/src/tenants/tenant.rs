//! Database of a tenant.

use std::sync::Arc;

use storage::disk::MemDisk;
use storage::{Database, Durability, Isolation, OpenTable, Options, Services, Table, TxnError};

use tpcc_core::engines::storage::fiber_hook::{FiberHook, StoreHook};
use tpcc_core::engines::storage::store::Store;
use tpcc_core::engines::storage::waits_only::WaitsOnly;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::settings::StoreConfig;

/// Transactions of the terminals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum TenantMix {
    /// read ten rows
    Point,
    /// ten reads, four ranges of a hundred, two updates, a delete and an insert
    #[value(name = "sysbench-oltp")]
    SysbenchOltp,
    /// the standard mix, a warehouse each
    Tpcc,
}

/// Size of a row in bytes.
pub(super) const ROW_BYTES: usize = 100;
/// Approximate size of a row in its page, in bytes.
const ROW_IN_PAGE: u64 = 128;
/// Size of the log buffer of a tenant, in bytes.
const LOG_BUFFER: usize = 512 << 10;
/// Memory of the engine for each concurrent transaction, in bytes.
const TRANSACTION_BYTES: u64 = 5 << 10;
/// Number of concurrent transactions in addition to the transactions of the terminals.
const SPARE_TRANSACTIONS: usize = 8;

/// Returns the memory of a row in bytes: on the disk of its database, which is in memory, in the buffer pool, and as a key
/// during the load.
pub(super) fn row_bytes() -> u64 {
    2 * ROW_IN_PAGE + size_of::<u64>() as u64
}

/// Returns the memory of an open database without rows, for `terminals` terminals, in bytes.
pub(super) fn database_bytes(terminals: usize) -> u64 {
    LOG_BUFFER as u64 + transactions(terminals) as u64 * TRANSACTION_BYTES
}

/// Returns the maximum number of concurrent transactions of a tenant with `terminals` terminals.
fn transactions(terminals: usize) -> usize {
    (terminals + SPARE_TRANSACTIONS).min(1_000)
}

/// Number of rows in a transaction of the loader.
const BATCH: usize = 500;
/// Table of rows of `ROW_BYTES`, with their numbers as keys.
const ROWS: Table<u64, [u8; ROW_BYTES]> = Table::new("rows");

/// Database with the rows of a tenant, whose keys begin at 0.
pub struct TenantRows {
    pub(super) database: Database,
    pub(super) table: OpenTable<u64, [u8; ROW_BYTES]>,
    pub(super) len: u64,
}

/// Database of a tenant, with its rows or with a warehouse.
pub enum Tenant {
    Rows(TenantRows),
    Warehouse(Store),
}

impl Tenant {
    /// Creates a database of `rows` rows in memory for `terminals` terminals. Its background work runs on `services`.
    ///
    /// Under `sysbench-oltp` reads keep no locks, as in the paper's database, which has consistent reads. With read locks,
    /// siblings on two cores would wait for each other all the time, and the policies would not differ.
    pub fn of_rows(rows: u64, terminals: usize, mix: TenantMix, services: &Services) -> Result<Tenant, Error> {
        let pool = (4 * rows * ROW_IN_PAGE).max(16 << 20);
        let options = Options::new()
            .buffer_pool(pool)
            .durability(Durability::Async)
            .isolation(match mix {
                TenantMix::SysbenchOltp => Isolation::ReadCommitted,
                TenantMix::Point | TenantMix::Tpcc => Isolation::Serializable,
            })
            .services(services)
            .log_buffer(LOG_BUFFER)
            .lock_table(1024)
            .log_segment(4 << 20)
            .checkpoint_every(64 << 20)
            .transactions(transactions(terminals))
            .hook(Arc::new(FiberHook::new(WaitsOnly)));
        let database = options.open_on(Arc::new(MemDisk::new())).map_err(|error| Error::failed(error.to_string()))?;
        let mut row = [0u8; ROW_BYTES];
        let keys: Vec<u64> = (0..rows).collect();
        for batch in keys.chunks(BATCH) {
            let batch: Vec<(u64, [u8; ROW_BYTES])> = batch
                .iter()
                .map(|key| {
                    row[..8].copy_from_slice(&key.to_le_bytes());
                    (*key, row)
                })
                .collect();
            database.transact(|tx| tx.put_many(&ROWS, &batch)).map_err(failed)?;
        }
        let table = database.table(&ROWS).map_err(failed)?;
        Ok(Tenant::Rows(TenantRows { database, table, len: rows }))
    }

    /// Copies a database with a warehouse into memory.
    pub fn of_warehouse(from: &Store, config: &StoreConfig) -> Result<Tenant, Error> {
        let hook: Arc<dyn StoreHook> = Arc::new(FiberHook::new(WaitsOnly));
        Ok(Tenant::Warehouse(from.copy_in_memory(config, Some(&hook))?))
    }

    pub fn close(self) -> Result<(), Error> {
        match self {
            Tenant::Rows(rows) => rows.database.close().map_err(|error| Error::failed(error.to_string())),
            Tenant::Warehouse(store) => tpcc_core::workload::database::Database::close(store),
        }
    }
}

pub(super) fn failed(error: TxnError) -> Error {
    Error::failed(error.to_string())
}
