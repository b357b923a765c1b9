//! Log records: the 32-byte header, the checksum, and the private buffer in which a record is built.
//!
//! ```text
//! offset size
//!      0    4  len     bytes of header and body; the next record starts at this rounded up to 8
//!      4    4  crc     CRC-32C, see below
//!      8    8  txn     transaction
//!     16    8  prev    LSN of the transaction's newest record before this one that was not undone, 0 for none
//!     24    1  kind    kind of the body; never 0
//!     25    1  flags   for the module that defines the kind
//!     26    6  synced  durable end of the log when the record was prepared, in units of 8 bytes
//!     32       body, then zeros up to a multiple of 8
//! ```
//!
//! The checksum covers the record with `crc` and `prev` as zero and its padding, then `prev`, then the record's own LSN.
//! Fields that are known last are summed last, so that a record prepared early needs only two more instructions once its
//! position is known. Bytes left over from an earlier use of a recycled segment are never a valid record, because they lie
//! at another LSN. All numbers are little-endian.
//!
//! A reader uses `synced` to distinguish the end of the log from a hole in it: see `reader`.

use crate::base::bytes::{copy_few, xor_few};
use crate::base::checksum::Crc;
use crate::base::error::StorageError;
use crate::base::ids::{Lsn, TxnId};
use crate::base::mutant::{Mutant, is_mutant};

/// Size of the header in bytes.
pub(crate) const HEADER: usize = 32;
/// Maximum size of a record in bytes, including the header.
pub(crate) const MAX_RECORD: usize = 1 << 20;

/// Returns the number of bytes that a record of `len` bytes takes in the stream.
#[inline]
pub(super) fn extent(len: usize) -> usize {
    (len + 7) & !7
}

