//! Lock requests, and the arena of each owner from which they are allocated.
//!
//! A request is *linked* from the moment a bucket list contains it until it is unlinked from the list. Access rules of the
//! fields:
//!
//! | field | rule |
//! | --- | --- |
//! | `owner`, `position` | written once, when the chunk is created |
//! | `next` | accessed by its owner before it is linked; under the bucket's latch after that |
//! | `name`, `table` | written by the owner before linking; readable under the latch, and by the owner at any time |
//! | `held`, `low` | under the latch; the owner reads without it while it does not wait: others write only during a wait |
//! | `want`, `want_low`, `waiting` | under the latch; by the owner when the request is not linked |
//! | `epoch` | under the latch; by the owner when the request is not linked; the owner reads without it |
//!
//! The fields are `Cell`s: the latch orders the accesses, and a `&Request` guarantees nothing about the fields. A request
//! that has been returned to the arena has `held` none. A request that is not linked is not `waiting`. An owner that takes a
//! request from the arena sets all other fields before it links the request.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use super::mode::{GapMode, RecordMode};
use super::name::{LockName, Prefix};
use crate::base::ids::SlotId;

/// Number of bits of a request's address. A bucket word holds the owner's slot above these bits.
pub(super) const ADDRESS_BITS: u32 = 48;

/// The lock of one owner on one name, or the owner's request for the lock.
#[repr(C, align(64))]
pub(super) struct Request {
    pub(super) next: Cell<*const Request>,
    pub(super) name: Cell<LockName>,
    pub(super) low: Cell<Prefix>,
    pub(super) want_low: Cell<Prefix>,
    pub(super) table: Cell<u32>,
    pub(super) position: u32,
    pub(super) owner: SlotId,
    pub(super) held: Cell<RecordMode>,
    pub(super) want: Cell<RecordMode>,
    pub(super) waiting: Cell<bool>,
    /// Number of the owner's epoch that has taken the lock or has used it last; 0 outside of loops. See [`super::family`].
    pub(super) epoch: Cell<u16>,
}

const _: () = assert!(size_of::<Request>() == 64);

impl Request {
    /// Returns true if the request is for this name in this table. Keys of two tables may have the same name by chance.
    /// Their locks are independent, because a lock on one table covers no record of the other.
    #[inline]
    pub(super) fn is_for(&self, table: u32, name: LockName) -> bool {
        self.name.get() == name && self.table.get() == table
    }

    /// Returns the mode that the owner holds.
    #[inline]
    pub(super) fn holds(&self) -> GapMode {
        GapMode { mode: self.held.get(), low: self.low.get() }
    }

    /// Returns the mode that the owner waits for. The result is meaningful while `waiting` is set.
    #[inline]
    pub(super) fn wants(&self) -> GapMode {
        GapMode { mode: self.want.get(), low: self.want_low.get() }
    }

    /// Returns the part of the requested mode that exceeds the held mode.
    pub(super) fn wants_beyond_held(&self) -> GapMode {
        self.wants().beyond(self.holds())
    }

    #[inline]
    pub(super) fn set_held(&self, claim: GapMode) {
        self.held.set(claim.mode);
        self.low.set(claim.low);
    }

    pub(super) fn set_wanted(&self, claim: GapMode) {
        self.want.set(claim.mode);
        self.want_low.set(claim.low);
        self.waiting.set(true);
    }

    /// Returns true if the request waits and holds nothing yet (a waiting conversion holds a mode).
    #[inline]
    pub(super) fn is_new_waiter(&self) -> bool {
        self.waiting.get() && self.held.get().is_none()
    }

    /// Returns true if the request is neither held nor waiting.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.held.get().is_none() && !self.waiting.get()
    }
}

/// Number of requests in a chunk of 4 KiB. Smaller under Miri, so that tests reach the ends of chunks.
const CHUNK: usize = if cfg!(miri) { 4 } else { 64 };

/// Maximum number of chunks that an idle owner keeps (64 KiB).
const MAX_KEPT_CHUNKS: usize = 16;

/// Memory of `CHUNK` requests, at stable addresses.
struct Chunk(NonNull<[Request; CHUNK]>);

