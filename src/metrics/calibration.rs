//! From scores that rank to probabilities that can be counted on: Platt's sigmoid and isotonic regression.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{check_scores, one_class, sigmoid_f64, softplus};
use crate::error::Result;

/// Labels from which on isotonic regression is fitted. With fewer it follows the sample; a sigmoid has two parameters
/// only.
///
/// # Source
/// Niculescu-Mizil and Caruana, Predicting good probabilities with supervised learning (ICML 2005), figure 8.
pub const ISOTONIC_LABELS: usize = 1000;

/// Scores are kept this far from 0 and 1 before their logit is taken: what f32 can still tell from 1.
const MARGIN: f64 = 6e-8;

/// A map from score to probability that never decreases.
///
/// The probability is that of a node *drawn like the labels that the map was fitted to*: where anomalies are rarer
/// among all nodes than among those labels, it is too high by the ratio of the odds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// How scores become probabilities.
    #[serde(flatten)]
    map: Map,
    /// Labelled nodes that it was fitted to, and how many of them are anomalous.
    pub labels: usize,
    pub anomalous: usize,
    /// Share of anomalies among the nodes that are asked about, where it is not that of the labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base_rate: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "lowercase")]
enum Map {
    /// `p = score`, of a score that is a probability as it is.
    Identity,
    /// `p = sigmoid(slope * logit(score) + intercept)`
    Platt { slope: f64, intercept: f64 },
    /// Probability of the scores from `from` to `to`, linear in between; ascending.
    Isotonic { blocks: Vec<Block> },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Block {
    from: f32,
    to: f32,
    probability: f64,
}

impl Calibration {
    /// Takes a score for the probability that it means; nothing is fitted.
    pub const IDENTITY: Self = Self { map: Map::Identity, labels: 0, anomalous: 0, base_rate: None };

    /// Fits isotonic regression to [`ISOTONIC_LABELS`] labels and more, Platt's sigmoid to fewer.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) for unequal lengths, scores that are not finite, labels other than 0
    /// and 1, or one class alone.
    pub fn fit(scores: &[f32], labels: &[u8]) -> Result<Self> {
        match scores.len() < ISOTONIC_LABELS {
            true => Self::platt(scores, labels),
            false => Self::isotonic(scores, labels),
        }
    }

    /// Fits `p = sigmoid(a * logit(score) + b)` by maximum likelihood, with targets `(n1 + 1) / (n1 + 2)` and `1 / (n0
    /// + 2)` instead of 1 and 0. `a` is not below 0, so the order of the scores stays.
    ///
    /// # Errors
    /// As for [`fit`](Self::fit).
    ///
    /// # Source
    /// Platt, Probabilistic outputs for support vector machines (1999); Lin, Lin and Weng (2007) for the iteration.
    pub fn platt(scores: &[f32], labels: &[u8]) -> Result<Self> {
        let anomalous = counted(scores, labels)?;
        let (positives, negatives) = (anomalous as f64, (labels.len() - anomalous) as f64);
        let target = |label: u8| match label {
            1 => (positives + 1.0) / (positives + 2.0),
            _ => 1.0 / (negatives + 2.0),
        };
        let points: Vec<[f64; 2]> =
            scores.iter().zip(labels).map(|(&score, &label)| [logit(score), target(label)]).collect();
        let prior = ((positives + 1.0) / (negatives + 1.0)).ln();
        let (mut slope, mut intercept) = newton(&points, prior);
        if slope < 0.0 {
            // The scores rank these labels the wrong way round; the best map that keeps their order is a constant.
            let share = points.iter().map(|point| point[1]).sum::<f64>() / points.len() as f64;
            (slope, intercept) = (0.0, (share / (1.0 - share)).ln());
        }
        Ok(Self { map: Map::Platt { slope, intercept }, labels: labels.len(), anomalous, base_rate: None })
    }

