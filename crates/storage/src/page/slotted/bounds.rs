//! Fences of inner pages: bounds that may be wider than the range of the page.
//!
//! A leaf stores both fences whole, because the gap at its end is locked under the name of its high fence. No lock uses a
//! fence of an inner page, where two fences of maximum length would leave space for only one separator. So an inner page
//! stores fences of at most [`WHOLE_FENCE`] bytes whole. In place of a longer low fence it stores the first [`WHOLE_FENCE`]
//! bytes, which order at or below the fence. In place of a longer high fence it stores a string of the same length that
//! orders above the fence. So a stored fence with fewer bytes is known to be whole.
//!
//! The common prefix of the two fences must not get shorter when a page is split; otherwise the rests of its keys would grow
//! and might not fit. So the bound of a high fence keeps the bytes that the high fence shares with the low one. If the bytes
//! that follow them among the first [`WHOLE_FENCE`] bytes are all 255, or if no bytes follow, the high fence is stored
//! whole.

use std::borrow::Cow;

use crate::base::bytes::common_prefix;

/// Maximum length of a fence that an inner page always stores whole.
pub(crate) const WHOLE_FENCE: usize = 512;

/// Returns the bound that an inner page stores for its low fence.
pub(crate) fn low_bound(low: &[u8]) -> &[u8] {
    &low[..low.len().min(WHOLE_FENCE)]
}

/// Returns the bound that an inner page with this low fence stores for its high fence.
pub(crate) fn high_bound<'k>(low: Option<&[u8]>, high: &'k [u8]) -> Cow<'k, [u8]> {
    if high.len() <= WHOLE_FENCE {
        return Cow::Borrowed(high);
    }
    let first = &high[..WHOLE_FENCE];
    let shared = low.map_or(0, |low| common_prefix(low, high));
    match first.iter().rposition(|byte| *byte < u8::MAX) {
        Some(at) if at >= shared => {
            let mut above = first[..=at].to_vec();
            above[at] += 1;
            above.resize(WHOLE_FENCE, 0);
            Cow::Owned(above)
        }
        _ => Cow::Borrowed(high),
    }
}

/// Returns true if an inner page may store `stored` when its parent gives it the low fence `low`.
pub(crate) fn is_low_bound(stored: Option<&[u8]>, low: Option<&[u8]>) -> bool {
    match (stored, low) {
        (Some(stored), Some(low)) => stored == low_bound(low),
        (stored, low) => stored == low,
    }
}

/// Returns true if an inner page may store `stored` when its parent gives it the high fence `high`. The bound of a long high
/// fence depends on the splits that created the page.
pub(crate) fn is_high_bound(stored: Option<&[u8]>, high: Option<&[u8]>) -> bool {
    match (stored, high) {
        (Some(stored), Some(high)) if high.len() > WHOLE_FENCE => stored.len() >= WHOLE_FENCE && stored >= high,
        (stored, high) => stored == high,
    }
}

/// A fence of a page, as given by its parent.
#[derive(Clone, Debug)]
pub(crate) struct ParentFence {
    /// The fence; `None` at the end of the tree.
    pub(crate) key: Option<Vec<u8>>,
    /// True if the fence is a separator of the parent. Otherwise it is a fence of the parent, which may be the bound of a
    /// longer fence.
    pub(crate) is_separator: bool,
}

impl ParentFence {
    /// Infinite fence at the end of the tree.
    pub(crate) const NONE: ParentFence = ParentFence { key: None, is_separator: true };

    /// Returns the fence; `None` if it may be only a bound.
    fn whole(&self) -> Option<Option<&[u8]>> {
        let known = self.is_separator || self.key.as_ref().is_none_or(|key| key.len() != WHOLE_FENCE);
        known.then_some(self.key.as_deref())
    }

    /// Returns true if a page may have this low fence.
    pub(crate) fn admits_low(&self, stored: Option<&[u8]>, is_leaf: bool) -> bool {
        match self.whole() {
            Some(low) if is_leaf => stored == low,
            Some(low) => is_low_bound(stored, low),
            None => stored.zip(self.key.as_deref()).is_some_and(|(stored, begin)| stored.starts_with(begin)),
        }
    }

    /// Returns true if a page may have this high fence.
    pub(crate) fn admits_high(&self, stored: Option<&[u8]>, is_leaf: bool) -> bool {
        match self.whole() {
            Some(high) if is_leaf => stored == high,
            Some(high) => is_high_bound(stored, high),
            None => stored.zip(self.key.as_deref()).is_some_and(|(stored, above)| {
                if is_leaf {
                    stored == above || stored.len() > WHOLE_FENCE && stored <= above
                } else {
                    stored.len() >= WHOLE_FENCE
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(count: usize) -> Vec<Vec<u8>> {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut all: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                // Keys with few distinct bytes, and with long runs of 255 and of equal bytes around the maximum length of a
                // whole fence.
                let mut key = vec![[0xFF, 7, 0][rng.usize(..3)]; [0, 3, 300, 511, 512, 513, 700][rng.usize(..7)]];
                key.extend((0..rng.usize(..600)).map(|i| if i % 200 == 0 { rng.u8(..) } else { 0xFF }));
                key
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }

    /// For every page and every split of it: the stored bounds are valid, and each half shares at least as many bytes as
    /// the whole.
    #[test]
    fn bounds_are_wide_and_share_no_less_after_a_split() {
        let keys = strings(if cfg!(miri) { 10 } else { 90 });
        let stored = |low: &[u8], high: &[u8]| (low_bound(low).to_vec(), high_bound(Some(low), high).into_owned());
        let shared = |bounds: &(Vec<u8>, Vec<u8>)| common_prefix(&bounds.0, &bounds.1);
        for (i, low) in keys.iter().enumerate() {
            for (j, high) in keys.iter().enumerate().skip(i + 1) {
                let whole = stored(low, high);
                assert!(whole.0 <= *low && whole.1 >= *high && whole.0.len() <= WHOLE_FENCE);
                assert!(is_low_bound(Some(&whole.0), Some(low)) && is_high_bound(Some(&whole.1), Some(high)));
                assert!(low.starts_with(&whole.0[..shared(&whole)]) && high.starts_with(&whole.0[..shared(&whole)]));
                for cut in &keys[i + 1..j] {
                    let left = stored(&whole.0, cut);
                    // Splits of the right half know only the stored bound, not the fence.
                    let right = stored(cut, &whole.1);
                    assert!(shared(&left) >= shared(&whole) && shared(&right) >= shared(&whole));
                    assert!(is_high_bound(Some(&left.1), Some(cut)) && is_high_bound(Some(&right.1), Some(high)));
                    assert!(is_low_bound(Some(&right.0), Some(cut)) && is_low_bound(Some(&left.0), Some(low)));
                }
            }
        }
    }
}
