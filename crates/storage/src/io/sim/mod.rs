//! A simulated disk that keeps, loses and corrupts data as real disks do.
//!
//! Every file keeps its durable image separate from the 512-byte sectors written since its last sync. The directory keeps
//! creations, renames and removals separate until it is synced. [`SimDisk::crash`] returns the disk that a machine finds
//! after a power loss: any subset of unsynced sectors, in any order, some torn; any subset of unsynced directory changes.
//! Faults are planned with [`SimDisk::plan`]. Everything follows from the seed: the same calls have the same outcome
//! ([`SimDisk::trace`]).
//!
//! Not simulated: space of removed files that are still open (it is free at once); sparse files (a file takes its whole
//! length from the capacity).

mod image;
mod inode;
mod sector;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::Mutex;

use super::mem::InUse;
use super::{Disk, DiskFile, DiskLock, LockError, OpenMode, check_name};
use crate::base::checksum::Crc;
use inode::{Inode, Keep};

/// Kind of a disk call, for counting and for planning faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the calls")]
pub enum Call {
    Open,
    List,
    Read,
    Write,
    Sync,
    SetLen,
    Allocate,
    Remove,
    Rename,
    SyncDir,
}

const CALLS: usize = Call::SyncDir as usize + 1;
/// Inverse of the share of torn sectors among the sectors that survive a random crash. One crash in four uses `OFTEN_TORN`.
const OFTEN_TORN: u64 = 2;
const SELDOM_TORN: u64 = 8;

/// Selection of the calls that a fault hits. Calls are counted from the time of planning; the next call has number 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The n-th call only.
    Once(u64),
    /// The n-th call and all later ones, until [`SimDisk::heal`].
    From(u64),
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with EIO. A failed write has no effect. A failed sync loses the data that it should have written,
    /// unless the crash keeps that data; later syncs do not write it either.
    Eio,
    /// The call fails with ENOSPC and has no effect.
    Enospc,
    /// The call fails with EMFILE (no descriptor is free) and has no effect.
    Emfile,
    /// A read or write transfers only a part of the bytes.
    Short,
    /// One random bit of the data read or written is flipped.
    Flip,
    /// A write is stored this many bytes beyond its offset.
    Misdirect(u64),
}

/// Selection of the unsynced data that survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// All unsynced data survives, as after a kill of the process.
    All,
    /// No unsynced data survives.
    Nothing,
    /// A random subset of the unsynced data survives, with some sectors torn. This is the seed of the random numbers.
    Random(u64),
}

/// A directory on the simulated disk. Clones share the same directory.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Machine>);

#[derive(Debug)]
struct Machine {
    state: Mutex<DiskState>,
    claim: InUse,
}

#[derive(Debug)]
struct DiskState {
    rng: Rng,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    /// Directory entries as callers see them. `durable_names` contains the durable entries, `unsynced` the later changes.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    unsynced: Vec<NameChange>,
    counts: [u64; CALLS],
    faults: Vec<PlannedFault>,
    capacity: u64,
    drop_syncs: bool,
    /// Number of changing calls left until the power loss; `None` if no power loss is planned.
    power: Option<u64>,
    trace: Crc,
}

#[derive(Clone, Debug)]
enum NameChange {
    Put(String, u64),
    Remove(String, u64),
    Rename { from: String, to: String, inode: u64 },
}

#[derive(Debug)]
struct PlannedFault {
    call: Option<Call>,
    left: u64,
    forever: bool,
    fault: Fault,
}

