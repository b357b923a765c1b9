//! `tpcc compare`: compares two saved runs, two sets of flags whose runs alternate, or a grid of flags.

use clap::Parser;

use super::Outcome;
use crate::cli::error::usage_error;
use crate::cli::flags::compare::CompareFlags;
use crate::cli::flags::{Cli, Command};
use crate::cli::resolve;
use tpcc_core::report::json::{JsonOut, conclude};
use tpcc_core::report::out::OutFile;
use tpcc_core::workload::error::Error;
use tpcc_core::workload::settings::EngineKind;
use tpcc_lab::compare;
use tpcc_lab::compare::rounds::RunSpec;
use tpcc_lab::compare::sweep::{SweepAxis, combinations};

/// Default number of rounds of two sets of flags.
const ROUNDS: usize = 7;
/// Default number of rounds of a grid.
const SWEEP_ROUNDS: usize = 3;
/// Maximum number of combinations of a grid.
const MAX_CELLS: usize = 1_000;

pub(crate) fn run(flags: &CompareFlags) -> Result<Outcome, Error> {
    let data = flags.data.as_deref();
    match (&flags.base, &flags.new, flags.run.as_slice(), flags.sweep.as_slice()) {
        (Some(base), Some(new), [], []) => {
            let given = [
                ("--rounds", flags.rounds.is_some()),
                ("--data", data.is_some()),
                ("--csv", flags.csv.is_some()),
                ("--report", flags.report.is_some()),
            ];
            refuse(&given, "saved results")?;
            let json = JsonOut::open(flags.output.json.as_deref())?;
            let found = compare::files(base, new, &flags.may_differ)?;
            conclude(json, &found, compare::text(&found), false)?;
        }
        (None, None, [base, new], []) => {
            refuse(&[("--may-differ", !flags.may_differ.is_empty()), ("--csv", flags.csv.is_some())], "two --run")?;
            let (base, new) = (parse_run(base, &[])?, parse_run(new, &[])?);
            let json = JsonOut::open(flags.output.json.as_deref())?;
            let page = OutFile::open_if(flags.report.as_deref(), "--report")?;
            let found = compare::rounds::compare(data, base, new, flags.rounds.unwrap_or(ROUNDS))?;
            let written = write(&mut [(page, &|| compare::page::of_pair(&found))]);
            conclude(json, &found, compare::text(&found) + &written.0, false)?;
            written.1?;
        }
        (None, None, base @ ([] | [_]), [_, ..]) => {
            refuse(&[("--may-differ", !flags.may_differ.is_empty())], "--sweep")?;
            let base = base.first().cloned().unwrap_or_default();
            let axes = flags.sweep.iter().map(|text| axis(text)).collect::<Result<Vec<_>, _>>()?;
            let runs = grid(&base, &axes)?;
            let json = JsonOut::open(flags.output.json.as_deref())?;
            let csv = OutFile::open_if(flags.csv.as_deref(), "--csv")?;
            let page = OutFile::open_if(flags.report.as_deref(), "--report")?;
            let found = compare::sweep::sweep(data, base, axes, &runs, flags.rounds.unwrap_or(SWEEP_ROUNDS))?;
            let written = write(&mut [(csv, &|| found.csv()), (page, &|| compare::page::of_sweep(&found))]);
            conclude(json, &found, compare::sweep_text(&found) + &written.0, false)?;
            written.1?;
        }
        _ => {
            return Err(Error::usage("compare: what with what?").help(
                "two files that 'tpcc run --json' wrote, --run FLAGS twice, or --run FLAGS once with --sweep FLAG=A,B,C",
            ));
        }
    }
    Ok(Outcome::Success)
}

/// Output file, if requested, and the function that makes its content.
type Content<'a> = (Option<OutFile>, &'a dyn Fn() -> String);

/// Writes all open files, even if one of them fails. Returns the lines of the summary that name the written files, and the
/// first error.
fn write(all: &mut [Content<'_>]) -> (String, Result<(), Error>) {
    let (mut lines, mut result) = (String::new(), Ok(()));
    for (file, content) in all {
        let Some(file) = file.take() else { continue };
        match file.write(content().as_bytes()) {
            Ok(path) => lines += &format!("written   {}\n", path.display()),
            Err(error) => result = result.and(Err(error)),
        }
    }
    (lines, result)
}

/// Refuses the first flag that was given, because it has no effect in combination with `with`.
fn refuse(given: &[(&str, bool)], with: &str) -> Result<(), Error> {
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => {
            Err(Error::usage(format!("{flag}: means nothing with {with}")).help("'tpcc compare --help' says with what"))
        }
        None => Ok(()),
    }
}

/// Parses an axis of a grid, for example "team-size=1,4,16".
fn axis(text: &str) -> Result<SweepAxis, Error> {
    let help = "a flag of 'tpcc run' and its values: --sweep team-size=1,4,16";
    let wrong = |why: &str| Err(Error::usage(format!("--sweep {text}: {why}")).help(help));
    let Some((flag, values)) = text.split_once('=') else { return wrong("has no values") };
    let flag = flag.trim_start_matches('-').to_owned();
    let values: Vec<String> = values.split(',').map(str::to_owned).collect();
    if flag.is_empty() || values.iter().any(|value| value.is_empty() || value.contains(char::is_whitespace)) {
        return wrong("an empty name or value, or one with a space");
    }
    match values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)) {
        Some((_, twice)) => wrong(&format!("{twice} twice")),
        None => Ok(SweepAxis { flag, values }),
    }
}

