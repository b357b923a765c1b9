//! Progress display on stderr: one rewritten line on a terminal, otherwise a new line every ten seconds.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::workload::streams;

/// Interval between lines if stderr is not a terminal.
const EVERY: Duration = Duration::from_secs(10);

/// Progress display on stderr.
pub enum Progress {
    /// Display on a terminal: one line that is rewritten.
    Line(ProgressBar),
    /// Display on any other destination: new lines. Contains the time when the next line is due.
    Lines(Instant),
}

impl Progress {
    /// Creates a display that does not show anything yet.
    pub fn start() -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress::Lines(Instant::now() + EVERY);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Progress::Line(bar)
    }

    /// Updates the display with `line`. If stderr is not a terminal, prints the line only if the next line is due.
    pub fn show(&mut self, line: impl FnOnce() -> String) {
        match self {
            Progress::Line(bar) => bar.set_message(line()),
            Progress::Lines(due) => {
                let now = Instant::now();
                if now >= *due {
                    streams::say(line());
                    *due = now + EVERY;
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Progress::Line(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Formats a number in short form: "412k", "1.2M".
pub fn short(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.1}M", n / 1e6),
        n if n >= 1e5 => format!("{:.0}k", n / 1e3),
        n if n >= 1e3 => format!("{:.1}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// Formats a progress bar such as "[#######.............]"; `share` is the completed fraction, 0 to 1.
pub fn bar(share: f64) -> String {
    const WIDTH: usize = 20;
    let done = ((share.clamp(0.0, 1.0) * WIDTH as f64) as usize).min(WIDTH);
    format!("[{}{}]", "#".repeat(done), ".".repeat(WIDTH - done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_short() {
        assert_eq!((short(12.3), short(1_234.0), short(181_400.0), short(2.5e6)), {
            ("12".to_owned(), "1.2k".to_owned(), "181k".to_owned(), "2.5M".to_owned())
        });
        assert_eq!(bar(0.35), "[#######.............]");
        assert_eq!(bar(2.0), "[####################]");
    }
}
