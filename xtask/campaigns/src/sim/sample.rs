//! Uniform random sample of a stream of unknown length (Vitter's algorithm R, 1985).

use super::rng::Rng;

/// Uniform random sample of the items that were offered.
#[derive(Debug)]
pub(super) struct Sample<T> {
    rng: Rng,
    limit: usize,
    /// Number of items that were offered so far.
    offered: u64,
    /// Sampled items, with their positions in the stream.
    chosen: Vec<(u64, T)>,
}

impl<T> Sample<T> {
    /// Creates an empty sample of at most `limit` items.
    pub(super) fn new(limit: usize, rng: Rng) -> Sample<T> {
        Sample { rng, limit, offered: 0, chosen: Vec::new() }
    }

    /// Offers the next item of the stream. Calls `item` only if the item enters the sample.
    pub(super) fn offer(&mut self, item: impl FnOnce() -> T) {
        let at = self.offered;
        self.offered += 1;
        if self.chosen.len() < self.limit {
            self.chosen.push((at, item()));
        } else if let Some(place) = self.chosen.get_mut(self.rng.below(self.offered) as usize) {
            *place = (at, item());
        }
    }

    /// Takes the sampled items, in the order of the stream. The sample is empty afterwards.
    pub(super) fn take(&mut self) -> Vec<T> {
        self.offered = 0;
        let mut chosen = std::mem::take(&mut self.chosen);
        chosen.sort_by_key(|(at, _)| *at);
        chosen.into_iter().map(|(_, item)| item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_short_stream_are_chosen() {
        let mut sample = Sample::new(10, Rng::new(1));
        (0..10).for_each(|n| sample.offer(|| n));
        assert_eq!(sample.take(), (0..10).collect::<Vec<_>>());
        assert_eq!(sample.take(), [0; 0]);
    }

    #[test]
    fn each_item_is_as_likely() {
        let mut times = [0; 20];
        for seed in 0..2000 {
            let mut sample = Sample::new(5, Rng::of_case(7, seed));
            (0..20usize).for_each(|n| sample.offer(|| n));
            let chosen = sample.take();
            assert!(chosen.len() == 5 && chosen.is_sorted(), "{chosen:?}");
            chosen.iter().for_each(|n| times[*n] += 1);
        }
        assert!(times.iter().all(|n| (400..600).contains(n)), "{times:?}");
    }

    #[test]
    fn what_is_not_chosen_is_not_made() {
        let (mut sample, mut made) = (Sample::new(5, Rng::new(3)), 0);
        for n in 0..1000 {
            sample.offer(|| {
                made += 1;
                n
            });
        }
        assert!((10..80).contains(&made), "{made} made");
        let mut none: Sample<u8> = Sample::new(0, Rng::new(3));
        none.offer(|| unreachable!("made"));
        assert!(none.take().is_empty());
    }
}
