//! The rules of the queue of one name: which owners wait for which, and which is granted next. Pure logic on a latched
//! list.

use std::ops::ControlFlow;

use super::mode::{GapMode, RecordMode};
use super::name::LockName;
use super::request::Request;
use super::table::Latched;
use super::wait::{Outcome, Wakes};
use crate::base::ids::SlotId;

/// A request, queued or about to be.
pub(super) struct Ask<'a> {
    pub(super) owner: SlotId,
    pub(super) table: u32,
    pub(super) name: LockName,
    /// What it asks for beyond what its owner holds.
    pub(super) claim: GapMode,
    /// The owner holds a weaker lock on the name: it goes before new requests.
    pub(super) converting: bool,
    /// The request itself if it is in the list; those behind it do not matter to it.
    pub(super) queued: Option<&'a Request>,
}

impl<'a> Ask<'a> {
    /// What a waiting request asks for.
    pub(super) fn of(request: &'a Request) -> Ask<'a> {
        Ask {
            owner: request.owner,
            table: request.table.get(),
            name: request.name.get(),
            claim: request.asks(),
            converting: !request.is_new_waiter(),
            queued: Some(request),
        }
    }

    /// Calls `found` with every owner that the asker has to wait for (some of them twice), until it breaks.
    ///
    /// These are the holders of what excludes the claim, and, against starvation, the requests queued ahead that would
    /// exclude it; a conversion compares only with conversions there. The asker passes a request that waits ahead
    /// *because of what the asker holds*, else both would wait for ever.
    pub(super) fn blockers(&self, list: &Latched<'_>, mut found: impl FnMut(SlotId) -> ControlFlow<()>) {
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
            let excluded = (holds && other.holds().excludes(self.claim))
                || (ahead
                    && other.waiting.get()
                    && (holds || !self.converting)
                    && other.wants().excludes(self.claim)
                    && !self.detains(list, other));
            if excluded && found(other.owner).is_break() {
                return;
            }
        }
    }

    /// Whether a lock of the asker keeps `other` waiting.
    fn detains(&self, list: &Latched<'_>, other: &Request) -> bool {
        list.iter().any(|mine| {
            mine.owner == self.owner
                && mine.is_for(self.table, self.name)
                && !mine.held.get().is_none()
                && mine.holds().excludes(other.asks())
        })
    }

    /// Whether the asker has to wait.
    pub(super) fn is_blocked(&self, list: &Latched<'_>) -> bool {
        let mut blocked = false;
        self.blockers(list, |_| {
            blocked = true;
            ControlFlow::Break(())
        });
        blocked
    }
}

/// The request by which `owner` holds `name` in `table`, except requests to insert.
pub(super) fn find_held<'a>(list: &'a Latched<'_>, owner: SlotId, table: u32, name: LockName) -> Option<&'a Request> {
    list.iter()
        .find(|r| r.owner == owner && r.is_for(table, name) && !r.held.get().is_none() && !r.held.get().is_insert())
}

/// The request by which `owner` waits for `name`.
pub(super) fn find_waiting<'a>(list: &'a Latched<'_>, owner: SlotId, name: LockName) -> Option<&'a Request> {
    list.iter().find(|r| r.owner == owner && r.name.get() == name && r.waiting.get())
}

/// Grants what can be granted for `name`, in order, after a lock was released. The list has conversions before new
/// requests, so one pass is enough: a grant never unblocks a request further ahead.
pub(super) fn grant(list: &Latched<'_>, name: LockName, wakes: &mut Wakes) {
    for request in list.iter() {
        if request.waiting.get() && request.name.get() == name && !Ask::of(request).is_blocked(list) {
            request.set_held(request.wants());
            request.waiting.set(false);
            wakes.push(request.owner, Outcome::Granted);
        }
    }
}

/// Ends the wait of `request` without a grant: a new request disappears, a conversion keeps what it holds. Requests
/// queued behind it may be granted.
pub(super) fn withdraw(list: &Latched<'_>, request: &Request, outcome: Outcome, wakes: &mut Wakes) {
    let name = request.name.get();
    request.waiting.set(false);
    wakes.push(request.owner, outcome);
    if request.held.get().is_none() {
        list.unlink(request);
    }
    grant(list, name, wakes);
}

/// Takes a held request out of the list and grants what that allows.
pub(super) fn release(list: &Latched<'_>, request: &Request, wakes: &mut Wakes) {
    list.unlink(request);
    request.held.set(RecordMode::NONE);
    grant(list, request.name.get(), wakes);
}

/// As [`release`] where the owner releases all its locks. Nothing is granted before its last request for the name is
/// gone: between two of them a request further behind would overtake one that only the owner's other request blocks.
pub(super) fn release_at_end(list: &Latched<'_>, request: &Request, wakes: &mut Wakes) {
    let name = request.name.get();
    if list.iter().any(|r| r.owner == request.owner && r.name.get() == name && !std::ptr::eq(r, request)) {
        list.unlink(request);
        request.held.set(RecordMode::NONE);
    } else {
        release(list, request, wakes);
    }
}
