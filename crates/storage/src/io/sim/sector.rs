//! Sectors: what a simulated disk writes whole, or tears.

use std::sync::Arc;

/// The unit a disk writes whole, or tears.
pub(super) const SECTOR: u64 = 512;

/// Contents of a sector; `None` is all zeros, so that empty space takes no memory.
pub(super) type Sector = Option<Arc<[u8; SECTOR as usize]>>;

pub(super) fn bytes(sector: &Sector) -> [u8; SECTOR as usize] {
    sector.as_ref().map_or([0; SECTOR as usize], |bytes| **bytes)
}

pub(super) fn pack(bytes: [u8; SECTOR as usize]) -> Sector {
    if bytes == [0; SECTOR as usize] { None } else { Some(Arc::new(bytes)) }
}
