//! Lookups in a B+tree of a table far larger than the processor's caches: one by one, and announced in groups of 1 to 16
//! keys.
//!
//! A lookup is a read of a row by key, with its lock, in a serializable transaction of 48 lookups, with begin and commit
//! included. All variants read random keys in the same way. All variants except `none` announce the keys of each group
//! before they read the rows (`RawReader::prefetch`). `LOOKUP_MIB` sets the total size of the rows in MiB (default: 1,536).

use std::time::Duration;

use benches::{Fixture, ROW, Rows, is_smoke};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fastrand::Rng;
use storage::Database;

/// Number of lookups per transaction. It is a multiple of every group size.
const LOOKUPS: usize = 48;
/// Group sizes: numbers of keys that are announced at once. With 0, no key is announced.
const GROUPS: [usize; 7] = [0, 1, 2, 4, 8, 12, 16];

/// Runs one transaction of `LOOKUPS` lookups.
fn lookups(db: &Database, rows: &Rows, random: &mut Rng, count: u64, group: usize) -> u32 {
    let keys: [[u8; 8]; LOOKUPS] = std::array::from_fn(|_| random.u64(..count).to_be_bytes());
    let tx = db.begin().expect("a free slot");
    let mut sum = 0;
    for keys in keys.chunks(group.max(1)) {
        if group > 0 {
            tx.raw().prefetch(keys.iter().map(|key| (*rows, &key[..], ROW)));
        }
        for key in keys {
            let first = tx.raw().read(rows, key, |row| row[0]).expect("no deadlock");
            sum += u32::from(first.expect("a row"));
        }
    }
    tx.commit_async().expect("a read-only commit");
    sum
}

fn lookup(c: &mut Criterion) {
    let mib: u64 = std::env::var("LOOKUP_MIB").map_or(1536, |mib| mib.parse().expect("LOOKUP_MIB in MiB"));
    let count = if is_smoke() { 5_000 } else { (mib << 20) / ROW as u64 };
    let (fixture, rows) = Fixture::with_rows_in(count, (2 * mib + 256) << 20);
    let mut bench = c.benchmark_group("lookup/group");
    bench.throughput(Throughput::Elements(LOOKUPS as u64));
    let mut random = Rng::with_seed(5);
    for group in GROUPS {
        let id = if group == 0 { "none".to_owned() } else { group.to_string() };
        bench.bench_function(id, |b| b.iter(|| lookups(fixture.db(), &rows, &mut random, count, group)));
    }
    bench.finish();
}

fn settings() -> Criterion {
    Criterion::default()
        .measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_millis(500))
        .sample_size(20)
}

criterion_group! { name = benches; config = settings(); targets = lookup }
criterion_main!(benches);
