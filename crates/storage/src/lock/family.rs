//! Families: the owners of one transaction whose loop runs on several threads.
//!
//! A transaction and the *members* that run the epochs of its loops are a family. For other transactions the family is one
//! owner: whoever waits for a lock of a member waits for the whole family. Inside the family, locks keep the epochs in the
//! order of the loop, so that the result is that of a loop on one thread (Colohan et al., *Incrementally Parallelizing
//! Database Transactions with Thread-Level Speculation*, TOCS 2008, with locks in place of the paper's caches).
//!
//! An epoch is *settled* when it and all earlier epochs have ended: nothing can roll it back alone any more. Locks of settled
//! epochs, and those of the transaction itself, exclude nobody in the family. Between two epochs that are not settled:
//!
//! | an epoch holds or waits for | another epoch requests a lock that this excludes | outcome |
//! | --- | --- | --- |
//! | the earlier one holds a lock | the later one | waits until the earlier one is settled |
//! | the earlier one waits | the later one | waits until the earlier one is settled, whoever came first |
//! | the later one holds a lock | the earlier one | *wounds* the later one, which is rolled back and runs again |
//! | the later one waits | the earlier one | passes |
//!
//! A later write after an earlier read would be the wanted order. It waits all the same, because epochs write in place: the
//! earlier epoch may read the row once more, and its lock would let it.
//!
//! Earlier epochs wait for later ones only until these are rolled back, so the epochs cannot wait for each other in a cycle.
//! The first epoch that is not settled is never wounded, so a loop always ends.
//!
//! A member runs one epoch after the other and keeps the locks of its settled epochs. Each request therefore names the epoch
//! that has taken the lock ([`Request::epoch`]). An epoch that needs a lock which its member holds from a settled epoch makes
//! a request of its own, because the epochs of other members may lie between the two. It takes over a settled request that is
//! not stronger, so a member has few requests for a name, however often its epochs use it; a rollback gives the request back.
//!
//! An insert divides the gap above it. If a settled epoch of the family has locked this gap, the inserter locks both halves,
//! as for a gap of its own. A rollback of the inserter leaves the key as a ghost, which still divides the gap: so the lock on
//! the lower half stays as a *kept gap*, which excludes other transactions only.

use super::membership::{Membership, OpenEpoch};
use super::request::Request;
use super::sync::Ordering;
use super::table::LatchedBucket;
use super::wait::OwnerSlot;
use crate::base::ids::SlotId;
use crate::base::mutant::{Mutant, is_mutant};

/// Relation of another owner's request to the owner that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinship {
    /// Another transaction.
    Stranger,
    /// A settled epoch of the same family, or its transaction.
    Settled,
    Earlier,
    Later,
}

impl Kinship {
    /// Returns true if a lock makes a request wait that it excludes by its mode.
    pub(super) fn excludes_held(self) -> bool {
        self != Kinship::Settled && (self != Kinship::Earlier || !is_mutant(Mutant::PassEarlierEpochs))
    }
}

/// Returns the relation to `owner` of the mode that `other` holds, or of the mode that it waits for.
#[cold]
pub(super) fn kinship(slots: &[OwnerSlot], owner: SlotId, other: &Request, waiting: bool) -> Kinship {
    let (mine, theirs) = (&slots[usize::from(owner.0)].membership, &slots[usize::from(other.owner.0)].membership);
    let family = mine.family.load(Ordering::Relaxed);
    if family == 0 || theirs.family.load(Ordering::Relaxed) != family {
        return Kinship::Stranger;
    }
    // SeqCst: see `LockOwner::await_family`.
    let open = |membership: &Membership| OpenEpoch::decode(membership.open.load(Ordering::SeqCst));
    match (open(theirs), open(mine)) {
        (Some(theirs), Some(mine)) if waiting || theirs.number == other.epoch.get() => {
            if theirs.order < mine.order {
                Kinship::Earlier
            } else {
                Kinship::Later
            }
        }
        _ => Kinship::Settled,
    }
}

/// Returns true if both owners belong to one family.
pub(super) fn are_kin(slots: &[OwnerSlot], a: SlotId, b: SlotId) -> bool {
    let family = |owner: SlotId| slots[usize::from(owner.0)].membership.family.load(Ordering::Relaxed);
    a != b && family(a) != 0 && family(a) == family(b)
}

/// Notes for an owner that was granted `request` that later epochs of its family wait for the name. Returns true if owners of
/// its family wait.
pub(super) fn note_awaited(slots: &[OwnerSlot], list: &LatchedBucket<'_>, request: &Request) -> bool {
    let membership = &slots[usize::from(request.owner.0)].membership;
    let waits = |other: &Request| {
        other.waiting.get() && other.name.get() == request.name.get() && are_kin(slots, other.owner, request.owner)
    };
    let is_awaited = membership.family.load(Ordering::Relaxed) != 0 && list.iter().any(waits);
    if is_awaited {
        membership.awaited.store(true, Ordering::SeqCst);
    }
    is_awaited
}
