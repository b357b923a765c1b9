//! Read sites at which an epoch waits for earlier epochs, instead of speculating that they do not write the key. These are
//! the sites that the program has listed, and the sites with many violated reads.

use std::fmt;

use crate::forward::Site;

/// Choice of the reads that wait. Such a read waits until the earlier epochs that may write the key have written it or have
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Reads at listed sites wait: see [`Options::wait_at`](crate::Options::wait_at) and
    /// [`Speculator::wait_at`](crate::Speculator::wait_at).
    Listed,
    /// Reads at listed sites wait, and so do, in later loops, reads at sites where more than a quarter of the reads was
    /// violated. After some hundred loops the reads at such a site speculate again, to test whether the dependence still
    /// exists.
    Adaptive,
}

/// Place in the source code, in the format of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourcePlace {
    file: &'static str,
    line: u32,
    /// Column; `None` matches any column.
    column: Option<u32>,
}

impl SourcePlace {
    /// Parses `file:line` or `file:line:column`.
    pub(crate) fn parse(text: &'static str) -> Option<SourcePlace> {
        let (rest, last) = text.rsplit_once(':')?;
        let last = last.parse().ok()?;
        let before = rest.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
        let (file, line, column) = match before {
            Some((file, line)) => (file, line, Some(last)),
            None => (rest, last, None),
        };
        (!file.is_empty()).then_some(SourcePlace { file, line, column })
    }

    fn is_of(&self, site: Site) -> bool {
        self.line == site.line() && self.column.is_none_or(|column| column == site.column()) && self.file == site.file()
    }
}

impl From<Site> for SourcePlace {
    fn from(site: Site) -> SourcePlace {
        SourcePlace { file: site.file(), line: site.line(), column: Some(site.column()) }
    }
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        self.column.map_or(Ok(()), |column| write!(f, ":{column}"))
    }
}

/// Numbers of correct and of violated reads of a site that was violated at least once.
#[derive(Clone, Copy, Debug)]
struct SiteReads {
    site: Site,
    /// Number of correct reads since the first violation.
    correct: u64,
    violated: u64,
}

impl SiteReads {
    /// Minimum number of counted reads before the fraction of violated reads is judged.
    const MIN_READS: u64 = 32;

    /// Returns true if more than a quarter of the reads was violated; `None` if there are too few reads to decide.
    fn are_often_violated(&self) -> Option<bool> {
        let all = self.correct + self.violated;
        (all >= SiteReads::MIN_READS).then_some(4 * self.violated > all)
    }
}

/// Read counts of the violated sites, as counted by one worker in one loop.
#[derive(Debug, Default)]
pub(crate) struct ReadCounts(Vec<SiteReads>);

impl ReadCounts {
    /// Returns true if no site is counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&mut self, site: Site) -> Option<&mut SiteReads> {
        self.0.iter_mut().find(|reads| std::ptr::eq(reads.site, site) || reads.site == site)
    }

    /// Counts a violated read of a site, and starts counting the site if necessary.
    pub(crate) fn count_violated(&mut self, site: Site) {
        self.add_site(site);
        if let Some(reads) = self.of(site) {
            reads.violated += 1;
        }
    }

    /// Counts a correct read, of a committed epoch, if the site is counted.
    pub(crate) fn count_correct(&mut self, site: Site) {
        if let Some(reads) = self.of(site) {
            reads.correct += 1;
        }
    }

    /// Starts counting the reads of a site.
    fn add_site(&mut self, site: Site) {
        if self.of(site).is_none() {
            self.0.push(SiteReads { site, correct: 0, violated: 0 });
        }
    }
}

/// Current treatment of the reads at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SiteState {
    Speculate,
    /// Reads wait, for this number of further loops.
    Wait(u32),
    /// Waiting did not help: reads speculate, for this number of further loops.
    WaitFailed(u32),
}

/// Read counts and states of all sites that were violated at least once.
#[derive(Debug, Default)]
pub(crate) struct SiteStats(Vec<(SiteReads, SiteState)>);

/// Number of loops for which a decision to wait, or not to wait, at a site holds.
const DECISION_LOOPS: u32 = 256;

impl SiteStats {
    /// Adds the counts of one worker in one loop.
    pub(crate) fn add(&mut self, counted: &mut ReadCounts) {
        for reads in counted.0.drain(..) {
            match self.0.iter_mut().find(|(known, _)| known.site == reads.site) {
                Some((known, _)) => {
                    known.correct += reads.correct;
                    known.violated += reads.violated;
                }
                None => self.0.push((reads, SiteState::Speculate)),
            }
        }
    }

    /// Makes a worker count the reads of all known sites in the next loop.
    pub(crate) fn start_counting(&self, counts: &mut ReadCounts) {
        self.0.iter().for_each(|(reads, _)| counts.add_site(reads.site));
    }

