//! Figures 5, 8 and 9: misses, which need counters of the processor that are seldom to be had, from a simulator of caches; and
//! the simulator held against this machine.

use std::time::Duration;

use itas::Aggregation;
use itas::auto::Mode;
use itas::simulate::{Access, Caches, Load, Setting, Simulated, simulate};

use super::load::{How, LINE, Memory, MemoryLoad, Pass, READS, Way, read_ns, remote_read_ns};
use super::memory::{in_turn, rates};
use super::oltp::mib;
use crate::lab::reproduce::Results;
use crate::lab::reproduce::claims;
use crate::lab::reproduce::lab::{Lab, SEED};
use crate::lab::reproduce::report::{Series, Spread};
use crate::workload::error::Error;

/// Lines that a transaction of the OLTP program touches, about, and its time beside that, in nanoseconds.
const OLTP_READS: usize = 600;
const OLTP_WORK_NS: f64 = 30_000.0;
const SLICE: Duration = Duration::from_micros(200);
const LIMIT: u32 = 32;

/// This machine's memory, from reads that depend on each other.
pub(super) fn caches_here() -> Caches {
    const KIB: [usize; 15] =
        [256, 512, 768, 1_024, 1_280, 1_536, 2_048, 3_072, 4_096, 6_144, 8_192, 12_288, 16_384, 32_768, 65_536];
    let points: Vec<(usize, f64)> = KIB.iter().map(|kib| (kib << 10, read_ns(kib << 10))).collect();
    let at = |kib: usize| points.iter().find(|(bytes, _)| *bytes == kib << 10).map_or(1.0, |(_, ns)| *ns);
    let (private_ns, mixed_ns, memory_ns) = (at(256), at(3_072), at(65_536));
    let reach =
        |limit: f64| points.iter().take_while(|(_, ns)| *ns < limit).last().map_or(256 << 10, |(bytes, _)| *bytes);
    let private_bytes = reach((private_ns + mixed_ns) / 2.0);
    // A set of 3 MiB lies in the private cache in part.
    let private_part = (private_bytes as f64 / f64::from(3 << 20)).min(0.9);
    let shared_ns = ((mixed_ns - private_part * at(private_bytes >> 10)) / (1.0 - private_part)).max(mixed_ns);
    Caches {
        private_bytes,
        shared_bytes: reach((shared_ns + memory_ns) / 2.0).max(4 << 20),
        line: LINE,
        private_ns,
        shared_ns,
        remote_ns: remote_read_ns(),
        memory_ns,
    }
}

fn aggregation() -> Aggregation {
    Aggregation { bonus: Duration::from_secs(1), limit: LIMIT }
}

fn run(caches: &Caches, load: &Load, mode: Mode, cores: usize) -> Result<Simulated, Error> {
    let setting = Setting { mode, cores, slice: SLICE, aggregation: aggregation() };
    // Two cycles of all groups.
    let cycle = load.groups as u32 * (LIMIT + 1) * SLICE;
    simulate(caches, load, &setting, 2 * cycle).map_err(|error| Error::failed(error.to_string()))
}

/// Misses of the private cache and of the shared one against fair, by size.
fn misses(
    (id, name): (&str, &str),
    caches: &Caches,
    sizes: &[(f64, Load)],
    x_label: &str,
    findings: &mut Results,
) -> Result<(), Error> {
    for mode in [Mode::Tas, Mode::Itas] {
        let of = |what: &str| format!("{id} {name}, {}: {what} misses", mode.name());
        let mut private = Series::new(of("private cache"), x_label, "misses of an operation, fair = 1, simulated");
        let mut shared = Series::new(of("shared cache"), x_label, "misses of an operation, fair = 1, simulated");
        for (x, load) in sizes {
            let (fair, run) = (run(caches, load, Mode::Fair, 2)?, run(caches, load, mode, 2)?);
            let against = |run: f64, fair: f64| (fair > 0.01).then(|| Spread::exact(run / fair));
            private.push(*x, against(run.private_misses, fair.private_misses));
            shared.push(*x, against(run.shared_misses, fair.shared_misses));
        }
        findings.series.extend([private, shared]);
    }
    Ok(())
}

