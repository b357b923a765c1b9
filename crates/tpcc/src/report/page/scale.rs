//! Axes: from where to where, whether by powers, and what stands beside them.

use super::figure::AxisSteps;

/// An axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    /// Powers, not sums, are evenly spaced.
    pub(super) log: bool,
}

/// From so many times the least on an axis is by powers.
const WIDE: f64 = 50.0;

impl Axis {
    /// For these values: by powers where they span that much, else from 0 unless they all lie far from it.
    pub(super) fn of(values: impl Iterator<Item = f64>, zero: Zero) -> Axis {
        Axis::in_steps(values, zero, AxisSteps::AsTheySpan)
    }

    /// As [`Axis::of`]; by powers only where `steps` allows it.
    pub(super) fn in_steps(values: impl Iterator<Item = f64>, zero: Zero, steps: AxisSteps) -> Axis {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (least, most) = (least.min(value), most.max(value));
        }
        if least > most {
            return Axis { from: 0.0, to: 1.0, log: false };
        }
        if steps == AxisSteps::AsTheySpan && zero != Zero::Always && least > 0.0 && most / least >= WIDE {
            let room = (most / least).powf(0.04);
            return Axis { from: least / room, to: most * room, log: true };
        }
        let far = least > 0.0 && least > 0.6 * most;
        let (mut from, mut to) = match zero {
            Zero::Never => (least, most),
            Zero::IfNear if far => (least, most),
            _ => (least.min(0.0), most.max(0.0)),
        };
        if from >= to {
            (from, to) = (from - 0.5 * from.abs().max(1.0), to + 0.5 * to.abs().max(1.0));
        }
        let room = 0.05 * (to - from);
        Axis {
            from: if from == 0.0 { 0.0 } else { from - room },
            to: if to == 0.0 { 0.0 } else { to + room },
            log: false,
        }
    }

    /// Where a value lies, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.log {
            true => (value / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        }
    }

    /// Round values along it, about so many.
    pub(super) fn ticks(&self, about: usize) -> Vec<f64> {
        if self.log {
            return self.powers(about);
        }
        let rough = (self.to - self.from) / about.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * power);
        let (first, last) = ((self.from / step).ceil() as i64, (self.to / step).floor() as i64);
        (first..=last).map(|n| n as f64 * step).collect()
    }

    fn powers(&self, about: usize) -> Vec<f64> {
        let decades = (self.to / self.from).log10();
        let within: &[f64] = match decades {
            d if d <= 1.7 => &[1.0, 2.0, 5.0],
            d if d <= 2.5 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let (first, last) = (self.from.log10().floor() as i32, self.to.log10().ceil() as i32);
        let every = ((last - first) as usize / about.max(1)).max(1);
        let powers = (first..=last).step_by(every).flat_map(|power| within.iter().map(move |n| n * 10f64.powi(power)));
        powers.filter(|tick| (self.from..=self.to).contains(tick)).collect()
    }
}

/// Whether an axis begins at 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Zero {
    /// Yes: what is drawn has a length.
    Always,
    /// Where values come near it.
    IfNear,
    /// No.
    Never,
}

/// A number beside an axis or a bar: three digits that matter.
pub(crate) fn short(value: f64) -> String {
    let trimmed = |text: String| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    match value.abs() {
        0.0 => "0".to_owned(),
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
        assert!(!Axis::in_steps([1.0, 100.0].into_iter(), Zero::Never, AxisSteps::Sums).log, "a second is a second");
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
}
