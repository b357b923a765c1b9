//! Setting up an executor.

use std::marker::PhantomData;
use std::time::Duration;

use super::core::{Core, Parts};
use super::idle::{Callbacks, Idle, OnIdle, Service};
use super::order::{Order, Ordering};
use super::remote::{FIBERS, Monitor, Remote};
use super::scope::{self, FiberError, Scope};
use crate::context::{Slab, StackError};
use crate::point::Operations;
use crate::teams::{LastInterest, Membership, NextTeam, Statistics, Teams};

/// The smallest stack of a fiber, in bytes: one on which a panic of the fiber can be printed with its whole backtrace, in
/// a debug build.
pub const MIN_STACK_BYTES: usize = 24 * 1024;

/// Why an executor was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A number that makes no sense.
    #[error("{name} {value}: {must}")]
    Setting {
        /// The setting.
        name: &'static str,
        /// What it was set to.
        value: usize,
        /// What it must be.
        must: &'static str,
    },
    /// No memory for the stacks.
    #[error(transparent)]
    Stacks(#[from] StackError),
    /// 1,024 executors live in this process.
    #[error("too many executors at a time")]
    TooMany,
}

/// Settings of an [`Executor`].
pub struct Builder {
    fibers: usize,
    team_size: usize,
    stack_bytes: usize,
    large_pages: bool,
    membership: Membership,
    order: Option<Box<dyn Order>>,
    operations: Operations,
    policy: Box<dyn NextTeam>,
    patience: u64,
    consolidate_below: f64,
    idle: Option<OnIdle>,
    service: Option<Service>,
    limit: Option<Duration>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            fibers: 64,
            team_size: 16,
            stack_bytes: 64 * 1024,
            large_pages: false,
            membership: Membership::Ring,
            order: None,
            operations: Operations::new(),
            policy: Box::new(LastInterest),
            patience: 64,
            consolidate_below: 0.0,
            idle: None,
            service: None,
            limit: None,
        }
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Builder { fibers, team_size, stack_bytes, membership, patience, consolidate_below, .. } = self;
        f.debug_struct("Builder")
            .field("fibers", fibers)
            .field("team_size", team_size)
            .field("stack_bytes", stack_bytes)
            .field("membership", membership)
            .field("patience", patience)
            .field("consolidate_below", consolidate_below)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Fibers that live at a time, 1 to 65,535; 64. A spawn beyond waits for one to end.
    ///
    /// Before Linux 6.13 each stack takes two of the mappings that a process may have, 65,530 usually (`vm.max_map_count`): about
    /// 32,000 fibers fit, of all executors together.
    #[must_use]
    pub fn fibers(mut self, fibers: usize) -> Builder {
        self.fibers = fibers;
        self
    }

    /// Fibers in a team at most, from 1; 16. With 1 no point ever switches.
    #[must_use]
    pub fn team_size(mut self, members: usize) -> Builder {
        self.team_size = members;
        self
    }

    /// Bytes of stack per fiber, at least [`MIN_STACK_BYTES`]; 64 KiB. See [`Executor::stack_high_water`]. Pages that are not used cost address space only.
    #[must_use]
    pub fn stack_bytes(mut self, bytes: usize) -> Builder {
        self.stack_bytes = bytes;
        self
    }

    /// Whether each stack gets large pages of memory to itself, where the system has them; false. A stack then takes 2 MiB of
    /// memory as soon as it is used, and
    /// [`Executor::stack_high_water`] counts whole large pages.
    #[must_use]
    pub fn large_pages(mut self, large: bool) -> Builder {
        self.large_pages = large;
        self
    }

    /// Who shares a ring; [`Membership::Ring`].
    #[must_use]
    pub fn membership(mut self, membership: Membership) -> Builder {
        self.membership = membership;
        self
    }

    /// Lets `order` choose which fiber runs next, instead of teams; none. Points are then inert, operations only name what
    /// a fiber does, and membership, team size and the choice of the next team mean nothing.
    #[must_use]
    pub fn order(mut self, order: impl Order + 'static) -> Builder {
        self.order = Some(Box::new(order));
        self
    }

    /// The operations that fibers may begin; none.
    #[must_use]
    pub fn operations(mut self, operations: Operations) -> Builder {
        self.operations = operations;
        self
    }

    /// Who chooses the next team, with teams per operation; [`LastInterest`].
    #[must_use]
    pub fn policy(mut self, policy: impl NextTeam + 'static) -> Builder {
        self.policy = Box::new(policy);
        self
    }

    /// Launches that a team may wait before it runs whatever the policy says; 64.
    #[must_use]
    pub fn patience(mut self, launches: u64) -> Builder {
        self.patience = launches;
        self
    }

    /// Lets operations of one family share a team while each brings fewer fibers to a team than this, on
    /// average; 0, which is never.
    #[must_use]
    pub fn consolidate_below(mut self, members: f64) -> Builder {
        self.consolidate_below = members;
        self
    }

    /// What to do when no fiber can run; [`Idle::wait`]. Called on the context of the thread. It should
    /// return when [`Idle::has_wakes`], and before long if there are conditions to ask.
    #[must_use]
    pub fn idle(mut self, callback: impl FnMut(&Idle<'_>) + 'static) -> Builder {
        self.idle = Some(Box::new(callback));
        self
    }

    /// Calls `callback` on the context of the thread once in `every` times that a fiber gives way (hops not
    /// counted), each time with 1: background work of the embedder that must not run on a fiber.
    #[must_use]
    pub fn service(mut self, every: u32, callback: impl FnMut() + 'static) -> Builder {
        self.service = Some((every, Box::new(callback)));
        self
    }

    /// How long no fiber may run while some wait for wakes from outside or for conditions; for ever, which is the default.
    /// After it the scope ends with [`FiberError::Stopped`], which says what each fiber waited for. (If they wait only for
    /// each other, for slots, or for wakes that nothing can send, the scope ends at once, with or without a limit.)
    ///
    /// A fiber that keeps the thread, in a system call or for a `std` mutex that a mate holds across a point, stops the
    /// executor itself, limit or not: [`Monitor`] names it from another thread.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Builder {
        self.limit = Some(limit);
        self
    }

    /// Builds the executor for the calling thread. This is the one door to fibers: without an executor there are none.
    ///
    /// # Safety
    /// Fibers of one thread share its thread-locals, and leave calls in another order than they entered them. Safe code
    /// may rely on that order: a scoped thread-local (`scoped_tls`' `set`), or any guard that puts a pointer into a
    /// thread-local and puts the one before back when it is dropped, reads freed memory when two fibers enter, give way,
    /// and leave crosswise. No compiler can see it, so the caller that builds an executor answers for all that runs in its scopes:
    ///
    /// **At each place where a context gives way, nothing is open on it that must be closed in reverse order of opening
    /// among all that opens it on this thread.** Contexts are the fibers and the closure of a [`scope`](Executor::scope).
    /// They give way at live points, in [`yield_now`](crate::fiber::yield_now), [`park`](crate::fiber::park),
    /// [`block_until`](crate::fiber::block_until), [`hop`](crate::fiber::hop) and
    /// [`begin_operation`](crate::team::begin_operation), in [`join`](crate::JoinHandle::join), and in a
    /// [`spawn`](Scope::spawn) that finds no slot free. Open are
    /// - a scope or guard that sets a thread-local and restores it at its end, such as those of `scoped_tls`, of
    ///   runtimes that are "entered", or of span stacks;
    /// - the initialiser of a `thread_local!`: a mate that asks for the same one initialises it, too.
    ///
    /// What is opened around the whole `scope` call, or opened and closed between two such places, keeps the contract.
    /// Code that never gives way keeps it. A `RefCell` in a thread-local that is borrowed where a fiber gives way does
    /// not break it, but its mates panic when they borrow it. What belongs to a fiber is declared with
    /// [`fiber_local!`](crate::fiber_local), which keeps fibers apart.
    ///
    /// The contract holds for as long as the executor lives, so do not hand it to code that you do not answer for.
    ///
    /// ```compile_fail,E0133
    /// let steps = sched_steps::Executor::builder().build().unwrap(); // safe code cannot enter fibers
    /// ```
    ///
    /// # Errors
    /// [`BuildError`] says which setting is wrong, or what the operating system refused.
    #[allow(unsafe_code)]
    pub unsafe fn build(self) -> Result<Executor, BuildError> {
        let wrong = |name, value, must| Err(BuildError::Setting { name, value, must });
        if self.fibers == 0 || self.fibers >= FIBERS {
            return wrong("fibers", self.fibers, "from 1 to 65,535");
        }
        if self.team_size == 0 {
            return wrong("team size", self.team_size, "at least 1");
        }
        if self.stack_bytes < MIN_STACK_BYTES {
            return wrong("stack bytes", self.stack_bytes, "at least 24,576, or a panic could not be printed");
        }
        let slab = Slab::new(self.fibers, self.stack_bytes, self.large_pages)?;
        let remote = Remote::claim().ok_or(BuildError::TooMany)?;
        let team_size = self.team_size.min(self.fibers) as u32;
        let core = Core::new(Parts {
            fibers: self.fibers as u32,
            team_size,
            slab,
            remote,
            // An order has no teams to wait for: an operation goes on in place.
            membership: if self.order.is_some() { Membership::Ring } else { self.membership },
            ordering: Ordering::new(self.order),
            teams: Teams::new(self.operations, self.policy, self.patience, self.consolidate_below),
            callbacks: Callbacks::new(self.idle, self.service),
            limit: self.limit,
        });
        Ok(Executor { core: Box::new(core), affine: PhantomData })
    }

    /// For unit tests.
    #[cfg(test)]
    #[allow(unsafe_code)]
    pub(crate) fn for_test(self) -> Executor {
        // SAFETY: unit tests of this crate use no thread-local but its own, which are made for fibers.
        let built = unsafe { self.build() };
        built.unwrap_or_else(|e| panic!("{e}"))
    }
}

