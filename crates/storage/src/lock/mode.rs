//! Lock modes and their compatibility matrices.

use super::name::Prefix;

/// Key part of a record lock: the lock on the record itself.
///
/// | requested / held | none | S | U | X |
/// | --- | --- | --- | --- | --- |
/// | **S** | yes | yes | no | no |
/// | **U** | yes | yes | no | no |
/// | **X** | yes | no | no | no |
///
/// U announces a later X. U is granted beside readers, but no reader is granted beside U. So the conversion of its holder to
/// X waits only for readers that were granted before. Two readers that both request X deadlock; two owners cannot hold U at
/// the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub(crate) enum KeyMode {
    /// The record is not locked (a lock on the gap alone).
    #[default]
    None = 0,
    /// Lock for a read.
    S = 1,
    /// Lock for a read that a write by the same owner will probably follow.
    U = 2,
    /// Lock for a write.
    X = 3,
}

/// Mode of a record lock: key part and gap part.
///
/// The gap part covers the open interval below the named key, down to the next smaller existing key. It is compatible with
/// every gap part and key part. It excludes only inserts by other owners, at or above the request's [`Prefix`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct RecordMode(u8);

const KEY: u8 = 0b0011;
const GAP: u8 = 0b0100;
const INSERT: u8 = 0b1000;
const KEPT: u8 = 0b1_0000;

impl RecordMode {
    /// No lock.
    pub(crate) const NONE: RecordMode = RecordMode(0);
    /// Lock on the record, to read it.
    pub(crate) const S: RecordMode = RecordMode(1);
    /// Lock on the record, to read it now and probably write it later.
    pub(crate) const U: RecordMode = RecordMode(2);
    /// Lock on the record, to write it.
    pub(crate) const X: RecordMode = RecordMode(3);
    /// Lock on the gap below the key alone: for a read that found nothing.
    pub(crate) const GAP: RecordMode = RecordMode(GAP);
    /// Lock on the record and on the gap below it, for one step of a range read.
    #[cfg(test)]
    pub(crate) const S_GAP: RecordMode = RecordMode(1 | GAP);
    /// Lock on the record and on the gap below it, to write a record in a range that was read.
    pub(crate) const X_GAP: RecordMode = RecordMode(3 | GAP);
    /// Request to insert into the gap below the key. Callers never request this mode.
    pub(super) const INSERT: RecordMode = RecordMode(INSERT);

    /// Gap that a rolled back epoch of a transaction's loop keeps locked against other transactions, for earlier epochs whose
    /// gap its insert has divided. Requests never contain this mode.
    pub(super) const KEPT_GAP: RecordMode = RecordMode(KEPT);

    /// Creates a mode with key part `key`, and with the gap part if `gap` is true.
    #[cfg(test)]
    pub(crate) const fn new(key: KeyMode, gap: bool) -> RecordMode {
        RecordMode(key as u8 | if gap { GAP } else { 0 })
    }

    /// Returns the key part of the mode.
    #[inline]
    pub(crate) const fn key(self) -> KeyMode {
        match self.0 & KEY {
            0 => KeyMode::None,
            1 => KeyMode::S,
            2 => KeyMode::U,
            _ => KeyMode::X,
        }
    }

    /// Returns true if the mode includes the gap below the key.
    #[inline]
    pub(crate) const fn gap(self) -> bool {
        self.0 & GAP != 0
    }

    /// Returns true if the mode excludes inserts of other transactions: it includes the gap below the key, or is a kept gap.
    #[inline]
    pub(super) const fn guards_gap(self) -> bool {
        self.0 & (GAP | KEPT) != 0
    }

    /// Returns true if the mode is empty.
    #[inline]
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns true for a request to insert.
    #[inline]
    pub(super) const fn is_insert(self) -> bool {
        self.0 & INSERT != 0
    }

    /// Returns the weakest mode that covers both modes.
    #[inline]
    pub(crate) fn union(self, other: RecordMode) -> RecordMode {
        RecordMode((self.0 & KEY).max(other.0 & KEY) | ((self.0 | other.0) & !KEY))
    }
}

impl std::fmt::Debug for RecordMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gap = if self.gap() { "+gap" } else { "" };
        let insert = if self.is_insert() { "+insert" } else { "" };
        let kept = if self.0 & KEPT != 0 { "+kept gap" } else { "" };
        write!(f, "{:?}{gap}{insert}{kept}", self.key())
    }
}

