//! Compaction of the data file: pages move from the end of the file to free pages, and the file is truncated.
//!
//! 1. Remove ghost records that no transaction needs: a sweep through all trees, and steps of the purge service until
//!    no step has work. Both free pages.
//! 2. Move pages, beginning with the last page of the file, each by one structure change (`btree/compact.rs`). Each
//!    move lowers the allocator's end. Repeat both steps until they free nothing.
//! 3. Discard frames of pages beyond the end, write all dirty pages and take a checkpoint; repeat until the start of
//!    redo lies after the last log record that lowered the end. No later record is about a page beyond the end.
//! 4. Truncate the file.
//!
//! Transactions continue during compaction. While pages of a table move, compaction holds the table's IS lock, as a
//! reader does. The database is consistent after a crash at any moment: before step 4 the file is only longer than
//! necessary.

use std::time::Duration;

use super::database::Database;
use crate::base::error::{StorageError, TxnError};
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::ids::{Lsn, PAGE_SIZE};
use crate::btree::compact::{CompactStep, Compactor};
use crate::btree::space::{self, Truncation};
use crate::table::index::{AccessMode, Index};
use crate::txn::active::SystemPurpose;
use crate::txn::transaction::Txn;

/// Number of pages that move before the lock on their table is released, for transactions that wait for a lock on the
/// whole table.
const PIECE: usize = 64;
/// Maximum number of attempts to move one page. If all fail, other threads change the end of the file too fast.
const TRIES: usize = 10_000;
/// Maximum number of repetitions of steps 1 and 2.
const PASSES: usize = 16;
/// Number of pages that a repetition may move or free without being compared with the one before.
const FEW: u64 = 8;
/// Maximum number of checkpoints in step 3.
const CHECKPOINTS: usize = 100;

/// The result of a compaction. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Size of the data file before the compaction.
    pub before: u64,
    /// Size of the data file after the compaction.
    pub after: u64,
    /// Number of pages moved.
    pub moved: u64,
}

impl Database {
    /// Moves pages from the end of the data file to free pages before it, and truncates the file.
    ///
    /// Free pages are reused without this call. Use the call for a database that has become smaller permanently.
    /// Transactions continue during the call. The call waits for a transaction that has locked a whole table, and such
    /// a transaction waits while up to 64 pages of the table move. The call first reads all pages once, to remove
    /// deleted rows, and it logs each page that it moves. A crash or an error leaves a consistent database whose file
    /// is longer than necessary; repeat the call.
    ///
    /// The first page of a table or index does not move. A first page near the end, created when the file was large,
    /// keeps the file at that length; the pages before it are free.
    ///
    /// The call waits for running copies of the database. A thread must not call it while it has a transaction with a
    /// lock on a whole table.
    ///
    /// # Errors
    /// Errors of waiting for a table's lock, of reading pages and of writing the log.
    pub fn compact(&self) -> Result<Compacted, TxnError> {
        let mut turn = self.compacting.take(&*self.engine.hook);
        let bytes = || u64::from(self.engine.pool.file_pages()) * PAGE_SIZE as u64;
        let mut compacted = Compacted { before: bytes(), ..Compacted::default() };
        if turn.state().is_some() {
            // A merge can make two pages small enough for a merge that were too full before. Such merges become fewer from
            // pass to pass. If they do not, other threads delete rows all the time, and there is always more to free.
            let mut before = u64::MAX;
            for _ in 0..PASSES {
                self.background.purge_all()?;
                let (moved, freed) = self.move_pages()?;
                compacted.moved += moved;
                let pages = moved + freed;
                if pages == 0 || (pages > FEW && pages > before / 2) {
                    break;
                }
                before = pages;
            }
            self.cut_file()?;
        }
        compacted.after = bytes();
        Ok(compacted)
    }

