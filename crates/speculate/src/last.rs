//! The last operation on each key of an epoch: a hash table whose keys lie in the epoch's log. It is emptied for every epoch,
//! so emptying it costs nothing.

/// A place for a key.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The key's hash.
    hash: u64,
    /// Empty unless this is the table's.
    generation: u32,
    /// Number of the operation.
    op: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Last {
    /// A power of two.
    slots: Vec<Slot>,
    generation: u32,
    used: usize,
}

impl Default for Last {
    fn default() -> Last {
        Last { slots: vec![Slot::default(); 64], generation: 1, used: 0 }
    }
}

impl Last {
    /// The slot of a key, or the free one where it belongs. `is_key` says whether an operation is on the key.
    #[inline]
    fn slot(&self, hash: u64, is_key: impl Fn(usize) -> bool) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot.generation != self.generation || (slot.hash == hash && is_key(slot.op as usize)) {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// The last operation on a key.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_key: impl Fn(usize) -> bool) -> Option<usize> {
        let slot = self.slots[self.slot(hash, is_key)];
        (slot.generation == self.generation).then_some(slot.op as usize)
    }

    /// Makes `op` the last operation on a key.
    #[inline]
    pub(crate) fn set(&mut self, hash: u64, op: usize, is_key: impl Fn(usize) -> bool) {
        if 2 * self.used >= self.slots.len() {
            self.grow();
        }
        let at = self.slot(hash, is_key);
        self.used += usize::from(self.slots[at].generation != self.generation);
        self.slots[at] = Slot { hash, generation: self.generation, op: op as u32 };
    }

    #[cold]
    fn grow(&mut self) {
        let double = vec![Slot::default(); 2 * self.slots.len()];
        for slot in std::mem::replace(&mut self.slots, double) {
            if slot.generation == self.generation {
                // No two are of one key.
                let at = self.slot(slot.hash, |_| false);
                self.slots[at] = slot;
            }
        }
    }

    /// Forgets all keys.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            self.slots.fill(Slot::default());
            self.generation = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn it_finds_what_was_set_last_among_keys_whose_hashes_collide() {
        let (mut last, mut model, mut ops) = (Last::default(), HashMap::new(), Vec::new());
        let hash = |key: usize| (key % 50) as u64;
        for round in 0..3 {
            for n in 0..400 {
                let key = n * (7 + round) % 190;
                let expected: Option<&usize> = model.get(&key);
                assert_eq!(last.find(hash(key), |op| ops[op] == key), expected.copied());
                last.set(hash(key), ops.len(), |op| ops[op] == key);
                model.insert(key, ops.len());
                ops.push(key);
            }
            last.clear();
            model.clear();
            ops.clear();
            assert_eq!(last.find(3, |_| true), None);
        }
        last.generation = u32::MAX;
        last.set(9, 0, |_| true);
        last.clear();
        assert_eq!(last.find(9, |_| true), None);
    }
}
