//! A simulated disk that keeps, loses and corrupts data as real disks do.
//!
//! Every file keeps its durable image apart from what was written since its last sync, at the granularity
//! of 512-byte sectors, and the directory keeps creations, renames and removals apart until it is synced.
//! [`SimDisk::crash`] makes the disk that a machine finds after power loss: any subset of unsynced sectors,
//! in any order, some torn; any subset of unsynced directory changes. Faults are planned with
//! [`SimDisk::plan`]. All of it follows from the seed: same calls, same outcome ([`SimDisk::trace`]).
//!
//! Not simulated: space of files that are removed but still open (it is free at once); sparse files (a
//! file takes its length from the capacity).

mod image;
mod inode;
mod sector;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::mem::InUse;
use super::{Disk, DiskFile, DiskLock, LockError, OpenMode, check_name};
use crate::base::checksum::Crc;
use crate::base::rng::Rng;
use inode::{Inode, Keep};

/// Kinds of calls, for counting and for planning faults.
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
/// Of the sectors that survive a random crash one in so many is torn; `OFTEN_TORN` applies to one crash in four.
const OFTEN_TORN: u64 = 2;
const SELDOM_TORN: u64 = 8;

/// Which calls a fault hits, counted from when it is planned; 1 is the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The n-th only.
    Once(u64),
    /// The n-th and all after it, until [`SimDisk::heal`].
    From(u64),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with EIO. A write has changed nothing; a sync has lost what it should have written
    /// (later syncs will not write it either), unless the crash is kind.
    Eio,
    /// The call fails with ENOSPC and has changed nothing.
    Enospc,
    /// The call fails with EMFILE and has changed nothing: no descriptor is free.
    Emfile,
    /// A read or write transfers a part only.
    Short,
    /// One random bit of what is read or written is wrong.
    Flip,
    /// A write lands this many bytes beyond its place.
    Misdirect(u64),
}

/// How much of the unsynced data survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// All of it, as after killing the process.
    All,
    /// Nothing.
    Nothing,
    /// A subset drawn from this seed; some sectors torn.
    Random(u64),
}

/// A directory on the simulated disk. Clones are the same directory.
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
    /// The directory as callers see it, as it is durable, and the changes between the two.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    unsynced: Vec<NameChange>,
    counts: [u64; CALLS],
    faults: Vec<Planned>,
    capacity: u64,
    drop_syncs: bool,
    /// Changing calls until power is lost.
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
struct Planned {
    call: Option<Call>,
    left: u64,
    forever: bool,
    fault: Fault,
}

impl SimDisk {
    /// An empty directory without faults.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::with(Rng(seed), BTreeMap::new(), BTreeMap::new(), 1, u64::MAX)
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

    /// Plans a fault for calls of one kind, or of any kind with `None`. Of several that hit the same call
    /// the first planned counts.
    pub fn plan(&self, call: Option<Call>, when: When, fault: Fault) {
        let (left, forever) = match when {
            When::Once(n) => (n, false),
            When::From(n) => (n, true),
        };
        self.0.state.lock().faults.push(Planned { call, left: left.max(1), forever, fault });
    }

    /// Planned faults that will still hit.
    pub fn planned(&self) -> usize {
        self.0.state.lock().faults.len()
    }

    /// Forgets all planned faults.
    pub fn heal(&self) {
        self.0.state.lock().faults.clear();
    }

    /// Limits the bytes of all files together; growing beyond gives ENOSPC.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.state.lock().capacity = bytes;
    }

    /// Bytes of all files together.
    pub fn used(&self) -> u64 {
        self.0.state.lock().used()
    }

    /// The canary: from now on syncs of files and of the directory succeed and do nothing. A test of durability must
    /// notice.
    pub fn drop_syncs(&self, on: bool) {
        self.0.state.lock().drop_syncs = on;
    }

    /// Lets `calls` more changing calls (all but reads and lists) have their effect; after them every call fails until
    /// [`SimDisk::crash`] returns the disk as it is found when power is back.
    pub fn power_off_after(&self, calls: u64) {
        self.0.state.lock().power = Some(calls);
    }

    /// Whether power is lost.
    pub fn is_off(&self) -> bool {
        self.0.state.lock().power == Some(0)
    }

    /// Calls of one kind so far, failed ones included.
    pub fn count(&self, call: Call) -> u64 {
        self.0.state.lock().counts[call as usize]
    }

    /// A checksum of all calls so far with their data: equal runs have equal ones.
    pub fn trace(&self) -> u32 {
        self.0.state.lock().trace.finish()
    }

    /// The disk after power loss at this moment. This one does not change, so that one moment can be tried many ways.
    pub fn crash(&self, how: Crash) -> SimDisk {
        let state = self.0.state.lock();
        let mut rng = Rng(match how {
            Crash::Random(seed) => seed,
            _ => 0,
        });
        let mut names = state.durable_names.clone();
        // Journals keep the order of directory changes, plain directories do not: try both.
        let in_order = rng.below(2) == 0;
        let survive = rng.below(state.unsynced.len() as u64 + 1) as usize;
        for (index, change) in state.unsynced.iter().enumerate() {
            let keep = match how {
                Crash::All => true,
                Crash::Nothing => false,
                Crash::Random(_) if in_order => index < survive,
                Crash::Random(_) => rng.below(2) == 0,
            };
            if keep {
                change.apply(&mut names);
            }
        }
        let tears = if rng.below(4) == 0 { OFTEN_TORN } else { SELDOM_TORN };
        let mut inodes = BTreeMap::new();
        for inode in names.values() {
            let mut keep = match how {
                Crash::All => Keep::All,
                Crash::Nothing => Keep::None,
                Crash::Random(_) => Keep::Some { rng: &mut rng, tears },
            };
            inodes.insert(*inode, state.inodes[inode].crash(&mut keep));
        }
        SimDisk::with(Rng(rng.next()), inodes, names, state.next_inode, state.capacity)
    }

    /// Flips one bit of a file, durable and cached: damage, not a write. False if there is no such byte.
    pub fn flip(&self, name: &str, off: u64, bit: u8) -> bool {
        self.damage(name, off, |byte| byte ^ (1 << (bit & 7)))
    }

    /// Replaces one byte of a file, durable and cached. False if there is no such byte.
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

    /// Counts a call, decides whether it may happen, and returns a fault that does not fail it.
    fn enter(&mut self, call: Call, facts: [u64; 3], data: &[u8]) -> io::Result<Option<Fault>> {
        self.counts[call as usize] += 1;
        self.trace = facts.iter().fold(self.trace.word(call as u64), |crc, fact| crc.word(*fact)).bytes(data);
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

/// Where a range ends; no file reaches beyond the largest signed number, as on systems of 64 bits.
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

/// A number that stands for a name in the trace.
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
        // No name leads to these files again.
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
            buf[state.rng.below(got as u64) as usize] ^= 1 << state.rng.below(8);
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
            wrong[state.rng.below(n as u64) as usize] ^= 1 << state.rng.below(8);
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
