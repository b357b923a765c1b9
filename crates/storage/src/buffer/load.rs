//! Loading a page into memory: the cold path of every access.
//!
//! A thread claims the page in the page table, with a frame that has no page and is in no queue. No other thread writes to
//! that frame, so the page is read without a latch, and the frame's latch is taken only to install the page. If
//! [readers](super::readers) serve the pool, they perform the reads that may have to wait for a device. They read the pages
//! of a group in parallel, and they perform every read that a fiber requests. The fiber blocks through the hook, so that
//! other fibers of its thread can run.

#![allow(unsafe_code)]

use crate::base::sync::plain::{AtomicU32, Ordering};
use std::sync::Arc;

use super::BufferPool;
use super::frame::Frame;
use super::page_table::{AbsentEntry, Residency};
use super::readers::ReadJob;
use super::replacement::Arrival;
use super::room::FreeFrame;
use super::stats::add;
use crate::base::error::StorageError;
use crate::base::hook::{BlockReason, Hook, WaitToken};
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::latches::assert_none_held;
use crate::base::sync::Mutex;
use crate::page::{PageRef, header, sound};

/// Completion state of the reads that one caller waits for, with the first error among these reads.
#[derive(Debug)]
pub(super) struct Ticket {
    token: WaitToken,
    /// Number of reads still in progress, plus one for the holder until it waits.
    left: AtomicU32,
    failure: Mutex<Option<StorageError>>,
}

/// Page and ticket of a caller that waits for the page.
pub(super) type Waiter = (PageId, Arc<Ticket>);

/// Selects the thread that performs a read which the operating system's page cache cannot serve.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadBy {
    /// The calling thread.
    Caller,
    /// A reader thread, which is started if necessary. If the pool has no readers, the calling thread.
    Reader,
}

impl Ticket {
    pub(super) fn new() -> Arc<Ticket> {
        Arc::new(Ticket { token: WaitToken::new(), left: AtomicU32::new(1), failure: Mutex::default() })
    }

    /// Records that one of the reads has ended.
    fn complete_one(&self, read: &Result<(), StorageError>, hook: &dyn Hook) {
        if let Err(error) = read {
            self.failure.lock().get_or_insert_with(|| error.clone());
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            hook.wake(&self.token);
        }
    }

    /// Waits until all reads have ended. Called once per ticket. The caller holds no latch.
    pub(super) fn wait(&self, hook: &dyn Hook) -> Result<(), StorageError> {
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            assert_none_held("a wait for a page");
            hook.block(&self.token, BlockReason::PageRead);
        }
        self.failure.lock().take().map_or(Ok(()), Err)
    }
}

impl BufferPool {
    /// Returns the page's frame and loads the page if necessary. The frame may receive another page at any time, so the
    /// caller begins to read and then compares [`Frame::page_id`], as with [`BufferPool::get`].
    ///
    /// # Errors
    /// As [`BufferPool::load`].
    #[inline]
    pub(crate) fn get_or_load(&self, id: PageId) -> Result<&Frame, StorageError> {
        loop {
            if let Some(frame) = self.get(id) {
                return Ok(frame);
            }
            self.load(id)?;
        }
    }

    /// Loads a page into memory, or waits until another thread has loaded it. After that the caller repeats
    /// [`BufferPool::get`]. The caller holds no latch: this function may evict, write, read and wait.
    ///
    /// # Errors
    /// [`StorageError::CorruptPage`] if the page does not exist or is damaged. [`StorageError::Io`] if it cannot be read.
    /// Errors of obtaining a free frame. All callers that wait for a read receive its error.
    #[cold]
    pub(crate) fn load(&self, id: PageId) -> Result<(), StorageError> {
        let ticket = Ticket::new();
        let by = if self.hook.is_cooperative() { ReadBy::Reader } else { ReadBy::Caller };
        self.begin_load(id, by, &ticket, &|hint| self.take_frame(hint).map(Some))?;
        ticket.wait(&*self.hook)
    }

