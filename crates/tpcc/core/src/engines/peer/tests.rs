//! Tests of the workload on a small engine: ordered maps under one mutex.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::{Access, Peer, PeerError, PeerSession, PeerTransaction, TABLES};
use crate::peers::{MixPlan, conditions, load_scaled, standard_mix};
use crate::workload::schema::{IndexId, Scale, TableId};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Test engine. A write transaction fails with a conflict if the number of its commit is a multiple of `refuse_every`.
struct Maps {
    tables: Mutex<Vec<Map>>,
    refuse_every: u64,
    commits: Mutex<u64>,
}

#[derive(Debug, thiserror::Error)]
#[error("refused")]
struct Refused;

impl PeerError for Refused {
    fn is_conflict(&self) -> bool {
        true
    }
}

impl Peer for Maps {
    type Error = Refused;
    type Session<'a> = &'a Maps;

    fn session(&self) -> Result<&Maps, Refused> {
        Ok(self)
    }

    fn load<'r>(&self, table: usize, rows: &mut dyn Iterator<Item = (&'r [u8], &'r [u8])>) -> Result<(), Refused> {
        let map = rows.map(|(key, row)| (key.to_vec(), row.to_vec())).collect();
        self.tables.lock().unwrap()[table] = map;
        Ok(())
    }
}

impl PeerSession for &Maps {
    type Error = Refused;
    type Transaction<'t>
        = Changes<'t>
    where
        Self: 't;

    fn begin(&self, access: Access) -> Result<Changes<'_>, Refused> {
        Ok(Changes { maps: self, tables: self.tables.lock().unwrap(), access, undo: Vec::new() })
    }
}

/// Undo records of a transaction: tables and keys of changed rows, with their old content. Newest last.
type Undo = Vec<(usize, Vec<u8>, Option<Vec<u8>>)>;

struct Changes<'t> {
    maps: &'t Maps,
    tables: MutexGuard<'t, Vec<Map>>,
    access: Access,
    undo: Undo,
}

impl Changes<'_> {
    fn set(&mut self, table: usize, key: &[u8], row: Option<Vec<u8>>) {
        assert_eq!(self.access, Access::Write, "a transaction that said it would only read");
        let map = &mut self.tables[table];
        let old = match row {
            Some(row) => map.insert(key.to_vec(), row),
            None => map.remove(key),
        };
        self.undo.push((table, key.to_vec(), old));
    }
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        while let Some((table, key, old)) = self.undo.pop() {
            match old {
                Some(row) => self.tables[table].insert(key, row),
                None => self.tables[table].remove(&key),
            };
        }
    }
}

impl PeerTransaction for Changes<'_> {
    type Error = Refused;

    fn read<R>(&mut self, table: usize, key: &[u8], mut f: impl FnMut(&[u8]) -> R) -> Result<Option<R>, Refused> {
        Ok(self.tables[table].get(key).map(|row| f(row)))
    }

    fn scan(
        &mut self,
        table: usize,
        from: &[u8],
        to: &[u8],
        down: bool,
        mut f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Refused> {
        let mut range = self.tables[table].range::<[u8], _>((Bound::Included(from), Bound::Included(to)));
        let _ = match down {
            false => range.try_for_each(|(key, row)| f(key, row)),
            true => range.rev().try_for_each(|(key, row)| f(key, row)),
        };
        Ok(())
    }

    fn update<R>(&mut self, table: usize, key: &[u8], f: impl FnOnce(&mut [u8]) -> R) -> Result<Option<R>, Refused> {
        let Some(mut row) = self.tables[table].get(key).cloned() else { return Ok(None) };
        let answer = f(&mut row);
        self.set(table, key, Some(row));
        Ok(Some(answer))
    }

    fn insert(&mut self, table: usize, key: &[u8], row: &[u8]) -> Result<bool, Refused> {
        if self.tables[table].contains_key(key) {
            return Ok(false);
        }
        self.set(table, key, Some(row.to_vec()));
        Ok(true)
    }

    fn take_first(&mut self, table: usize, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
        let range = (Bound::Included(from), Bound::Included(to));
        let Some(key) = self.tables[table].range::<[u8], _>(range).next().map(|(key, _)| key.clone()) else {
            return Ok(None);
        };
        self.set(table, &key, None);
        Ok(Some(key))
    }

    fn commit(mut self) -> Result<(), Refused> {
        let mut commits = self.maps.commits.lock().unwrap();
        *commits += 1;
        if self.access == Access::Write && commits.is_multiple_of(self.maps.refuse_every) {
            return Err(Refused);
        }
        self.undo.clear();
        Ok(())
    }

    fn rollback(self) -> Result<(), Refused> {
        Ok(())
    }
}

#[test]
fn the_mix_leaves_a_consistent_peer_whatever_was_refused() {
    let peer = Maps { tables: Mutex::new(vec![Map::new(); TABLES.len()]), refuse_every: 7, commits: Mutex::new(0) };
    load_scaled(&peer, 1, Scale::TINY, 3).unwrap();
    let before = peer.tables.lock().unwrap()[TableId::Order as usize].len();
    let plan = MixPlan { workers: 2, duration: Duration::from_millis(300), seed: 4 };
    let done = standard_mix(&peer, &plan).unwrap();
    assert!(done.completed > 100 && done.aborted > 0, "{done:?}");
    assert!(peer.tables.lock().unwrap()[TableId::Order as usize].len() > before);
    assert_eq!(conditions(&peer).unwrap(), (12, true));
    // A database without the rows of NEW-ORDER violates consistency conditions. This shows that the checker reads this
    // engine.
    peer.tables.lock().unwrap()[TableId::NewOrder as usize].clear();
    assert!(!conditions(&peer).unwrap().1);
}

#[test]
fn tables_are_numbered_as_they_are_named() {
    let indexes = [IndexId::CustomerByName, IndexId::OrderByCustomer].map(IndexId::name);
    let names: Vec<&str> = TableId::ALL.into_iter().map(TableId::name).chain(indexes).collect();
    assert_eq!(names, TABLES);
}
