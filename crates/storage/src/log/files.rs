//! Segments to which a running log writes: creation ahead of need, recycling and removal.
//!
//! *Ready* segments are contiguous and extend beyond all space reserved so far. A background step makes a new segment in
//! small slices: it renames a truncated segment and gives it a new header. If there is none to recycle, it allocates a file
//! and writes zeros to it, because a sync into space that was allocated but never written has to write metadata as well and
//! takes twice as long. Only then is the segment ready.
//!
//! Lock order: `maker`, then `ready`. Nothing is written or synced under `ready`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::error::StorageError;
use crate::base::mutant::{Mutant, is_mutant};
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::sync::{Mutex, RwLock};
use crate::io::{Disk, DiskFile, OpenMode, read_up_to_at, sync_file, write_all_at, write_zeros_at};

use super::segment::{Geometry, HEADER_BYTES, LogFiles, PIECE, name};

/// Number of bytes of zeros written per slice.
const SLICE: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Segments {
    disk: Arc<dyn Disk>,
    geometry: Geometry,
    /// True if new segments are filled with zeros; false if they are only allocated.
    zero: bool,
    spares_max: usize,
    ready: RwLock<ReadySegments>,
    /// Stream positions of the start (`begin`) and the end (`end`) of the ready segments.
    begin: AtomicU64,
    end: AtomicU64,
    /// Position from which on records are kept. Earlier records remain only if their file also contains later ones.
    kept: AtomicU64,
    /// Maximum number of files. Users' records use all files but one; the last file is for a checkpoint. Undo may need more
    /// files.
    limit: AtomicU64,
    /// Number of files of the log: ready, being made, and waiting to be recycled.
    count: AtomicU64,
    /// Number of files of ready segments.
    in_use: AtomicU64,
    maker: Mutex<MakerState>,
    made: AtomicU64,
    recycled: AtomicU64,
}

#[derive(Debug)]
struct ReadySegments {
    first: u64,
    files: VecDeque<Arc<dyn DiskFile>>,
}

#[derive(Debug, Default)]
struct MakerState {
    /// Numbers of truncated segments that wait to be recycled.
    spares: Vec<u64>,
    making: Option<SegmentInProgress>,
    /// Number of the segment whose file this maker has created but not finished. If a file has the name of that segment, it
    /// belongs to the maker.
    unfinished_number: Option<u64>,
    /// Number of copies of the log in progress. While it is not 0, no segment is removed.
    pins: usize,
    /// Number of times that the pins of copies were broken.
    broken: u64,
}

#[derive(Debug)]
struct SegmentInProgress {
    number: u64,
    file: Arc<dyn DiskFile>,
    /// Number of bytes of the file zeroed so far.
    done: u64,
}

/// State of the log that `Segments::adopt` needs.
pub(super) struct LogEnd {
    /// Position from which on records may still be read.
    pub(super) keep_from: u64,
    /// Position of the next record to append.
    pub(super) at: u64,
    /// Position before which everything was synced by an earlier run.
    pub(super) synced: u64,
}

impl Segments {
    /// Creates the files of a new log, with the first segment ready. Removes all files with names of segments: the caller
    /// has verified that they are left over from an interrupted creation.
    pub(super) fn create(
        disk: Arc<dyn Disk>,
        geometry: Geometry,
        zero: bool,
        spares_max: usize,
    ) -> Result<Segments, StorageError> {
        for (_, name) in super::segment::list(&*disk)? {
            disk.remove(&name).map_err(|e| StorageError::io("remove", disk.show(&name), 0, e))?;
        }
        let segments = Segments::with(disk, geometry, zero, spares_max, 0, VecDeque::new());
        segments.make_now()?;
        Ok(segments)
    }

