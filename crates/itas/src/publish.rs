//! Communication from masters to slaves: the group whose siblings a master runs one after the other (the paper's
//! `ia_mm`).
//!
//! There is one word per master, on its own cache line. The master stores the group in it, and slaves load it at their
//! next choice; there is no lock, and no core waits for another. A slave that reads an old group follows that group for
//! one slice too long, and loses only the locality of that slice.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::group::GroupId;

/// Published value without a group (`ia_mm` is NULL).
const NONE: u64 = GroupId::NONE.word();
/// Stored role of a master. A slave stores the number of its master.
const MASTER: u32 = u32::MAX;

/// Role of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The core publishes the group that it aggregates.
    Master,
    /// The core follows the master of this number. If the core of this number is not a master, no group is published
    /// for this core.
    SlaveOf(usize),
}

/// Shared words by which cores coordinate. There may be several masters.
#[derive(Debug)]
pub struct Board {
    published: Box<[CachePadded<AtomicU64>]>,
    roles: Box<[AtomicU32]>,
}

impl Board {
    /// Creates the board of `cores` cores. The first core is the master of all others, as in the paper's evaluation.
    #[must_use]
    pub fn new(cores: usize) -> Board {
        Board {
            published: (0..cores).map(|_| CachePadded::new(AtomicU64::new(NONE))).collect(),
            roles: (0..cores).map(|core| AtomicU32::new(if core == 0 { MASTER } else { 0 })).collect(),
        }
    }

    /// Returns the number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.roles.len()
    }

    /// Returns the role of `core`.
    #[inline]
    #[must_use]
    pub fn role(&self, core: usize) -> Role {
        match self.roles[core].load(Ordering::Relaxed) {
            MASTER => Role::Master,
            master => Role::SlaveOf(master as usize),
        }
    }

    /// Changes the role of `core`, even while the core runs. Returns false, without a change, if the core or its new
    /// master does not exist, or if the core would be its own master.
    pub fn set_role(&self, core: usize, role: Role) -> bool {
        let word = match role {
            Role::Master => MASTER,
            Role::SlaveOf(master) if master < self.cores() && master != core => master as u32,
            Role::SlaveOf(_) => return false,
        };
        let Some(slot) = self.roles.get(core) else { return false };
        slot.store(word, Ordering::Relaxed);
        self.published[core].store(NONE, Ordering::Relaxed);
        true
    }

    /// Returns the group that the master `core` publishes.
    #[inline]
    #[must_use]
    pub fn published(&self, core: usize) -> Option<GroupId> {
        let group = self.published[core].load(Ordering::Relaxed);
        (group != NONE).then(|| GroupId::of_word(group))
    }

    /// Publishes `group` for the master `core`, or no group if it is `None`. Stores the word only if it changes, so
    /// that the cache line otherwise stays in the caches of the slaves.
    #[inline]
    pub fn publish(&self, core: usize, group: Option<GroupId>) {
        let word = group.unwrap_or(GroupId::NONE).word();
        let slot = &self.published[core];
        if slot.load(Ordering::Relaxed) != word {
            slot.store(word, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_masters_publish_and_roles_change() {
        let board = Board::new(4);
        assert_eq!((board.role(0), board.role(3)), (Role::Master, Role::SlaveOf(0)));
        assert!(board.set_role(2, Role::Master) && board.set_role(3, Role::SlaveOf(2)));
        assert!(!board.set_role(3, Role::SlaveOf(3)) && !board.set_role(3, Role::SlaveOf(9)));
        assert!(!board.set_role(4, Role::Master));
        board.publish(0, Some(GroupId::numbered(7)));
        board.publish(2, Some(GroupId::numbered(8)));
        assert_eq!((board.published(0), board.published(2)), (Some(GroupId::numbered(7)), Some(GroupId::numbered(8))));
        board.set_role(0, Role::SlaveOf(2));
        assert_eq!(board.published(0), None);
    }
}
