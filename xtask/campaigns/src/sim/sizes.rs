//! Random sizes of internal structures. They provoke errors at boundaries: a record that spans three segments, a restart
//! without a free frame, a reader that requests more bytes than exist.

use storage::{Extremes, MIN_POOL_BYTES, Options};

use super::rng::Rng;

/// Sizes of log segments, in bytes. The smallest holds one and a half page images.
const SEGMENTS: [u64; 6] = [16 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Sizes of the log buffer, in bytes. A record may take a quarter of the buffer. This is enough for the roots of a table
/// with large values and two indexes.
const RINGS: [usize; 3] = [256 << 10, 512 << 10, 1 << 20];
/// Sizes of the restart's reads from the log, in bytes: smaller than most records, not a multiple of a block, larger than a
/// segment.
const READS: [usize; 5] = [1000, 4096, 20_000, 100_000, 512 << 10];
const POOLS: [u64; 5] = [MIN_POOL_BYTES, MIN_POOL_BYTES, MIN_POOL_BYTES, 2 * MIN_POOL_BYTES, 8 * MIN_POOL_BYTES];
/// Numbers of buckets of the lock table: one bucket for all locks, few buckets, the default number.
const BUCKETS: [usize; 3] = [1, 16, 1 << 12];

/// Sizes of buffer pool shards, in frames: one shard (the default for these pools), or several.
const SHARDS: [usize; 3] = [2048, 2048, 32];

/// Numbers of failed latches after which a leaf is split: almost at once, or as by default.
const CONTENDED: [u32; 4] = [2, 2, 4, 32];

/// Returns random values for [`Options::sizes`].
pub(crate) fn draw(rng: &mut Rng) -> Extremes {
    Extremes {
        segment_bytes: rng.pick(&SEGMENTS),
        ring_bytes: rng.pick(&RINGS),
        reader_bytes: rng.pick(&READS),
        lock_buckets: rng.pick(&BUCKETS),
        shard_frames: rng.pick(&SHARDS),
        contended_at: rng.pick(&CONTENDED),
    }
}

/// Returns options with random sizes.
pub(crate) fn options(rng: &mut Rng) -> Options {
    let sizes = draw(rng);
    Options::new().buffer_pool(rng.pick(&POOLS)).sizes(sizes)
}