/// A mode with its position in the gap: for a gap part the lowest prefix that was read, for an insert the prefix of the new
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GapMode {
    pub(super) mode: RecordMode,
    pub(super) low: Prefix,
}

impl GapMode {
    /// Returns true if the request `self`, held or queued earlier, makes the request `later` of another owner wait.
    #[inline]
    pub(super) fn excludes(self, later: GapMode) -> bool {
        // Bit r of entry h: key part h excludes a request for key part r.
        const EXCLUDES: [u8; 4] = [0b0000, 0b1000, 0b1110, 0b1110];
        let keys = EXCLUDES[usize::from(self.mode.0 & KEY)] >> (later.mode.0 & KEY) & 1 != 0;
        keys || (self.mode.guards_gap() && later.mode.is_insert() && later.low >= self.low)
            || (self.mode.is_insert() && later.mode.gap() && self.low >= later.low)
    }

    /// Returns true if an owner that holds `self` need not request `other`, because `self` covers it.
    #[inline]
    pub(super) fn covers(self, other: GapMode) -> bool {
        self.mode.0 & KEY >= other.mode.0 & KEY && (!other.mode.gap() || (self.mode.gap() && self.low <= other.low))
    }

    /// Returns the part of the request `self` that exceeds the held mode `held`. A key part that is already held is not
    /// compared with other owners again: another owner's U may since have been granted beside this reader's S, and the
    /// reader would wait for that owner unnecessarily.
    pub(super) fn beyond(self, held: GapMode) -> GapMode {
        let mut mode = self.mode.0;
        if mode & KEY <= held.mode.0 & KEY {
            mode &= !KEY;
        }
        if self.mode.gap() && held.mode.gap() && held.low <= self.low {
            mode &= !GAP;
        }
        GapMode { mode: RecordMode(mode), low: self.low }
    }

    /// Returns the weakest claim that covers both claims.
    #[inline]
    pub(super) fn union(self, other: GapMode) -> GapMode {
        let low = match (self.mode.gap(), other.mode.gap()) {
            (true, true) => self.low.min(other.low),
            (true, false) => self.low,
            (false, _) => other.low,
        };
        GapMode { mode: self.mode.union(other.mode), low }
    }
}

/// Mode of a table lock.
///
/// | modes | IS | IX | S | SIX | X |
/// | --- | --- | --- | --- | --- | --- |
/// | **IS** | yes | yes | yes | yes | no |
/// | **IX** | yes | yes | no | no | no |
/// | **S** | yes | no | yes | no | no |
/// | **SIX** | yes | no | no | no | no |
/// | **X** | no | no | no | no | no |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
#[allow(clippy::upper_case_acronyms)] // the names every textbook uses
pub(crate) enum TableMode {
    /// No lock on the table.
    #[default]
    None = 0,
    /// Intention to read some records.
    IS = 1,
    /// Intention to write some records.
    IX = 2,
    /// Read the whole table.
    S = 3,
    /// Read the whole table, and intention to write some records.
    SIX = 4,
    /// Write the whole table.
    X = 5,
}

use TableMode::{IS, IX, S, SIX, X};

const TABLE_MODES: [TableMode; 6] = [TableMode::None, IS, IX, S, SIX, X];

/// Bit b of entry a is set if the modes a and b are compatible.
const COMPATIBLE: [u8; 6] = [0b111111, 0b011111, 0b000111, 0b001011, 0b000011, 0b000001];

/// Bit b of entry a is set if mode a allows everything that mode b allows.
const COVERS: [u8; 6] = [0b000001, 0b000011, 0b000111, 0b001011, 0b011111, 0b111111];

impl TableMode {
    /// Converts a byte of an owner's slot into a mode.
    #[inline]
    pub(super) fn from_byte(byte: u8) -> TableMode {
        TABLE_MODES[usize::from(byte)]
    }

    /// Returns true if two owners may hold `self` and `other` at the same time.
    #[inline]
    pub(crate) fn compatible(self, other: TableMode) -> bool {
        COMPATIBLE[self as usize] >> other as u8 & 1 != 0
    }

    /// Returns true if a holder of `self` need not request `other`, because `self` covers it.
    #[inline]
    pub(crate) fn covers(self, other: TableMode) -> bool {
        COVERS[self as usize] >> other as u8 & 1 != 0
    }

