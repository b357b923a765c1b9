//! Sibling groups: fibers of one database, tenant or client program.
//!
//! A group is what the paper calls a memory address space: its fibers are taken to share a working set. The table of
//! groups is shared by all cores; what is in it may be changed while fibers run, as by the paper's system calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

/// The weight of a fiber that is neither preferred nor put back: CFS' weight of a thread with nice level 0.
pub const DEFAULT_WEIGHT: u32 = 1024;
/// Groups that a table holds at most at a time.
pub const MAX_GROUPS: usize = 1 << 16;

/// Names a group of a [`Groups`], and no other of that table or of another one, as long as the process creates fewer than
/// 2^32 groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    index: u32,
    stamp: u32,
}

/// The stamp of the next group of any table.
static NEXT_STAMP: AtomicU32 = AtomicU32::new(1);

impl GroupId {
    /// A name that no group has.
    pub(crate) const NONE: GroupId = GroupId { index: u32::MAX, stamp: 0 };

    /// Its number, from 0. The number of a group that was removed is used again; statistics by number go on there.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// A new name of the group with this number.
    fn fresh(index: usize) -> GroupId {
        GroupId { index: index as u32, stamp: NEXT_STAMP.fetch_add(1, Ordering::Relaxed) }
    }

    /// The name in one word.
    pub(crate) const fn word(self) -> u64 {
        (self.stamp as u64) << 32 | self.index as u64
    }

    /// The name that the word holds.
    pub(crate) fn of_word(word: u64) -> GroupId {
        GroupId { index: word as u32, stamp: (word >> 32) as u32 }
    }

    /// The name of a group in tests without a table.
    #[cfg(test)]
    pub(crate) fn numbered(index: u32) -> GroupId {
        GroupId { index, stamp: 0 }
    }
}

/// How far the fibers of a group may be preferred because they are siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregation {
    /// `agg_bonus`: a sibling is preferred to the fiber with the highest priority while its vruntime is at most this much
    /// larger.
    pub bonus: Duration,
    /// `agg_limit`: siblings chosen in a row before the fiber with the highest priority is chosen in any case.
    pub limit: u32,
}

impl Default for Aggregation {
    /// A bonus of 10 ms and a limit of 16.
    fn default() -> Aggregation {
        Aggregation { bonus: Duration::from_millis(10), limit: 16 }
    }
}

/// Why a group, or a change of one, was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A weight of 0 would never be charged for what it runs.
    #[error("group '{0}': a weight of 0; from 1, where {DEFAULT_WEIGHT} is the normal one")]
    NoWeight(String),
    /// A bonus that no vruntime reaches would let siblings starve everyone else.
    #[error("group '{group}': an aggregation bonus of {bonus:?}; at most {}", humantime(MAX_BONUS))]
    Bonus {
        /// The group's name.
        group: String,
        /// What was asked for.
        bonus: Duration,
    },
    /// The table is full.
    #[error("more than {MAX_GROUPS} groups at a time; remove those that have no fibers")]
    TooMany,
    /// Fibers of the group live.
    #[error("group '{group}' has {fibers} live fibers; it can be destroyed when they have ended")]
    Live {
        /// The group's name.
        group: String,
        /// Its fibers.
        fibers: usize,
    },
    /// A group of another table, or one that was removed. Holds its number.
    #[error("group {0} is not one of this runtime's, or was removed")]
    Unknown(usize),
}

/// The largest bonus: beyond it a bound on waiting says nothing.
pub const MAX_BONUS: Duration = Duration::from_secs(3600);

/// Nanoseconds of a duration; the largest number for one that has more.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn humantime(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}

/// A group, as cores see it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) name: String,
    pub(crate) weight: u32,
    bonus_ns: AtomicU64,
    limit: AtomicU32,
    /// Fibers that were spawned and have not ended.
    live: AtomicUsize,
    /// Fibers that were ever spawned.
    seats: AtomicUsize,
}

impl Group {
    /// Its aggregation, in nanoseconds and fibers. The two may be of different changes.
    #[inline]
    pub(crate) fn aggregation(&self) -> (u64, u32) {
        (self.bonus_ns.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed))
    }

    fn set(&self, aggregation: Aggregation) {
        self.bonus_ns.store(nanos(aggregation.bonus), Ordering::Relaxed);
        self.limit.store(aggregation.limit, Ordering::Relaxed);
    }
}

/// The groups of a runtime.
#[derive(Debug, Default)]
pub struct Groups {
    table: RwLock<GroupTable>,
}

/// Groups by number.
#[derive(Debug, Default)]
struct GroupTable {
    groups: Vec<Option<Arc<Group>>>,
    /// Numbers below the table's length that no group has.
    unused: Vec<usize>,
}

impl GroupTable {
    fn get(&self, id: GroupId) -> Result<&Arc<Group>, GroupError> {
        let group = self.groups.get(id.index()).and_then(Option::as_ref);
        group.filter(|group| group.id == id).ok_or(GroupError::Unknown(id.index()))
    }
}

impl Groups {
    /// An empty table.
    #[must_use]
    pub fn new() -> Groups {
        Groups::default()
    }

    /// Adds a group whose fibers have `weight`: with twice the weight, a fiber gets twice the time.
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

    /// Changes how far siblings are preferred. Cores take it in when they next choose.
    ///
    /// # Errors
    /// An unknown group, a bonus above [`MAX_BONUS`].
    pub fn set_aggregation(&self, group: GroupId, aggregation: Aggregation) -> Result<(), GroupError> {
        let group = self.get(group)?;
        check(&group.name, aggregation)?;
        group.set(aggregation);
        Ok(())
    }

    /// How far siblings are preferred now.
    ///
    /// # Errors
    /// An unknown group.
    pub fn aggregation(&self, group: GroupId) -> Result<Aggregation, GroupError> {
        let (bonus, limit) = self.get(group)?.aggregation();
        Ok(Aggregation { bonus: Duration::from_nanos(bonus), limit })
    }

    /// Its name.
    ///
    /// # Errors
    /// An unknown group.
    pub fn name(&self, group: GroupId) -> Result<String, GroupError> {
        Ok(self.get(group)?.name.clone())
    }

    /// Forgets a group without fibers. Its number is free for another one, and its name means nothing any more.
    ///
    /// # Errors
    /// An unknown group, live fibers.
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

    /// The groups that there are.
    #[must_use]
    pub fn ids(&self) -> Vec<GroupId> {
        self.table.read().groups.iter().flatten().map(|group| group.id).collect()
    }

    pub(crate) fn get(&self, group: GroupId) -> Result<Arc<Group>, GroupError> {
        self.table.read().get(group).cloned()
    }

    /// The group, counted as having one more fiber.
    pub(crate) fn enter(&self, group: GroupId) -> Result<GroupEntry, GroupError> {
        Ok(GroupEntry::new(self.table.read().get(group)?))
    }
}

/// A group that is not removed meanwhile: it counts as one of its fibers.
#[derive(Debug)]
pub(crate) struct GroupEntry(Arc<Group>);

impl GroupEntry {
    /// The group is in its table, by another entry or by the table's lock.
    fn new(group: &Arc<Group>) -> GroupEntry {
        group.live.fetch_add(1, Ordering::AcqRel);
        GroupEntry(Arc::clone(group))
    }

    pub(crate) fn id(&self) -> GroupId {
        self.0.id
    }

    /// The number of the next fiber in the group.
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
