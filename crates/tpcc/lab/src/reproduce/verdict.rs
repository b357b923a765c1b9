//! Verdict on a claim, by one of two rules.
//!
//! A verdict *on a paper* needs the paper's number for the same quantity. It depends on this number, on the direction of the
//! claim and on the interval that was measured here, and on no target of this project:
//!
//! | claim with the paper's number | value without an effect | effect |
//! | --- | --- | --- |
//! | a gain, in times | 1 | distance of the value above 1 |
//! | a time, in times of another | 1 | distance of the value below 1 |
//! | a share that is saved | 0 | distance of the value above 0 |
//! | a cost, a remainder | | none: the claim is that it is small |
//!
//! *Holds* is the same direction and at least three quarters of the paper's effect. *Weaker* is the same direction with less
//! of the effect, or an interval that includes the value without an effect: then no difference is seen. *Contradicts* is the
//! opposite direction, with the whole interval. A cost holds up to four thirds of the paper's cost, and contradicts from
//! twice the paper's cost on, with the whole interval.
//!
//! A claim without the paper's number gets no verdict on a paper. It has a *bar*: the value without an effect if the paper
//! names a direction only, otherwise a limit of this project. The bar is *reached* or *missed*:
//!
//! | claim without the paper's number | reached by |
//! | --- | --- |
//! | a gain or a time: a direction | the whole interval |
//! | keeping up, a cost, an error | the median |
//! | a proved bound | the greatest value |
//!
//! *Not on this machine* means that the claim could not be measured.

use super::report::{ClaimVerdict, RelativeEffect, Spread};

/// Minimum share of the paper's effect with which a claim holds.
const MIN_EFFECT_SHARE: f64 = 0.75;
/// Factor of a claimed cost above which the claim is contradicted.
const MAX_COST_FACTOR: f64 = 2.0;

/// Condition of a claim on its value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Condition {
    /// The value is more than this number: the value without an effect, or a bar.
    MoreThan(f64),
    /// The value is less than this number: the value without an effect, or a bar.
    LessThan(f64),
    /// The value is at least this many times another value. At 1 nothing is lost.
    KeepsUp(f64),
    /// The value is at most a little more than this number of the paper.
    AsLittleAs(f64),
    /// The value is at most this number.
    AtMost(f64),
    /// The value is proved to be at most this number.
    Bound(f64),
}

/// Parts of a claim on which its verdict depends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct ClaimTerms {
    /// Unit of the measured value.
    pub(super) unit: &'static str,
    /// Value in the paper; `None` if the paper gives none.
    pub(super) paper: Option<f64>,
    /// Condition on the measured value.
    pub(super) condition: Condition,
}

/// A verdict and its reasons.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Judgement {
    pub(super) verdict: ClaimVerdict,
    pub(super) of_paper: Option<RelativeEffect>,
    /// Reason of the verdict: one sentence without its full stop.
    pub(super) why: String,
}

impl Judgement {
    /// Judges a measured value. `value` is `None` if it could not be measured.
    pub(super) fn of(terms: ClaimTerms, value: Option<Spread>) -> Judgement {
        let Some(value) = value else {
            return Judgement {
                verdict: ClaimVerdict::NotMeasured,
                of_paper: None,
                why: "it was not measured".to_owned(),
            };
        };
        match (terms.condition, terms.paper) {
            (Condition::MoreThan(no_effect), Some(paper)) => effect(no_effect, 1.0, paper, value),
            (Condition::LessThan(no_effect), Some(paper)) => effect(no_effect, -1.0, paper, value),
            (Condition::AsLittleAs(paper), _) => cost(paper, value),
            (Condition::MoreThan(bar), None) => {
                against_bar(value.low.min(value.mid) > bar, &format!("the whole interval above {bar}"), terms.unit)
            }
            (Condition::LessThan(bar), None) => {
                against_bar(value.high.max(value.mid) < bar, &format!("the whole interval below {bar}"), terms.unit)
            }
            (Condition::KeepsUp(bar), _) => against_bar(value.mid >= bar, &format!("at least {bar}"), terms.unit),
            (Condition::AtMost(bar), _) => against_bar(value.mid <= bar, &format!("at most {bar}"), terms.unit),
            (Condition::Bound(bar), _) => {
                against_bar(value.high <= bar, &format!("every value at most {bar}"), terms.unit)
            }
        }
    }
}