impl SimDisk {
    /// Creates an empty simulated directory without faults.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::with(Rng::with_seed(seed), BTreeMap::new(), BTreeMap::new(), 1, u64::MAX)
    }

    fn with(
        rng: Rng,
        inodes: BTreeMap<u64, Inode>,
        names: BTreeMap<String, u64>,
        next_inode: u64,
        capacity: u64,
    ) -> SimDisk {
        let state = DiskState {
            rng,
            inodes,
            next_inode,
            durable_names: names.clone(),
            names,
            unsynced: Vec::new(),
            counts: [0; CALLS],
            faults: Vec::new(),
            capacity,
            drop_syncs: false,
            power: None,
            trace: Crc::new(),
        };
        SimDisk(Arc::new(Machine { state: Mutex::new(state), claim: InUse::default() }))
    }

    /// Plans a fault for calls of one kind; `None` means calls of any kind. If several faults hit the same call, the fault
    /// that was planned first applies.
    pub fn plan(&self, call: Option<Call>, when: When, fault: Fault) {
        let (left, forever) = match when {
            When::Once(n) => (n, false),
            When::From(n) => (n, true),
        };
        self.0.state.lock().faults.push(PlannedFault { call, left: left.max(1), forever, fault });
    }

    /// Returns the number of planned faults that can still hit a call.
    pub fn planned(&self) -> usize {
        self.0.state.lock().faults.len()
    }

    /// Removes all planned faults.
    pub fn heal(&self) {
        self.0.state.lock().faults.clear();
    }

    /// Limits the total size of all files in bytes. A call that would exceed the limit fails with ENOSPC.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.state.lock().capacity = bytes;
    }

    /// Returns the total size of all files in bytes.
    pub fn used(&self) -> u64 {
        self.0.state.lock().used()
    }

    /// Canary: while `on` is true, syncs of files and of the directory succeed and do nothing. A test of durability must
    /// detect this.
    pub fn drop_syncs(&self, on: bool) {
        self.0.state.lock().drop_syncs = on;
    }

    /// Plans a power loss after `calls` more changing calls (all calls but reads and lists). After the power loss every call
    /// fails. [`SimDisk::crash`] returns the disk as found after the power loss.
    pub fn power_off_after(&self, calls: u64) {
        self.0.state.lock().power = Some(calls);
    }

    /// Returns true if the power is lost.
    pub fn is_off(&self) -> bool {
        self.0.state.lock().power == Some(0)
    }

    /// Returns the number of calls of one kind so far, including failed calls.
    pub fn count(&self, call: Call) -> u64 {
        self.0.state.lock().counts[call as usize]
    }

    /// Returns the checksum of all calls so far with their data. Equal runs have equal checksums.
    pub fn trace(&self) -> u32 {
        self.0.state.lock().trace.finish()
    }

    /// Returns the disk after a power loss at this moment. `self` does not change, so a test can try several outcomes of the
    /// power loss.
    pub fn crash(&self, how: Crash) -> SimDisk {
        let state = self.0.state.lock();
        let mut rng = Rng::with_seed(match how {
            Crash::Random(seed) => seed,
            _ => 0,
        });
        let mut names = state.durable_names.clone();
        // Some file systems keep the order of directory changes in a journal, others do not: both cases are simulated.
        let in_order = rng.bool();
        let survive = rng.usize(..=state.unsynced.len());
        for (index, change) in state.unsynced.iter().enumerate() {
            let keep = match how {
                Crash::All => true,
                Crash::Nothing => false,
                Crash::Random(_) if in_order => index < survive,
                Crash::Random(_) => rng.bool(),
            };
            if keep {
                change.apply(&mut names);
            }
        }
        let tears = if rng.u64(..4) == 0 { OFTEN_TORN } else { SELDOM_TORN };
        let mut inodes = BTreeMap::new();
        for inode in names.values() {
            let mut keep = match how {
                Crash::All => Keep::All,
                Crash::Nothing => Keep::None,
                Crash::Random(_) => Keep::Some { rng: &mut rng, tears },
            };
            inodes.insert(*inode, state.inodes[inode].crash(&mut keep));
        }
        SimDisk::with(rng.fork(), inodes, names, state.next_inode, state.capacity)
    }

    /// Flips one bit of a file, in the durable and the cached data: damage, not a write. Returns false if the byte does not
    /// exist.
    pub fn flip(&self, name: &str, off: u64, bit: u8) -> bool {
        self.damage(name, off, |byte| byte ^ (1 << (bit & 7)))
    }

    /// Replaces one byte of a file, in the durable and the cached data. Returns false if the byte does not exist.
    pub fn poke(&self, name: &str, off: u64, byte: u8) -> bool {
        self.damage(name, off, |_| byte)
    }

    fn damage(&self, name: &str, off: u64, change: impl Fn(u8) -> u8) -> bool {
        let state = &mut *self.0.state.lock();
        let inode = state.names.get(name).and_then(|inode| state.inodes.get_mut(inode));
        match inode {
            Some(inode) if off < inode.len() => {
                inode.damage(off, change);
                true
            }
            _ => false,
        }
    }
}

