//! Page of experiments: first the claims, then each experiment with its figures.

use indexmap::IndexMap;
use maud::{Markup, html};

use super::EXECUTABLE_KEY;
use super::figures::figures;
use super::report::{Claim, ClaimVerdict, Report, Series};
use crate::page::figure::{AxisSpacing, Figure, PlotLine, Point, Source, XPosition};
use crate::page::html::{cell, command, facts, figures as figure_blocks, page, table};
use crate::page::scale::short;
use tpcc_core::report::NOTICE;

/// Outcome of an experiment on the page.
#[derive(Clone, Debug)]
pub enum ExperimentOutcome {
    /// The experiment was run.
    Done(Box<Report>),
    /// The experiment failed, with this error message.
    Failed(ExperimentInfo, String),
    /// The experiment was not run yet.
    NotRun(ExperimentInfo),
}

/// An experiment without a result.
#[derive(Clone, Debug)]
pub struct ExperimentInfo {
    /// Id of the experiment.
    pub id: String,
    /// Title of the experiment.
    pub title: String,
}

impl ExperimentOutcome {
    /// Returns the id of the experiment.
    pub fn id(&self) -> &str {
        match self {
            ExperimentOutcome::Done(report) => &report.id,
            ExperimentOutcome::Failed(of, _) | ExperimentOutcome::NotRun(of) => &of.id,
        }
    }
}

/// Returns the claims by paper. If several experiments report one claim, the least favourable verdict counts. Papers in one
/// report may use one name for two claims, which differ in their sentences.
pub fn claims(outcomes: &[ExperimentOutcome]) -> Vec<(&str, Vec<&Claim>)> {
    let favour = |claim: &Claim| match claim.verdict {
        ClaimVerdict::Contradicts | ClaimVerdict::Missed => 0,
        ClaimVerdict::Weaker => 1,
        ClaimVerdict::Holds | ClaimVerdict::Reached => 2,
        ClaimVerdict::NotMeasured => 3,
    };
    /// Claims of a paper, keyed by name and sentence.
    type PaperClaims<'a> = IndexMap<(&'a str, Option<&'a str>), &'a Claim>;
    let mut papers: Vec<(&str, PaperClaims<'_>)> = Vec::new();
    for outcome in outcomes {
        let ExperimentOutcome::Done(report) = outcome else { continue };
        if papers.last().is_none_or(|(paper, _)| *paper != report.paper) {
            papers.push((&report.paper, IndexMap::new()));
        }
        let Some((_, all)) = papers.last_mut() else { continue };
        for claim in &report.claims {
            let known = all.entry((&claim.name, claim.says.as_deref())).or_insert(claim);
            if favour(claim) < favour(known) {
                *known = claim;
            }
        }
    }
    papers.into_iter().map(|(paper, all)| (paper, all.into_values().collect())).collect()
}

/// Makes the page of experiments.
pub fn reproduce_page(outcomes: &[ExperimentOutcome]) -> String {
    let by_paper = claims(outcomes);
    let all: Vec<&Claim> = by_paper.iter().flat_map(|(_, claims)| claims).copied().collect();
    let done: Vec<&Report> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            ExperimentOutcome::Done(report) => Some(&**report),
            _ => None,
        })
        .collect();
    let absent = outcomes.len() - done.len();
    let body = html! {
        h1 { "What the papers found, and what was found here" }
        p.faint { (NOTICE) }
        (facts(&[
            ("claims", all.len().to_string()),
            ("experiments", if absent == 0 { done.len().to_string() } else { format!("{} of {}", done.len(), outcomes.len()) }),
        ]))
        (problems(outcomes))
        h2 id="claims" { "Claims" }
        (tally(&by_paper))
        (rule())
        @for (paper, claims) in by_paper.iter().filter(|(_, claims)| !claims.is_empty()) {
            h3 { (paper) }
            (claim_table(claims))
        }
        (figure_blocks(&by_paper.iter().filter_map(|(paper, claims)| against_paper(paper, claims)).collect::<Vec<_>>()))
        nav { h2 { "Experiments" } (contents(&done)) }
        @for report in &done { (experiment(report)) }
        h2 { "Machine" }
        (machines(&done))
    };
    page("Papers, reproduced", &body)
}

