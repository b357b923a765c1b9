//! Log records: the 16-byte header, the checksum, and the private buffer in which a record is built.
//!
//! | word | bits | field |
//! | --- | --- | --- |
//! | 0 | 0 to 31 | `crc`: CRC-32C, see below |
//! | 0 | 32 to 42 | `slot`: slot of the transaction; 0 for the engine itself |
//! | 0 | 43 to 63 | `len`: bytes of header and body; the next record starts at this rounded up to 8 |
//! | 1 | 0 to 2 | `kind`: kind of the body; never 0 |
//! | 1 | 3 to 26 | `lag`: distance back to the durable end of the log when the record was prepared, in units of 8 bytes; all ones if it is larger |
//! | 1 | 27 to 63 | distance back to the transaction's newest record before this one that was not undone, in units of 8 bytes; 0 for none |
//!
//! The body follows, then zeros up to a multiple of 8 bytes.
//!
//! A slot holds one transaction at a time. Its records are those from the first one, which has no record before it, to its
//! commit or end. So the slot identifies the transaction.
//!
//! The checksum covers the body and its padding, then word 0 with zeros for the checksum, word 1, and the record's own LSN. The
//! fields that are known last are summed last, so that a record prepared early needs only three more instructions once its
//! position is known. Bytes left over from an earlier use of a recycled segment are never a valid record, because they lie at
//! another LSN. All numbers are little-endian.
//!
//! A reader uses `lag` to distinguish the end of the log from a hole in it: see `reader`.

use crate::base::bytes::{copy_few, xor_few};
use crate::base::checksum::Crc;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, SlotId};
use crate::base::mutant::{Mutant, is_mutant};

use super::{FIRST_LSN, RecordKind};

/// Size of the header in bytes.
pub(crate) const HEADER: usize = 16;
/// Maximum size of a record in bytes, including the header.
pub(crate) const MAX_RECORD: usize = 1 << 20;

/// Maximum size of a log in bytes, so that the distance between two records of a running transaction fits the header.
pub(super) const MAX_LOG: u64 = 512 << 30;

/// Number of bytes that the head of a section may take while it is written.
const MOST_HEAD: usize = 24;

/// Bit positions of fields in the words of the header.
const SLOT_AT: u32 = 32;
const LEN_AT: u32 = 43;
const LAG_AT: u32 = 3;
const DISTANCE_AT: u32 = 27;
/// Mask of `kind`.
const KIND: u64 = (1 << LAG_AT) - 1;
/// Mask of `lag` in the lowest bits, and value of `lag` for a distance that the field cannot hold.
const FURTHER: u64 = (1 << (DISTANCE_AT - LAG_AT)) - 1;

/// Returns the number of bytes that a record of `len` bytes takes in the stream.
#[inline]
fn extent(len: usize) -> usize {
    (len + 7) & !7
}

/// A record under construction: private to one thread, and reused for all its records.
#[derive(Debug)]
pub(crate) struct RecordBuf {
    /// Space for the header, then the body, zero-padded to a multiple of 8 once prepared; then remains of earlier records.
    /// The buffer only grows, so that adding a piece is one comparison and a copy.
    bytes: Vec<u8>,
    /// Number of bytes of the buffer in use.
    used: usize,
    len: usize,
    kind: u8,
    slot: SlotId,
    prev: Lsn,
    /// Durable end of the log when the record was prepared.
    durable: Lsn,
    /// Checksum of the body; `None` until the record is prepared.
    prepared: Option<Crc>,
    end: Lsn,
}

impl Default for RecordBuf {
    fn default() -> Self {
        RecordBuf::new()
    }
}

impl RecordBuf {
    /// Creates an empty buffer, for records of up to 1000 bytes without further allocation.
    pub(crate) fn new() -> RecordBuf {
        RecordBuf {
            bytes: vec![0; 1024],
            used: 0,
            len: 0,
            kind: 0,
            slot: SlotId(0),
            prev: Lsn::ZERO,
            durable: Lsn::ZERO,
            prepared: None,
            end: Lsn::ZERO,
        }
    }

    /// Starts a record of the transaction in `slot`, and discards the contents of the buffer. `prev` is the transaction's
    /// newest record that has not been undone, or `Lsn::ZERO` if there is none.
    #[inline]
    pub(crate) fn begin(&mut self, kind: RecordKind, slot: SlotId, prev: Lsn) {
        self.used = HEADER;
        self.kind = kind as u8;
        self.slot = slot;
        self.prev = prev;
        self.prepared = None;
    }

    /// Starts a record of a structure modification, which belongs to no transaction, and discards the contents of the buffer.
    #[inline]
    pub(crate) fn begin_system(&mut self) {
        self.begin(RecordKind::System, SlotId(0), Lsn::ZERO);
    }

