//! Hash table from each key of an epoch to the last operation on the key. The keys are stored in the epoch's log only. The
//! table is cleared for every epoch; clearing only increments a generation number, so it is cheap.

/// Slot of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Hash of the key.
    hash: u64,
    /// Generation in which the slot was filled. The slot is empty unless this is the current generation of the table.
    generation: u32,
    /// Index of the last operation on the key in the log.
    op: u32,
}

/// Table of the last operation on each key. See the module documentation.
#[derive(Debug)]
pub(crate) struct LastOpTable {
    /// Slots. Their number is a power of two.
    slots: Vec<Slot>,
    generation: u32,
    used: usize,
}

impl Default for LastOpTable {
    fn default() -> LastOpTable {
        LastOpTable { slots: vec![Slot::default(); 64], generation: 1, used: 0 }
    }
}

impl LastOpTable {
    /// Returns the slot of a key, or a free slot for the key. `is_key` returns true for the index of an operation on the
    /// key.
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

    /// Returns the index of the last operation on a key.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_key: impl Fn(usize) -> bool) -> Option<usize> {
        let slot = self.slots[self.slot(hash, is_key)];
        (slot.generation == self.generation).then_some(slot.op as usize)
    }

    /// Records `op` as the last operation on a key.
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
                // No two slots have the same key, so no slot matches.
                let at = self.slot(slot.hash, |_| false);
                self.slots[at] = slot;
            }
        }
    }

    /// Removes all keys.
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
        let (mut table, mut model, mut ops) = (LastOpTable::default(), HashMap::new(), Vec::new());
        let hash = |key: usize| (key % 50) as u64;
        for round in 0..3 {
            for n in 0..400 {
                let key = n * (7 + round) % 190;
                let expected: Option<&usize> = model.get(&key);
                assert_eq!(table.find(hash(key), |op| ops[op] == key), expected.copied());
                table.set(hash(key), ops.len(), |op| ops[op] == key);
                model.insert(key, ops.len());
                ops.push(key);
            }
            table.clear();
            model.clear();
            ops.clear();
            assert_eq!(table.find(3, |_| true), None);
        }
        table.generation = u32::MAX;
        table.set(9, 0, |_| true);
        table.clear();
        assert_eq!(table.find(9, |_| true), None);
    }
}
