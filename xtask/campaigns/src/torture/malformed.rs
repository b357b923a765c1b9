//! `malformed`: truncated, exchanged, missing, stale or forged files, and pages with valid checksums but absurd content. The
//! engine must return typed errors or correct answers. It must never panic, hang, or use unbounded memory.

use std::sync::Arc;

use super::CampaignPlan;
use super::damage::disk::{CowDisk, Image};
use super::damage::forge;
use super::damage::judge::{Guarantee, check_undamaged, judge, memory_limit};
use super::damage::subject::{LOG_FILE, LOG_HEADER, Shutdown, Subject};
use super::damage::watchdog::{self, CaseResult, Cases};
use super::report::{Progress, Report};
use crate::sim::rng::Rng;

/// Runs the campaign.
pub(super) fn run(plan: &CampaignPlan, progress: &Progress) -> Report {
    let prepared = Subject::all(plan.seed, plan.scheduler).and_then(|subjects| {
        let other = Subject::make(plan.seed ^ 0xABCD, Shutdown::Closed, plan.scheduler)?;
        Ok(Malformed::over(plan.seed, subjects, other.image))
    });
    match prepared {
        Ok(cases) if !check_undamaged(&cases.subjects).is_empty() => {
            Report { failures: check_undamaged(&cases.subjects), ..Report::default() }
        }
        Ok(cases) => watchdog::run(cases, plan, progress),
        Err(error) => Report::of_failure(format!("preparing the database: {error}")),
    }
}

struct Malformed {
    seed: u64,
    subjects: Arc<[Subject]>,
    /// Positions of the log records of each subject, followed by the end of its log.
    records: Vec<Vec<u64>>,
    /// Files of another database.
    other: Image,
    /// All truncations: index of the subject, name of the file, new length.
    truncations: Vec<(usize, String, u64)>,
}

/// Damaged copy of a database, with a description of the damage.
struct Damage<'a> {
    subject: &'a Subject,
    disk: CowDisk,
    kind: &'static str,
    what: String,
    guarantee: Guarantee,
    /// True if the damage affects the file that contains the end of the log.
    newest_log: bool,
}

/// Function that damages files in one way. Returns a description and the guarantee of the engine; `None` if this kind of
/// damage does not apply.
type DamageFn = fn(&Malformed, usize, &CowDisk, &mut Rng) -> Option<(String, Guarantee)>;

/// All kinds of damage except truncation, which has a list of its own. The number is the relative frequency.
const DAMAGE_KINDS: [(&str, u64, DamageFn); 14] = [
    ("page, spoilt", 30, spoilt_page),
    ("page, garbage", 6, garbage_page),
    ("page, misdirected", 8, misdirected_page),
    ("page, exchanged", 6, exchanged_pages),
    ("page, older", 6, older_page),
    ("page, cycle", 8, cycle),
    ("log, forged record", 14, forged_record),
    ("log, zeros from here on", 6, zeros),
    ("log, stale tail", 8, stale_tail),
    ("header, forged", 8, forged_header),
    ("file, garbage", 4, garbage_file),
    ("file, missing", 2, missing_file),
    ("file, exchanged", 4, exchanged_file),
    ("file, extra", 4, extra_file),
];

impl Malformed {
    fn over(seed: u64, subjects: Vec<Subject>, other: Image) -> Malformed {
        let records: Vec<Vec<u64>> = subjects.iter().map(|subject| forge::records(&subject.image)).collect();
        let mut truncations = Vec::new();
        for (i, subject) in subjects.iter().enumerate() {
            for name in subject.image.0.keys() {
                let header = if name == "control" { 64 } else { 44 };
                truncations.extend((0..=header).map(|at| (i, name.clone(), at)));
                let around: &[u64] = if name == "control" { &[4096, 4160] } else { &[4096, 8192, 16384] };
                truncations.extend(around.iter().flat_map(|at| at - 64..=at + 1).map(|at| (i, name.clone(), at)));
            }
        }
        // The block with the end of the log is truncated at each of its bytes, with alternating subjects.
        for byte in 0..4096 {
            let i = byte as usize % subjects.len();
            let end = records[i].last().copied().unwrap_or(4096);
            let (name, at) = forge::log_place(end);
            truncations.push((i, name, (at & !4095) + byte));
        }
        Malformed { seed, subjects: subjects.into(), records, other, truncations }
    }

