//! Forgeries: bytes with valid checksums that the engine has never written. They test the decoders, which checksums protect
//! from other damage.

use storage::PAGE_SIZE;

use super::disk::{CowDisk, Image};
use super::judge::Guarantee;
use super::subject::{LOG_FILE, LOG_HEADER};
use crate::sim::rng::Rng;

/// Name of the data file.
pub(crate) const PAGES: &str = "pages.0";
/// Size of a page in bytes.
pub(crate) const PAGE: usize = PAGE_SIZE;
/// Number of payload bytes of a log file.
const PAYLOAD: u64 = LOG_FILE - LOG_HEADER;
/// Offset of the start of the heap in a page header. The next constants are offsets in a page header too: fences (each an
/// offset, then a length), right neighbour, kind, number of slots, last child.
const HEAP_START: usize = 78;
const FENCES: [usize; 2] = [84, 88];
pub(crate) const RIGHT: usize = 72;
const KIND: usize = 8;
pub(crate) const COUNT: usize = 10;
pub(crate) const UPPER: usize = 24;
/// Offset of the first slot in a page. The next constant is the size of a slot.
pub(crate) const SLOTS: usize = 96;
pub(crate) const SLOT: usize = 12;
/// Offset of the number of the first page never used, in the allocator's page. The next constant is the offset of the first
/// free page.
const SPACE_END: usize = 32;
pub(crate) const SPACE_FREE: usize = 36;

/// Returns the CRC-32C checksum of bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// Returns a number of at most `bytes` bytes that is likely to provoke an error in a decoder. The number may be derived from
/// the current value `now`.
pub(crate) fn nasty(rng: &mut Rng, now: u64, bytes: usize) -> u64 {
    let all = u64::MAX >> (64 - 8 * bytes);
    let number = match rng.below(9) {
        0 => 0,
        1 => 1,
        2 => all,
        3 => all >> 1,
        4 => now.wrapping_add(1 + rng.below(16)),
        5 => now.wrapping_sub(1 + rng.below(16)),
        6 => rng.below(PAGE as u64 + 2),
        7 => now ^ (1 << rng.below(8 * bytes as u64)),
        _ => rng.next(),
    };
    number & all
}

/// Writes the lowest `bytes` bytes of a number to a page at offset `at`.
fn put(page: &mut [u8], at: usize, number: u64, bytes: usize) {
    if let Some(to) = page.get_mut(at..at + bytes) {
        to.copy_from_slice(&number.to_le_bytes()[..bytes]);
    }
}

/// Updates the checksum of a page.
pub(crate) fn seal(page: &mut [u8]) {
    let crc = crc32c(&page[4..]);
    put(page, 0, u64::from(crc), 4);
}

/// Returns page `number` of an image.
pub(crate) fn page(image: &Image, number: u32) -> Vec<u8> {
    let at = number as usize * PAGE;
    image.file(PAGES).get(at..at + PAGE).map_or_else(|| vec![0; PAGE], <[u8]>::to_vec)
}

/// Returns the number of the first page never used.
pub(crate) fn end_of_pages(image: &Image) -> u32 {
    u32_at(&page(image, 1), SPACE_END).clamp(3, (image.file(PAGES).len() / PAGE) as u32)
}

/// Returns the numbers of all pages of a kind: free 0, leaf 1, inner 2, allocator 3.
pub(crate) fn pages_of(image: &Image, kind: u8) -> Vec<u32> {
    let is = |n: &u32| page(image, *n)[KIND] == kind && u32_at(&page(image, *n), 4) == *n;
    (1..end_of_pages(image)).filter(is).collect()
}

/// Offset and size of each field of the header that determines the meaning of a page.
const FIELDS: [(usize, usize); 20] = [
    (KIND, 1),
    (9, 1),
    (COUNT, 2),
    (12, 4),
    (16, 2),
    (18, 2),
    (UPPER, 4),
    (60, 4),
    (64, 8),
    (RIGHT, 4),
    (76, 2),
    (HEAP_START, 2),
    (80, 2),
    (82, 2),
    (84, 2),
    (86, 2),
    (88, 2),
    (90, 2),
    (92, 2),
    (94, 2),
];

