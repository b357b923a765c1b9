//! Slots of page copies in the control file. Copies of pages are written to a slot before the pages are written in
//! place, as in InnoDB's doublewrite buffer. (For the reuse of slots see `buffer::aside`.) If a crash tears a page in
//! place, its copy is whole.
//!
//! Therefore the log contains only changes, no copies of pages. The length of the log depends on the work of
//! transactions, not on the number of page writes, and a full disk or a full log never prevents a page write.
//!
//! Layout of a slot. The first slot begins at byte 8192 of the file; the file has as many slots as it has space for.
//!
//! | offset | size | meaning |
//! | --- | --- | --- |
//! | 0 | 8 | `LOCKSIDE` |
//! | 8 | 4 | number of pages in the slot |
//! | 12 | 4 | CRC-32C of the first 528 bytes with this field zero |
//! | 16 | 16 each | page number (4), page checksum (4), recovery LSN of the page (8) |
//! | 4096 | 8192 each | the pages, sealed |
//!
//! # Valid copies
//!
//! A slot keeps its copies after their pages have been synced, so a page may be newer than its copy. A copy repairs a
//! page only if its recovery LSN is not below the start of redo. Then redo repeats every change that the copy lacks:
//! the page became dirty at its recovery LSN, so the copy contains all earlier changes. Every necessary copy meets this
//! condition: its page has not been synced after the copy was written, so no checkpoint has moved the start of redo
//! past the recovery LSN. A copy whose checksum differs from the checksum in the slot's header belongs to a batch that
//! the crash interrupted before its pages were written in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::checksum::crc32c;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::buffer::file::{AsideCopy, MIN_SLOTS, SLOT_PAGES};
use crate::io::synced::SyncedFile;
use crate::io::{read_up_to_at, write_all_at};
use crate::page::header::{self, CRC, LSN};
use crate::recovery::control::ASIDE;

const MAGIC: &[u8; 8] = b"LOCKSIDE";
const ENTRY: usize = 16;
const HEADER: usize = 16 + ENTRY * SLOT_PAGES;
/// Offset of the page copies from the start of a slot, in bytes.
const PAGES_AT: u64 = 4096;
/// Size of a slot in bytes.
const SLOT: u64 = PAGES_AT + (SLOT_PAGES * PAGE_SIZE) as u64;
/// Number of pool frames for each slot. The resulting number of slots is limited by `MIN_SLOTS` and `MOST_SLOTS`.
const FRAMES_PER_SLOT: usize = 256;
const MOST_SLOTS: u64 = 256;

/// Size of a new control file in bytes.
pub(crate) const CONTROL_BYTES: u64 = ASIDE + MIN_SLOTS * SLOT;

/// The page copy slots of an open database.
#[derive(Debug)]
pub(crate) struct Aside {
    file: Arc<SyncedFile>,
    slots: u64,
}

/// Position of a page copy in the control file.
#[derive(Clone, Copy, Debug)]
struct CopyPlace {
    slot: u64,
    page: usize,
    crc: u32,
}