    /// Fits the non-decreasing step function of least squares (pool adjacent violators); between two steps it is
    /// linear.
    ///
    /// # Errors
    /// As for [`fit`](Self::fit).
    ///
    /// # Source
    /// Zadrozny and Elkan, Transforming classifier scores into accurate multiclass probability estimates (KDD 2002).
    pub fn isotonic(scores: &[f32], labels: &[u8]) -> Result<Self> {
        let anomalous = counted(scores, labels)?;
        let mut pairs: Vec<(f32, u8)> = scores.iter().copied().zip(labels.iter().copied()).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Equal scores are one point.
        let mut pools: Vec<Pool> = Vec::new();
        for tied in pairs.chunk_by(|a, b| a.0 == b.0) {
            let ones = tied.iter().map(|pair| f64::from(pair.1)).sum();
            pools.push(Pool { from: tied[0].0, to: tied[0].0, ones, count: tied.len() as f64 });
            while let [.., before, last] = pools.as_slice()
                && before.mean() >= last.mean()
            {
                let merged = before.with(last);
                pools.truncate(pools.len() - 2);
                pools.push(merged);
            }
        }
        let blocks =
            pools.iter().map(|pool| Block { from: pool.from, to: pool.to, probability: pool.mean() }).collect();
        Ok(Self { map: Map::Isotonic { blocks }, labels: labels.len(), anomalous, base_rate: None })
    }

    /// The same map for nodes of which a share of `rate`, in (0, 1), is anomalous: of the labels a share `r` was, so
    /// the odds are multiplied by `(rate / (1 - rate)) / (r / (1 - r))`. The order of the scores stays.
    ///
    /// # Source
    /// Saerens, Latinne and Decaestecker, Adjusting the outputs of a classifier to new a priori probabilities (2002).
    pub fn at_base_rate(&self, rate: f64) -> Self {
        Self { base_rate: Some(rate), ..self.clone() }
    }

    /// The probability that a score means; none of a score that is NaN.
    pub fn probability(&self, score: f32) -> Option<f64> {
        let fitted = self.fitted(score)?;
        let Some(rate) = self.base_rate else { return Some(fitted) };
        let own = self.anomalous as f64 / self.labels as f64;
        let (anomalous, normal) = (fitted * rate / own, (1.0 - fitted) * (1.0 - rate) / (1.0 - own));
        Some(anomalous / (anomalous + normal))
    }

    /// Of a node drawn like the labels.
    fn fitted(&self, score: f32) -> Option<f64> {
        if score.is_nan() {
            return None;
        }
        Some(match &self.map {
            Map::Identity => f64::from(score),
            Map::Platt { slope, intercept } => sigmoid_f64(slope * logit(score) + intercept),
            Map::Isotonic { blocks } => {
                let after = blocks.partition_point(|block| block.from <= score);
                let Some(block) = after.checked_sub(1).map(|at| blocks[at]) else {
                    return blocks.first().map(|first| first.probability);
                };
                match blocks.get(after) {
                    Some(next) if score > block.to => {
                        let share = f64::from(score - block.to) / f64::from(next.from - block.to);
                        block.probability + share * (next.probability - block.probability)
                    }
                    _ => block.probability,
                }
            }
        })
    }

    /// Name of the method, e.g. `Platt's sigmoid`.
    pub fn method(&self) -> &'static str {
        match self.map {
            Map::Identity => "no calibration",
            Map::Platt { .. } => "Platt's sigmoid",
            Map::Isotonic { .. } => "isotonic regression",
        }
    }

    /// `Platt's sigmoid, fitted to 150 validation labels (75 of class 2)` for a calibration of that class against the
    /// rest; without a class `(75 anomalous)`.
    pub fn describe(&self, class: Option<u32>) -> String {
        let of = class.map_or_else(|| "anomalous".into(), |class| format!("of class {class}"));
        let rate = self.base_rate.map_or(String::new(), |rate| format!(", at a base rate of {} %", 100.0 * rate));
        format!("{}, fitted to {} validation labels ({} {of}){rate}", self.method(), self.labels, self.anomalous)
    }
}

/// `Platt's sigmoid, fitted to 150 validation labels (75 anomalous)`
impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(None))
    }
}

/// Number of anomalous labels, where both classes are there.
fn counted(scores: &[f32], labels: &[u8]) -> Result<usize> {
    check_scores(scores, labels)?;
    let anomalous = labels.iter().filter(|&&label| label == 1).count();
    match anomalous == 0 || anomalous == labels.len() {
        true => Err(one_class("a calibration", anomalous as u64, (labels.len() - anomalous) as u64)),
        false => Ok(anomalous),
    }
}

fn logit(score: f32) -> f64 {
    let score = f64::from(score).clamp(MARGIN, 1.0 - MARGIN);
    (score / (1.0 - score)).ln()
}

