//! Construction and settings of an executor.

use std::marker::PhantomData;
use std::time::Duration;

use super::core::{Core, Parts};
use super::idle::{Callbacks, Idle, IdleCallback, Service};
use super::order::{ExecutorOrder, Order};
use super::remote::{FIBERS, Monitor, Remote};
use super::scope::{self, FiberError, Scope};
use crate::context::{Slab, StackError};
use crate::point::Operations;
use crate::teams::{LastInterest, Membership, NextTeam, Statistics, Teams};

/// Minimum stack size of a fiber, in bytes. It suffices to print a panic of the fiber with its full backtrace in a
/// debug build.
pub const MIN_STACK_BYTES: usize = 24 * 1024;

/// Error of [`Builder::build`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A setting is out of range.
    #[error("{name} {value}: {must}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Rejected value.
        value: usize,
        /// Permitted values.
        must: &'static str,
    },
    /// The stacks could not be allocated.
    #[error(transparent)]
    Stacks(#[from] StackError),
    /// The process already has 1,024 executors.
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
    idle: Option<IdleCallback>,
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
    /// Sets the maximum number of live fibers, 1 to 65,535. Default: 64. A spawn beyond this number waits for a fiber to
    /// end.
    /// Before Linux 6.13 each stack takes two memory mappings. A process may have 65,530 mappings by default
    /// (`vm.max_map_count`), which suffices for about 32,000 fibers, counted over all executors.
    #[must_use]
    pub fn fibers(mut self, fibers: usize) -> Builder {
        self.fibers = fibers;
        self
    }

    /// Sets the maximum number of fibers in a team, from 1. Default: 16. With 1, no point ever switches.
    #[must_use]
    pub fn team_size(mut self, members: usize) -> Builder {
        self.team_size = members;
        self
    }

    /// Sets the stack size of a fiber in bytes, at least [`MIN_STACK_BYTES`]. Default: 64 KiB. See
    /// [`Executor::stack_high_water`]. Unused pages cost address space only.
    #[must_use]
    pub fn stack_bytes(mut self, bytes: usize) -> Builder {
        self.stack_bytes = bytes;
        self
    }

    /// If `large` is true, gives each stack its own large pages, if the system supports them. Default: false. A stack
    /// in large pages takes 2 MiB of memory as soon as it is used, and [`Executor::stack_high_water`] counts whole
    /// large pages.
    #[must_use]
    pub fn large_pages(mut self, large: bool) -> Builder {
        self.large_pages = large;
        self
    }

    /// Sets the membership rule, which decides which fibers share a ring. Default: [`Membership::Ring`].
    #[must_use]
    pub fn membership(mut self, membership: Membership) -> Builder {
        self.membership = membership;
        self
    }

    /// Lets `order` choose the next fiber instead of teams. By default there is no order. With an order, points are
    /// inert, operations are only labels, and membership, team size and the policy for the next team have no effect.
    #[must_use]
    pub fn order(mut self, order: impl Order + 'static) -> Builder {
        self.order = Some(Box::new(order));
        self
    }

    /// Sets the operations that fibers may begin. By default there are none.
    #[must_use]
    pub fn operations(mut self, operations: Operations) -> Builder {
        self.operations = operations;
        self
    }

    /// Sets the policy that chooses the next team, if there is a team per operation. Default: [`LastInterest`].
    #[must_use]
    pub fn policy(mut self, policy: impl NextTeam + 'static) -> Builder {
        self.policy = Box::new(policy);
        self
    }

    /// Sets the maximum number of launches for which a waiting team can be passed over by the policy. After this number
    /// the team runs regardless of the policy. Default: 64.
    #[must_use]
    pub fn patience(mut self, launches: u64) -> Builder {
        self.patience = launches;
        self
    }

    /// Lets operations of one family share a team, as long as each of them contributes on average fewer than `members`
    /// fibers to a team. Default: 0, which disables sharing.
    #[must_use]
    pub fn consolidate_below(mut self, members: f64) -> Builder {
        self.consolidate_below = members;
        self
    }

    /// Sets the idle callback, which is called when no fiber can run. Default: [`Idle::wait`]. The callback runs on the
    /// context of the thread. It should return when [`Idle::has_wakes`] is true, and soon if [`Idle::polled`] is not 0.
    #[must_use]
    pub fn idle(mut self, callback: impl FnMut(&Idle<'_>) + 'static) -> Builder {
        self.idle = Some(Box::new(callback));
        self
    }

    /// Sets the service callback, for background work of the embedder that must not run on a fiber. The callback runs
    /// on the context of the thread, once per `every` times that a fiber gives up the CPU; hops are not counted.
    #[must_use]
    pub fn service(mut self, every: u32, callback: impl FnMut() + 'static) -> Builder {
        self.service = Some((every, Box::new(callback)));
        self
    }

    /// Sets the maximum time without a running fiber while fibers wait for wakes from outside or for conditions.
    /// Default: unlimited. After this time the scope ends with [`FiberError::Stopped`], which lists the event that each
    /// fiber waited for. (If all fibers wait for each other, for slots, or for wakes that cannot come from anywhere,
    /// the scope ends at once, with or without a limit.)
    ///
    /// The limit has no effect if a fiber blocks the thread, in a system call or on a `std` mutex that a team mate
    /// holds across a point: this stops the executor itself. A [`Monitor`] on another thread can name such a fiber.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Builder {
        self.limit = Some(limit);
        self
    }

    /// Builds the executor for the calling thread. This function is the only way to create fibers.
    ///
    /// # Safety
    ///
    /// Fibers of one thread share its thread-locals, and calls on different fibers do not return in reverse order of
    /// entry. Safe code may rely on that order. Examples are a scoped thread-local (`scoped_tls`' `set`), and any guard
    /// that stores a pointer in a thread-local and restores the previous pointer when dropped. Such code reads freed
    /// memory if two fibers enter it, are suspended, and leave it in the wrong order. The compiler cannot detect this,
    /// so the caller that builds an executor is responsible for all code that runs in its scopes:
    ///
    /// **At each place where a context is suspended, it has no scope open that must be closed in reverse order of
    /// opening, relative to other scopes of the same kind on this thread.** Contexts are the fibers and the closure of
    /// a [`scope`](Executor::scope). They are suspended at live points, in [`yield_now`](crate::fiber::yield_now),
    /// [`park`](crate::fiber::park), [`block_until`](crate::fiber::block_until), [`hop`](crate::fiber::hop) and
    /// [`begin_operation`](crate::team::begin_operation), in [`join`](crate::JoinHandle::join), and in a
    /// [`spawn`](Scope::spawn) that finds no free slot. The following count as open scopes:
    /// - a scope or guard that sets a thread-local and restores it at its end, such as those of `scoped_tls`, of runtimes
    ///   that are "entered", or of span stacks;
    /// - the initialiser of a `thread_local!`: another fiber that accesses the same thread-local initialises it as
    ///   well.
    ///
    /// Code keeps the contract if it opens and closes such a scope around the whole `scope` call, or between two places
    /// of suspension, or if it is never suspended. A `RefCell` in a thread-local that is borrowed while a fiber is
    /// suspended does not violate the contract, but other fibers panic when they borrow it. Fiber-local values are
    /// declared with [`fiber_local!`](crate::fiber_local), which gives each fiber its own value.
    ///
    /// The contract holds as long as the executor exists: do not pass the executor to code for which you are not
    /// responsible.
    ///
    /// ```compile_fail,E0133
    /// let steps = sched_steps::Executor::builder().build().unwrap(); // safe code cannot create fibers
    /// ```
    ///
    /// # Errors
    /// [`BuildError`] names the setting that is out of range, or the resource that the operating system refused.
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
            // An order replaces the teams, so an operation begins without waiting for a team.
            membership: if self.order.is_some() { Membership::Ring } else { self.membership },
            order: ExecutorOrder::new(self.order),
            teams: Teams::new(self.operations, self.policy, self.patience, self.consolidate_below),
            callbacks: Callbacks::new(self.idle, self.service),
            limit: self.limit,
        });
        Ok(Executor { core: Box::new(core), affine: PhantomData })
    }

    /// Builds the executor for a unit test.
    #[cfg(test)]
    #[allow(unsafe_code)]
    pub(crate) fn for_test(self) -> Executor {
        // SAFETY: unit tests of this crate use only its own thread-locals, which are designed for fibers.
        let built = unsafe { self.build() };
        built.unwrap_or_else(|e| panic!("{e}"))
    }
}

