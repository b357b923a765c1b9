//! Figures 5, 8 and 9: numbers of misses from a cache simulator, because counters of the processor are seldom available.
//! Also compares the simulator with this machine.

use std::time::Duration;

use itas::Aggregation;
use itas::auto::Mode;
use itas::simulate::{Access, Caches, Load, Setting, Simulated, simulate};

use super::load::{
    AccessPattern, LINE, Memory, MemoryLoad, PAGE, READS, ScheduledLoad, SchedulingMode, Translations, random_read_ns,
    read_ns, remote_read_ns, translations,
};
use super::memory::{BEST_KIB, rates, run_rounds};
use super::oltp::mib;
use crate::interval::Ratio;
use crate::reproduce::Results;
use crate::reproduce::claims::{self, ClaimSpec};
use crate::reproduce::lab::{Lab, SEED};
use crate::reproduce::report::{Claim, Series, Spread};
use tpcc_core::workload::error::Error;

/// Approximate number of lines that a transaction of the OLTP program touches, and time of the transaction without these
/// reads, in nanoseconds.
const OLTP_READS: usize = 600;
const OLTP_WORK_NS: f64 = 30_000.0;
const SLICE: Duration = Duration::from_micros(200);
const LIMIT: u32 = 32;
/// Number of measurements of a latency.
const TRIES: usize = 3;

/// Measures the model of this machine's memory by reads at random places, each of which depends on the previous read.
///
/// # Errors
/// If there is no second thread.
pub(super) fn caches_here() -> Result<Caches, Error> {
    Ok(with_share(&own_caches()?))
}

/// Measures the private caches, whose properties do not change while a program runs. [`with_share`] adds the shared cache
/// and the memory. Disturbances only lengthen a read, so that the minimum of some measurements counts.
fn own_caches() -> Result<Caches, Error> {
    const KIB: [usize; 7] = [256, 512, 768, 1_024, 1_280, 1_536, 2_048];
    /// Size of a set larger than private caches, and smaller than the share of a process in a shared cache, in bytes.
    const MIXED: usize = 3 << 20;
    let walk = |bytes: usize| least(|| read_ns(bytes));
    let half = (walk(KIB[0] << 10) + walk(MIXED)) / 2.0;
    let held = KIB.into_iter().map(|kib| kib << 10).take_while(|bytes| walk(*bytes) < half);
    let private_bytes = held.last().unwrap_or(KIB[0] << 10);
    let private_ns = least(|| random_read_ns(KIB[0] << 10));
    // The share of random reads from the private cache equals the share of the set that this cache holds.
    let private_part = private_bytes as f64 / MIXED as f64;
    let shared_ns = (least(|| random_read_ns(MIXED)) - private_part * private_ns) / (1.0 - private_part);
    let walks: Vec<Translations> = (0..TRIES).map(|_| translations()).collect();
    let mut remote_ns = f64::INFINITY;
    for _ in 0..TRIES {
        remote_ns = remote_ns.min(remote_read_ns()?);
    }
    Ok(Caches {
        private_bytes,
        shared_bytes: 0,
        line: LINE,
        private_ns,
        shared_ns: shared_ns.max(private_ns),
        remote_ns,
        memory_ns: 0.0,
        page_bytes: PAGE,
        translations: walks.iter().map(|walk| walk.pages).sum::<usize>() / TRIES,
        walk_ns: walks.iter().map(|walk| walk.walk_ns).fold(f64::INFINITY, f64::min),
    })
}

/// Returns the minimum of some measurements.
fn least(mut ns: impl FnMut() -> f64) -> f64 {
    (0..TRIES).map(|_| ns()).fold(f64::INFINITY, f64::min)
}

