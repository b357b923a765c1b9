//! A team over an existing data structure: lookups in a chained hash map far larger than the caches. Each lookup
//! prefetches the lines that it will need and lets its team mates run until they arrive.
//!
//! The map is written like library code, with two calls of `ctx_prefetch!` added. `std`'s `HashMap` hides its buckets, so
//! only the values behind a `Box` can be prefetched: the second half measures this on an unmodified `HashMap`.
//!
//! `cargo run --release -p sched-steps --example team_over_hashmap`

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use sched_steps::{Executor, ctx_prefetch};

/// Hash map with chaining.
struct Chained {
    heads: Vec<u32>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Entry {
    key: u64,
    value: u64,
    next: u32,
}

const END: u32 = u32::MAX;

fn mix(key: u64) -> u64 {
    (key ^ key >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Chained {
    fn new(keys: u64) -> Chained {
        let mut map = Chained { heads: vec![END; keys.next_power_of_two() as usize], entries: Vec::new() };
        for key in 0..keys {
            let bucket = map.bucket(key);
            map.entries.push(Entry { key, value: key * 2, next: map.heads[bucket] });
            map.heads[bucket] = key as u32;
        }
        map
    }

    fn bucket(&self, key: u64) -> usize {
        (mix(key) >> (64 - self.heads.len().trailing_zeros())) as usize
    }

    fn get(&self, key: u64) -> Option<u64> {
        let head = &self.heads[self.bucket(key)];
        ctx_prefetch!("map/bucket", head, 1);
        let mut at = *head;
        while at != END {
            let entry = &self.entries[at as usize];
            ctx_prefetch!("map/entry", entry, 1);
            if entry.key == key {
                return Some(entry.value);
            }
            at = entry.next;
        }
        None
    }
}

/// Measures the time per lookup in ns, for `lookups` lookups by a team of `members`.
fn measure(
    members: usize,
    lookups: u64,
    keys: u64,
    get: &(dyn Fn(u64) -> Option<u64> + '_),
) -> Result<f64, Box<dyn std::error::Error>> {
    // SAFETY: a lookup uses no thread-local.
    let mut steps = unsafe { Executor::builder().fibers(members).team_size(members).build() }?;
    let begun = Instant::now();
    steps.scope(|s| {
        for member in 0..members as u64 {
            s.spawn(move || {
                let mut key = mix(member + 1);
                let mut sum = 0;
                for _ in 0..lookups / members as u64 {
                    key = mix(key);
                    sum += get(key % keys).unwrap_or(1);
                }
                black_box(sum);
            });
        }
    })?;
    Ok(begun.elapsed().as_nanos() as f64 / lookups as f64)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let small = std::env::args().any(|arg| arg == "--small");
    let (keys, lookups) = if small { (1 << 12, 1 << 14) } else { (1 << 22, 1 << 22) };
    let chained = Chained::new(keys);
    let boxed: HashMap<u64, Box<[u64; 8]>> = (0..keys).map(|key| (key, Box::new([key; 8]))).collect();
    let in_chained = |key| chained.get(key);
    let in_boxed = |key: u64| {
        let value = boxed.get(&key)?;
        ctx_prefetch!("boxed/value", &raw const **value, 1);
        Some(value[7])
    };
    println!("{keys} keys; ns per lookup");
    println!("team     chained     HashMap of boxes");
    for members in [1, 2, 4, 8, 16] {
        let chained = measure(members, lookups, keys, &in_chained)?;
        let boxed = measure(members, lookups, keys, &in_boxed)?;
        println!("{members:>4} {chained:>11.1} {boxed:>12.1}");
    }
    Ok(())
}
