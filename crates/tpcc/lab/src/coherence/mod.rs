//! What coherence costs on more cores than this machine has.
//!
//! A real run on one worker is traced instruction by instruction ([`recording`]), and what it does to the lines that workers
//! share by design (`storage::measure::SharedLines`) is kept. The recording is then replayed on 2 to 64 [`cores`]: each runs
//! transactions of its own, whose lines lie in private caches that keep to MESI ([`mesi`]), and pays for each line that it
//! has to get from another core.
//!
//! | assumption | source |
//! | --- | --- |
//! | what a core does between two accesses takes its instructions times their mean time | measured: one worker |
//! | a line from another core of the node takes `near_ns`; a core keeps one that has come for `hold_ns`, before another's request takes it | measured: time and order of atomic changes of a word by two cores ([`probe`]) |
//! | a line that a core has read becomes its own in `upgrade_ns` | measured: the same with a read before each change |
//! | transfers and upgrades take 4 times as long from another node; a node has 8 cores | assumed, after public figures of servers with two sockets and 8 cores a cache |
//! | a line that no core has is in a last cache that all share | assumed: a cold line counts as one and costs `near_ns` |
//! | a private cache loses lines to other cores only | assumed: what it has no room for is paid for in the time of instructions |
//! | a core waits for what it reads and for atomic changes, not for plain writes | as processors with a store buffer do |
//! | requests for one line are served one after the other; its owner uses it until the next request has arrived, and for `hold_ns` at least | assumed |
//! | a core's work is the recorded transactions of one of the recorded warehouses, with a slot, log positions and a reader word of its own; where there are more cores than warehouses, several share a warehouse's rows and begin at different transactions | assumed |
//!
//! Not modelled: what the flusher and the cleaner do, waits for locks of rows, memory that the allocator gives.

pub(crate) mod cores;
mod mesi;
pub(crate) mod probe;
pub(crate) mod recording;