/// Adds the current share of this process in the shared cache, which depends on the load by other users of the machine.
///
/// The private cache of `P` bytes serves the share `P / S` of random reads of `S` bytes. The part of the shared cache, of
/// `C` bytes, serves the share `C / S`. The times of two sets give `C` and the time of a read from memory.
fn with_share(own: &Caches) -> Caches {
    const SETS: [usize; 2] = [16 << 20, 64 << 20];
    // Times without page walks and without hits in the private cache; and the share of reads that miss the private cache.
    let [(near, near_part), (far, far_part)] = SETS.map(|bytes| {
        let walks = (1.0 - (own.translations * PAGE) as f64 / bytes as f64).max(0.0);
        let private_part = own.private_bytes as f64 / bytes as f64;
        let ns = random_read_ns(bytes) - walks * own.walk_ns - private_part * own.private_ns;
        (ns, 1.0 - private_part)
    });
    // near = near_part memory + gain / SETS[0], far = far_part memory + gain / SETS[1], gain = C (shared - memory).
    let [near_each, far_each] = SETS.map(|bytes| 1.0 / bytes as f64);
    let gain = (near * far_part - far * near_part) / (near_each * far_part - far_each * near_part);
    let memory_ns = ((far - gain * far_each) / far_part).max(own.shared_ns + 1.0);
    let shared_bytes = (gain / (own.shared_ns - memory_ns)).clamp((1 << 20) as f64, SETS[1] as f64);
    Caches { shared_bytes: shared_bytes as usize, memory_ns, ..*own }
}

fn aggregation() -> Aggregation {
    Aggregation { bonus: Duration::from_secs(1), limit: LIMIT }
}

fn run(caches: &Caches, load: &Load, mode: Mode, cores: usize) -> Result<Simulated, Error> {
    let setting = Setting { mode, cores, slice: SLICE, aggregation: aggregation() };
    // Duration of one cycle of all groups.
    let cycle = load.groups as u32 * (LIMIT + 1) * SLICE;
    simulate(caches, load, &setting, 2 * cycle).map_err(|error| Error::failed(error.to_string()))
}

/// Adds the misses of the private cache and of the shared cache, relative to fair, by size of a set. Returns the sizes with
/// the misses of the private cache under itas.
fn misses(
    (id, name): (&str, &str),
    caches: &Caches,
    sizes: &[(f64, Load)],
    x_label: &str,
    findings: &mut Results,
) -> Result<Vec<(f64, f64)>, Error> {
    let mut under_itas = Vec::new();
    for mode in [Mode::Tas, Mode::Itas] {
        let of = |what: &str| format!("{id} {name}, {}: {what} misses", mode.name());
        let mut private = Series::new(of("private cache"), x_label, "misses of an operation, fair = 1, simulated");
        let mut shared = Series::new(of("shared cache"), x_label, "misses of an operation, fair = 1, simulated");
        for (x, load) in sizes {
            let (fair, run) = (run(caches, load, Mode::Fair, 2)?, run(caches, load, mode, 2)?);
            let against = |run: f64, fair: f64| (fair > 0.01).then(|| Spread::exact(run / fair));
            let of_private = against(run.private_misses, fair.private_misses);
            private.push(*x, of_private);
            if mode == Mode::Itas {
                under_itas.extend(of_private.map(|misses| (*x, misses.mid)));
            }
            shared.push(*x, against(run.shared_misses, fair.shared_misses));
        }
        findings.series.extend([private, shared]);
    }
    Ok(under_itas)
}

/// Returns a claim on simulated misses of private caches.
fn claim_misses(spec: ClaimSpec, value: Option<f64>, note: &str) -> Claim {
    spec.exact_or(value, format!("simulated, private cache; {note}"), "fair has no misses at these sizes")
}

/// Simulates Figure 5: misses of the memory program by size of a block.
pub(super) fn fig5(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    lab.say("misses of the memory program, simulated");
    let caches = caches_here()?;
    let sizes: &[usize] =
        if lab.quick { &[64, 512, 1_024, 4_096] } else { &[16, 64, 256, 512, 1_024, 2_048, 4_096, 8_192] };
    let load = |groups, siblings, kib: usize| {
        let (set_bytes, access) = (kib << 10, Access::Uniform);
        (kib as f64, Load { groups, siblings, set_bytes, reads: READS, work_ns: 40.0, access })
    };
    let global: Vec<_> = sizes.iter().map(|kib| load(8, 8, *kib)).collect();
    let found = misses(("itas-fig5", "global"), &caches, &global, "KiB of a block", findings)?;
    let of_paper = found.iter().filter(|(kib, _)| BEST_KIB.contains(&(*kib as usize)));
    let least = of_paper.map(|(_, misses)| *misses).reduce(f64::min);
    findings.add_claim(claim_misses(claims::FIG5_GLOBAL, least, "random reads; the least over the sizes"));
    // Siblings without a common block: each is a group of its own.
    let local: Vec<_> = sizes.iter().filter(|kib| **kib <= 1_024).map(|kib| load(64, 1, *kib)).collect();
    misses(("itas-fig5", "local"), &caches, &local, "KiB of a block", findings).map(drop)
}

