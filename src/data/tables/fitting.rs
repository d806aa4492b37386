//! Statistics of the training rows: medians, quartiles, means. What is learned from data when features are made.

use rayon::prelude::*;
use serde::Serialize;

use super::description::Scale;

/// Beyond this many units a scaled value grows by its logarithm only.
const KNEE: f32 = 10.0;

/// `x -> squeezed((x - centre) / spread)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Scaler {
    pub centre: f32,
    /// Never zero.
    pub spread: f32,
}

impl Scaler {
    /// Leaves values as they are.
    pub const IDENTITY: Scaler = Scaler { centre: 0.0, spread: 1.0 };

    /// Fits `values`, which are sorted here. Where half of all values are equal, the standard deviation takes the place
    /// of the interquartile range, and 1 that of a deviation of zero.
    pub fn fit(values: &mut [f32], scale: Scale) -> Self {
        values.par_sort_unstable_by(f32::total_cmp);
        if values.is_empty() || scale == Scale::None {
            return Self::IDENTITY;
        }
        let count = values.len() as f64;
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
        let variance = values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / count;
        let deviation = variance.sqrt();
        let (centre, spread) = match scale {
            Scale::Standard => (mean, deviation),
            _ => {
                let range = quantile(values, 0.75) - quantile(values, 0.25);
                (quantile(values, 0.5), if range > 0.0 { range } else { deviation })
            }
        };
        // A spread that single precision cannot divide by is none.
        let spread = spread as f32;
        let usable = spread.is_normal() && spread.recip().is_normal();
        Self { centre: centre as f32, spread: if usable { spread } else { 1.0 } }
    }

    pub fn apply(&self, value: f32) -> f32 {
        let scaled = (f64::from(value) - f64::from(self.centre)) / f64::from(self.spread);
        squeezed(scaled)
    }

    /// The value that becomes `scaled`, in full precision.
    pub fn inverse(&self, scaled: f32) -> f64 {
        let (knee, size) = (f64::from(KNEE), f64::from(scaled.abs()));
        let size = if size <= knee { size } else { knee * ((size - knee) / knee).exp() };
        f64::from(self.centre) + f64::from(self.spread) * size.copysign(f64::from(scaled))
    }
}

/// Keeps the order of all values and their place up to ±10; farther ones are drawn in, `10 + 10 ln(x / 10)`, so that
/// none leaves ±1,900 and half precision holds them all.
fn squeezed(value: f64) -> f32 {
    let knee = f64::from(KNEE);
    let size = value.abs();
    let size = if size <= knee { size } else { knee + knee * (size / knee).ln() };
    (size.copysign(value)) as f32
}

/// Value at the share `q` of sorted values, between two by linear interpolation.
pub(super) fn quantile(sorted: &[f32], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = q * last as f64;
    let below = place.floor() as usize;
    let (low, high) = (f64::from(sorted[below]), f64::from(sorted[(below + 1).min(last)]));
    low + (high - low) * (place - below as f64)
}

/// `sign(x) ln(1 + |x|)`.
pub(super) fn signed_log(value: f32) -> f32 {
    value.abs().ln_1p().copysign(value)
}

/// The value whose [`signed_log`] is `value`.
pub(super) fn signed_exp_m1(value: f64) -> f64 {
    value.abs().exp_m1().copysign(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_have_known_scales() {
        let mut values = [5.0, 1.0, 3.0, 2.0, 4.0];
        let robust = Scaler::fit(&mut values, Scale::Robust);
        assert_eq!(robust, Scaler { centre: 3.0, spread: 2.0 });
        assert_eq!(robust.apply(4.0), 0.5);
        let standard = Scaler::fit(&mut values, Scale::Standard);
        assert_eq!((standard.centre, standard.spread), (3.0, 2.0f32.sqrt()));
        assert_eq!(Scaler::fit(&mut values, Scale::None), Scaler::IDENTITY);
    }

    #[test]
    fn a_constant_column_divides_by_one_and_a_mostly_constant_one_by_its_deviation() {
        assert_eq!(Scaler::fit(&mut [7.0; 5], Scale::Robust), Scaler { centre: 7.0, spread: 1.0 });
        assert_eq!(Scaler::fit(&mut [1e-42; 2], Scale::Standard).spread, 1.0);
        let mostly = Scaler::fit(&mut [0.0, 0.0, 0.0, 0.0, 10.0], Scale::Robust);
        assert_eq!(mostly, Scaler { centre: 0.0, spread: 4.0 });
        assert_eq!(Scaler::fit(&mut [], Scale::Robust), Scaler::IDENTITY);
    }

    #[test]
    fn half_precision_holds_whatever_is_scaled() {
        let values = [f32::MIN, -1e9, -10.0, -1.0, 0.0, 9.9, 10.0, 10.1, 1e9, f32::MAX];
        let scaler = Scaler { centre: 0.0, spread: 1e-37 };
        let scaled = values.map(|value| scaler.apply(value));
        assert!(scaled.is_sorted() && scaled.iter().all(|value| value.abs() < 1_900.0), "{scaled:?}");
        assert_eq!(values.map(|value| Scaler::IDENTITY.apply(value))[2..7], values[2..7]);
    }
}