/// Runs fibers on the thread that built it. None of them outlives the [`scope`](Executor::scope) in which it was spawned.
///
/// ```compile_fail,E0277
/// # // SAFETY: nothing runs on it.
/// let steps = unsafe { sched_steps::Executor::builder().build() }.unwrap();
/// std::thread::spawn(move || drop(steps)); // an executor stays on its thread
/// ```
pub struct Executor {
    pub(crate) core: Box<Core>,
    affine: PhantomData<*mut ()>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("live", &self.core.live()).finish_non_exhaustive()
    }
}

impl Executor {
    /// The default settings, to be changed.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Calls `with`, then runs all fibers that it spawned until they have ended. They may borrow what
    /// outlives the call.
    ///
    /// What runs in `with` and on its fibers keeps the contract of [`Builder::build`]: nothing stack-scoped is open in a
    /// thread-local where it gives way.
    ///
    /// If `with` panics its fibers are unwound where they stand, and the panic goes on.
    ///
    /// # Errors
    /// The first panic of a fiber whose handle was not joined; it names the fiber. [`FiberError::Stopped`] if no fiber could
    /// go on before that. [`FiberError::InPanic`] in a destructor that runs in the middle of a panic: `with` was not called.
    pub fn scope<'env, R>(
        &mut self,
        with: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> Result<R, FiberError> {
        scope::enter(&self.core, with)
    }

    /// Bytes that the fullest stack has used since the executor was built, in whole pages of the system: what
    /// [`Builder::stack_bytes`] must exceed. `None` where fibers are threads and bring their own stacks.
    #[must_use]
    pub fn stack_high_water(&self) -> Option<usize> {
        self.core.slab.high_water()
    }

    /// Addresses of the mapping that the stacks lie in, guards and what is between them included; empty where fibers are
    /// threads. For programs that ask the system which pages it has given.
    #[must_use]
    pub fn stack_addresses(&self) -> std::ops::Range<usize> {
        self.core.slab.addresses()
    }

    /// Watches this executor from other threads.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor::new(self.core.remote)
    }

    /// What its teams did since it was built or since [`team::reset_statistics`](crate::team::reset_statistics).
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }
}
