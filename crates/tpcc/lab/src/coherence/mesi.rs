//! MESI protocol for one cache line: the cores that hold the line, and their states.
//!
//! | state of a core | states of the others |
//! | --- | --- |
//! | Modified, Exclusive | Invalid |
//! | Shared | Shared or Invalid |
//! | Invalid | any |

/// A set of cores: one bit for each core, in `WORDS` words of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CoreSet<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> CoreSet<WORDS> {
    /// Maximum number of cores.
    pub(super) const MOST_CORES: usize = 64 * WORDS;
    /// The set without a core.
    pub(super) const EMPTY: CoreSet<WORDS> = CoreSet([0; WORDS]);

    /// Returns the set of these cores, without those that have no bit.
    pub(super) fn of_range(cores: std::ops::Range<usize>) -> CoreSet<WORDS> {
        let mut set = CoreSet::EMPTY;
        cores.take_while(|core| *core < Self::MOST_CORES).for_each(|core| set.insert(core));
        set
    }

    #[inline]
    fn contains(self, core: usize) -> bool {
        self.0[core / 64] & 1 << (core % 64) != 0
    }

    #[inline]
    fn insert(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }

    #[inline]
    fn only(core: usize) -> CoreSet<WORDS> {
        let mut set = CoreSet::EMPTY;
        set.insert(core);
        set
    }

    #[inline]
    fn without(mut self, core: usize) -> CoreSet<WORDS> {
        self.0[core / 64] &= !(1 << (core % 64));
        self
    }

    /// Returns true if the set has no core.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self == CoreSet::EMPTY
    }

    /// Returns true if every core of the set is in `other`.
    #[inline]
    pub(super) fn is_within(self, other: CoreSet<WORDS>) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| own & !other == 0)
    }

    /// Returns true if a core is in both sets.
    #[inline]
    pub(super) fn meets(self, other: CoreSet<WORDS>) -> bool {
        self.0.iter().zip(other.0).any(|(own, other)| own & other != 0)
    }

    /// Returns the number of cores.
    #[inline]
    pub(super) fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// Cores whose private caches hold one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holders<const WORDS: usize> {
    /// The cores that hold the line.
    cores: CoreSet<WORDS>,
    /// True if the only holder has written the line.
    modified: bool,
}

/// Source that served an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessSource<const WORDS: usize> {
    /// The core held the line in a state that allows the access.
    Hit,
    /// The core held a shared copy and wrote. The copies of these other cores were invalidated.
    Upgrade(CoreSet<WORDS>),
    /// One of these cores transferred the line. A write also invalidated their copies.
    Cores(CoreSet<WORDS>),
    /// No core held the line.
    Memory,
}

impl<const WORDS: usize> Default for Holders<WORDS> {
    fn default() -> Holders<WORDS> {
        Holders { cores: CoreSet::EMPTY, modified: false }
    }
}

impl<const WORDS: usize> Holders<WORDS> {
    /// Returns true if the core can perform the read or write without a request to other cores.
    #[inline]
    pub(super) fn allow(self, core: usize, writes: bool) -> bool {
        if writes { self.cores == CoreSet::only(core) } else { self.cores.contains(core) }
    }

