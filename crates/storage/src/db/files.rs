//! The files of a database: their names and creation, and the implementations of the buffer pool's file interfaces.

use crate::base::sync::plain::{AtomicBool, Ordering};
use std::sync::Arc;

use super::aside::{Aside, CONTROL_BYTES};
use crate::base::checksum::crc32c;
use crate::base::error::{OpenError, StorageError};
use crate::base::hook::Hook;
use crate::base::ids::{Lsn, PAGE_SIZE, PageId};
use crate::base::sync::Mutex;
use crate::btree::ops;
use crate::btree::space::SPACE_PAGE;
use crate::buffer::ahead::DurablePages;
use crate::buffer::file::{AsideCopy, PageFile, WriteAhead};
use crate::io::synced::SyncedFile;
use crate::io::{
    Disk, DiskFile, LOCK_FILE, LockError, OpenMode, read_exact_at, read_up_to_at, sync_file, write_all_at,
};
use crate::log::{FIRST_LSN, Log, is_segment, is_segment_name, is_unused_segment};
use crate::page::header::{self, Kind, seal};
use crate::page::slotted::Format;
use crate::page::{PageBytes, PageMut};
use crate::recovery::control::{CONTROL_MAGIC, Control, ControlFile, FORMAT};
use crate::table::catalog::CATALOG;

pub(crate) use crate::recovery::control::{CONTROL, NEW_CONTROL};

/// Name of the data file.
pub(crate) const PAGES: &str = "pages.0";
/// Name of the mark file of an unfinished copy.
pub(crate) const COPYING: &str = "copying";
const MAGIC: &[u8; 8] = b"LOCKPAGE";

/// Returns page 0 of the data file, which contains the id of the database.
pub(crate) fn file_header(database: u64) -> Box<PageBytes> {
    let mut page = PageBytes::boxed();
    let bytes = page.as_bytes_mut();
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[16..24].copy_from_slice(&database.to_le_bytes());
    let crc = crc32c(&bytes[..24]);
    bytes[24..28].copy_from_slice(&crc.to_le_bytes());
    page
}

/// Content of a directory in which a database is opened or created.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DirectoryContent {
    /// A database, complete or incomplete.
    Database,
    /// No files, or files of an interrupted creation.
    Nothing,
}

/// Returns true if a file of this name may belong to a database.
pub(crate) fn is_ours(name: &str) -> bool {
    matches!(name, CONTROL | NEW_CONTROL | PAGES | LOCK_FILE) || is_segment_name(name)
}

/// Converts a failure to lock a directory to an error of opening.
pub(crate) fn not_locked(error: LockError) -> OpenError {
    match error {
        LockError::Held { dir, pid } => {
            OpenError::InUse { directory: dir, holder: pid.map_or("another".into(), |p| p.to_string()) }
        }
        LockError::Storage(error) => error.into(),
    }
}

/// Returns the kind of content of a directory.
///
/// # Errors
/// `NotADatabase` if the directory has files that do not belong to a database (subdirectories with other names are
/// ignored); `CorruptFile` if it has a database without its control file.
pub(crate) fn inspect_directory(disk: &dyn Disk) -> Result<DirectoryContent, OpenError> {
    let names = names(disk)?;
    let foreign = |why: String| Err(OpenError::NotADatabase { directory: directory(disk), why });
    if names.iter().any(|n| n == COPYING) {
        return foreign("it holds a copy that was not finished; copy again, into another directory".into());
    }
    let directories = names.iter().filter_map(|name| name.strip_suffix('/'));
    if let Some(name) = directories.into_iter().find(|name| is_ours(name)) {
        return foreign(format!("'{name}' is a directory"));
    }
    if names.iter().any(|n| n == CONTROL) {
        return Ok(DirectoryContent::Database);
    }
    let mut files = names.iter().filter(|name| !name.ends_with('/'));
    if let Some(other) = files.clone().find(|name| !is_ours(name)) {
        return foreign(format!("it holds '{other}'"));
    }
    // Files with names of a database are left over from an interrupted creation, unless they contain more than a
    // creation writes. The lock file is not examined here, because locking the directory checks it.
    match files.try_fold(None, |other, name| Ok::<_, StorageError>(other.or(inspect_leftover(disk, name)?)))? {
        Some(LeftoverContent::Data(name)) => {
            let what = format!("is missing, but {name} holds data; restore a copy, or choose another directory");
            Err(StorageError::CorruptFile { file: disk.show(CONTROL), what }.into())
        }
        Some(LeftoverContent::Other(name)) => foreign(format!("'{name}' there is of no database")),
        None => Ok(DirectoryContent::Nothing),
    }
}

