//! The files `log.N`: their names, their headers, and the place of each byte of the stream.
//!
//! Every file has the same size, a header block of 4096 bytes and then payload. With `P` payload bytes per
//! file, byte `p` of the stream lies in file `p / P`, at `4096 + p % P`.
//!
//! ```text
//! offset size
//!      0    8  magic          "LKSTPLOG"
//!      8    4  format         6
//!     12    4  zero
//!     16    8  number         N, as in the name
//!     24    8  segment_bytes  size of the file
//!     32    8  database       id of the database
//!     40    4  crc            CRC-32C of the 40 bytes before
//! ```
//!
//! A header is written last when a file is made or recycled, and is synced with the directory before the first record is
//! written to the file. So a file whose header does not match its name contains no records of the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::checksum::crc32c;
use crate::base::error::StorageError;
use crate::io::{Disk, DiskFile, OpenMode, read_up_to_at};

use super::record::le_u64;

/// Number of bytes of a segment before its payload.
pub(super) const HEADER_BYTES: u64 = 4096;
/// Format version in the header of every segment.
pub(super) const FORMAT: u32 = 6;
const MAGIC: &[u8; 8] = b"LKSTPLOG";
const SUMMED: usize = 40;
/// Maximum number of a segment and maximum size of a segment. They keep every stream position within 63 bits, regardless of
/// names and headers.
const NUMBER_MAX: u64 = u32::MAX as u64;
const SEGMENT_BYTES_MAX: u64 = 1 << 31;

/// Mapping from stream positions to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) segment_bytes: u64,
    pub(super) database: u64,
}

impl Geometry {
    /// Returns the number of payload bytes of one segment.
    #[inline]
    pub(super) fn payload(self) -> u64 {
        self.segment_bytes - HEADER_BYTES
    }

    /// Returns the number of the segment that contains the byte at `at`.
    #[inline]
    pub(super) fn number(self, at: u64) -> u64 {
        at / self.payload()
    }

    /// Returns the stream position of the first payload byte of a segment.
    #[inline]
    pub(super) fn base(self, number: u64) -> u64 {
        number * self.payload()
    }

    /// Returns the offset of the byte at `at` in its file, and the number of bytes from there to the end of the file.
    #[inline]
    pub(super) fn place(self, at: u64) -> (u64, u64) {
        let within = at % self.payload();
        (HEADER_BYTES + within, self.payload() - within)
    }

    /// Returns the header block of a segment.
    pub(super) fn header(self, number: u64) -> Vec<u8> {
        let mut block = vec![0; HEADER_BYTES as usize];
        block[0..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        block[16..24].copy_from_slice(&number.to_le_bytes());
        block[24..32].copy_from_slice(&self.segment_bytes.to_le_bytes());
        block[32..40].copy_from_slice(&self.database.to_le_bytes());
        let crc = crc32c(&block[..SUMMED]);
        block[40..44].copy_from_slice(&crc.to_le_bytes());
        block
    }
}

/// Returns the name of segment `number`.
pub(super) fn name(number: u64) -> String {
    format!("log.{number}")
}

/// Returns the number of the segment with this name; `None` if it is not a name of a segment.
fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log.")?;
    let number = digits.parse().ok()?;
    (number <= NUMBER_MAX && digits == u64::to_string(&number)).then_some(number)
}

/// Returns true if a file has the name of a segment.
pub(crate) fn is_name(name: &str) -> bool {
    number_of(name).is_some()
}

/// Returns true if these first bytes of a file can be the start of a segment. The header may have been written only in part.
fn begins_like(block: &[u8]) -> bool {
    block.iter().zip(MAGIC).all(|(byte, magic)| byte == magic || *byte == 0)
}

/// Returns true if a file that has the name of a segment may be a segment.
///
/// # Errors
/// A failed read.
pub(crate) fn is_segment(file: &dyn DiskFile) -> Result<bool, StorageError> {
    let mut bytes = [0; MAGIC.len()];
    let got = read_up_to_at(file, &mut bytes, 0)?;
    Ok(begins_like(&bytes[..got]))
}

/// Returns true if no record was ever written to a segment: the first record goes to the start of its payload.
///
/// # Errors
/// A failed read.
pub(crate) fn is_unused(file: &dyn DiskFile) -> Result<bool, StorageError> {
    let mut payload = [0; 512];
    let got = read_up_to_at(file, &mut payload, HEADER_BYTES)?;
    Ok(payload[..got].iter().all(|byte| *byte == 0))
}

/// Returns the numbers and names of all files that have names of segments.
pub(super) fn list(disk: &dyn Disk) -> Result<Vec<(u64, String)>, StorageError> {
    let names = disk.list().map_err(|e| StorageError::io("list", disk.show(""), 0, e))?;
    Ok(names.into_iter().filter_map(|name| Some((number_of(&name)?, name))).collect())
}

#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) content: SegmentContent,
}

/// Content of a file that has a segment's name, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentContent {
    /// The segment of this name.
    Sound,
    /// The segment with this number, which is later than the name says.
    Later(u64),
    /// Perhaps a segment: its header is missing on the disk, or is there only in part.
    Unfinished,
    /// No segment.
    Foreign,
}

impl SegmentFile {
    pub(super) fn is_sound(&self) -> bool {
        self.content == SegmentContent::Sound
    }

    /// Returns true if the file may be a segment, and so may be removed.
    pub(super) fn is_own(&self) -> bool {
        self.content != SegmentContent::Foreign
    }
}