    /// Decides, after a loop, at which sites the reads wait in the next loop.
    pub(crate) fn update_states(&mut self) {
        for (reads, state) in &mut self.0 {
            let next = match (*state, reads.are_often_violated()) {
                (SiteState::Speculate, Some(true)) => SiteState::Wait(DECISION_LOOPS),
                (SiteState::Wait(_), Some(true)) => SiteState::WaitFailed(DECISION_LOOPS),
                (SiteState::Wait(0) | SiteState::WaitFailed(0), _) => SiteState::Speculate,
                (SiteState::Wait(loops), _) => SiteState::Wait(loops - 1),
                (SiteState::WaitFailed(loops), _) => SiteState::WaitFailed(loops - 1),
                (SiteState::Speculate, _) => SiteState::Speculate,
            };
            if std::mem::discriminant(&next) != std::mem::discriminant(state) {
                (reads.correct, reads.violated) = (0, 0);
            } else if reads.are_often_violated().is_some() {
                // Halves the counts, so that older reads weigh less.
                (reads.correct, reads.violated) = (reads.correct / 2, reads.violated / 2);
            }
            *state = next;
        }
    }

    /// Iterates over the sites at which reads wait because they were violated often.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Site> {
        self.0.iter().filter(|(_, state)| matches!(state, SiteState::Wait(_))).map(|(reads, _)| reads.site)
    }
}

/// Places in the source code at which reads wait in a loop.
#[derive(Debug, Default)]
pub(crate) struct WaitSites(Vec<SourcePlace>);

impl WaitSites {
    /// Combines the listed places and the sites that were violated often into one list.
    pub(crate) fn of(listed: &[SourcePlace], site_stats: &SiteStats) -> WaitSites {
        let others = site_stats.waiting().filter(|site| !listed.iter().any(|place| place.is_of(site)));
        WaitSites(listed.iter().copied().chain(others.map(SourcePlace::from)).collect())
    }

    /// Returns true if reads wait at no place.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if reads at this site wait.
    pub(crate) fn contains(&self, site: Site) -> bool {
        self.0.iter().any(|place| place.is_of(site))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SourcePlace> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;

    #[test]
    fn a_place_is_read_as_a_profile_prints_it() {
        let site = Location::caller();
        let text: &'static str = site.to_string().leak();
        let line = text.rsplit_once(':').unwrap().0;
        for place in [SourcePlace::from(site), SourcePlace::parse(text).unwrap(), SourcePlace::parse(line).unwrap()] {
            assert!(place.is_of(site), "{place}");
            assert!(!place.is_of(Location::caller()), "{place}");
        }
        assert_eq!(
            (SourcePlace::parse(text).unwrap().to_string(), SourcePlace::parse(line).unwrap().to_string()),
            (text.to_owned(), line.to_owned())
        );
        assert_eq!(SourcePlace::parse("C:\\loops.rs:7:9").unwrap().file, "C:\\loops.rs");
        for bad in ["", "loops.rs", ":7", "loops.rs:", "loops.rs:seven", "loops.rs:7:"] {
            assert_eq!(SourcePlace::parse(bad), None, "{bad}");
        }
    }

    /// Simulates a loop with `correct` correct reads and `violated` violated reads of a site. Returns true if the reads of
    /// the site wait in the next loop.
    fn after(site_stats: &mut SiteStats, site: Site, correct: u64, violated: u64) -> bool {
        let mut worker = ReadCounts::default();
        site_stats.start_counting(&mut worker);
        (0..violated).for_each(|_| worker.count_violated(site));
        (0..correct).for_each(|_| worker.count_correct(site));
        site_stats.add(&mut worker);
        site_stats.update_states();
        site_stats.waiting().any(|waits| waits == site)
    }

    #[test]
    fn a_site_waits_while_more_than_a_quarter_of_its_reads_is_violated() {
        let (mut site_stats, often, rarely) = (SiteStats::default(), Location::caller(), Location::caller());
        assert!(!after(&mut site_stats, often, 10, 10), "too few to tell");
        assert!(after(&mut site_stats, often, 10, 10));
        for _ in 0..100 {
            assert!(!after(&mut site_stats, rarely, 30, 10));
            assert!(after(&mut site_stats, often, 100, 1));
        }
        // The site is tested again after some time.
        assert!((0..DECISION_LOOPS).any(|_| !after(&mut site_stats, often, 100, 1)));
        assert!(after(&mut site_stats, often, 20, 20));
        // A wait that does not help ends.
        assert!(!after(&mut site_stats, often, 20, 20));
        assert!(!after(&mut site_stats, often, 20, 20));
    }

    #[test]
    fn reads_are_counted_from_the_first_violation_of_their_site_on() {
        let site = Location::caller();
        let mut worker = ReadCounts::default();
        worker.count_correct(site);
        assert!(worker.is_empty());
        worker.count_violated(site);
        worker.count_correct(site);
        assert_eq!((worker.0[0].correct, worker.0[0].violated), (1, 1));
    }
}