/// Runs fibers on the thread that built it. No fiber outlives the [`scope`](Executor::scope) in which it was spawned.
///
/// ```compile_fail,E0277
/// # // SAFETY: no fiber is spawned.
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
    /// Returns a builder with the default settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Calls `with`, then runs all fibers that `with` spawned until they have ended. Fibers may borrow values that
    /// outlive the call.
    ///
    /// The code in `with` and on its fibers keeps the contract of [`Builder::build`]: no stack-scoped thread-local is
    /// open at a place where a context is suspended.
    ///
    /// If `with` panics, its fibers are unwound from their places of suspension, and the panic is resumed.
    ///
    /// # Errors
    /// The first panic of a fiber whose handle was not joined, with the name of the fiber. [`FiberError::Stopped`] if
    /// no fiber could continue before all fibers had ended. [`FiberError::InPanic`] if the caller is a destructor that
    /// runs during a panic: `with` was then not called.
    pub fn scope<'env, R>(
        &mut self,
        with: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> Result<R, FiberError> {
        scope::run_scope(&self.core, with)
    }

    /// Returns the maximum number of bytes that any stack has used since the executor was built, in whole system pages.
    /// [`Builder::stack_bytes`] must exceed this number. `None` if fibers are OS threads, which have their own stacks.
    #[must_use]
    pub fn stack_high_water(&self) -> Option<usize> {
        self.core.slab.high_water()
    }

    /// Returns the address range of the mapping that holds the stacks, including guards and the space between stacks.
    /// Empty if fibers are OS threads. Programs can use the range to query which pages are resident.
    #[must_use]
    pub fn stack_addresses(&self) -> std::ops::Range<usize> {
        self.core.slab.addresses()
    }

    /// Returns a handle that watches this executor from other threads.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor::new(self.core.remote)
    }

    /// Returns statistics of the teams since the executor was built, or since the last
    /// [`team::reset_statistics`](crate::team::reset_statistics).
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }
}
