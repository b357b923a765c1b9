//! Delay of reads of the data file: simulates a device with latency on a machine that has none.

use std::io;
use std::time::Duration;

use storage::disk::{DiskFile, Layer};

/// Prefix of the names of the files whose reads are delayed.
pub(super) const PAGES: &str = "pages.";

/// Delays each read.
#[derive(Debug)]
pub(super) struct ReadDelay(pub(super) Duration);

impl Layer for ReadDelay {
    /// Sleeps before the read, so that other threads use the core as during a device access.
    fn read_at(&self, file: &dyn DiskFile, buf: &mut [u8], off: u64) -> io::Result<usize> {
        std::thread::sleep(self.0);
        file.read_at(buf, off)
    }
}