    /// Step 2: moves pages. Returns the number of pages that were moved, and of those at the end that were free.
    fn move_pages(&self) -> Result<(u64, u64), TxnError> {
        let mut compactor = Compactor::new();
        let (mut moved, mut freed, mut tries) = (0, 0, 0);
        'pieces: loop {
            self.engine.poison.check()?;
            let Some(mut txn) = self.engine.begin_alone(SystemPurpose::Compact)? else { return Ok((moved, freed)) };
            let mut shared: Option<Index> = None;
            for _ in 0..PIECE {
                let step = self.one_page(&mut compactor, &mut txn, &mut shared)?;
                match step {
                    PageStep::Moved => (moved, tries) = (moved + 1, 0),
                    PageStep::Freed => (freed, tries) = (freed + 1, 0),
                    PageStep::OtherTable => continue 'pieces,
                    PageStep::Again if tries < TRIES => {
                        tries += 1;
                        drop(txn);
                        self.pause(Duration::from_micros(50));
                        continue 'pieces;
                    }
                    PageStep::Again | PageStep::End => return Ok((moved, freed)),
                }
            }
        }
    }

    /// Tries to free or move the last page of the file.
    fn one_page(
        &self,
        compactor: &mut Compactor,
        txn: &mut Txn<'_>,
        shared: &mut Option<Index>,
    ) -> Result<PageStep, TxnError> {
        let change = self.engine.structure_change(txn.slot.peek().id);
        let number = match compactor.step(change, &mut txn.slot.state().rec)? {
            CompactStep::Shorter => return Ok(PageStep::Freed),
            CompactStep::Again => return Ok(PageStep::Again),
            CompactStep::Dense | CompactStep::Stays => return Ok(PageStep::End),
            CompactStep::OfTree(number) => number,
        };
        if shared.as_ref().is_none_or(|shared| shared.id() != number) {
            if shared.is_some() {
                return Ok(PageStep::OtherTable);
            }
            // The tree of the page is being built or dropped, or no table refers to the page.
            let Some(index) = self.catalog.index(&self.engine, number) else { return Ok(PageStep::End) };
            match txn.intend(&index, AccessMode::Read) {
                // Checked under the lock: while the lock is held, the tree is not dropped and the table's number is not
                // reused.
                Ok(()) if self.catalog.tree(&self.engine, number) == Some((index.tree(), index.lock_table)) => {}
                Ok(()) | Err(TxnError::Dropped { .. }) => return Ok(PageStep::Again),
                Err(error) => return Err(error),
            }
            *shared = Some(index);
        }
        let Some(index) = shared else { return Ok(PageStep::Again) };
        Ok(match compactor.move_last(change, &mut txn.slot.state().rec, index.tree())? {
            CompactStep::Shorter => PageStep::Moved,
            CompactStep::Again | CompactStep::OfTree(_) => PageStep::Again,
            CompactStep::Dense | CompactStep::Stays => PageStep::End,
        })
    }
}

/// Result of an attempt to free or move the last page.
enum PageStep {
    Moved,
    /// The page was free.
    Freed,
    /// The page belongs to another table than the locked one.
    OtherTable,
    Again,
    End,
}

impl Database {
    /// Steps 3 and 4: writes all pages, takes checkpoints, and truncates the file.
    fn cut_file(&self) -> Result<(), TxnError> {
        let engine = &self.engine;
        for _ in 0..CHECKPOINTS {
            self.forget_unused()?;
            engine.pool.flush_all()?;
            self.background.checkpointer.take(engine)?;
            let redo = self.background.checkpointer.redo();
            // Earlier records may be about pages that were beyond the end at the open.
            if redo >= engine.log.opened_at() && self.cut(redo)? {
                return Ok(());
            }
        }
        // In none of the rounds could the file be cut: bulk loads ended meanwhile, or a changed page was not written. The file
        // keeps its length.
        Ok(())
    }

    /// Truncates the file as soon as no copy of the database is running, because a copy reads the file to its end. Returns
    /// false if a restart, whose redo begins at `redo`, would read records about pages beyond the end.
    fn cut(&self, redo: Lsn) -> Result<bool, TxnError> {
        loop {
            self.engine.poison.check()?;
            self.forget_unused()?;
            match space::truncate_file(&self.engine.pool, redo)? {
                Truncation::Done => return Ok(true),
                Truncation::NeedsCheckpoint => return Ok(false),
                Truncation::InUse => self.pause(Duration::from_millis(5)),
            }
        }
    }

    /// Discards the frames of pages beyond the allocator's end, which must not be written any more.
    fn forget_unused(&self) -> Result<(), StorageError> {
        while !space::forget_unused(&self.engine.pool)? {
            self.engine.poison.check()?;
            self.pause(Duration::from_micros(200));
        }
        Ok(())
    }

    fn pause(&self, time: Duration) {
        self.engine.hook.block_for(&WaitToken::new(), BlockReason::Room, time);
    }
}
