//! Full disks, failing disks, damaged files.

use super::*;
use crate::base::hook::WaitToken;
use crate::io::{Call, Fault, OpenMode, SimDisk, When};

/// The flusher gets no request that it cannot satisfy, and records appended later become durable.
#[test]
fn a_position_beyond_the_tail_is_refused_and_leaves_nothing_to_do() {
    let log = create(&MemDisk::new(), small());
    let hook = ThreadHook::default();
    let token = WaitToken::new();
    for n in 0..3 {
        let before = append(&log, 1, 1, Lsn::ZERO, n, 20).unwrap();
        for end in [Lsn(before.end.0 + 1), Lsn(u64::MAX - 1), Lsn::MAX] {
            log.request_flush(end);
            for driven in [false, true] {
                let refused = log.make_durable(end, driven, &hook);
                assert!(matches!(refused, Err(StorageError::BeyondLog { position, .. }) if position == end));
            }
            assert!(matches!(log.wait_durable(end, &token, &hook), Err(StorageError::BeyondLog { .. })));
        }
        // The request applies to everything appended so far.
        assert!(log.step(0).did_work && log.durable() == before.end);
        assert!(!log.step(0).did_work && !log.is_sync_requested(), "the flusher has work for ever");
    }
}

#[test]
fn a_full_disk_stops_users_and_not_their_rollback() {
    let disk = SimDisk::new(1);
    let log = create(&disk, small());
    disk.set_capacity(5 * (16 << 10));
    let mut rec = RecordBuf::new();
    let mut undo = Vec::new();
    // Four transactions write to the log until there is no space.
    let full = 'full: loop {
        for slot in 0..4_u16 {
            let prev = if undo.len() < 4 { Lsn::ZERO } else { FIRST_LSN };
            let mut logged = build(&mut rec, u64::from(slot), prev, undo.len() as u64, 300);
            match put(&log, slot, &mut rec, Lsn::ZERO) {
                Ok(lsn) => logged.lsn = lsn,
                Err(e) => break 'full e,
            }
            logged.end = rec.end();
            undo.push((slot, logged));
            log.step(0);
            log.make_step(0);
        }
    };
    assert!(matches!(full, StorageError::NoSpace { .. }) && full.is_retryable(), "{full}");
    assert!(undo.len() > 20, "{}", undo.len());
    assert!(append(&log, 5, 1, Lsn::ZERO, 1, 300).is_err(), "nor does another transaction get space");
    // All of it can be undone, with the same number of bytes again.
    let mut all: Vec<Logged> = undo.iter().map(|(_, logged)| logged.clone()).collect();
    for (slot, logged) in undo.iter().rev() {
        let mut clr = build(&mut rec, logged.slot.0.into(), FIRST_LSN, 7, 300);
        clr.lsn = log.append_reserved(SlotId(*slot), &mut rec, Lsn::ZERO).unwrap();
        clr.end = rec.end();
        all.push(clr);
        log.step(0);
    }
    (0..4).for_each(|slot| log.end_txn(SlotId(slot)));
    log.wait_durable_inline(log.tail()).unwrap();
    // Space becomes available again, in either of two ways.
    let elsewhere = disk.crash(crate::io::Crash::All);
    disk.set_capacity(u64::MAX);
    let more = append(&log, 0, 9, Lsn::ZERO, 1, 300).unwrap();
    log.wait_durable_inline(log.tail()).unwrap();
    assert!(log.poison.check().is_ok());
    all.push(more);
    assert_eq!(reopen(&disk, FIRST_LSN).0, all);
    let (_, log) = reopen(&elsewhere, FIRST_LSN);
    assert!(append(&log, 0, 9, Lsn::ZERO, 1, 1500).is_err(), "full after a restart too");
    log.truncate_before(log.tail()).unwrap();
    append(&log, 0, 9, Lsn::ZERO, 1, 1500).unwrap();
}

