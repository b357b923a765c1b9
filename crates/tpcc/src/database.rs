//! What the commands need of an engine beyond running transactions: opening, loading, closing. An engine that keeps
//! nothing on disk finds nothing to open and always loads.

use std::ops::ControlFlow;

use crate::config::StoreConfig;
use crate::engine::Engine;
use crate::error::Error;
use crate::load;
use crate::schema::meta::Loaded;
use crate::structure::Structure;

/// An engine with the database it runs on.
pub(crate) trait Database: Engine + Send + Sized {
    /// Opens what `config` names; none when nothing is there yet. An incomplete load, another format and a directory in
    /// use by another process are errors that name the directory and say what to do.
    fn open(config: &StoreConfig) -> Result<Option<(Self, Loaded)>, Error>;

    /// Deletes what is there, so that `warehouses` can be loaded in its place, after everything that could stand against
    /// that was looked at. `consent` hears what goes if that is a whole database, and may refuse.
    fn clear(
        config: &StoreConfig,
        warehouses: u32,
        consent: &mut dyn FnMut(&str) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Loads `plan` into an empty place; durable when it returns, and marked as complete last of all. None when `progress`
    /// was cancelled.
    fn load(config: &StoreConfig, plan: &load::Plan, progress: &load::Progress) -> Result<Option<Self>, Error>;

    /// Reads the database into memory, as far as it fits.
    fn preload(&self) -> Result<(), Error>;

    /// Reads everything that is allocated, used by a table or not, and proves it undamaged.
    fn verify(&self) -> Result<(), Error>;

    /// Proves the structure of everything that is stored; `look` hears how many of how many pages were seen, and may
    /// break it off.
    fn structure(&self, look: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<Structure, Error>;

    /// One digest of all rows, table by table in key order, while nothing else runs; none if `look`, which hears how many
    /// rows were read, broke it off.
    fn fingerprint(&self, look: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<Option<String>, Error>;

    /// Leaves everything on disk.
    fn close(self) -> Result<(), Error>;
}