    /// Takes over the files of a log that ends at `end`. Makes everything that was read durable, and everything after the
    /// end unreadable. Records that were written but not synced before a crash may lie after the end, complete and with
    /// their right LSN. After the next crash such records would be read as part of the log if the records written in between
    /// happened to end at their start.
    pub(super) fn adopt(
        found: LogFiles,
        end: &LogEnd,
        zero: bool,
        spares_max: usize,
    ) -> Result<Segments, StorageError> {
        let LogFiles { disk, geometry, files, .. } = found;
        let is_sound = |number: &u64| files.get(number).is_some_and(|found| found.is_sound());
        let last_used = geometry.number(end.at);
        // If the log ends at the start of a segment, that segment need not exist yet.
        let must_end = if end.at == geometry.base(last_used) { last_used } else { last_used + 1 };
        if let Some(number) = (geometry.number(end.keep_from)..must_end).find(|number| !is_sound(number)) {
            let what = "is missing or its header is damaged; nothing was changed: restore a copy".to_owned();
            return Err(StorageError::CorruptFile { file: disk.show(&name(number)), what });
        }
        if let Some((number, _)) = files.range(last_used + 1..).find(|(_, found)| !found.is_own()) {
            let what = "stands where the log will go on and is no segment of it; move it away".to_owned();
            return Err(StorageError::CorruptFile { file: disk.show(&name(*number)), what });
        }
        let mut first = last_used;
        while first > 0 && is_sound(&(first - 1)) {
            first -= 1;
        }
        let mut ready = VecDeque::new();
        // The range includes the segments after the end: they were made because undo may need them, and the disk may be
        // full.
        for number in (first..).take_while(is_sound) {
            ready.push_back(files[&number].file.clone());
        }
        let next = first + ready.len() as u64;

        for number in geometry.number(end.synced.min(end.at)).max(first)..next {
            let file = &*ready[(number - first) as usize];
            let base = geometry.base(number);
            if number >= last_used && !is_mutant(Mutant::KeepStaleTail) {
                let from = end.at.max(base) - base;
                clear(file, HEADER_BYTES + from, geometry.segment_bytes)?;
            }
            sync_file(file)?;
        }
        let mut spares = Vec::new();
        // A file that does not belong to this log stays.
        for (number, _) in files.into_iter().filter(|(number, found)| found.is_own() && !(first..next).contains(number))
        {
            if number < first && spares.len() < spares_max {
                spares.push(number);
            } else {
                let name = name(number);
                disk.remove(&name).map_err(|e| StorageError::io("remove", disk.show(&name), 0, e))?;
            }
        }
        disk.sync_dir().map_err(|e| StorageError::io("sync", disk.show(""), 0, e))?;
        let segments = Segments::with(disk, geometry, zero, spares_max, first, ready);
        segments.kept.fetch_max(end.keep_from, Ordering::AcqRel);
        {
            let mut maker = segments.maker.lock();
            maker.spares = spares;
            segments.update_counts(&maker);
        }
        if next <= last_used {
            segments.make_now()?;
        }
        Ok(segments)
    }

    fn with(
        disk: Arc<dyn Disk>,
        geometry: Geometry,
        zero: bool,
        spares_max: usize,
        first: u64,
        files: VecDeque<Arc<dyn DiskFile>>,
    ) -> Segments {
        Segments {
            disk,
            geometry,
            zero,
            spares_max,
            begin: AtomicU64::new(geometry.base(first)),
            kept: AtomicU64::new(geometry.base(first)),
            end: AtomicU64::new(geometry.base(first + files.len() as u64)),
            limit: AtomicU64::new(u64::MAX),
            count: AtomicU64::new(files.len() as u64),
            in_use: AtomicU64::new(0),
            ready: RwLock::new(ReadySegments { first, files }),
            maker: Mutex::default(),
            made: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the stream position of the end of the ready segments.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Returns the stream position of the start of the ready segments.
    #[inline]
    pub(super) fn begin(&self) -> u64 {
        self.begin.load(Ordering::Acquire)
    }

    /// Returns the position from which on records are kept.
    #[inline]
    pub(super) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Acquire)
    }

    pub(super) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Sets the maximum number of files of the log.
    pub(super) fn set_limit(&self, files: u64) {
        self.limit.store(files, Ordering::Relaxed);
    }

