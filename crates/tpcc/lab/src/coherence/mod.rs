//! Model of the cost of cache coherence on more cores than this machine has.
//!
//! A real run on one worker is traced instruction by instruction ([`recording`]). The recording keeps its accesses to the
//! lines that workers share by design (`storage::measure::SharedLines`). It is then replayed on 2 to 64 [`cores`]. Each core
//! runs its own transactions with a private cache that keeps to MESI ([`mesi`]), and pays for each line that it has to get
//! from another core ([`transfers`]).
//!
//! | assumption | source |
//! | --- | --- |
//! | the work of a core between two accesses takes its number of instructions times their mean time | measured: one worker |
//! | a line from another core of the node takes `near_ns`; a core keeps a line that has arrived for `hold_ns`, before the request of another core takes it | measured: time and order of atomic changes of a word by two cores ([`probe`]) |
//! | an upgrade of a copy that a core has read to exclusive takes `upgrade_ns` | measured: atomic changes of a word by two cores, with a read of the word before each change |
//! | transfers and upgrades take 4 times as long from another node; a node has 8 cores | assumed, after public figures of servers with two sockets and 8 cores per cache |
//! | a line that no core holds is in a last-level cache shared by all cores | assumed: a cold line counts as one and costs `near_ns` |
//! | a private cache loses lines to other cores only | assumed: the time of instructions includes capacity misses |
//! | a core waits for reads and for atomic changes, not for plain writes | as processors with a store buffer do |
//! | requests for one line are served one after the other; the owner of the line uses it until the next request has arrived, and for `hold_ns` at least | assumed |
//! | the work of a core is the recorded transactions of one of the recorded warehouses, with its own slot, log positions and reader word; if there are more cores than warehouses, several cores share the rows of a warehouse and begin at different transactions | assumed |
//!
//! Not modelled: the accesses of the flusher and of the cleaner, waits for row locks, memory that the allocator provides.

pub(crate) mod cores;
mod mesi;
pub(crate) mod probe;
pub(crate) mod recording;
pub(crate) mod transfers;