#[test]
fn after_a_failed_write_or_sync_nothing_more_is_durable() {
    for (call, fault) in [(Call::Write, Fault::Eio), (Call::Sync, Fault::Eio), (Call::Write, Fault::Enospc)] {
        let disk = SimDisk::new(2);
        let log = create(&disk, small());
        let before = append(&log, 0, 1, Lsn::ZERO, 1, 100).unwrap();
        log.wait_durable_inline(before.end).unwrap();
        while log.make_step(0).did_work {}
        disk.plan(Some(call), When::Once(1), fault);
        let lost = append(&log, 0, 1, before.lsn, 2, 100).unwrap();
        assert!(log.wait_durable_inline(lost.end).is_err());
        assert_eq!(log.durable(), before.end, "{call:?}");
        let calls = (disk.count(Call::Write), disk.count(Call::Sync));
        let (token, hook) = (WaitToken::new(), ThreadHook::default());
        assert!(matches!(log.wait_durable(lost.end, &token, &hook), Err(StorageError::Poisoned { .. })));
        assert!(matches!(append(&log, 0, 1, lost.lsn, 3, 100), Err(StorageError::Poisoned { .. })));
        for now in 0..10 {
            assert!(!log.step(now * 100_000_000).did_work && !log.make_step(now).did_work);
        }
        assert!(log.shut_down().is_err() && log.wait_durable_inline(lost.end).is_err());
        assert_eq!((disk.count(Call::Write), disk.count(Call::Sync)), calls, "nothing is tried again");
        log.wait_durable(before.end, &token, &hook).unwrap();
        let (read, _) = reopen(&disk.crash(crate::io::Crash::Nothing), FIRST_LSN);
        assert_eq!(read, [before]);
    }
}

/// Regression test: no file could be opened when the next segment was needed, and the instance was closed permanently.
#[test]
fn a_lack_of_descriptors_passes_like_a_full_disk() {
    let disk = SimDisk::new(2);
    let log = create(&disk, small());
    disk.plan(Some(Call::Open), When::From(1), Fault::Emfile);
    let (mut prev, mut n) = (Lsn::ZERO, 0);
    let refused = loop {
        n += 1;
        match append(&log, 0, 1, prev, n, 300) {
            Ok(logged) => prev = logged.lsn,
            Err(error) => break error,
        }
        log.step(0);
        log.make_step(0);
    };
    assert!(matches!(refused, StorageError::TooManyFiles { .. }) && refused.is_retryable(), "{refused}");
    assert!(log.poison.check().is_ok());
    disk.heal();
    for _ in 0..100 {
        n += 1;
        prev = append(&log, 0, 1, prev, n, 300).unwrap().lsn;
    }
    log.wait_durable_inline(log.tail()).unwrap();
}

#[test]
fn those_who_wait_are_told_of_a_failure() {
    let disk = SimDisk::new(3);
    let log = create(&disk, small());
    let end = append(&log, 0, 1, Lsn::ZERO, 1, 100).unwrap().end;
    disk.plan(Some(Call::Sync), When::From(1), Fault::Eio);
    std::thread::scope(|scope| {
        let wait = || log.wait_durable(end, &WaitToken::new(), &ThreadHook::default());
        let waiters: Vec<_> = (0..3).map(|_| scope.spawn(wait)).collect();
        while log.requested.load(Ordering::Relaxed) < end.0 {
            std::thread::yield_now();
        }
        log.step(0);
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Err(StorageError::Poisoned { .. })));
        }
    });
}

#[test]
fn appenders_of_a_full_ring_are_told_of_a_failure() {
    let disk = SimDisk::new(4);
    let log = create(&disk, small());
    disk.plan(Some(Call::Write), When::From(1), Fault::Eio);
    let mut rec = RecordBuf::new();
    let mut failed = 0;
    for n in 0..100 {
        build(&mut rec, 1, Lsn::ZERO, n, 200);
        failed += u64::from(log.append_reserved(SlotId(0), &mut rec, Lsn::ZERO).is_err());
    }
    assert!(failed > 50 && log.durable() == FIRST_LSN);
}