fn problems(outcomes: &[ExperimentOutcome]) -> Markup {
    let open: Vec<&str> =
        outcomes.iter().filter(|o| matches!(o, ExperimentOutcome::NotRun(_))).map(ExperimentOutcome::id).collect();
    html! {
        @for outcome in outcomes {
            @if let ExperimentOutcome::Failed(of, why) = outcome {
                p.warning { b { (of.id) } " (" (of.title) ") failed: " (why) }
            }
        }
        @if !open.is_empty() {
            p.warning { "Not run yet: " (open.join(", ")) ". The same command with --resume goes on." }
        }
    }
}

/// Returns the table of the number of claims by paper and verdict.
fn tally(by_paper: &[(&str, Vec<&Claim>)]) -> Markup {
    let rows = by_paper.iter().filter(|(_, claims)| !claims.is_empty()).map(|(paper, claims)| {
        let counts = verdict_counts(claims).map(|n| cell(n.to_string()));
        std::iter::once(cell(*paper)).chain(counts).collect()
    });
    let mut head = vec!["paper"];
    head.extend(ClaimVerdict::ALL.map(ClaimVerdict::name));
    table(&head, 1, rows)
}

/// Returns the number of claims with each verdict, in the order of [`ClaimVerdict::ALL`].
pub(super) fn verdict_counts(claims: &[&Claim]) -> [usize; ClaimVerdict::ALL.len()] {
    ClaimVerdict::ALL.map(|verdict| claims.iter().filter(|claim| claim.verdict == verdict).count())
}

/// Returns the explanation of the verdicts.
fn rule() -> Markup {
    html! {
        p {
            (verdict(ClaimVerdict::Holds)) " is the same direction and at least three quarters of the paper's effect. "
            (verdict(ClaimVerdict::Weaker)) " is the same direction and less of it, or no difference that can be told from noise. "
            (verdict(ClaimVerdict::Contradicts)) " is the opposite, with the whole interval, or more than twice a cost. "
            "These are verdicts on numbers of the papers. Where the paper gives no number for a quantity, "
            (verdict(ClaimVerdict::Reached)) " and " (verdict(ClaimVerdict::Missed))
            " say whether the whole interval has the paper's direction, or whether a bar of this project is kept. "
            (verdict(ClaimVerdict::NotMeasured)) " is what could not be measured. "
            "Intervals are the least and the greatest of interleaved rounds; "
            "of builds that are compared, the 95% interval of the ratio of sums; counts are exact."
        }
    }
}

fn verdict(verdict: ClaimVerdict) -> Markup {
    let (class, sign) = match verdict {
        ClaimVerdict::Holds => ("holds", "✓"),
        ClaimVerdict::Weaker => ("weaker", "≈"),
        ClaimVerdict::Contradicts => ("contradicts", "✗"),
        ClaimVerdict::Reached => ("reached", "✓"),
        ClaimVerdict::Missed => ("missed", "✗"),
        ClaimVerdict::NotMeasured => ("nothere", "–"),
    };
    html! { span.verdict.(class) { (sign) " " (verdict.name()) } }
}

fn claim_table(claims: &[&Claim]) -> Markup {
    let rows = claims.iter().map(|claim| {
        let number = |value: Option<f64>| value.map_or("–".to_owned(), |value| in_unit(value, &claim.unit));
        let interval =
            claim.interval().map(|(low, high)| format!(" ({} to {})", bare(low, &claim.unit), bare(high, &claim.unit)));
        vec![
            html! { @if let Some(says) = &claim.says { (says) " " } code.faint { (claim.name) } },
            cell(claim.place.as_deref().unwrap_or("beyond the paper")),
            cell(number(claim.paper_value)),
            cell(number(claim.value) + &interval.unwrap_or_default()),
            verdict(claim.verdict),
            cell(sentence(&claim.note)),
        ]
    });
    table(&["claim", "where", "the paper", "here", "verdict", "why"], 9, rows)
}

/// Formats a text as a sentence: with a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let begin: String = letters.next().map_or(String::new(), |first| first.to_uppercase().collect());
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    begin + letters.as_str() + end
}