/// Slope and intercept that maximise the likelihood of `[x, target]` points: Newton's method with step halving.
fn newton(points: &[[f64; 2]], prior: f64) -> (f64, f64) {
    const ITERATIONS: usize = 100;
    // A ridge that keeps the two equations solvable where all scores are equal.
    const RIDGE: f64 = 1e-10;
    let loss = |slope: f64, intercept: f64| -> f64 {
        // -t ln p - (1 - t) ln(1 - p) = ln(1 + e^z) - t z
        points.iter().map(|&[x, target]| softplus(slope * x + intercept) - target * (slope * x + intercept)).sum()
    };
    let (mut slope, mut intercept) = (0.0, prior);
    let mut best = loss(slope, intercept);
    for _ in 0..ITERATIONS {
        let (mut gradient, mut hessian) = ([0.0; 2], [RIDGE, 0.0, RIDGE]);
        for &[x, target] in points {
            let p = sigmoid_f64(slope * x + intercept);
            let (error, weight) = (p - target, p * (1.0 - p));
            gradient = [gradient[0] + error * x, gradient[1] + error];
            hessian = [hessian[0] + weight * x * x, hessian[1] + weight * x, hessian[2] + weight];
        }
        if gradient.iter().all(|part| part.abs() < 1e-9) {
            break;
        }
        let determinant = hessian[0] * hessian[2] - hessian[1] * hessian[1];
        let step = [
            (hessian[2] * gradient[0] - hessian[1] * gradient[1]) / determinant,
            (hessian[0] * gradient[1] - hessian[1] * gradient[0]) / determinant,
        ];
        let mut size = 1.0;
        loop {
            let next = (slope - size * step[0], intercept - size * step[1]);
            let found = loss(next.0, next.1);
            if found < best {
                (slope, intercept) = next;
                best = found;
                break;
            }
            size /= 2.0;
            if size < 1e-10 {
                return (slope, intercept);
            }
        }
    }
    (slope, intercept)
}

/// Neighbouring scores with one probability.
struct Pool {
    from: f32,
    to: f32,
    ones: f64,
    count: f64,
}

impl Pool {
    fn mean(&self) -> f64 {
        self.ones / self.count
    }