/// Changes a page. Returns a description of the change, and the guarantee of the engine for this change.
pub(crate) fn spoil(page: &mut [u8], pages: u32, rng: &mut Rng) -> (String, Guarantee) {
    let mut guarantee = Guarantee::Detected;
    let count = usize::from(u16_at(page, COUNT)).min((PAGE - SLOTS) / SLOT - 1);
    let inner = page[KIND] == 2;
    let what = match rng.below(if count == 0 { 3 } else { 8 }) {
        0 | 1 => {
            let (at, bytes) = FIELDS[rng.index(FIELDS.len())];
            let number = nasty(rng, u64_at(page, at), bytes);
            put(page, at, number, bytes);
            format!("header field {at} = {number}")
        }
        // A word of the shared bytes, prefix or last child, hints, or allocator fields.
        2 => {
            let at = 20 + 4 * rng.index(10);
            let number = nasty(rng, u64::from(u32_at(page, at)), 4);
            put(page, at, number, 4);
            format!("word {at} = {number}")
        }
        // The number of a child or a neighbour.
        3 if inner => {
            let to = rng.below(u64::from(pages) + 2);
            let at = if rng.once_in(4) { UPPER } else { SLOTS + SLOT * rng.index(count) + 8 };
            put(page, at, to, 4);
            format!("child at {at} = page {to}")
        }
        3 => {
            let to = rng.below(u64::from(pages) + 2);
            put(page, RIGHT, to, 4);
            format!("right neighbour = page {to}")
        }
        4 => {
            let (a, b) = (SLOTS + SLOT * rng.index(count), SLOTS + SLOT * rng.index(count));
            for i in 0..SLOT {
                page.swap(a + i, b + i);
            }
            format!("slots at {a} and {b} exchanged")
        }
        5 => {
            let slot = SLOTS + SLOT * rng.index(count);
            let (field, bytes) = [(0, 4), (4, 2), (6, 2), (8, 2), (10, 2)][rng.index(5)];
            let number = nasty(rng, u64_at(page, slot + field), bytes);
            put(page, slot + field, number, bytes);
            if field == 4 && is_alone(page, slot, count) {
                // The slot may now refer to another valid record, and then no structural rule is violated.
                guarantee = Guarantee::NoCrash;
            }
            format!("slot at {slot} byte {field} = {number}")
        }
        6 => {
            // The key follows the version in the record.
            let slot = SLOTS + SLOT * rng.index(count);
            let (offset, len) = (usize::from(u16_at(page, slot + 4)), usize::from(u16_at(page, slot + 6)));
            let at = offset + 4 + rng.index(len.max(1));
            if len == 0 || at >= PAGE {
                return ("nothing".into(), guarantee);
            }
            page[at] ^= 1 << rng.below(8);
            // The changed bytes may be another valid key, and then no structural rule is violated.
            guarantee = Guarantee::NoCrash;
            format!("key byte {at}")
        }
        _ => {
            let at = FENCES[rng.index(2)];
            let (offset, len) = (usize::from(u16_at(page, at)), usize::from(u16_at(page, at + 2)));
            let byte = offset + rng.index(len.max(1));
            if len == 0 || byte >= PAGE {
                return ("nothing".into(), guarantee);
            }
            page[byte] ^= 1 << rng.below(8);
            format!("fence byte {byte}")
        }
    };
    seal(page);
    (what, guarantee)
}

/// Returns true if the record of a slot is in the heap and overlaps with neither a fence nor the record of another slot.
fn is_alone(page: &[u8], slot: usize, count: usize) -> bool {
    let number = |at: usize| usize::from(u16_at(page, at));
    let record = |slot: usize| {
        let value = if page[KIND] == 1 { number(slot + 8) } else { 0 };
        (number(slot + 4), 4 + number(slot + 6) + value)
    };
    let (at, len) = record(slot);
    let others = (0..count).map(|i| SLOTS + SLOT * i).filter(|other| *other != slot).map(record);
    let fences = FENCES.map(|at| (number(at), number(at + 2))).into_iter().filter(|(_, len)| *len > 0);
    let apart = |(other, other_len): (usize, usize)| at >= other + other_len || other >= at + len;
    at >= number(HEAP_START) && at + len <= PAGE && others.chain(fences).all(apart)
}

/// Returns the file and the offset in it of a log position.
pub(crate) fn log_place(position: u64) -> (String, u64) {
    (format!("log.{}", position / PAYLOAD), LOG_HEADER + position % PAYLOAD)
}

