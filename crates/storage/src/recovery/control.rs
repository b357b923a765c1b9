//! The control file. It contains the format version and the LSN of the last checkpoint.
//!
//! The file has two copies of the control record, 4096 bytes apart, written alternately: if a write is torn, the other copy
//! is valid.
//!
//! | offset | size | meaning |
//! | --- | --- | --- |
//! | 0 | 8 | `LOCKSTEP` |
//! | 8 | 4 | format number |
//! | 12 | 4 | CRC-32C of the copy with this field zero |
//! | 16 | 8 | number of the copy: the copy with the higher number is valid |
//! | 24 | 8 | database id |
//! | 32 | 8 | LSN of the last complete checkpoint's record |
//! | 40 | 8 | durable LSN: the log before it is on disk |
//!
//! After the copies, from offset 8192 on, come the doublewrite slots: see `db::aside`.

use std::sync::Arc;

use crate::base::checksum::crc32c;
use crate::base::error::StorageError;
use crate::base::ids::Lsn;
use crate::base::mutant::{Mutant, is_mutant};
use crate::io::synced::SyncedFile;
use crate::io::{Disk, OpenMode, read_up_to_at, write_all_at};

/// Format version of all files. A build reads exactly one version.
pub(crate) const FORMAT: u32 = 7;
/// Name of the control file.
pub(crate) const CONTROL: &str = "control";
/// Name of the control file until its creation is complete.
pub(crate) const NEW_CONTROL: &str = "control.new";
/// First bytes of the control file.
pub(crate) const CONTROL_MAGIC: &[u8; 8] = b"LOCKSTEP";
const COPY: usize = 64;
const APART: u64 = 4096;
/// Offset of the doublewrite slots in the control file, after the two copies (`db::aside`).
pub(crate) const ASIDE: u64 = 2 * APART;
/// Maximum number of a copy. No database ever writes as many copies.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// Content of the control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) number: u64,
    pub(crate) database: u64,
    pub(crate) checkpoint: Lsn,
    pub(crate) durable: Lsn,
}

/// The open control file.
#[derive(Debug)]
pub(crate) struct ControlFile {
    file: Arc<SyncedFile>,
    show: String,
}

