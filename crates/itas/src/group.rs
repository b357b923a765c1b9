//! Sibling groups: fibers of one database, tenant or client program.
//!
//! A group corresponds to a memory address space of the paper: its fibers are assumed to share a working set. All cores
//! share the table of groups. Its entries may be changed while fibers run, as by the paper's system calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

/// Default weight of a fiber: the weight of a CFS thread with nice level 0.
pub const DEFAULT_WEIGHT: u32 = 1024;
/// Maximum number of groups in a table.
pub const MAX_GROUPS: usize = 1 << 16;

/// Identifier of a group of a [`Groups`]. It is unique over all tables in the process, until the process has created
/// 2^32 groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    index: u32,
    stamp: u32,
}

/// Stamp of the group that is created next, in any table.
static NEXT_STAMP: AtomicU32 = AtomicU32::new(1);

impl GroupId {
    /// Identifier that stands for no group.
    pub(crate) const NONE: GroupId = GroupId { index: u32::MAX, stamp: 0 };

    /// Returns the number of the group, from 0. The number of a removed group is reused for a new group, and statistics
    /// that are indexed by number then continue for the new group.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// Creates a new identifier for group number `index`.
    fn fresh(index: usize) -> GroupId {
        GroupId { index: index as u32, stamp: NEXT_STAMP.fetch_add(1, Ordering::Relaxed) }
    }

    /// Encodes the identifier as a 64-bit word.
    pub(crate) const fn word(self) -> u64 {
        (self.stamp as u64) << 32 | self.index as u64
    }

    /// Decodes an identifier from its 64-bit word.
    pub(crate) fn of_word(word: u64) -> GroupId {
        GroupId { index: word as u32, stamp: (word >> 32) as u32 }
    }

    /// Creates an identifier for tests without a table.
    #[cfg(test)]
    pub(crate) fn numbered(index: u32) -> GroupId {
        GroupId { index, stamp: 0 }
    }
}

/// Aggregation parameters: the extent to which the fibers of a group are preferred as siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregation {
    /// `agg_bonus`: a sibling is preferred to the fiber with the highest priority if its vruntime exceeds that fiber's
    /// vruntime by at most this duration.
    pub bonus: Duration,
    /// `agg_limit`: maximum number of siblings chosen in a row before the fiber with the highest priority is chosen.
    pub limit: u32,
}

impl Default for Aggregation {
    /// Returns a bonus of 10 ms and a limit of 16.
    fn default() -> Aggregation {
        Aggregation { bonus: Duration::from_millis(10), limit: 16 }
    }
}

/// Error of adding, changing or removing a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The weight is 0: the fibers of the group would never be charged for their run time.
    #[error("group '{0}': a weight of 0; from 1, where {DEFAULT_WEIGHT} is the normal one")]
    NoWeight(String),
    /// The bonus is too large: siblings would starve all other fibers.
    #[error("group '{group}': an aggregation bonus of {bonus:?}; at most {}", humantime(MAX_BONUS))]
    Bonus {
        /// Name of the group.
        group: String,
        /// Requested bonus.
        bonus: Duration,
    },
    /// The table is full.
    #[error("more than {MAX_GROUPS} groups at a time; remove those that have no fibers")]
    TooMany,
    /// The group has live fibers.
    #[error("group '{group}' has {fibers} live fibers; it can be destroyed when they have ended")]
    Live {
        /// Name of the group.
        group: String,
        /// Number of live fibers of the group.
        fibers: usize,
    },
    /// The group belongs to another table, or was removed. Contains the number of the group.
    #[error("group {0} is not one of this runtime's, or was removed")]
    Unknown(usize),
}

/// Maximum bonus. With a larger bonus a bound on waiting is meaningless.
pub const MAX_BONUS: Duration = Duration::from_secs(3600);

/// Returns the nanoseconds of a duration, saturated at `u64::MAX`.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn humantime(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}

