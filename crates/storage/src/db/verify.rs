//! Reading every page in use to see that it is what was written.

use crate::base::error::StorageError;
use crate::base::ids::PageId;
use crate::btree::ops;
use crate::btree::space::{FIRST_PAGE, SPACE_PAGE};
use crate::txn::core::Core;

/// Brings every page below the allocator's end through the pool, whose reads verify checksum and number.
///
/// # Errors
/// The first damage, or a failed read.
pub(crate) fn verify_pages(core: &Core) -> Result<u64, StorageError> {
    let end = core.pool.get_or_load(SPACE_PAGE)?.bytes().u32(ops::space::END);
    for id in FIRST_PAGE..end {
        core.pool.get_or_load(PageId(id))?;
    }
    Ok(u64::from(end))
}
