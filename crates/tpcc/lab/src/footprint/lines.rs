//! Addresses of shared lines, as the traced program prints them for the tracer.

/// Address range of one kind of lines.
#[derive(PartialEq, Eq, Debug)]
pub struct Lines {
    /// Name of the kind, as in [`storage::measure::SharedLines`].
    pub kind: String,
    begin: u64,
    end: u64,
    every: u64,
    /// Distance in bytes between the lines of consecutive workers; 0 if all workers use the same lines.
    pub per_worker: u64,
}

impl Lines {
    /// Parses a line that [`format_lines`] wrote; `None` for any other line.
    pub fn parse(line: &str) -> Option<Lines> {
        let mut words = line.strip_prefix(PREFIX)?.splitn(5, ' ');
        let mut number = || words.next()?.parse().ok();
        let (begin, end, every, per_worker) = (number()?, number()?, number()?, number()?);
        Some(Lines { kind: words.next()?.to_owned(), begin, end, every, per_worker })
    }

    /// Returns the address of the first element.
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// Returns the number of bytes of the range.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.end - self.begin
    }

    /// Returns the distance between two elements if only the first line of each element is meant; 0 otherwise.
    pub fn every(&self) -> u64 {
        self.every
    }

    /// Returns true if the address is in one of these lines.
    pub fn contains(&self, address: u64) -> bool {
        const LINE: u64 = 64;
        (self.begin..self.end).contains(&address) && (self.every == 0 || (address - self.begin) % self.every < LINE)
    }
}

/// Prefix of a printed line.
const PREFIX: &str = "lines ";

/// Formats the addresses of lines for [`Lines::parse`].
pub fn format_lines(lines: &storage::measure::SharedLines) -> String {
    let storage::measure::SharedLines { kind, range, every, per_worker, .. } = lines;
    format!("{PREFIX}{} {} {every} {per_worker} {kind}", range.start, range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let page = storage::measure::MeasuredPage::new(storage::LatchKind::Plain);
        for said in page.shared_lines() {
            let understood = Lines::parse(&format_lines(&said)).unwrap();
            assert_eq!((understood.kind.as_str(), understood.per_worker), (said.kind, said.per_worker as u64));
            assert!(understood.contains(said.range.start as u64) && !understood.contains(said.range.end as u64));
        }
        assert_eq!((Lines::parse("index 1 x"), Lines::parse("lines 1 2 3")), (None, None));
    }
}
