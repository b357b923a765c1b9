//! Online copies of a database, made while writers run: the fuzzy image copy of ARIES (Mohan et al., TODS 1992, section
//! 8).
//!
//! 1. Keep the log from being truncated, so that no log file is removed. Write dirty pages (to keep the copied log
//!    short) and take a checkpoint. Its record C has the start of redo (R) and the active transactions.
//! 2. Copy the pages, one after the other, while transactions change pages.
//! 3. Choose the end E: the current end of the log. Make the log durable to E and copy it, from the oldest record that
//!    redo from R or undo of C's transactions needs.
//! 4. Sync all files, then write the control file, which says that the last checkpoint is C and that the log is durable
//!    to E.
//!
//! For a restart, the copy is a database whose machine lost power when the log ended at E. The restart recovers the
//! copy like such a database:
//!
//! * *Nothing is missing.* A page that is read after C was taken contains every change before R. Redo repeats the later
//!   changes, since the copy has the log from R to E.
//! * *Nothing is too new.* E is chosen after all pages were read, so no page of the copy has an LSN beyond E.
//! * *No page is torn.* A page that fails its checksum is read again, from the file and from the pool
//!   (`buffer/copying.rs`).
//! * *Pages that bulk loads write without the log* are reported by the pool and are read again before E is chosen. A
//!   load that ends after E is not in the copy: the copied allocator page says that a load owns the pages, and the
//!   copy's restart frees them.
//! * Transactions active at E are losers of the copy's restart. So the copy contains exactly the transactions whose
//!   commit records lie before E, and all their changes.
//!
//! The copy is a separate database with its own id, because its history differs from E on: with the same id, a log file
//! of one database could be mistaken for a file of the other.
//!
//! While the copy is unfinished, its directory has a file `copying`; opening such a directory fails.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::aside::CONTROL_BYTES;
use super::database::{Database, new_id};
use super::{files, verify};
use crate::base::error::{CopyError, StorageError};
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::buffer::CopyReader;
use crate::io::{Disk, DiskFile, FileDisk, LockError, OpenMode, sync_file, write_all_at};
use crate::log::{LogFiles, LogPin};
use crate::recovery::checkpoint::CheckpointBody;
use crate::recovery::control::{Control, ControlFile};

/// Number of pages read and written by one call.
const PIECE: u32 = 32;

/// The progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copying {
    /// Number of pages copied so far, of 8 KiB each.
    pub pages: u64,
    /// Total number of pages to copy.
    pub pages_in_all: u64,
    /// Bytes of log copied so far; above zero only after the pages are copied.
    pub log_bytes: u64,
}

/// The result of a complete copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// End of the copied log. The copy contains exactly the transactions whose commit position, as returned by
    /// [`Transaction::commit_async`](crate::Transaction::commit_async), is not above this position.
    pub end: Lsn,
    /// Number of pages copied, of 8 KiB each.
    pub pages: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
    /// Database id in the copy's files.
    pub database_id: u64,
}

impl Database {
    /// Copies the database into a directory that does not exist or is empty, while transactions run.
    ///
    /// The copy contains every transaction that was acknowledged before the call, and every transaction that commits
    /// during the call before one log position near the call's end ([`Copied::end`]). It contains no part of any other
    /// transaction. The copy is a separate database: it can be opened, also in another process, and written. Its first
    /// open recovers, which takes time in proportion to the log written during the call.
    ///
    /// No log file is removed during the call, so the log grows. If the log reaches its limit, four times
    /// [`Options::checkpoint_every`](crate::Options::checkpoint_every), the copy fails. The calling thread itself reads
    /// and writes the files; under a scheduler of fibers, use a separate thread. A failed copy removes the files that
    /// it has written.
    ///
    /// ```
    /// # use storage::{Database, Options, Table};
    /// # let base = std::env::temp_dir().join(format!("lockstep-copy-{}", std::process::id()));
    /// # let (directory, backup) = (base.join("db"), base.join("backup"));
    /// const ACCOUNTS: Table<u64, i64> = Table::new("accounts");
    /// let db = Database::open(&directory, Options::new())?;
    /// db.transact(|tx| tx.put(&ACCOUNTS, &1, &100))?;
    /// db.copy_to(&backup)?;
    /// db.transact(|tx| tx.put(&ACCOUNTS, &1, &0))?;
    ///
    /// let copy = Database::open(&backup, Options::new())?;
    /// assert_eq!(copy.begin()?.get(&ACCOUNTS, &1)?, Some(100));
    /// # drop((db, copy)); std::fs::remove_dir_all(base)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`CopyError`]. A full disk is [`StorageError::NoSpace`].
    pub fn copy_to(&self, directory: impl AsRef<Path>) -> Result<Copied, CopyError> {
        let directory = directory.as_ref();
        let fail = |source| CopyError::Directory { directory: directory.display().to_string(), source };
        let disk = FileDisk::create(directory).map_err(fail)?;
        self.copy_on(Arc::new(disk), |_| ControlFlow::Continue(()))
    }

