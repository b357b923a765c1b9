//! Model of this engine on 1 to 256 cores.
//!
//! A real run on one worker is traced instruction by instruction, with what each transaction holds ([`recording`]). The
//! recording is replayed on modelled cores ([`replay`]): each core pays for lines of other cores
//! ([`crate::coherence::transfers`]), waits for latches, and waits for record locks until the commit of their holder
//! ([`locks`]). [`placement`] says which lines cores have in common.
//!
//! | assumption | source |
//! | --- | --- |
//! | the work of a core between two accesses takes its number of instructions times their mean time | measured: one worker, with as many warehouses as the modelled cores have, where that was measured |
//! | a line from another core takes a transfer; a line that no core holds takes no time beyond that of the instruction | the time of an instruction contains the misses of one worker |
//! | a core does not wait for plain writes and prefetches; an atomic change waits until the earlier writes of its core have their lines | as x86-64 processors do |
//! | a reader of a latch that is held waits for its release; a reader or writer whose version has changed begins its section again | as the engine does; the pauses of inserts after a loss are left out |
//! | a request for a lock waits in the order of arrival; in a cycle of waits the youngest transaction is rolled back at once and runs again | as the engine does; its undo takes no time |
//! | a thread that waited for a lock runs again after the time of a wake-up; a core with fibers runs another fiber | measured: two threads that wake each other |
//! | consecutive records of the log share lines | the recorded lengths of records, placed in the order of their reservations |
//! | more homes than recorded are copies of the recorded ones: pages and locks of all homes are common to all copies, all others are copied | assumed |
//!
//! Not modelled: bandwidth of memory, clock rates that depend on the number of busy cores, the
//! accesses of the flusher and of the cleaner, table locks, gap locks.

mod locks;
pub(crate) mod placement;
pub(crate) mod recording;
pub(crate) mod replay;
pub(crate) mod result;