/// Formats a number without its unit. A share is formatted in per cent.
fn bare(value: f64, unit: &str) -> String {
    if unit == "share" { short(100.0 * value) } else { short(value) }
}

fn in_unit(value: f64, unit: &str) -> String {
    match unit {
        "share" => format!("{}%", bare(value, unit)),
        _ => format!("{} {unit}", bare(value, unit)),
    }
}

/// Returns the figure of the effects of a paper's claims, relative to the effects in the paper, which are 1.
fn against_paper(paper: &str, claims: &[&Claim]) -> Option<Figure> {
    let with: Vec<_> = claims.iter().filter_map(|claim| Some((claim, claim.of_paper?))).collect();
    let at = |claim: &Claim| XPosition::Name(claim.says.clone().unwrap_or_else(|| claim.name.clone()));
    let here = with.iter().map(|(claim, share)| Point {
        x: at(claim),
        y: Some(share.mid),
        interval: Some((share.low, share.high)).filter(|(low, high)| low < high),
    });
    let papers = with.iter().map(|(claim, _)| Point::exact(at(claim), Some(1.0)));
    let authors = paper.split_once(',').map_or(paper, |(authors, _)| authors);
    (!with.is_empty()).then(|| Figure {
        title: format!("Effects here beside the paper's: {authors}"),
        x_label: "claim".to_owned(),
        y_label: "effect, the paper's = 1".to_owned(),
        lines: vec![
            PlotLine { name: "here".to_owned(), source: Source::Measured, points: here.collect() },
            PlotLine { name: "the paper".to_owned(), source: Source::Paper, points: papers.collect() },
        ],
        marks: vec![],
        x_spacing: AxisSpacing::Auto,
    })
}

fn contents(done: &[&Report]) -> Markup {
    html! {
        ul { @for report in done { li { a href=(format!("#{}", report.id)) { (report.id) } } } }
    }
}

fn experiment(report: &Report) -> Markup {
    // One report may have all experiments of a paper. The name of each series begins with the id of its experiment.
    let mut groups: IndexMap<&str, Vec<&Series>> = IndexMap::new();
    for series in &report.series {
        let id = series.name.split(' ').next().unwrap_or(&report.id);
        groups.entry(id).or_default().push(series);
    }
    let all: Vec<Figure> = groups.iter().flat_map(|(id, own)| figures(id, own.iter().copied())).collect();
    let quick = if report.config.get("quick") == Some(&true.into()) { ", quick" } else { "" };
    let own = report
        .config
        .iter()
        .filter(|(key, _)| !["quick", "seed", "build", "command", EXECUTABLE_KEY].contains(&key.as_str()));
    let own: Vec<_> = own.collect();
    html! {
        h2 id=(report.id) { (sentence(&report.title).trim_end_matches('.')) }
        p.faint { code { (report.id) } ", " (report.paper) }
        (figure_blocks(&all))
        @if all.is_empty() && report.claims.is_empty() { p.faint { "Nothing could be measured." } }
        details {
            summary { "How to repeat it" }
            pre { "tpcc reproduce " (report.id) @if !quick.is_empty() { " --quick" } }
            p {
                (format!("{:.0}", report.elapsed_s)) " s" (quick) "; built from "
                (report.provenance.commit.as_deref().unwrap_or("sources outside git"))
                @if report.provenance.dirty == Some(true) { ", with changes" }
                "; seed " (report.config.get("seed").map_or("not known".to_owned(), ToString::to_string))
                "; written by " code { (command(&report.provenance.command)) } "; data: the files of " code { (report.id) "/" }
                " beside this page, if it was made with --out."
            }
            @for (key, value) in &own {
                p { b { (key.replace('_', " ")) } ": " code { (value.as_str().map_or_else(|| value.to_string(), str::to_owned)) } }
            }
        }
    }
}