    /// Loads pages in parallel and returns when all reads have ended. Pages beyond a small part of the pool are ignored, so
    /// that most frames remain for other callers, and so are pages that find no free frame without a wait. Returns false if
    /// no read was begun. Errors of single pages are not reported: a caller that needs such a page gets the error when it
    /// loads the page. The caller holds no latch.
    #[cold]
    pub(crate) fn load_group(&self, pages: &[PageId]) -> bool {
        let ticket = Ticket::new();
        let room = |hint| Ok(self.free_frame(hint).or_else(|| self.evict_one(hint, &mut false)));
        let pages = &pages[..pages.len().min(self.frame_count() / GROUP_PART)];
        // A thread without fibers would be idle during the reads. It reads the last page, and then the pages that no reader
        // has taken.
        let reads_too = !self.hook.is_cooperative();
        let mut begun = false;
        for (i, id) in pages.iter().enumerate() {
            let by = if reads_too && i + 1 == pages.len() { ReadBy::Caller } else { ReadBy::Reader };
            begun |= self.begin_load(*id, by, &ticket, &room).is_ok_and(|begun| begun);
        }
        while reads_too && self.step_reader() {}
        let _ = ticket.wait(&*self.hook);
        begun
    }

    /// Begins to load a page into a frame that `room` supplies. On return, either the page is in memory or the end of its
    /// read will complete the ticket. Returns false if `room` supplied no frame.
    pub(super) fn begin_load<'a>(
        &'a self,
        id: PageId,
        by: ReadBy,
        ticket: &Arc<Ticket>,
        room: &dyn Fn(usize) -> Result<Option<FreeFrame<'a>>, StorageError>,
    ) -> Result<bool, StorageError> {
        loop {
            match self.table.place(id) {
                Some(Residency::Frame(_)) => return Ok(true),
                Some(Residency::Loading(_)) => {
                    if self.join(id, ticket) {
                        return Ok(true);
                    }
                }
                Some(Residency::Absent(entry)) if self.exists(id) => {
                    // The frame is obtained first, because that may wait, and a thread that has claimed a page must not
                    // wait.
                    let Some(free) = room(self.home_or(|| self.shard_of_page(id)))? else { return Ok(false) };
                    if let Some(claim) = self.claim(id, entry, free) {
                        return self.read(claim, by, ticket).map(|()| true);
                    }
                }
                Some(Residency::Withheld(_)) => {
                    return Err(self.corrupt(id, "is referred to but belongs to no tree".into()));
                }
                _ => return Err(self.corrupt(id, "is referred to but does not exist".into())),
            }
        }
    }

    /// Reads a claimed page, or hands the read to a reader, which then completes the ticket.
    fn read(&self, mut claim: PageClaim<'_>, by: ReadBy, ticket: &Arc<Ticket>) -> Result<(), StorageError> {
        if matches!(by, ReadBy::Caller) || !self.reads_in_parallel() {
            return claim.read();
        }
        let at = claim.id.offset();
        match self.file.read_resident_at(claim.bytes(), at) {
            Ok(true) => claim.finish(Ok(())),
            Err(error) => claim.finish(Err(error)),
            Ok(false) if !self.readers.start() => claim.read(),
            Ok(false) => {
                ticket.left.fetch_add(1, Ordering::Relaxed);
                self.waiters_for(claim.id).lock().push((claim.id, Arc::clone(ticket)));
                add(&self.counters.handed_over, 1);
                match self.readers.submit(claim.into_job()) {
                    Ok(()) => Ok(()),
                    // The readers have just been closed, so this thread performs the read, which completes the ticket.
                    Err(job) => {
                        let _ = self.take_up(job).read();
                        Ok(())
                    }
                }
            }
        }
    }

    /// Returns true if the page is within the data file and below the end of the pages in use.
    pub(super) fn exists(&self, id: PageId) -> bool {
        let end = self.file_pages.load(Ordering::Acquire).min(self.pages_end.load(Ordering::Acquire));
        !id.is_none() && id.0 < end
    }

    /// Returns the error for a damaged page.
    pub(super) fn corrupt(&self, id: PageId, what: String) -> StorageError {
        StorageError::CorruptPage { file: self.file.show(), page: id, what }
    }

    /// Sets the end of the log for the duration of redo. A page with an LSN at or beyond `end` counts as damaged, even after
    /// restart has appended records beyond `end`: these records do not prove the page's changes. `Lsn::MAX` removes the
    /// limit.
    pub(crate) fn redo_until(&self, end: Lsn) {
        self.log_left.store(end.0, Ordering::Relaxed);
    }

    /// Returns the defect of a page with a correct checksum: unsound content, or an LSN beyond the end of the log.
    fn unsound(&self, bytes: &[u8; PAGE_SIZE], id: PageId) -> Option<String> {
        let (lsn, end) =
            (PageRef::of_bytes(bytes).lsn(), self.wal.end().min(Lsn(self.log_left.load(Ordering::Relaxed))));
        if lsn >= end && lsn != Lsn::ZERO {
            return Some(format!("its LSN is {lsn}, yet the log ends at {end}"));
        }
        sound::find_defect(bytes, id).map(|flaw| flaw.to_string())
    }

    /// Claims an absent page for a read into a frame. Returns `None` if the page's entry is no longer `entry`.
    pub(super) fn claim<'a>(&'a self, id: PageId, entry: AbsentEntry, free: FreeFrame<'a>) -> Option<PageClaim<'a>> {
        self.table.claim(id, entry, free.index()).then(|| PageClaim { pool: self, id, entry, free: Some(free) })
    }

    /// Restores a page claim from the job into which it was converted.
    pub(super) fn take_up(&self, job: ReadJob) -> PageClaim<'_> {
        PageClaim { pool: self, id: job.id, entry: job.entry, free: Some(self.adopt(job.frame)) }
    }

    /// Registers the ticket with the read of a page that is in progress, which then completes this ticket too. Returns false
    /// if the read has ended.
    #[cold]
    fn join(&self, id: PageId, ticket: &Arc<Ticket>) -> bool {
        let mut waiters = self.waiters_for(id).lock();
        // The reading thread ends its claim before it takes this lock. So either that thread finds the ticket, or this
        // thread finds that the claim has ended.
        if !matches!(self.table.place(id), Some(Residency::Loading(_))) {
            return false;
        }
        ticket.left.fetch_add(1, Ordering::Relaxed);
        waiters.push((id, Arc::clone(ticket)));
        add(&self.counters.load_waits, 1);
        true
    }

    /// Completes the tickets of all callers that wait for the page, with the result of the page's read.
    fn complete_waiters(&self, id: PageId, read: &Result<(), StorageError>) {
        let waiters: Vec<Waiter> = self.waiters_for(id).lock().extract_if(.., |(page, _)| *page == id).collect();
        waiters.iter().for_each(|(_, ticket)| ticket.complete_one(read, &*self.hook));
    }
}