/// Judges an effect by the paper's: the distance of the value from `no_effect`, upwards if `sign` is 1.
fn effect(no_effect: f64, sign: f64, paper: f64, value: Spread) -> Judgement {
    let of = |value: f64| sign * (value - no_effect);
    let (a, b) = (of(value.low), of(value.high));
    let found = Spread { mid: of(value.mid), low: a.min(b), high: a.max(b) };
    let of_paper =
        RelativeEffect { mid: found.mid / of(paper), low: found.low / of(paper), high: found.high / of(paper) };
    let percent = 100.0 * of_paper.mid;
    let (verdict, why) = if found.high < 0.0 {
        (ClaimVerdict::Contradicts, "the effect is the opposite".to_owned())
    } else if found.low <= 0.0 {
        (ClaimVerdict::Weaker, format!("no difference is seen: {no_effect}, no effect, is within the interval"))
    } else if of_paper.mid >= MIN_EFFECT_SHARE {
        (ClaimVerdict::Holds, format!("the effect is {percent:.0}% of the paper's"))
    } else {
        (ClaimVerdict::Weaker, format!("the direction holds with {percent:.0}% of the paper's effect"))
    };
    Judgement { verdict, of_paper: Some(of_paper), why }
}

/// Judges a cost by the paper's.
fn cost(paper: f64, value: Spread) -> Judgement {
    let times = value.mid / paper;
    let (verdict, why) = if value.mid <= paper / MIN_EFFECT_SHARE {
        (ClaimVerdict::Holds, format!("it is {times:.2} times the paper's"))
    } else if value.low > MAX_COST_FACTOR * paper {
        (
            ClaimVerdict::Contradicts,
            format!("it is {times:.2} times the paper's, even at best more than {MAX_COST_FACTOR} times"),
        )
    } else {
        (ClaimVerdict::Weaker, format!("it is {times:.2} times the paper's"))
    };
    Judgement { verdict, of_paper: None, why }
}

