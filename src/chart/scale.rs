//! From values to pixels: ranges, ticks and their texts.

/// One axis of a chart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    pub name: String,
    pub low: f64,
    pub high: f64,
    pub logarithmic: bool,
}

impl Axis {
    /// An axis of shares, from 0 to 1.
    pub fn share(name: &str) -> Self {
        Self { name: name.into(), low: 0.0, high: 1.0, logarithmic: false }
    }

    /// A linear axis that holds all of `values`, a little wider than they are by `padding` times their range.
    pub fn around(name: &str, values: impl Iterator<Item = f64>, padding: f64) -> Self {
        let (low, high) = values
            .filter(|&value| is_drawable(value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        // A width within the rounding of the values themselves is none.
        let size = high.abs().max(low.abs());
        let (low, high, padding) = match high - low > 1e-9 * size.max(1e-3) {
            true => (low, high, padding),
            false => (low - 0.5 * size.max(1.0), high + 0.5 * size.max(1.0), 0.0),
        };
        let wider = (high - low) * padding;
        Self { name: name.into(), low: low - wider, high: high + wider, logarithmic: false }
    }

    /// As [`around`](Self::around), logarithmic where positive values differ more than fiftyfold.
    pub fn around_spread(name: &str, values: impl Iterator<Item = f64> + Clone, padding: f64) -> Self {
        let linear = Self::around(name, values.clone(), padding);
        let exact = Self::around(name, values, 0.0);
        if exact.low > 0.0 && exact.high > 50.0 * exact.low {
            return Self { low: exact.low / 1.2, high: exact.high * 1.2, logarithmic: true, ..linear };
        }
        linear
    }

    /// Place of `value`, 0 at the low end and 1 at the high end.
    pub fn place(&self, value: f64) -> f64 {
        match self.logarithmic {
            true => (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// Round values about `count` of which fit the range, with their texts.
    pub fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        if self.logarithmic {
            let range = self.low.log10().ceil() as i32..=self.high.log10().floor() as i32;
            let powers: Vec<f64> = range.map(power_of_ten).collect();
            if powers.len() > 1 {
                return powers.into_iter().map(|value| (value, compact(value))).collect();
            }
        }
        let step = round_step((self.high - self.low) / count.max(1) as f64);
        let slack = step * 1e-9;
        let first = ((self.low - slack) / step).ceil() as i64;
        let last = ((self.high + slack) / step).floor() as i64;
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let text = |value: f64| match step >= 1000.0 {
            true => compact(value),
            false => format!("{:.decimals$}", if value == 0.0 { 0.0 } else { value }),
        };
        (first..=last).map(|at| at as f64 * step).map(|value| (value, text(value))).collect()
    }
}

/// Whether an axis can hold the value: finite, and far enough from the limits of f64 that a range has a width.
pub(crate) fn is_drawable(value: f64) -> bool {
    value.abs() <= 1e100
}

/// Exactly: 10⁻⁵ by division is the number that is written 0.00001.
fn power_of_ten(power: i32) -> f64 {
    if power < 0 { 1.0 / 10f64.powi(-power) } else { 10f64.powi(power) }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = step / power;
    let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|&round| factor <= round + 1e-9);
    power * round.unwrap_or(10.0)
}

/// `12k`, `3M`, `0.001`, `1e-5`.
fn compact(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{:e}", value),
        size if size >= 1e6 => format!("{}M", value / 1e6),
        size if size >= 1e3 => format!("{}k", value / 1e3),
        size if size > 0.0 && size < 1e-3 => format!("{value:e}"),
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis, count: usize) -> Vec<String> {
        axis.ticks(count).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_and_inside_the_range() {
        assert_eq!(texts(&Axis::share(""), 5), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        let epochs = Axis::around("", [1.0, 60.0].into_iter(), 0.0);
        assert_eq!(texts(&epochs, 6), ["10", "20", "30", "40", "50", "60"]);
        let large = Axis::around("", [0.0, 40_000.0].into_iter(), 0.0);
        assert_eq!(texts(&large, 4), ["0", "10k", "20k", "30k", "40k"]);
        let signed = Axis::around("", [-0.3, 0.3].into_iter(), 0.0);
        assert_eq!(texts(&signed, 3), ["-0.2", "0.0", "0.2"]);
    }

    #[test]
    fn a_wide_range_of_positive_values_is_logarithmic() {
        let values = [0.002, 0.9];
        let axis = Axis::around_spread("", values.into_iter(), 0.1);
        assert!(axis.logarithmic);
        assert_eq!(texts(&axis, 5), ["0.01", "0.1", "1"]);
        let small = Axis::around_spread("", [2e-6, 0.9].into_iter(), 0.1);
        assert_eq!(texts(&small, 5), ["1e-5", "1e-4", "0.001", "0.01", "0.1", "1"]);
        assert!((axis.place(axis.low)).abs() < 1e-12 && (axis.place(axis.high) - 1.0).abs() < 1e-12);
        assert!(!Axis::around_spread("", [0.0, 100.0].into_iter(), 0.1).logarithmic);
    }

    #[test]
    fn a_range_without_width_or_values_can_still_be_drawn() {
        for values in [
            vec![],
            vec![f64::NAN],
            vec![3.0],
            vec![3.0, 3.0],
            vec![1e30, 1e30],
            vec![f64::MAX, 1.0, 2.0],
            vec![5.0, 5.0 + 1e-12],
        ] {
            let axis = Axis::around("", values.iter().copied(), 0.1);
            assert!(axis.high > axis.low && !axis.ticks(5).is_empty(), "{values:?}");
        }
    }
}
