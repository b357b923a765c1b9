//! Writing pages when the log has no room for their images: first aside, into a place of fixed size in the control
//! file, then in place (the double-write buffer of InnoDB). If a crash tears a page in place, its copy aside is whole.
//!
//! On a full disk the log takes no images, and without images no page may be written in place; without written pages
//! no checkpoint lets the log be cut off, and a restart in a pool that is too small cannot go on. This way is slow
//! (three syncs for each few pages) and needs no room at all.
//!
//! | offset | size | meaning |
//! | --- | --- | --- |
//! | 8192 | 8 | `LOCKSIDE` |
//! | 8200 | 4 | pages that are being written; 0 for none |
//! | 8204 | 4 | CRC-32C of the header with this field zero |
//! | 8208 | 4 each | their numbers |
//! | 12288 | 8192 each | the pages, sealed |

use std::sync::Arc;

use crate::base::checksum::crc32c;
use crate::base::error::StorageError;
use crate::base::ids::{PAGE_SIZE, PageId};
use crate::base::sync::Mutex;
use crate::buffer::ahead::DurablePages;
use crate::io::{Disk, DiskFile, OpenMode, read_up_to_at, sync_file, write_all_at};
use crate::page::header;
use crate::recovery::control::{ASIDE, ASIDE_PAGES, CONTROL};

const MAGIC: &[u8; 8] = b"LOCKSIDE";
const HEADER: usize = 16 + 4 * ASIDE_PAGES;
/// Where the pages begin.
const PAGES_AT: u64 = ASIDE + 4096;

/// The place beside the control file's copies.
#[derive(Debug)]
pub(crate) struct Aside {
    file: Arc<dyn DiskFile>,
    /// Held while pages are in it. A thread that holds it waits only for the disk.
    in_use: Mutex<()>,
}

fn place(page: usize) -> u64 {
    PAGES_AT + (page * PAGE_SIZE) as u64
}

