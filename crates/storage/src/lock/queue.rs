//! Queue rules for the requests of one name: the owners that a request waits for, and the order of grants. The rules only
//! read and change a latched list.

use std::ops::ControlFlow;

use super::family::{self, Kinship, kinship};
use super::membership::FormerLock;
use super::mode::{GapMode, RecordMode};
use super::name::LockName;
use super::request::Request;
use super::table::LatchedBucket;
use super::wait::{OwnerSlot, WaitOutcome, Wakes};
use crate::base::ids::SlotId;

/// A request that is queued or about to be queued.
pub(super) struct LockRequestView<'a> {
    /// The slots of all owners.
    pub(super) slots: &'a [OwnerSlot],
    pub(super) owner: SlotId,
    pub(super) table: u32,
    pub(super) name: LockName,
    /// Part of the requested mode that exceeds the mode which the owner already holds.
    pub(super) claim: GapMode,
    /// True if the owner holds a weaker lock on the name. The request is then a conversion, which precedes new requests.
    pub(super) converting: bool,
    /// The request itself if it is in the list. Requests behind it in the list have no effect on it.
    pub(super) queued: Option<&'a Request>,
}

impl<'a> LockRequestView<'a> {
    /// Creates the view of a waiting request.
    pub(super) fn of(slots: &'a [OwnerSlot], request: &'a Request) -> LockRequestView<'a> {
        LockRequestView {
            slots,
            owner: request.owner,
            table: request.table.get(),
            name: request.name.get(),
            claim: request.wants_beyond_held(),
            converting: !request.is_new_waiter(),
            queued: Some(request),
        }
    }

    /// Calls `found` with every owner that the requester has to wait for (with some of them twice), until `found` breaks.
    ///
    /// These are the owners of held modes that exclude the claim and, to prevent starvation, the owners of earlier queued
    /// requests that would exclude the claim. For a conversion, only earlier conversions count as earlier requests. The
    /// requester passes an earlier request that waits *because of a mode that the requester holds*, because otherwise both
    /// would wait forever. Owners of the requester's family have rules of their own: see [`super::family`].
    pub(super) fn blockers(&self, list: &LatchedBucket<'_>, mut found: impl FnMut(SlotId) -> ControlFlow<()>) {
        let mut ahead = true;
        for other in list.iter() {
            if self.queued.is_some_and(|me| std::ptr::eq(me, other)) {
                ahead = false;
                continue;
            }
            if !other.is_for(self.table, self.name) || other.owner == self.owner {
                continue;
            }
            let holds = !other.held.get().is_none();
            let holds_it = holds && other.holds().excludes(self.claim);
            let waits_for_it = other.waiting.get() && other.wants().excludes(self.claim);
            // U is granted beside S, but S is not granted beside U.
            let is_in_its_way = other.waiting.get() && self.claim.excludes(other.wants());
            let excluded = (holds_it && kinship(self.slots, self.owner, other, false).excludes_held())
                || ((waits_for_it || is_in_its_way)
                    && match kinship(self.slots, self.owner, other, true) {
                        Kinship::Stranger => {
                            waits_for_it && ahead && (holds || !self.converting) && !self.blocks(list, other)
                        }
                        Kinship::Earlier => true,
                        Kinship::Later | Kinship::Settled => false,
                    });
            if excluded && found(other.owner).is_break() {
                return;
            }
        }
    }

    /// Returns true if a lock of the requester makes `other` wait. If `other` is of another transaction, also locks of the
    /// requester's family count, and its requests ahead of `other`.
    fn blocks(&self, list: &LatchedBucket<'_>, other: &Request) -> bool {
        let is_kin = family::are_kin(self.slots, self.owner, other.owner);
        let mut is_ahead = true;
        list.iter().any(|mine| {
            is_ahead &= !std::ptr::eq(mine, other);
            if !mine.is_for(self.table, self.name) {
                return false;
            }
            let of_family = !is_kin && family::are_kin(self.slots, self.owner, mine.owner);
            let beyond = other.wants_beyond_held();
            ((mine.owner == self.owner || of_family) && !mine.held.get().is_none() && mine.holds().excludes(beyond))
                || (of_family && is_ahead && mine.waiting.get() && mine.wants().excludes(beyond))
        })
    }

    /// Returns true if the requester has to wait.
    pub(super) fn is_blocked(&self, list: &LatchedBucket<'_>) -> bool {
        let mut blocked = false;
        self.blockers(list, |_| {
            blocked = true;
            ControlFlow::Break(())
        });
        blocked
    }
}

