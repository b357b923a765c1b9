//! The catalog: which tables and indexes there are, kept in a table of its own; and the tables that are open.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::index::{Index, Want};
use super::scan::{End, Wanted};
use crate::base::config::Isolation;

use crate::base::error::TxnError;
use crate::base::hook::{BlockReason, Hook, WaitToken};
use crate::base::ids::{IndexId, PageId};
use crate::btree::Tree;
use crate::txn::core::Core;

/// Most tables of a database.
pub(crate) const MAX_TABLES: usize = 1000;
/// Most secondary indexes of a table.
pub(crate) const MAX_INDEXES: usize = 8;

/// The catalog's own tree.
pub(crate) const CATALOG: Tree = Tree { index: IndexId(1), root: PageId(2) };
/// The catalog's number among the tables; real tables count from here on.
const CATALOG_NUMBER: u32 = 1;

/// How a secondary index gets its key: appends it and says true, or says false for a row that is not indexed.
/// The arguments are the primary key's and the row's bytes.
pub(crate) type Extract = fn(&[u8], &[u8], &mut Vec<u8>) -> bool;

/// A secondary index as it is declared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSpec {
    pub(crate) name: &'static str,
    pub(crate) unique: bool,
    /// Bytes of the row before this one do not matter to the index.
    pub(crate) columns_from: usize,
    pub(crate) extract: Extract,
}

/// A secondary index of an open table.
#[derive(Clone, Debug)]
pub(crate) struct Secondary {
    pub(crate) index: Index,
    pub(crate) unique: bool,
    /// See [`IndexSpec::columns_from`].
    pub(crate) columns_from: usize,
    pub(crate) extract: Extract,
}

/// An open table.
#[derive(Clone, Debug)]
pub(crate) struct TableInfo {
    pub(crate) primary: Index,
    pub(crate) secondaries: Vec<Secondary>,
}

/// The trees of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableTrees {
    pub(crate) number: u32,
    pub(crate) primary: Tree,
    /// Each with whether it is unique.
    pub(crate) secondaries: Vec<(Tree, bool)>,
}

/// A table as its catalog row says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    number: u32,
    primary: Tree,
    secondaries: Vec<(String, bool, Tree)>,
}

impl Entry {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let tree = |out: &mut Vec<u8>, tree: Tree| {
            out.extend_from_slice(&tree.index.0.to_le_bytes());
            out.extend_from_slice(&tree.root.0.to_le_bytes());
        };
        out.extend_from_slice(&self.number.to_le_bytes());
        tree(&mut out, self.primary);
        out.push(self.secondaries.len() as u8);
        for (name, unique, at) in &self.secondaries {
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
            out.push(u8::from(*unique));
            tree(&mut out, *at);
        }
        out
    }

    fn decode(mut bytes: &[u8]) -> Option<Entry> {
        fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
            let (head, tail) = bytes.split_at_checked(n)?;
            *bytes = tail;
            Some(head)
        }
        let word = |bytes: &mut &[u8]| Some(u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?));
        let tree = |bytes: &mut &[u8]| Some(Tree { index: IndexId(word(bytes)?), root: PageId(word(bytes)?) });
        let number = word(&mut bytes)?;
        let primary = tree(&mut bytes)?;
        let n = take(&mut bytes, 1)?[0];
        let mut secondaries = Vec::new();
        for _ in 0..n {
            let len = usize::from(take(&mut bytes, 1)?[0]);
            let name = String::from_utf8(take(&mut bytes, len)?.to_vec()).ok()?;
            let unique = take(&mut bytes, 1)?[0] != 0;
            secondaries.push((name, unique, tree(&mut bytes)?));
        }
        Some(Entry { number, primary, secondaries })
    }
}

/// Whether somebody creates a table, and who wants to be next.
#[derive(Debug, Default)]
struct Creation {
    underway: bool,
    waiting: Vec<Arc<WaitToken>>,
}