    /// Damages a database. The case number and the random numbers determine the damage.
    fn damage(&self, case: u64, rng: &mut Rng) -> Damage<'_> {
        // Each truncation of the list occurs once, as an even case.
        if case.is_multiple_of(2)
            && let Some((i, name, len)) = self.truncations.get(case as usize / 2)
        {
            let subject = &self.subjects[*i];
            let disk = self.copy(*i);
            disk.truncate(name, *len);
            return Damage {
                subject,
                disk,
                kind: "file, cut",
                what: format!("{name} cut to {len} bytes"),
                guarantee: Guarantee::Correct,
                newest_log: false,
            };
        }
        let all: u64 = DAMAGE_KINDS.iter().map(|kind| kind.1).sum();
        loop {
            let i = rng.index(self.subjects.len());
            let disk = self.copy(i);
            let mut draw = rng.below(all);
            let mut kind = &DAMAGE_KINDS[0];
            for candidate in &DAMAGE_KINDS {
                kind = candidate;
                if draw < kind.1 {
                    break;
                }
                draw -= kind.1;
            }
            if let Some((what, guarantee)) = kind.2(self, i, &disk, rng) {
                let newest = forge::log_place(self.end_of_log(i)).0;
                let is_newest = |word: &str| word.trim_end_matches(':') == newest;
                let newest_log = kind.0.starts_with("file") && what.split(' ').any(is_newest);
                return Damage { subject: &self.subjects[i], disk, kind: kind.0, what, guarantee, newest_log };
            }
        }
    }

    fn copy(&self, i: usize) -> CowDisk {
        let image = &self.subjects[i].image;
        CowDisk::over(image, 4 * image.bytes())
    }

    fn image(&self, i: usize) -> &Image {
        &self.subjects[i].image
    }

    fn end_of_log(&self, i: usize) -> u64 {
        self.records[i].last().copied().unwrap_or(4096)
    }

    /// Returns the name of a random file.
    fn any_file(&self, i: usize, rng: &mut Rng) -> String {
        let names: Vec<&String> = self.image(i).0.keys().collect();
        names[rng.index(names.len())].clone()
    }
}

fn put_page(disk: &CowDisk, number: u32, bytes: &[u8]) {
    disk.change(forge::PAGES, u64::from(number) * forge::PAGE as u64, bytes);
}

fn any_page(all: &Malformed, i: usize, rng: &mut Rng) -> u32 {
    // Pages that refer to other pages are chosen more often.
    let inner = forge::pages_of(all.image(i), 2);
    match rng.below(8) {
        0 => 1,
        1 => 2,
        2 | 3 if !inner.is_empty() => inner[rng.index(inner.len())],
        _ => 1 + rng.below(u64::from(forge::end_of_pages(all.image(i))) - 1) as u32,
    }
}

fn spoilt_page(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let number = any_page(all, i, rng);
    let mut page = forge::page(all.image(i), number);
    let (what, guarantee) = forge::spoil(&mut page, forge::end_of_pages(all.image(i)), rng);
    put_page(disk, number, &page);
    Some((format!("page {number}: {what}"), guarantee))
}

fn garbage_page(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let number = any_page(all, i, rng);
    let old = forge::page(all.image(i), number);
    let mut page = rng.bytes(forge::PAGE);
    page[4..8].copy_from_slice(&number.to_le_bytes());
    // The header fields up to a random offset, which are read first, remain intact.
    let right = [8, 16, 32, 64, 96][rng.index(5)];
    page[8..right].copy_from_slice(&old[8..right]);
    forge::seal(&mut page);
    put_page(disk, number, &page);
    Some((format!("page {number}: garbage from byte {right} on"), Guarantee::Detected))
}

fn misdirected_page(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let (from, to) = (any_page(all, i, rng), any_page(all, i, rng));
    if from == to {
        return None;
    }
    let mut page = forge::page(all.image(i), from);
    // The page keeps its own number, or gets the number of the page that it replaces.
    if rng.once_in(2) {
        renumber(&mut page, to);
    }
    put_page(disk, to, &page);
    Some((format!("page {from} in the place of page {to}"), Guarantee::Correct))
}

/// Changes the number in the header of a page.
fn renumber(page: &mut [u8], number: u32) {
    page[4..8].copy_from_slice(&number.to_le_bytes());
    forge::seal(page);
}

