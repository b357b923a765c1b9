//! The files of a database: making new ones, and what the pool sees of them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::base::checksum::crc32c;
use crate::base::error::{OpenError, StorageError};
use crate::base::hook::Hook;
use crate::base::ids::{Lsn, PageId, SlotId, TxnId};
use crate::base::sync::Mutex;
use crate::btree::ops;
use crate::btree::space::SPACE_PAGE;
use crate::buffer::file::{PageFile, PageImage, WriteAhead};
use crate::io::{Disk, DiskFile, OpenMode, read_exact_at, sync_file, write_all_at};
use crate::log::{FIRST_LSN, Log, RecordBuf, RecordKind};
use crate::page::header::{self, Kind, seal};
use crate::page::slotted::Format;
use crate::page::{PageBytes, PageMut, PageRef};
use crate::recovery::control::{CONTROL, Control, ControlFile, FORMAT, NEW_CONTROL};
use crate::table::catalog::CATALOG;

/// The data file.
pub(crate) const PAGES: &str = "pages.0";
const MAGIC: &[u8; 8] = b"LOCKPAGE";

/// Page 0 of the data file: whose it is.
fn file_header(database: u64) -> Box<PageBytes> {
    let mut page = PageBytes::boxed();
    let bytes = page.as_bytes_mut();
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[16..24].copy_from_slice(&database.to_le_bytes());
    let crc = crc32c(&bytes[..24]);
    bytes[24..28].copy_from_slice(&crc.to_le_bytes());
    page
}

/// What is in a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A database, or what is left of one.
    Database,
    /// Nothing of ours, and nothing else.
    Nothing,
}

/// Looks at a directory.
///
/// # Errors
/// `NotADatabase` if there are files that are not ours.
pub(crate) fn look(disk: &dyn Disk) -> Result<Found, OpenError> {
    let names = disk.list().map_err(|e| StorageError::io("list", disk.show(""), 0, e))?;
    if names.iter().any(|n| n == CONTROL) {
        return Ok(Found::Database);
    }
    let ours = |n: &String| n == "lock" || n == NEW_CONTROL || n.starts_with("pages.") || n.starts_with("log.");
    match names.iter().find(|n| !ours(n)) {
        Some(other) => Err(OpenError::NotADatabase { directory: directory(disk), why: format!("it holds '{other}'") }),
        // Left over from a creation that was broken off, unless there is more than a creation writes.
        None if names.iter().any(|n| n == PAGES) && holds_data(disk)? => {
            let what = format!("is missing, but {PAGES} holds data; restore a copy, or remove the files to begin anew");
            Err(StorageError::CorruptFile { file: disk.show(CONTROL), what }.into())
        }
        None => Ok(Found::Nothing),
    }
}

/// Whether the data file has pages that [`create`] did not make.
fn holds_data(disk: &dyn Disk) -> Result<bool, StorageError> {
    let file = disk.open(PAGES, OpenMode::Existing).map_err(|e| StorageError::io("open", disk.show(PAGES), 0, e))?;
    let len = file.len().map_err(|e| StorageError::io("measure", disk.show(PAGES), 0, e))?;
    Ok(len > u64::from(CATALOG.root.0 + 1) * crate::base::ids::PAGE_SIZE as u64)
}

/// The directory as the user would find it.
pub(crate) fn directory(disk: &dyn Disk) -> String {
    let file = disk.show(CONTROL);
    file.strip_suffix(CONTROL).unwrap_or(&file).trim_end_matches('/').to_owned()
}

/// Makes the files of an empty database. The control file comes last: without it nothing has happened.
///
/// # Errors
/// No space, or a failed write.
pub(crate) fn create(disk: &dyn Disk, database: u64) -> Result<(ControlFile, Control), StorageError> {
    let show = disk.show(PAGES);
    let file = disk.open(PAGES, OpenMode::Create).map_err(|e| StorageError::io("create", &*show, 0, e))?;
    file.set_len(0).map_err(|e| StorageError::io("truncate", &*show, 0, e))?;
    write_all_at(&*file, file_header(database).as_bytes(), 0)?;
    let mut page = PageBytes::boxed();
    let mut space = PageMut::of(&mut page);
    space.put_u32(header::ID, SPACE_PAGE.0);
    space.put_u8(header::KIND, Kind::Meta as u8);
    space.put_u32(ops::space::END, CATALOG.root.0 + 1);
    space.set_lsn(Lsn(1));
    seal(page.as_bytes_mut());
    write_all_at(&*file, page.as_bytes(), SPACE_PAGE.offset())?;
    let mut page = PageBytes::boxed();
    let mut root = PageMut::of(&mut page);
    root.format(&Format {
        id: CATALOG.root,
        index: CATALOG.index,
        level: 0,
        low: None,
        high: None,
        right: PageId::NONE,
        upper: PageId::NONE,
    });
    root.set_lsn(Lsn(1));
    seal(page.as_bytes_mut());
    write_all_at(&*file, page.as_bytes(), CATALOG.root.offset())?;
    sync_file(&*file)?;
    disk.sync_dir().map_err(|e| StorageError::io("sync", disk.show(""), 0, e))?;
    let control = Control { number: 1, database, checkpoint: Lsn::ZERO, durable: FIRST_LSN };
    let control_file = ControlFile::create(disk, &control)?;
    Ok((control_file, control))
}