impl Control {
    fn encode(&self) -> [u8; COPY] {
        let mut bytes = [0; COPY];
        bytes[..8].copy_from_slice(CONTROL_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        for (at, word) in [(16, self.number), (24, self.database), (32, self.checkpoint.0), (40, self.durable.0)] {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a copy of the control record. Returns `Ok(None)` if the copy is damaged.
    fn decode(bytes: &[u8], show: &str) -> Result<Option<Control>, StorageError> {
        let Some(bytes) = bytes.first_chunk::<COPY>() else { return Ok(None) };
        if &bytes[..8] != CONTROL_MAGIC {
            return Ok(None);
        }
        let word = |at: usize| bytes[at..at + 8].first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        let format = word(8) as u32;
        let crc = (word(8) >> 32) as u32;
        let mut zeroed = *bytes;
        zeroed[12..16].fill(0);
        if crc32c(&zeroed) != crc {
            return Ok(None);
        }
        if format != FORMAT {
            return Err(StorageError::Format { file: show.to_owned(), found: format, expected: FORMAT });
        }
        // No database has ever written such a number, and few numbers would be left after it.
        if word(16) > NUMBER_MAX {
            return Ok(None);
        }
        Ok(Some(Control { number: word(16), database: word(24), checkpoint: Lsn(word(32)), durable: Lsn(word(40)) }))
    }
}

impl ControlFile {
    /// Opens the control file.
    ///
    /// # Errors
    /// Fails if the operating system reports an error.
    pub(crate) fn open(disk: &dyn Disk) -> Result<ControlFile, StorageError> {
        let show = disk.show(CONTROL);
        let file = disk.open(CONTROL, OpenMode::Existing).map_err(|e| StorageError::io("open", &*show, 0, e))?;
        Ok(ControlFile { file: Arc::new(SyncedFile::new(file)), show })
    }

    /// Creates the control file with a size of `bytes` bytes. The file gets its final name when it is completely on disk, so
    /// a crash leaves either no file or a valid file. `made` is called with each name that the file has been given.
    ///
    /// # Errors
    /// Fails if the operating system refuses, or if a file with this name has been created in the meantime.
    pub(crate) fn create(
        disk: &dyn Disk,
        control: &Control,
        bytes: u64,
        made: &mut dyn FnMut(&str),
    ) -> Result<ControlFile, StorageError> {
        let show = disk.show(NEW_CONTROL);
        let file = disk.open(NEW_CONTROL, OpenMode::CreateNew).map_err(|e| StorageError::io("create", &*show, 0, e))?;
        made(NEW_CONTROL);
        if disk.open(CONTROL, OpenMode::Existing).is_ok() {
            let exists = std::io::ErrorKind::AlreadyExists.into();
            return Err(StorageError::io("create", disk.show(CONTROL), 0, exists));
        }
        // All space is allocated now, because the file must be writable when the disk is full.
        file.allocate(0, bytes).map_err(|e| StorageError::io("allocate", &*show, 0, e))?;
        ControlFile { file: Arc::new(SyncedFile::new(file)), show }.write(control)?;
        let named = disk.rename(NEW_CONTROL, CONTROL);
        if named.is_ok() {
            made(CONTROL);
        }
        named.and_then(|()| disk.sync_dir()).map_err(|e| StorageError::io("rename", disk.show(CONTROL), 0, e))?;
        ControlFile::open(disk)
    }

    /// Reads the newest valid copy of the control record.
    ///
    /// # Errors
    /// Fails if no copy is valid, or if a copy has another format version.
    pub(crate) fn read(&self) -> Result<Control, StorageError> {
        let mut newest: Option<Control> = None;
        for copy in 0..2 {
            let mut bytes = [0; COPY];
            let n = read_up_to_at(self.file.file(), &mut bytes, copy * APART)?;
            if let Some(control) = Control::decode(&bytes[..n], &self.show)?
                && newest.is_none_or(|n| n.number < control.number)
            {
                newest = Some(control);
            }
        }
        newest.ok_or_else(|| StorageError::CorruptFile {
            file: self.show.clone(),
            what: "is not the control file of a database, or both its copies are damaged; restore a copy".into(),
        })
    }

    /// Writes the next copy of the control record and syncs the file.
    ///
    /// # Errors
    /// Fails if the operating system reports an error. The older copy is then still valid.
    pub(crate) fn write(&self, control: &Control) -> Result<(), StorageError> {
        let at = if is_mutant(Mutant::OneControlCopy) { 0 } else { (control.number % 2) * APART };
        write_all_at(self.file.file(), &control.encode(), at)?;
        self.file.sync()
    }

    /// Returns the file, which also contains the doublewrite slots, for shared use.
    pub(crate) fn shared(&self) -> Arc<SyncedFile> {
        Arc::clone(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a valid copy of another format version is not reported as damage, and that the error suggests a remedy.
    #[test]
    fn another_format_is_named() {
        let control = Control { number: 1, database: 7, checkpoint: Lsn(4096), durable: Lsn(4160) };
        let mut bytes = control.encode();
        bytes[8..12].copy_from_slice(&(FORMAT - 1).to_le_bytes());
        bytes[12..16].fill(0);
        let crc = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        let error = Control::decode(&bytes, "bank/control").unwrap_err();
        assert!(matches!(error, StorageError::Format { found, expected, .. } if found + 1 == expected));
        let told = error.to_string();
        let named = format!("bank/control: format version {},", FORMAT - 1);
        assert!(told.starts_with(&named) && told.contains("put into a new database"), "{told}");
    }

    /// Regression test: the number of a forged copy overflowed at the second checkpoint after the open.
    #[test]
    fn a_copy_that_few_could_follow_is_none() {
        let decode = |number| {
            let control = Control { number, database: 7, checkpoint: Lsn(4096), durable: Lsn(4160) };
            let decoded = Control::decode(&control.encode(), CONTROL).unwrap();
            assert!(decoded.is_none_or(|decoded| decoded == control));
            decoded.is_some()
        };
        assert_eq!(
            [0, 1, NUMBER_MAX, NUMBER_MAX + 1, u64::MAX - 1, u64::MAX].map(decode),
            [true, true, true, false, false, false]
        );
    }
}
