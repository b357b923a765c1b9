//! What an experiment gives: series of figures, and claims held against the paper.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use tpcc_core::report::machine::Machine;
use tpcc_core::report::model::Provenance;

/// The JSON object that `tpcc reproduce ID --json FILE` writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc reproduce --json"))]
pub struct Report {
    pub schema: String,
    /// What was run.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// The paper that the experiment is from.
    pub paper: String,
    /// Seconds that it took.
    pub elapsed_s: f64,
    /// What it was run with.
    pub provenance: Provenance,
    /// What it ran on.
    pub machine: Machine,
    /// Settings, the build and the command.
    pub config: Map<String, Value>,
    /// Figures.
    pub series: Vec<Series>,
    /// What is claimed.
    pub claims: Vec<Claim>,
}

/// Figures over something: a curve, a row of bars, a column of a table. All four lists have one length.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Series {
    /// What it shows; begins with the experiment's id.
    pub name: String,
    /// What x is.
    pub x_label: String,
    /// Numbers or names.
    pub x: Vec<X>,
    /// What y is, with its unit.
    pub y_label: String,
    /// Medians where there are several values; null where nothing could be measured.
    pub y: Vec<Option<f64>>,
    /// Least values.
    pub low: Vec<Option<f64>>,
    /// Greatest values.
    pub high: Vec<Option<f64>>,
}

/// A place on the x axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(untagged)]
pub enum X {
    /// A number.
    Number(f64),
    /// A name.
    Name(String),
}

impl From<f64> for X {
    fn from(number: f64) -> X {
        X::Number(number)
    }
}

impl From<u32> for X {
    fn from(number: u32) -> X {
        X::Number(number.into())
    }
}

impl From<&str> for X {
    fn from(name: &str) -> X {
        X::Name(name.to_owned())
    }
}

impl From<String> for X {
    fn from(name: String) -> X {
        X::Name(name)
    }
}

/// What was found of a claim of the paper; the rule is in [`super::verdict`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub enum ClaimVerdict {
    /// The same direction, and at least three quarters of the effect.
    #[serde(rename = "holds")]
    Holds,
    /// The same direction and less of it, or no difference that can be told from noise.
    #[serde(rename = "weaker")]
    Weaker,
    /// The opposite.
    #[serde(rename = "contradicts")]
    Contradicts,
    /// It could not be measured.
    #[serde(rename = "not on this machine")]
    NotHere,
}

impl ClaimVerdict {
    /// All of them, the best first.
    pub const ALL: [ClaimVerdict; 4] =
        [ClaimVerdict::Holds, ClaimVerdict::Weaker, ClaimVerdict::Contradicts, ClaimVerdict::NotHere];

    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            ClaimVerdict::Holds => "holds",
            ClaimVerdict::Weaker => "weaker",
            ClaimVerdict::Contradicts => "contradicts",
            ClaimVerdict::NotHere => "not on this machine",
        }
    }
}

/// Something that the paper says or that this project promises, and what was found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Claim {
    /// Its name, the same in every report.
    pub name: String,
    /// Figure, table or section of the paper; null where the paper says nothing and the claim is this project's.
    pub place: Option<String>,
    /// The claim as a sentence.
    pub says: Option<String>,
    /// What the paper found; null where it says nothing.
    pub paper_value: Option<f64>,
    /// What was found; null when it could not be measured, and then the note says why.
    pub value: Option<f64>,
    /// Least of several measurements, or lower end of the interval; null where the value is exact.
    pub low: Option<f64>,
    /// Greatest of several measurements, or upper end of the interval; null where the value is exact.
    pub high: Option<f64>,
    /// Unit of all of them.
    pub unit: String,
    /// What was found of the paper's claim.
    pub verdict: ClaimVerdict,
    /// The effect found, over the effect that the paper found: 1 is the same, below 0 the opposite. Null where either is not
    /// known, and for costs.
    pub of_paper: Option<OfPaper>,
    /// Why the verdict is what it is, and how it was measured.
    pub note: String,
}

/// An effect over that of the paper.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct OfPaper {
    /// Of the value.
    pub mid: f64,
    /// Of the end of the interval that is less of an effect.
    pub low: f64,
    /// Of the other end.
    pub high: f64,
}

/// A value from several measurements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// Median.
    pub mid: f64,
    /// Least.
    pub low: f64,
    /// Greatest.
    pub high: f64,
}

impl Spread {
    /// Of some values; none of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let mid = if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
        Some(Spread { mid, low, high })
    }

    /// Of one exact value.
    pub fn exact(value: f64) -> Spread {
        Spread { mid: value, low: value, high: value }
    }
}

impl Series {
    /// An empty series.
    pub fn new(name: impl Into<String>, x_label: &str, y_label: &str) -> Series {
        Series {
            name: name.into(),
            x_label: x_label.to_owned(),
            x: Vec::new(),
            y_label: y_label.to_owned(),
            y: Vec::new(),
            low: Vec::new(),
            high: Vec::new(),
        }
    }

    /// Adds a place, measured or not.
    pub fn push(&mut self, x: impl Into<X>, y: Option<Spread>) {
        self.x.push(x.into());
        self.y.push(y.map(|y| y.mid));
        self.low.push(y.map(|y| y.low));
        self.high.push(y.map(|y| y.high));
    }

    /// Adds a place whose value is exact.
    pub fn push_exact(&mut self, x: impl Into<X>, y: Option<f64>) {
        self.push(x, y.map(Spread::exact));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_have_medians() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { mid: 2.0, low: 1.0, high: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { mid: 2.5, low: 1.0, high: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_series_keeps_its_lists_alike() {
        let mut series = Series::new("steps-fig2 x", "threads", "misses");
        series.push(1_u32, Spread::of([1.0, 3.0]));
        series.push("two", None);
        let json = serde_json::to_value(&series).unwrap();
        assert_eq!(json["x"], serde_json::json!([1.0, "two"]));
        assert_eq!(json["y"], serde_json::json!([2.0, null]));
        assert_eq!(
            (json["low"].clone(), json["high"].clone()),
            (serde_json::json!([1.0, null]), serde_json::json!([3.0, null]))
        );
    }
}
