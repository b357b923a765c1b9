//! Style sheet of pages: light, dark and print styles, for widths from 400 pixels on.

use std::fmt::Write;

use super::ink::SERIES;

/// Returns the style sheet with the colours of series.
pub(super) fn style() -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    for (n, (on_light, on_dark)) in SERIES.iter().enumerate() {
        let _ = write!(light, "--s{n}: {on_light}; ");
        let _ = write!(dark, "--s{n}: {on_dark}; ");
    }
    include_str!("style.css").replace("LIGHT", light.trim_end()).replace("DARK", dark.trim_end())
}
