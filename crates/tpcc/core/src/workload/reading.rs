//! Files that are read whole. Each reader has a bound, so that a device or a log that was named by mistake ends in an error and
//! not in the machine's memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::Error;
use super::words::in_mib;

/// Most bytes of a result of `tpcc --json`: samples of a second of about twelve days.
pub const MOST_RESULT: u64 = 128 << 20;
/// Most bytes of what a program prints, or of a profile that it writes.
pub const MOST_OUTPUT: u64 = 1 << 30;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refuses it.
    #[error("{}: cannot be read: {source}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It has more bytes than such a file can have.
    #[error("{}: larger than {}, so not {expected}", path.display(), in_mib(*limit))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Most bytes that are read.
        limit: u64,
        /// What it should be: "what 'tpcc run --json' wrote".
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

/// The bytes of the file `path`, which may be a pipe or a device: at most `limit` of them. `expected` says what the file should be.
///
/// # Errors
/// [`ReadError`]
pub fn read_file(path: &Path, limit: u64, expected: &'static str) -> Result<Vec<u8>, ReadError> {
    let refused = |source| ReadError::Refused { path: path.to_owned(), source };
    let bytes = File::open(path).and_then(|file| read_within(file, limit)).map_err(refused)?;
    bytes.ok_or_else(|| ReadError::TooLarge { path: path.to_owned(), limit, expected })
}

/// The text that a program has written to the file `path`; nothing where there is none, or more than [`MOST_OUTPUT`] bytes.
pub fn read_output(path: &Path) -> String {
    let bytes = read_file(path, MOST_OUTPUT, "the output of a program");
    bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Everything that comes from a reader; none if that is more than `limit` bytes, of which one more is read at most.
///
/// # Errors
/// Those of the reader.
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