/// Content of a file that is more than a creation of a database writes.
enum LeftoverContent {
    /// Pages or log records of a database.
    Data(String),
    /// Other content.
    Other(String),
}

fn inspect_leftover(disk: &dyn Disk, name: &str) -> Result<Option<LeftoverContent>, StorageError> {
    if name == LOCK_FILE {
        return Ok(None);
    }
    let file = disk.open(name, OpenMode::Existing).map_err(|e| StorageError::io("open", disk.show(name), 0, e))?;
    let len = file.len().map_err(|e| StorageError::io("measure", disk.show(name), 0, e))?;
    let (begins, fits) = match name {
        PAGES => (begins_like(&*file, MAGIC)?, len <= u64::from(CATALOG.root.0 + 1) * PAGE_SIZE as u64),
        NEW_CONTROL => (begins_like(&*file, CONTROL_MAGIC)?, len <= CONTROL_BYTES),
        _ => (is_segment(&*file)?, is_unused_segment(&*file)?),
    };
    Ok(match (begins, fits) {
        (true, true) => None,
        (true, false) => Some(LeftoverContent::Data(name.to_owned())),
        (false, _) => Some(LeftoverContent::Other(name.to_owned())),
    })
}

/// Returns true if each of the first bytes of the file equals the byte in `magic` or is zero. A zero is a byte of the
/// first write that did not reach the disk.
fn begins_like(file: &dyn DiskFile, magic: &[u8; 8]) -> Result<bool, StorageError> {
    let mut bytes = [0; 8];
    let got = read_up_to_at(file, &mut bytes, 0)?;
    Ok(bytes[..got].iter().zip(magic).all(|(byte, magic)| byte == magic || *byte == 0))
}

/// Removes a file that, according to [`inspect_directory`], is left over from an interrupted creation.
fn remove_left_over(disk: &dyn Disk, name: &str) -> Result<(), StorageError> {
    match disk.remove(name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StorageError::io("remove", disk.show(name), 0, error))
        }
        _ => Ok(()),
    }
}

fn names(disk: &dyn Disk) -> Result<Vec<String>, StorageError> {
    disk.list().map_err(|e| StorageError::io("list", disk.show(""), 0, e))
}

/// Returns the name of the first file that prevents a copy into the directory; `None` if no file does.
///
/// # Errors
/// An error if the directory cannot be read.
pub(crate) fn first_foreign(disk: &dyn Disk) -> Result<Option<String>, StorageError> {
    Ok(names(disk)?.into_iter().filter(|name| name != LOCK_FILE).min())
}

/// Returns the path of the directory, for error messages.
pub(crate) fn directory(disk: &dyn Disk) -> String {
    let file = disk.show(CONTROL);
    file.strip_suffix(CONTROL).unwrap_or(&file).trim_end_matches('/').to_owned()
}