/// Exchanges two pages and corrects the numbers in their headers. The pages are usually of the same kind, so that they are
/// often in the same tree.
fn exchanged_pages(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let pages = forge::pages_of(all.image(i), if rng.once_in(3) { 2 } else { 1 });
    let (a, b) = (*pages.get(rng.index(pages.len().max(1)))?, pages[rng.index(pages.len())]);
    if a == b {
        return None;
    }
    for (from, to) in [(a, b), (b, a)] {
        let mut page = forge::page(all.image(i), from);
        renumber(&mut page, to);
        put_page(disk, to, &page);
    }
    Some((format!("pages {a} and {b} exchanged"), Guarantee::Correct))
}

/// Replaces a page by an older copy, like a disk that loses a write. If the key bounds of the page have not changed, only
/// its rows are stale.
fn older_page(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let number = any_page(all, i, rng);
    let older = forge::page(&all.subjects[i].older, number);
    if older == forge::page(all.image(i), number) || forge::u32_at(&older, 4) != number {
        return None;
    }
    put_page(disk, number, &older);
    Some((format!("page {number} as it was before"), Guarantee::NoCrash))
}

fn cycle(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let image = all.image(i);
    let kind = rng.below(3) as u8;
    let pages = forge::pages_of(image, kind);
    let number = *pages.get(rng.index(pages.len().max(1)))?;
    let mut page = forge::page(image, number);
    // Link from a page to itself, to the start of its list, or to another page of its kind.
    let to = match rng.below(3) {
        0 => number,
        1 if kind == 0 => forge::u32_at(&forge::page(image, 1), forge::SPACE_FREE),
        _ => pages[rng.index(pages.len())],
    };
    let at = match kind {
        2 => {
            let count = usize::from(forge::u16_at(&page, forge::COUNT)).max(1);
            if rng.once_in(3) { forge::UPPER } else { forge::SLOTS + forge::SLOT * rng.index(count) + 8 }
        }
        _ => forge::RIGHT,
    };
    page[at..at + 4].copy_from_slice(&to.to_le_bytes());
    forge::seal(&mut page);
    put_page(disk, number, &page);
    Some((format!("page {number} (kind {kind}): link at {at} to page {to}"), Guarantee::Detected))
}

fn forged_record(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let positions = &all.records[i];
    // Usually one of the records that a restart reads.
    let last = positions.len().min(1 + 40 * (1 + rng.index(8)));
    let position = *positions.get(positions.len().checked_sub(1 + rng.index(last))?)?;
    let what = forge::forge_record(all.image(i), disk, position, rng)?;
    Some((what, Guarantee::NoCrash))
}

fn zeros(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let end = all.end_of_log(i);
    let from = end.saturating_sub(rng.below(6000));
    forge::write_log(disk, from, &vec![0; (end - from) as usize]);
    Some((format!("log: zeros from {from} to its end {end}"), Guarantee::Correct))
}

fn stale_tail(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let (image, end) = (all.image(i), all.end_of_log(i));
    let (file, at) = forge::log_place(end);
    // Stale bytes: the previous contents of the recycled file, bytes of another file, or older records at a new position.
    let stale = match rng.below(3) {
        0 => all.subjects[i].older.file(&file).get(at as usize..)?.to_vec(),
        1 => {
            let names: Vec<&String> = image.0.keys().filter(|name| name.starts_with("log.")).collect();
            image.file(names[rng.index(names.len())]).get(at as usize..)?.to_vec()
        }
        _ => {
            let positions = &all.records[i];
            let from = *positions.get(rng.index(positions.len()))?;
            forge::log_bytes(image, from, (LOG_FILE - at) as usize)
        }
    };
    let n = stale.len().min(1 + rng.index(20_000));
    forge::write_log(disk, end, &stale[..n]);
    Some((format!("log: {n} stale bytes behind its end {end}"), Guarantee::Correct))
}