impl DiskState {
    fn used(&self) -> u64 {
        self.names.values().fold(0, |sum: u64, inode| sum.saturating_add(self.inodes[inode].len()))
    }

    /// Counts a call. Fails if the power is off or a planned fault fails the call. Returns a fault of another kind that hits
    /// the call.
    fn enter(&mut self, call: Call, facts: [u64; 3], data: &[u8]) -> io::Result<Option<Fault>> {
        self.counts[call as usize] += 1;
        self.trace = self.trace.words([call as u64]).words(facts).bytes(data);
        if let Some(left) = &mut self.power {
            if *left == 0 {
                return Err(io::Error::other("the power is off"));
            }
            if !matches!(call, Call::Read | Call::List) {
                *left -= 1;
            }
        }
        let mut hit = None;
        self.faults.retain_mut(|planned| {
            if planned.call.is_some_and(|c| c != call) {
                return true;
            }
            planned.left = planned.left.saturating_sub(1);
            if planned.left > 0 {
                return true;
            }
            hit = hit.or(Some(planned.fault));
            planned.forever
        });
        match hit {
            Some(Fault::Eio) => Err(io::Error::from_raw_os_error(5)),
            Some(Fault::Enospc) => Err(no_space()),
            Some(Fault::Emfile) => Err(io::Error::from_raw_os_error(24)),
            other => Ok(other),
        }
    }

    fn inode(&mut self, inode: u64) -> &mut Inode {
        self.inodes.entry(inode).or_default()
    }

    fn room_for(&self, inode: u64, len: u64) -> io::Result<()> {
        let grown = len.saturating_sub(self.inodes.get(&inode).map_or(0, Inode::len));
        if grown > 0 && self.capacity != u64::MAX && self.used().saturating_add(grown) > self.capacity {
            return Err(no_space());
        }
        Ok(())
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced.push(change);
    }
}

/// Returns the end of a range of bytes. The end must not exceed the largest signed 64-bit integer, as on 64-bit systems.
fn end_of(off: u64, len: u64) -> io::Result<u64> {
    let end = off.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
    end.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

fn no_space() -> io::Error {
    io::Error::from_raw_os_error(28)
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Put(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            NameChange::Remove(name, inode) => {
                if names.get(name) == Some(inode) {
                    names.remove(name);
                }
            }
            NameChange::Rename { from, to, inode } => {
                if names.get(from) == Some(inode) {
                    names.remove(from);
                }
                names.insert(to.clone(), *inode);
            }
        }
    }
}

/// Returns a number that represents a file name in the trace.
fn name_fact(name: &str) -> u64 {
    u64::from(Crc::new().bytes(name.as_bytes()).finish())
}

