//! MESI protocol for one cache line: the cores that hold the line, and their states.
//!
//! | state of a core | states of the others |
//! | --- | --- |
//! | Modified, Exclusive | Invalid |
//! | Shared | Shared or Invalid |
//! | Invalid | any |

/// Maximum number of cores. Each core takes one bit of a mask of 64 bits.
pub(super) const MOST_CORES: usize = 64;

/// Cores whose private caches hold one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Holders {
    /// Bit mask of the cores that hold the line.
    cores: u64,
    /// True if the only holder has written the line.
    modified: bool,
}

/// Source that served an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AccessSource {
    /// The core held the line in a state that allows the access.
    Hit,
    /// The core held a shared copy and wrote. The copies of these other cores (a bit mask) were invalidated.
    Upgrade(u64),
    /// One of these cores (a bit mask) transferred the line. A write also invalidated their copies.
    Cores(u64),
    /// No core held the line.
    Memory,
}

impl Holders {
    /// Returns true if the core can perform the read or write without a request to other cores.
    pub(super) fn allow(self, core: usize, writes: bool) -> bool {
        let own = 1 << core;
        if writes { self.cores == own } else { self.cores & own != 0 }
    }

    /// Performs a read or a write of a core. Returns the source that served it.
    pub(super) fn access(&mut self, core: usize, writes: bool) -> AccessSource {
        let own = 1 << core;
        let others = self.cores & !own;
        let source = match (self.cores & own != 0, others) {
            (true, 0) => AccessSource::Hit,
            (true, _) if !writes => AccessSource::Hit,
            (true, _) => AccessSource::Upgrade(others),
            (false, 0) => AccessSource::Memory,
            (false, _) => AccessSource::Cores(others),
        };
        if writes {
            *self = Holders { cores: own, modified: true };
        } else {
            // The owner of a modified line transfers the data and keeps a clean copy.
            self.modified &= others == 0;
            self.cores |= own;
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

    impl Holders {
        fn state(self, core: usize) -> LineState {
            match (self.cores & 1 << core != 0, self.cores.count_ones(), self.modified) {
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
        let mut line = Holders::default();
        let states = |line: &Holders| [0, 1, 2].map(|core| line.state(core));
        for (core, writes, source, after) in [
            (0, false, AccessSource::Memory, [Exclusive, Invalid, Invalid]),
            (0, false, AccessSource::Hit, [Exclusive, Invalid, Invalid]),
            (0, true, AccessSource::Hit, [Modified, Invalid, Invalid]),
            (1, false, AccessSource::Cores(0b001), [Shared, Shared, Invalid]),
            (1, true, AccessSource::Upgrade(0b001), [Invalid, Modified, Invalid]),
            (2, true, AccessSource::Cores(0b010), [Invalid, Invalid, Modified]),
            (0, false, AccessSource::Cores(0b100), [Shared, Invalid, Shared]),
            (1, false, AccessSource::Cores(0b101), [Shared, Shared, Shared]),
            (1, false, AccessSource::Hit, [Shared, Shared, Shared]),
            (0, true, AccessSource::Upgrade(0b110), [Modified, Invalid, Invalid]),
        ] {
            assert_eq!(line.allow(core, writes), source == AccessSource::Hit, "core {core}");
            assert_eq!((line.access(core, writes), states(&line)), (source, after), "core {core}");
        }
    }

    /// Reference model: snooping caches, each with its own state.
    struct Naive(Vec<LineState>);

    impl Naive {
        fn access(&mut self, core: usize, writes: bool) -> AccessSource {
            let before = self.0[core];
            let mut others = 0;
            for (other, state) in self.0.iter_mut().enumerate().filter(|(other, _)| *other != core) {
                if *state != LineState::Invalid {
                    others |= 1 << other;
                    *state = if writes { LineState::Invalid } else { LineState::Shared };
                }
            }
            if !writes && before != LineState::Invalid && others != 0 {
                assert_eq!(before, LineState::Shared);
            }
            self.0[core] = match (writes, before) {
                (true, _) => LineState::Modified,
                (false, LineState::Invalid) if others == 0 => LineState::Exclusive,
                (false, LineState::Invalid) => LineState::Shared,
                (false, same) => same,
            };
            match before {
                LineState::Modified | LineState::Exclusive => AccessSource::Hit,
                LineState::Shared if !writes || others == 0 => AccessSource::Hit,
                LineState::Shared => AccessSource::Upgrade(others),
                LineState::Invalid if others == 0 => AccessSource::Memory,
                LineState::Invalid => AccessSource::Cores(others),
            }
        }
    }

    proptest! {
        #[test]
        fn the_set_of_holders_agrees_with_caches_that_snoop(accesses in prop::collection::vec((0_usize..5, any::<bool>()), 1..200)) {
            let (mut line, mut naive) = (Holders::default(), Naive(vec![LineState::Invalid; 5]));
            for (core, writes) in accesses {
                prop_assert_eq!(line.access(core, writes), naive.access(core, writes));
                for core in 0..5 {
                    prop_assert_eq!(line.state(core), naive.0[core]);
                }
            }
        }
    }
}
