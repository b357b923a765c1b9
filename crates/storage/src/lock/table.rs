//! The hash table of record locks. Each bucket is one word, which is both the head of a list of requests and the latch of
//! this list.
//!
//! ```text
//!  63        48 47                              6 5      2   1      0
//! +------------+---------------------------------+--------+------+-------+
//! | slot + 1   | address of the first request    |   0    | MANY | LATCH |
//! +------------+---------------------------------+--------+------+-------+
//! ```
//!
//! An empty list is the word 0 (or `LATCH`). The slot in the word belongs to the owner of the first request, so that an
//! owner recognises its own request without access to the memory of another owner. `MANY` is set if there is a second
//! request. A single request never waits. So the two common steps need no latch: `0 -> mine` acquires and `mine -> 0`
//! releases, with one compare-and-swap each. No `next` pointer has to be read, because without `MANY` and `LATCH` there is
//! no second request.
//!
//! All other operations run under the latch ([`LatchedBucket`]). For each name, the list contains the requests in this
//! order: first the held requests, of which those that wait for a conversion are in order of arrival; then the new requests
//! that wait, in order of arrival. Requests of different names may be interleaved.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::ptr;

use super::name::LockName;
use super::request::{ADDRESS_BITS, Request, RequestArena};
use super::sync::{AtomicPtr, Backoff, Ordering};
use crate::base::arena::PageSize;
#[cfg(not(shuttle))]
use crate::base::arena::{Arena, ZeroValid};
use crate::base::ids::SlotId;

const LATCH: usize = 1;
const MANY: usize = 2;
const FLAGS: usize = LATCH | MANY;

const ADDRESS: usize = (1 << ADDRESS_BITS) - 1 - FLAGS;

/// Returns the word of a list that consists of exactly this request, held and not waiting.
#[inline]
fn word_of(request: *const Request, owner: SlotId) -> *mut Request {
    request.cast_mut().map_addr(|address| address | tag(owner))
}

#[inline]
fn tag(owner: SlotId) -> usize {
    (usize::from(owner.0) + 1) << ADDRESS_BITS
}

#[inline]
fn head_of(word: *mut Request) -> *const Request {
    word.map_addr(|address| address & ADDRESS).cast_const()
}

/// Memory of the buckets. Shuttle's pointers cannot be created from zeroed memory, so they are in a box.
#[cfg(not(shuttle))]
type BucketArray = Arena<Bucket>;
#[cfg(shuttle)]
type BucketArray = Box<[Bucket]>;

// SAFETY: zero bytes are a null pointer, which is an empty list.
#[cfg(not(shuttle))]
unsafe impl ZeroValid for Bucket {}

/// All buckets of the hash table.
pub(super) struct Buckets {
    buckets: BucketArray,
    shift: u32,
}

impl Buckets {
    /// Creates `count` buckets, rounded up to a power of two and to at least two, in memory of the kind `memory`.
    ///
    /// # Errors
    /// Fails if the operating system refuses the address space.
    pub(super) fn new(count: usize, memory: PageSize) -> io::Result<Buckets> {
        let count = count.max(2).next_power_of_two();
        #[cfg(not(shuttle))]
        let buckets = Arena::new(count, memory)?;
        #[cfg(shuttle)]
        let buckets = {
            let _ = memory;
            (0..count).map(|_| Bucket { word: AtomicPtr::new(ptr::null_mut()) }).collect()
        };
        Ok(Buckets { buckets, shift: 64 - count.trailing_zeros() })
    }

    /// Returns the address range of the buckets.
    pub(super) fn range(&self) -> Range<usize> {
        #[cfg(not(shuttle))]
        return self.buckets.range();
        #[cfg(shuttle)]
        return self.buckets.as_ptr_range().start.addr()..self.buckets.as_ptr_range().end.addr();
    }

    #[inline(always)]
    fn all(&self) -> &[Bucket] {
        #[cfg(not(shuttle))]
        return self.buckets.as_slice();
        #[cfg(shuttle)]
        return &self.buckets;
    }

    /// Returns the index of the bucket of `name`.
    #[inline]
    pub(super) fn index_of(&self, name: LockName) -> usize {
        (name.0 >> self.shift) as usize
    }

    /// Returns the bucket of `name`.
    #[inline]
    pub(super) fn of(&self, name: LockName) -> &Bucket {
        let index = self.index_of(name);
        debug_assert!(index < self.all().len());
        // SAFETY: there are 2^(64 - shift) buckets, and a 64-bit number shifted right by `shift` is less than 2^(64 -
        // shift).
        unsafe { self.all().get_unchecked(index) }
    }

    /// Returns the bucket at `index`, which is a result of [`Buckets::index_of`].
    pub(super) fn at(&self, index: usize) -> &Bucket {
        &self.all()[index]
    }

    /// Prefetches the bucket of `name` for writing.
    #[inline]
    pub(super) fn prefetch(&self, name: LockName) {
        crate::base::prefetch::prefetch_write(ptr::from_ref(self.of(name)).cast());
    }
}

/// One list of requests, with its latch.
pub(super) struct Bucket {
    word: AtomicPtr<Request>,
}