/// Opens the data file of database `database`.
///
/// # Errors
/// The file is missing, of another format or another database.
pub(crate) fn open_pages(disk: &dyn Disk, database: u64) -> Result<Pages, StorageError> {
    let show = disk.show(PAGES);
    let file = disk.open(PAGES, OpenMode::Existing).map_err(|e| StorageError::io("open", &*show, 0, e))?;
    let mut bytes = vec![0; 28];
    read_exact_at(&*file, &mut bytes, 0)?;
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let corrupt = |what: &str| StorageError::CorruptFile { file: show.clone(), what: what.to_owned() };
    if &bytes[..8] != MAGIC || word(24) != crc32c(&bytes[..24]) {
        return Err(corrupt("its header is damaged; restore a copy"));
    }
    if word(8) != FORMAT {
        return Err(StorageError::Format { file: show, found: word(8), expected: FORMAT });
    }
    if bytes[16..24] != database.to_le_bytes() {
        return Err(corrupt("belongs to another database; put back the database's own data file"));
    }
    Ok(Pages { file, grown: Mutex::new(()) })
}

/// The data file as the pool sees it.
#[derive(Debug)]
pub(crate) struct Pages {
    file: Arc<dyn DiskFile>,
    grown: Mutex<()>,
}

impl PageFile for Pages {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), StorageError> {
        read_exact_at(&*self.file, buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<(), StorageError> {
        write_all_at(&*self.file, buf, offset)
    }

    fn sync(&self) -> Result<(), StorageError> {
        sync_file(&*self.file)
    }

    fn len(&self) -> Result<u64, StorageError> {
        self.file.len().map_err(|e| StorageError::io("measure", self.show(), 0, e))
    }

    fn extend_to(&self, bytes: u64) -> Result<(), StorageError> {
        let _one = self.grown.lock();
        let len = self.len()?;
        if len >= bytes {
            return Ok(());
        }
        self.file.allocate(len, bytes - len).map_err(|e| StorageError::io("extend", self.show(), len, e))
    }

    fn show(&self) -> String {
        self.file.name().to_owned()
    }
}

/// The log as the pool sees it.
#[derive(Debug)]
pub(crate) struct LogFront {
    pub(crate) log: Arc<Log>,
    pub(crate) hook: Arc<dyn Hook>,
    /// Whether threads drive the log; if not, whoever waits does.
    pub(crate) driven: Arc<AtomicBool>,
    /// The cleaner's own slot in the log.
    pub(crate) slot: SlotId,
    /// Serialises users of the slot, and is used again and again.
    pub(crate) rec: Mutex<RecordBuf>,
}

impl WriteAhead for LogFront {
    fn durable(&self) -> Lsn {
        self.log.durable()
    }

    fn end(&self) -> Lsn {
        self.log.tail()
    }

    fn make_durable(&self, lsn: Lsn) -> Result<(), StorageError> {
        self.log.make_durable(lsn, &self.driven, &*self.hook)
    }

    fn log_images<'a>(&self, images: &mut dyn Iterator<Item = PageImage<'a>>) -> Result<Lsn, StorageError> {
        let mut rec = self.rec.lock();
        let mut end = Lsn::ZERO;
        for (id, lsn, bytes) in images {
            rec.begin(RecordKind::PageImage as u8, TxnId(0), Lsn::ZERO);
            ops::put_image(&mut rec, id, bytes, PageRef::of_bytes(bytes));
            self.log.append_redo_only(self.slot, &mut rec, lsn)?;
            end = rec.end();
        }
        Ok(end)
    }
}
