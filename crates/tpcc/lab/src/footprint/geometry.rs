//! Cache geometry, written as `32768,8,64`.

use std::fmt;
use std::str::FromStr;

/// Size in bytes, number of ways, and line size in bytes of a cache. All three are powers of two, and there is at least one
/// set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    bytes: u32,
    ways: u32,
    line: u32,
}

/// Maximum size of a simulated cache: 1 GiB.
const LARGEST: u32 = 1 << 30;
/// Minimum and maximum line size in bytes, within the sizes that Cachegrind accepts and machines have.
const LINES: std::ops::RangeInclusive<u32> = 16..=4096;

impl Geometry {
    /// Instruction cache of most x86-64 processors: 32 KiB, 8 ways, 64-byte lines.
    pub const DEFAULT: Geometry = Geometry { bytes: 32 << 10, ways: 8, line: 64 };

    /// Creates a geometry. Returns `None` if a number is not a power of two or is out of range, or if a set does not fit.
    pub const fn new(bytes: u32, ways: u32, line: u32) -> Option<Geometry> {
        let powers = bytes.is_power_of_two() && ways.is_power_of_two() && line.is_power_of_two();
        let fits = bytes <= LARGEST && line >= *LINES.start() && line <= *LINES.end();
        if powers && fits && (ways as u64) * (line as u64) <= bytes as u64 {
            Some(Geometry { bytes, ways, line })
        } else {
            None
        }
    }

    /// Returns the size of the cache in bytes.
    pub fn bytes(self) -> u32 {
        self.bytes
    }

    /// Returns the number of ways: lines of a set.
    pub fn ways(self) -> u32 {
        self.ways
    }

    /// Returns the line size in bytes.
    pub fn line(self) -> u32 {
        self.line
    }

    /// Returns the number of sets.
    pub fn sets(self) -> u32 {
        self.bytes / (self.ways * self.line)
    }

    /// Formats the geometry, for example as "8 KiB, 8 ways, lines of 64 B".
    pub fn in_words(self) -> String {
        let size = if self.bytes >= 1024 { format!("{} KiB", self.bytes / 1024) } else { format!("{} B", self.bytes) };
        let ways = if self.ways == 1 { "direct".to_owned() } else { format!("{} ways", self.ways) };
        format!("{size}, {ways}, lines of {} B", self.line)
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.bytes, self.ways, self.line)
    }
}

impl FromStr for Geometry {
    type Err = String;

    /// Parses "SIZE,WAYS,LINE" in bytes. The error describes the problem.
    fn from_str(text: &str) -> Result<Geometry, String> {
        let parts: Vec<Option<u32>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
        let [Some(bytes), Some(ways), Some(line)] = parts[..] else {
            return Err("is not SIZE,WAYS,LINE in bytes".to_owned());
        };
        for (what, value) in [("size", bytes), ("number of ways", ways), ("line", line)] {
            if !value.is_power_of_two() {
                return Err(format!("its {what}, {value}, is no power of two"));
            }
        }
        Geometry::new(bytes, ways, line).ok_or_else(|| {
            format!(
                "no such cache: lines have {} to {} bytes, a set has to fit, and {} MiB are the most",
                LINES.start(),
                LINES.end(),
                LARGEST >> 20
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometries_are_read_and_refused() {
        let usual: Geometry = "32768,8,64".parse().unwrap();
        assert_eq!((usual, usual.sets(), usual.to_string()), (Geometry::DEFAULT, 64, "32768,8,64".to_owned()));
        assert_eq!("1024, 1, 64".parse::<Geometry>().unwrap().sets(), 16);
        for (bad, why) in [
            ("32768,8", "SIZE,WAYS,LINE"),
            ("32768,8,64,1", "SIZE,WAYS,LINE"),
            ("big,8,64", "SIZE,WAYS,LINE"),
            ("-4,8,64", "SIZE,WAYS,LINE"),
            ("30000,8,64", "size, 30000, is no power of two"),
            ("32768,6,64", "number of ways, 6,"),
            ("32768,8,48", "line, 48,"),
            ("0,8,64", "size, 0,"),
            ("256,8,64", "a set has to fit"),
            ("32768,8,8", "lines have"),
            ("2147483648,8,64", "are the most"),
        ] {
            let error = bad.parse::<Geometry>().unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
