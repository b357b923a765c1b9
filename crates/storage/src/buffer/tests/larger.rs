//! Measurement of a database larger than the pool: the page accesses of the five TPC-C transactions, without their other
//! work, over a file and a log on disk. See `timing` for the command.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::*;
use crate::base::clock::Clock;
use crate::base::hook::ThreadHook;
use crate::base::stop::StopAtEnd;
use crate::buffer::file::WriteAhead;
use crate::buffer::testing::DiskFile;

/// A log in a file that is synced. A single mutex serialises all calls.
#[derive(Debug)]
struct DiskLog {
    file: std::fs::File,
    tail: AtomicU64,
    durable: AtomicU64,
    append: Mutex<Vec<u8>>,
    flush: Mutex<()>,
    syncs: AtomicU64,
}

/// Size of the log file in bytes. The file is written in a circle, like recycled segments.
const LOG_BYTES: u64 = 256 << 20;

impl DiskLog {
    fn create(path: &Path) -> DiskLog {
        let file = std::fs::File::create(path).unwrap();
        let zeros = vec![0u8; 1 << 20];
        for at in 0..LOG_BYTES >> 20 {
            file.write_all_at(&zeros, at << 20).unwrap();
        }
        file.sync_all().unwrap();
        let start = AtomicU64::new(100);
        DiskLog {
            file,
            tail: start,
            durable: AtomicU64::new(100),
            append: Mutex::default(),
            flush: Mutex::default(),
            syncs: AtomicU64::default(),
        }
    }
}

impl WriteAhead for DiskLog {
    fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::SeqCst))
    }

    fn end(&self) -> Lsn {
        Lsn(self.tail.load(Ordering::SeqCst))
    }

    fn make_durable(&self, lsn: Lsn) -> Result<(), StorageError> {
        let _flush = self.flush.lock();
        if self.durable() >= lsn {
            return Ok(());
        }
        let (bytes, end) = {
            let mut pending = self.append.lock();
            (std::mem::take(&mut *pending), self.tail.load(Ordering::SeqCst))
        };
        let at = (end - bytes.len() as u64) % (LOG_BYTES - (64 << 20));
        self.file.write_all_at(&bytes, at & !4095).unwrap();
        self.file.sync_data().unwrap();
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.durable.store(end, Ordering::SeqCst);
        Ok(())
    }
}

const WAREHOUSES: u32 = 4;
const STOCK: u32 = 3850 * WAREHOUSES;
const CUSTOMER: u32 = 2730 * WAREHOUSES;
const NAMES: u32 = 150 * WAREHOUSES;
const ITEM: u32 = 1200;
const LINES: u32 = 2750 * WAREHOUSES;
const FIRST_STOCK: u32 = 100;
const FIRST_CUSTOMER: u32 = FIRST_STOCK + STOCK;
const FIRST_NAME: u32 = FIRST_CUSTOMER + CUSTOMER;
const FIRST_ITEM: u32 = FIRST_NAME + NAMES;
const FIRST_LINE: u32 = FIRST_ITEM + ITEM;
const END: u32 = FIRST_LINE + LINES;

/// Page accesses of one worker.
struct Worker<'a> {
    pool: &'a BufferPool,
    log: &'a DiskLog,
    rng: Pcg64,
    next_new: &'a AtomicU32,
    /// Order page that each district appends to, and the number of rows in this page.
    open: Vec<(u32, u32)>,
    /// Full pages of orders that are not delivered yet.
    closed: std::collections::VecDeque<u32>,
    /// Stock pages of the last 20 orders of each district.
    recent: Vec<std::collections::VecDeque<u32>>,
}

