//! A speculative loop over a plain map: orders are booked against articles on two cores, with the same result as sequential
//! booking.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::RwLock;
use std::time::{Duration, Instant};

use speculate::{Epoch, Options, Seen, Speculator, Store, Writer, Written};

/// Number of pieces (`None` if the article is deleted) and stamp, by article.
struct Articles(RwLock<BTreeMap<u64, (Option<u64>, u64)>>);

/// There are no other writers, so nothing has to be locked.
impl Store for Articles {
    type Key = u64;
    type Value = u64;
    type Stamp = u64;
    type Local = ();
    type Order = ();
    type Error = Infallible;

    fn peek(&self, (): &mut (), article: &u64) -> Result<(Option<u64>, u64), Infallible> {
        let articles = self.0.read().unwrap_or_else(|poison| poison.into_inner());
        Ok(articles.get(article).copied().unwrap_or_default())
    }

    fn confirm(&self, (): &mut (), seen: Seen<'_, Self>) -> Result<bool, Infallible> {
        Ok(self.peek(&mut (), seen.key)?.1 == *seen.stamp)
    }

    fn read(&self, (): &mut (), article: &u64) -> Result<Option<u64>, Infallible> {
        Ok(self.peek(&mut (), article)?.0)
    }

    fn write(&self, (): &mut (), write: &Written<'_, Self>) -> Result<(), Infallible> {
        let mut articles = self.0.write().unwrap_or_else(|poison| poison.into_inner());
        // A deleted article keeps its entry here, so that its stamp is never repeated.
        let (value, stamp) = articles.entry(*write.key).or_default();
        (*value, *stamp) = (write.value.copied(), *stamp + 1);
        Ok(())
    }
}

const ARTICLES: u64 = 10_000;

fn articles() -> Articles {
    Articles(RwLock::new((0..ARTICLES).map(|article| (article, (Some(100), 0))).collect()))
}

/// Computes the price of an article, which takes some microseconds.
fn price(article: u64) -> u64 {
    (0..2_000).fold(article, |price, _| std::hint::black_box(price.wrapping_mul(6_364_136_223_846_793_005) + 1)) % 100
}

/// Books one order line; returns its price.
fn book(epoch: &mut Epoch<'_, Articles>, line: &u64) -> Result<u64, Infallible> {
    // Every tenth line orders the article of the line before.
    let article = (line - u64::from(line % 10 == 4)) * 7_919 % ARTICLES;
    let pieces = epoch.get(&article)?.unwrap_or(0);
    let price = price(article);
    match pieces {
        // The last piece.
        1 => epoch.delete(article),
        0 => epoch.put(article, 100),
        _ => epoch.put(article, pieces - 1),
    }
    Ok(price)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut results = Vec::new();
    for speculate in [false, true] {
        let store = articles();
        let mut speculator = Speculator::new(Options::new().workers(2).grain(2).speculate(speculate))?;
        let (mut turnover, mut best) = (0, Duration::MAX);
        for round in 0..200u64 {
            let begun = Instant::now();
            let lines = (0..100).map(|line| round * 100 + line);
            speculator.run(&store, &mut (), lines, book, |(), price| {
                turnover += price;
                Ok(())
            })?;
            best = best.min(begun.elapsed());
        }
        let stats = speculator.take_stats();
        println!(
            "{}: {:.0} us for 100 lines, {} epochs, {} violations",
            if speculate { "speculative" } else { "in order" },
            best.as_secs_f64() * 1e6,
            stats.epochs,
            stats.violations
        );
        for dependence in speculator.profile() {
            if let Writer::Epoch(written) = dependence.written {
                println!("  {} read before {written} wrote, {} times", dependence.read, dependence.violations);
            }
        }
        results.push((turnover, store.0.into_inner()?));
    }
    assert!(results[0] == results[1], "both do the same");
    println!("the same articles and the same turnover: {}", results[0].0);
    Ok(())
}
