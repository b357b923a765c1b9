//! What the commands need of an engine beyond running transactions: opening, loading, closing. An engine that keeps
//! nothing on disk finds nothing to open and always loads.

use std::ops::ControlFlow;

use super::engine::Engine;
use super::error::Error;
use super::load;
use super::loaded::Loaded;
use super::settings::StoreConfig;

/// What a proof of the structure saw.
#[derive(Clone, Debug)]
pub struct StructureFound {
    /// Whether all was looked at and nothing found.
    pub passed: bool,
    /// Pages in use.
    pub pages: u64,
    /// Of these, free ones.
    pub free_pages: u64,
    /// Rows of all tables, those of the engine's own included.
    pub rows: u64,
    /// Entries of secondary indexes.
    pub entries: u64,
    /// The first rules that are broken.
    pub findings: Vec<PageFinding>,
    /// How many more there are.
    pub more: u64,
}

/// A page that breaks a rule of structure.
#[derive(Clone, Debug)]
pub struct PageFinding {
    /// Name of the rule.
    pub rule: String,
    /// File of the page.
    pub file: String,
    /// Its number there.
    pub page: u32,
    /// How the rule is broken.
    pub what: String,
    /// All of it in a line.
    pub line: String,
}

/// Memory of one purpose, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionFound {
    /// What it is for.
    pub name: String,
    /// Addresses reserved.
    pub bytes: u64,
    /// Memory given, in pages of any size.
    pub resident: u64,
    /// Memory given in large pages, a part of `resident`.
    pub large: u64,
}

impl RegionFound {
    /// Both together, under the first one's name.
    pub fn sum(a: Option<RegionFound>, b: Option<RegionFound>) -> Option<RegionFound> {
        match (a, b) {
            (Some(a), Some(b)) => Some(RegionFound {
                bytes: a.bytes + b.bytes,
                resident: a.resident + b.resident,
                large: a.large + b.large,
                ..a
            }),
            (a, b) => a.or(b),
        }
    }
}

/// An engine with the database it runs on.
pub trait Database: Engine + Send + Sized {
    /// What schedules its waits and statements; an engine without such a thing is given none.
    type Hook: Sync;

    /// Opens what `config` names, under a hook; none when nothing is there yet. An incomplete load, another format and a directory in
    /// use by another process are errors that name the directory and say what to do.
    fn open(config: &StoreConfig, hook: Option<&Self::Hook>) -> Result<Option<(Self, Loaded)>, Error>;

    /// Deletes what is there, so that `warehouses` can be loaded in its place, after everything that could stand against
    /// that was looked at. `consent` hears what goes if that is a whole database, and may refuse.
    fn clear(
        config: &StoreConfig,
        warehouses: u32,
        consent: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Loads `plan` into an empty place; durable when it returns, and marked as complete last of all. None when `progress`
    /// was cancelled.
    fn load(
        config: &StoreConfig,
        hook: Option<&Self::Hook>,
        plan: &load::Population,
        progress: &load::RowsDone,
    ) -> Result<Option<Self>, Error>;

    /// Reads the database into memory, as far as it fits.
    fn preload(&self) -> Result<(), Error>;

    /// Reads everything that is allocated, used by a table or not, and proves it undamaged.
    fn verify(&self) -> Result<(), Error>;

    /// Proves the structure of everything that is stored; `look` hears how many of how many pages were seen, and may
    /// break it off.
    fn structure(&self, look: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<StructureFound, Error>;

    /// One digest of all rows, table by table in key order, while nothing else runs; none if `look`, which hears how many
    /// rows were read, broke it off.
    fn fingerprint(&self, look: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Option<String>, Error>;

    /// Memory of the engine by region; none where the engine or the system does not say.
    fn memory(&self) -> Option<Vec<RegionFound>>;

    /// Leaves everything on disk.
    fn close(self) -> Result<(), Error>;
}
