//! Operations of an engine that the commands need in addition to transactions: opening, loading, closing. An engine without
//! files has no database to open and always loads.

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
    /// First violations that were found.
    pub findings: Vec<PageFinding>,
    /// Number of violations in addition to `findings`.
    pub more: u64,
}

/// A page that violates a structural rule.
#[derive(Clone, Debug)]
pub struct PageFinding {
    /// Name of the violated rule.
    pub rule: String,
    /// Name of the file that contains the page.
    pub file: String,
    /// Number of the page in the file.
    pub page: u32,
    /// Description of the violation.
    pub what: String,
    /// Complete finding as one line of text.
    pub line: String,
}

/// Memory region of one purpose, with sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionReport {
    /// Purpose of the memory.
    pub name: String,
    /// Size of the reserved address range.
    pub bytes: u64,
    /// Resident memory in bytes, in pages of any size.
    pub resident: u64,
    /// Resident memory in large pages, included in `resident`.
    pub large: u64,
}

impl RegionReport {
    /// Returns the sum of both regions, with the name of the first region.
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

    /// Loads `plan` into an empty directory. The data is durable on return, and the mark of a complete load is written last.
    /// Returns `None` if `progress` was cancelled.
    fn load(
        config: &StoreConfig,
        hook: Option<&Self::Hook>,
        plan: &load::Population,
        progress: &load::RowsDone,
    ) -> Result<Option<Self>, Error>;

    /// Reads the database into memory, or the part of it that fits.
    fn preload(&self) -> Result<(), Error>;

    /// Reads all allocated storage, used by a table or not, and checks that it is undamaged.
    fn verify(&self) -> Result<(), Error>;

    /// Checks the structure of all stored data. `look` receives the number of checked pages and the number of all pages, and
    /// may cancel the check.
    fn structure(&self, look: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<StructureReport, Error>;

    /// Returns a digest of all rows, table by table in key order, or `None` if `look`, which receives the number of rows
    /// read, has cancelled it. No transaction may run meanwhile.
    fn fingerprint(&self, look: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Option<String>, Error>;

    /// Returns the memory regions of the engine. `None` if the engine or the system does not report them.
    fn memory(&self) -> Option<Vec<RegionReport>>;

    /// Closes the database. All data is on disk afterwards.
    fn close(self) -> Result<(), Error>;
}
