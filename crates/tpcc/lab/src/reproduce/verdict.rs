//! Verdict on a claim of a paper, by one rule.
//!
//! A verdict depends on the claim: its value in the paper, its direction, and the interval that was measured here. Targets
//! of this project have no influence. The condition of a claim on its value ([`Condition`]) is stated with it:
//!
//! | claim | value without an effect | effect |
//! | --- | --- | --- |
//! | a gain, in times | 1 | distance of the value above 1 |
//! | a time, in times of another | 1 | distance of the value below 1 |
//! | a share that is saved | 0 | distance of the value above 0 |
//! | keeping up, in times of another; a gain in the paper is judged as a gain | | none: the claim is that nothing is lost |
//! | a cost, an error, a remainder | | none: the claim is that it is small |
//! | a proved bound | | none: the claim is that no value is above it |
//!
//! *Holds* is the same direction and at least three quarters of the paper's effect. *Weaker* is the same direction with less
//! of the effect, or an interval that includes the value without an effect: then no difference is seen. *Contradicts* is the
//! opposite direction, with the whole interval. A cost holds up to four thirds of the paper's cost, and contradicts from
//! twice the paper's cost on, with the whole interval. A value above a proved bound contradicts. *Not on this machine* means
//! that the claim could not be measured.
//!
//! If the paper gives no number, a gain, a time or a saving is judged by its direction alone. Keeping up and a cost have no
//! direction, so that the claim itself has a limit: it holds within the limit. Keeping up is contradicted by a loss of more
//! than a quarter, and a cost by more than twice the limit.

use super::report::{ClaimVerdict, RelativeEffect, Spread};

/// Minimum share of the paper's effect with which a claim holds.
const MIN_EFFECT_SHARE: f64 = 0.75;
/// Factor of a claimed cost above which the claim is contradicted.
const MAX_COST_FACTOR: f64 = 2.0;

/// Condition of a claim on its value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Condition {
    /// The value is more than this number, the value without an effect.
    MoreThan(f64),
    /// The value is less than this number, the value without an effect.
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
            (Condition::MoreThan(no_effect), paper) => effect(no_effect, 1.0, paper, value),
            (Condition::LessThan(no_effect), paper) => effect(no_effect, -1.0, paper, value),
            (Condition::KeepsUp(least), _) => keeps_up(least, value),
            (Condition::AsLittleAs(paper), _) => cost(paper, paper / MIN_EFFECT_SHARE, "the paper's", value),
            (Condition::AtMost(limit), _) => {
                cost(limit, limit, &format!("what is claimed at most, {limit} {}", terms.unit), value)
            }
            (Condition::Bound(bound), _) => bounded(bound, value),
        }
    }
}

/// Judges an effect: the distance of the value from `no_effect`, upwards if `sign` is 1.
fn effect(no_effect: f64, sign: f64, paper: Option<f64>, value: Spread) -> Judgement {
    let of = |value: f64| sign * (value - no_effect);
    let (a, b) = (of(value.low), of(value.high));
    let found = Spread { mid: of(value.mid), low: a.min(b), high: a.max(b) };
    let of_paper = paper.map(of).filter(|paper| *paper > 0.0).map(|paper| RelativeEffect {
        mid: found.mid / paper,
        low: found.low / paper,
        high: found.high / paper,
    });
    let (verdict, why) = if found.high < 0.0 {
        (ClaimVerdict::Contradicts, "the effect is the opposite".to_owned())
    } else if found.low <= 0.0 {
        (ClaimVerdict::Weaker, format!("no difference is seen: {no_effect}, no effect, is within the interval"))
    } else {
        match of_paper {
            None => (ClaimVerdict::Holds, "the direction holds; the paper gives no number for it".to_owned()),
            Some(share) if share.mid >= MIN_EFFECT_SHARE => {
                (ClaimVerdict::Holds, format!("the effect is {:.0}% of the paper's", 100.0 * share.mid))
            }
            Some(share) => (
                ClaimVerdict::Weaker,
                format!("the direction holds with {:.0}% of the paper's effect", 100.0 * share.mid),
            ),
        }
    };
    Judgement { verdict, of_paper, why }
}