impl Chunk {
    fn new(owner: SlotId, first: u32) -> Chunk {
        let requests: Box<[Request; CHUNK]> = Box::new(std::array::from_fn(|i| Request {
            next: Cell::new(ptr::null()),
            name: Cell::default(),
            low: Cell::default(),
            want_low: Cell::default(),
            table: Cell::new(0),
            position: first + i as u32,
            owner,
            held: Cell::default(),
            want: Cell::default(),
            waiting: Cell::new(false),
            epoch: Cell::new(0),
        }));
        let chunk = NonNull::from(Box::leak(requests));
        // Bucket words hold the owner's slot in the bits above the address.
        assert!(chunk.addr().get() >> ADDRESS_BITS == 0, "memory above the 48 bits that a bucket word has room for");
        Chunk(chunk)
    }

    fn start(&self) -> *const Request {
        self.0.as_ptr().cast_const().cast()
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: `new` leaked exactly this box, and nothing else frees it. No bucket list refers to the requests any more:
        // the arena drops a chunk only after its owner has unlinked all requests of the chunk, and other threads follow
        // pointers only under the latch of a bucket whose list contains them.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The requests of one owner. They are allocated in ascending order of address, on which [`RequestArena::iter`] and
/// [`RequestArena::reset`] rely: the end of a transaction traverses memory in order.
pub(super) struct RequestArena {
    /// First unused request of the current chunk, and the end of the current chunk.
    next: *const Request,
    end: *const Request,
    chunks: Vec<Chunk>,
    /// Number of chunks from which requests have been allocated.
    started: usize,
    /// List of returned requests, linked by `next`.
    free: *const Request,
    limit: usize,
    owner: SlotId,
}

// SAFETY: the pointers refer only to `chunks`, which the arena owns; nothing in the arena is tied to a thread. Linked
// requests are shared with other threads only through bucket lists, whose latches order all accesses.
unsafe impl Send for RequestArena {}

impl RequestArena {
    /// Creates an arena for at most `limit` requests, rounded up to whole chunks.
    pub(super) fn new(owner: SlotId, limit: usize) -> RequestArena {
        RequestArena {
            next: ptr::null(),
            end: ptr::null(),
            chunks: Vec::new(),
            started: 0,
            free: ptr::null(),
            limit,
            owner,
        }
    }

    pub(super) fn owner(&self) -> SlotId {
        self.owner
    }

    /// Returns the request that [`RequestArena::take_next`] would allocate. `None` if the allocation needs a new chunk.
    #[inline]
    pub(super) fn peek_next(&self) -> Option<&Request> {
        // SAFETY: `next` is below `end`, so it is a request of a chunk that `self` owns and that lives at least as long as
        // this borrow of the arena.
        if self.next != self.end { Some(unsafe { &*self.next }) } else { None }
    }

    /// Allocates the request that [`RequestArena::peek_next`] returned.
    #[inline]
    pub(super) fn take_next(&mut self) {
        debug_assert!(self.next != self.end);
        // SAFETY: `next` is below `end`, so the result is at most one past the end of the chunk.
        self.next = unsafe { self.next.add(1) };
    }

    /// Makes sure that the next [`RequestArena::take`] allocates nothing.
    #[inline]
    pub(super) fn reserve(&mut self) {
        if self.next == self.end && self.free.is_null() {
            self.start_chunk();
        }
    }

    /// Allocates a request. Returns `None` if the owner has the maximum number of requests.
    pub(super) fn take(&mut self) -> Option<&Request> {
        self.reserve();
        if self.next != self.end {
            let next = self.next;
            self.take_next();
            // SAFETY: `next` was below `end`, so it is a request of a chunk that `self` owns.
            return Some(unsafe { &*next });
        }
        // SAFETY: `free` and the list that begins there are null or requests of chunks that `self` owns, none of them linked
        // in a bucket.
        let request = unsafe { self.free.as_ref() }?;
        self.free = request.next.get();
        Some(request)
    }

    #[cold]
    fn start_chunk(&mut self) -> bool {
        if self.started == self.chunks.len() {
            if self.started * CHUNK >= self.limit {
                return false;
            }
            self.chunks.push(Chunk::new(self.owner, (self.started * CHUNK) as u32));
        }
        self.next = self.chunks[self.started].start();
        // SAFETY: one past the end of the same chunk.
        self.end = unsafe { self.next.add(CHUNK) };
        self.started += 1;
        true
    }

    /// Returns the request at `position`.
    #[inline]
    pub(super) fn at(&self, position: u32) -> &Request {
        // SAFETY: this is a request of a chunk that `self` owns and that lives at least as long as this borrow.
        unsafe { &*self.pointer_to(position) }
    }

    /// Returns a pointer to the request at `position`. The pointer may be moved within the chunk, unlike a pointer made from
    /// a reference to the request.
    #[inline]
    fn pointer_to(&self, position: u32) -> *const Request {
        let chunk = self.chunks[position as usize / CHUNK].start();
        // SAFETY: the remainder is below CHUNK, so the result stays in the chunk.
        unsafe { chunk.add(position as usize % CHUNK) }
    }

    /// Returns the request at `position` to the arena. It is no longer linked.
    pub(super) fn give_back(&mut self, position: u32) {
        let request = self.pointer_to(position);
        // SAFETY: as in `at`. `request` is not a borrow, so that `self` can be changed.
        let fields = unsafe { &*request };
        fields.held.set(RecordMode::NONE);
        fields.waiting.set(false);
        // The request that was allocated last becomes unused again, so that locks held only briefly never build a free list.
        if position as usize / CHUNK + 1 == self.started && request.wrapping_add(1) == self.next {
            self.next = request;
        } else {
            fields.next.set(self.free);
            self.free = request;
        }
    }

    /// Iterates over all requests allocated since the last [`RequestArena::reset`], chunk by chunk. Returned requests are
    /// included (they are free).
    #[inline]
    pub(super) fn chunks(&self) -> impl Iterator<Item = &[Request]> {
        let last = self.started.wrapping_sub(1);
        self.chunks[..self.started].iter().enumerate().map(move |(i, chunk)| {
            let start = chunk.start();
            // SAFETY: `next` points into, or one past, the chunk that was started last.
            let used = if i == last { unsafe { self.next.offset_from_unsigned(start) } } else { CHUNK };
            // SAFETY: these are `used` requests of a chunk that lives as long as this borrow.
            unsafe { std::slice::from_raw_parts(start, used) }
        })
    }

    /// Like [`RequestArena::chunks`], but iterates over single requests.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.chunks().flatten()
    }

    /// Returns all requests to the arena. No request is linked any more.
    #[inline]
    pub(super) fn reset(&mut self) {
        if self.started > 1 {
            self.chunks.truncate(MAX_KEPT_CHUNKS);
        }
        self.free = ptr::null();
        if let Some(first) = self.chunks.first() {
            self.next = first.start();
            // SAFETY: one past the end of the same chunk.
            self.end = unsafe { self.next.add(CHUNK) };
            self.started = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_out_in_order_reuses_and_respects_the_limit() {
        let mut arena = RequestArena::new(SlotId(3), CHUNK * 2);
        for round in 0..3 {
            for i in 0..2 * CHUNK as u32 {
                assert_eq!(arena.take().unwrap().position, i, "round {round}");
                arena.at(i).held.set(RecordMode::S);
            }
            assert!(arena.take().is_none());
            assert_eq!(arena.iter().count(), 2 * CHUNK);
            arena.give_back(1);
            arena.give_back(2 * CHUNK as u32 - 1);
            arena.give_back(0);
            assert_eq!(arena.iter().filter(|r| r.is_free()).count(), 2);
            let mut again: Vec<_> = std::iter::from_fn(|| arena.take().map(|r| r.position)).collect();
            again.sort_unstable();
            assert_eq!(again, [0, 1, 2 * CHUNK as u32 - 1]);
            assert!(arena.iter().all(|r| r.owner == SlotId(3)));
            arena.reset();
        }
    }

    #[test]
    fn an_idle_arena_keeps_little() {
        let mut arena = RequestArena::new(SlotId(0), 1 << 20);
        for _ in 0..10 * MAX_KEPT_CHUNKS * CHUNK {
            arena.take().unwrap();
        }
        arena.reset();
        assert_eq!(arena.chunks.len(), MAX_KEPT_CHUNKS);
        assert_eq!(arena.take().unwrap().position, 0);
    }
}
