//! Axes of figures: range, linear or logarithmic scale, and ticks. Axes are finite for any values. Values too large to draw
//! are placed at an end of the axis, and values too close to distinguish are drawn as one.

use super::figure::AxisSpacing;

/// Range and scale of an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Axis {
    /// Start and end of the axis: values, or their decimal logarithms on a logarithmic scale.
    from: f64,
    to: f64,
    /// True if the scale is logarithmic.
    pub(super) log: bool,
}

/// Minimum ratio of the largest to the smallest value on a logarithmic axis.
const WIDE: f64 = 50.0;
/// Maximum value with its own position. Sums and differences of two such values are finite.
const LARGEST: f64 = 1e300;
/// Minimum length of an axis. Fractions of this length are normal floating-point numbers.
const LEAST_LENGTH: f64 = 1e-290;
/// Minimum length of an axis relative to its ends. On a shorter axis, rounding errors would determine positions.
const LEAST_PART: f64 = 1e-14;
/// Limits of positions relative to the axis. A value outside of the axis is at most one length of the axis away.
const OUTSIDE: (f64, f64) = (-1.0, 2.0);
/// Maximum number of ticks of an axis.
const MOST_TICKS: f64 = 64.0;

impl Axis {
    /// Creates an axis for these values. The axis is logarithmic if the values span a factor of [`WIDE`]; otherwise it
    /// begins at 0 unless all values are far from 0.
    pub(super) fn of(values: impl Iterator<Item = f64>, zero: Zero) -> Axis {
        Axis::with_spacing(values, zero, AxisSpacing::Auto)
    }

    /// Like [`Axis::of`], but logarithmic only if `spacing` allows it.
    pub(super) fn with_spacing(values: impl Iterator<Item = f64>, zero: Zero, spacing: AxisSpacing) -> Axis {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()).map(drawable) {
            (least, most) = (least.min(value), most.max(value));
        }
        if least > most {
            return Axis { from: 0.0, to: 1.0, log: false };
        }
        if spacing == AxisSpacing::Auto && zero != Zero::Always && least > 0.0 && least <= most / WIDE {
            let (from, to) = (least.log10(), most.log10());
            let room = 0.04 * (to - from);
            return Axis { from: from - room, to: to + room, log: true };
        }
        let far = least > 0.0 && least > 0.6 * most;
        let (mut from, mut to) = match zero {
            Zero::Never => (least, most),
            Zero::IfNear if far => (least, most),
            _ => (least.min(0.0), most.max(0.0)),
        };
        if to - from < LEAST_LENGTH.max(LEAST_PART * from.abs().max(to.abs())) {
            (from, to) = (from - 0.5 * from.abs().max(1.0), to + 0.5 * to.abs().max(1.0));
        }
        let room = 0.05 * (to - from);
        Axis {
            from: if from == 0.0 { 0.0 } else { from - room },
            to: if to == 0.0 { 0.0 } else { to + room },
            log: false,
        }
    }

    /// Returns the position of a value, relative to the axis: 0 at its start, 1 at its end. Clamped to the range from -1 to
    /// 2.
    pub(super) fn place(&self, value: f64) -> f64 {
        let at = match self.log {
            true if value > 0.0 => drawable(value).log10(),
            true => f64::NEG_INFINITY,
            false => drawable(value),
        };
        let place = (at - self.from) / (self.to - self.from);
        if place.is_nan() { 0.0 } else { place.clamp(OUTSIDE.0, OUTSIDE.1) }
    }

    /// Returns round values along the axis; `about` is their approximate number.
    pub(super) fn ticks(&self, about: usize) -> Vec<f64> {
        if self.log {
            return self.powers(about);
        }
        let rough = (self.to - self.from) / about.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * power);
        let (first, last) = ((self.from / step).ceil(), (self.to / step).floor());
        let more = (last - first).clamp(-1.0, MOST_TICKS) as i64;
        (0..=more).map(|n| (first + n as f64) * step).collect()
    }

    fn powers(&self, about: usize) -> Vec<f64> {
        let within: &[f64] = match self.to - self.from {
            decades if decades <= 1.7 => &[1.0, 2.0, 5.0],
            decades if decades <= 2.5 => &[1.0, 3.0],
            _ => &[1.0],
        };
        // Exponents from -324 to 301, the range of drawable numbers.
        let (first, last) = (self.from.floor() as i32, self.to.ceil() as i32);
        let every = ((last - first) as usize / about.max(1)).max(1);
        let powers = (first..=last)
            .step_by(every)
            .flat_map(|power| within.iter().map(move |n| n * 10f64.powf(f64::from(power))));
        powers.filter(|tick| *tick > 0.0 && (self.from..=self.to).contains(&tick.log10())).collect()
    }
}

/// Clamps a value to the drawable range; NaN remains.
fn drawable(value: f64) -> f64 {
    value.clamp(-LARGEST, LARGEST)
}