/// The right to create a table, until dropped.
struct Creator<'c> {
    creation: &'c Mutex<Creation>,
    hook: &'c dyn Hook,
}

impl<'c> Creator<'c> {
    fn wait(creation: &'c Mutex<Creation>, hook: &'c dyn Hook) -> Creator<'c> {
        let token = Arc::new(WaitToken::new());
        loop {
            {
                let mut creation = creation.lock();
                if !creation.underway {
                    creation.underway = true;
                    break;
                }
                creation.waiting.push(Arc::clone(&token));
            }
            hook.block(&token, BlockReason::Lock);
        }
        Creator { creation, hook }
    }
}

impl Drop for Creator<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut creation = self.creation.lock();
            creation.underway = false;
            std::mem::take(&mut creation.waiting)
        };
        waiting.iter().for_each(|token| self.hook.wake(token));
    }
}

/// The catalog in memory.
#[derive(Debug)]
pub(crate) struct Catalog {
    /// What the catalog's table says.
    entries: Mutex<BTreeMap<String, Entry>>,
    /// Tables are created one after the other. Who waits for that may be a fiber of the thread that creates one, so it is
    /// no mutex that is held meanwhile.
    creation: Mutex<Creation>,
    /// Open tables by number: found by handles without a lock.
    open: Box<[OnceLock<TableInfo>]>,
}