fn keeps_up(least: f64, value: Spread) -> Judgement {
    let lost = 100.0 * (1.0 - value.mid);
    let allowed = 100.0 * (1.0 - least);
    let (verdict, why) = if value.mid >= least {
        (ClaimVerdict::Holds, if lost > 0.0 { format!("it keeps up to {lost:.1}%") } else { "it keeps up".to_owned() })
    } else if value.high >= least {
        (ClaimVerdict::Weaker, format!("it loses {lost:.0}%, but keeping up is within the interval"))
    } else if value.mid >= MIN_EFFECT_SHARE {
        (ClaimVerdict::Weaker, format!("it loses {lost:.0}%, where {allowed:.0}% would be keeping up"))
    } else {
        (ClaimVerdict::Contradicts, format!("it does not keep up: it loses {lost:.0}%"))
    };
    Judgement { verdict, of_paper: None, why }
}

/// Judges a cost by `claimed`; `whose` describes the origin of this cost. The claim holds up to `enough`.
fn cost(claimed: f64, enough: f64, whose: &str, value: Spread) -> Judgement {
    let times = value.mid / claimed;
    let (verdict, why) = if value.mid <= enough {
        (ClaimVerdict::Holds, format!("it is {times:.2} times {whose}"))
    } else if value.low > MAX_COST_FACTOR * claimed {
        (
            ClaimVerdict::Contradicts,
            format!("it is {times:.2} times {whose}, even at best more than {MAX_COST_FACTOR} times"),
        )
    } else {
        (ClaimVerdict::Weaker, format!("it is {times:.2} times {whose}"))
    };
    Judgement { verdict, of_paper: None, why }
}

/// Judges a value that is proved to be at most `bound`, by its largest measurement.
fn bounded(bound: f64, value: Spread) -> Judgement {
    let (verdict, why) = match value.high <= bound {
        true => (ClaimVerdict::Holds, format!("nothing is above {:.2} times the bound", value.high / bound)),
        false => (ClaimVerdict::Contradicts, format!("{:.2} times the bound was seen", value.high / bound)),
    };
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
    fn without_a_number_the_direction_is_all() {
        assert_eq!(verdict(ClaimTerms { paper: None, ..GAIN }, 1.1, 1.2, 1.3), ClaimVerdict::Holds);
        assert_eq!(verdict(ClaimTerms { paper: None, ..GAIN }, 0.7, 0.8, 0.9), ClaimVerdict::Contradicts);
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
        let limit = terms("ns", None, Condition::AtMost(10.0));
        assert_eq!(verdict(limit, 10.0, 10.0, 10.0), ClaimVerdict::Holds);
        assert_eq!(verdict(limit, 10.1, 10.1, 10.1), ClaimVerdict::Weaker);
        assert_eq!(verdict(limit, -0.1, -0.1, -0.1), ClaimVerdict::Holds, "a cost below nothing is none");
        let times = terms("times", None, Condition::AtMost(1.3));
        assert_eq!(verdict(times, 0.8, 0.9, 1.1), ClaimVerdict::Holds, "1 within the interval is no cost at all");
        assert_eq!(verdict(times, 1.2, 1.4, 1.5), ClaimVerdict::Weaker);
    }

    #[test]
    fn keeping_up_is_losing_little() {
        let keeps = terms("times", None, Condition::KeepsUp(0.97));
        assert_eq!(verdict(keeps, 0.9, 0.97, 1.0), ClaimVerdict::Holds);
        assert_eq!(verdict(keeps, 0.9, 0.95, 0.96), ClaimVerdict::Weaker);
        assert_eq!(verdict(keeps, 0.5, 0.6, 0.98), ClaimVerdict::Weaker);
        assert_eq!(verdict(keeps, 0.5, 0.6, 0.7), ClaimVerdict::Contradicts);
    }
}