#[test]
fn any_call_may_fail() {
    // EIO and ENOSPC at the n-th disk call: the log reports an error or succeeds, but never acknowledges falsely.
    for fault in [Fault::Eio, Fault::Enospc] {
        let mut n = 1;
        loop {
            let disk = SimDisk::new(5);
            disk.plan(None, When::Once(n), fault);
            let acked = run_script(&disk);
            let hit = disk.planned() == 0;
            disk.heal();
            for how in [crate::io::Crash::Nothing, crate::io::Crash::All, crate::io::Crash::Random(n)] {
                let crashed = disk.crash(how);
                match reader(&crashed, FIRST_LSN, Lsn::ZERO) {
                    Ok(mut reader) => {
                        let read = read_all(&mut reader).unwrap();
                        assert!(read.len() >= acked.len(), "{fault:?} at call {n}, {how:?}");
                        assert_eq!(read[..acked.len()], acked, "{fault:?} at call {n}, {how:?}");
                        Log::open(reader, FIRST_LSN, small(), Arc::default(), hook()).unwrap();
                    }
                    Err(e) => assert!(acked.is_empty(), "{fault:?} at call {n}, {how:?}: {e}"),
                }
            }
            if !hit {
                break;
            }
            n += 1;
        }
        assert!(n > 50, "{n} calls");
    }
}

/// Creates a log, appends records and makes segments, but does not truncate the log. Returns the acknowledged records.
fn run_script(disk: &SimDisk) -> Vec<Logged> {
    let Ok(log) = Log::create(Arc::new(disk.clone()), small(), Arc::default(), hook()) else { return Vec::new() };
    let (mut pending, mut acked) = (Vec::new(), Vec::new());
    for n in 0..150 {
        match append(&log, 0, 1, Lsn::ZERO, n, 250) {
            Ok(logged) => pending.push(logged),
            Err(_) => continue,
        }
        log.make_step(0);
        if n % 5 == 0 && log.wait_durable_inline(log.tail()).is_ok() {
            acked.append(&mut pending);
        }
    }
    acked
}

/// Regression test: nothing was written after the last flush, but the segment after a missing one proves that it was there.
/// A file under the name of an earlier one was taken for an empty one.
#[test]
fn a_segment_that_is_missing_or_has_the_name_of_another_is_damage() {
    let disk = SimDisk::new(9);
    let log = create(&disk, small());
    while log.tail().0 < log.segments.geometry().base(3) {
        append(&log, 0, 1, Lsn::ZERO, 1, 300).unwrap();
    }
    log.wait_durable_inline(log.tail()).unwrap();
    while log.make_step(0).did_work {}
    let number = log.segments.geometry().number(log.tail().0 - 1);
    let [last, next] = [number, number + 1].map(segment::name);
    let read = |damage: &dyn Fn(&SimDisk)| {
        let damaged = disk.crash(crate::io::Crash::All);
        damage(&damaged);
        reader(&damaged, FIRST_LSN, Lsn::ZERO).and_then(|mut reader| read_all(&mut reader))
    };
    assert!(read(&|_| {}).is_ok() && read(&|disk| disk.remove(&next).unwrap()).is_ok());
    let error = read(&|disk| disk.remove(&last).unwrap()).unwrap_err().to_string();
    assert!(error.contains(&last) && error.contains("missing"), "{error}");
    let exchange = |disk: &SimDisk| {
        disk.rename(&last, "aside").unwrap();
        disk.rename(&next, &last).unwrap();
        disk.rename("aside", &next).unwrap();
    };
    let error = read(&exchange).unwrap_err().to_string();
    assert!(error.contains(&format!("is '{next}' under another name")), "{error}");
}