    /// Adds bytes at the end of the body.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        debug_assert!(self.prepared.is_none(), "a prepared record does not change");
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    /// Adds a head of two parts, then a key and a piece. A part consists of the first bytes of a word, lowest byte first, in the
    /// number given with it. Returns the place of the key in the body.
    #[inline(always)]
    pub(crate) fn put_row(&mut self, [first, second]: [(u64, usize); 2], key: &[u8], piece: impl Piece) -> usize {
        debug_assert!(self.prepared.is_none(), "a prepared record does not change");
        let start = self.used;
        let head_len = first.1 + second.1;
        let room = self.room(MOST_HEAD + key.len() + piece.len());
        if let Some(head) = room.first_chunk_mut::<MOST_HEAD>() {
            // Whole words are copied, so that the compiler emits no call. The next part overwrites the unused bytes.
            let second_at = first.1 & 15;
            head[..8].copy_from_slice(&first.0.to_le_bytes());
            head[second_at..second_at + 8].copy_from_slice(&second.0.to_le_bytes());
        }
        let (_, rest) = room.split_at_mut(head_len);
        let (place, rest) = rest.split_at_mut(key.len());
        copy_few(place, key);
        piece.write(&mut rest[..piece.len()]);
        self.used = start + head_len + key.len() + piece.len();
        start + head_len - HEADER
    }

    /// Returns the unused part of the buffer, which has at least `bytes` bytes.
    #[inline]
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() - self.used < bytes {
            self.grow(bytes);
        }
        &mut self.bytes[self.used..]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, bytes: usize) {
        self.bytes.resize((self.used + bytes).max(2 * self.bytes.len()), 0);
    }

    /// Adds `n` zeros to the body, at most four.
    #[inline]
    pub(crate) fn put_zeros(&mut self, n: usize) {
        debug_assert!(n <= 4);
        let used = self.used + n;
        self.put(&[0; 4]);
        self.used = used;
    }

    /// Adds one byte to the body.
    #[inline]
    #[cfg(test)]
    pub(crate) fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    /// Adds a 16-bit number to the body, little-endian.
    #[inline]
    pub(crate) fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    /// Adds a 32-bit number to the body, little-endian.
    #[inline]
    pub(crate) fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    /// Adds a 64-bit number to the body, little-endian.
    #[inline]
    pub(crate) fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// Overwrites two bytes that are already in the body, at offset `at` of the body.
    ///
    /// # Panics
    /// If the body is shorter.
    #[inline]
    pub(crate) fn patch_u16(&mut self, at: usize, value: u16) {
        debug_assert!(self.prepared.is_none(), "a prepared record does not change");
        debug_assert!(HEADER + at + 2 <= self.used);
        self.bytes[HEADER + at..HEADER + at + 2].copy_from_slice(&value.to_le_bytes());
    }

    /// Returns the body so far.
    pub(crate) fn body(&self) -> &[u8] {
        let end = if self.prepared.is_some() { self.len } else { self.used };
        &self.bytes[HEADER.min(end)..end]
    }

    /// Returns the bytes from offset `at` of the body of a record under construction, which has at least `len` more.
    #[inline(always)]
    pub(crate) fn part(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes[HEADER + at..][..len]
    }

    /// Returns the end of the record, once appended: the record is durable when the log is flushed to this position.
    #[inline]
    pub(crate) fn end(&self) -> Lsn {
        self.end
    }

    /// Prepares the record: does everything that can be done before its position is known. `durable` is the current or an
    /// earlier value of [`super::Log::durable`]. `append` calls this function if the caller has not. The body must not
    /// change afterwards.
    #[inline]
    pub(crate) fn prepare(&mut self, durable: Lsn) {
        if self.prepared.is_some() {
            return;
        }
        self.len = self.used;
        debug_assert!(self.len >= HEADER, "begin comes first");
        self.durable = durable;
        let pad = extent(self.len) - self.len;
        self.room(8)[..8].fill(0);
        self.used += pad;
        self.prepared = Some(Crc::new().bytes(&self.bytes[HEADER..self.used]));
    }

    /// Returns the number of bytes that the prepared record takes in the stream.
    #[inline]
    pub(super) fn extent(&self) -> u64 {
        self.used as u64
    }

    pub(super) fn prev(&self) -> Lsn {
        self.prev
    }

    /// Returns the header of the prepared record for position `start`, in words, and the body with its padding.
    #[inline]
    pub(super) fn placed(&mut self, start: Lsn) -> ([u64; 2], &[u8]) {
        self.end = Lsn(start.0 + self.extent());
        let distance = if self.prev == Lsn::ZERO { 0 } else { (start.0 - self.prev.0) >> 3 };
        debug_assert!(distance < 1 << (u64::BITS - DISTANCE_AT), "the log is shorter than MAX_LOG");
        let lag = ((start.0 - self.durable.0) >> 3).min(FURTHER);
        let second = u64::from(self.kind) | lag << LAG_AT | distance << DISTANCE_AT;
        let slot_and_len = u64::from(self.slot.0) << SLOT_AT | (self.len as u64) << LEN_AT;
        let crc = self.prepared.unwrap_or_default().words([slot_and_len, second, summed(start)]).finish();
        let first = u64::from(crc) | slot_and_len;
        ([first.to_le(), second.to_le()], &self.bytes[HEADER..self.used])
    }
}

