//! Identity of this program beyond its commit: sources with changes, other features or another compiler give another file,
//! which may measure other values.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of this program's own file in hexadecimal, as of the first call; `None` if the file cannot be read.
pub(super) fn digest() -> Option<&'static str> {
    static DIGEST: OnceLock<Option<String>> = OnceLock::new();
    DIGEST.get_or_init(|| std::env::current_exe().and_then(File::open).and_then(digest_of).ok()).as_deref()
}

fn digest_of(mut file: impl Read) -> io::Result<String> {
    let (mut digest, mut part) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut part)? {
            0 => break,
            n => digest.update(&part[..n]),
        }
    }
    Ok(digest.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_bytes() {
        assert_eq!(digest_of(&b"abc"[..]).unwrap(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digest().map(str::len), Some(64));
    }
}