    /// As [`Database::copy_to`], onto any disk. `on_progress` is called regularly with the progress; a break
    /// cancels the copy.
    ///
    /// # Errors
    /// As [`Database::copy_to`]; [`CopyError::Cancelled`].
    pub fn copy_on(
        &self,
        disk: Arc<dyn Disk>,
        on_progress: impl FnMut(&Copying) -> ControlFlow<()>,
    ) -> Result<Copied, CopyError> {
        let directory = files::directory(&*disk);
        let is_empty = || match files::first_foreign(&*disk)? {
            Some(holds) => Err(CopyError::NotEmpty { directory: directory.clone(), holds }),
            None => Ok(()),
        };
        // The directory is also checked before it is locked, because the lock file would stay in a directory that is
        // not used for the copy.
        is_empty()?;
        let _lock = disk.lock().map_err(|e| match e {
            LockError::Held { dir, .. } => CopyError::InUse { directory: dir },
            LockError::Storage(error) => error.into(),
        })?;
        is_empty()?;
        let mut target =
            CopyTarget { directory, disk: &*disk, created: Vec::new(), on_progress, progress: Copying::default() };
        let copied = self.copy_into(&disk, &mut target)?;
        target.created.clear();
        Ok(copied)
    }

    fn copy_into(
        &self,
        disk: &Arc<dyn Disk>,
        target: &mut CopyTarget<'_, impl FnMut(&Copying) -> ControlFlow<()>>,
    ) -> Result<Copied, CopyError> {
        let engine = &self.engine;
        let pin = engine.log.pin();
        let mut reader = engine.pool.begin_copy();
        engine.pool.flush_all()?;
        self.checkpointer().take(engine)?;
        let control = self.checkpointer().control();
        let mut record = Vec::new();
        let record = engine.log.read_at(control.checkpoint, &mut record)?;
        let body = CheckpointBody::decode(record.body, record.lsn)
            .ok_or_else(|| engine.log.damaged_at(control.checkpoint, "is no checkpoint"))?;

        let database = if engine.clock.is_simulated() { successor(&control) } else { new_id() };
        target.begin()?;
        let end = self.copy_pages(&mut reader, database, target)?;
        engine.make_durable(end)?;
        let copied = target.copy_log(&pin, (body.keep(), end), database);
        if pin.is_broken() {
            return Err(CopyError::LogLimit { directory: target.directory.clone(), limit: engine.log.limit_bytes() });
        }
        copied?;
        LogFiles::find(Arc::clone(disk), database)?.prove(body.keep(), end)?;
        target.finish(&Control { number: 1, database, durable: end, ..control })?;
        let Copying { pages, log_bytes, .. } = target.progress;
        Ok(Copied { end, pages, log_bytes, database_id: database })
    }

    /// Copies all pages; returns the end of the log to copy.
    fn copy_pages(
        &self,
        reader: &mut CopyReader<'_>,
        database: u64,
        target: &mut CopyTarget<'_, impl FnMut(&Copying) -> ControlFlow<()>>,
    ) -> Result<Lsn, CopyError> {
        // Pages that are created later are in the log; the copy's restart extends the file for them.
        let in_all = reader.pages();
        target.progress.pages_in_all = in_all.into();
        let name = files::PAGES;
        let file = target.create(name)?;
        let bytes = u64::from(in_all) * PAGE_SIZE as u64;
        file.allocate(0, bytes).map_err(|e| StorageError::io("allocate", target.disk.show(name), 0, e))?;
        write_all_at(&*file, files::file_header(database).as_bytes(), 0)?;
        let mut damaged = Vec::new();
        target.copy_run(reader, &*file, 1, in_all, &mut damaged)?;
        let end = loop {
            match reader.end_or_direct_writes() {
                Ok(end) => break end,
                Err(writes) => {
                    for (first, pages) in writes {
                        target.copy_run(reader, &*file, first.0, first.0 + pages, &mut damaged)?;
                    }
                }
            }
        };
        if !damaged.is_empty() {
            // Damage of a page is harmless if no tree refers to the page. A running bulk load may own the page, or an
            // ended one may have left it.
            verify::walk(&self.engine, &self.catalog)?;
        }
        sync_file(&*file)?;
        Ok(end)
    }
}

