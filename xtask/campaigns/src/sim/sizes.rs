//! Sizes of everything that has one, from a seed. Faults hide where something does not fit: a record that begins in one
//! segment and ends in the third, a restart that finds no frame free, a reader that requests more than there is.

use storage::{Extremes, MIN_POOL_BYTES, Options};

use super::rng::Rng;

/// Log files; the smallest hold one page image and a half.
const SEGMENTS: [u64; 6] = [16 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Memory of the log. A quarter of it takes a record, so that the roots of a table with large values and two indexes fit.
const RINGS: [usize; 3] = [256 << 10, 512 << 10, 1 << 20];
/// What restart requests from the log at once: less than most records, no whole number of blocks, more than a segment.
const READS: [usize; 5] = [1000, 4096, 20_000, 100_000, 512 << 10];
const POOLS: [u64; 5] = [MIN_POOL_BYTES, MIN_POOL_BYTES, MIN_POOL_BYTES, 2 * MIN_POOL_BYTES, 8 * MIN_POOL_BYTES];
/// One bucket for all locks, few, as many as usual.
const BUCKETS: [usize; 3] = [1, 16, 1 << 12];

/// A pool in one shard, as usual for its size, or in several.
const SHARDS: [usize; 3] = [2048, 2048, 32];

/// What [`Options::sizes`] takes, from a seed.
pub(crate) fn draw(rng: &mut Rng) -> Extremes {
    Extremes {
        segment_bytes: rng.pick(&SEGMENTS),
        ring_bytes: rng.pick(&RINGS),
        reader_bytes: rng.pick(&READS),
        lock_buckets: rng.pick(&BUCKETS),
        shard_frames: rng.pick(&SHARDS),
    }
}

/// Settings of random sizes.
pub(crate) fn options(rng: &mut Rng) -> Options {
    let sizes = draw(rng);
    Options::new().buffer_pool(rng.pick(&POOLS)).sizes(sizes)
}
