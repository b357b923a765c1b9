//! Operations of an engine that the commands need in addition to transactions: opening, loading, closing. An engine that
//! keeps nothing on disk has nothing to open and always loads.

use std::ops::ControlFlow;

use super::engine::Engine;
use super::error::Error;
use super::load;
use super::loaded::Loaded;
use super::settings::StoreConfig;

/// Result of a structure check.
#[derive(Clone, Debug)]
pub struct StructureReport {
    /// True if the check is complete and found no violation.
    pub passed: bool,
    /// Number of pages in use.
    pub pages: u64,
    /// Number of pages of the free list, included in `pages`.
    pub free_pages: u64,
    /// Number of rows of all tables, including the engine's own tables.
    pub rows: u64,
    /// Number of entries of secondary indexes.
    pub entries: u64,
    /// The first violations.
    pub findings: Vec<PageFinding>,
    /// Number of further violations.
    pub more: u64,
}

/// A page that violates a structural rule.
#[derive(Clone, Debug)]
pub struct PageFinding {
    /// Name of the rule.
    pub rule: String,
    /// File of the page.
    pub file: String,
    /// Number of the page in the file.
    pub page: u32,
    /// Description of the violation.
    pub what: String,
    /// The whole finding in one line.
    pub line: String,
}

/// Memory of one purpose, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionReport {
    /// Purpose of the memory.
    pub name: String,
    /// Reserved addresses.
    pub bytes: u64,
    /// Resident memory, in pages of any size.
    pub resident: u64,
    /// Resident memory in large pages, included in `resident`.
    pub large: u64,
}

impl RegionReport {
    /// Sum of both regions, with the name of the first.
    pub fn sum(a: Option<RegionReport>, b: Option<RegionReport>) -> Option<RegionReport> {
        match (a, b) {
            (Some(a), Some(b)) => Some(RegionReport {
                bytes: a.bytes + b.bytes,
                resident: a.resident + b.resident,
                large: a.large + b.large,
                ..a
            }),
            (a, b) => a.or(b),
        }
    }
}

/// An engine with its database.
pub trait Database: Engine + Send + Sized {
    /// Hook to the scheduler of the engine's waits and statements. An engine without hooks uses a type without values.
    type Hook: Sync;

    /// Opens the database of `config`, with an optional hook; returns `None` if there is no database. An interrupted load,
    /// another format, and a directory in use by another process are errors that name the directory and a remedy.
    fn open(config: &StoreConfig, hook: Option<&Self::Hook>) -> Result<Option<(Self, Loaded)>, Error>;

    /// Deletes the existing database, so that `warehouses` can be loaded in its place. Everything that could prevent the
    /// load is checked first. `consent` receives a description of the database and may refuse; it is not called for an
    /// interrupted load.
    fn clear(
        config: &StoreConfig,
        warehouses: u32,
        consent: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Loads `plan` into an empty place. The data is durable on return; the mark of a complete load is written last. Returns
    /// `None` if `progress` was cancelled.
    fn load(
        config: &StoreConfig,
        hook: Option<&Self::Hook>,
        plan: &load::Population,
        progress: &load::RowsDone,
    ) -> Result<Option<Self>, Error>;

    /// Reads the database into memory, as far as it fits.
    fn preload(&self) -> Result<(), Error>;

    /// Reads everything that is allocated, used by a table or not, and checks that it is undamaged.
    fn verify(&self) -> Result<(), Error>;

    /// Checks the structure of all stored data. `look` receives the number of checked pages and the number of all pages, and
    /// may cancel the check.
    fn structure(&self, look: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<StructureReport, Error>;

    /// Returns a digest of all rows, table by table in key order, or `None` if `look`, which receives the number of rows
    /// read, has cancelled it. No transaction may run meanwhile.
    fn fingerprint(&self, look: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Option<String>, Error>;

    /// Memory of the engine by region; `None` if the engine or the system does not report it.
    fn memory(&self) -> Option<Vec<RegionReport>>;

    /// Closes the database. All data is on disk afterwards.
    fn close(self) -> Result<(), Error>;
}
