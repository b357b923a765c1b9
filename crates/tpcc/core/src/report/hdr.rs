//! Latency histograms of a run as an interval log of HdrHistogram (V2, compressed), for the HdrHistogram tools. The log has
//! one line for the service times and one for the response times of each transaction type, tagged with the type's name.
//! Values are nanoseconds.

use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use crate::driver::measure::Stats;
use crate::workload::error::Error;
use crate::workload::generate::deck::Kind;

/// Divisor of maxima in the log: nanoseconds per millisecond, as the tools expect.
const NS_PER_MS: f64 = 1e6;

/// Formats the log. Each transaction type has a line of service times (tag such as `new-order`) and a line of response times
/// (tag such as `new-order-response`).
pub(super) fn log(stats: &Stats) -> Result<Vec<u8>, Error> {
    let failed = |what: String| Error::failed(format!("--hdr: the log cannot be made: {what}"));
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let length = Duration::from_secs_f64(stats.seconds());
    let start = SystemTime::now().checked_sub(length).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut writer = IntervalLogWriterBuilder::new()
        .add_comment("tpcc: service and response times of a run, in nanoseconds, by type of transaction")
        .with_start_time(start)
        .with_base_time(start)
        .with_max_value_divisor(NS_PER_MS)
        .begin_log_with(&mut text, &mut serializer)
        .map_err(|e| failed(e.to_string()))?;
    for kind in Kind::ALL {
        let of = &stats.kinds[kind as usize];
        for (name, times) in
            [(kind.name().to_owned(), &of.service), (format!("{}-response", kind.name()), &of.response)]
        {
            let tag = Tag::new(&name).ok_or_else(|| failed(format!("{name} is no tag")))?;
            writer
                .write_histogram(times.histogram(), Duration::ZERO, length, Some(tag))
                .map_err(|e| failed(format!("{e:?}")))?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    #[test]
    fn the_log_gives_the_times_back() {
        let mut stats = Stats::new();
        for us in 1..=1_000 {
            stats.acknowledged(Kind::Payment, us * 1_000, us * 3_000);
        }
        stats.measured(0, 2_000_000_000);
        let log = log(&stats).unwrap();
        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(&log) {
            if let Ok(LogEntry::Interval(interval)) = entry {
                let bytes = base64_of(interval.encoded_histogram());
                let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
                let tag = interval.tag().unwrap().as_str().to_owned();
                found.push((tag, histogram.len(), histogram.value_at_quantile(0.5)));
            }
        }
        assert_eq!(found.len(), 10);
        let of = |name: &str| found.iter().find(|(tag, ..)| tag == name).unwrap();
        assert_eq!(of("new-order").1, 0);
        let (_, count, median) = of("payment");
        assert!(*count == 1_000 && (499_000..=502_000).contains(median), "{median}");
        assert!((1_497_000..=1_506_000).contains(&of("payment-response").2));
    }

    fn base64_of(text: &str) -> Vec<u8> {
        let digit = |c: u8| match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        let digits: Vec<u8> = text.bytes().filter(|c| *c != b'=').map(digit).collect();
        let bits = |four: &[u8]| four.iter().fold(0_u32, |all, d| all << 6 | u32::from(*d)) << (6 * (4 - four.len()));
        digits.chunks(4).flat_map(|four| bits(four).to_be_bytes()[1..four.len()].to_vec()).collect()
    }
}
