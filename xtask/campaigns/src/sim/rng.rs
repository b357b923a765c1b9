//! Random number generator of seeds and cases.

/// Random number generator.
#[derive(Clone, Debug)]
pub(crate) struct Rng(fastrand::Rng);

impl Rng {
    /// Creates the generator of a seed. Generators of adjacent seeds yield unrelated numbers.
    pub(crate) fn new(seed: u64) -> Rng {
        // Without the fork, the first numbers of adjacent seeds are correlated.
        Rng(fastrand::Rng::with_seed(seed).fork())
    }

    /// Creates the generator for one case of a campaign. Its numbers are independent of the numbers in other cases.
    pub(crate) fn of_case(seed: u64, case: u64) -> Rng {
        Rng::new(Rng::new(seed).next() ^ case)
    }

    /// Creates another generator, seeded from this one.
    pub(crate) fn split(&mut self) -> Rng {
        Rng(self.0.fork())
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns a number below `limit`; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.u64(..limit.max(1))
    }

    /// Returns a valid index of a non-empty slice with `len` elements.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Returns true with a probability of 1 in `n`.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a random element of a non-empty slice.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// Returns a vector of `n` random bytes.
    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.0.fill(&mut bytes);
        bytes
    }
}