    /// Returns the number of all files of the log.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns true if a segment may be made for users' records. One more may be made after it for a checkpoint.
    pub(super) fn may_grow(&self) -> bool {
        is_mutant(Mutant::SkipLogLimit) || self.in_use.load(Ordering::Relaxed) + 1 < self.limit.load(Ordering::Relaxed)
    }

    /// Updates the numbers of files after a change.
    fn update_counts(&self, maker: &MakerState) {
        let (ready, spares) = (self.ready.read().files.len(), maker.spares.len());
        self.count.store((ready + spares + usize::from(maker.making.is_some())) as u64, Ordering::Relaxed);
        self.in_use.store(ready as u64, Ordering::Relaxed);
    }

    /// Returns the number of segments made since open, and the number of recycled segments among them.
    pub(super) fn made(&self) -> (u64, u64) {
        (self.made.load(Ordering::Relaxed), self.recycled.load(Ordering::Relaxed))
    }

    /// Returns the file of a ready segment.
    pub(super) fn file(&self, number: u64) -> Option<Arc<dyn DiskFile>> {
        let ready = self.ready.read();
        ready.files.get(number.checked_sub(ready.first)? as usize).cloned()
    }

    /// Returns true if blocks written to the segments bypass the system's cache.
    pub(super) fn is_direct(&self) -> bool {
        self.ready.read().files.back().is_some_and(|file| file.is_direct())
    }

    /// Returns the path of the segment's file, for messages.
    pub(super) fn show(&self, number: u64) -> String {
        self.disk.show(&name(number))
    }

    /// Returns the files of the ready segments, for a reader.
    pub(super) fn found(&self) -> LogFiles {
        let ready = self.ready.read();
        let found = ready.files.iter().map(|file| super::segment::SegmentFile {
            file: file.clone(),
            content: super::segment::SegmentContent::Sound,
        });
        let files = (ready.first..).zip(found).collect();
        LogFiles { disk: self.disk.clone(), geometry: self.geometry, files, piece: PIECE }
    }

    /// Makes the next segment ready at once. `NoSpace` and `TooManyFiles` have no effect; after any other error the log
    /// must not be trusted any more.
    pub(super) fn make_now(&self) -> Result<(), StorageError> {
        self.make_if(|| true)
    }

    /// Executes one slice of making the next segment.
    pub(super) fn make_slice(&self) -> Result<(), StorageError> {
        let mut maker = self.maker.lock();
        let made = if self.may_grow() { self.slice(&mut maker, false) } else { Ok(()) };
        self.update_counts(&maker);
        made
    }

    /// Makes the next segment ready. Waits until no other thread is making a segment, and does nothing if `wanted` then
    /// returns false.
    pub(super) fn make_if(&self, wanted: impl FnOnce() -> bool) -> Result<(), StorageError> {
        let mut maker = self.maker.lock();
        let end = self.end();
        let mut made = Ok(());
        if wanted() {
            while self.end() == end && made.is_ok() {
                made = self.slice(&mut maker, true);
            }
        }
        self.update_counts(&maker);
        made
    }

    /// Executes one slice. Every file of a running log is made here, with I/O and syncs, so this asserts that the thread
    /// holds no latch.
    fn slice(&self, maker: &mut MakerState, urgent: bool) -> Result<(), StorageError> {
        crate::base::latches::assert_none_held("the making of a log segment");
        let Some(making) = &mut maker.making else {
            let number = self.geometry.number(self.end());
            if maker.unfinished_number.take_if(|unfinished_number| *unfinished_number == number).is_some() {
                // The file is left over from a failed attempt. If it cannot be removed, the next call returns the error.
                let _ = self.disk.remove(&name(number));
            }
            if let Some(spare) = maker.spares.pop() {
                return self.recycle(maker, spare, number);
            }
            maker.making = Some(self.start(maker, number)?);
            return Ok(());
        };
        let left = self.geometry.segment_bytes - making.done;
        if self.zero && left > 0 {
            let piece = left.min(SLICE);
            let mut done = write_zeros_at(&*making.file, making.done, piece);
            // The file is synced in small pieces, so that no commit waits for one large sync.
            if !urgent && done.is_ok() {
                done = sync_file(&*making.file);
            }
            making.done += piece;
            return done.map_err(|e| self.abandon(maker, e));
        }
        let (number, file) = (making.number, making.file.clone());
        self.finish(number, &file).map_err(|e| self.abandon(maker, e))?;
        maker.making = None;
        maker.unfinished_number = None;
        self.publish(file);
        Ok(())
    }