/// Condition for the inclusion of 0 in an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Zero {
    /// Always, because the length of a bar shows its value.
    Always,
    /// If values are near 0.
    IfNear,
    /// Only if the values include 0.
    Never,
}

/// Formats a number beside an axis or a bar: three significant digits, at most a dozen characters.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "not finite".to_owned();
    }
    let trimmed = |text: String| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1e12 => format!("{value:.1e}"),
        v if v >= 1e9 => trimmed(format!("{:.2}", value / 1e9)) + "G",
        v if v >= 1e6 => trimmed(format!("{:.2}", value / 1e6)) + "M",
        v if v >= 1e4 => trimmed(format!("{:.1}", value / 1e3)) + "k",
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => trimmed(format!("{value:.1}")),
        v if v >= 0.1 => trimmed(format!("{value:.2}")),
        v if v >= 1e-3 => trimmed(format!("{value:.4}")),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_by_powers_where_it_must_be() {
        assert!(Axis::of([1.0, 100.0].into_iter(), Zero::IfNear).log);
        assert!(!Axis::of([1.0, 40.0].into_iter(), Zero::IfNear).log);
        assert!(!Axis::of([0.0, 100.0].into_iter(), Zero::IfNear).log, "0 has no power");
        assert!(!Axis::of([1.0, 100.0].into_iter(), Zero::Always).log, "a bar by powers has no length");
        assert!(
            !Axis::with_spacing([1.0, 100.0].into_iter(), Zero::Never, AxisSpacing::Linear).log,
            "a second is a second"
        );
    }

    #[test]
    fn zero_is_on_the_axis_where_values_come_near_it() {
        assert_eq!(Axis::of([1.0, 10.0].into_iter(), Zero::IfNear).place(0.0), 0.0);
        assert!(Axis::of([0.9, 1.1].into_iter(), Zero::IfNear).place(0.0) < 0.0);
        assert_eq!(Axis::of([0.9, 1.1].into_iter(), Zero::Always).place(0.0), 0.0);
        for values in [vec![], vec![1.0], vec![0.0], vec![-3.0, -1.0]] {
            let scale = Axis::of(values.iter().copied(), Zero::IfNear);
            assert!(values.iter().all(|v| (0.0..=1.0).contains(&scale.place(*v))), "{values:?} {scale:?}");
            assert!(scale.ticks(5).len() >= 2, "{values:?} {:?}", scale.ticks(5));
        }
    }

    #[test]
    fn ticks_are_round_and_within() {
        let scale = Axis::of([0.0, 97.0].into_iter(), Zero::IfNear);
        assert_eq!(scale.ticks(5), [0.0, 25.0, 50.0, 75.0, 100.0]);
        let scale = Axis::of([1.0, 1e6].into_iter(), Zero::IfNear);
        assert_eq!(scale.ticks(7), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
    }

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 1.0, 0.8512, 12.34, 123.4, 4096.0, 54_321.0, 1.5e7, 0.0312, -2.5].map(short);
        assert_eq!(all, ["0", "1", "0.85", "12.3", "123", "4096", "54.3k", "15M", "0.0312", "-2.5"]);
    }

    /// Values at the limits of floating-point numbers, and values near these limits.
    const EXTREMES: [f64; 16] = [
        0.0,
        -0.0,
        5e-324,
        -5e-324,
        1e-308,
        1.0,
        -1.0,
        1.0 + f64::EPSILON,
        1e16,
        1e16 + 2.0,
        1e308,
        -1e308,
        f64::MAX,
        f64::MIN,
        f64::INFINITY,
        f64::NAN,
    ];

    #[test]
    fn axes_are_finite_whatever_they_show() {
        for a in EXTREMES {
            for b in EXTREMES {
                for zero in [Zero::Always, Zero::IfNear, Zero::Never] {
                    for spacing in [AxisSpacing::Auto, AxisSpacing::Linear] {
                        let axis = Axis::with_spacing([a, b].into_iter(), zero, spacing);
                        for value in EXTREMES {
                            let place = axis.place(value);
                            assert!((-1.0..=2.0).contains(&place), "{a} {b} {axis:?}: {value} at {place}");
                        }
                        for value in [a, b].into_iter().filter(|value| value.is_finite()) {
                            assert!((0.0..=1.0).contains(&axis.place(value)), "{a} {b} {axis:?} {value}");
                        }
                        for about in 0..10 {
                            let ticks = axis.ticks(about);
                            assert!(
                                ticks.len() <= 66 && ticks.iter().all(|tick| tick.is_finite()),
                                "{a} {b} {ticks:?}"
                            );
                            assert!(ticks.iter().all(|tick| short(*tick).len() <= 12), "{a} {b} {ticks:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn any_number_is_short() {
        assert_eq!([1e12, 1e308, 5e-324, f64::NAN].map(short), ["1.0e12", "1.0e308", "4.9e-324", "not finite"]);
    }
}
