//! Time series of a run as CSV, one line per second.

use std::fmt::Write;

use super::model::ThroughputSeries;

/// Formats a header line, and one line per second.
pub(super) fn over_time(series: &ThroughputSeries) -> String {
    let mut text = "t_s,throughput_per_s,p99_us,aborted,log_bytes,checkpoints,page_reads,page_writes\n".to_owned();
    for (second, t) in series.t_s.iter().enumerate() {
        let count = |of: &[Option<u64>]| of.get(second).copied().flatten().map_or(String::new(), |n| n.to_string());
        let rate = series.throughput_per_s.get(second).copied().unwrap_or_default();
        let p99 = series.p99_us.get(second).copied().flatten().map_or(String::new(), |us| us.to_string());
        let aborted = series.aborted.get(second).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "{t},{rate},{p99},{aborted},{},{},{},{}",
            count(&series.log_bytes),
            count(&series.checkpoints),
            count(&series.page_reads),
            count(&series.page_writes),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_a_line_and_what_is_not_known_is_empty() {
        let series = ThroughputSeries {
            t_s: vec![1.0, 2.0],
            throughput_per_s: vec![10.5, 20.0],
            p99_us: vec![Some(7.0), None],
            aborted: vec![0, 3],
            log_bytes: vec![Some(100), Some(200)],
            checkpoints: vec![Some(0), Some(1)],
            page_reads: vec![None, None],
            page_writes: vec![Some(1), Some(2)],
        };
        let text = over_time(&series);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, ["1,10.5,7,0,100,0,,1", "2,20,,3,200,1,,2"]);
        assert_eq!(text.lines().next().unwrap().split(',').count(), 8);
    }
}