/// Returns `len` bytes of the log from a position on; fewer bytes if the log ends before.
pub(crate) fn log_bytes(image: &Image, position: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let (file, at) = log_place(position + bytes.len() as u64);
        let n = (len - bytes.len()).min((LOG_FILE - at) as usize);
        let Some(piece) = image.file(&file).get(at as usize..at as usize + n) else { break };
        bytes.extend_from_slice(piece);
    }
    bytes
}

/// Overwrites bytes of the log from a position on.
pub(crate) fn write_log(disk: &CowDisk, position: u64, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let (file, at) = log_place(position + done as u64);
        let n = (bytes.len() - done).min((LOG_FILE - at) as usize);
        disk.change(&file, at, &bytes[done..done + n]);
        done += n;
    }
}

/// Returns the checksum of the log record in `bytes` at `position`.
fn record_sum(bytes: &[u8], len: u32, position: u64) -> u32 {
    let mut summed = u64::from(len).to_le_bytes().to_vec();
    summed.extend_from_slice(&bytes[8..16]);
    summed.extend_from_slice(&[0; 8]);
    summed.extend_from_slice(&bytes[24..]);
    summed.extend_from_slice(&bytes[16..24]);
    summed.extend_from_slice(&position.to_le_bytes());
    crc32c(&summed)
}

/// Returns the bytes of the log record at a position, including padding; `None` if its checksum is invalid.
fn record(image: &Image, position: u64) -> Option<Vec<u8>> {
    let head = log_bytes(image, position, 32);
    let len = (head.len() == 32).then(|| u32_at(&head, 0)).filter(|len| (32..=1 << 20).contains(len))?;
    let extent = (len as usize + 7) & !7;
    let bytes = log_bytes(image, position, extent);
    (bytes.len() == extent && record_sum(&bytes, len, position) == u32_at(&bytes, 4)).then_some(bytes)
}

/// Returns the positions of the log's records, from the oldest record in the files on, followed by the end of the log.
pub(crate) fn records(image: &Image) -> Vec<u64> {
    let numbers = image.0.keys().filter_map(|name| name.strip_prefix("log.")?.parse::<u64>().ok());
    // A file that waits for its reuse has records of its previous number. They are ignored.
    numbers
        .map(|number| records_from(image, number))
        .max_by_key(|all| (all.last().copied(), all.len()))
        .unwrap_or_default()
}

/// Returns the positions of the records from the first one that begins in file `number`, followed by the end of the last
/// one; empty if no record begins in the file.
fn records_from(image: &Image, number: u64) -> Vec<u64> {
    let mut at = (number * PAYLOAD).max(4096);
    let end = (number + 1) * PAYLOAD;
    while at < end && record(image, at).is_none() {
        at += 8;
    }
    if at >= end {
        return Vec::new();
    }
    let mut positions = vec![at];
    while let Some(bytes) = record(image, at) {
        at += bytes.len() as u64;
        positions.push(at);
    }
    positions
}

/// Changes a log record and corrects its checksum. Returns a description of the change; `None` if nothing was changed.
pub(crate) fn forge_record(image: &Image, disk: &CowDisk, position: u64, rng: &mut Rng) -> Option<String> {
    let mut bytes = record(image, position)?;
    let mut len = u32_at(&bytes, 0);
    let at = match rng.below(6) {
        0 => {
            len = nasty(rng, u64::from(len), 4) as u32;
            0
        }
        1 => [8, 16, 24, 25, 26][rng.index(5)],
        // Fields in the heads of sections: operation, length, page and position.
        2..5 => 32 + rng.index(40),
        _ => 32 + rng.index(bytes.len().max(33) - 32),
    };
    if at > 0 {
        let size = [1, 2, 4][rng.index(3)].min(bytes.len().saturating_sub(at));
        if size == 0 {
            return None;
        }
        let number = nasty(rng, u64_at(&bytes, at), size);
        put(&mut bytes, at, number, size);
    }
    put(&mut bytes, 0, u64::from(len), 4);
    let extent = (len as usize).saturating_add(7) & !7;
    let sum = if (32..=1 << 20).contains(&len) {
        bytes.resize(extent, 0);
        record_sum(&bytes, len, position)
    } else {
        rng.next() as u32
    };
    put(&mut bytes, 4, u64::from(sum), 4);
    write_log(disk, position, &bytes);
    Some(format!("log record at {position}, byte {at}, length {len}"))
}