/// Derives a database id from the point at which the copy's history diverges from the original's: for simulated runs,
/// which must be reproducible.
fn successor(control: &Control) -> u64 {
    let mixed = (control.database ^ control.checkpoint.0.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)) | 1
}

/// The target directory of a running copy. Its files are removed if the copy fails or `on_progress` panics.
struct CopyTarget<'d, H> {
    directory: String,
    disk: &'d dyn Disk,
    /// Files created so far; empty once the copy is complete.
    created: Vec<String>,
    on_progress: H,
    progress: Copying,
}

impl<H: FnMut(&Copying) -> ControlFlow<()>> CopyTarget<'_, H> {
    /// Creates the mark file, which marks the directory as an unfinished copy.
    fn begin(&mut self) -> Result<(), CopyError> {
        self.create(files::COPYING)?;
        self.sync_directory()?;
        self.report()
    }

    /// Creates a file that must not exist.
    fn create(&mut self, name: &str) -> Result<Arc<dyn DiskFile>, StorageError> {
        let show = self.disk.show(name);
        let file = self.disk.open(name, OpenMode::CreateNew).map_err(|e| StorageError::io("create", show, 0, e))?;
        self.created.push(name.to_owned());
        Ok(file)
    }

    /// Copies the pages from `from` to `to`, exclusive.
    fn copy_run(
        &mut self,
        reader: &CopyReader<'_>,
        file: &dyn DiskFile,
        from: u32,
        to: u32,
        damaged: &mut Vec<PageId>,
    ) -> Result<(), CopyError> {
        let mut bytes = vec![0; PIECE as usize * PAGE_SIZE];
        let mut first = from;
        while first < to {
            let pages = PIECE.min(to - first);
            let bytes = &mut bytes[..pages as usize * PAGE_SIZE];
            reader.read(PageId(first), bytes, damaged)?;
            write_all_at(file, bytes, PageId(first).offset())?;
            first += pages;
            self.progress.pages += u64::from(pages);
            self.progress.pages_in_all = self.progress.pages_in_all.max(self.progress.pages);
            self.report()?;
        }
        Ok(())
    }

    fn copy_log(&mut self, pin: &LogPin<'_>, stretch: (Lsn, Lsn), database: u64) -> Result<(), CopyError> {
        let CopyTarget { directory, disk, created, on_progress, progress } = self;
        let named = |name: &str| created.push(name.to_owned());
        pin.copy(stretch, *disk, database, named, |bytes| {
            progress.log_bytes += bytes;
            match on_progress(progress) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(CopyError::Cancelled { directory: directory.clone() }),
            }
        })
    }

    /// Completes the copy: writes the control file and removes the mark file. All other files of the copy exist and are
    /// synced.
    fn finish(&mut self, control: &Control) -> Result<(), CopyError> {
        self.sync_directory()?;
        let created = &mut self.created;
        ControlFile::create(self.disk, control, CONTROL_BYTES, &mut |name| created.push(name.to_owned()))?;
        self.disk
            .remove(files::COPYING)
            .map_err(|e| StorageError::io("remove", self.disk.show(files::COPYING), 0, e))?;
        self.sync_directory()
    }

    fn sync_directory(&self) -> Result<(), CopyError> {
        Ok(self.disk.sync_dir().map_err(|e| StorageError::io("sync", self.disk.show(""), 0, e))?)
    }

    fn report(&mut self) -> Result<(), CopyError> {
        match (self.on_progress)(&self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CopyError::Cancelled { directory: self.directory.clone() }),
        }
    }
}

impl<H> Drop for CopyTarget<'_, H> {
    /// Removes the files created so far. The mark file is removed last, so that the directory cannot be opened as a
    /// database if some files cannot be removed.
    fn drop(&mut self) {
        if self.created.is_empty() {
            return;
        }
        let mut left = false;
        for name in self.created.drain(..).rev() {
            // The mark file is the first file created, so it is removed last.
            if name == files::COPYING && left {
                continue;
            }
            let removed = self.disk.remove(&name);
            left |= removed.is_err_and(|e| e.kind() != std::io::ErrorKind::NotFound);
        }
        // The copy returns its earlier error, so an error of this sync is ignored.
        let _ = self.disk.sync_dir();
    }
}