impl Catalog {
    /// Reads the catalog's table.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub(crate) fn load(core: &Core) -> Result<Catalog, TxnError> {
        let mut entries = BTreeMap::new();
        let mut damaged = false;
        let mut txn = core.begin(Isolation::Serializable, None)?;
        let wanted = Wanted { from: &[], to: End::Never, want: Want::Read, likely: usize::MAX };
        txn.scan(&own_index(), wanted, |key, row| {
            match (String::from_utf8(key.to_vec()), Entry::decode(row)) {
                (Ok(name), Some(entry)) if (entry.number as usize) < MAX_TABLES + 2 => {
                    drop(entries.insert(name, entry))
                }
                _ => damaged = true,
            }
            ControlFlow::Continue(())
        })?;
        txn.commit()?;
        if damaged {
            let what = "has a row that is no table; the database was written by another build".into();
            return Err(TxnError::Schema { table: "catalog".into(), what });
        }
        let open = (0..MAX_TABLES + 2).map(|_| OnceLock::new()).collect();
        Ok(Catalog { entries: Mutex::new(entries), creation: Mutex::default(), open })
    }

    /// The open table of this number.
    #[inline]
    pub(crate) fn table(&self, number: u32) -> Option<&TableInfo> {
        self.open.get(number as usize)?.get()
    }

    /// Names of all tables.
    pub(crate) fn names(&self) -> Vec<String> {
        self.entries.lock().keys().cloned().collect()
    }

    /// The trees of all tables, the catalog's own first.
    pub(crate) fn trees(&self) -> Vec<TableTrees> {
        let own = TableTrees { number: CATALOG_NUMBER, primary: CATALOG, secondaries: Vec::new() };
        let entries = self.entries.lock();
        let tables = entries.values().map(|e| TableTrees {
            number: e.number,
            primary: e.primary,
            secondaries: e.secondaries.iter().map(|(_, unique, tree)| (*tree, *unique)).collect(),
        });
        std::iter::once(own).chain(tables).collect()
    }

    /// Number, table and name of every index; a primary one has the table's name.
    pub(crate) fn indexes(&self) -> Vec<(u32, String, String)> {
        let entries = self.entries.lock();
        let mut all = Vec::new();
        for (table, entry) in entries.iter() {
            all.push((entry.primary.index.0, table.clone(), table.clone()));
            all.extend(entry.secondaries.iter().map(|(name, _, tree)| (tree.index.0, table.clone(), name.clone())));
        }
        all.sort_unstable();
        all
    }

    /// Root pages of all trees.
    pub(crate) fn roots(&self) -> Vec<PageId> {
        let entries = self.entries.lock();
        let trees = entries.values().flat_map(|e| std::iter::once(e.primary).chain(e.secondaries.iter().map(|s| s.2)));
        std::iter::once(CATALOG).chain(trees).map(|tree| tree.root).collect()
    }

    /// Opens a table, creating it if there is none; returns its number.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if there is a table of this name with other indexes, or too many tables.
    pub(crate) fn open(&self, core: &Core, name: &str, specs: &[IndexSpec], create: bool) -> Result<u32, TxnError> {
        let schema = |what: String| TxnError::Schema { table: name.into(), what };
        let known = || self.entries.lock().get(name).cloned();
        let entry = match known() {
            Some(entry) => entry,
            None if !create => return Err(schema("there is no such table".into())),
            None => {
                if name.is_empty() || name.len() > 200 || specs.iter().any(|s| s.name.is_empty() || s.name.len() > 200)
                {
                    return Err(schema("names have 1 to 200 bytes".into()));
                }
                let _creator = Creator::wait(&self.creation, &*core.hook);
                match known() {
                    // Somebody else has, meanwhile.
                    Some(entry) => entry,
                    None => self.create(core, name, specs)?,
                }
            }
        };
        let declared = specs.iter().map(|s| (s.name, s.unique));
        if !entry.secondaries.iter().map(|(n, u, _)| (n.as_str(), *u)).eq(declared) {
            let has: Vec<_> = entry.secondaries.iter().map(|s| s.0.as_str()).collect();
            return Err(schema(format!("has the indexes [{}], not those declared", has.join(", "))));
        }
        let table: Arc<str> = name.into();
        let index = |name: Arc<str>, tree| Index { tree, lock_table: entry.number, table: Arc::clone(&table), name };
        let secondaries = entry.secondaries.iter().zip(specs);
        let info = TableInfo {
            primary: index(Arc::clone(&table), entry.primary),
            secondaries: secondaries
                .map(|((name, unique, tree), spec)| Secondary {
                    index: index(name.as_str().into(), *tree),
                    unique: *unique,
                    columns_from: spec.columns_from,
                    extract: spec.extract,
                })
                .collect(),
        };
        // A second opening of the table finds it there: same name, same indexes.
        let _ = self.open[entry.number as usize].set(info);
        Ok(entry.number)
    }

    /// Creates a table. Nobody else creates one meanwhile.
    fn create(&self, core: &Core, name: &str, specs: &[IndexSpec]) -> Result<Entry, TxnError> {
        let trees =
            |e: &Entry| std::iter::once(e.primary).chain(e.secondaries.iter().map(|s| s.2)).map(|t| t.index.0).max();
        let (tables, number, mut index) = {
            let entries = self.entries.lock();
            let number = entries.values().map(|e| e.number).max().unwrap_or(CATALOG_NUMBER) + 1;
            (entries.len(), number, entries.values().filter_map(trees).max().unwrap_or(CATALOG.index.0))
        };
        if tables >= MAX_TABLES {
            let what = format!("a database has at most {MAX_TABLES} tables");
            return Err(TxnError::Schema { table: name.into(), what });
        }
        let mut txn = core.begin_creating()?;
        let cx = txn.claim.context();
        let pages = core.pages(cx.slot);
        let mut tree = |rec: &mut crate::log::RecordBuf| {
            index += 1;
            Tree::create(IndexId(index), pages, rec)
        };
        let primary = tree(&mut cx.rec)?;
        let mut secondaries = Vec::new();
        for spec in specs {
            secondaries.push((spec.name.to_owned(), spec.unique, tree(&mut cx.rec)?));
        }
        let entry = Entry { number, primary, secondaries };
        txn.insert(&own_index(), name.as_bytes(), &entry.encode())?;
        let end = txn.commit()?;
        core.make_durable(end)?;
        self.entries.lock().insert(name.to_owned(), entry.clone());
        Ok(entry)
    }
}

fn own_index() -> Index {
    Index { tree: CATALOG, lock_table: CATALOG_NUMBER, table: "catalog".into(), name: "catalog".into() }
}
