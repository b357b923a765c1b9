//! Measurements, not checks: `cargo test --release -p lockstep-storage log::tests::timing -- --ignored --nocapture`.

use std::hint::black_box;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::base::clock::Clock;
use crate::io::FileDisk;

/// Returns the nanoseconds per call of `f`: the minimum of five batches.
fn ns(clock: &Clock, calls: u64, mut f: impl FnMut(u64)) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = clock.now_ns();
        (0..calls).for_each(&mut f);
        best = best.min((clock.now_ns() - start) as f64 / calls as f64);
    }
    best
}

fn fill(rec: &mut RecordBuf, body: &[u8]) {
    rec.begin(RecordKind::System, SlotId(99), FIRST_LSN);
    rec.put_u32(17);
    rec.put(&body[4..]);
}

#[test]
#[ignore = "prints times"]
fn append_and_parts() {
    let clock = Clock::machine();
    let disk = MemDisk::new();
    for size in [64_usize, 100, 200, 1000, 8000] {
        let body = vec![5; size - RECORD_HEADER];
        let mut rec = RecordBuf::new();
        let build = ns(&clock, 1_000_000, |_| {
            fill(&mut rec, black_box(&body));
            black_box(&rec);
        });
        let prepare = ns(&clock, 1_000_000, |_| {
            fill(&mut rec, black_box(&body));
            rec.prepare(Lsn(8));
            black_box(&rec);
        });
        // A batch fits in the ring, so only the appends are timed.
        let mut appended = [f64::MAX; 2];
        for (ring, best) in [1 << 20, 8 << 20].into_iter().zip(&mut appended) {
            let options = LogOptions { segment_bytes: 128 << 20, ring_bytes: ring, ..LogOptions::default() };
            let log = create(&disk, options);
            let calls = ((ring / 2) / size) as u64;
            for _ in 0..40 {
                let start = clock.now_ns();
                for _ in 0..calls {
                    fill(&mut rec, black_box(&body));
                    put(&log, 0, &mut rec, Lsn::ZERO).unwrap();
                }
                *best = best.min((clock.now_ns() - start) as f64 / calls as f64);
                log.end_txn(SlotId(0));
                log.step(clock.now_ns());
            }
        }
        let [near, far] = appended;
        println!(
            "{size:5} bytes: build {build:5.1}  +prepare {prepare:5.1}  +append {near:5.1} (ring 1 MiB) {far:5.1} (8 MiB) ns"
        );
    }
    let page = vec![3_u8; 8192];
    let sum = ns(&clock, 100_000, |_| {
        black_box(crate::base::checksum::crc32c(black_box(&page)));
    });
    println!("checksum of a page {sum:.1} ns");
}

#[test]
#[ignore = "prints times"]
fn paced_threads_and_reading_back() {
    let clock = Clock::machine();
    let work = |n: u64| (0..n).fold(n, |a, b| black_box(a.wrapping_mul(31) ^ b));
    for (workers, appends) in [(1, false), (1, true), (2, false), (2, true)] {
        let disk = MemDisk::new();
        let options = LogOptions { zero_segments: false, ..LogOptions::default() };
        let log = Log::create(Arc::new(disk.clone()), options, Arc::default(), hook()).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| log.run_flusher(&clock, &stop));
            scope.spawn(|| log.run_maker(&clock, &stop));
            let threads: Vec<_> = (0..workers)
                .map(|worker| {
                    let (log, clock) = (&log, &clock);
                    scope.spawn(move || {
                        let (mut rec, body) = (RecordBuf::new(), [5; 68]);
                        let mut n = 0;
                        ns(clock, 300_000, |_| {
                            black_box(work(250));
                            if appends {
                                fill(&mut rec, &body);
                                put(log, worker, &mut rec, Lsn::ZERO).unwrap();
                                n += 1;
                                if n % 10 == 0 {
                                    log.end_txn(SlotId(worker));
                                }
                            }
                        })
                    })
                })
                .collect();
            let times: Vec<f64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            println!("{workers} workers, append {appends}: {times:.1?} ns a round");
            stop.store(true, Ordering::Release);
            log.nudge();
        });
        if appends {
            let mut reader = reader_of(&disk);
            let (start, mut records) = (clock.now_ns(), 0);
            while reader.next().unwrap().is_some() {
                records += 1;
            }
            println!(
                "read back {records} records, {:.1} ns each",
                (clock.now_ns() - start) as f64 / f64::from(records)
            );
            let mut out = Vec::new();
            let last = Lsn(log.tail().0 - 104);
            let back = ns(&clock, 100_000, |_| assert!(log.read_at(last, &mut out).is_ok()));
            println!("read_at from the ring {back:.1} ns");
        }
    }
}

fn reader_of(disk: &MemDisk) -> LogReader {
    LogReader::new(&LogFiles::find(Arc::new(disk.clone()), 0).unwrap(), FIRST_LSN, Lsn::ZERO)
}

#[test]
#[ignore = "prints times"]
fn sustained_with_threads_on_a_real_disk() {
    let clock = Clock::machine();
    let dir = std::env::temp_dir().join(format!("storage-log-timing-{}", std::process::id()));
    let disk = Arc::new(FileDisk::create(&dir).unwrap());
    for (workers, zero) in [(1, true), (1, false), (2, false)] {
        let options = LogOptions { zero_segments: zero, ..LogOptions::default() };
        let log = Log::create(disk.clone(), options, Arc::default(), hook()).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let flusher = scope.spawn(|| log.run_flusher(&clock, &stop));
            let maker = scope.spawn(|| log.run_maker(&clock, &stop));
            let start = clock.now_ns();
            let threads: Vec<_> = (0..workers)
                .map(|worker| {
                    let log = &log;
                    scope.spawn(move || {
                        let (mut rec, body) = (RecordBuf::new(), [5; 68]);
                        for n in 0..3_000_000_u64 {
                            fill(&mut rec, &body);
                            put(log, worker, &mut rec, Lsn::ZERO).unwrap();
                            if n % 10 == 0 {
                                log.end_txn(SlotId(worker));
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let each = (clock.now_ns() - start) as f64 / 3_000_000.0;
            println!(
                "{workers} workers flat out, zeros {zero}: {each:.1} ns a record, {:.0} MB/s, {:?}",
                f64::from(workers) * 1e3 * 104.0 / each,
                log.stats()
            );
            stop.store(true, Ordering::Release);
            log.nudge();
            flusher.join().unwrap();
            maker.join().unwrap();
        });
        let token = crate::base::hook::WaitToken::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| log.run_flusher(&clock, &stop));
            let hook = ThreadHook::default();
            let commit = ns(&clock, 500, |n| {
                let logged = append(&log, 0, 1, Lsn::ZERO, n, 68).unwrap();
                log.wait_durable(logged.end, &token, &hook).unwrap();
            });
            println!("one sync commit {:.1} us", commit / 1e3);
            stop.store(true, Ordering::Release);
            log.nudge();
        });
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