impl Worker<'_> {
    fn visit(&self, id: u32, write: bool) {
        let id = PageId(id);
        loop {
            let frame = self.pool.get_or_load(id).unwrap();
            if !write {
                let read = frame.read(self.pool.latches());
                if frame.page_id() == id && read.is_valid() {
                    frame.touch();
                    return;
                }
                continue;
            }
            let mut page = frame.write(self.pool.latches());
            if frame.page_id() != id {
                page.release_unchanged();
                continue;
            }
            frame.touch();
            page.mark_dirty(Lsn(self.log.tail.load(Ordering::Relaxed)));
            let lsn = self.log.tail.load(Ordering::Relaxed);
            page.page_mut().set_lsn(Lsn(lsn));
            return;
        }
    }

    fn nurand(&mut self, a: u32, n: u32) -> u32 {
        ((self.rng.random_range(0..=a) | self.rng.random_range(0..n)) + 77) % n
    }

    fn warehouse(&mut self) -> u32 {
        self.rng.random_range(0..WAREHOUSES)
    }

    fn customer(&mut self, warehouse: u32) -> u32 {
        let row = self.rng.random_range(0..10) * 3000 + self.nurand(1023, 3000);
        FIRST_CUSTOMER + warehouse * (CUSTOMER / WAREHOUSES) + row / 11
    }

    /// Appends a row to the open page of a district.
    fn append(&mut self, district: usize) {
        let (page, rows) = self.open[district];
        if rows < 100 {
            self.open[district].1 += 1;
            return self.visit(page, true);
        }
        let new = PageId(self.next_new.fetch_add(1, Ordering::Relaxed));
        self.pool.grow_to_hold(new).unwrap();
        let mut created = self.pool.create(new).unwrap();
        created.mark_dirty(Lsn(self.log.tail.load(Ordering::Relaxed)));
        drop(created);
        self.closed.push_back(page);
        self.open[district] = (new.0, 1);
    }

    fn transaction(&mut self) {
        let warehouse = self.warehouse();
        match self.rng.random_range(0..100) {
            0..45 => {
                let customer = self.customer(warehouse);
                self.visit(customer, false);
                let district = self.rng.random_range(0..self.open.len());
                for _ in 0..10 {
                    let item = self.nurand(8191, 100_000);
                    self.visit(FIRST_ITEM + item / 85, false);
                    let stock = FIRST_STOCK + warehouse * (STOCK / WAREHOUSES) + item / 26;
                    self.visit(stock, false);
                    self.visit(stock, true);
                    self.append(district);
                    self.recent[district].push_back(stock);
                    if self.recent[district].len() > 200 {
                        self.recent[district].pop_front();
                    }
                }
            }
            45..88 => {
                let customer = self.customer(warehouse);
                if self.rng.random_range(0..100) < 60 {
                    let name = FIRST_NAME + self.rng.random_range(0..NAMES);
                    self.visit(name, false);
                    let other = customer + self.rng.random_range(0..2);
                    self.visit(other, false);
                }
                self.visit(customer, false);
                self.visit(customer, true);
            }
            88..92 => {
                let customer = self.customer(warehouse);
                self.visit(customer, false);
                let line = FIRST_LINE + self.rng.random_range(0..LINES);
                self.visit(line, false);
            }
            92..96 => {
                for _ in 0..10 {
                    let customer = self.customer(warehouse);
                    self.visit(customer, true);
                }
                if let Some(page) = self.closed.pop_front() {
                    self.visit(page, true);
                }
            }
            _ => {
                let district = self.rng.random_range(0..self.open.len());
                for i in 0..self.recent[district].len() {
                    self.visit(self.recent[district][i], false);
                }
            }
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn a_database_larger_than_the_pool() {
    let directory = std::env::temp_dir().join(format!("buffer-larger-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = Arc::new(DiskFile::create(&directory.join("pages.0")).unwrap());
    let log = Arc::new(DiskLog::create(&directory.join("log.0")));
    let hook = Arc::new(ThreadHook::default());
    let pool = BufferPool::open(file.clone(), PoolOptions::new(16384), log.clone(), Arc::default(), hook).unwrap();
    for id in 1..END {
        pool.grow_to_hold(PageId(id)).unwrap();
        let mut page = pool.create(PageId(id)).unwrap();
        page.mark_dirty(Lsn(log.tail.load(Ordering::Relaxed)));
        page.page_mut().bytes()[200..].fill(id as u8);
    }
    pool.flush_all().unwrap();
    let clock = Clock::machine();
    let next_new = AtomicU32::new(END);
    for background in [true, false] {
        let (done, all) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|s| {
            let workers: Vec<_> = (0..2u64)
                .map(|seed| {
                    let (pool, log, clock, next_new, all) = (&pool, &*log, &clock, &next_new, &all);
                    s.spawn(move || {
                        let rng = Pcg64::seed_from_u64(seed);
                        let open = (0..20).map(|_| (FIRST_LINE, 100)).collect();
                        let (closed, recent) = (Default::default(), vec![Default::default(); 20]);
                        let mut worker = Worker { pool, log, rng, next_new, open, closed, recent };
                        let (mut count, start) = (0, clock.now_ns());
                        while clock.now_ns() - start < 8_000_000_000 {
                            worker.transaction();
                            count += 1;
                        }
                        all.fetch_add(count, Ordering::Relaxed);
                    })
                })
                .collect();
            let _told = StopAtEnd(&done);
            if background {
                s.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        if pool.clean_step(clock.now_ns(), CleanGoal::default()).unwrap() == CleanStep::Idle {
                            std::thread::sleep(Duration::from_micros(500));
                        }
                    }
                });
            }
            let (before, syncs) = (pool.stats(), log.syncs.load(Ordering::Relaxed));
            let start = clock.now_ns();
            for worker in workers {
                worker.join().unwrap();
            }
            let seconds = (clock.now_ns() - start) as f64 / 1e9;
            let after = pool.stats();
            let n = all.load(Ordering::Relaxed) as f64;
            println!(
                "background {background}: {:.0} transactions/s; per transaction {:.2} reads, {:.2} writes, {:.2} ghost hits; \
                 {:.0} MB/s written, {:.0} log syncs/s, {:.0} batches/s by workers, {:.2} pages per write",
                n / seconds,
                (after.reads - before.reads) as f64 / n,
                (after.writes - before.writes) as f64 / n,
                (after.ghost_hits - before.ghost_hits) as f64 / n,
                (after.writes - before.writes) as f64 * 8192.0 / 1e6 / seconds,
                (log.syncs.load(Ordering::Relaxed) - syncs) as f64 / seconds,
                (after.writes_by_workers - before.writes_by_workers) as f64 / seconds,
                (after.writes - before.writes) as f64 / (after.write_calls - before.write_calls) as f64,
            );
        });
    }
    drop(pool);
    std::fs::remove_dir_all(&directory).unwrap();
}