/// Bytes of a record's body.
pub(crate) trait Piece: Copy {
    /// Returns the number of bytes.
    fn len(self) -> usize;

    /// Writes the bytes to a buffer of this length.
    fn write(self, to: &mut [u8]);
}

impl Piece for &[u8] {
    #[inline(always)]
    fn len(self) -> usize {
        <[u8]>::len(self)
    }

    #[inline(always)]
    fn write(self, to: &mut [u8]) {
        copy_few(to, self);
    }
}

/// The exclusive or of two byte strings of equal length. Writing panics if the lengths differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Difference<'a> {
    pub(crate) before: &'a [u8],
    pub(crate) after: &'a [u8],
}

impl Piece for Difference<'_> {
    #[inline(always)]
    fn len(self) -> usize {
        self.after.len()
    }

    #[inline(always)]
    fn write(self, to: &mut [u8]) {
        xor_few(to, self.before, self.after);
    }
}

/// A record as read from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordView<'a> {
    /// Start of the record.
    pub(crate) lsn: Lsn,
    /// Start of the next record.
    pub(crate) end: Lsn,
    /// Start of the previous record of the transaction; `Lsn::ZERO` for none.
    pub(crate) prev: Lsn,
    /// Slot of the transaction.
    pub(crate) slot: SlotId,
    /// Kind of the body, a number from 1 to 7.
    pub(crate) kind: u8,
    /// Position before which everything was durable when the record was prepared; `Lsn::ZERO` if it is unknown.
    pub(crate) synced: Lsn,
    /// Body of the record, without padding.
    pub(crate) body: &'a [u8],
}

/// Fields of a header that may be a record's: those that no record can have are excluded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    /// Bytes of header and body.
    len: usize,
    kind: u8,
    slot: SlotId,
    prev: Lsn,
    /// Position before which everything was durable when the record was prepared; `Lsn::ZERO` if it is unknown.
    pub(super) synced: Lsn,
}

impl Claimed {
    /// Returns the fields of the header at `lsn`; `None` if no record at this position can have them.
    #[inline]
    pub(super) fn of(header: &[u8], lsn: Lsn) -> Option<Claimed> {
        let (first, second) = (le_u64(header, 0), le_u64(header, 8));
        if second & KIND == 0 {
            return None;
        }
        let len = (first >> LEN_AT) as usize;
        let slot = SlotId((first >> SLOT_AT) as u16 & ((1 << (LEN_AT - SLOT_AT)) - 1));
        let kind = (second & KIND) as u8;
        let (distance, lag) = (second >> DISTANCE_AT << 3, second >> LAG_AT & FURTHER);
        let synced = if lag == FURTHER { 0 } else { lsn.0.checked_sub(lag << 3)? };
        let prev = if distance == 0 { 0 } else { lsn.0.checked_sub(distance)? };
        let is_possible = (HEADER..=MAX_RECORD).contains(&len) && (distance == 0 || prev >= FIRST_LSN.0);
        is_possible.then_some(Claimed { len, kind, slot, prev: Lsn(prev), synced: Lsn(synced) })
    }

    /// Returns the number of bytes that the record takes in the stream.
    #[inline]
    pub(super) fn extent(self) -> usize {
        extent(self.len)
    }

    /// Returns the record of these fields at `lsn`. `whole` is all of it, with the padding.
    pub(super) fn view(self, whole: &[u8], lsn: Lsn) -> RecordView<'_> {
        RecordView {
            lsn,
            end: Lsn(lsn.0 + whole.len() as u64),
            prev: self.prev,
            slot: self.slot,
            kind: self.kind,
            synced: self.synced,
            body: &whole[HEADER..self.len],
        }
    }
}

/// Decodes the record at `lsn` from bytes that begin with it; `None` if they contain no valid record.
pub(crate) fn decode(bytes: &[u8], lsn: Lsn) -> Option<RecordView<'_>> {
    let claimed = Claimed::of(bytes.get(..HEADER)?, lsn)?;
    let whole = bytes.get(..claimed.extent())?;
    let [first, second] = [le_u64(whole, 0), le_u64(whole, 8)];
    let slot_and_len = first >> SLOT_AT << SLOT_AT;
    let crc = Crc::new().bytes(&whole[HEADER..]).words([slot_and_len, second, summed(lsn)]).finish();
    let sound = crc == first as u32 || is_mutant(Mutant::SkipRecordCrc);
    sound.then(|| claimed.view(whole, lsn))
}

/// Returns the LSN in the form that the checksum covers.
#[inline]
fn summed(lsn: Lsn) -> u64 {
    if is_mutant(Mutant::LsnOutOfCrc) { 0 } else { lsn.0 }
}

#[inline]
pub(super) fn le_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Returns `RecordTooLarge` if the record exceeds the limit.
#[inline]
pub(super) fn check_len(extent: u64, limit: u64) -> Result<(), StorageError> {
    if extent > limit {
        return Err(StorageError::RecordTooLarge { bytes: extent as usize, limit: limit as usize });
    }
    Ok(())
}
