//! Ranges of pages that no tree contains. They are listed on the allocator's page.
//!
//! A bulk load allocates pages in ranges, and *owns* the ranges until its tree is installed. Pages that the load returns
//! become *free* ranges, from which later modifications allocate. The allocation of a range, the freeing of a range, and the
//! change of the root are each one log record that includes the list. So after a crash every page is in exactly one of a
//! tree, the free list, a range, or beyond the end. A restart frees the ranges that are still owned, because the loads that
//! owned them no longer exist.

use std::ops::Range;

use super::ops::space::{MOST_RANGES, OWNED, RANGE, RANGES, range_count};
use crate::page::PageRef;

/// A range of consecutive pages that no tree contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageRange {
    pub(crate) pages: Range<u32>,
    /// True if a bulk load owns the range; false if the range is free.
    pub(crate) owned: bool,
}

/// All ranges, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<PageRange>);

impl Ranges {
    /// Reads the list from the allocator's page. If the page is changing at the moment, the result is arbitrary.
    pub(crate) fn read(page: PageRef<'_>) -> Ranges {
        let range = |i: usize| {
            let (first, pages) = (page.u32(RANGES + RANGE * i), page.u32(RANGES + RANGE * i + 4));
            PageRange { pages: first..first.saturating_add(pages & !OWNED), owned: pages & OWNED != 0 }
        };
        Ranges((0..range_count(page)).map(range).collect())
    }

    /// Encodes the list in the format of the page.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * RANGE);
        for PageRange { pages, owned } in &self.0 {
            bytes.extend_from_slice(&pages.start.to_le_bytes());
            let count = (pages.end - pages.start) | if *owned { OWNED } else { 0 };
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        bytes
    }

