//! Many appenders, a flusher and a segment maker, each in a thread.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::base::clock::Clock;
use crate::base::hook::WaitToken;
use crate::io::FileDisk;

fn with_services<R>(log: &Log, f: impl FnOnce() -> R) -> R {
    let clock = Clock::machine();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| log.run_flusher(&clock, &stop));
        scope.spawn(|| log.run_maker(&clock, &stop));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        stop.store(true, Ordering::Release);
        log.nudge();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Each of `threads` threads appends `count` records of its own chain, and after each one reads a recent record back.
fn append_from_threads(log: &Log, threads: u16, count: u64, sync_every: u64) -> Vec<Vec<Logged>> {
    std::thread::scope(|scope| {
        let work = |thread: u16| {
            move || {
                let (mut numbers, token, hook) =
                    (Rng::with_seed(u64::from(thread)), WaitToken::new(), ThreadHook::default());
                let mut mine: Vec<Logged> = Vec::new();
                let mut out = Vec::new();
                for n in 0..count {
                    let prev = if n % 10 == 0 { Lsn::ZERO } else { mine[mine.len() - 1].lsn };
                    let body = numbers.usize(..if n % 100 == 0 { 1500 } else { 120 });
                    mine.push(append(log, thread, u64::from(thread), prev, n, body).unwrap());
                    let back = &mine[mine.len() - 1 - numbers.usize(..mine.len().min(60))];
                    assert_eq!(&Logged::from(log.read_at(back.lsn, &mut out).unwrap()), back);
                    if n % sync_every == sync_every - 1 {
                        let end = mine[mine.len() - 1].end;
                        log.wait_durable(end, &token, &hook).unwrap();
                        assert!(log.durable() >= end);
                    }
                }
                log.end_txn(SlotId(thread));
                mine
            }
        };
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn merged(mut all: Vec<Vec<Logged>>) -> Vec<Logged> {
    let mut all: Vec<Logged> = all.drain(..).flatten().collect();
    all.sort_by_key(|logged| logged.lsn);
    all
}

#[test]
fn nothing_is_lost_between_threads() {
    let disk = MemDisk::new();
    let log = create(&disk, small());
    let all = merged(with_services(&log, || append_from_threads(&log, 4, 5_000, 500)));
    assert_eq!(log.durable(), log.tail(), "the flusher leaves nothing behind");
    assert_eq!(read_all(&mut log.reader(FIRST_LSN)).unwrap(), all);
    let (again, _) = reopen(&disk, FIRST_LSN);
    assert_eq!(again, all);
}

#[test]
fn appenders_alone_make_room_and_segments() {
    let disk = MemDisk::new();
    let log = create(&disk, small());
    let all = merged(append_from_threads(&log, 3, 3_000, u64::MAX));
    log.wait_durable_inline(log.tail()).unwrap();
    assert_eq!(read_all(&mut log.reader(FIRST_LSN)).unwrap(), all);
}

/// Eight commits that are requested before the flusher runs share one flush.
#[test]
fn commits_share_a_flush() {
    let disk = MemDisk::new();
    let log = create(&disk, small());
    for round in 0..50 {
        let before = log.stats().flushes;
        let ends: Vec<Lsn> =
            (0..8).map(|thread| append(&log, thread, u64::from(thread), Lsn::ZERO, round, 100).unwrap().end).collect();
        ends.iter().for_each(|end| log.request_flush(*end));
        log.wait_durable_inline(ends[7]).unwrap();
        assert!(ends.iter().all(|end| log.durable() >= *end));
        assert!(log.stats().flushes <= before + 1, "eight commits in {} flushes", log.stats().flushes - before);
    }
}

#[test]
fn commits_of_threads_are_durable_on_a_real_disk() {
    let dir = std::env::temp_dir().join(format!("storage-log-group-{}", std::process::id()));
    let disk = Arc::new(FileDisk::create(&dir).unwrap());
    let options = LogOptions { segment_bytes: 1 << 20, ..small() };
    let log = Log::create(disk.clone(), options, Arc::default(), hook()).unwrap();
    let all = merged(with_services(&log, || append_from_threads(&log, 8, 200, 1)));
    assert_eq!(log.durable(), log.tail());
    assert_eq!(read_all(&mut log.reader(FIRST_LSN)).unwrap(), all);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn unasked_bytes_become_durable_by_themselves() {
    let disk = MemDisk::new();
    let log = create(&disk, small());
    with_services(&log, || {
        for n in 0..5 {
            append(&log, 0, 1, Lsn::ZERO, n, 50).unwrap();
            let tail = log.tail();
            // This loop never ends if the tail never becomes durable.
            while log.durable() < tail {
                std::thread::yield_now();
            }
        }
    });
}