/// A record under construction: private to one thread, and reused for all its records.
#[derive(Debug)]
pub(crate) struct RecordBuf {
    /// Header (with `crc` and `prev` zero) and body, zero-padded to a multiple of 8 once prepared; then remains of earlier
    /// records. The buffer only grows, so that adding a piece is one comparison and a copy.
    bytes: Vec<u8>,
    /// Number of bytes of the buffer in use.
    used: usize,
    len: usize,
    prev: Lsn,
    /// Checksum of everything except `prev` and the LSN; `None` until the record is prepared.
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
        RecordBuf { bytes: vec![0; 1024], used: 0, len: 0, prev: Lsn::ZERO, prepared: None, end: Lsn::ZERO }
    }

    /// Starts a record and discards the contents of the buffer. `kind` is not 0; `prev` is the transaction's newest record
    /// that has not been undone, or `Lsn::ZERO` if there is none.
    #[inline]
    pub(crate) fn begin(&mut self, kind: u8, txn: TxnId, prev: Lsn) {
        debug_assert_ne!(kind, 0, "kind 0 is no record");
        let mut header = [0; HEADER];
        header[8..16].copy_from_slice(&txn.0.to_le_bytes());
        header[24] = kind;
        self.bytes[..HEADER].copy_from_slice(&header);
        self.used = HEADER;
        self.prev = prev;
        self.prepared = None;
    }

    /// Sets the flags of the record.
    #[inline]
    pub(crate) fn set_flags(&mut self, flags: u8) {
        debug_assert!(self.prepared.is_none());
        self.bytes[25] = flags;
    }

    /// Adds bytes at the end of the body.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        debug_assert!(self.prepared.is_none(), "a prepared record does not change");
        self.room(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    /// Adds the first `len` bytes of a head, given as words with the lowest byte first, and then the pieces.
    #[inline]
    pub(crate) fn put_pieces(&mut self, (head, len): ([u64; 3], usize), pieces: [&[u8]; 3]) {
        debug_assert!(self.prepared.is_none(), "a prepared record does not change");
        let bytes = len + pieces[0].len() + pieces[1].len() + pieces[2].len();
        let room = self.room(size_of_val(&head) + bytes);
        // Copied at constant length, so that the compiler emits no call.
        if let Some(room) = room.first_chunk_mut::<24>() {
            room[..8].copy_from_slice(&head[0].to_le_bytes());
            room[8..16].copy_from_slice(&head[1].to_le_bytes());
            room[16..].copy_from_slice(&head[2].to_le_bytes());
        }
        let (_, mut rest) = room.split_at_mut(len);
        for piece in pieces {
            let (place, behind) = rest.split_at_mut(piece.len());
            copy_few(place, piece);
            rest = behind;
        }
        self.used += bytes;
    }

    /// Adds the exclusive or of two byte strings of equal length.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline(always)]
    pub(crate) fn put_difference(&mut self, before: &[u8], after: &[u8]) {
        debug_assert!(self.prepared.is_none(), "a prepared record does not change");
        let room = self.room(after.len());
        xor_few(&mut room[..after.len()], before, after);
        self.used += after.len();
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

    /// Returns the length of the body so far in bytes: the offset at which the next `put` writes.
    #[inline]
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.body().len()
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
        let synced = (u64::from_le_bytes([self.bytes[24], self.bytes[25], 0, 0, 0, 0, 0, 0])) | (durable.0 >> 3) << 16;
        self.bytes[24..32].copy_from_slice(&synced.to_le_bytes());
        self.bytes[0..4].copy_from_slice(&(self.len as u32).to_le_bytes());
        let pad = extent(self.len) - self.len;
        self.room(8)[..8].fill(0);
        self.used += pad;
        self.prepared = Some(Crc::new().bytes(&self.bytes[..self.used]));
    }

    /// Returns the number of bytes that the prepared record takes in the stream.
    #[inline]
    pub(super) fn extent(&self) -> u64 {
        self.used as u64
    }

    pub(super) fn prev(&self) -> Lsn {
        self.prev
    }

    /// Returns the prepared record with its checksum for position `start`: the first three words (with the fields that are
    /// not in the buffer) and the remaining bytes.
    #[inline]
    pub(super) fn placed(&mut self, start: Lsn) -> ([u64; 3], &[u8]) {
        let crc = self.prepared.unwrap_or_default().two_words([self.prev.0, summed(start)]).finish();
        self.end = Lsn(start.0 + self.extent());
        let txn = le_u64(&self.bytes, 8);
        let first = (self.len as u64) | u64::from(crc) << 32;
        ([first.to_le(), txn.to_le(), self.prev.0.to_le()], &self.bytes[24..self.used])
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
    /// Number of the transaction.
    pub(crate) txn: TxnId,
    /// Kind of the body.
    pub(crate) kind: u8,
    /// Flags of the record, as defined by the module that defines the kind.
    pub(crate) flags: u8,
    /// Position before which everything was durable when the record was prepared.
    pub(crate) synced: Lsn,
    /// Body of the record, without padding.
    pub(crate) body: &'a [u8],
}

/// Returns the length in a header; `None` if no record can have this length.
#[inline]
pub(super) fn claimed_len(header: &[u8]) -> Option<usize> {
    let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    (HEADER..=MAX_RECORD).contains(&len).then_some(len)
}

/// Returns the `synced` field of a header.
#[inline]
pub(super) fn claimed_synced(header: &[u8]) -> Lsn {
    Lsn((le_u64(header, 24) >> 16) << 3)
}

/// Decodes the record at `lsn` from bytes that begin with it; `None` if they contain no valid record.
pub(crate) fn decode(bytes: &[u8], lsn: Lsn) -> Option<RecordView<'_>> {
    let len = claimed_len(bytes.get(..HEADER)?)?;
    let whole = bytes.get(..extent(len))?;
    let crc = Crc::new()
        .word(len as u64)
        .word(le_u64(whole, 8))
        .word(0)
        .bytes(&whole[24..])
        .word(le_u64(whole, 16))
        .word(summed(lsn))
        .finish();
    let sound = crc.to_le_bytes() == whole[4..8] || is_mutant(Mutant::SkipRecordCrc);
    (sound && whole[24] != 0).then(|| view(whole, len, lsn))
}

/// Returns the LSN in the form that the checksum covers.
#[inline]
fn summed(lsn: Lsn) -> u64 {
    if is_mutant(Mutant::LsnOutOfCrc) { 0 } else { lsn.0 }
}

/// Returns the fields of a record of `len` bytes that is known to be valid.
pub(super) fn view(whole: &[u8], len: usize, lsn: Lsn) -> RecordView<'_> {
    RecordView {
        lsn,
        end: Lsn(lsn.0 + whole.len() as u64),
        prev: Lsn(le_u64(whole, 16)),
        txn: TxnId(le_u64(whole, 8)),
        kind: whole[24],
        flags: whole[25],
        synced: claimed_synced(whole),
        body: &whole[HEADER..len],
    }
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
