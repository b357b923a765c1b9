//! Measurements of the pool, which print their results: `cargo test --release -p storage timing -- --ignored --nocapture
//! --test-threads 1`.

use std::hint::black_box;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::*;
use crate::base::clock::Clock;
use crate::base::hook::ThreadHook;
use crate::buffer::testing::{DiskFile, MemoryLog};

fn ns_per(n: usize, mut f: impl FnMut(usize)) -> f64 {
    let clock = Clock::machine();
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = clock.now_ns();
        for i in 0..n {
            f(i);
        }
        best = best.min((clock.now_ns() - start) as f64 / n as f64);
    }
    best
}

#[test]
#[ignore = "a measurement"]
fn a_hit() {
    for (name, pages) in [("64 pages", 64u32), ("4000 pages", 4000), ("100000 pages", 100_000)] {
        let t = pool(pages as usize + 500);
        for id in 1..=pages {
            t.make(id, 1);
        }
        let mut rng = Pcg64::seed_from_u64(1);
        let ids: Vec<PageId> = (0..1 << 16).map(|_| PageId(rng.random_range(1..=pages))).collect();
        let get = ns_per(4 << 20, |i| {
            black_box(t.pool.get(ids[i & 0xFFFF]));
        });
        let read = ns_per(4 << 20, |i| {
            let id = ids[i & 0xFFFF];
            let frame = t.pool.get(id).unwrap();
            let read = frame.read(t.pool.latches());
            assert!(frame.page_id() == id);
            black_box(read.page().u64(64));
            assert!(read.is_valid());
        });
        let mut id = PageId(1);
        let chained = ns_per(4 << 20, |i| {
            let frame = t.pool.get(id).unwrap();
            id = PageId(ids[i & 0xFFFF].0 ^ (frame.page_id().0 & black_box(0)));
        });
        println!(
            "{name}: get {get:.2} ns, get and read and validate {read:.2} ns, get and its id, chained {chained:.2} ns"
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn a_miss() {
    let pages = 50_000u32;
    let directory = std::env::temp_dir().join(format!("buffer-timing-{}", std::process::id()));
    let file = Arc::new(DiskFile::create(&directory).unwrap());
    let log = Arc::new(MemoryLog::default());
    let open = |frames| {
        let hook = Arc::new(ThreadHook::default());
        BufferPool::open(file.clone(), PoolOptions::new(frames), log.clone(), Arc::default(), hook).unwrap()
    };
    {
        let pool = open(16384);
        for id in 1..pages {
            pool.grow_to_hold(PageId(id)).unwrap();
            let mut page = pool.create(PageId(id)).unwrap();
            page.mark_dirty(log.append(64));
            page.page_mut().bytes()[100..8000].fill(7);
        }
        pool.flush_all().unwrap();
    }
    let clock = Clock::machine();
    let fresh = open(16384);
    let start = clock.now_ns();
    let loaded = fresh.preload(16384).unwrap();
    println!("preload: {:.2} us per page", (clock.now_ns() - start) as f64 / 1e3 / f64::from(loaded));

    let pool = open(16384);
    let mut rng = Pcg64::seed_from_u64(1);
    let mut run = |name: &str, n: u32, dirty: bool, clean: bool| {
        let before = pool.stats();
        let start = clock.now_ns();
        for i in 0..n {
            let id = PageId(rng.random_range(1..pages));
            let frame = pool.get_or_load(id).unwrap();
            frame.touch();
            if dirty {
                let mut page = frame.write(pool.latches());
                page.mark_dirty(log.append(64));
                page.page_mut().put_u64(200, u64::from(i));
            }
            if clean && i % 64 == 0 {
                while pool.clean_step(0, CleanGoal::default()).unwrap() != CleanStep::Idle {}
            }
        }
        let (ns, after) = (clock.now_ns() - start, pool.stats());
        let misses = after.reads - before.reads;
        println!(
            "{name}: {:.2} us per miss, {misses} misses, {} writes, {} of them batches by workers",
            ns as f64 / 1e3 / misses as f64,
            after.writes - before.writes,
            after.writes_by_workers - before.writes_by_workers
        );
    };
    run("filling", 16_000, false, false);
    run("clean", 100_000, false, false);
    run("clean, with the cleaner", 100_000, false, true);
    run("dirty", 100_000, true, false);
    run("dirty, with the cleaner", 100_000, true, true);
    drop(pool);
    std::fs::remove_file(&directory).unwrap();
}