/// Creates the files of an empty database in a directory where [`inspect_directory`] found nothing. The control file
/// is written last: without it there is no database.
///
/// # Errors
/// No space, a failed write, or a file with the name of a database file that another program has created in the
/// meantime.
pub(crate) fn create(disk: &dyn Disk, database: u64) -> Result<(ControlFile, Control), StorageError> {
    remove_left_over(disk, PAGES)?;
    remove_left_over(disk, NEW_CONTROL)?;
    let show = disk.show(PAGES);
    let file = disk.open(PAGES, OpenMode::CreateNew).map_err(|e| StorageError::io("create", &*show, 0, e))?;
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
    let control_file = ControlFile::create(disk, &control, CONTROL_BYTES, &mut |_| ())?;
    Ok((control_file, control))
}

/// Opens the data file of database `database` for a pool of `frames` frames, and repairs pages that a crash tore. A
/// restart reads the log from `redo` to `end`.
///
/// # Errors
/// An error if the file is missing, has another format, or belongs to another database.
pub(crate) fn open_pages(
    disk: &dyn Disk,
    control: &ControlFile,
    database: u64,
    frames: usize,
    (redo, end): (Lsn, Lsn),
) -> Result<DataFile, StorageError> {
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
    let file = SyncedFile::new(file);
    let aside = Aside::open(control.shared(), frames)?;
    aside.mend(&file, redo, end)?;
    Ok(DataFile { file, aside, grown: Mutex::new(()) })
}

/// The data file. Implements the buffer pool's interface to its page file.
#[derive(Debug)]
pub(crate) struct DataFile {
    file: SyncedFile,
    aside: Aside,
    grown: Mutex<()>,
}

impl PageFile for DataFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), StorageError> {
        read_exact_at(self.file.file(), buf, offset)
    }

    fn read_resident_at(&self, buf: &mut [u8], offset: u64) -> Result<bool, StorageError> {
        let read = self.file.file().read_resident_at(buf, offset);
        // If only a part of the page was in the system's cache, the caller reads the whole page again.
        Ok(read.map_err(|e| StorageError::io("read", self.file.file().name(), offset, e))? == Some(buf.len()))
    }

    fn write_pages(&self, pages: DurablePages<'_>) -> Result<(), StorageError> {
        write_all_at(self.file.file(), pages.bytes(), pages.first().offset())
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.file.sync()
    }

    fn len(&self) -> Result<u64, StorageError> {
        self.file.file().len().map_err(|e| StorageError::io("measure", self.show(), 0, e))
    }

    fn extend_to(&self, bytes: u64) -> Result<(), StorageError> {
        let _one = self.grown.lock();
        let len = self.len()?;
        if len >= bytes {
            return Ok(());
        }
        self.file.file().allocate(len, bytes - len).map_err(|e| StorageError::io("extend", self.show(), len, e))
    }

    fn cut_to(&self, bytes: u64) -> Result<(), StorageError> {
        let _one = self.grown.lock();
        if self.len()? <= bytes {
            return Ok(());
        }
        self.file.file().set_len(bytes).map_err(|e| StorageError::io("cut", self.show(), bytes, e))
    }

    fn slots(&self) -> u64 {
        self.aside.slots()
    }

    fn write_aside(&self, slot: u64, copies: &[AsideCopy<'_>]) -> Result<(), StorageError> {
        self.aside.write(slot, copies)
    }

    fn sync_aside(&self) -> Result<(), StorageError> {
        self.aside.sync()
    }

    fn show(&self) -> String {
        self.file.file().name().to_owned()
    }
}

/// The log. Implements the buffer pool's interface to the write-ahead log.
#[derive(Debug)]
pub(crate) struct LogFront {
    pub(crate) log: Arc<Log>,
    pub(crate) hook: Arc<dyn Hook>,
    /// True if other threads write the log; otherwise the thread that waits for the log writes it.
    pub(crate) driven: Arc<AtomicBool>,
}

impl WriteAhead for LogFront {
    fn durable(&self) -> Lsn {
        self.log.durable()
    }

    fn end(&self) -> Lsn {
        self.log.tail()
    }

    fn make_durable(&self, lsn: Lsn) -> Result<(), StorageError> {
        self.log.make_durable(lsn, self.driven.load(Ordering::Acquire), &*self.hook)
    }
}
