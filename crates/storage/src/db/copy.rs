//! An online copy of a database: the backup of ARIES (Mohan et al., TODS 1992, section 8), made while writers run.
//!
//! 1. Hold the log, so that no file of it is removed. Write dirty pages out (to keep the copied log short) and take a
//!    checkpoint: its record C says where redo begins (R) and which transactions had not ended.
//! 2. Copy the pages, one after the other, while they are written.
//! 3. Choose the end E: where the log ends now. Make the log durable to E and copy it, from the oldest record that redo
//!    from R or undo of C's transactions wants.
//! 4. Sync all that, then write the control file: "the last checkpoint is C, the log was durable to E".
//!
//! For a restart, the copy looks like a database whose machine lost power when the log ended at E, and it repairs the
//! copy in the same way:
//!
//! * *Nothing is missing.* A page that is read after C was taken contains every change before R. Redo repeats the rest,
//!   since the log is there from R to E.
//! * *Nothing is from later.* E is chosen when all pages have been read, so no page of the copy has an LSN beyond it.
//! * *No page is torn.* A page that fails its checksum is read again, from the file and from the pool
//!   (`buffer/copying.rs`).
//! * *Pages that bulk loads write past the log*: the pool reports them, and they are read again, before E is chosen. A load
//!   whose end lies behind E is not in the copy: the allocator's page there says that a load owns its pages, and the copy's
//!   restart makes them free.
//! * Transactions that had not ended at E are losers of the copy's restart. So the copy has exactly the transactions
//!   whose commit records lie before E, each as a whole.
//!
//! The copy is another database, with an id of its own, because from E on its history differs: with one id a log file
//! of the one could be taken for a part of the other.
//!
//! While it is unfinished, the directory holds a file `copying`, and is refused when it is opened.

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
use crate::log::{Hold, LogFiles};
use crate::recovery::checkpoint::CheckpointBody;
use crate::recovery::control::{Control, ControlFile};

/// Pages read and written at once.
const PIECE: u32 = 32;

/// The progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copying {
    /// Pages copied so far, of 8 KiB each.
    pub pages: u64,
    /// Number of pages to copy.
    pub pages_in_all: u64,
    /// Bytes of log copied so far; above zero once the pages are done.
    pub log_bytes: u64,
}

/// A copy that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// The copy has the transactions whose positions, as returned by
    /// [`Transaction::commit_async`](crate::Transaction::commit_async), are at most this, and no others.
    pub end: Lsn,
    /// Pages copied, of 8 KiB each.
    pub pages: u64,
    /// Bytes of log copied.
    pub log_bytes: u64,
    /// The database id in the copy's files.
    pub database_id: u64,
}

impl Database {
    /// Copies the database, as it is, into a directory that does not exist or is empty, while transactions run.
    ///
    /// The copy has every transaction that was acknowledged before the call, and of those that commit meanwhile all up
    /// to one moment near its end ([`Copied::end`]); of no transaction has it a part. It is a database of its own: open
    /// it, also in another process, and write to it. Its first open recovers, which takes as long as what was written
    /// to the log meanwhile.
    ///
    /// Until it has returned no log file is removed, so the log grows by what is written meanwhile; if it reaches its limit,
    /// four times [`Options::checkpoint_every`](crate::Options::checkpoint_every), the copy fails. The calling thread
    /// reads and writes the files itself; under a scheduler of fibers, call it from a thread of its own. If it fails,
    /// it removes the files that it has written.
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

    /// As [`Database::copy_to`], onto any disk; `hear` is called now and then with the progress, and a break cancels
    /// the copy.
    ///
    /// # Errors
    /// As [`Database::copy_to`]; [`CopyError::Cancelled`].
    pub fn copy_on(
        &self,
        disk: Arc<dyn Disk>,
        hear: impl FnMut(&Copying) -> ControlFlow<()>,
    ) -> Result<Copied, CopyError> {
        let directory = files::directory(&*disk);
        let is_empty = || match files::first_foreign(&*disk)? {
            Some(holds) => Err(CopyError::NotEmpty { directory: directory.clone(), holds }),
            None => Ok(()),
        };
        // Checked before the lock as well, whose file would stay in a directory that is not a copy's.
        is_empty()?;
        let _lock = disk.lock().map_err(|e| match e {
            LockError::Held { dir, .. } => CopyError::InUse { directory: dir },
            LockError::Storage(error) => error.into(),
        })?;
        is_empty()?;
        let mut target = Target { directory, disk: &*disk, made: Vec::new(), hear, told: Copying::default() };
        let copied = self.copy_into(&disk, &mut target)?;
        target.made.clear();
        Ok(copied)
    }