/// Figure 5.
pub(super) fn fig5(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    lab.say("misses of the memory program, simulated");
    let caches = caches_here();
    let sizes: &[usize] =
        if lab.quick { &[64, 512, 1_024, 4_096] } else { &[16, 64, 256, 512, 1_024, 2_048, 4_096, 8_192] };
    let load = |groups, siblings, kib: usize| {
        let (set_bytes, access) = (kib << 10, Access::Uniform);
        (kib as f64, Load { groups, siblings, set_bytes, reads: READS, work_ns: 40.0, access })
    };
    let global: Vec<_> = sizes.iter().map(|kib| load(8, 8, *kib)).collect();
    misses(("itas-fig5", "global"), &caches, &global, "KiB of a block", findings)?;
    // Siblings without a common block: a group is nothing but a name.
    let local: Vec<_> = sizes.iter().filter(|kib| **kib <= 1_024).map(|kib| load(64, 1, *kib)).collect();
    misses(("itas-fig5", "local"), &caches, &local, "KiB of a block", findings)
}

/// Figures 8 (uniform) and 9 (gaussian).
fn oltp(lab: &mut Lab, findings: &mut Results, id: &str, name: &str, access: Access) -> Result<(), Error> {
    lab.say(&format!("misses of the OLTP program, {name}, simulated"));
    let caches = caches_here();
    let rows: &[u32] =
        if lab.quick { &[1_024, 8_192, 32_768] } else { &[1_024, 4_096, 8_192, 16_384, 32_768, 131_072] };
    let sizes: Vec<(f64, Load)> = rows
        .iter()
        .map(|rows| {
            let set_bytes = *rows as usize * 128;
            (mib(*rows), Load { groups: 4, siblings: 8, set_bytes, reads: OLTP_READS, work_ns: OLTP_WORK_NS, access })
        })
        .collect();
    misses((id, name), &caches, &sizes, "MiB of a tenant's rows", findings)
}

pub(super) fn fig8(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    oltp(lab, findings, "itas-fig8", "uniform", Access::Uniform)
}

pub(super) fn fig9(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    oltp(lab, findings, "itas-fig9", "gaussian", Access::Gaussian)
}

/// The simulator against this machine on two cores; and what it says of more.
pub(super) fn validation(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    let modes = [Mode::Fair, Mode::Tas, Mode::Itas];
    let sizes: &[usize] = if lab.quick { &[512, 2_048] } else { &[256, 512, 1_024, 2_048, 4_096] };
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
        let load = MemoryLoad { groups: 8, siblings: 8, block_bytes: kib << 10, shared: true, pass: Pass::Reads };
        let mut memory = Memory::new(load, SEED);
        let before = caches_here();
        let hit_ns = read_ns((kib << 10).min(before.private_bytes));
        let mut ways = modes
            .iter()
            .map(|mode| Way::new(&load, How::Fixed(*mode, aggregation()), SLICE, 2))
            .collect::<Result<Vec<_>, _>>()?;
        let length = Duration::from_millis(if lab.quick { 150 } else { 600 });
        let runs = in_turn(&mut memory, &mut ways, 5, length)?;
        let after = caches_here();
        // The share of the cache changes with what neighbours do: the mean of before and after.
        let caches = Caches {
            shared_bytes: (before.shared_bytes + after.shared_bytes) / 2,
            shared_ns: (before.shared_ns + after.shared_ns) / 2.0,
            remote_ns: (before.remote_ns + after.remote_ns) / 2.0,
            memory_ns: (before.memory_ns + after.memory_ns) / 2.0,
            // A hit costs more in a set of more pages than the processor has translations at hand.
            private_ns: hit_ns.min(read_ns((kib << 10).min(before.private_bytes))),
            ..before
        };
        let access = Access::Uniform;
        let of = Load { groups: 8, siblings: 8, set_bytes: kib << 10, reads: READS, work_ns: 40.0, access };
        for (n, mode) in modes.into_iter().enumerate() {
            let real = Spread::of(rates(&runs[n]));
            let simulated = run(&caches, &of, mode, 2)?.operations_per_s;
            measured[2 * n].push(kib as f64, real);
            measured[2 * n + 1].push(kib as f64, Some(Spread::exact(simulated)));
            if let Some(real) = real {
                errors.push(((simulated / real.mid - 1.0).abs(), format!("{} at {kib} KiB", mode.name())));
            }
        }
    }
    findings.series.extend(measured);
    errors.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mean = errors.iter().map(|(error, _)| error).sum::<f64>() / errors.len().max(1) as f64;
    let worst = errors.last().map_or(String::new(), |(error, at)| format!("worst {error:.2}, {at}"));
    findings.claim(claims::ITAS_ERROR_P2.found(mean, format!("the mean of {} cells; {worst}", errors.len())));
    more_cores(lab, findings)
}

/// What the simulator says of 2 to 32 cores.
fn more_cores(lab: &mut Lab, findings: &mut Results) -> Result<(), Error> {
    lab.say("2 to 32 cores, simulated");
    let caches = Caches { shared_bytes: 32 << 20, ..caches_here() };
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
