//! The whole engine on a simulated disk, in virtual time, with workers of which one runs at a time: a seed decides
//! which.
//!
//! A run without speculative loops follows from its seed alone: the workers' statements, the order in which they run, when a background service
//! takes a step, what the clock says, which calls of the disk fail, what a power loss takes. So a failure is repeated
//! by its seed, and the same seed gives the same [`trace`](order::Sim::trace) twice.
//!
//! - [`order`]: what every scheduler of workers offers, and the random choices that it makes.
//! - [`scheduler`]: the schedulers, and the one of threads, which pass a baton. It changes hands where storage waits
//!   ([`storage::Hook::block`]), where storage offers ([`storage::Hook::point`]), and between statements
//!   ([`order::Sim::pause`]).
//! - [`seats`]: how threads pass the baton.
//! - [`fibers`]: the same for workers that are fibers of one thread, which hop, park and yield as a team does.
//! - [`watch`]: a disk that reports every call before it happens, and notes calls that the engine must never make.
//! - [`tables`]: what the workers work on, and reading all of it back.
//! - [`calls`]: calls of a database that are no statements, which workers make between and amid their transactions.
//! - [`sizes`]: the sizes of segments, rings, pools and the like: part of what a seed draws.
//! - [`workload`]: the character of a run, its keys and rows.
//! - [`statements`]: random statements of every kind, and their answers.
//! - [`model`]: the effect of the same statements on maps.
//! - [`history`]: committed transactions in commit order, replayed on the model: what any state must look like.
//! - [`ahead`]: tables as the store of speculative loops.
//! - [`beside`]: a table that is loaded while a reader relies on its being empty.
//! - [`remodelled`]: a table that is created, given other indexes, emptied and dropped meanwhile.
//! - [`loops`]: speculative loops within transactions. A run that has them does not follow from its seed.
//! - [`script`]: the description of a run.
//! - [`sample`]: a random sample of a stream.
//! - [`notes`]: what is noted while a run goes on: commits, errors, and moments at which power may be lost.
//! - [`work`]: the work of workers and servants in a run.
//! - [`run`]: a database, its workers and its services, from begin to end.

pub(crate) mod ahead;
mod beside;
mod calls;
pub(crate) mod caught;
pub(crate) mod fibers;
pub(crate) mod history;
mod loops;
pub(crate) mod model;
pub(crate) mod notes;
pub(crate) mod order;
mod remodelled;
pub(crate) mod rng;
pub(crate) mod run;
mod sample;
pub(crate) mod scheduler;
pub(crate) mod script;
pub(crate) mod seats;
pub(crate) mod sizes;
pub(crate) mod statements;
pub(crate) mod tables;
pub(crate) mod watch;
mod work;
pub(crate) mod workload;
