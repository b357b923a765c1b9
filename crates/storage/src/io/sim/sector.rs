//! Sectors: the unit that a simulated disk writes as a whole, or tears.

use std::ops::Range;
use std::sync::Arc;

/// Size of a sector in bytes: the unit that a disk writes as a whole, or tears.
pub(super) const SECTOR: u64 = 512;

/// Bytes of a sector.
pub(super) type Contents = [u8; SECTOR as usize];

/// A version of a sector. `None` stands for all zeros, so that empty space takes no memory.
pub(super) type Sector = Option<Arc<Contents>>;

/// Contents of a sector that was never written.
pub(super) static ZEROS: Contents = [0; SECTOR as usize];

pub(super) fn bytes(sector: &Sector) -> &Contents {
    sector.as_deref().unwrap_or(&ZEROS)
}

pub(super) fn pack(bytes: &Contents) -> Sector {
    if *bytes == ZEROS { None } else { Some(Arc::new(*bytes)) }
}

/// Splits a transfer into parts that each lie in one unit of `unit` bytes. Calls `f(number of the unit, offset in it, range
/// of the buffer)` for each part.
pub(super) fn each_unit(unit: u64, off: u64, len: usize, mut f: impl FnMut(u64, usize, Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = off + done as u64;
        let within = (at % unit) as usize;
        let n = (len - done).min(unit as usize - within);
        f(at / unit, within, done..done + n);
        done += n;
    }
}