/// Regression test: a header that held the durable end in units of 4 KiB proved the loss of older records only.
#[test]
fn the_next_record_proves_the_loss_of_a_durable_one() {
    for size in [0, 100, 900] {
        let disk = SimDisk::new(8);
        let log = create(&disk, small());
        let lost = append(&log, 0, 1, Lsn::ZERO, 1, size).unwrap();
        log.wait_durable_inline(log.tail()).unwrap();
        append(&log, 0, 1, lost.lsn, 2, 10).unwrap();
        log.wait_durable_inline(log.tail()).unwrap();
        let geometry = log.segments.geometry();
        for at in lost.lsn.0..lost.lsn.0 + RECORD_HEADER as u64 {
            let damaged = disk.crash(crate::io::Crash::All);
            damaged.flip(&segment::name(geometry.number(at)), geometry.place(at).0, 1);
            let error = read_all(&mut reader(&damaged, FIRST_LSN, Lsn::ZERO).unwrap()).unwrap_err();
            assert!(matches!(error, StorageError::CorruptFile { .. }), "byte {at} of {lost:?}: {error}");
        }
    }
}

#[test]
fn damage_before_the_end_is_not_taken_for_the_end() {
    let disk = SimDisk::new(6);
    let log = create(&disk, small());
    let mut all = Vec::new();
    for n in 0..300 {
        all.push(append(&log, 0, 1, Lsn::ZERO, n, 100).unwrap());
        if n % 10 == 9 {
            log.wait_durable_inline(log.tail()).unwrap();
        }
    }
    let geometry = log.segments.geometry();
    let mut numbers = Rng::with_seed(77);
    for _ in 0..300 {
        let damaged = disk.crash(crate::io::Crash::All);
        // Nothing was written after the last flush, so damage there cannot be distinguished from a lost tail.
        let at = FIRST_LSN.0 + numbers.u64(..all[289].lsn.0 - FIRST_LSN.0);
        let (offset, _) = geometry.place(at);
        damaged.flip(&segment::name(geometry.number(at)), offset, numbers.u8(..8));
        let error = read_all(&mut reader(&damaged, FIRST_LSN, Lsn::ZERO).unwrap()).unwrap_err();
        assert!(matches!(error, StorageError::CorruptFile { .. }), "bit at {at}: {error}");
    }
    // Damage in the last flush is detected if the caller vouches for a later position.
    let damaged = disk.crash(crate::io::Crash::All);
    let (offset, _) = geometry.place(all[295].lsn.0 + 40);
    damaged.flip(&segment::name(geometry.number(all[295].lsn.0)), offset, 0);
    assert_eq!(read_all(&mut reader(&damaged, FIRST_LSN, Lsn::ZERO).unwrap()).unwrap(), all[..295]);
    assert!(read_all(&mut reader(&damaged, FIRST_LSN, log.tail()).unwrap()).is_err());
    // A missing file, a truncated file, and a file with a damaged header.
    let name = segment::name(1);
    let cases: [&dyn Fn(&SimDisk); 3] = [
        &|d| d.remove(&name).unwrap(),
        &|d| d.open(&name, crate::io::OpenMode::Existing).unwrap().set_len(9000).unwrap(),
        &|d| assert!(d.flip(&name, 17, 3)),
    ];
    for (case, damage) in cases.iter().enumerate() {
        let damaged = disk.crash(crate::io::Crash::All);
        damage(&damaged);
        let error = reader(&damaged, FIRST_LSN, Lsn::ZERO).and_then(|mut reader| read_all(&mut reader)).unwrap_err();
        assert!(error.to_string().contains("log.1"), "case {case}: {error}");
    }
    // A damaged segment that is not read now, but that undo may read later.
    let damaged = disk.crash(crate::io::Crash::All);
    assert!(damaged.flip(&name, 17, 3));
    let mut late = reader(&damaged, all[250].lsn, Lsn::ZERO).unwrap();
    assert_eq!(read_all(&mut late).unwrap(), all[250..]);
    let error = Log::open(late, all[1].lsn, small(), Arc::default(), hook()).unwrap_err().to_string();
    assert!(error.contains("log.1"), "{error}");
    let other = LogFiles::find(Arc::new(disk), 43).unwrap_err().to_string();
    assert!(other.contains("another database"), "{other}");
}

