//! Background loop program of the paper. It computes over a small memory area and has no siblings.

use std::hint::black_box;

/// Number of words of the memory area, which has 32 KiB.
const WORDS: usize = 4096;

/// State of a loop program.
pub struct Loop {
    words: Vec<u64>,
}

impl Loop {
    /// Creates a loop that has made no iterations.
    pub(crate) fn new() -> Loop {
        Loop { words: (0..WORDS as u64).collect() }
    }

    /// Executes one iteration, which takes a few microseconds.
    pub fn iterate(&mut self) {
        let mut sum = 0u64;
        for word in &mut self.words {
            sum = sum.rotate_left(7) ^ *word;
            *word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(sum);
        }
        black_box(sum);
    }
}
