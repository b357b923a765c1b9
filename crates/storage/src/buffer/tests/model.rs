//! Random single-threaded histories of the pool, compared with a map.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::super::load::{ReadBy, Ticket};
use super::super::page_table::Residency;
use super::*;

#[derive(Debug, Clone)]
enum Op {
    Make(u32, u64),
    Set(u32, u64),
    Get(u32),
    /// Another caller requests the page. A reader will perform the read.
    Begin(u32),
    Read,
    Discard(u32),
    Reserve(usize),
    Step {
        old: bool,
    },
    Flush,
    Sync,
    LogFull(bool),
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let id = 1..80u32;
    prop_oneof![
        4 => (id.clone(), any::<u64>()).prop_map(|(id, v)| Op::Make(id, v)),
        8 => (id.clone(), any::<u64>()).prop_map(|(id, v)| Op::Set(id, v)),
        8 => id.clone().prop_map(Op::Get),
        4 => id.clone().prop_map(Op::Begin),
        3 => Just(Op::Read),
        1 => id.prop_map(Op::Discard),
        1 => (0..12usize).prop_map(Op::Reserve),
        2 => any::<bool>().prop_map(|old| Op::Step { old }),
        1 => Just(Op::Flush),
        1 => Just(Op::Sync),
        1 => any::<bool>().prop_map(Op::LogFull),
        1 => Just(Op::Reopen),
    ]
}

/// Maximum number of reads in progress: few enough to leave frames for other operations.
const MOST_READS: usize = 4;

impl TestPool {
    /// Begins to read an absent page. A later step of a reader ends the read.
    fn begin(&self, id: u32) {
        if self.pool.readers.waiting() < MOST_READS {
            let room = |hint| Ok(self.pool.free_frame(hint).or_else(|| self.pool.evict_one(hint, &mut false)));
            self.file.resident.store(false, Ordering::Relaxed);
            // Errors of a page that does not exist, or was never written, are not reported to any caller here.
            let _ = self.pool.begin_load(PageId(id), ReadBy::Reader, &Ticket::new(), &room);
            self.file.resident.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the read of a page that a caller is about to wait for.
    fn end_read_of(&self, id: u32) {
        while matches!(self.pool.table.place(PageId(id)), Some(Residency::Loading(_))) {
            assert!(self.pool.step_reader(), "no reader has the job for page {id}");
        }
    }
}

fn stepped(t: TestPool) -> TestPool {
    t.file.resident.store(true, Ordering::Relaxed);
    t.pool.open_readers();
    t
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 200 }))]
    #[test]
    fn the_pool_is_a_map(ops in proptest::collection::vec(op(), 1..400)) {
        let mut t = stepped(pool(16));
        let mut model: HashMap<u32, (u64, Lsn)> = HashMap::new();
        let mut now = 0;
        for op in ops {
            now += 1_000_000_000;
            // While the log is full, each operation that has to write fails, and must fail cleanly.
            let full = t.log.fail.load(Ordering::Relaxed);
            match op {
                Op::Make(id, value) => {
                    if !full {
                        t.make(id, value);
                        model.insert(id, (value, t.lsn_of(id)));
                    }
                }
                Op::Begin(id) => t.begin(id),
                Op::Read => drop(t.pool.step_reader()),
                Op::Set(id, value) => {
                    t.end_read_of(id);
                    if model.contains_key(&id) && t.pool.get_or_load(PageId(id)).is_ok() {
                        let lsn = t.set(id, value);
                        model.insert(id, (value, lsn));
                    }
                }
                Op::Get(id) => match ({ t.end_read_of(id); t.try_value(id) }, model.get(&id)) {
                    (Ok(value), Some((expected, _))) => prop_assert_eq!(value, *expected),
                    (Err(StorageError::NoSpace { .. }), _) => prop_assert!(full),
                    (Err(StorageError::CorruptPage { .. }), None) => {}
                    (got, expected) => prop_assert!(false, "page {}: {:?} instead of {:?}", id, got, expected),
                },
                Op::Discard(id) => {
                    if t.pool.get(PageId(id)).is_some_and(|frame| !frame.is_dirty()) {
                        prop_assert!(t.leave(id));
                    }
                }
                Op::Reserve(n) => prop_assert!(full || t.pool.reserve(n).unwrap().len() == n),
                Op::Step { old } => {
                    let goal = CleanGoal { write_before: if old { t.log.tail() } else { Lsn::ZERO }, step: u64::MAX };
                    let step = t.pool.clean_step(now, goal);
                    prop_assert!(full || step.is_ok());
                }
                Op::Flush => {
                    let flushed = t.pool.flush_all();
                    prop_assert!(full || flushed.is_ok());
                    prop_assert!(flushed.is_err() || t.pool.oldest_recovery_lsn().is_none());
                }
                Op::Sync => t.pool.sync().unwrap(),
                Op::LogFull(yes) => t.log.fail.store(yes, Ordering::Relaxed),
                Op::Reopen => {
                    if !full {
                        t.pool.flush_all().unwrap();
                        t.pool.close_readers();
                        prop_assert_eq!(t.pool.reserve(16).unwrap().len(), 16, "a frame was lost");
                        t = stepped(pool_over(t.file.clone(), PoolOptions::new(16)));
                        t.log.append(1 << 40);
                    }
                }
            }
            t.check_recovery(model.iter().map(|(id, (_, lsn))| (*id, *lsn)));
            prop_assert!(!t.poison.is_closed());
        }
    }
}