/// Returns the runs of a grid, after checking the flags of each.
fn grid(base: &str, axes: &[SweepAxis]) -> Result<Vec<RunSpec>, Error> {
    let cells = axes.iter().fold(1_usize, |all, axis| all.saturating_mul(axis.values.len()));
    if cells > MAX_CELLS {
        return Err(
            Error::usage(format!("--sweep: {cells} combinations, at most {MAX_CELLS}")).help("sweep fewer values")
        );
    }
    let runs = combinations(axes).into_iter().map(|values| {
        let more: Vec<String> =
            axes.iter().zip(values).flat_map(|(axis, value)| [format!("--{}", axis.flag), value]).collect();
        parse_run(base, &more)
    });
    runs.collect()
}

/// Parses `line` and `more` as flags of `tpcc run`, so that all errors are found before the first run.
fn parse_run(line: &str, more: &[String]) -> Result<RunSpec, Error> {
    let args: Vec<String> = line.split_whitespace().map(str::to_owned).chain(more.iter().cloned()).collect();
    let name = args.join(" ");
    let words = ["tpcc", "run"].into_iter().map(str::to_owned).chain(args.iter().cloned());
    let flags = match Cli::try_parse_from(words) {
        Ok(Cli { command: Command::Run(flags) }) => flags,
        Ok(_) => return Err(Error::usage(format!("--run '{name}': not flags of 'tpcc run'"))),
        Err(error) if error.use_stderr() => return Err(usage_error(&error, "run")),
        Err(_) => {
            return Err(Error::usage(format!("--run '{name}': asks for help")).help("'tpcc run --help' gives it"));
        }
    };
    // Every run would overwrite the output of the run before.
    let ours = [
        ("--json", flags.output.json.is_some()),
        ("--report", flags.files.report.is_some()),
        ("--csv", flags.files.csv.is_some()),
        ("--hdr", flags.files.hdr.is_some()),
        ("--delivery-results", flags.pacing.delivery_results.is_some()),
        ("--ack-stdout", flags.ack_stdout),
    ];
    refuse(&ours, "--run, whose figures 'tpcc compare' collects")?;
    let has_own = flags.directory.data.is_some() || flags.engine.engine.kind() != EngineKind::Storage;
    let warehouses = (!has_own).then(|| flags.loaded.warehouses.unwrap_or(1));
    let is_seeded = args.iter().any(|word| word == "--seed" || word.starts_with("--seed="));
    let config = resolve::run(flags)?;
    let seconds = config.length.duration.map(|duration| (duration + config.length.warmup).as_secs_f64());
    Ok(RunSpec { name, args, warehouses, is_seeded, seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_held_against_the_command_line_before_anything_runs() {
        let run = parse_run("--workers 1  --duration 3 --seed 4", &["--mix".to_owned(), "payment".to_owned()]).unwrap();
        assert_eq!(run.args.len(), 8);
        assert_eq!((run.warehouses, run.is_seeded, run.seconds), (Some(1), true, Some(5.0)));
        assert_eq!(parse_run("--data x --warehouses 3", &[]).unwrap().warehouses, None);
        assert_eq!(parse_run("--warehouses 3 --transactions 5", &[]).unwrap().seconds, None);
        for (line, said) in [
            ("--prefech on", "--prefech: no such flag"),
            ("--json x", "--json: means nothing with --run"),
            ("--report x", "--report: means nothing with --run"),
            ("--csv x", "--csv: means nothing with --run"),
            ("--hdr x", "--hdr: means nothing with --run"),
            ("--pacing spec --delivery-results x", "--delivery-results: means nothing with --run"),
            ("--workers 0", "--workers 0: at least 1"),
            ("--team-size 4", "--team-size: means nothing with --scheduler threads"),
            ("--help", "asks for help"),
        ] {
            let error = parse_run(line, &[]).unwrap_err();
            assert!(error.status() == 2 && error.to_string().contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn grids_are_of_flags_and_values() {
        let axes = [axis("--workers=1,2").unwrap(), axis("mix=payment,standard").unwrap()];
        let runs = grid("--duration 2", &axes).unwrap();
        assert_eq!(runs.len(), 4);
        assert_eq!(runs[1].name, "--duration 2 --workers 1 --mix standard");
        for (text, said) in [
            ("workers", "has no values"),
            ("workers=", "an empty name or value"),
            ("=1", "an empty name or value"),
            ("workers=1,1", "1 twice"),
        ] {
            assert!(axis(text).unwrap_err().to_string().contains(said), "{text}");
        }
        let many = SweepAxis { flag: "seed".to_owned(), values: (0..40).map(|n| n.to_string()).collect() };
        assert!(grid("", &[many.clone(), many]).unwrap_err().to_string().contains("1600 combinations, at most 1000"));
    }
}
