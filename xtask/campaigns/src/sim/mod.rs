//! Simulation of the whole engine on a simulated disk, in virtual time. One worker runs at a time, and a seed decides which.
//!
//! A run is deterministic. Its seed determines the workers' statements, their interleaving, the
//! steps of background services, the clock, the calls of the disk that fail, and the effect of a power loss. A failure can
//! therefore be repeated by its seed, and two runs of a seed have the same [`trace`](order::Sim::trace).
//!
//! - [`order`]: the interface of all schedulers of workers, and their random choices.
//! - [`scheduler`]: the kinds of schedulers, and the one for threads, which pass a baton. The baton moves at waits in
//!   storage ([`storage::Hook::block`]), at preemption points of storage ([`storage::Hook::point`]), and between statements
//!   ([`order::Sim::pause`]).
//! - [`slots`]: the slots in which threads wait for the baton.
//! - [`fibers`]: the scheduler for workers that are fibers of one thread, which hop, park and yield as in a team.
//! - [`watch`]: a disk that reports every call before it happens, and records calls that the engine must never make.
//! - [`tables`]: the tables of the workers, and a reader of all their rows.
//! - [`calls`]: calls of a database that are not statements; workers make them between and within their transactions.
//! - [`sizes`]: the sizes of segments, rings, pools and other structures, drawn from the seed.
//! - [`workload`]: the profile of a run, its keys and rows.
//! - [`statements`]: random statements of every kind, and their answers.
//! - [`model`]: the effects of the same statements on maps.
//! - [`history`]: committed transactions in commit order, replayed on the model: the valid states of a database.
//! - [`loop_store`]: tables as the store of loops in buffers.
//! - [`concurrent_load`]: a table that is loaded while a reader relies on its emptiness.
//! - [`schema_changes`]: a table that is concurrently created, given other indexes, emptied and dropped.
//! - [`loops`]: loops within transactions.
//! - [`script`]: the description of a run.
//! - [`sample`]: a random sample of a stream.
//! - [`notes`]: the record of a run: commits, errors, and points of possible power loss.
//! - [`work`]: the work of workers and servants in a run.
//! - [`run`]: a database, its workers and its services, from start to end.

mod calls;
mod concurrent_load;
pub(crate) mod fibers;
pub(crate) mod history;
pub(crate) mod loop_store;
mod loops;
pub(crate) mod model;
pub(crate) mod notes;
pub(crate) mod order;
pub(crate) mod panics;
pub(crate) mod rng;
pub(crate) mod run;
mod sample;
pub(crate) mod scheduler;
mod schema_changes;
pub(crate) mod script;
pub(crate) mod sizes;
pub(crate) mod slots;
pub(crate) mod statements;
pub(crate) mod tables;
pub(crate) mod watch;
mod work;
pub(crate) mod workload;
