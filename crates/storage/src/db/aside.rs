//! Slots in the control file in which pages lie a second time while they are written in place (InnoDB's doublewrite
//! buffer; `buffer::aside` says when a slot is used again). If a crash tears a page in place, its copy is whole.
//!
//! The log thus holds nothing but changes: its length follows from the work of transactions, not from the pages that
//! are written, and a full disk or a full log keeps no page from being written.
//!
//! A slot, of which there are as many as the file has room for, from byte 8192 on:
//!
//! | offset | size | meaning |
//! | --- | --- | --- |
//! | 0 | 8 | `LOCKSIDE` |
//! | 8 | 4 | pages in the slot |
//! | 12 | 4 | CRC-32C of the first 528 bytes with this field zero |
//! | 16 | 16 each | number of the page (4), its checksum (4), its recovery LSN (8) |
//! | 4096 | 8192 each | the pages, sealed |
//!
//! # Which copies count
//!
//! A slot keeps its copies after their pages have been synced, so an old copy may be found beside a newer page. A copy
//! repairs a page only if its recovery LSN lies at or behind the begin of redo. Then every change that the copy lacks is in
//! the log that redo reads, because the page became dirty at that LSN and the copy has what was changed before. And every
//! copy that is needed is among these: its page has not been synced since, so no checkpoint has let redo begin later.
//! A copy whose checksum is not the noted one belongs to a batch that the crash interrupted before its pages were written
//! in place.

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
/// Where the pages of a slot begin.
const PAGES_AT: u64 = 4096;
/// Bytes of a slot.
const SLOT: u64 = PAGES_AT + (SLOT_PAGES * PAGE_SIZE) as u64;
/// Frames for each slot, if that gives more than the least number and at most this many.
const FRAMES_PER_SLOT: usize = 256;
const MOST_SLOTS: u64 = 256;

/// Bytes of a new control file.
pub(crate) const CONTROL_BYTES: u64 = ASIDE + MIN_SLOTS * SLOT;

/// The slots of an open database.
#[derive(Debug)]
pub(crate) struct Aside {
    file: Arc<SyncedFile>,
    slots: u64,
}

/// Where a copy lies.
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
    /// The slots of the control file, of which there will be as many as a pool of `frames` frames wants. Without space for
    /// them fewer do.
    ///
    /// # Errors
    /// When the system refuses.
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

    /// Slots that batches may use.
    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    /// Writes copies to a slot.
    ///
    /// # Errors
    /// A failed write.
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

    /// Makes all copies written so far durable.
    ///
    /// # Errors
    /// A failed sync of the control file, now or before.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        self.file.sync()
    }

    /// After a crash: repairs the pages that were torn in place, before any thread reads them, and pages of a future that
    /// was lost. Redo begins at `redo`, and the log ends at `end`.
    ///
    /// # Errors
    /// When the system refuses. It can be done again.
    pub(crate) fn mend(&self, synced: &SyncedFile, redo: Lsn, end: Lsn) -> Result<(), StorageError> {
        let (data, mut mended) = (synced.file(), false);
        let len = data.len().map_err(|e| StorageError::io("measure", data.name(), 0, e))?;
        for (id, copies) in self.noted(redo)? {
            if id.offset() + PAGE_SIZE as u64 > len {
                // The file was cut off since, or its length was never on the disk, and then nothing of the page was: redo
                // makes it anew if it is still in use.
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
        // Before the slots are used again.
        if mended { synced.sync() } else { Ok(()) }
    }

    /// The copies that count if redo begins at `redo`.
    fn noted(&self, redo: Lsn) -> Result<BTreeMap<PageId, Vec<CopyPlace>>, StorageError> {
        let mut noted: BTreeMap<PageId, Vec<CopyPlace>> = BTreeMap::new();
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
                    noted.entry(id).or_default().push(CopyPlace { slot, page, crc });
                }
            }
        }
        Ok(noted)
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

    /// Writes pages 1 to 32 with this content: aside, durably, and then in place.
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

    /// Whenever power is lost, and whatever unsynced data is lost with it, each page has one of its contents: of the last
    /// batch that was synced, or of a later one.
    #[test]
    fn a_page_that_is_torn_in_place_is_put_right() {
        let mut mended = 0;
        for seed in 0..400 {
            let disk = disk(seed);
            let (aside, data) = (slots(&disk, 0), file(&disk, "data"));
            write(&aside, &data, 0, 1, 10).unwrap();
            data.sync().unwrap();
            disk.power_off_after(seed % 150);
            // Two batches without a sync of the data file, a sync, and one that uses a slot again.
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

    /// A copy from before the begin of redo lacks changes that nothing repeats.
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
        // A copy of an interrupted batch: the slot's header is new, and the page behind it is not.
        let newer = page(5, 2, 20);
        let other = page(6, 2, 20);
        let copy =
            |id: u32, page: &'static PageBytes| AsideCopy { id: PageId(id), recovery: Lsn(20), page: page.as_bytes() };
        aside.write(3, &[copy(6, Box::leak(other)), copy(5, Box::leak(newer))]).unwrap();
        write_all_at(aside.file.file(), page(5, 1, 10).as_bytes(), place(3) + PAGES_AT + PAGE_SIZE as u64).unwrap();
        spoil();
        aside.mend(&data, Lsn(10), Lsn(100)).unwrap();
        assert_eq!(content(&data, 5), damaged);
        // Pages behind the end of a file that was cut off do not make it longer.
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