/// Files of the log as found at open, before any change.
#[derive(Clone, Debug)]
pub(crate) struct LogFiles {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) geometry: Geometry,
    pub(super) files: BTreeMap<u64, SegmentFile>,
    /// Number of bytes that a reader requests from a file at a time.
    pub(super) piece: usize,
}

/// Default number of bytes that a reader requests from a file at a time.
pub(super) const PIECE: usize = 512 << 10;

enum Header {
    Fits {
        segment_bytes: u64,
    },
    OtherFormat(u32),
    OtherDatabase,
    /// Sound header of a segment with this larger number.
    Later(u64),
    Unfit,
}

fn examine(block: &[u8], number: u64, database: u64) -> Header {
    if block.len() < SUMMED + 4 || block[..8] != *MAGIC {
        return Header::Unfit;
    }
    let u32_at = |at: usize| (le_u64(block, at - 4) >> 32) as u32;
    if u32_at(8) != FORMAT && crc32c(&block[..SUMMED]) == u32_at(40) {
        return Header::OtherFormat(u32_at(8));
    }
    let segment_bytes = le_u64(block, 24);
    let found = le_u64(block, 16);
    let sound = crc32c(&block[..SUMMED]) == u32_at(40)
        && found >= number
        && segment_bytes.is_multiple_of(4096)
        && segment_bytes > HEADER_BYTES
        && segment_bytes <= SEGMENT_BYTES_MAX;
    match sound {
        true if le_u64(block, 32) != database => Header::OtherDatabase,
        true if found > number => Header::Later(found),
        true => Header::Fits { segment_bytes },
        false => Header::Unfit,
    }
}

impl LogFiles {
    /// Finds the segments of database `database` and reads their headers.
    ///
    /// # Errors
    /// `Format` for a file of another format version, `CorruptFile` if no file has a matching header or one belongs to
    /// another database, `Io`.
    pub(crate) fn find(disk: Arc<dyn Disk>, database: u64) -> Result<LogFiles, StorageError> {
        let mut files = BTreeMap::new();
        let mut size = None;
        for (number, name) in list(&*disk)? {
            let shown = disk.show(&name);
            let file =
                disk.open(&name, OpenMode::Existing).map_err(|e| StorageError::io("open", shown.clone(), 0, e))?;
            let mut block = [0; SUMMED + 4];
            let got = read_up_to_at(&*file, &mut block, 0)?;
            let corrupt = |what: &str| StorageError::CorruptFile { file: shown.clone(), what: what.to_owned() };
            let content = match examine(&block[..got], number, database) {
                Header::Fits { segment_bytes } if *size.get_or_insert(segment_bytes) == segment_bytes => {
                    SegmentContent::Sound
                }
                Header::Fits { .. } => {
                    return Err(corrupt("has another size than the other segments; move the files of other logs away"));
                }
                Header::OtherFormat(found) => {
                    return Err(StorageError::Format { file: shown.clone(), found, expected: FORMAT });
                }
                Header::OtherDatabase => {
                    return Err(corrupt("belongs to another database; put back the database's own log"));
                }
                Header::Later(found) => SegmentContent::Later(found),
                Header::Unfit if begins_like(&block[..got]) => SegmentContent::Unfinished,
                Header::Unfit => SegmentContent::Foreign,
            };
            // A file has all its space before it gets a header.
            let len = file.len().map_err(|e| StorageError::io("length", shown.clone(), 0, e))?;
            if content == SegmentContent::Sound && size != Some(len) {
                return Err(corrupt(&format!("is {len} bytes long, not {}; restore a copy", size.unwrap_or(0))));
            }
            files.insert(number, SegmentFile { file, content });
        }
        let Some(segment_bytes) = size else {
            let what = "no segment with a sound header; restore a copy".to_owned();
            return Err(StorageError::CorruptFile { file: disk.show("log.*"), what });
        };
        Ok(LogFiles { disk, geometry: Geometry { segment_bytes, database }, files, piece: PIECE })
    }

    /// Returns the same files, with `bytes` as the number of bytes that a reader requests at a time.
    pub(crate) fn in_pieces(self, bytes: usize) -> LogFiles {
        LogFiles { piece: bytes.max(1), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        assert_eq!(number_of("log.0"), Some(0));
        assert_eq!(number_of("log.17"), Some(17));
        for other in
            ["log.", "log.017", "log.+1", "log.1x", "log", "pages.0", "log.4294967296", "log.99999999999999999999"]
        {
            assert_eq!(number_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_header_fits_only_its_own_place() {
        let geometry = Geometry { segment_bytes: 1 << 20, database: 77 };
        let block = geometry.header(5);
        assert!(matches!(examine(&block, 5, 77), Header::Fits { segment_bytes: 0x10_0000 }));
        assert!(matches!(examine(&block, 6, 77), Header::Unfit));
        assert!(matches!(examine(&block, 4, 77), Header::Later(5)));
        assert!(matches!(examine(&block, 5, 78), Header::OtherDatabase));
        assert!(matches!(examine(&block[..20], 5, 77), Header::Unfit));
        for bit in 0..(SUMMED + 4) * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(examine(&damaged, 5, 77), Header::Fits { .. }), "bit {bit}");
        }
    }

    #[test]
    fn every_byte_has_one_place() {
        let geometry = Geometry { segment_bytes: 8192, database: 1 };
        assert_eq!(geometry.payload(), 4096);
        assert_eq!((geometry.number(4095), geometry.place(4095)), (0, (8191, 1)));
        assert_eq!((geometry.number(4096), geometry.place(4096)), (1, (4096, 4096)));
        assert_eq!(geometry.base(3), 12288);
    }
}