impl Bucket {
    /// Installs `request`, whose fields are set, as the only request of an empty bucket. The request is then held. Returns
    /// false if the bucket is not empty.
    #[inline]
    pub(super) fn install(&self, request: &Request) -> bool {
        request.next.set(ptr::null());
        let word = word_of(request, request.owner);
        // Release: a thread that finds the request sees its fields. Acquire: this owner sees the writes of the last holder.
        self.word.compare_exchange(ptr::null_mut(), word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Removes `request` if it is the only request of the bucket. Otherwise returns false and changes nothing.
    #[inline]
    pub(super) fn remove_only(&self, request: &Request) -> bool {
        let word = word_of(request, request.owner);
        // The word has this value only if the list is just this request, however often it has changed in the meantime.
        // Acquire: changes of the request's fields by other owners under the latch happen before its reuse.
        self.word.compare_exchange(word, ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns true if the bucket appears to be non-empty. The result is a hint.
    #[inline]
    pub(super) fn looks_used(&self) -> bool {
        !self.word.load(Ordering::Relaxed).is_null()
    }

    /// Returns true if the bucket is empty. The check is ordered after everything that this thread did before, notably after
    /// it latched a page. Either this check sees the request that a reader has installed, or the reader sees the latched
    /// page when it validates the page's version afterwards.
    #[inline]
    pub(super) fn is_empty_now(&self) -> bool {
        // On x86-64 the reader's compare-and-swap on this word and the writer's on the page are full barriers, so at least
        // one of the two loads that follow them sees the other side. On other platforms (and under Miri) both sides change
        // this word, so one change comes first and the other acquires the writes that it released.
        if cfg!(all(target_arch = "x86_64", not(miri))) {
            self.word.load(Ordering::SeqCst).is_null()
        } else {
            self.word.compare_exchange(ptr::null_mut(), ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
        }
    }

    /// Returns the first request if it belongs to `arena`'s owner, without a latch. The returned request is linked. It does
    /// not wait, because its owner, which is the caller, does not wait. The read sees at least the owner's own last change
    /// of the bucket.
    #[inline]
    pub(super) fn own_head<'a>(&self, arena: &'a RequestArena) -> Option<&'a Request> {
        let word = self.word.load(Ordering::Relaxed);
        if word.addr() & !(ADDRESS | FLAGS) != tag(arena.owner()) {
            return None;
        }
        // SAFETY: the tag shows that the head is a request of `arena`'s owner. The owner has one arena (see
        // `LockTable::attach`), and the caller, which borrows that arena, is this owner. The word may be stale, but it is
        // not older than the owner's last change of this bucket, nor than a change by other owners that this owner has
        // observed. No other thread unlinks requests of this owner. So the request is still linked and its memory is valid.
        // The caller reads only fields that only the owner writes while it does not wait (see `request`).
        Some(unsafe { &*head_of(word) })
    }

    /// Takes the latch. The code that runs under the latch is short (see the README) and must not block.
    #[inline]
    pub(super) fn latch(&self) -> LatchedBucket<'_> {
        let mut backoff = Backoff::default();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word.addr() & LATCH == 0 {
                let latched = word.map_addr(|address| address | LATCH);
                if self.word.compare_exchange_weak(word, latched, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return LatchedBucket { bucket: self, head: Cell::new(head_of(word)) };
                }
            }
            backoff.pause();
        }
    }
}

/// A latched bucket. Dropping it releases the latch.
pub(super) struct LatchedBucket<'a> {
    bucket: &'a Bucket,
    head: Cell<*const Request>,
}

impl LatchedBucket<'_> {
    /// Iterates over the requests in list order.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Request> {
        let mut at = self.head.get();
        std::iter::from_fn(move || {
            // SAFETY: `at` is null or a request linked in this bucket. While the latch is held no other thread unlinks, and
            // the arena keeps the memory of a linked request. Callers that unlink during the iteration do so through `self`,
            // and only requests already yielded, whose `next` has been read.
            let request = unsafe { at.as_ref() }?;
            at = request.next.get();
            Some(request)
        })
    }

    /// Returns the link that points to `request`, or the link at the end of the list for null.
    fn link_to(&self, request: *const Request) -> &Cell<*const Request> {
        let mut link = &self.head;
        // SAFETY: as in `iter`.
        while let Some(here) = unsafe { link.get().as_ref() } {
            if ptr::eq(here, request) {
                break;
            }
            link = &here.next;
        }
        link
    }

    /// Links a held request.
    pub(super) fn push_held(&self, request: &Request) {
        request.next.set(self.head.get());
        self.head.set(request);
    }

    /// Links a new request that waits, behind all other requests.
    pub(super) fn push_waiter(&self, request: &Request) {
        request.next.set(ptr::null());
        self.link_to(ptr::null()).set(request);
    }

    /// Moves a linked request that is held and now waits for a conversion behind the other requests that already wait for a
    /// conversion.
    pub(super) fn move_converting(&self, request: &Request) {
        self.unlink(request);
        let name = request.name.get();
        let behind = self.iter().find(|r| r.name.get() == name && r.is_new_waiter());
        let link = self.link_to(behind.map_or(ptr::null(), ptr::from_ref));
        request.next.set(link.get());
        link.set(request);
    }

    /// Unlinks a request from the list. After the latch is released, only the request's owner accesses the request's memory.
    pub(super) fn unlink(&self, request: &Request) {
        let link = self.link_to(request);
        debug_assert!(!link.get().is_null());
        link.set(request.next.get());
    }
}

impl Drop for LatchedBucket<'_> {
    #[inline]
    fn drop(&mut self) {
        let head = self.head.get();
        // SAFETY: as in `iter`.
        let word = match unsafe { head.as_ref() } {
            None => ptr::null_mut(),
            Some(first) => {
                // A single request never waits: no other owner blocks it.
                debug_assert!(!first.next.get().is_null() || !first.waiting.get());
                let many = !first.next.get().is_null();
                word_of(head, first.owner).map_addr(|address| if many { address | MANY } else { address })
            }
        };
        self.bucket.word.store(word, Ordering::Release);
    }
}
