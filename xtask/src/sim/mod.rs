//! The whole engine on a simulated disk, in virtual time, with workers of which one runs at a time: a seed decides which.
//!
//! What happens in a run follows from its seed alone: the workers' statements, who runs after whom, when a background
//! service takes a step, what the clock says, which calls of the disk fail, what a power loss takes. So a failure is
//! repeated by its seed, and the same seed gives the same [`trace`](scheduler::Sim::trace) twice.
//!
//! - [`scheduler`]: what runs workers, and the one of threads, which pass a baton. It changes hands where storage waits
//!   ([`storage::Hook::block`]), where storage offers ([`storage::Hook::point`]), and between statements
//!   ([`scheduler::Sim::pause`]).
//! - [`seats`]: how threads pass the baton.
//! - [`fibers`]: the same for workers that are fibers of one thread, which hop, park and yield as a team does.
//! - [`watch`]: a disk that tells of every call before it happens, and forbids what nobody may do.
//! - [`tables`]: what the workers work on, and reading all of it back.
//! - [`calls`]: calls of a database that are no statements, which workers make between and amid their transactions.
//! - [`sizes`]: how large segments, rings, pools and the like are: part of what a seed draws.
//! - [`workload`]: the character of a run, its keys and rows.
//! - [`statements`]: random statements, every kind that there is, and what each found.
//! - [`model`]: what the same statements do to maps.
//! - [`history`]: committed transactions in commit order, replayed on the model: what any state must look like.
//! - [`beside`]: a table that is loaded while a reader relies on its being empty.
//! - [`work`]: what workers and servants do in a run.
//! - [`run`]: a database, its workers and its services, from begin to end.

mod beside;
mod calls;
pub(crate) mod caught;
pub(crate) mod fibers;
pub(crate) mod history;
pub(crate) mod model;
pub(crate) mod rng;
pub(crate) mod run;
pub(crate) mod scheduler;
pub(crate) mod seats;
pub(crate) mod sizes;
pub(crate) mod statements;
pub(crate) mod tables;
pub(crate) mod watch;
mod work;
pub(crate) mod workload;
