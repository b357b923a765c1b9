//! Scan resistance, measured as hit rates.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::*;

const FRAMES: usize = 1000;

/// Creates a pool over a file with `pages` clean pages.
fn database(pages: u32) -> TestPool {
    let t = pool(64);
    for id in 1..=pages {
        t.make(id, u64::from(id));
    }
    t.pool.flush_all().unwrap();
    pool_over(t.file.clone(), PoolOptions::new(FRAMES))
}

fn hit(t: &TestPool, id: u32) -> bool {
    let hit = t.pool.get(PageId(id)).is_some();
    assert_eq!(t.value(id), u64::from(id));
    hit
}

#[test]
fn one_long_scan_does_not_push_out_what_is_used() {
    let t = database(12_000);
    let mut rng = Pcg64::seed_from_u64(1);
    let hot = 800;
    for _ in 0..20_000 {
        hit(&t, rng.random_range(1..=hot));
    }
    let (mut hits, mut reads) = (0, 0);
    for id in 1000..12_000 {
        hit(&t, id);
        let page = rng.random_range(1..=hot);
        hits += u32::from(hit(&t, page));
        reads += 1;
    }
    let rate = f64::from(hits) / f64::from(reads);
    println!("hit rate of the hot set during the scan: {rate:.4}");
    assert!(rate > 0.99, "{rate}");
}

#[test]
fn even_if_nothing_else_runs_during_it() {
    let t = database(12_000);
    let mut rng = Pcg64::seed_from_u64(2);
    let hot = 700;
    for _ in 0..20_000 {
        hit(&t, rng.random_range(1..=hot));
    }
    for id in 1000..12_000 {
        hit(&t, id);
    }
    let kept = (1..=hot).filter(|id| t.pool.get(PageId(*id)).is_some()).count();
    println!("{kept} of {hot} hot pages left after a scan of 11000");
    assert!(kept as f64 > 0.95 * f64::from(hot), "{kept}");
}

/// Compares the policy with least-recently-used replacement under a skewed load, with an occasional scan of all pages.
#[test]
fn skewed_use_hits_more_than_lru() {
    let t = database(8_000);
    let mut rng = Pcg64::seed_from_u64(3);
    let mut lru = Lru::default();
    let (mut ours, mut theirs, mut all) = (0, 0, 0);
    for round in 0..60_000u32 {
        if round % 20_000 == 10_000 {
            for id in 1..=8_000 {
                hit(&t, id);
                lru.hit(id);
            }
        }
        // The cube of a uniform random number: half of the accesses go to an eighth of the pages.
        let id = 1 + (rng.random::<f64>().powi(3) * 8_000.0) as u32;
        ours += u32::from(hit(&t, id));
        theirs += u32::from(lru.hit(id));
        all += 1;
    }
    println!("hits of {all}: {ours}, least recently used {theirs}");
    assert!(ours > theirs);
}

/// Checks that clean pages are not evicted in place of dirty pages, which cannot be evicted at once, after any number of
/// misses before the cleaner runs.
#[test]
fn hot_clean_pages_do_not_pay_for_dirty_ones() {
    let t = database(6_000);
    let mut rng = Pcg64::seed_from_u64(4);
    let (mut hits, mut reads) = (0, 0);
    for round in 0..40_000 {
        let page = rng.random_range(1001..=6000);
        t.set(page, u64::from(page));
        let read = hit(&t, rng.random_range(1..=200));
        if round > 10_000 {
            hits += u32::from(read);
            reads += 1;
        }
    }
    let rate = f64::from(hits) / f64::from(reads);
    println!("hit rate of clean hot pages beside dirty ones: {rate:.4}");
    assert!(rate > 0.99, "{rate}");
    assert!(t.pool.stats().writes > 20_000);
}

#[test]
fn inner_pages_stay() {
    let t = pool(64);
    for id in 1..=2000 {
        t.make(id, u64::from(id));
        if id <= 20 {
            let mut page = t.pool.get(PageId(id)).unwrap().write(t.pool.latches());
            page.page_mut().put_u8(crate::page::header::KIND, crate::page::header::Kind::Inner as u8);
        }
    }
    t.pool.flush_all().unwrap();
    let t = pool_over(t.file.clone(), PoolOptions::new(200));
    for id in 1..=2000 {
        hit(&t, id);
    }
    assert!((1..=20).all(|id| t.pool.get(PageId(id)).is_some()));
}

#[derive(Default)]
struct Lru {
    last: std::collections::HashMap<u32, u64>,
    order: std::collections::BTreeMap<u64, u32>,
    clock: u64,
}

impl Lru {
    fn hit(&mut self, id: u32) -> bool {
        self.clock += 1;
        let before = self.last.insert(id, self.clock);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, id);
        if self.order.len() > FRAMES
            && let Some((_, out)) = self.order.pop_first()
        {
            self.last.remove(&out);
        }
        before.is_some()
    }
}