    fn with(&self, next: &Self) -> Self {
        Self { from: self.from, to: next.to, ones: self.ones + next.ones, count: self.count + next.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// A number in [0, 1) for each `i`, spread evenly.
    fn spread(i: usize) -> f64 {
        (i as f64 * 0.618_033_988_749_895).fract()
    }

    /// Scores, and labels that are anomalous with `probability(score)`.
    fn drawn(count: usize, probability: impl Fn(f64) -> f64) -> (Vec<f32>, Vec<u8>) {
        let draw = |i: usize| {
            let score = (i as f64 + 0.5) / count as f64;
            (score as f32, u8::from(spread(i) < probability(score)))
        };
        (0..count).map(draw).unzip()
    }

    #[test]
    fn a_base_rate_multiplies_the_odds_and_that_of_the_labels_changes_nothing() {
        let scores = [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9];
        let calibration = Calibration::platt(&scores, &[0, 0, 1, 0, 0, 1, 0, 0]).unwrap();
        let odds = |p: f64| p / (1.0 - p);
        let rare = calibration.at_base_rate(0.002);
        let factor = odds(0.002) / odds(0.25);
        for score in scores {
            let (before, after) = (calibration.probability(score).unwrap(), rare.probability(score).unwrap());
            assert!((odds(after) / odds(before) / factor - 1.0).abs() < 1e-9, "{score}: {before} {after}");
            let same = calibration.at_base_rate(0.25).probability(score).unwrap();
            assert!((same - before).abs() < 1e-12);
        }
        assert!(rare.to_string().ends_with("(2 anomalous), at a base rate of 0.2 %"), "{rare}");
        let isotonic = Calibration::isotonic(&[0.1, 0.9], &[0, 1]).unwrap().at_base_rate(0.5);
        assert_eq!([0.1, 0.9].map(|score| isotonic.probability(score)), [Some(0.0), Some(1.0)]);
    }

    #[test]
    fn platts_sigmoid_finds_the_parameters_that_labels_were_drawn_with() {
        let truth = |score: f64| sigmoid_f64(1.7 * (score / (1.0 - score)).ln() - 0.8);
        let (scores, labels) = drawn(20_000, truth);
        let calibration = Calibration::platt(&scores, &labels).unwrap();
        for score in [0.05f32, 0.3, 0.5, 0.8, 0.95] {
            let found = calibration.probability(score).unwrap();
            assert!((found - truth(f64::from(score))).abs() < 0.01, "{score}: {found}");
        }
    }

    #[test]
    fn platts_targets_keep_certainty_away_from_few_labels() {
        let calibration = Calibration::platt(&[0.1, 0.2, 0.8, 0.9], &[0, 0, 1, 1]).unwrap();
        let p = |score| calibration.probability(score).unwrap();
        // Separable: without the targets of Platt the slope would be infinite.
        assert!(p(0.9) < 0.9 && p(0.1) > 0.1 && p(0.9) > 0.7, "{} {}", p(0.1), p(0.9));
        let mean: f64 = [0.1, 0.2, 0.8, 0.9].map(p).iter().sum::<f64>() / 4.0;
        assert!((mean - 0.5).abs() < 1e-6, "the mean probability is that of the targets: {mean}");
    }

    #[test]
    fn scores_that_rank_wrongly_get_one_probability() {
        let calibration = Calibration::platt(&[0.1, 0.2, 0.8, 0.9], &[1, 1, 0, 0]).unwrap();
        assert_eq!(calibration.probability(0.1), calibration.probability(0.9));
        let equal = Calibration::platt(&[0.5; 4], &[1, 0, 0, 0]).unwrap();
        assert!((equal.probability(0.5).unwrap() - (2.0 / 3.0 + 3.0 / 5.0) / 4.0).abs() < 1e-6);
    }

    /// The definition: of all blocks that start at or before a point and end at or after it, the max of the min of
    /// means.
    fn isotonic_oracle(labels: &[f64]) -> Vec<f64> {
        let mean = |from: usize, to: usize| labels[from..=to].iter().sum::<f64>() / (to - from + 1) as f64;
        let n = labels.len();
        let lowest = |from: usize, at: usize| (at..n).map(|to| mean(from, to)).fold(f64::INFINITY, f64::min);
        (0..n).map(|at| (0..=at).map(|from| lowest(from, at)).fold(0.0, f64::max)).collect()
    }

    #[test]
    fn isotonic_regression_is_the_max_min_of_means() {
        let (scores, labels) = drawn(60, |score| score * score);
        let calibration = Calibration::isotonic(&scores, &labels).unwrap();
        let expected = isotonic_oracle(&labels.iter().map(|&label| f64::from(label)).collect::<Vec<_>>());
        for (score, expected) in scores.iter().zip(expected) {
            assert!((calibration.probability(*score).unwrap() - expected).abs() < 1e-12, "{score}");
        }
    }

    #[test]
    fn isotonic_regression_takes_ties_together_and_joins_steps_by_lines() {
        let calibration = Calibration::isotonic(&[0.2, 0.2, 0.6, 0.6], &[0, 1, 1, 1]).unwrap();
        let p = |score: f32| calibration.probability(score).unwrap();
        assert_eq!([p(0.0), p(0.2), p(0.6), p(1.0)], [0.5, 0.5, 1.0, 1.0]);
        assert!((p(0.4) - 0.75).abs() < 1e-6);
    }

    #[test]
    fn a_higher_score_never_has_a_lower_probability() {
        for count in [50, ISOTONIC_LABELS] {
            let (scores, labels) = drawn(count, |score| 0.2 + 0.5 * score);
            let calibration = Calibration::fit(&scores, &labels).unwrap();
            let expected = if count < ISOTONIC_LABELS { "Platt's sigmoid" } else { "isotonic regression" };
            assert_eq!(calibration.method(), expected);
            let line: Vec<f64> = (0..=1000).map(|i| calibration.probability(i as f32 / 1000.0).unwrap()).collect();
            assert!(line.windows(2).all(|pair| pair[0] <= pair[1]));
            assert!(line.iter().all(|p| (0.0..=1.0).contains(p)));
        }
    }

    #[test]
    fn a_calibration_is_the_same_after_it_was_written_and_read() {
        for count in [50, ISOTONIC_LABELS] {
            let (scores, labels) = drawn(count, |score| score);
            let calibration = Calibration::fit(&scores, &labels).unwrap();
            let text = serde_json::to_string(&calibration).unwrap();
            assert_eq!(serde_json::from_str::<Calibration>(&text).unwrap(), calibration, "{text}");
        }
    }

    #[test]
    fn what_has_no_probability_is_said() {
        let calibration = Calibration::fit(&[0.1, 0.9], &[0, 1]).unwrap();
        assert_eq!(calibration.probability(f32::NAN), None);
        assert!(matches!(Calibration::fit(&[0.1, 0.9], &[1, 1]), Err(Error::Data { .. })));
        assert!(matches!(Calibration::fit(&[0.1], &[1, 0]), Err(Error::Data { .. })));
        assert!(matches!(Calibration::fit(&[f32::NAN, 0.1], &[1, 0]), Err(Error::Data { .. })));
    }
}