/// Returns the judgement by a bar, without the paper. `bar` describes the bar.
fn against_bar(is_reached: bool, bar: &str, unit: &str) -> Judgement {
    let verdict = if is_reached { ClaimVerdict::Reached } else { ClaimVerdict::Missed };
    let why = format!("the bar, {bar} ({unit}), is {}; the paper gives no number", verdict.name());
    Judgement { verdict, of_paper: None, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn terms(unit: &'static str, paper: Option<f64>, condition: Condition) -> ClaimTerms {
        ClaimTerms { unit, paper, condition }
    }

    const GAIN: ClaimTerms = terms("times", Some(1.4), Condition::MoreThan(1.0));
    const TIME: ClaimTerms = terms("times", Some(0.4), Condition::LessThan(1.0));
    const SAVED: ClaimTerms = terms("share", Some(0.6), Condition::MoreThan(0.0));

    fn verdict(terms: ClaimTerms, low: f64, mid: f64, high: f64) -> ClaimVerdict {
        Judgement::of(terms, Some(Spread { mid, low, high })).verdict
    }

    #[test]
    fn a_gain_holds_from_three_quarters_of_the_papers_effect() {
        assert_eq!(verdict(GAIN, 1.2, 1.31, 1.4), ClaimVerdict::Holds);
        assert_eq!(verdict(GAIN, 1.2, 1.29, 1.4), ClaimVerdict::Weaker);
        assert_eq!(verdict(GAIN, 0.9, 1.9, 2.0), ClaimVerdict::Weaker, "no difference is seen");
        assert_eq!(verdict(GAIN, 0.8, 0.9, 1.0), ClaimVerdict::Weaker, "1 is within the interval");
        assert_eq!(verdict(GAIN, 0.8, 0.9, 0.99), ClaimVerdict::Contradicts);
        assert_eq!(Judgement::of(GAIN, None).verdict, ClaimVerdict::NotMeasured);
    }

    #[test]
    fn less_time_and_saved_shares_have_their_own_nothing() {
        assert_eq!(verdict(TIME, 0.5, 0.54, 0.6), ClaimVerdict::Holds);
        assert_eq!(verdict(TIME, 0.5, 0.56, 0.6), ClaimVerdict::Weaker);
        assert_eq!(verdict(TIME, 1.01, 1.1, 1.2), ClaimVerdict::Contradicts);
        assert_eq!(verdict(SAVED, 0.45, 0.45, 0.45), ClaimVerdict::Holds);
        assert_eq!(verdict(SAVED, 0.44, 0.44, 0.44), ClaimVerdict::Weaker);
        assert_eq!(verdict(SAVED, -0.1, -0.1, -0.1), ClaimVerdict::Contradicts);
        let judgement = Judgement::of(TIME, Some(Spread { mid: 0.7, low: 0.6, high: 0.8 }));
        let share = judgement.of_paper.unwrap();
        assert!((share.mid - 0.5).abs() < 1e-9 && share.low < share.mid && share.mid < share.high, "{share:?}");
    }

    #[test]
    fn without_the_papers_number_there_is_no_verdict_on_the_paper() {
        let gain = ClaimTerms { paper: None, ..GAIN };
        assert_eq!(verdict(gain, 1.1, 1.2, 1.3), ClaimVerdict::Reached);
        assert_eq!(verdict(gain, 0.9, 1.2, 1.3), ClaimVerdict::Missed, "no difference is seen");
        let time = ClaimTerms { paper: None, ..TIME };
        assert_eq!(verdict(time, 0.7, 0.8, 0.9), ClaimVerdict::Reached);
        assert_eq!(verdict(time, 0.7, 0.8, 1.0), ClaimVerdict::Missed);
    }

    #[test]
    fn a_large_share_is_a_claim_too_and_a_small_rest_another() {
        let heavy = terms("share", Some(0.35), Condition::MoreThan(0.0));
        assert_eq!(verdict(heavy, 0.02, 0.02, 0.02), ClaimVerdict::Weaker);
        assert_eq!(verdict(heavy, 0.3, 0.3, 0.3), ClaimVerdict::Holds);
        let little = terms("share", Some(0.07), Condition::AsLittleAs(0.07));
        assert_eq!(verdict(little, 0.6, 0.6, 0.6), ClaimVerdict::Contradicts);
    }

    #[test]
    fn costs_are_held_against_the_paper_or_their_limit() {
        let paper = terms("misses", Some(30.0), Condition::AsLittleAs(30.0));
        assert_eq!(verdict(paper, 39.0, 39.0, 39.0), ClaimVerdict::Holds);
        assert_eq!(verdict(paper, 41.0, 41.0, 41.0), ClaimVerdict::Weaker);
        assert_eq!(verdict(paper, 55.0, 70.0, 80.0), ClaimVerdict::Weaker, "twice is within the interval");
        assert_eq!(verdict(paper, 61.0, 70.0, 80.0), ClaimVerdict::Contradicts);
    }

    #[test]
    fn a_limit_is_reached_by_the_median_and_a_bound_by_every_value() {
        let limit = terms("ns", None, Condition::AtMost(10.0));
        assert_eq!(verdict(limit, 9.0, 10.0, 12.0), ClaimVerdict::Reached);
        assert_eq!(verdict(limit, 9.0, 10.1, 12.0), ClaimVerdict::Missed);
        let keeps = terms("times", None, Condition::KeepsUp(0.97));
        assert_eq!(verdict(keeps, 0.9, 0.97, 1.0), ClaimVerdict::Reached);
        assert_eq!(verdict(keeps, 0.9, 0.95, 0.98), ClaimVerdict::Missed);
        let bound = terms("share", None, Condition::Bound(1.0));
        assert_eq!(verdict(bound, 0.2, 0.5, 1.0), ClaimVerdict::Reached);
        assert_eq!(verdict(bound, 0.2, 0.5, 1.01), ClaimVerdict::Missed);
    }
}