/// Simulates Figure 8 (uniform) or 9 (gaussian): misses of the OLTP program by size of a tenant's rows. Returns the modelled
/// caches, and the misses of the private cache under itas.
fn oltp(
    lab: &mut Lab,
    findings: &mut Results,
    id: &str,
    name: &str,
    access: Access,
) -> Result<(Caches, Vec<(f64, f64)>), Error> {
    lab.say(&format!("misses of the OLTP program, {name}, simulated"));
    let caches = caches_here()?;
    let rows: &[u32] =
        if lab.quick { &[1_024, 8_192, 32_768] } else { &[1_024, 4_096, 8_192, 16_384, 32_768, 131_072] };
    let sizes: Vec<(f64, Load)> = rows
        .iter()
        .map(|rows| {
            let set_bytes = *rows as usize * 128;
            (mib(*rows), Load { groups: 4, siblings: 8, set_bytes, reads: OLTP_READS, work_ns: OLTP_WORK_NS, access })
        })
        .collect();
    let found = misses((id, name), &caches, &sizes, "MiB of a tenant's rows", findings)?;
    Ok((caches, found))
}

pub(super) fn fig8(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let (caches, found) = oltp(lab, findings, "itas-fig8", "uniform", Access::Uniform)?;
    let private_mib = caches.private_bytes as f64 / f64::from(1 << 20);
    let small = found.iter().filter(|(mib, _)| *mib <= private_mib);
    let greatest = small.map(|(_, misses)| *misses).reduce(f64::max);
    let note = format!("random reads; the greatest over databases of up to {private_mib:.2} MiB, the cache of a core");
    findings.add_claim(claim_misses(claims::FIG8_SMALL, greatest, &note));
    Ok(())
}

pub(super) fn fig9(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let (_, found) = oltp(lab, findings, "itas-fig9", "gaussian", Access::Gaussian)?;
    let fewer = found.iter().filter(|(_, misses)| *misses < 1.0).count();
    let share = (!found.is_empty()).then(|| fewer as f64 / found.len() as f64);
    let note = format!("random reads; {fewer} of {} sizes", found.len());
    findings.add_claim(claim_misses(claims::FIG9_SIZES, share, &note));
    Ok(())
}

/// Measures an operation of the memory program without its reads, in nanoseconds, with sets that fit into the first cache.
fn work_ns() -> Result<f64, Error> {
    const SET: usize = 4 << 10;
    let load =
        MemoryLoad { groups: 8, siblings: 8, block_bytes: SET, shared: true, pattern: AccessPattern::RandomReads };
    let scheduled = ScheduledLoad::new(&load, SchedulingMode::Fixed(Mode::Fair, aggregation()), SLICE, 2)?;
    let runs = run_rounds(&mut Memory::new(load, SEED), &mut [scheduled], 5, Duration::from_millis(30))?;
    let rate = Spread::of(rates(&runs[0])).map_or(f64::INFINITY, |rate| rate.mid);
    Ok((2e9 / rate - READS as f64 * random_read_ns(SET)).max(0.0))
}