/// Divisor of the pool size: a group of pages takes at most a 64th of the pool's frames.
const GROUP_PART: usize = 64;

/// Exclusive right to read a page into a frame. On every path, all callers that wait for the page receive the result of the
/// read.
#[derive(Debug)]
pub(super) struct PageClaim<'a> {
    pool: &'a BufferPool,
    id: PageId,
    entry: AbsentEntry,
    /// Frame for the page. `None` after the claim has ended.
    free: Option<FreeFrame<'a>>,
}

impl PageClaim<'_> {
    pub(super) fn id(&self) -> PageId {
        self.id
    }

    /// Returns the bytes of the frame, to be filled by the read.
    pub(super) fn bytes(&mut self) -> &mut [u8; PAGE_SIZE] {
        let free = self.free.as_ref().expect("a claim that has not ended has a frame");
        // SAFETY: a `FreeFrame` is a frame without a page that is in no queue, and only one `FreeFrame` exists for it. `&mut
        // self` prevents a second borrow of the bytes.
        unsafe { free.frame().unowned_bytes() }
    }

    /// Reads the page from the file. Returns the result, which all waiting callers receive too.
    pub(super) fn read(mut self) -> Result<(), StorageError> {
        let (pool, at) = (self.pool, self.id.offset());
        let read = pool.file.read_exact_at(self.bytes(), at);
        self.finish(read)
    }

    /// Checks the bytes that were read and installs the page. Returns the result, which all waiting callers receive too.
    pub(super) fn finish(mut self, read: Result<(), StorageError>) -> Result<(), StorageError> {
        let (pool, id) = (self.pool, self.id);
        let read = read.and_then(|()| {
            let bytes = &*self.bytes();
            let unsound = || if pool.options.sound { pool.unsound(bytes, id) } else { None };
            match header::damage(bytes, id, pool.options.checksums).or_else(unsound) {
                None => Ok(()),
                Some(what) => Err(pool.corrupt(id, what)),
            }
        });
        if read.is_ok() {
            add(&pool.counters.reads, 1);
        }
        let now = pool.counters.evictions.load(Ordering::Relaxed) as u32;
        self.end(read, Arrival::Read { absence: self.entry.age(now) })
    }

    /// Installs a page that was read together with its neighbours, unless the page is damaged or was never written. Returns
    /// true if the page was installed. Damage is not reported: a caller that needs the page reads it again and gets the
    /// error.
    pub(super) fn install_preloaded(mut self, content: Option<&[u8; PAGE_SIZE]>) -> bool {
        let (pool, id) = (self.pool, self.id);
        let sound = content.filter(|content| header::damage(content, id, pool.options.checksums).is_none());
        match sound {
            Some(content) => {
                self.bytes().copy_from_slice(content);
                add(&pool.counters.reads, 1);
                self.end(Ok(()), Arrival::Preloaded).is_ok()
            }
            None => {
                let _ = self.abandon(&Ok(()));
                false
            }
        }
    }

    /// Ends the claim. Installs the page, unless it could not be read or was created again since the claim.
    fn end(&mut self, read: Result<(), StorageError>, how: Arrival) -> Result<(), StorageError> {
        let (pool, id) = (self.pool, self.id);
        if let Err(error) = read {
            return self.abandon(&Err(error));
        }
        if let Some(free) = self.free.take() {
            // Only threads that found this frame while it held another page can be waiting for this latch.
            let write = free.frame().write(&pool.latching);
            if pool.table.publish(id, free.index()) {
                let frame = free.frame();
                frame.set_page_id(id);
                frame.recovery_lsn.store(0, Ordering::Relaxed);
                frame.set_read(pool.options.sound && !matches!(how, Arrival::Preloaded));
                free.enter(how);
                pool.note_ghosts_of(&write);
            }
            drop(write);
        }
        pool.complete_waiters(id, &Ok(()));
        Ok(())
    }

    /// Ends the claim without a page. Returns no error if the page was created again since the claim.
    fn abandon(&mut self, read: &Result<(), StorageError>) -> Result<(), StorageError> {
        let Some(free) = self.free.take() else { return Ok(()) };
        let given_up = self.pool.table.give_up(self.id, self.entry, free.index());
        drop(free);
        let read = if given_up { read } else { &Ok(()) };
        self.pool.complete_waiters(self.id, read);
        read.clone()
    }

    /// Converts the claim into a job for the readers' queue. The job then has to end the claim.
    fn into_job(mut self) -> ReadJob {
        let free = self.free.take().expect("a claim that has not ended has a frame");
        let job = ReadJob { id: self.id, entry: self.entry, frame: free.index() };
        std::mem::forget(free);
        job
    }
}

impl Drop for PageClaim<'_> {
    /// Ends an unfinished claim with an error if the disk's code panicked, so that no caller waits for the page forever.
    fn drop(&mut self) {
        if self.free.is_some() {
            let panicked = std::io::Error::other("the disk's code panicked");
            let error = StorageError::io("read", self.pool.file.show(), self.id.offset(), panicked);
            let _ = self.abandon(&Err(error));
        }
    }
}