/// Data of a group that cores use.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) name: String,
    pub(crate) weight: u32,
    bonus_ns: AtomicU64,
    limit: AtomicU32,
    /// Number of fibers that were spawned and have not ended.
    live: AtomicUsize,
    /// Number of fibers that were ever spawned.
    seats: AtomicUsize,
}

impl Group {
    /// Returns the bonus in nanoseconds and the limit. The two values may come from different updates.
    #[inline]
    pub(crate) fn aggregation(&self) -> (u64, u32) {
        (self.bonus_ns.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed))
    }

    fn set(&self, aggregation: Aggregation) {
        self.bonus_ns.store(nanos(aggregation.bonus), Ordering::Relaxed);
        self.limit.store(aggregation.limit, Ordering::Relaxed);
    }
}

/// Table of the groups of a runtime.
#[derive(Debug, Default)]
pub struct Groups {
    table: RwLock<GroupTable>,
}

/// Groups, indexed by number.
#[derive(Debug, Default)]
struct GroupTable {
    groups: Vec<Option<Arc<Group>>>,
    /// Unused group numbers below the table's length.
    unused: Vec<usize>,
}

impl GroupTable {
    fn get(&self, id: GroupId) -> Result<&Arc<Group>, GroupError> {
        let group = self.groups.get(id.index()).and_then(Option::as_ref);
        group.filter(|group| group.id == id).ok_or(GroupError::Unknown(id.index()))
    }
}

impl Groups {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Groups {
        Groups::default()
    }

    /// Adds a group whose fibers have weight `weight`. A fiber with twice the weight gets twice the run time.
    ///
    /// # Errors
    /// A weight of 0, a bonus above [`MAX_BONUS`], too many groups.
    pub fn add(&self, name: &str, weight: u32, aggregation: Aggregation) -> Result<GroupId, GroupError> {
        if weight == 0 {
            return Err(GroupError::NoWeight(name.to_owned()));
        }
        check(name, aggregation)?;
        let mut table = self.table.write();
        if table.unused.is_empty() && table.groups.len() == MAX_GROUPS {
            return Err(GroupError::TooMany);
        }
        let index = table.unused.pop().unwrap_or(table.groups.len());
        let id = GroupId::fresh(index);
        let group = Group {
            id,
            name: name.to_owned(),
            weight,
            bonus_ns: AtomicU64::new(0),
            limit: AtomicU32::new(0),
            live: AtomicUsize::new(0),
            seats: AtomicUsize::new(0),
        };
        group.set(aggregation);
        if index == table.groups.len() {
            table.groups.push(None);
        }
        table.groups[index] = Some(Arc::new(group));
        Ok(id)
    }

    /// Changes the aggregation parameters of a group. Cores apply the new parameters at their next choice.
    ///
    /// # Errors
    /// An unknown group, a bonus above [`MAX_BONUS`].
    pub fn set_aggregation(&self, group: GroupId, aggregation: Aggregation) -> Result<(), GroupError> {
        let group = self.get(group)?;
        check(&group.name, aggregation)?;
        group.set(aggregation);
        Ok(())
    }

    /// Returns the current aggregation parameters of a group.
    ///
    /// # Errors
    /// An unknown group.
    pub fn aggregation(&self, group: GroupId) -> Result<Aggregation, GroupError> {
        let (bonus, limit) = self.get(group)?.aggregation();
        Ok(Aggregation { bonus: Duration::from_nanos(bonus), limit })
    }

    /// Returns the name of a group.
    ///
    /// # Errors
    /// An unknown group.
    pub fn name(&self, group: GroupId) -> Result<String, GroupError> {
        Ok(self.get(group)?.name.clone())
    }

    /// Removes a group that has no live fibers. Its number becomes free for another group, and its identifier becomes
    /// invalid.
    ///
    /// # Errors
    /// The group is unknown, or has live fibers.
    pub fn remove(&self, group: GroupId) -> Result<(), GroupError> {
        let mut table = self.table.write();
        let found = table.get(group)?;
        let fibers = found.live.load(Ordering::Acquire);
        if fibers > 0 {
            return Err(GroupError::Live { group: found.name.clone(), fibers });
        }
        table.groups[group.index()] = None;
        table.unused.push(group.index());
        Ok(())
    }

