//! Whether two samples come from one distribution: the test of Kolmogorov and Smirnov.

use serde::{Deserialize, Serialize};

/// Outcome of a two-sample Kolmogorov-Smirnov test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KolmogorovSmirnov {
    /// Largest distance of the two distribution functions, in \[0, 1\].
    pub statistic: f64,
    /// Probability of such a distance or a larger one where both samples come from one distribution. Asymptotic, and
    /// conservative with ties.
    pub p_value: f64,
}

impl KolmogorovSmirnov {
    /// Compares two samples of finite values; `None` where one of them is empty.
    ///
    /// `D = max |F1(x) - F2(x)|`, `p = 2 Σ (-1)^(j-1) exp(-2 j² λ²)` with `λ = (√m + 0.12 + 0.11/√m) D` and
    /// `m = n1 n2 / (n1 + n2)`.
    ///
    /// # Source
    /// Stephens, Use of the Kolmogorov-Smirnov, Cramér-von Mises and related statistics without extensive tables
    /// (1970).
    pub fn of(first: &[f32], second: &[f32]) -> Option<Self> {
        if first.is_empty() || second.is_empty() {
            return None;
        }
        let sorted = [first, second].map(|sample| {
            let mut sample = sample.to_vec();
            sample.sort_by(f32::total_cmp);
            sample
        });
        let sizes = [first.len() as f64, second.len() as f64];
        let mut at = [0, 0];
        let mut statistic = 0.0f64;
        while at[0] < sorted[0].len() && at[1] < sorted[1].len() {
            let value = sorted[0][at[0]].min(sorted[1][at[1]]);
            for (at, sample) in at.iter_mut().zip(&sorted) {
                // Equal values are one step.
                *at += sample[*at..].iter().take_while(|&&other| other <= value).count();
            }
            statistic = statistic.max((at[0] as f64 / sizes[0] - at[1] as f64 / sizes[1]).abs());
        }
        let root = (sizes[0] * sizes[1] / (sizes[0] + sizes[1])).sqrt();
        Some(Self { statistic, p_value: survival((root + 0.12 + 0.11 / root) * statistic) })
    }
}

/// P(K > lambda) of Kolmogorov's distribution.
fn survival(lambda: f64) -> f64 {
    // The series does not converge near 0, where the probability is 1 to the last digit.
    if lambda < 0.2 {
        return 1.0;
    }
    let term = |j: i32| {
        let sign = if j % 2 == 1 { 2.0 } else { -2.0 };
        sign * (-2.0 * f64::from(j * j) * lambda * lambda).exp()
    };
    (1..=100).map(term).sum::<f64>().clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, over all values.
    fn distance(first: &[f32], second: &[f32]) -> f64 {
        let share = |sample: &[f32], x: f32| sample.iter().filter(|&&v| v <= x).count() as f64 / sample.len() as f64;
        let values = first.iter().chain(second);
        values.map(|&x| (share(first, x) - share(second, x)).abs()).fold(0.0, f64::max)
    }

    fn draw(seed: u64, count: usize) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32
        };
        for _ in 0..20 {
            next();
        }
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn the_statistic_is_the_largest_distance_with_ties_too() {
        for seed in 0..40 {
            let (first, second) = (draw(seed, 23), draw(seed + 1000, 37));
            for digits in [1e6f32, 8.0] {
                let round = |sample: &[f32]| sample.iter().map(|v| (v * digits).round()).collect::<Vec<_>>();
                let (first, second) = (round(&first), round(&second));
                let found = KolmogorovSmirnov::of(&first, &second).unwrap();
                assert!((found.statistic - distance(&first, &second)).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn critical_values_have_their_probabilities() {
        for (lambda, probability) in [(1.2238, 0.10), (1.3581, 0.05), (1.6276, 0.01), (1.9495, 0.001)] {
            assert!((survival(lambda) - probability).abs() < 1e-4 * 2.0, "{lambda}: {}", survival(lambda));
        }
        assert_eq!((survival(0.0), survival(0.1)), (1.0, 1.0));
    }

    #[test]
    fn samples_of_one_distribution_are_told_apart_as_seldom_as_promised() {
        let rejected = (0..400)
            .filter(|&seed| KolmogorovSmirnov::of(&draw(seed, 40), &draw(seed + 7919, 50)).unwrap().p_value < 0.05);
        let share = rejected.count() as f64 / 400.0;
        assert!((0.01..0.08).contains(&share), "{share}");
    }

    #[test]
    fn shifted_samples_are_told_apart_and_equal_ones_are_not() {
        let (first, second) = (draw(1, 80), draw(2, 80));
        let shifted: Vec<f32> = second.iter().map(|v| v + 0.4).collect();
        assert!(KolmogorovSmirnov::of(&first, &shifted).unwrap().p_value < 1e-4);
        let same = KolmogorovSmirnov::of(&first, &first).unwrap();
        assert_eq!((same.statistic, same.p_value), (0.0, 1.0));
        assert_eq!(KolmogorovSmirnov::of(&[], &first), None);
    }
}