    /// Returns the weakest mode that covers both modes.
    pub(crate) fn union(self, other: TableMode) -> TableMode {
        match (self, other) {
            (IX, S) | (S, IX) => SIX,
            _ if self.covers(other) => self,
            _ => other,
        }
    }

    /// Returns true if the mode needs the table's queue even when no other owner uses the table.
    #[inline]
    pub(super) fn is_strong(self) -> bool {
        self as u8 >= S as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [KeyMode; 4] = [KeyMode::None, KeyMode::S, KeyMode::U, KeyMode::X];

    fn claim(mode: RecordMode, low: u8) -> GapMode {
        GapMode { mode, low: Prefix::of(&[low]) }
    }

    #[test]
    fn key_matrix() {
        for held in KEYS {
            for asked in KEYS {
                let expected = match (held, asked) {
                    (KeyMode::None, _) | (_, KeyMode::None) => false,
                    (KeyMode::S, KeyMode::S | KeyMode::U) => false,
                    (KeyMode::S, KeyMode::X) | (KeyMode::U | KeyMode::X, _) => true,
                };
                for gaps in 0..4 {
                    let held = claim(RecordMode::new(held, gaps & 1 != 0), 0);
                    let asked = claim(RecordMode::new(asked, gaps & 2 != 0), 0);
                    assert_eq!(held.excludes(asked), expected, "{held:?} {asked:?}");
                }
            }
        }
    }

    #[test]
    fn insert_meets_only_gaps_that_reach_down_to_it() {
        for key in KEYS {
            for low in [0, 4, 5, 6, 9] {
                let insert = claim(RecordMode::INSERT, 5);
                let gap = claim(RecordMode::new(key, true), low);
                assert_eq!(gap.excludes(insert), low <= 5);
                assert_eq!(insert.excludes(gap), low <= 5);
                let no_gap = claim(RecordMode::new(key, false), low);
                assert!(!no_gap.excludes(insert) && !insert.excludes(no_gap));
                assert!(!insert.excludes(insert));
            }
        }
    }

    #[test]
    fn union_is_the_weakest_cover() {
        let all: Vec<GapMode> = KEYS
            .iter()
            .flat_map(|&k| {
                [
                    claim(RecordMode::new(k, false), 0),
                    claim(RecordMode::new(k, true), 3),
                    claim(RecordMode::new(k, true), 7),
                ]
            })
            .collect();
        for &a in &all {
            for &b in &all {
                let u = a.union(b);
                assert!(u.covers(a) && u.covers(b), "{a:?} {b:?} {u:?}");
                for &c in &all {
                    if c.covers(a) && c.covers(b) {
                        assert!(c.covers(u), "{a:?} {b:?} {u:?} {c:?}");
                    }
                    // Required property of `covers`: the stronger claim excludes every owner that the weaker claim excludes.
                    if a.covers(b) && b.excludes(c) {
                        assert!(a.excludes(c), "{a:?} {b:?} {c:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn table_matrix() {
        let yes = [(IS, IS), (IS, IX), (IS, S), (IS, SIX), (IX, IX), (S, S)];
        for a in TABLE_MODES {
            for b in TABLE_MODES {
                let expected =
                    a == TableMode::None || b == TableMode::None || yes.contains(&(a, b)) || yes.contains(&(b, a));
                assert_eq!(a.compatible(b), expected, "{a:?} {b:?}");
            }
            assert_eq!(TableMode::from_byte(a as u8), a);
        }
    }

    #[test]
    fn table_union_is_the_weakest_cover() {
        for a in TABLE_MODES {
            for b in TABLE_MODES {
                let u = a.union(b);
                assert!(u.covers(a) && u.covers(b), "{a:?} {b:?} {u:?}");
                assert_eq!(u, b.union(a));
                for c in TABLE_MODES {
                    if c.covers(a) && c.covers(b) {
                        assert!(c.covers(u), "{a:?} {b:?} {u:?} {c:?}");
                    }
                    if a.covers(b) && a.compatible(c) {
                        assert!(b.compatible(c), "{a:?} {b:?} {c:?}");
                    }
                }
            }
        }
        assert_eq!(S.union(IX), SIX);
        assert_eq!(IS.union(IX), IX);
    }
}
