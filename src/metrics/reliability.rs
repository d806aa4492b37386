//! Whether probabilities can be counted on: bins of a reliability diagram with intervals, and the Brier score.

use serde::{Deserialize, Serialize};

use super::{Interval, check_scores};
use crate::error::Result;

/// z of a two-sided 95 % interval.
const Z: f64 = 1.959_963_984_540_054;

/// Nodes that a bin has at least, where there are that many.
const SMALLEST_BIN: usize = 10;

/// Nodes of similar probability.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReliabilityBin {
    /// Nodes.
    pub nodes: u64,
    /// How many of them are anomalous.
    pub anomalous: u64,
    /// What was predicted on average.
    pub mean_probability: f64,
    /// Share that is anomalous.
    pub share: f64,
    /// 95 % interval of the share, [`wilson`].
    pub interval: Interval,
}

/// Bins of a reliability diagram, and two figures about all nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reliability {
    /// By ascending probability.
    pub bins: Vec<ReliabilityBin>,
    /// Mean squared difference of probability and label; smaller is better.
    pub brier: f64,
    /// Mean absolute difference of probability and share over the bins, weighted by their nodes.
    pub calibration_error: f64,
}

impl Reliability {
    /// Divides the nodes into at most `bins` bins of about as many nodes each. Equal probabilities share a bin, and
    /// there are fewer bins where one would have less than ten nodes.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) for unequal lengths, probabilities that are not finite or labels
    /// above 1.
    pub fn of(probabilities: &[f32], labels: &[u8], bins: usize) -> Result<Self> {
        check_scores(probabilities, labels)?;
        let mut nodes: Vec<(f32, u8)> = probabilities.iter().copied().zip(labels.iter().copied()).collect();
        nodes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let bins = bins.min(nodes.len() / SMALLEST_BIN).max(1);
        let mut made: Vec<Vec<(f32, u8)>> = Vec::new();
        let mut seen = 0;
        for tied in nodes.chunk_by(|a, b| a.0 == b.0) {
            // The bin in which the middle of the tie lies.
            let bin = (2 * seen + tied.len()) * bins / (2 * nodes.len());
            if made.is_empty() || bin > (2 * (seen - made[made.len() - 1].len()) + 1) * bins / (2 * nodes.len()) {
                made.push(Vec::new());
            }
            if let Some(last) = made.last_mut() {
                last.extend_from_slice(tied);
            }
            seen += tied.len();
        }
        let bins: Vec<ReliabilityBin> = made.iter().map(|nodes| ReliabilityBin::of(nodes)).collect();
        let count = nodes.len().max(1) as f64;
        let squares = nodes.iter().map(|&(p, label)| (f64::from(p) - f64::from(label)).powi(2)).sum::<f64>();
        let gaps = bins.iter().map(|bin| bin.nodes as f64 * (bin.mean_probability - bin.share).abs()).sum::<f64>();
        Ok(Self { bins, brier: squares / count, calibration_error: gaps / count })
    }
}

impl ReliabilityBin {
    fn of(nodes: &[(f32, u8)]) -> Self {
        let anomalous = nodes.iter().map(|node| u64::from(node.1)).sum();
        let count = nodes.len() as u64;
        Self {
            nodes: count,
            anomalous,
            mean_probability: nodes.iter().map(|node| f64::from(node.0)).sum::<f64>() / count as f64,
            share: anomalous as f64 / count as f64,
            interval: wilson(anomalous, count),
        }
    }
}

/// The 95 % interval of a share of which `successes` of `trials` were seen; [0, 1] without trials.
///
/// ```text
/// (p + z²/2n ± z sqrt(p (1 - p) / n + z²/4n²)) / (1 + z²/n)
/// ```
///
/// # Source
/// Wilson, Probable inference, the law of succession, and statistical inference (1927).
pub fn wilson(successes: u64, trials: u64) -> Interval {
    if trials == 0 {
        return Interval { low: 0.0, high: 1.0 };
    }
    let n = trials as f64;
    let p = successes as f64 / n;
    let z2 = Z * Z;
    let middle = p + z2 / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    Interval { low: ((middle - half) / scale).max(0.0), high: ((middle + half) / scale).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilsons_interval_has_its_published_values() {
        // Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (successes, trials, low, high) in
            [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]
        {
            let found = wilson(successes, trials);
            assert!((found.low - low).abs() < 5e-5 && (found.high - high).abs() < 5e-5, "{found:?}");
        }
        assert_eq!(wilson(0, 0), Interval { low: 0.0, high: 1.0 });
    }

    #[test]
    fn bins_have_about_as_many_nodes_each_and_hold_all_of_them() {
        let probabilities: Vec<f32> = (0..100).map(|at| at as f32 / 100.0).collect();
        let labels: Vec<u8> = (0..100).map(|at| u8::from(at % 4 == 0)).collect();
        let found = Reliability::of(&probabilities, &labels, 5).unwrap();
        assert_eq!(found.bins.iter().map(|bin| bin.nodes).collect::<Vec<_>>(), [20; 5]);
        assert!((found.bins[1].mean_probability - 0.295).abs() < 1e-6);
        assert!(found.bins.iter().all(|bin| bin.share == 0.25 && bin.anomalous == 5));
        let gaps: f64 = found.bins.iter().map(|bin| (bin.mean_probability - 0.25).abs() / 5.0).sum();
        assert!((found.calibration_error - gaps).abs() < 1e-12);
    }

    #[test]
    fn equal_probabilities_share_a_bin() {
        let probabilities = [vec![0.1; 45], vec![0.2; 10], vec![0.9; 45]].concat();
        let labels = [vec![0; 45], vec![1; 10], vec![1; 45]].concat();
        let found = Reliability::of(&probabilities, &labels, 10).unwrap();
        let bins: Vec<_> = found.bins.iter().map(|bin| (bin.nodes, bin.anomalous)).collect();
        assert_eq!(bins, [(45, 0), (10, 10), (45, 45)]);
        assert!((found.brier - (45.0 * 0.01 + 10.0 * 0.64 + 45.0 * 0.01) / 100.0).abs() < 1e-6);
    }

    #[test]
    fn few_nodes_make_few_bins() {
        let found = Reliability::of(&[0.1, 0.5, 0.9], &[0, 1, 1], 10).unwrap();
        assert_eq!((found.bins.len(), found.bins[0].nodes, found.bins[0].anomalous), (1, 3, 2));
        assert_eq!(Reliability::of(&[], &[], 10).unwrap().bins, []);
        assert!(Reliability::of(&[f32::NAN], &[0], 10).is_err());
    }
}
