//! Reads whole files with a size limit. A device or a log that is named by mistake causes an error instead of filling the
//! memory of the machine.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::Error;
use super::words::in_mib;

/// Maximum size of a result of `tpcc --json`: one sample per second for about twelve days.
pub const MAX_RESULT_BYTES: u64 = 128 << 20;
/// Maximum size of a program's output, or of a profile that a program writes.
pub const MAX_OUTPUT_BYTES: u64 = 1 << 30;

/// Error of reading a file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refused the access.
    #[error("{}: cannot be read: {source}", path.display())]
    Refused {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is larger than the limit for files of its kind.
    #[error("{}: larger than {}, so not {expected}", path.display(), in_mib(*limit))]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Maximum number of bytes that are read.
        limit: u64,
        /// Description of the expected file: "what 'tpcc run --json' wrote".
        expected: &'static str,
    },
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Error {
        let failed = Error::failed(error.to_string());
        match error {
            ReadError::Refused { .. } => failed,
            ReadError::TooLarge { expected, .. } => failed.help(format!("name {expected}")),
        }
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> io::Error {
        match error {
            ReadError::Refused { source, .. } => source,
            error @ ReadError::TooLarge { .. } => io::Error::new(io::ErrorKind::InvalidData, error.to_string()),
        }
    }
}

/// Reads the file `path`, which may be a pipe or a device, of at most `limit` bytes. `expected` describes the file that the
/// caller expects.
///
/// # Errors
/// [`ReadError`] if the file cannot be read or is larger than `limit`.
pub fn read_file(path: &Path, limit: u64, expected: &'static str) -> Result<Vec<u8>, ReadError> {
    let refused = |source| ReadError::Refused { path: path.to_owned(), source };
    let bytes = File::open(path).and_then(|file| read_within(file, limit)).map_err(refused)?;
    bytes.ok_or_else(|| ReadError::TooLarge { path: path.to_owned(), limit, expected })
}

/// Reads the text that a program has written to the file `path`. Empty if the file cannot be read, is larger than
/// [`MAX_OUTPUT_BYTES`] bytes, or is not UTF-8.
pub fn read_output(path: &Path) -> String {
    let bytes = read_file(path, MAX_OUTPUT_BYTES, "the output of a program");
    bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Reads a reader to its end. Returns `None` if it has more than `limit` bytes; at most one byte more than `limit` is read.
///
/// # Errors
/// Errors of the reader.
pub fn read_within(from: impl Read, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_stops_at_its_bound() {
        assert_eq!(read_within(&b"12345"[..], 5).unwrap(), Some(b"12345".to_vec()));
        assert_eq!(read_within(&b"123456"[..], 5).unwrap(), None);
        assert_eq!(read_within(io::repeat(0), 1 << 16).unwrap(), None, "it would never end");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_device_and_an_absent_file_are_named() {
        let error =
            Error::from(read_file(Path::new("/dev/zero"), 3 << 20, "what 'tpcc run --json' wrote").unwrap_err());
        let said = "error: /dev/zero: larger than 3 MiB, so not what 'tpcc run --json' wrote\n  \
                    help: name what 'tpcc run --json' wrote";
        assert_eq!((error.to_string().as_str(), error.status()), (said, 1));
        let error = read_file(Path::new("/no/such/file"), 1, "a list").unwrap_err();
        assert!(error.to_string().starts_with("/no/such/file: cannot be read: "), "{error}");
        let error = io::Error::from(read_file(Path::new("/dev/zero"), 1, "a list of builds").unwrap_err());
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