fn place(slot: u64) -> u64 {
    ASIDE + slot * SLOT
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

impl Aside {
    /// Opens the slots of the control file and extends the file for a pool of `frames` frames. If the disk has no space
    /// for all slots, fewer slots are used.
    ///
    /// # Errors
    /// An error if a system call fails.
    pub(crate) fn open(control: Arc<SyncedFile>, frames: usize) -> Result<Aside, StorageError> {
        let file = control.file();
        let fail = |op, e| StorageError::io(op, file.name(), 0, e);
        let wanted = ((frames / FRAMES_PER_SLOT) as u64).clamp(MIN_SLOTS, MOST_SLOTS);
        let len = file.len().map_err(|e| fail("measure", e))?;
        let bytes = ASIDE + wanted * SLOT;
        if len < bytes {
            match file.allocate(len, bytes - len).map_err(|e| fail("extend", e)) {
                Err(error) if !error.is_want_of_room() || len < CONTROL_BYTES => return Err(error),
                _ => {}
            }
        }
        let len = file.len().map_err(|e| fail("measure", e))?;
        Ok(Aside { file: control, slots: (len.saturating_sub(ASIDE) / SLOT).clamp(1, wanted) })
    }

    /// Returns the number of slots that batches may use.
    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    /// Writes copies of pages to a slot. The copies are not durable before `sync`.
    ///
    /// # Errors
    /// An error if a write fails.
    pub(crate) fn write(&self, slot: u64, copies: &[AsideCopy<'_>]) -> Result<(), StorageError> {
        let mut bytes = Vec::with_capacity(PAGES_AT as usize + copies.len() * PAGE_SIZE);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(copies.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for copy in copies {
            bytes.extend_from_slice(&copy.id.0.to_le_bytes());
            bytes.extend_from_slice(&word(copy.page, CRC).to_le_bytes());
            bytes.extend_from_slice(&copy.recovery.0.to_le_bytes());
        }
        bytes.resize(PAGES_AT as usize, 0);
        let crc = crc32c(&bytes[..HEADER]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        for copy in copies {
            bytes.extend_from_slice(copy.page);
        }
        write_all_at(self.file.file(), &bytes, place(slot))
    }

    /// Makes all page copies written so far durable.
    ///
    /// # Errors
    /// An error if a sync of the control file fails, now or earlier.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        self.file.sync()
    }

    /// Repairs pages after a crash, before any thread reads the pages. Repairs torn pages and pages that are newer than
    /// the log's end. Redo begins at `redo`, and the log ends at `end`.
    ///
    /// # Errors
    /// An error if a system call fails. The repair can be repeated.
    pub(crate) fn mend(&self, synced: &SyncedFile, redo: Lsn, end: Lsn) -> Result<(), StorageError> {
        let (data, mut mended) = (synced.file(), false);
        let len = data.len().map_err(|e| StorageError::io("measure", data.name(), 0, e))?;
        for (id, copies) in self.valid_copies(redo)? {
            if id.offset() + PAGE_SIZE as u64 > len {
                // The page lies beyond the end of the data file. Either the file was truncated after the copy was
                // written, or the file's growth never reached the disk. If the page is still in use, redo recreates it.
                continue;
            }
            let mut found = [0; PAGE_SIZE];
            let whole = read_up_to_at(data, &mut found, id.offset())? == PAGE_SIZE;
            if whole && header::damage(&found, id, true).is_none() && long(&found, LSN) < end.0 {
                continue;
            }
            let mut newest = None;
            for at in copies {
                let mut copy = [0; PAGE_SIZE];
                let from = place(at.slot) + PAGES_AT + (at.page * PAGE_SIZE) as u64;
                let whole = read_up_to_at(self.file.file(), &mut copy, from)? == PAGE_SIZE;
                let sound = whole && word(&copy, CRC) == at.crc && header::damage(&copy, id, true).is_none();
                let lsn = long(&copy, LSN);
                if sound && lsn < end.0 && newest.is_none_or(|(other, _)| other < lsn) {
                    newest = Some((lsn, copy));
                }
            }
            if let Some((_, copy)) = newest {
                write_all_at(data, &copy, id.offset())?;
                mended = true;
            }
        }
        // The repaired pages must be durable before the slots are reused.
        if mended { synced.sync() } else { Ok(()) }
    }

    /// Returns the positions of the copies that are valid if redo begins at `redo`, by page.
    fn valid_copies(&self, redo: Lsn) -> Result<BTreeMap<PageId, Vec<CopyPlace>>, StorageError> {
        let mut copies: BTreeMap<PageId, Vec<CopyPlace>> = BTreeMap::new();
        let file = self.file.file();
        let len = file.len().map_err(|e| StorageError::io("measure", file.name(), 0, e))?;
        for slot in 0..len.saturating_sub(ASIDE) / SLOT {
            let mut header = [0; HEADER];
            if read_up_to_at(file, &mut header, place(slot))? < HEADER || &header[..8] != MAGIC {
                continue;
            }
            let (count, crc) = (word(&header, 8) as usize, word(&header, 12));
            header[12..16].fill(0);
            if crc32c(&header) != crc || count > SLOT_PAGES {
                continue;
            }
            for page in 0..count {
                let at = 16 + ENTRY * page;
                let (id, crc, recovery) = (PageId(word(&header, at)), word(&header, at + 4), long(&header, at + 8));
                // Page 0 is the file's header.
                if id.0 > 0 && recovery >= redo.0 {
                    copies.entry(id).or_default().push(CopyPlace { slot, page, crc });
                }
            }
        }
        Ok(copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Crash, Disk, OpenMode, SimDisk};
    use crate::page::PageBytes;
    use crate::recovery::control::CONTROL;

    const PAGES: u32 = SLOT_PAGES as u32;

    fn page(id: u32, byte: u8, lsn: u64) -> Box<PageBytes> {
        let mut page = PageBytes::boxed();
        let bytes = page.as_bytes_mut();
        bytes[64..].fill(byte);
        bytes[4..8].copy_from_slice(&id.to_le_bytes());
        bytes[LSN..LSN + 8].copy_from_slice(&lsn.to_le_bytes());
        header::seal(bytes);
        page
    }

    fn disk(seed: u64) -> SimDisk {
        let disk = SimDisk::new(seed);
        for (name, len) in [(CONTROL, CONTROL_BYTES), ("data", 1 << 20)] {
            disk.open(name, OpenMode::Create).unwrap().allocate(0, len).unwrap();
        }
        disk.sync_dir().unwrap();
        disk
    }

    /// Writes pages filled with `byte`: first durable copies in the slot, then the pages in place.
    fn write(aside: &Aside, data: &SyncedFile, slot: u64, byte: u8, lsn: u64) -> Result<(), StorageError> {
        let pages: Vec<_> = (1..=PAGES).map(|id| (PageId(id), page(id, byte, lsn))).collect();
        let copies: Vec<_> =
            pages.iter().map(|(id, page)| AsideCopy { id: *id, recovery: Lsn(lsn), page: page.as_bytes() }).collect();
        aside.write(slot, &copies)?;
        aside.sync()?;
        pages.iter().try_for_each(|(id, page)| write_all_at(data.file(), page.as_bytes(), id.offset()))
    }

    fn file(disk: &SimDisk, name: &str) -> SyncedFile {
        SyncedFile::new(disk.open(name, OpenMode::Existing).unwrap())
    }

    fn slots(disk: &SimDisk, frames: usize) -> Aside {
        Aside::open(Arc::new(file(disk, CONTROL)), frames).unwrap()
    }

    fn content(data: &SyncedFile, id: u32) -> [u8; PAGE_SIZE] {
        let mut bytes = [0; PAGE_SIZE];
        read_up_to_at(data.file(), &mut bytes, PageId(id).offset()).unwrap();
        bytes
    }

    /// After a power loss at any moment, with any loss of unsynced data, each repaired page has the content of the last
    /// synced batch or of a later batch.
    #[test]
    fn a_page_that_is_torn_in_place_is_put_right() {
        let mut mended = 0;
        for seed in 0..400 {
            let disk = disk(seed);
            let (aside, data) = (slots(&disk, 0), file(&disk, "data"));
            write(&aside, &data, 0, 1, 10).unwrap();
            data.sync().unwrap();
            disk.power_off_after(seed % 150);
            // Write two batches without a sync of the data file, then sync, then write a batch that reuses a slot.
            let done = (1..=2).take_while(|n| write(&aside, &data, *n, 1 + *n as u8, 10 * n + 10).is_ok()).count();
            let synced = done == 2 && data.sync().is_ok();
            let again = synced && write(&aside, &data, 1, 4, 40).is_ok();
            let left = disk.crash(Crash::Random(seed));
            let data = file(&left, "data");
            let oldest = if synced { 3 } else { 1 };
            let is_one = |id: u32| {
                let bytes = content(&data, id);
                (oldest..=4).any(|byte| bytes == *page(id, byte, 10 * u64::from(byte)).as_bytes())
            };
            mended += (1..=PAGES).filter(|id| !is_one(*id)).count();
            let redo = Lsn(if synced { 31 } else { 11 });
            slots(&left, 0).mend(&data, redo, Lsn(100)).unwrap();
            assert!((1..=PAGES).all(is_one), "seed {seed}: {done} {synced} {again}");
        }
        assert!(mended > 50, "{mended} pages were torn");
    }

    /// A copy with a recovery LSN below the start of redo lacks changes that redo does not repeat.
    #[test]
    fn an_old_copy_repairs_nothing() {
        let disk = disk(1);
        let (aside, data) = (slots(&disk, 0), file(&disk, "data"));
        write(&aside, &data, 3, 1, 10).unwrap();
        let damaged = [9; PAGE_SIZE];
        let spoil = || write_all_at(data.file(), &damaged, PageId(5).offset()).unwrap();
        for (redo, end, repairs) in [(11, 100, false), (10, 10, false), (10, 100, true), (1, 11, true)] {
            spoil();
            aside.mend(&data, Lsn(redo), Lsn(end)).unwrap();
            let after = content(&data, 5);
            assert_eq!(after == *page(5, 1, 10).as_bytes(), repairs, "redo from {redo} to {end}");
            assert_eq!(after == damaged, !repairs);
        }
        // Simulates a copy of an interrupted batch: the slot's header is new, but the page in the slot is old.
        let newer = page(5, 2, 20);
        let other = page(6, 2, 20);
        let copy =
            |id: u32, page: &'static PageBytes| AsideCopy { id: PageId(id), recovery: Lsn(20), page: page.as_bytes() };
        aside.write(3, &[copy(6, Box::leak(other)), copy(5, Box::leak(newer))]).unwrap();
        write_all_at(aside.file.file(), page(5, 1, 10).as_bytes(), place(3) + PAGES_AT + PAGE_SIZE as u64).unwrap();
        spoil();
        aside.mend(&data, Lsn(10), Lsn(100)).unwrap();
        assert_eq!(content(&data, 5), damaged);
        // Copies of pages beyond the end of a truncated file do not extend the file.
        write(&aside, &data, 2, 7, 50).unwrap();
        data.file().set_len(5 * PAGE_SIZE as u64).unwrap();
        aside.mend(&data, Lsn(10), Lsn(100)).unwrap();
        assert_eq!(data.file().len().unwrap(), 5 * PAGE_SIZE as u64);
    }

    #[test]
    fn a_larger_pool_gets_more_slots_and_a_full_disk_the_least_number() {
        let disk = disk(1);
        let slots = |frames| slots(&disk, frames).slots();
        assert_eq!((slots(0), slots(10 * FRAMES_PER_SLOT), slots(128)), (MIN_SLOTS, 10, MIN_SLOTS));
        assert_eq!(slots(usize::MAX), MOST_SLOTS);
    }
}