fn forged_header(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let name = all.any_file(i, rng);
    let bytes = all.image(i).file(&name);
    let (field, mut block, base) = match &*name {
        "control" => {
            let base = 4096 * rng.index(2);
            ([8, 16, 24, 32, 40][rng.index(5)], bytes.get(base..base + 64)?.to_vec(), base)
        }
        "pages.0" => ([8, 16][rng.index(2)], bytes.get(..28)?.to_vec(), 0),
        _ => ([8, 16, 24, 32][rng.index(4)], bytes.get(..44)?.to_vec(), 0),
    };
    let size = if field == 8 { 4 } else { 8 };
    let number = forge::nasty(rng, forge::u64_at(&block, field), size);
    block[field..field + size].copy_from_slice(&number.to_le_bytes()[..size]);
    if name == "control" {
        block[12..16].fill(0);
        let crc = forge::crc32c(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
    } else {
        let at = block.len() - 4;
        let crc = forge::crc32c(&block[..at]);
        block[at..].copy_from_slice(&crc.to_le_bytes());
    }
    disk.change(&name, base as u64, &block);
    Some((format!("{name}: header field {field} = {number}"), Guarantee::NoCrash))
}

fn garbage_file(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let name = all.any_file(i, rng);
    let len = [0, 1, 4096, 8192, all.image(i).file(&name).len()][rng.index(5)];
    disk.put(&name, rng.bytes(len));
    Some((format!("{name}: {len} bytes of garbage"), Guarantee::Correct))
}

fn missing_file(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let name = all.any_file(i, rng);
    disk.remove_file(&name);
    Some((format!("{name}: missing"), Guarantee::Correct))
}

fn exchanged_file(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    let (a, b) = (all.any_file(i, rng), all.any_file(i, rng));
    if rng.once_in(2) {
        // File with the same name from another database.
        let foreign = all.other.0.get(&a)?;
        disk.put(&a, foreign.to_vec());
        return Some((format!("{a}: another database's"), Guarantee::Correct));
    }
    if a == b {
        return None;
    }
    disk.swap(&a, &b);
    Some((format!("{a} and {b} exchanged"), Guarantee::Correct))
}

fn extra_file(all: &Malformed, i: usize, disk: &CowDisk, rng: &mut Rng) -> Option<(String, Guarantee)> {
    const NAMES: [&str; 12] = [
        "log.99999",
        "log.4294967295",
        "log.4294967296",
        "log.007",
        "log.",
        "pages.1",
        "control.new",
        "control.old",
        "lock",
        "photo.jpg",
        "log.1000",
        "pages.0.bak",
    ];
    let name = NAMES[rng.index(NAMES.len())];
    let bytes = match rng.below(3) {
        0 => Vec::new(),
        1 => rng.bytes(5000),
        _ => all.image(i).file(&all.any_file(i, rng)).to_vec(),
    };
    let what = format!("{name}: {} bytes that nobody wrote", bytes.len());
    disk.put(name, bytes);
    Some((what, Guarantee::Correct))
}

impl Cases for Malformed {
    const CAMPAIGN: &'static str = "malformed";

    fn memory_limit(&self) -> u64 {
        memory_limit(&self.subjects)
    }

    fn run(&self, case: u64) -> CaseResult {
        let mut rng = Rng::of_case(self.seed, case);
        let damage = self.damage(case, &mut rng);
        let mut verdict = judge(damage.subject, &damage.disk, damage.guarantee, &mut rng);
        // Damage can be indistinguishable from an unwritten log only in the newest part of the log of a killed database.
        let newest =
            damage.subject.shutdown == Shutdown::Killed && (damage.kind.starts_with("log") || damage.newest_log);
        if verdict.earlier && damage.guarantee == Guarantee::Correct && !newest {
            verdict.failure = Some("commits were lost".into());
        }
        let failure = verdict.failure.as_ref().map(|what| {
            let errors: Vec<_> = verdict.errors.iter().take(3).collect();
            format!(
                "{:?} database, {}: {}: {what}; told: {errors:?}",
                damage.subject.shutdown, damage.kind, damage.what
            )
        });
        CaseResult { class: format!("{}: {}", damage.kind, verdict.class()), failure }
    }

    fn describe(&self, case: u64) -> String {
        let damage = self.damage(case, &mut Rng::of_case(self.seed, case));
        format!("{:?} database, {}: {}", damage.subject.shutdown, damage.kind, damage.what)
    }
}

const _: () = assert!(LOG_HEADER == 4096);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scheduler::Scheduler;

    #[test]
    fn malformed_files_are_told_or_harmless() {
        let plan = CampaignPlan {
            budget: 3_000,
            seed: 20_260_501,
            case: None,
            mutant: None,
            scheduler: Scheduler::Threads,
            speculate: false,
            latches: None,
        };
        let report = run(&plan, &Progress::start("malformed", &plan, false));
        assert_eq!(report.wrong().take(5).collect::<Vec<_>>(), [""; 0]);
        assert_eq!(report.tried, plan.budget);
    }
}
