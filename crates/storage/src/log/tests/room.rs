//! Appends that find no segment ready.

use super::*;
use crate::io::{Call, Fault, When};

/// Appends until the log refuses, and returns the refusal.
fn fill(log: &Log, rec: &mut RecordBuf) -> AppendError {
    for n in 0.. {
        build(rec, 1, Lsn::ZERO, n, 300);
        match log.append(SlotId(0), rec, Lsn::ZERO) {
            Ok(_) => log.end_txn(SlotId(0)),
            Err(refused) => return refused,
        }
    }
    unreachable!("it refuses")
}

#[test]
fn an_append_makes_no_segment() {
    let disk = SimDisk::new(1);
    let log = create(&disk, small());
    let opened = disk.count(Call::Open);
    let mut rec = RecordBuf::new();
    let refused = fill(&log, &mut rec);
    let tail = log.tail();
    assert!(matches!(refused, AppendError::NoRoom { for_undo: false, .. }), "{refused:?}");
    assert!(matches!(log.append_redo_only(SlotId(1), &mut rec, Lsn::ZERO), Err(AppendError::NoRoom { .. })));
    assert_eq!((disk.count(Call::Open), log.tail()), (opened, tail), "nothing was made, nothing appended");
    assert_eq!(log.reserve.undo_bytes(), 0, "nor are bytes kept for undo");
    refused.make_room(&log).unwrap();
    assert_eq!(disk.count(Call::Open), opened + 1);
    let lsn = log.append(SlotId(0), &mut rec, Lsn::ZERO).unwrap();
    assert_eq!(lsn, tail);
    log.wait_durable_inline(log.tail()).unwrap();
}

#[test]
fn undo_takes_what_is_kept_and_is_refused_behind_it() {
    let disk = SimDisk::new(2);
    let log = create(&disk, small());
    let mut rec = RecordBuf::new();
    let _ = fill(&log, &mut rec);
    let opened = disk.count(Call::Open);
    let mut undone = 0;
    let refused = loop {
        build(&mut rec, 1, FIRST_LSN, 0, 300);
        match log.append_undo(SlotId(0), &mut rec, Lsn::ZERO) {
            Ok(_) => undone += 1,
            Err(refused) => break refused,
        }
    };
    assert!(undone > 5, "{undone} records");
    assert!(matches!(refused, AppendError::NoRoom { for_undo: true, .. }), "{refused:?}");
    assert!(log.tail().0 <= log.segments.end() && disk.count(Call::Open) == opened);
    // If no segment can be made the instance stays open: the caller decides.
    disk.plan(Some(Call::Open), When::Once(1), Fault::Enospc);
    assert!(matches!(refused.make_room(&log), Err(StorageError::NoSpace { .. })));
    log.poison.check().unwrap();
    AppendError::NoRoom { slot: SlotId(1), bytes: rec.extent(), for_undo: true }.make_room(&log).unwrap();
    log.append_undo(SlotId(0), &mut rec, Lsn::ZERO).unwrap();
}

/// Records that do not check the limit may exceed the ready segments. They wait in the ring. An appender that frees space
/// in the ring writes only the part that has a segment.
#[test]
fn a_full_ring_is_written_as_far_as_segments_are_ready() {
    let disk = SimDisk::new(3);
    let log = create(&disk, small());
    let mut rec = RecordBuf::new();
    let _ = fill(&log, &mut rec);
    let opened = disk.count(Call::Open);
    let capacity = log.ring.capacity();
    while log.tail().0 + 400 <= log.segments.end() + capacity {
        build(&mut rec, 1, FIRST_LSN, 0, 300);
        log.append_reserved(SlotId(0), &mut rec, Lsn::ZERO).unwrap();
    }
    assert!(log.tail().0 > log.segments.end() + capacity / 2);
    assert_eq!(disk.count(Call::Open), opened, "an append has made a segment");
    log.wait_durable_inline(log.tail()).unwrap();
    assert_eq!(disk.count(Call::Open), opened + 1);
}
