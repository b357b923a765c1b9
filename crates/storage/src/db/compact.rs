//! Compacting the data file: pages move from its end to free places, and the rest goes back to the system.
//!
//! 1. Remove what no transaction needs: a sweep through all trees, and the purge service's steps until it has nothing to
//!    do. This makes pages free.
//! 2. Move pages, the last one first, each by one change of structure (`btree/compact.rs`). The allocator's end falls
//!    with each of them.
//! 3. Forget what frames hold of the pages beyond the end, write everything out and take a checkpoint, until restart
//!    begins behind the last record about any of them.
//! 4. Cut the file.
//!
//! Transactions go on meanwhile: a table is shared for as long as some pages of it move, as a reader shares it. A crash
//! finds a whole database at every moment: before step 4 the file is only longer than it needs to be.

use std::time::Duration;

use super::database::Database;
use crate::base::error::{StorageError, TxnError};
use crate::base::hook::{BlockReason, WaitToken};
use crate::base::ids::PAGE_SIZE;
use crate::btree::compact::{CompactStep, Compactor};
use crate::btree::space;
use crate::table::index::{Index, Want};
use crate::txn::active::Own;
use crate::txn::transaction::Txn;

/// Pages that move before a table is given free for those who want it as a whole.
const PIECE: usize = 64;
/// Attempts at one page before the work ends: other threads change the end of the file faster than it gets shorter.
const TRIES: usize = 10_000;
/// Checkpoints that may be needed until restart begins behind the last record about the pages that go.
const CHECKPOINTS: usize = 100;

/// The result of compacting. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Size of the data file before.
    pub before: u64,
    /// Size of the data file after.
    pub after: u64,
    /// Number of pages moved.
    pub moved: u64,
}

impl Database {
    /// Moves pages from the data file's end to free places before it, and gives the rest of the file back to the system.
    ///
    /// Free pages are used again without this; it is for a database that stays smaller than it was. Transactions go on
    /// meanwhile; one that locks a table as a whole is waited for, and waits while up to 64 pages of the table move. It
    /// reads all pages once, to remove deleted rows first, and logs each page that it moves. A crash, or an error, leaves a
    /// whole database whose file is longer than it needs to be; call it again.
    ///
    /// The first page of a table or index does not move. One that lies at the end, because it was created when the file
    /// was large, keeps the file as long as that; the pages before it are free.
    ///
    /// It waits for copies of the database that are under way, and must not be called by a thread that has a transaction
    /// with a lock on a whole table.
    ///
    /// # Errors
    /// Those of waiting for a table's lock, of reading pages and writing the log.
    pub fn compact(&self) -> Result<Compacted, TxnError> {
        let mut turn = self.compacting.take(&*self.engine.hook);
        let bytes = || u64::from(self.engine.pool.file_pages()) * PAGE_SIZE as u64;
        let mut compacted = Compacted { before: bytes(), ..Compacted::default() };
        if turn.state().is_some() {
            self.duties.purge_thoroughly()?;
            compacted.moved = self.move_pages()?;
            self.cut_file()?;
        }
        compacted.after = bytes();
        Ok(compacted)
    }

    /// Step 2; returns how many pages have moved.
    fn move_pages(&self) -> Result<u64, TxnError> {
        let mut compactor = Compactor::new();
        let (mut moved, mut tries) = (0, 0);
        'pieces: loop {
            self.engine.poison.check()?;
            let Some(mut txn) = self.engine.begin_alone(Own::Compact)? else { return Ok(moved) };
            let mut shared: Option<Index> = None;
            for _ in 0..PIECE {
                let step = self.one_page(&mut compactor, &mut txn, &mut shared)?;
                match step {
                    PageStep::Moved => (moved, tries) = (moved + 1, 0),
                    PageStep::Freed => tries = 0,
                    PageStep::OtherTable => continue 'pieces,
                    PageStep::Again if tries < TRIES => {
                        tries += 1;
                        drop(txn);
                        self.pause(Duration::from_micros(50));
                        continue 'pieces;
                    }
                    PageStep::Again | PageStep::End => return Ok(moved),
                }
            }
        }
    }

    /// Takes the last page out of use.
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
            // It is being built or dropped, or nothing refers to it.
            let Some(index) = self.catalog.index(&self.engine, number) else { return Ok(PageStep::End) };
            match txn.intend(&index, Want::Read) {
                // Only now can it be neither dropped nor given to another table.
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

/// What became of the last page.
enum PageStep {
    Moved,
    /// It was free.
    Freed,
    /// It belongs to another table than the one that is shared.
    OtherTable,
    Again,
    End,
}

impl Database {
    /// Steps 3 and 4.
    fn cut_file(&self) -> Result<(), TxnError> {
        let engine = &self.engine;
        for _ in 0..CHECKPOINTS {
            self.forget_unused()?;
            let after = engine.log.tail();
            engine.pool.flush_all()?;
            self.duties.checkpointer.take(engine)?;
            if self.duties.checkpointer.redo() >= after {
                return self.cut();
            }
        }
        // Pages change faster than they can be written: the file stays as long as it is.
        Ok(())
    }

    /// Cuts the file once no copy of the database is being made, which reads it to its end.
    fn cut(&self) -> Result<(), TxnError> {
        loop {
            self.engine.poison.check()?;
            self.forget_unused()?;
            if space::cut_file(&self.engine.pool)? {
                return Ok(());
            }
            self.pause(Duration::from_millis(5));
        }
    }

    /// Takes the pages beyond the allocator's end out of the pool: they must not be written any more.
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