impl Disk for SimDisk {
    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.0.state.lock();
        state.enter(Call::Open, [name_fact(name), mode as u64, 0], &[])?;
        check_name(name)?;
        let inode = match (state.names.get(name).copied(), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, OpenMode::Existing) => return Err(io::ErrorKind::NotFound.into()),
            (Some(inode), _) => inode,
            (None, _) => {
                let inode = state.next_inode;
                state.next_inode += 1;
                state.inodes.insert(inode, Inode::default());
                state.change_name(NameChange::Put(name.to_owned(), inode));
                inode
            }
        };
        state.inode(inode).open += 1;
        Ok(Arc::new(SimFile { disk: self.clone(), inode, name: self.show(name) }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.0.state.lock();
        state.enter(Call::List, [0; 3], &[])?;
        Ok(state.names.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.enter(Call::Remove, [name_fact(name), 0, 0], &[])?;
        let inode = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        state.change_name(NameChange::Remove(name.to_owned(), inode));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.enter(Call::Rename, [name_fact(from), name_fact(to), 0], &[])?;
        check_name(to)?;
        let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        if state.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.change_name(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), inode });
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let state = &mut *self.0.state.lock();
        state.enter(Call::SyncDir, [0; 3], &[])?;
        if state.drop_syncs {
            return Ok(());
        }
        state.durable_names = state.names.clone();
        state.unsynced.clear();
        // Files that have neither a name nor an open handle are removed.
        let names = &state.names;
        state.inodes.retain(|inode, file| file.open > 0 || names.values().any(|n| n == inode));
        Ok(())
    }

    fn lock(&self) -> Result<DiskLock, LockError> {
        self.0.claim.take("(simulated)")
    }

    fn show(&self, name: &str) -> String {
        format!("(simulated)/{name}")
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: u64,
    name: String,
}

impl SimFile {
    fn grow(&self, call: Call, len: u64, max: bool) -> io::Result<()> {
        let mut state = self.disk.0.state.lock();
        state.enter(call, [self.inode, len, 0], &[])?;
        state.room_for(self.inode, len)?;
        let inode = state.inode(self.inode);
        inode.set_len(if max { len.max(inode.len()) } else { len });
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.0.state.lock().inode(self.inode).open -= 1;
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], off: u64) -> io::Result<usize> {
        let mut state = self.disk.0.state.lock();
        let fault = state.enter(Call::Read, [self.inode, off, buf.len() as u64], &[])?;
        let want = if fault == Some(Fault::Short) { buf.len().div_ceil(2) } else { buf.len() };
        let got = state.inode(self.inode).read(&mut buf[..want], off);
        if fault == Some(Fault::Flip) && got > 0 {
            buf[state.rng.usize(..got)] ^= 1 << state.rng.u64(..8);
        }
        Ok(got)
    }

    fn write_at(&self, buf: &[u8], off: u64) -> io::Result<usize> {
        let mut state = self.disk.0.state.lock();
        let fault = state.enter(Call::Write, [self.inode, off, buf.len() as u64], buf)?;
        let n = if fault == Some(Fault::Short) { buf.len().div_ceil(2) } else { buf.len() };
        let off = match fault {
            Some(Fault::Misdirect(by)) => off.saturating_add(by),
            _ => off,
        };
        let end = end_of(off, n as u64)?;
        state.room_for(self.inode, end)?;
        if fault == Some(Fault::Flip) && n > 0 {
            let mut wrong = buf[..n].to_vec();
            wrong[state.rng.usize(..n)] ^= 1 << state.rng.u64(..8);
            state.inode(self.inode).write(&wrong, off);
        } else {
            state.inode(self.inode).write(&buf[..n], off);
        }
        Ok(n)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.0.state.lock();
        let entered = state.enter(Call::Sync, [self.inode, 0, 0], &[]);
        let power_is_on = state.power != Some(0) || entered.is_ok();
        if let Err(e) = entered {
            if power_is_on {
                state.inode(self.inode).sync_failed();
            }
            return Err(e);
        }
        if !state.drop_syncs {
            state.inode(self.inode).sync();
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.0.state.lock().inode(self.inode).len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.grow(Call::SetLen, end_of(len, 0)?, false)
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        self.grow(Call::Allocate, end_of(off, len)?, true)
    }

    fn name(&self) -> &str {
        &self.name
    }
}