    /// Creates the file with all its space. An existing file of that name does not belong to this log and stays.
    fn start(&self, maker: &mut MakerState, number: u64) -> Result<SegmentInProgress, StorageError> {
        let name = name(number);
        let fail = |op, e| StorageError::io(op, self.disk.show(&name), 0, e);
        let file = self.disk.open(&name, OpenMode::CreateNew).map_err(|e| fail("create", e))?;
        maker.unfinished_number = Some(number);
        if let Err(e) = file.allocate(0, self.geometry.segment_bytes) {
            // Removes the incomplete file; a failure of the removal has no consequence.
            let _ = self.disk.remove(&name);
            return Err(fail("allocate", e));
        }
        Ok(SegmentInProgress { number, file, done: 0 })
    }

    fn abandon(&self, maker: &mut MakerState, error: StorageError) -> StorageError {
        if let Some(making) = maker.making.take() {
            let _ = self.disk.remove(&name(making.number));
        }
        error
    }

    fn recycle(&self, maker: &mut MakerState, spare: u64, number: u64) -> Result<(), StorageError> {
        let (from, to) = (name(spare), name(number));
        let fail = |op, e| StorageError::io(op, self.disk.show(&from), 0, e);
        self.disk.rename(&from, &to).map_err(|e| fail("rename", e))?;
        maker.unfinished_number = Some(number);
        // If the file cannot be opened now, a later step makes a new one in its place.
        let file = self.disk.open(&to, OpenMode::Existing).map_err(|e| fail("open", e))?;
        if file.len().map_err(|e| fail("length", e))? != self.geometry.segment_bytes {
            // The file does not belong to this log, or is truncated: a later step makes a new one in its place.
            return self.disk.remove(&to).map_err(|e| fail("remove", e));
        }
        self.finish(number, &file)?;
        maker.unfinished_number = None;
        self.recycled.fetch_add(1, Ordering::Relaxed);
        self.publish(file);
        Ok(())
    }

    /// Writes the header, then makes the contents durable, then the name.
    fn finish(&self, number: u64, file: &Arc<dyn DiskFile>) -> Result<(), StorageError> {
        write_all_at(&**file, &self.geometry.header(number), 0)?;
        sync_file(&**file)?;
        if is_mutant(Mutant::SkipDirectorySync) {
            return Ok(());
        }
        self.disk.sync_dir().map_err(|e| StorageError::io("sync", self.disk.show(""), 0, e))
    }

    fn publish(&self, file: Arc<dyn DiskFile>) {
        self.ready.write().files.push_back(file);
        self.made.fetch_add(1, Ordering::Relaxed);
        self.end.fetch_add(self.geometry.payload(), Ordering::AcqRel);
    }

    /// Prevents the removal of segments, until [`Segments::unpin`] with the returned number, or until pins are broken.
    pub(super) fn pin(&self) -> u64 {
        let mut maker = self.maker.lock();
        maker.pins += 1;
        maker.broken
    }

    /// Removes a pin. The next truncation removes the segments that the pin kept.
    pub(super) fn unpin(&self, pin: u64) {
        let mut maker = self.maker.lock();
        if maker.broken == pin {
            maker.pins -= 1;
        }
    }

    /// Breaks all pins: the next truncation removes segments although copies are in progress.
    pub(super) fn break_pins(&self) {
        let mut maker = self.maker.lock();
        maker.broken += u64::from(maker.pins > 0);
        maker.pins = 0;
    }

