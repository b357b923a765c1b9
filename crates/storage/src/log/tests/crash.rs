//! Repeated power losses at random moments.

use super::*;
use crate::io::{Call, Crash, SimDisk};

/// Works on a log at random until the power is lost. `known` is the expected content of the log and grows with each append.
/// Returns the number of acknowledged records. Panics if a check fails.
fn live(disk: &SimDisk, log: &Log, numbers: &mut Rng, known: &mut Vec<Logged>, horizon: &mut Lsn) -> usize {
    let mut acked = known.len();
    while !disk.is_off() {
        match numbers.u64(..20) {
            0..=11 => {
                let slot = numbers.u16(..3);
                let limit = if numbers.u64(..10) == 0 { 1900 } else { 200 };
                let body = numbers.usize(..limit);
                match append(log, slot, u64::from(slot), Lsn::ZERO, numbers.u64(..1000), body) {
                    Ok(logged) => known.push(logged),
                    Err(_) => break,
                }
            }
            12 | 13 => drop(log.step(numbers.u64(..1 << 40))),
            14 => drop(log.make_step(0)),
            15 => {
                let _ = log.write_out(numbers.u64(..3000));
            }
            16 | 17 => {
                if log.wait_durable_inline(log.tail()).is_ok() {
                    acked = known.len();
                }
            }
            18 => {
                let _ = log.sync();
            }
            _ if numbers.u64(..4) == 0 && acked > 0 => {
                let lsn = known[numbers.usize(..acked)].lsn;
                // The order is the same as in a checkpoint: the new start first, then the truncation.
                if lsn > *horizon {
                    *horizon = lsn;
                    let _ = log.truncate_before(lsn);
                }
            }
            _ => {
                if let Some(logged) = known.last() {
                    let mut out = Vec::new();
                    assert_eq!(&Logged::from(log.read_at(logged.lsn, &mut out).unwrap()), logged);
                }
            }
        }
        let durable = log.durable();
        acked = acked.max(known.partition_point(|logged| logged.end <= durable));
    }
    acked
}

/// Runs a log several times, with a crash after each run. Returns a description of a record that was lost or invented as
/// `Err`.
fn lives(seed: u64, drop_syncs: bool) -> Result<usize, String> {
    let mut numbers = Rng::with_seed(seed);
    let mut disk = SimDisk::new(seed);
    let mut log = create(&disk, small());
    let mut known = Vec::new();
    let mut horizon = FIRST_LSN;
    let mut total = 0;
    for life in 0..4 {
        disk.drop_syncs(drop_syncs);
        disk.power_off_after(1 + numbers.u64(..120));
        let acked = live(&disk, &log, &mut numbers, &mut known, &mut horizon);
        total += acked;
        drop(log);
        let how = match numbers.u64(..4) {
            0 => Crash::All,
            1 => Crash::Nothing,
            _ => Crash::Random(seed * 100 + life),
        };
        let at = format!("seed {seed}, life {life}, {how:?}");
        let before = disk.crash(how);
        // A second power loss may interrupt the restart itself.
        let cut = numbers.u64(..40);
        before.power_off_after(cut);
        if let Ok(mut reader) = reader(&before, horizon, Lsn::ZERO)
            && read_all(&mut reader).is_ok()
        {
            let _ = Log::open(reader, horizon, small(), Arc::default(), hook());
        }
        disk = before.crash(if numbers.bool() { Crash::All } else { Crash::Random(seed) });
        let mut reader = reader(&disk, horizon, Lsn::ZERO).map_err(|e| format!("{at}: {e}"))?;
        let read = read_all(&mut reader).map_err(|e| format!("{at}: {e}"))?;
        let first = known.partition_point(|logged| logged.lsn < horizon);
        let expected = &known[first..];
        if read.len() + first < acked {
            return Err(format!("{at}: {} of {acked} acknowledged records", read.len() + first));
        }
        if read.len() > expected.len() || read[..] != expected[..read.len()] {
            return Err(format!("{at}: a record that was never appended, or another"));
        }
        known.truncate(first + read.len());
        log = Log::open(reader, horizon, small(), Arc::default(), hook()).map_err(|e| format!("{at}: {e}"))?;
        if log.durable() != known.last().map_or(FIRST_LSN, |logged| logged.end) {
            return Err(format!("{at}: goes on at {}", log.durable()));
        }
    }
    Ok(total)
}

#[test]
fn what_was_acknowledged_is_there_after_any_crash() {
    let seeds = std::env::var("LOG_CRASH_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let total: usize = (0..seeds).map(|seed| lives(seed, false).unwrap()).sum();
    assert!(total as u64 > seeds * 50, "too little happened: {total}");
}

#[test]
fn canary_dropped_syncs_are_found_out() {
    let caught = (0..40).filter(|seed| lives(*seed, true).is_err()).count();
    assert!(caught > 20, "{caught} of 40");
}

#[test]
fn a_record_that_was_never_synced_does_not_come_back_later() {
    let disk = SimDisk::new(1);
    let log = create(&disk, small());
    let first = append(&log, 0, 1, Lsn::ZERO, 1, 72).unwrap();
    log.wait_durable_inline(first.end).unwrap();
    let torn = append(&log, 0, 1, Lsn::ZERO, 2, 72).unwrap();
    let stale = append(&log, 0, 1, Lsn::ZERO, 3, 72).unwrap();
    log.write_out(u64::MAX).unwrap();
    // The crash keeps only the second of these two records.
    let crashed = disk.crash(Crash::All);
    let (offset, _) = log.segments.geometry().place(torn.lsn.0);
    assert!(crashed.flip("log.0", offset + 33, 2));
    let (read, log) = reopen(&crashed, FIRST_LSN);
    assert_eq!(read, std::slice::from_ref(&first));
    // The new record ends where the stale one begins.
    let second = append(&log, 0, 1, Lsn::ZERO, 9, 72).unwrap();
    assert_eq!(second.end, stale.lsn);
    log.wait_durable_inline(second.end).unwrap();
    for how in [Crash::All, Crash::Nothing, Crash::Random(3)] {
        assert_eq!(reopen(&crashed.crash(how), FIRST_LSN).0, [first.clone(), second.clone()], "{how:?}");
    }
}

#[test]
fn what_a_restart_has_read_stays() {
    // After a kill of the process, records may be in the system's cache only. Once they were read and acted upon, they must
    // survive a power loss as well.
    let disk = SimDisk::new(2);
    let log = create(&disk, small());
    for n in 0..100 {
        append(&log, 0, 1, Lsn::ZERO, n, 150).unwrap();
    }
    log.write_out(u64::MAX).unwrap();
    drop(log);
    let (read, _log) = reopen(&disk, FIRST_LSN);
    assert_eq!(read.len(), 100);
    assert_eq!(reopen(&disk.crash(Crash::Nothing), FIRST_LSN).0, read);
    assert!(disk.count(Call::Sync) > 0);
}