/// Iterates over the requests by which `owner` holds `name` in `table`: one for each of its epochs, and one outside of loops.
/// Ignores requests to insert.
pub(super) fn all_held<'a>(
    list: &'a LatchedBucket<'_>,
    owner: SlotId,
    table: u32,
    name: LockName,
) -> impl Iterator<Item = &'a Request> {
    list.iter().filter(move |r| {
        r.owner == owner && r.is_for(table, name) && !r.held.get().is_none() && !r.held.get().is_insert()
    })
}

/// Returns the request by which `owner` has locked `name` in `table` in its epoch `epoch`.
pub(super) fn find_held<'a>(
    list: &'a LatchedBucket<'_>,
    owner: SlotId,
    table: u32,
    name: LockName,
    epoch: u16,
) -> Option<&'a Request> {
    all_held(list, owner, table, name).find(|request| request.epoch.get() == epoch)
}

/// Returns the request by which `owner` waits for `name`.
pub(super) fn find_waiting<'a>(list: &'a LatchedBucket<'_>, owner: SlotId, name: LockName) -> Option<&'a Request> {
    list.iter().find(|r| r.owner == owner && r.name.get() == name && r.waiting.get())
}

/// Grants all requests for `name` that can be granted, in order. Called after a lock was released. In the list, conversions
/// precede new requests, so a grant never unblocks an earlier request, except one of the same family (see [`super::family`]):
/// hence the further passes.
pub(super) fn grant(slots: &[OwnerSlot], list: &LatchedBucket<'_>, name: LockName, wakes: &mut Wakes) {
    loop {
        let mut unblocks = false;
        for request in list.iter() {
            if request.waiting.get()
                && request.name.get() == name
                && !LockRequestView::of(slots, request).is_blocked(list)
            {
                request.set_held(request.wants());
                request.waiting.set(false);
                unblocks |= family::note_awaited(slots, list, request);
                wakes.push(request.owner, WaitOutcome::Granted);
            }
        }
        if !unblocks {
            return;
        }
    }
}

/// Ends the wait of `request` without a grant: a new request is removed, and a conversion keeps its held mode. Then grants
/// the requests behind it that can be granted.
pub(super) fn withdraw(
    slots: &[OwnerSlot],
    list: &LatchedBucket<'_>,
    request: &Request,
    outcome: WaitOutcome,
    wakes: &mut Wakes,
) {
    let name = request.name.get();
    request.waiting.set(false);
    wakes.push(request.owner, outcome);
    if request.held.get().is_none() {
        list.unlink(request);
    }
    grant(slots, list, name, wakes);
}

/// Removes a held request from the list, and grants the requests that the removal unblocks.
pub(super) fn release(slots: &[OwnerSlot], list: &LatchedBucket<'_>, request: &Request, wakes: &mut Wakes) {
    list.unlink(request);
    request.held.set(RecordMode::NONE);
    grant(slots, list, request.name.get(), wakes);
}

/// Like [`release`], for an owner that releases all its locks. Nothing is granted before the owner's last request for the
/// name is removed: a grant after the removal of only one of two requests could let a later request overtake an earlier
/// request that the owner's other request still blocks.
pub(super) fn release_at_end(slots: &[OwnerSlot], list: &LatchedBucket<'_>, request: &Request, wakes: &mut Wakes) {
    let name = request.name.get();
    if list.iter().any(|r| r.owner == request.owner && r.name.get() == name && !std::ptr::eq(r, request)) {
        list.unlink(request);
        request.held.set(RecordMode::NONE);
    } else {
        release(slots, list, request, wakes);
    }
}

/// Grants the claim of `asked` by a request of a settled epoch of its owner that is not stronger, if there is one. Remembers
/// the request in `former`.
pub(super) fn take_over(
    former: &mut Vec<FormerLock>,
    epoch: u16,
    list: &LatchedBucket<'_>,
    asked: &LockRequestView<'_>,
) -> bool {
    let mut settled = all_held(list, asked.owner, asked.table, asked.name);
    // A kept gap excludes no kin, so it stays a request of its own.
    let is_weaker =
        |request: &&Request| request.held.get() != RecordMode::KEPT_GAP && asked.claim.covers(request.holds());
    let Some(request) = settled.find(is_weaker) else { return false };
    let held = request.holds();
    former.push(FormerLock { position: request.position, held, epoch: request.epoch.get() });
    request.set_held(held.union(asked.claim));
    request.epoch.set(epoch);
    family::note_awaited(asked.slots, list, request);
    true
}
