//! Results of an experiment: series of values, and claims with verdicts.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use tpcc_core::report::machine::Machine;
use tpcc_core::report::model::Provenance;

/// Output of `tpcc reproduce ID --json FILE`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(title = "tpcc reproduce --json"))]
pub struct Report {
    /// Identifier of the schema that this object follows: the `$id` of a file in `schema/`.
    pub schema: String,
    /// Id of the experiment, of the paper, or `all`.
    pub id: String,
    /// Title.
    pub title: String,
    /// Paper of the experiment.
    pub paper: String,
    /// Duration in seconds.
    pub elapsed_s: f64,
    /// Sources, build and command line of the program.
    pub provenance: Provenance,
    /// Machine of the experiment.
    pub machine: Machine,
    /// Settings, the build and the command.
    pub config: Map<String, Value>,
    /// Series of values.
    pub series: Vec<Series>,
    /// Claims with verdicts.
    pub claims: Vec<Claim>,
}

/// Values over an axis: a curve, a row of bars, a column of a table. All four lists have the same length.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Series {
    /// Name, which begins with the experiment's id.
    pub name: String,
    /// Label of the x axis.
    pub x_label: String,
    /// Positions on the x axis: numbers or names.
    pub x: Vec<XValue>,
    /// Label of the y axis, with its unit.
    pub y_label: String,
    /// Values; the median of several values; null if nothing could be measured.
    pub y: Vec<Option<f64>>,
    /// Least values, or lower ends of intervals.
    pub low: Vec<Option<f64>>,
    /// Greatest values, or upper ends of intervals.
    pub high: Vec<Option<f64>>,
}

/// A position on the x axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "X"))]
#[serde(untagged)]
pub enum XValue {
    /// A number.
    Number(f64),
    /// A name.
    Name(String),
}

impl From<f64> for XValue {
    fn from(number: f64) -> XValue {
        XValue::Number(number)
    }
}

impl From<u32> for XValue {
    fn from(number: u32) -> XValue {
        XValue::Number(number.into())
    }
}

impl From<&str> for XValue {
    fn from(name: &str) -> XValue {
        XValue::Name(name.to_owned())
    }
}

impl From<String> for XValue {
    fn from(name: String) -> XValue {
        XValue::Name(name)
    }
}

/// Verdict on a claim; the rule is in [`super::verdict`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub enum ClaimVerdict {
    /// Same direction as in the paper, and at least three quarters of the paper's effect.
    #[serde(rename = "holds")]
    Holds,
    /// Same direction with less of the effect, or no difference that can be distinguished from noise.
    #[serde(rename = "weaker")]
    Weaker,
    /// Direction opposite to the paper's.
    #[serde(rename = "contradicts")]
    Contradicts,
    /// The paper gives no number for the quantity; the value reaches the bar of this project, or has the paper's direction.
    #[serde(rename = "reached")]
    Reached,
    /// The paper gives no number for the quantity; the value misses the bar of this project, or the paper's direction.
    #[serde(rename = "missed")]
    Missed,
    /// The claim could not be measured.
    #[serde(rename = "not on this machine")]
    NotMeasured,
}

impl ClaimVerdict {
    /// All verdicts: those on papers, the best first, those on bars, and the absence of a measurement.
    pub const ALL: [ClaimVerdict; 6] = [
        ClaimVerdict::Holds,
        ClaimVerdict::Weaker,
        ClaimVerdict::Contradicts,
        ClaimVerdict::Reached,
        ClaimVerdict::Missed,
        ClaimVerdict::NotMeasured,
    ];

    /// Returns the name of the verdict, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ClaimVerdict::Holds => "holds",
            ClaimVerdict::Weaker => "weaker",
            ClaimVerdict::Contradicts => "contradicts",
            ClaimVerdict::Reached => "reached",
            ClaimVerdict::Missed => "missed",
            ClaimVerdict::NotMeasured => "not on this machine",
        }
    }
}

/// A claim of the paper or of this project, and its measured value.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct Claim {
    /// Name, the same in every report.
    pub name: String,
    /// Figure, table or section of the paper; null for a claim of this project, on which the paper says nothing.
    pub place: Option<String>,
    /// The claim as a sentence.
    pub says: Option<String>,
    /// Value in the paper; null if it gives none.
    pub paper_value: Option<f64>,
    /// Measured value; null if it could not be measured, with the reason in the note.
    pub value: Option<f64>,
    /// Least of several measurements, or lower end of the interval; the value itself if it is exact.
    pub low: Option<f64>,
    /// Greatest of several measurements, or upper end of the interval; the value itself if it is exact.
    pub high: Option<f64>,
    /// Unit of all values.
    pub unit: String,
    /// Verdict on the claim.
    pub verdict: ClaimVerdict,
    /// Measured effect relative to the effect in the paper: 1 is equal, below 0 is opposite. Null if one of them is unknown,
    /// and for costs.
    pub of_paper: Option<RelativeEffect>,
    /// Reason of the verdict, and method of the measurement.
    pub note: String,
}

impl Claim {
    /// Returns the ends of the interval; `None` for an exact value.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.low.zip(self.high).filter(|(low, high)| low < high)
    }
}

/// An effect relative to that of the paper.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[cfg_attr(test, schemars(rename = "OfPaper"))]
pub struct RelativeEffect {
    /// Effect of the value.
    pub mid: f64,
    /// Effect of the end of the interval with less effect.
    pub low: f64,
    /// Effect of the other end.
    pub high: f64,
}

/// A value from several measurements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// Median of the measurements.
    pub mid: f64,
    /// Smallest measurement, or lower end of an interval.
    pub low: f64,
    /// Greatest measurement, or upper end of an interval.
    pub high: f64,
}

impl Spread {
    /// Returns the median and range of some values; `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let mid = if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
        Some(Spread { mid, low, high })
    }

    /// Creates a spread of one exact value.
    pub fn exact(value: f64) -> Spread {
        Spread { mid: value, low: value, high: value }
    }
}

impl Series {
    /// Creates an empty series.
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

    /// Adds a position, with a value if it was measured.
    pub fn push(&mut self, x: impl Into<XValue>, y: Option<Spread>) {
        self.x.push(x.into());
        self.y.push(y.map(|y| y.mid));
        self.low.push(y.map(|y| y.low));
        self.high.push(y.map(|y| y.high));
    }

    /// Adds a position with an exact value.
    pub fn push_exact(&mut self, x: impl Into<XValue>, y: Option<f64>) {
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
