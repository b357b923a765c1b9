//! One simulated file: its durable contents and its unsynced writes, sector by sector.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::image::Image;
use super::sector::{Contents, SECTOR, Sector, bytes, each_unit, pack};

/// Maximum number of unsynced versions of a sector. Older versions are dropped, as if the disk had replaced them.
const VERSIONS_MAX: usize = 4;

type Versions = BTreeMap<u64, Vec<Sector>>;

/// A simulated file. A read returns the newest version: from `pending`, else from `failed_writeback`, else from `durable`.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    durable: Image,
    /// Unsynced versions of sectors, oldest first.
    pending: Versions,
    /// Versions written before a failed sync. They are still in the cache and may be on the disk, but no later sync writes
    /// them (as Linux treats pages whose writeback failed).
    failed_writeback: Versions,
    len: u64,
    /// Lengths that the file has had since the last sync, the durable length first. Never empty after a sync or a crash.
    lens: Vec<u64>,
    /// Number of open handles.
    pub(super) open: usize,
}

impl Inode {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the newest version of a sector that is not durable; `None` if all versions are durable.
    fn cached(&self, sector: u64) -> Option<&Contents> {
        [&self.pending, &self.failed_writeback].into_iter().find_map(|of| of.get(&sector)?.last()).map(bytes)
    }

    fn newest(&self, sector: u64) -> &Contents {
        self.cached(sector).unwrap_or_else(|| self.durable.get(sector))
    }

    fn put(&mut self, sector: u64, contents: &Contents) {
        if self.newest(sector) == contents {
            return;
        }
        let versions = self.pending.entry(sector).or_default();
        if versions.len() == VERSIONS_MAX {
            versions.remove(0);
        }
        versions.push(pack(contents));
    }

    fn durable_len(&self) -> u64 {
        self.lens.first().copied().unwrap_or(0)
    }

    fn change_len(&mut self, len: u64) {
        if self.lens.is_empty() {
            self.lens.push(0);
        }
        if self.len != len {
            self.len = len;
            self.lens.push(len);
        }
    }

    pub(super) fn read(&self, buf: &mut [u8], off: u64) -> usize {
        let total = self.len.saturating_sub(off).min(buf.len() as u64) as usize;
        self.durable.read(&mut buf[..total], off);
        each_unit(SECTOR, off, total, |sector, within, range| {
            if let Some(contents) = self.cached(sector) {
                let n = range.len();
                buf[range].copy_from_slice(&contents[within..within + n]);
            }
        });
        total
    }

    pub(super) fn write(&mut self, buf: &[u8], off: u64) {
        each_unit(SECTOR, off, buf.len(), |sector, within, range| {
            let n = range.len();
            let mut contents = *self.newest(sector);
            contents[within..within + n].copy_from_slice(&buf[range]);
            self.put(sector, &contents);
        });
        self.change_len(self.len.max(off + buf.len() as u64));
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            // The bytes beyond the new end must read as zeros if the file grows again.
            let first = len / SECTOR;
            let cached =
                [&self.pending, &self.failed_writeback].into_iter().flat_map(|of| of.range(first..).map(|(s, _)| *s));
            let beyond: Vec<u64> = cached.chain(self.durable.from(first)).collect();
            for sector in beyond {
                let keep = len.saturating_sub(sector * SECTOR).min(SECTOR) as usize;
                let mut contents = *self.newest(sector);
                contents[keep..].fill(0);
                self.put(sector, &contents);
            }
        }
        self.change_len(len);
    }

    pub(super) fn sync(&mut self) {
        for (sector, versions) in std::mem::take(&mut self.pending) {
            self.failed_writeback.remove(&sector);
            if let Some(newest) = versions.last() {
                self.durable.put(sector, bytes(newest));
            }
        }
        self.lens = vec![self.len];
    }

    pub(super) fn sync_failed(&mut self) {
        for (sector, versions) in std::mem::take(&mut self.pending) {
            self.failed_writeback.entry(sector).or_default().extend(versions);
        }
    }

    /// Returns the file as it is after a power loss. `keep` selects the unsynced data that survives: all, nothing, or a
    /// random part with some sectors torn between two versions.
    pub(super) fn crash(&self, keep: &mut Keep<'_>) -> Inode {
        let mut durable = self.durable.clone();
        let mut candidates = self.failed_writeback.clone();
        for (sector, versions) in &self.pending {
            candidates.entry(*sector).or_default().extend(versions.iter().cloned());
        }
        let len = match keep {
            Keep::All => self.len,
            Keep::None => self.durable_len(),
            Keep::Some { rng, .. } => rng.choice(&self.lens).copied().unwrap_or(0),
        };
        for (sector, versions) in candidates {
            let survivor = match keep {
                Keep::All => versions.last().map(|newest| *bytes(newest)),
                Keep::None => None,
                Keep::Some { rng, tears } => {
                    // Version 0 is the durable version, which is in place already.
                    let version =
                        |n: usize| n.checked_sub(1).map_or_else(|| durable.get(sector), |n| bytes(&versions[n]));
                    let pick = rng.usize(..=versions.len());
                    if pick > 0 && rng.u64(..*tears) == 0 {
                        Some(torn(version(pick - 1), version(pick), rng))
                    } else {
                        (pick > 0).then(|| *version(pick))
                    }
                }
            };
            if let Some(survivor) = survivor {
                durable.put(sector, &survivor);
            }
        }
        // Bytes beyond the length do not survive.
        durable.cut(len);
        Inode { durable, len, lens: vec![len], ..Inode::default() }
    }

    /// Changes a byte in all versions of its sector. This is damage, not a write.
    pub(super) fn damage(&mut self, off: u64, change: impl Fn(u8) -> u8) {
        let (sector, within) = (off / SECTOR, (off % SECTOR) as usize);
        let damaged = |contents: &Contents| {
            let mut contents = *contents;
            contents[within] = change(contents[within]);
            contents
        };
        let durable = damaged(self.durable.get(sector));
        self.durable.put(sector, &durable);
        for versions in [self.failed_writeback.get_mut(&sector), self.pending.get_mut(&sector)].into_iter().flatten() {
            versions.iter_mut().for_each(|version| *version = pack(&damaged(bytes(version))));
        }
    }
}

/// Selection of the unsynced data that survives a power loss.
pub(super) enum Keep<'a> {
    All,
    None,
    /// A random part of the sectors survives; one surviving sector in `tears` is torn.
    Some {
        rng: &'a mut Rng,
        tears: u64,
    },
}

/// Returns a torn sector: the first bytes of the newer version and the rest of the older version. If possible, the result
/// equals neither version.
fn torn(older: &Contents, newer: &Contents, rng: &mut Rng) -> Contents {
    let mut contents = *older;
    let differs = |at: &usize| older[*at] != newer[*at];
    let first = (0..contents.len()).find(differs).unwrap_or(0);
    let last = (first + 1..contents.len()).rfind(differs).unwrap_or(contents.len() - 1);
    let cut = first + 1 + rng.usize(..(last - first).max(1));
    contents[..cut].copy_from_slice(&newer[..cut]);
    contents
}
