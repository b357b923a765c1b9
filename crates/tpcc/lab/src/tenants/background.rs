//! A loop program (the paper's): it computes over a little memory, and has no sibling.

use std::hint::black_box;

/// Words that it goes over: 32 KiB.
const WORDS: usize = 4096;

/// See the module.
pub struct Loop {
    words: Vec<u64>,
}

impl Loop {
    /// A loop that has done nothing yet.
    pub fn new() -> Loop {
        Loop { words: (0..WORDS as u64).collect() }
    }

    /// One iteration: some microseconds.
    pub fn turn(&mut self) {
        let mut sum = 0u64;
        for word in &mut self.words {
            sum = sum.rotate_left(7) ^ *word;
            *word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(sum);
        }
        black_box(sum);
    }
}