/// Compares the simulator with this machine on two cores, and simulates more cores.
///
/// The share of this process in the shared cache changes from second to second with the load by other users of the machine.
/// The memory is therefore measured between all rounds, and each round is compared with its own simulation.
pub(super) fn validation(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    const ROUNDS: usize = 5;
    let modes = [Mode::Fair, Mode::Tas, Mode::Itas];
    let sizes: &[usize] = if lab.quick { &[512, 2_048] } else { &[256, 512, 1_024, 2_048, 4_096] };
    let (own, work_ns) = (own_caches()?, work_ns()?);
    let mut errors: Vec<(f64, String)> = Vec::new();
    let mut measured: Vec<Series> = Vec::new();
    for mode in modes {
        for what in ["measured", "simulated"] {
            let name = format!("itas-simulator {}, {what}", mode.name());
            measured.push(Series::new(name, "KiB of a set", "operations a second, two cores"));
        }
    }
    for &kib in sizes {
        lab.say(&format!("reads of sets of {kib} KiB, measured and simulated"));
        let (set_bytes, shared) = (kib << 10, true);
        let load =
            MemoryLoad { groups: 8, siblings: 8, block_bytes: set_bytes, shared, pattern: AccessPattern::RandomReads };
        let access = Access::Uniform;
        let of = Load { groups: load.groups, siblings: load.siblings, set_bytes, reads: READS, work_ns, access };
        let mut memory = Memory::new(load, SEED);
        let mut scheduled = modes
            .iter()
            .map(|mode| ScheduledLoad::new(&load, SchedulingMode::Fixed(*mode, aggregation()), SLICE, 2))
            .collect::<Result<Vec<_>, _>>()?;
        let length = Duration::from_millis(if lab.quick { 150 } else { 600 });
        let (mut real, mut simulated) = (modes.map(|_| Vec::new()), modes.map(|_| Vec::new()));
        // A hit takes longer in a larger set: fewer of its lines are in the caches above the private one, and they are
        // spread over more places.
        let own = Caches { private_ns: least(|| random_read_ns(set_bytes.min(own.private_bytes))), ..own };
        let mut before = with_share(&own);
        for _ in 0..ROUNDS {
            let runs = run_rounds(&mut memory, &mut scheduled, 1, length)?;
            let after = with_share(&own);
            let caches = Caches {
                shared_bytes: (before.shared_bytes + after.shared_bytes) / 2,
                memory_ns: (before.memory_ns + after.memory_ns) / 2.0,
                ..own
            };
            for (n, mode) in modes.into_iter().enumerate() {
                real[n].extend(rates(&runs[n]));
                simulated[n].push(run(&caches, &of, mode, 2)?.operations_per_s);
            }
            before = after;
        }
        for (n, mode) in modes.into_iter().enumerate() {
            let error = (Ratio::of(&simulated[n], &real[n]).value - 1.0).abs();
            errors.push((error, format!("{} at {kib} KiB", mode.name())));
            measured[2 * n].push(kib as f64, Spread::of(real[n].iter().copied()));
            measured[2 * n + 1].push(kib as f64, Spread::of(simulated[n].iter().copied()));
        }
    }
    findings.series.extend(measured);
    errors.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mean = errors.iter().map(|(error, _)| error).sum::<f64>() / errors.len().max(1) as f64;
    let worst = errors.last().map_or(String::new(), |(error, at)| format!("worst {error:.2}, {at}"));
    findings.add_claim(claims::ITAS_ERROR_P2.exact(mean, format!("the mean of {} cells; {worst}", errors.len())));
    more_cores(lab, findings)
}

/// Simulates the throughput of the modes on 2 to 32 cores.
fn more_cores(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    lab.say("2 to 32 cores, simulated");
    let caches = Caches { shared_bytes: 32 << 20, ..caches_here()? };
    let cores: &[usize] = if lab.quick { &[2, 8] } else { &[2, 4, 8, 16, 32] };
    for kib in [512, 4_096] {
        for mode in [Mode::Tas, Mode::Packed, Mode::Itas] {
            let name = format!("itas-simulator {}, 16 sets of {kib} KiB", mode.name());
            let mut series = Series::new(name, "cores", "throughput, fair = 1, simulated");
            for &cores in cores {
                let access = Access::Uniform;
                let siblings = 2 * cores;
                let load = Load { groups: 16, siblings, set_bytes: kib << 10, reads: READS, work_ns: 40.0, access };
                let (fair, run) = (run(&caches, &load, Mode::Fair, cores)?, run(&caches, &load, mode, cores)?);
                series.push(cores as f64, Some(Spread::exact(run.operations_per_s / fair.operations_per_s)));
            }
            findings.series.push(series);
        }
    }
    Ok(())
}
