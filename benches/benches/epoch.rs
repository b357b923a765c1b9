//! Overhead of speculation over an array in memory: of a loop, an epoch, an operation, and a violation. With one worker, no
//! data moves between cores. The difference to two workers is the cost of moving data between cores.

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, criterion_group, criterion_main};
use speculate::{Committer, Epoch, Forwarding, Options, Seen, Speculator, Store, Written};

/// Array of numbers, as the store of the loops. A value serves as its own stamp, because this program only increments
/// values.
struct Numbers(Vec<AtomicU64>);

impl Store for Numbers {
    type Key = usize;
    type Value = u64;
    type Stamp = ();
    type Local = ();
    type Order = ();
    type Error = Infallible;

    fn peek(&self, (): &mut (), key: &usize) -> Result<(Option<u64>, ()), Infallible> {
        Ok((Some(self.0[*key].load(Ordering::Relaxed)), ()))
    }

    fn confirm(&self, (): &mut (), seen: Seen<'_, Self>) -> Result<bool, Infallible> {
        Ok(seen.value == Some(&self.0[*seen.key].load(Ordering::Relaxed)))
    }

    fn read(&self, (): &mut (), key: &usize) -> Result<Option<u64>, Infallible> {
        Ok(Some(self.0[*key].load(Ordering::Relaxed)))
    }

    fn write(&self, (): &mut (), write: &Written<'_, Self>) -> Result<(), Infallible> {
        self.0[*write.key].store(write.value.copied().unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }
}

const KEYS: usize = 1024;

type Body = fn(&mut Epoch<'_, Numbers>, usize) -> Result<(), Infallible>;

/// Measures a loop of `epochs` epochs that call `body`.
fn measure(c: &mut Criterion, id: &str, options: Options, epochs: usize, body: Body) {
    let numbers = Numbers((0..KEYS).map(|_| AtomicU64::new(0)).collect());
    let mut speculator = Speculator::new(options).expect("threads can be started");
    c.bench_function(id, |b| {
        // Criterion computes between samples. The worker threads stay awake during this time, as in a transaction.
        b.iter(|| {
            speculator
                .collect(&numbers, &mut (), 0..epochs, |epoch, &at| body(epoch, at), |()| ())
                .expect("nothing fails");
        });
    });
}

fn nothing(_: &mut Epoch<'_, Numbers>, at: usize) -> Result<(), Infallible> {
    black_box(at);
    Ok(())
}

fn reads(epoch: &mut Epoch<'_, Numbers>, at: usize) -> Result<(), Infallible> {
    for n in 0..16 {
        black_box(epoch.get(&((16 * at + n) % KEYS))?);
    }
    Ok(())
}

fn writes(epoch: &mut Epoch<'_, Numbers>, at: usize) -> Result<(), Infallible> {
    (0..16).for_each(|n| epoch.put((16 * at + n) % KEYS, 1));
    Ok(())
}

/// Reads sixteen numbers. After twelve of them, increments a number that all epochs increment.
fn counts(epoch: &mut Epoch<'_, Numbers>, at: usize) -> Result<(), Infallible> {
    for n in 0..16 {
        if n == 12 {
            let count = epoch.get(&0)?.unwrap_or_default();
            epoch.put(0, count + 1);
        }
        black_box(epoch.get(&(1 + (16 * at + n) % (KEYS - 1)))?);
    }
    Ok(())
}

fn epochs(c: &mut Criterion) {
    let one = Options::new().workers(1);
    let two = Options::new().workers(2);
    measure(c, "epoch/loop/two-empty-1-worker", one, 2, nothing);
    measure(c, "epoch/loop/two-empty-2-workers", two, 2, nothing);
    measure(c, "epoch/token/64-empty-1-worker", one, 64, nothing);
    measure(c, "epoch/token/64-empty-2-workers", two, 64, nothing);
    measure(c, "epoch/token/64-empty-2-workers-caller", two.committer(Committer::Caller), 64, nothing);
    measure(c, "epoch/validate/16x16-reads-1-worker", one, 16, reads);
    measure(c, "epoch/write/16x16-writes-1-worker", one, 16, writes);
    measure(c, "epoch/write/16x16-writes-forwarded", two.forwarding(Forwarding::Always), 16, writes);
    let late = two.forwarding(Forwarding::Never);
    measure(c, "epoch/violation/none", one, 16, counts);
    measure(c, "epoch/violation/restart", late.sub_epochs(1, 1), 16, counts);
    measure(c, "epoch/violation/sub-epochs", late.sub_epochs(8, 2), 16, counts);
    measure(c, "epoch/violation/forwarded", two.forwarding(Forwarding::Always), 16, counts);
}

criterion_group!(benches, epochs);
criterion_main!(benches);