#[test]
fn garbage_is_an_error_or_a_shorter_log() {
    let disk = SimDisk::new(7);
    let log = create(&disk, small());
    let mut all = Vec::new();
    for n in 0..200 {
        all.push(append(&log, 0, 1, Lsn::ZERO, n, (n % 300) as usize).unwrap());
        if n % 7 == 0 {
            log.wait_durable_inline(log.tail()).unwrap();
        }
    }
    log.wait_durable_inline(log.tail()).unwrap();
    let files = log.segments.found().files.len() as u64;
    let (mut errors, mut shorter) = (0, 0);
    for seed in 0..2000 {
        let mut numbers = Rng::with_seed(seed);
        let damaged = disk.crash(crate::io::Crash::All);
        let name = segment::name(numbers.u64(..files));
        let file = damaged.open(&name, crate::io::OpenMode::Existing).unwrap();
        let at = [numbers.u64(..100), numbers.u64(..16 << 10)][numbers.usize(..2)];
        let kind = numbers.u64(..5);
        match kind {
            0 => file.set_len(at).unwrap(),
            1 => file.set_len((16 << 10) + at).unwrap(),
            2 => {
                let garbage: Vec<u8> = (0..numbers.u64(..5000)).map(|_| numbers.u8(..)).collect();
                crate::io::write_all_at(&*file, &garbage, at).unwrap();
            }
            3 => {
                // A part of the log, copied to another place.
                let mut piece = vec![0; 3000];
                crate::io::read_up_to_at(&*file, &mut piece, numbers.u64(..16 << 10)).unwrap();
                crate::io::write_all_at(&*file, &piece, at).unwrap();
            }
            _ => damaged.rename(&name, &segment::name(numbers.u64(..1 << 40))).unwrap(),
        }
        let outcome = reader(&damaged, FIRST_LSN, Lsn::ZERO).and_then(|mut reader| {
            let read = read_all(&mut reader)?;
            Log::open(reader, FIRST_LSN, small(), Arc::default(), hook())?;
            Ok(read)
        });
        match outcome {
            Err(_) => errors += 1,
            Ok(read) => {
                assert_eq!(read[..], all[..read.len()], "seed {seed}");
                // These losses may stay undetected: the loss of the last flush, if everything after it is garbage, and the
                // loss of the last file.
                let lost = log.tail().0 - read.last().map_or(FIRST_LSN, |logged| logged.end).0;
                assert!(kind == 4 || lost < 5000 + 7 * 340, "seed {seed}: {lost} bytes lost");
                shorter += 1;
            }
        }
    }
    assert!(errors > 500 && shorter > 100, "{errors} errors, {shorter} read");
}

#[test]
fn a_segment_whose_header_is_gone_is_missed_if_a_later_one_was_made() {
    let disk = MemDisk::new();
    let log = create(&disk, small());
    // Fills the log into the second segment, with a third one ready.
    let mut last = append(&log, 0, 1, Lsn::ZERO, 1, 300).unwrap();
    while log.segments.geometry().number(last.end.0) < 1 {
        last = append(&log, 0, 1, last.lsn, 2, 300).unwrap();
        log.step(0);
        log.make_step(0);
    }
    log.wait_durable_inline(last.end).unwrap();
    while log.make_step(0).did_work {}
    drop(log);
    disk.open("log.1", OpenMode::Existing).unwrap().set_len(0).unwrap();
    let error = read_all(&mut reader(&disk, FIRST_LSN, Lsn::ZERO).unwrap()).unwrap_err();
    assert!(matches!(&error, StorageError::CorruptFile { file, .. } if file.contains("log.1")), "{error}");
}