    /// Returns the identifiers of all groups.
    #[must_use]
    pub fn ids(&self) -> Vec<GroupId> {
        self.table.read().groups.iter().flatten().map(|group| group.id).collect()
    }

    pub(crate) fn get(&self, group: GroupId) -> Result<Arc<Group>, GroupError> {
        self.table.read().get(group).cloned()
    }

    /// Returns the group and counts one more fiber in it.
    pub(crate) fn enter(&self, group: GroupId) -> Result<GroupEntry, GroupError> {
        Ok(GroupEntry::new(self.table.read().get(group)?))
    }
}

/// Reference that prevents the removal of a group: the reference counts as a live fiber of the group.
#[derive(Debug)]
pub(crate) struct GroupEntry(Arc<Group>);

impl GroupEntry {
    /// Creates an entry. The caller guarantees that the group is in its table, by another entry or by the table's lock.
    fn new(group: &Arc<Group>) -> GroupEntry {
        group.live.fetch_add(1, Ordering::AcqRel);
        GroupEntry(Arc::clone(group))
    }

    pub(crate) fn id(&self) -> GroupId {
        self.0.id
    }

    /// Returns the number of the next fiber in the group.
    pub(crate) fn next_seat(&self) -> usize {
        self.0.seats.fetch_add(1, Ordering::Relaxed)
    }
}

impl Clone for GroupEntry {
    fn clone(&self) -> GroupEntry {
        GroupEntry::new(&self.0)
    }
}

impl Drop for GroupEntry {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::AcqRel);
    }
}

fn check(name: &str, aggregation: Aggregation) -> Result<(), GroupError> {
    if aggregation.bonus > MAX_BONUS {
        return Err(GroupError::Bonus { group: name.to_owned(), bonus: aggregation.bonus });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let groups = Groups::new();
        let some = Aggregation::default();
        assert!(matches!(groups.add("a", 0, some), Err(GroupError::NoWeight(_))));
        let endless = Aggregation { bonus: Duration::MAX, ..some };
        assert!(matches!(groups.add("a", 1, endless), Err(GroupError::Bonus { .. })));
        let a = groups.add("a", 1, some).unwrap();
        assert!(matches!(groups.set_aggregation(a, endless), Err(GroupError::Bonus { .. })));
        assert_eq!(groups.set_aggregation(GroupId::numbered(7), some), Err(GroupError::Unknown(7)));
    }

    #[test]
    fn a_group_with_fibers_stays() {
        let groups = Groups::new();
        let a = groups.add("a", 1, Aggregation::default()).unwrap();
        let entered = groups.enter(a).unwrap();
        assert_eq!(groups.remove(a), Err(GroupError::Live { group: "a".to_owned(), fibers: 1 }));
        drop(entered);
        groups.remove(a).unwrap();
        assert_eq!(groups.remove(a), Err(GroupError::Unknown(0)));
        assert!(groups.enter(a).is_err() && groups.ids().is_empty());
        let b = groups.add("b", 1, Aggregation::default()).unwrap();
        assert_eq!(b.index(), 0, "the number is used again");
        assert!(groups.name(a).is_err(), "by another name");
    }

    #[test]
    fn groups_come_and_go_without_end() {
        let groups = Groups::new();
        for _ in 0..2 * MAX_GROUPS {
            let group = groups.add("tenant", 1, Aggregation::default()).unwrap();
            groups.remove(group).unwrap();
        }
    }

    #[test]
    fn a_group_of_another_table_is_unknown() {
        let (one, other) = (Groups::new(), Groups::new());
        let group = one.add("a", 1, Aggregation::default()).unwrap();
        other.add("b", 1, Aggregation::default()).unwrap();
        assert!(other.enter(group).is_err() && one.enter(group).is_ok());
        assert_eq!(GroupId::of_word(group.word()), group);
    }
}
