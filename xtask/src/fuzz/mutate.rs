//! Changing inputs.

use crate::sim::rng::Rng;
use crate::torture::damage::forge;

/// Longest input.
const MOST_BYTES: usize = 16 << 10;

/// A changed input of the corpus.
pub(super) fn input(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = match corpus.len() {
        0 => Vec::new(),
        n => corpus[rng.index(n)].clone(),
    };
    let most = 1 << rng.below(5);
    for _ in 0..1 + rng.below(most) {
        change(&mut bytes, corpus, rng);
    }
    bytes.truncate(MOST_BYTES);
    bytes
}

/// Where in an input: its beginning is where lengths and kinds are.
fn place(len: usize, rng: &mut Rng) -> usize {
    let within = if rng.once_in(2) { len.min(160) } else { len };
    rng.index(within.max(1))
}

fn change(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    if bytes.is_empty() {
        let n = 1 + rng.index(64);
        *bytes = rng.bytes(n);
        return;
    }
    let at = place(bytes.len(), rng);
    match rng.below(9) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = rng.next() as u8,
        2..5 => {
            let size = [1, 2, 4, 8][rng.index(4)].min(bytes.len() - at);
            let number = forge::nasty(rng, forge::u64_at(bytes, at), size);
            bytes[at..at + size].copy_from_slice(&number.to_le_bytes()[..size]);
        }
        5 => bytes.truncate(at + 1),
        6 => {
            let n = 1 + rng.index(16);
            let more = rng.bytes(n);
            bytes.splice(at..at, more);
        }
        7 => {
            let end = (at + 1 + rng.index(16)).min(bytes.len());
            bytes.drain(at..end);
        }
        // A piece of another input, or of this one, in its place.
        _ => {
            let other = &corpus[rng.index(corpus.len().max(1)).min(corpus.len().saturating_sub(1))];
            let from = rng.index(other.len().max(1)).min(other.len());
            let n = (1 + rng.index(64)).min(other.len() - from).min(bytes.len() - at);
            let piece = other[from..from + n].to_vec();
            bytes[at..at + n].copy_from_slice(&piece);
        }
    }
}
