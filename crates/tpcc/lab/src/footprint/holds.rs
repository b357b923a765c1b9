//! What a transaction holds, as the traced program tells it to the tracer: record locks, and where the latch of a page is.

use std::fmt::Write;

use storage::Database;
use storage::measure::{FrameLayout, HeldLock};

/// A record lock that a transaction held at its commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordLock {
    /// Number of the table, as in [`parse_table`].
    pub table: u32,
    /// Name of the record.
    pub name: u64,
    /// Address of the word of the lock's bucket.
    pub bucket: u64,
    /// True for the modes U and X, false for S.
    pub is_exclusive: bool,
}

/// Formats the locks of a transaction for [`parse_locks`].
pub fn format_locks(locks: &[HeldLock]) -> String {
    let mut text = String::new();
    for HeldLock { table, name, bucket, is_exclusive, .. } in locks {
        let _ = writeln!(text, "{table} {name} {bucket} {}", u8::from(*is_exclusive));
    }
    text
}

/// Parses a text of [`format_locks`].
pub fn parse_locks(text: &str) -> Vec<RecordLock> {
    let lock = |line: &str| {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (table, name, bucket, mode) = (number()?, number()?, number()?, number()?);
        Some(RecordLock { table: u32::try_from(table).ok()?, name, bucket, is_exclusive: mode == 1 })
    };
    text.lines().filter_map(lock).collect()
}

/// Prefixes of printed lines.
const LAYOUT: &str = "frame ";
const TABLE: &str = "lock table ";

/// Formats the layout of frames and the names of all tables.
pub fn places(database: &Database) -> String {
    let mut text = format_layout(database.frame_layout()) + "\n";
    for (number, table) in database.lock_tables() {
        text += &format!("{}\n", format_table(number, &table));
    }
    text
}

/// Formats the layout of frames for [`parse_layout`].
fn format_layout(layout: FrameLayout) -> String {
    format!("{LAYOUT}{} {}", layout.latch, layout.index)
}

/// Parses a line of `format_layout`: offsets of the latch word and of the index number. `None` for any other line.
pub fn parse_layout(line: &str) -> Option<(u64, u64)> {
    let (latch, index) = line.strip_prefix(LAYOUT)?.split_once(' ')?;
    Some((latch.parse().ok()?, index.parse().ok()?))
}

/// Formats the number and the name of a table for [`parse_table`].
fn format_table(number: u32, name: &str) -> String {
    format!("{TABLE}{number} {name}")
}

/// Parses a line of `format_table`; `None` for any other line.
pub fn parse_table(line: &str) -> Option<(u32, String)> {
    let (number, name) = line.strip_prefix(TABLE)?.split_once(' ')?;
    Some((number.parse().ok()?, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let lock = |mode| RecordLock { table: 3, name: u64::MAX, bucket: 640, is_exclusive: mode };
        let text = format!("3 {0} 640 1\n3 {0} 640 0\n3 x 640 0\n", u64::MAX);
        assert_eq!(parse_locks(&text), [lock(true), lock(false)]);
        assert_eq!(parse_table(&format_table(7, "new_order")), Some((7, "new_order".to_owned())));
        assert_eq!(
            (parse_layout("frame 0 44"), parse_layout("frames 0 44"), parse_layout("frame 0")),
            (Some((0, 44)), None, None)
        );
    }
}