    /// Iterates over the ranges, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &PageRange> {
        self.0.iter()
    }

    /// Returns the ranges that bulk loads own.
    pub(super) fn owned(&self) -> Vec<Range<u32>> {
        self.0.iter().filter(|range| range.owned).map(|range| range.pages.clone()).collect()
    }

    /// Removes the first page of the free ranges and returns its number. `None` if there is no free range.
    pub(super) fn take_one(&mut self) -> Option<u32> {
        let at = self.0.iter().position(|range| !range.owned)?;
        let page = self.0[at].pages.next();
        if self.0[at].pages.is_empty() {
            self.0.remove(at);
        }
        page
    }

    /// Returns the largest free range of at least `least` pages, limited to `most` pages.
    pub(super) fn largest(&self, least: usize, most: usize) -> Option<Range<u32>> {
        let fits = self.0.iter().filter(|range| !range.owned && range.pages.len() >= least);
        let pages = fits.map(|range| &range.pages).max_by_key(|pages| pages.len())?;
        Some(pages.start..pages.start + pages.len().min(most) as u32)
    }

    /// Assigns pages to a load: the beginning of a free range, or pages beyond the end. `last` is the load's previous range,
    /// extended if the pages directly follow it. Returns false, without any change, if the list has no space for
    /// one more range.
    #[must_use]
    pub(super) fn own(&mut self, pages: Range<u32>, last: Option<&Range<u32>>) -> bool {
        let joins = last.is_some_and(|last| last.end == pages.start);
        let at = self.0.partition_point(|range| range.pages.start < pages.start);
        let (from_free, whole) = match self.0.get(at) {
            Some(free) if free.pages.start == pages.start => (true, free.pages.end == pages.end),
            _ => (false, false),
        };
        if !joins && !whole && self.0.len() == MOST_RANGES {
            return false;
        }
        if whole {
            self.0.remove(at);
        } else if from_free {
            self.0[at].pages.start = pages.end;
        }
        if joins && at > 0 {
            self.0[at - 1].pages.end = pages.end;
        } else {
            self.0.insert(at, PageRange { pages, owned: true });
        }
        true
    }

    /// Removes an owned range from the list, because its pages belong to a tree. The pages from `rest` on become a free
    /// range.
    pub(super) fn settle(&mut self, pages: &Range<u32>, rest: u32) {
        let Some(at) = self.0.iter().position(|range| range.owned && range.pages == *pages) else { return };
        self.0.remove(at);
        if rest < pages.end {
            self.free(at, rest..pages.end);
        }
    }

    /// Makes an owned range free.
    pub(super) fn give_back(&mut self, pages: &Range<u32>) {
        self.settle(pages, pages.start);
    }

    /// Adds a free range before the list entry at `at`, and joins the range with adjacent free ranges.
    fn free(&mut self, at: usize, mut pages: Range<u32>) {
        let is_free = |range: Option<&PageRange>| range.filter(|range| !range.owned).map(|range| range.pages.clone());
        let mut at = at;
        if let Some(after) = is_free(self.0.get(at))
            && after.start == pages.end
        {
            pages.end = after.end;
            self.0.remove(at);
        }
        if let Some(before) = at.checked_sub(1).and_then(|before| is_free(self.0.get(before)))
            && before.end == pages.start
        {
            at -= 1;
            pages.start = before.start;
            self.0.remove(at);
        }
        self.0.insert(at, PageRange { pages, owned: false });
    }

    /// Removes a free range that ends at `end`. Returns the number of the first page never used after the removal.
    pub(super) fn trim(&mut self, end: u32) -> u32 {
        match self.0.pop_if(|last| !last.owned && last.pages.end == end) {
            Some(last) => last.pages.start,
            None => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fastrand::Rng;

    use super::*;

    /// Owner of a page in the test's model.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Has {
        Tree,
        Free,
        Load(usize),
    }

    fn sound(ranges: &Ranges, end: u32, model: &BTreeMap<u32, Has>) {
        let mut listed = BTreeMap::new();
        let mut behind = 0;
        for PageRange { pages, owned } in ranges.iter() {
            assert!(pages.start >= behind && !pages.is_empty() && pages.end <= end, "{ranges:?}, {end}");
            behind = pages.end;
            listed.extend(pages.clone().map(|page| (page, *owned)));
        }
        let wanted: BTreeMap<_, _> =
            model.iter().filter(|(_, has)| **has != Has::Tree).map(|(page, has)| (*page, *has != Has::Free)).collect();
        assert_eq!(listed, wanted);
        assert!(
            ranges
                .iter()
                .collect::<Vec<_>>()
                .windows(2)
                .all(|pair| { pair[0].owned || pair[1].owned || pair[0].pages.end < pair[1].pages.start })
        );
    }

    /// Checks that no page is lost or allocated twice if several loads allocate ranges and end or are aborted, while single
    /// pages are allocated.
    #[test]
    fn every_page_has_one_owner() {
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let (mut ranges, mut end) = (Ranges::default(), 3u32);
            let mut loads: Vec<Vec<Range<u32>>> = vec![Vec::new(); 3];
            let mut model: BTreeMap<u32, Has> = BTreeMap::new();
            for _ in 0..200 {
                let which = rng.usize(..3);
                match rng.u64(..8) {
                    0 => {
                        let page = ranges.take_one().unwrap_or(end);
                        end = end.max(page + 1);
                        model.insert(page, Has::Tree);
                    }
                    1 => {
                        let used = rng.u32(..20);
                        let pages = std::mem::take(&mut loads[which]);
                        let last = pages.len().saturating_sub(1);
                        for (i, pages) in pages.iter().enumerate() {
                            let rest = if i < last { pages.end } else { pages.end - used.min(pages.len() as u32) };
                            ranges.settle(pages, rest);
                            pages.clone().for_each(|page| {
                                model.insert(page, if page < rest { Has::Tree } else { Has::Free });
                            });
                        }
                    }
                    2 => {
                        for pages in std::mem::take(&mut loads[which]) {
                            ranges.give_back(&pages);
                            pages.for_each(|page| {
                                model.insert(page, Has::Free);
                            });
                        }
                        let before = end;
                        end = ranges.trim(end);
                        (end..before).for_each(|page| {
                            model.remove(&page);
                        });
                    }
                    _ => {
                        let wanted = 1 + rng.usize(..30);
                        let pages = ranges.largest(4, wanted).unwrap_or(end..end + wanted as u32);
                        assert!(ranges.own(pages.clone(), loads[which].last()));
                        end = end.max(pages.end);
                        pages.clone().for_each(|page| {
                            model.insert(page, Has::Load(which));
                        });
                        match loads[which].last_mut() {
                            Some(last) if last.end == pages.start => last.end = pages.end,
                            _ => loads[which].push(pages),
                        }
                    }
                }
                sound(&ranges, end, &model);
            }
        }
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let mut ranges = Ranges::default();
        for i in 0..MOST_RANGES as u32 {
            assert!(ranges.own(3 + 2 * i..4 + 2 * i, None));
        }
        let whole = ranges.clone();
        let end = 3 + 2 * MOST_RANGES as u32;
        assert!(!ranges.own(end..end + 1, None));
        assert_eq!(ranges, whole);
        let last = end - 2..end - 1;
        assert!(ranges.own(end - 1..end, Some(&last)));
        ranges.give_back(&(3..4));
        assert!(ranges.own(3..4, None), "a whole free range takes no more room");
    }
}
