//! Tests of the whole log: in memory, on real threads, and on the simulated disk.

mod crash;
mod faults;
mod room;
mod threads;
mod timing;

use std::sync::Arc;

use fastrand::Rng;

use super::*;
use crate::base::hook::ThreadHook;
use crate::io::{MemDisk, SimDisk};

/// Small segments and a small ring, so that boundaries are crossed often.
fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 16 << 10,
        ring_bytes: 8 << 10,
        slots: 8,
        reserve_bytes: 2 << 10,
        spare_segments: 2,
        database: 42,
        ..LogOptions::default()
    }
}

fn hook() -> Arc<dyn Hook> {
    Arc::new(ThreadHook::default())
}

fn create(disk: &(impl Disk + Clone + 'static), options: LogOptions) -> Log {
    Log::create(Arc::new(disk.clone()), options, Arc::default(), hook()).unwrap()
}

fn reader(disk: &(impl Disk + Clone + 'static), from: Lsn, vouched: Lsn) -> Result<LogReader, StorageError> {
    Ok(LogReader::new(&LogFiles::find(Arc::new(disk.clone()), 42)?, from, vouched))
}

/// Reads to the end of the log.
fn read_all(reader: &mut LogReader) -> Result<Vec<Logged>, StorageError> {
    let mut all = Vec::new();
    while let Some(view) = reader.next()? {
        all.push(Logged::from(view));
    }
    Ok(all)
}

fn reopen(disk: &(impl Disk + Clone + 'static), from: Lsn) -> (Vec<Logged>, Log) {
    let mut reader = reader(disk, from, Lsn::ZERO).unwrap();
    let all = read_all(&mut reader).unwrap();
    (all, Log::open(reader, from, small(), Arc::default(), hook()).unwrap())
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Logged {
    lsn: Lsn,
    end: Lsn,
    slot: SlotId,
    prev: Lsn,
    kind: u8,
    body: Vec<u8>,
}

impl From<RecordView<'_>> for Logged {
    fn from(v: RecordView<'_>) -> Logged {
        Logged { lsn: v.lsn, end: v.end, slot: v.slot, prev: v.prev, kind: v.kind, body: v.body.to_vec() }
    }
}

/// Builds a record whose contents follow from its transaction and `n`.
fn build(rec: &mut RecordBuf, txn: u64, prev: Lsn, n: u64, body: usize) -> Logged {
    let kind = RecordKind::from(1 + (n % 6) as u8).unwrap();
    let slot = SlotId((txn % 2048) as u16);
    rec.begin(kind, slot, prev);
    for i in 0..body {
        rec.put_u8((n as usize * 7 + i) as u8);
    }
    Logged { lsn: Lsn::ZERO, end: Lsn::ZERO, slot, prev, kind: kind as u8, body: rec.body().to_vec() }
}

fn append(log: &Log, slot: u16, txn: u64, prev: Lsn, n: u64, body: usize) -> Result<Logged, StorageError> {
    let mut rec = RecordBuf::new();
    let mut logged = build(&mut rec, txn, prev, n, body);
    logged.lsn = put(log, slot, &mut rec, prev)?;
    logged.end = rec.end();
    Ok(logged)
}

/// Appends like the engine: releases latches and makes a segment if one is missing.
fn put(log: &Log, slot: u16, rec: &mut RecordBuf, after: Lsn) -> Result<Lsn, StorageError> {
    loop {
        match log.append(SlotId(slot), rec, after) {
            Ok(lsn) => return Ok(lsn),
            Err(refused) => refused.make_room(log)?,
        }
    }
}

#[test]
fn records_come_back_in_order_and_whole() {
    let disk = MemDisk::new();
    let log = create(&disk, small());
    let mut numbers = Rng::with_seed(11);
    let mut all: Vec<Logged> = Vec::new();
    for n in 0..3000 {
        let body = numbers.usize(..if n % 50 == 0 { 2000 } else { 150 });
        let prev = all.last().map_or(Lsn::ZERO, |logged| logged.lsn);
        all.push(append(&log, 0, 7, prev, n, body).unwrap());
        log.end_txn(SlotId(0));
        if n % 97 == 0 {
            log.step(n * 1_000_000);
        }
    }
    log.wait_durable_inline(log.tail()).unwrap();
    assert_eq!(log.durable(), log.tail());
    assert!(log.segments.found().files.len() > 10, "many segments were used");
    assert!(all.windows(2).all(|w| w[0].end == w[1].lsn), "no gaps");

    let mut reader = reader(&disk, FIRST_LSN, log.tail()).unwrap();
    assert_eq!(read_all(&mut reader).unwrap(), all);
    assert_eq!(reader.end(), log.tail());
    assert_eq!(read_all(&mut log.reader(all[1000].lsn)).unwrap(), all[1000..]);

    let mut out = Vec::new();
    for logged in all.iter().rev() {
        assert_eq!(&Logged::from(log.read_at(logged.lsn, &mut out).unwrap()), logged);
    }
    // Backward reads of a rollback: of all records or of few distant ones, and of none before a position in the middle.
    for (apart, since) in [(1, 0), (3, 0), (40, 0), (700, 0), (1, 1500), (40, 1500)] {
        let mut records = BackwardReader::new(&log, &mut out, Lsn(all[since].lsn.0 - 1));
        for logged in all[since..].iter().rev().step_by(apart) {
            assert_eq!(&Logged::from(records.read(logged.lsn).unwrap()), logged);
        }
    }
    assert!(log.read_at(Lsn(all[5].lsn.0 + 8), &mut out).is_err(), "not a record's start");
    assert!(log.read_at(log.tail(), &mut out).is_err(), "nothing is there");
    let stats = log.stats();
    assert_eq!((stats.records, stats.bytes), (3000, log.tail().0 - FIRST_LSN.0));
}

#[test]
fn every_field_of_a_record_is_kept() {
    let disk = MemDisk::new();
    let log = create(&disk, small());
    let first = append(&log, 0, 1, Lsn::ZERO, 0, 3).unwrap();
    let mut rec = RecordBuf::new();
    rec.begin(RecordKind::Checkpoint, SlotId(2047), first.lsn);
    rec.put(b"abc");
    rec.put_u8(1);
    rec.put_u16(0x0203);
    let at = rec.body().len();
    rec.put_u16(0);
    rec.put_u32(0x0405_0607);
    rec.put_u64(0x0809_0A0B_0C0D_0E0F);
    rec.patch_u16(at, 0xBEEF);
    let body = rec.body().to_vec();
    assert_eq!(body[at..at + 2], 0xBEEF_u16.to_le_bytes());
    rec.prepare(log.durable());
    assert_eq!(rec.body(), body, "padding is not body");
    let lsn = log.append_reserved(SlotId(1), &mut rec, first.lsn).unwrap();
    assert_eq!(lsn, first.end);
    let mut out = Vec::new();
    let view = log.read_at(lsn, &mut out).unwrap();
    assert_eq!((view.kind, view.slot, view.prev), (RecordKind::Checkpoint as u8, SlotId(2047), first.lsn));
    assert_eq!((view.body, view.end, view.synced), (&body[..], rec.end(), log.durable()));
}

#[test]
fn a_record_has_a_largest_size() {
    let disk = MemDisk::new();
    let log = create(&disk, small());
    let limit = 2048;
    let largest = append(&log, 0, 1, Lsn::ZERO, 1, limit - RECORD_HEADER).unwrap();
    assert_eq!(largest.end.0 - largest.lsn.0, limit as u64);
    let tail = log.tail();
    let error = append(&log, 0, 1, largest.lsn, 2, limit - RECORD_HEADER + 1).unwrap_err();
    assert!(matches!(error, StorageError::RecordTooLarge { bytes: 2056, limit: 2048 }), "{error}");
    assert_eq!(log.tail(), tail);
    let log = create(&disk, LogOptions { segment_bytes: 8192, ring_bytes: 8 << 20, ..small() });
    append(&log, 0, 1, Lsn::ZERO, 1, MAX_RECORD - RECORD_HEADER).unwrap();
    assert!(append(&log, 0, 1, Lsn(5000), 1, MAX_RECORD).is_err());
    log.wait_durable_inline(log.tail()).unwrap();
    let all = read_all(&mut log.reader(FIRST_LSN)).unwrap();
    assert_eq!(all[0].body.len(), MAX_RECORD - RECORD_HEADER, "over 256 segments");
}

/// Regression test: one disk call for each record made a long rollback take five times as long as the work that it undid.
#[test]
fn records_are_read_back_in_pieces() {
    let disk = SimDisk::new(1);
    let log = create(&disk, LogOptions { segment_bytes: 64 << 10, ..small() });
    let mut all = Vec::new();
    for n in 0..8000 {
        all.push(append(&log, 0, 1, Lsn::ZERO, n, 60).unwrap());
        log.end_txn(SlotId(0));
        log.step(0);
    }
    log.wait_durable_inline(log.tail()).unwrap();
    let reads = |apart: usize| {
        let before = disk.count(crate::io::Call::Read);
        let mut out = Vec::new();
        let mut records = BackwardReader::new(&log, &mut out, Lsn::ZERO);
        for logged in all.iter().rev().step_by(apart) {
            assert_eq!(&Logged::from(records.read(logged.lsn).unwrap()), logged);
        }
        disk.count(crate::io::Call::Read) - before
    };
    assert!(reads(1) < 60, "{} for 8000 neighbours", reads(1));
    assert!(reads(400) <= 3 * 8000 / 400, "{} for 20 far apart", reads(400));
}

#[test]
fn recent_records_are_read_without_a_file() {
    let disk = SimDisk::new(1);
    let log = create(&disk, small());
    let mut all = Vec::new();
    for n in 0..400 {
        all.push(append(&log, 0, 1, Lsn::ZERO, n, 60).unwrap());
        log.step(0);
    }
    let reads = disk.count(crate::io::Call::Read);
    let mut out = Vec::new();
    let recent = all.iter().rev().take_while(|logged| log.tail().0 - logged.lsn.0 <= 8 << 10);
    assert!(recent.clone().count() > 80);
    for logged in recent {
        assert_eq!(&Logged::from(log.read_at(logged.lsn, &mut out).unwrap()), logged);
    }
    assert_eq!(disk.count(crate::io::Call::Read), reads);
    assert_eq!(Logged::from(log.read_at(all[0].lsn, &mut out).unwrap()), all[0]);
    assert!(disk.count(crate::io::Call::Read) > reads, "the first has left the ring");
}

#[test]
fn truncated_segments_are_used_again() {
    let disk = SimDisk::new(2);
    let log = create(&disk, small());
    let mut kept = Vec::new();
    for round in 0..200 {
        for n in 0..20 {
            kept.push(append(&log, 0, round, Lsn::ZERO, n, 100).unwrap());
        }
        log.wait_durable_inline(log.tail()).unwrap();
        while log.make_step(0).did_work {}
        let horizon = Lsn(log.tail().0.saturating_sub(20_000));
        log.truncate_before(horizon).unwrap();
        kept.retain(|logged| logged.lsn >= horizon);
        assert!(disk.used() <= 7 * (16 << 10), "the log does not grow: {}", disk.used());
    }
    let stats = log.stats();
    assert!(stats.recycled > 20 && stats.segments > stats.recycled, "{stats:?}");
    for how in [crate::io::Crash::Nothing, crate::io::Crash::All, crate::io::Crash::Random(5)] {
        let crashed = disk.crash(how);
        let (read, _log) = reopen(&crashed, kept[0].lsn);
        assert_eq!(read, kept, "{how:?}");
    }
}

#[test]
fn a_clean_end_leaves_little() {
    let disk = SimDisk::new(3);
    let log = create(&disk, small());
    assert!(disk.used() <= 2 * (16 << 10), "an empty log has at most two segments");
    let mut last = append(&log, 0, 1, Lsn::ZERO, 1, 100).unwrap();
    for n in 0..1000 {
        last = append(&log, 0, n, Lsn::ZERO, n, 100).unwrap();
        while log.make_step(0).did_work {}
    }
    log.wait_durable_inline(log.tail()).unwrap();
    log.truncate_before(last.lsn).unwrap();
    log.shut_down().unwrap();
    assert_eq!((disk.used(), log.disk_bytes()), (16 << 10, 16 << 10));
    let (read, log) = reopen(&disk.crash(crate::io::Crash::Nothing), last.lsn);
    assert_eq!(read, [last.clone()]);
    assert_eq!(log.tail(), last.end);
    append(&log, 0, 1, Lsn::ZERO, 1, 1000).unwrap();
    log.wait_durable_inline(log.tail()).unwrap();
}

#[test]
fn a_log_ends_exactly_where_a_segment_does() {
    let disk = SimDisk::new(4);
    let log = create(&disk, small());
    let payload = log.segments.geometry().payload();
    let left = (payload - FIRST_LSN.0) as usize;
    let mut n = 0;
    while (log.tail().0 as usize) < payload as usize {
        let body = (payload as usize - log.tail().0 as usize - RECORD_HEADER).min(left / 8);
        let body = if body < 100 { body } else { body - 40 };
        append(&log, 0, n, Lsn::ZERO, n, body).unwrap();
        n += 1;
    }
    assert_eq!(log.tail().0, payload);
    log.shut_down().unwrap();
    let (read, log) = reopen(&disk, FIRST_LSN);
    assert_eq!(read.len() as u64, n);
    assert_eq!(log.tail().0, payload);
    let more = append(&log, 0, 1, Lsn::ZERO, 1, 10).unwrap();
    log.wait_durable_inline(log.tail()).unwrap();
    assert_eq!(reopen(&disk, FIRST_LSN).0.last(), Some(&more));
}