    fn copy_into(
        &self,
        disk: &Arc<dyn Disk>,
        target: &mut Target<'_, impl FnMut(&Copying) -> ControlFlow<()>>,
    ) -> Result<Copied, CopyError> {
        let engine = &self.engine;
        let hold = engine.log.hold();
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
        let copied = target.copy_log(&hold, (body.keep(), end), database);
        if hold.is_broken() {
            return Err(CopyError::LogLimit { directory: target.directory.clone(), limit: engine.log.limit_bytes() });
        }
        copied?;
        LogFiles::find(Arc::clone(disk), database)?.prove(body.keep(), end)?;
        target.finish(&Control { number: 1, database, durable: end, ..control })?;
        let Copying { pages, log_bytes, .. } = target.told;
        Ok(Copied { end, pages, log_bytes, database_id: database })
    }

    /// Copies all pages; returns where the log may be cut.
    fn copy_pages(
        &self,
        reader: &mut CopyReader<'_>,
        database: u64,
        target: &mut Target<'_, impl FnMut(&Copying) -> ControlFlow<()>>,
    ) -> Result<Lsn, CopyError> {
        // Pages made from now on are in the log; the copy's restart makes the space for them.
        let in_all = reader.pages();
        target.told.pages_in_all = in_all.into();
        let name = files::PAGES;
        let file = target.make(name)?;
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
            // It does not matter if no tree refers to it: a bulk load has it, or has left it.
            verify::walk(&self.engine, &self.catalog)?;
        }
        sync_file(&*file)?;
        Ok(end)
    }
}

/// A database id that follows from where the copy's history diverges from the original's: for simulated runs, which
/// must repeat themselves.
fn successor(control: &Control) -> u64 {
    let mixed = (control.database ^ control.checkpoint.0.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)) | 1
}

/// The directory of a copy that is being made. Its files are removed if the copy fails, or `hear` panics.
struct Target<'d, H> {
    directory: String,
    disk: &'d dyn Disk,
    /// Files made so far, of a copy that is not whole.
    made: Vec<String>,
    hear: H,
    told: Copying,
}

impl<H: FnMut(&Copying) -> ControlFlow<()>> Target<'_, H> {
    /// Marks the directory as an unfinished copy.
    fn begin(&mut self) -> Result<(), CopyError> {
        self.make(files::COPYING)?;
        self.sync_directory()?;
        self.tell()
    }

    /// Makes a file that must not exist.
    fn make(&mut self, name: &str) -> Result<Arc<dyn DiskFile>, StorageError> {
        let show = self.disk.show(name);
        let made = self.disk.open(name, OpenMode::CreateNew).map_err(|e| StorageError::io("create", show, 0, e))?;
        self.made.push(name.to_owned());
        Ok(made)
    }

    /// Copies the pages from `from` up to `to`.
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
            self.told.pages += u64::from(pages);
            self.told.pages_in_all = self.told.pages_in_all.max(self.told.pages);
            self.tell()?;
        }
        Ok(())
    }

    fn copy_log(&mut self, hold: &Hold<'_>, stretch: (Lsn, Lsn), database: u64) -> Result<(), CopyError> {
        let Target { directory, disk, made, hear, told } = self;
        let named = |name: &str| made.push(name.to_owned());
        hold.copy(stretch, *disk, database, named, |bytes| {
            told.log_bytes += bytes;
            match hear(told) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(CopyError::Cancelled { directory: directory.clone() }),
            }
        })
    }

    /// All files exist and are synced: makes a database of them.
    fn finish(&mut self, control: &Control) -> Result<(), CopyError> {
        self.sync_directory()?;
        let made = &mut self.made;
        ControlFile::create(self.disk, control, CONTROL_BYTES, &mut |name| made.push(name.to_owned()))?;
        self.disk
            .remove(files::COPYING)
            .map_err(|e| StorageError::io("remove", self.disk.show(files::COPYING), 0, e))?;
        self.sync_directory()
    }

    fn sync_directory(&self) -> Result<(), CopyError> {
        Ok(self.disk.sync_dir().map_err(|e| StorageError::io("sync", self.disk.show(""), 0, e))?)
    }

    fn tell(&mut self) -> Result<(), CopyError> {
        match (self.hear)(&self.told) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CopyError::Cancelled { directory: self.directory.clone() }),
        }
    }
}

impl<H> Drop for Target<'_, H> {
    /// Removes the files made so far. The mark goes last, so that a directory that cannot be emptied is refused when it
    /// is opened.
    fn drop(&mut self) {
        if self.made.is_empty() {
            return;
        }
        let mut left = false;
        for name in self.made.drain(..).rev() {
            // The file made first is the mark.
            if name == files::COPYING && left {
                continue;
            }
            let removed = self.disk.remove(&name);
            left |= removed.is_err_and(|e| e.kind() != std::io::ErrorKind::NotFound);
        }
        // The error that led here is the one to return.
        let _ = self.disk.sync_dir();
    }
}