    /// Returns true if this pin was broken.
    pub(super) fn is_broken(&self, pin: u64) -> bool {
        self.maker.lock().broken != pin
    }

    /// Returns true if segments are pinned.
    pub(super) fn is_pinned(&self) -> bool {
        self.maker.lock().pins > 0
    }

    /// Removes segments that end at or before `at`, unless they are pinned. Some are kept to be recycled.
    pub(super) fn truncate_before(&self, at: u64) -> Result<(), StorageError> {
        let keep_from = self.geometry.number(at);
        let mut maker = self.maker.lock();
        if maker.pins > 0 {
            return Ok(());
        }
        let mut gone = Vec::new();
        {
            let mut ready = self.ready.write();
            // The last segment remains regardless of `at`, so that there is always one to write to.
            while ready.first < keep_from && ready.files.len() > 1 {
                gone.push(ready.first);
                ready.files.pop_front();
                ready.first += 1;
            }
            self.begin.store(self.geometry.base(ready.first), Ordering::Release);
            self.kept.fetch_max(at, Ordering::AcqRel);
        }
        self.update_counts(&maker);
        // The newest segments are recycled: they are the most likely to be cached.
        for number in gone.into_iter().rev() {
            if maker.spares.len() < self.spares_max && self.count() < self.limit.load(Ordering::Relaxed) {
                maker.spares.push(number);
                self.update_counts(&maker);
            } else {
                self.remove(number)?;
            }
        }
        Ok(())
    }

    /// Removes spare segments, and all segments after the one that contains `at`. Nothing may be appended afterwards.
    pub(super) fn shrink(&self, at: u64) -> Result<(), StorageError> {
        let mut maker = self.maker.lock();
        if let Some(making) = maker.making.take() {
            self.remove(making.number)?;
        }
        while let Some(spare) = maker.spares.pop() {
            self.remove(spare)?;
        }
        let last = self.geometry.number(at);
        loop {
            let beyond = {
                let mut ready = self.ready.write();
                let newest = ready.first + ready.files.len() as u64 - 1;
                if newest <= last || ready.files.len() == 1 {
                    break;
                }
                ready.files.pop_back();
                newest
            };
            self.end.store(self.geometry.base(beyond), Ordering::Release);
            self.remove(beyond)?;
        }
        self.update_counts(&maker);
        self.disk.sync_dir().map_err(|e| StorageError::io("sync", self.disk.show(""), 0, e))
    }

    fn remove(&self, number: u64) -> Result<(), StorageError> {
        let name = name(number);
        self.disk.remove(&name).map_err(|e| StorageError::io("remove", self.disk.show(&name), 0, e))
    }
}

/// Fills a range with zeros; writes only the pieces that are not zero already.
fn clear(file: &dyn DiskFile, from: u64, to: u64) -> Result<(), StorageError> {
    let mut buf = vec![0; (to - from).min(SLICE) as usize];
    let mut at = from;
    while at < to {
        let piece = (to - at).min(SLICE);
        let got = read_up_to_at(file, &mut buf[..piece as usize], at)?;
        if !is_zero(&buf[..got]) || (got as u64) < piece {
            write_zeros_at(file, at, piece)?;
        }
        at += piece;
    }
    Ok(())
}

/// Returns true if all bytes are zero. Tests 64 bytes at a time, because an open reads most of a segment.
fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<64>();
    let or = |bytes: &[u8]| bytes.iter().fold(0, |or, byte| or | byte);
    chunks.iter().all(|chunk| or(chunk) == 0) && or(rest) == 0
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn one_byte_that_is_not_zero_is_seen_wherever_it_lies() {
        for len in [0, 1, 63, 64, 65, 200] {
            let mut bytes = vec![0; len];
            assert!(is_zero(&bytes));
            for at in 0..len {
                bytes[at] = 0x80;
                assert!(!is_zero(&bytes), "{at} of {len}");
                bytes[at] = 0;
            }
        }
    }
}