fn machines(done: &[&Report]) -> Markup {
    let mut lines: IndexMap<String, Vec<&str>> = IndexMap::new();
    let mut steal: Option<(f64, &str)> = None;
    for report in done {
        let machine = &report.machine;
        let line = format!(
            "{} x {}, {}, Linux {}",
            machine.cores.map_or("?".to_owned(), |n| n.to_string()),
            machine.cpu.as_deref().unwrap_or("unknown processor"),
            machine.memory_bytes.map_or("memory not known".to_owned(), |b| format!("{} GiB", b.div_ceil(1 << 30))),
            machine.kernel.as_deref().unwrap_or("not known"),
        );
        lines.entry(line).or_default().push(&report.id);
        if let Some(share) = machine.steal
            && steal.is_none_or(|(most, _)| share > most)
        {
            steal = Some((share, &report.id));
        }
    }
    let several = lines.len() > 1;
    html! {
        @for (line, ids) in &lines { p { (line) @if several { ": " (ids.join(", ")) } } }
        @match steal {
            Some((share, id)) => p { "The hypervisor gave at most " (short(100.0 * share)) "% of the processors to others, during " (id) "." },
            None => p { "The system does not say how much of the processors others got." },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::number;
    use crate::reproduce::claims::{LOOKUP, PAYMENT_I1};
    use crate::reproduce::report::{RelativeEffect, Series, Spread, XValue};

    fn done(id: &str, claims: Vec<Claim>) -> ExperimentOutcome {
        let mut series = Series::new(format!("{id} a"), "threads", "misses");
        series.push(1_u32, Spread::of([1.0, 2.0, 3.0]));
        series.push(2_u32, None);
        let report = super::super::tests::report(id, vec![series], claims);
        ExperimentOutcome::Done(Box::new(report))
    }

    #[test]
    fn the_least_favourable_verdict_stands() {
        let of = |mid: f64| LOOKUP.measured(Some(Spread::exact(mid)), "groups of 16");
        let all = [done("a-1", vec![LOOKUP.missing("why")]), done("a-2", vec![of(2.0)]), done("a-3", vec![of(0.5)])];
        let found = claims(&all);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1[0].verdict, ClaimVerdict::Missed);
        assert_eq!(
            claims(&all[..2])[0].1[0].verdict,
            ClaimVerdict::Reached,
            "what was measured stands before what was not"
        );
    }

    #[test]
    fn the_page_says_what_is_there_and_what_is_not() {
        let absent = |id: &str| ExperimentInfo { id: id.into(), title: "what".into() };
        let claim = PAYMENT_I1.measured(Some(Spread { mid: 0.45, low: 0.4, high: 0.5 }), "10 warehouses");
        let all = [
            done("a-1", vec![claim]),
            ExperimentOutcome::Failed(absent("a-2"), "no <memory>".into()),
            ExperimentOutcome::NotRun(absent("a-3")),
        ];
        let page = reproduce_page(&all);
        for text in [
            "a-2",
            "no &lt;memory&gt;",
            "Not run yet: a-3",
            "≈ weaker",
            "✓ holds",
            "45% (40 to 50)",
            "60%",
            "1 of 3",
            "Figure 10",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert_eq!(page.matches("<svg").count(), 2, "the experiment's, and the effects beside the paper's");
        assert!(page.contains("a,1,2,1,3"), "the data behind the figure");
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..proptest::prelude::ProptestConfig::with_cases(100)
        })]

        /// Lists of unequal length, and numbers of any size.
        #[test]
        fn any_experiment_has_a_page(
            x in proptest::collection::vec(number(), 0..30),
            y in proptest::collection::vec(proptest::option::of(number()), 0..30),
            low in proptest::collection::vec(proptest::option::of(number()), 0..30),
            of_paper in number(),
            names in proptest::prelude::any::<bool>(),
        ) {
            let mut claim = PAYMENT_I1.measured(Some(Spread { mid: 0.45, low: 0.4, high: 0.5 }), "10 warehouses");
            claim.value = Some(of_paper);
            claim.of_paper = Some(RelativeEffect { mid: of_paper, low: -of_paper, high: of_paper });
            let mut series = Series::new("a-1 a", "threads", "misses");
            let x = x.into_iter().map(|x| if names { XValue::Name(format!("n {x}")) } else { XValue::Number(x) });
            series.x = x.collect();
            (series.high, series.low, series.y) = (y.clone(), low, y);
            let report = super::super::tests::report("a-1", vec![series], vec![claim]);
            let page = reproduce_page(&[ExperimentOutcome::Done(Box::new(report))]);
            proptest::prop_assert!(page.ends_with("</html>"));
        }
    }
}