    /// Performs a read or a write of a core. Returns the source that served it.
    #[inline]
    pub(super) fn access(&mut self, core: usize, writes: bool) -> AccessSource<WORDS> {
        let others = self.cores.without(core);
        let source = match (self.cores.contains(core), others.is_empty()) {
            (true, true) => AccessSource::Hit,
            (true, false) if !writes => AccessSource::Hit,
            (true, false) => AccessSource::Upgrade(others),
            (false, true) => AccessSource::Memory,
            (false, false) => AccessSource::Cores(others),
        };
        if writes {
            *self = Holders { cores: CoreSet::only(core), modified: true };
        } else {
            // The owner of a modified line transfers the data and keeps a clean copy.
            self.modified &= others.is_empty();
            self.cores.insert(core);
        }
        source
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum LineState {
        Modified,
        Exclusive,
        Shared,
        Invalid,
    }

    impl<const WORDS: usize> Holders<WORDS> {
        fn state(self, core: usize) -> LineState {
            match (self.cores.contains(core), self.cores.count(), self.modified) {
                (false, ..) => LineState::Invalid,
                (true, 1, true) => LineState::Modified,
                (true, 1, false) => LineState::Exclusive,
                (true, ..) => LineState::Shared,
            }
        }
    }

    #[test]
    fn each_transition_is_that_of_the_protocol() {
        use LineState::{Exclusive, Invalid, Modified, Shared};
        let mut line = Holders::<1>::default();
        let states = |line: &Holders<1>| [0, 1, 2].map(|core| line.state(core));
        for (core, writes, source, after) in [
            (0, false, AccessSource::Memory, [Exclusive, Invalid, Invalid]),
            (0, false, AccessSource::Hit, [Exclusive, Invalid, Invalid]),
            (0, true, AccessSource::Hit, [Modified, Invalid, Invalid]),
            (1, false, AccessSource::Cores(CoreSet([0b001])), [Shared, Shared, Invalid]),
            (1, true, AccessSource::Upgrade(CoreSet([0b001])), [Invalid, Modified, Invalid]),
            (2, true, AccessSource::Cores(CoreSet([0b010])), [Invalid, Invalid, Modified]),
            (0, false, AccessSource::Cores(CoreSet([0b100])), [Shared, Invalid, Shared]),
            (1, false, AccessSource::Cores(CoreSet([0b101])), [Shared, Shared, Shared]),
            (1, false, AccessSource::Hit, [Shared, Shared, Shared]),
            (0, true, AccessSource::Upgrade(CoreSet([0b110])), [Modified, Invalid, Invalid]),
        ] {
            assert_eq!(line.allow(core, writes), source == AccessSource::Hit, "core {core}");
            assert_eq!((line.access(core, writes), states(&line)), (source, after), "core {core}");
        }
    }

    /// Reference model: snooping caches, each with its own state.
    struct Naive(Vec<LineState>);

    impl Naive {
        fn access(&mut self, core: usize, writes: bool) -> AccessSource<4> {
            let before = self.0[core];
            let mut others = CoreSet::EMPTY;
            for (other, state) in self.0.iter_mut().enumerate().filter(|(other, _)| *other != core) {
                if *state != LineState::Invalid {
                    others.insert(other);
                    *state = if writes { LineState::Invalid } else { LineState::Shared };
                }
            }
            if !writes && before != LineState::Invalid && !others.is_empty() {
                assert_eq!(before, LineState::Shared);
            }
            self.0[core] = match (writes, before) {
                (true, _) => LineState::Modified,
                (false, LineState::Invalid) if others.is_empty() => LineState::Exclusive,
                (false, LineState::Invalid) => LineState::Shared,
                (false, same) => same,
            };
            match before {
                LineState::Modified | LineState::Exclusive => AccessSource::Hit,
                LineState::Shared if !writes || others.is_empty() => AccessSource::Hit,
                LineState::Shared => AccessSource::Upgrade(others),
                LineState::Invalid if others.is_empty() => AccessSource::Memory,
                LineState::Invalid => AccessSource::Cores(others),
            }
        }
    }

    proptest! {
        #[test]
        fn the_set_of_holders_agrees_with_caches_that_snoop(accesses in prop::collection::vec((0_usize..5, any::<bool>()), 1..200)) {
            // One core of each word, and two of the first one.
            const CORES: [usize; 5] = [0, 63, 64, 130, 255];
            let (mut line, mut naive) = (Holders::<4>::default(), Naive(vec![LineState::Invalid; 256]));
            for (core, writes) in accesses {
                let core = CORES[core];
                prop_assert_eq!(line.access(core, writes), naive.access(core, writes));
                for core in CORES {
                    prop_assert_eq!(line.state(core), naive.0[core]);
                }
            }
        }
    }
}