impl Aside {
    /// Opens the place that the control file reserves.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn open(disk: &dyn Disk) -> Result<Aside, StorageError> {
        let file =
            disk.open(CONTROL, OpenMode::Existing).map_err(|e| StorageError::io("open", disk.show(CONTROL), 0, e))?;
        Ok(Aside { file, in_use: Mutex::new(()) })
    }

    /// Writes single pages to `data`, which has room for them. When it returns they are on the disk.
    ///
    /// # Errors
    /// A failed write or sync: the content of the disk is unknown.
    pub(crate) fn write(&self, data: &dyn DiskFile, pages: &[DurablePages<'_>]) -> Result<(), StorageError> {
        let _in_use = self.in_use.lock();
        for some in pages.chunks(ASIDE_PAGES) {
            for (i, page) in some.iter().enumerate() {
                write_all_at(&*self.file, page.bytes(), place(i))?;
            }
            self.note(some.iter().map(DurablePages::first))?;
            for page in some {
                write_all_at(data, page.bytes(), page.first().offset())?;
            }
            sync_file(data)?;
            // If they stayed, a restart would take them for newer than pages that are torn later.
            self.note(std::iter::empty())?;
        }
        Ok(())
    }

    /// Notes durably which pages are being written.
    fn note(&self, ids: impl Iterator<Item = PageId>) -> Result<(), StorageError> {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        let mut count = 0u32;
        for (id, at) in ids.zip((16..).step_by(4)) {
            header[at..at + 4].copy_from_slice(&id.0.to_le_bytes());
            count += 1;
        }
        header[8..12].copy_from_slice(&count.to_le_bytes());
        let crc = crc32c(&header);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        write_all_at(&*self.file, &header, ASIDE)?;
        sync_file(&*self.file)
    }

    /// After a crash: repairs the pages that were torn while they were written from here, before any thread reads them.
    ///
    /// # Errors
    /// When the system refuses. It can be done again.
    pub(crate) fn mend(&self, data: &dyn DiskFile) -> Result<(), StorageError> {
        let ids = self.noted()?;
        if ids.is_empty() {
            return Ok(());
        }
        let (mut copy, mut found) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
        for (i, id) in ids.into_iter().enumerate() {
            let whole = read_up_to_at(&*self.file, &mut copy, place(i))? == PAGE_SIZE;
            // A page that is not whole here was not yet written in place.
            if !whole || header::damage(&copy, id, true).is_some() {
                continue;
            }
            let whole = read_up_to_at(data, &mut found, id.offset())? == PAGE_SIZE;
            if !whole || header::damage(&found, id, true).is_some() {
                write_all_at(data, &copy, id.offset())?;
            }
        }
        sync_file(data)?;
        self.note(std::iter::empty())
    }

    /// The pages that were being written when the header was last written whole.
    fn noted(&self) -> Result<Vec<PageId>, StorageError> {
        let mut header = [0; HEADER];
        if read_up_to_at(&*self.file, &mut header, ASIDE)? < HEADER || &header[..8] != MAGIC {
            return Ok(Vec::new());
        }
        let word = |bytes: &[u8; HEADER], at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let (count, crc) = (word(&header, 8) as usize, word(&header, 12));
        header[12..16].fill(0);
        let ids = (0..count.min(ASIDE_PAGES)).map(|i| PageId(word(&header, 16 + 4 * i)));
        Ok(if crc32c(&header) == crc { ids.filter(|id| id.0 > 0).collect() } else { Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Crash, SimDisk};
    use crate::page::PageBytes;

    fn page(id: u32, byte: u8) -> Box<PageBytes> {
        let mut page = PageBytes::boxed();
        let bytes = page.as_bytes_mut();
        bytes[64..].fill(byte);
        bytes[4..8].copy_from_slice(&id.to_le_bytes());
        header::seal(bytes);
        page
    }

    /// Whenever power is lost, and whatever unsynced data is lost with it, each page has its old or its new content.
    #[test]
    fn a_page_that_is_torn_in_place_is_put_right() {
        let ids: Vec<u32> = (1..=ASIDE_PAGES as u32 + 5).collect();
        let mut mended = 0;
        for seed in 0..400 {
            let disk = SimDisk::new(seed);
            for (name, len) in [(CONTROL, crate::recovery::control::CONTROL_BYTES), ("data", 1 << 20)] {
                disk.open(name, OpenMode::Create).unwrap().allocate(0, len).unwrap();
            }
            let (aside, data) = (Aside::open(&disk).unwrap(), disk.open("data", OpenMode::Existing).unwrap());
            let write = |byte| {
                let pages: Vec<_> = ids.iter().map(|id| (PageId(*id), page(*id, byte))).collect();
                let pages: Vec<_> =
                    pages.iter().map(|(id, page)| DurablePages::unchecked(*id, page.as_bytes())).collect();
                aside.write(&*data, &pages)
            };
            disk.sync_dir().unwrap();
            write(1).unwrap();
            disk.power_off_after(seed % 100);
            let done = write(2).is_ok();
            let left = disk.crash(Crash::Random(seed));
            let data = left.open("data", OpenMode::Existing).unwrap();
            let torn = |data: &dyn DiskFile| {
                ids.iter()
                    .filter(|id| {
                        let mut bytes = [0; PAGE_SIZE];
                        read_up_to_at(data, &mut bytes, PageId(**id).offset()).unwrap();
                        let old = bytes == *page(**id, 1).as_bytes() && !done;
                        !old && bytes != *page(**id, 2).as_bytes()
                    })
                    .count()
            };
            mended += torn(&*data);
            Aside::open(&left).unwrap().mend(&*data).unwrap();
            assert_eq!(torn(&*data), 0, "seed {seed}");
            assert!(Aside::open(&left).unwrap().noted().unwrap().is_empty(), "seed {seed}");
        }
        assert!(mended > 50, "{mended} pages were torn");
    }
}
