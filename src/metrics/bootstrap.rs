//! Confidence intervals of metrics by the bootstrap: how far the figures could lie elsewhere with other labelled nodes.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Binomial, Distribution};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Ranking, RankingStep, TopK, check_scores};
use crate::error::Result;
use crate::splitmix::nth;

/// Members that a class needs before it is resampled: fewer say next to nothing about the class that they come from.
pub const FEWEST: u64 = 5;

/// Share of the resamples in which a metric has to exist (precision does not where nothing is flagged).
const DEFINED: f64 = 0.9;

/// Neighbours in the ranking that are drawn from one after the other: what is counted of them fits the first cache.
const BLOCK: usize = 4096;

/// How the bootstrap is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    /// Resamples, default 1,000.
    pub resamples: usize,
    /// Share of the resamples inside an interval, in (0, 1), default 0.95.
    pub level: f64,
    /// Seed of the draws, default 42.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: 1000, level: 0.95, seed: 42 }
    }
}

/// Ends of a confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

/// A metric of the labelled nodes, and what other such nodes might have shown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Of the nodes themselves.
    pub value: f64,
    /// `None` where a class has fewer than [`FEWEST`] nodes.
    pub interval: Option<Interval>,
}

/// Metrics with their intervals. What is not defined for the nodes is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimates {
    /// Anomalous nodes.
    pub positives: u64,
    /// Normal nodes.
    pub negatives: u64,
    /// [`Ranking::roc_auc`].
    pub roc_auc: Option<Estimate>,
    /// [`Ranking::average_precision`].
    pub average_precision: Option<Estimate>,
    /// Of the nodes that are flagged.
    pub precision: Option<Estimate>,
    /// Of the anomalous nodes.
    pub recall: Option<Estimate>,
    /// Harmonic mean of both.
    pub f1: Option<Estimate>,
    /// [`Ranking::top_k`] for every k that was asked for.
    pub top: Vec<TopEstimate>,
}

/// Precision and recall of the `k` highest scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TopEstimate {
    pub k: u64,
    pub precision: Option<Estimate>,
    pub recall: Option<Estimate>,
}

/// Measures of one sample: area, average precision, precision, recall, F1, then precision and recall of every k.
pub(super) type Measures = Vec<Option<f64>>;
const FIXED: usize = 5;

impl Bootstrap {
    /// Metrics of `scores` with percentile intervals. Nodes are drawn with replacement within their class (stratified),
    /// so every resample has as many anomalous and normal nodes as the labels have; a node is flagged from `threshold`
    /// on.
    ///
    /// A draw is a hash of seed, resample and position: the result does not depend on threads. Scores are sorted once;
    /// a resample takes time in proportion to the nodes: binomial numbers say how many draws fall on each 4,096 nodes
    /// that follow each other in the ranking, so that counting stays in the cache.
    ///
    /// # Errors
    /// [`Error::Data`](crate::error::Error::Data) for what [`Ranking::new`] refuses.
    ///
    /// # Source
    /// Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13. For a perfect ranking the interval of
    /// the area is [1, 1], whatever the number of nodes.
    pub fn estimate(&self, scores: &[f32], labels: &[u8], threshold: f64, ks: &[u64]) -> Result<Estimates> {
        check_scores(scores, labels)?;
        let order = descending(scores);
        let sample = Sample::new(&picked(scores, &order), &picked(labels, &order), threshold, ks)?;
        let values = sample.measures(&sample.observed());
        let [negatives, positives] = [0, 1].map(|class| sample.members[class].len() as u64);
        let enough = positives.min(negatives) >= FEWEST;
        let resampled = if enough { self.resampled(&sample) } else { Vec::new() };
        let estimates: Vec<Option<Estimate>> = values
            .iter()
            .enumerate()
            .map(|(at, value)| value.map(|value| Estimate { value, interval: self.interval(&resampled, at) }))
            .collect();
        let top = ks.iter().zip(estimates[FIXED..].chunks_exact(2));
        Ok(Estimates {
            positives,
            negatives,
            roc_auc: estimates[0],
            average_precision: estimates[1],
            precision: estimates[2],
            recall: estimates[3],
            f1: estimates[4],
            top: top.map(|(&k, pair)| TopEstimate { k, precision: pair[0], recall: pair[1] }).collect(),
        })
    }

    /// The area of `scores` less that of `others`, which rank the same nodes: both are computed on the same resamples,
    /// so the interval says whether one is better. `None` where a class has fewer than [`FEWEST`] nodes.
    ///
    /// # Errors
    /// As for [`estimate`](Self::estimate).
    pub fn area_difference(&self, scores: &[f32], others: &[f32], labels: &[u8]) -> Result<Option<Estimate>> {
        [scores, others].into_iter().try_for_each(|scores| check_scores(scores, labels))?;
        // The same node at the same place of both.
        let order = descending(scores);
        let labels = picked(labels, &order);
        let sample = |scores| Sample::new(&picked(scores, &order), &labels, 0.0, &[]);
        let samples = [sample(scores)?, sample(others)?];
        let difference = |counts: [Counts; 2]| -> Option<f64> {
            let [own, other] = [0, 1].map(|at| samples[at].area(&counts[at]));
            Some(own? - other?)
        };
        let members = [0, 1].map(|class| samples[0].members[class].len());
        let Some(value) = difference([0, 1].map(|at| samples[at].observed())) else { return Ok(None) };
        if members.iter().any(|&count| (count as u64) < FEWEST) {
            return Ok(None);
        }
        let resampled: Vec<Measures> = (0..self.resamples)
            .into_par_iter()
            .map(|resample| vec![difference([0, 1].map(|at| self.draw(&samples[at], resample)))])
            .collect();
        Ok(Some(Estimate { value, interval: self.interval(&resampled, 0) }))
    }

    fn resampled(&self, sample: &Sample) -> Vec<Measures> {
        let one = |resample| sample.measures(&self.draw(sample, resample));
        (0..self.resamples).into_par_iter().map(one).collect()
    }

    /// How often every step was drawn, by class.
    fn draw(&self, sample: &Sample, resample: usize) -> Counts {
        let mut counts = vec![[0; 2]; sample.steps.len()];
        for (class, members) in sample.members.iter().enumerate() {
            self.draws(resample, class, members.len(), |member| counts[members[member] as usize][class] += 1);
        }
        counts
    }

    /// Draws as many of the members of a class as it has, evenly and with replacement, in no order that means anything.
    fn draws(&self, resample: usize, class: usize, members: usize, mut drawn: impl FnMut(usize)) {
        let stream = nth(nth(self.seed).wrapping_add(2 * resample as u64 + class as u64));
        let mut random = ChaCha8Rng::seed_from_u64(stream);
        let mut position = 0;
        for first in (0..members).step_by(BLOCK) {
            let (rest, size) = (members - first, BLOCK.min(members - first));
            let left = (members - position) as u64;
            // Of the draws that fell on no block before.
            let share = size as f64 / rest as f64;
            let count = Binomial::new(left, share).map_or(left, |binomial| binomial.sample(&mut random)) as usize;
            for position in position..position + count {
                let random = nth(stream.wrapping_add(position as u64));
                drawn(first + ((u128::from(random) * size as u128) >> 64) as usize);
            }
            position += count;
        }
    }

    /// The interval of one measure from its values in the resamples.
    pub(super) fn interval(&self, resampled: &[Measures], at: usize) -> Option<Interval> {
        let mut values: Vec<f64> = resampled.iter().filter_map(|measures| measures[at]).collect();
        if values.is_empty() || (values.len() as f64) < DEFINED * resampled.len() as f64 {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let tail = (1.0 - self.level) / 2.0;
        Some(Interval { low: quantile(&values, tail), high: quantile(&values, 1.0 - tail) })
    }
}

/// Quantile of ascending values with linear interpolation (the default of NumPy and R).
fn quantile(ascending: &[f64], share: f64) -> f64 {
    let place = share.clamp(0.0, 1.0) * (ascending.len() - 1) as f64;
    let (below, above) = (ascending[place.floor() as usize], ascending[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// Places of scores from the highest down.
fn descending(scores: &[f32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    order.par_sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));
    order
}

fn picked<T: Copy>(values: &[T], order: &[u32]) -> Vec<T> {
    order.iter().map(|&at| values[at as usize]).collect()
}

/// Normal and anomalous nodes of every step.
type Counts = Vec<[u32; 2]>;

/// Labelled scores, sorted once.
struct Sample {
    /// One per distinct score, from the highest down.
    steps: Vec<RankingStep>,
    /// The step of every normal and of every anomalous node, in the order of the input.
    members: [Vec<u32>; 2],
    /// Steps whose score is at least the threshold.
    flagged: usize,
    ks: Vec<u64>,
}

impl Sample {
    fn new(scores: &[f32], labels: &[u8], threshold: f64, ks: &[u64]) -> Result<Self> {
        let steps = Ranking::new(scores, labels)?.steps().to_vec();
        let mut members = [Vec::new(), Vec::new()];
        for (&score, &label) in scores.iter().zip(labels) {
            members[usize::from(label)].push(steps.partition_point(|step| step.score > score) as u32);
        }
        let flagged = steps.partition_point(|step| f64::from(step.score) >= threshold);
        Ok(Self { steps, members, flagged, ks: ks.to_vec() })
    }

    /// Every node once.
    fn observed(&self) -> Counts {
        let mut counts = vec![[0; 2]; self.steps.len()];
        for (class, members) in self.members.iter().enumerate() {
            members.iter().for_each(|&step| counts[step as usize][class] += 1);
        }
        counts
    }

    fn both_classes(&self) -> Option<[f64; 2]> {
        let [negatives, positives] = [0, 1].map(|class| self.members[class].len());
        (negatives > 0 && positives > 0).then_some([negatives as f64, positives as f64])
    }

    fn area(&self, counts: &Counts) -> Option<f64> {
        let [negatives, positives] = self.both_classes()?;
        let (mut above, mut doubled) = (0u64, 0u128);
        for &[normal, anomalous] in counts {
            doubled += u128::from(normal) * u128::from(2 * above + u64::from(anomalous));
            above += u64::from(anomalous);
        }
        Some(doubled as f64 / (2.0 * negatives * positives))
    }

    fn measures(&self, counts: &Counts) -> Measures {
        let positives = self.members[1].len() as u64;
        let nodes = positives + self.members[0].len() as u64;
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let mut measures = vec![self.area(counts)];
        let (mut found, mut seen, mut sum) = (0u64, 0u64, 0.0);
        let mut flagged = [0; 2];
        let mut top = self.ks.iter().map(|&k| (k.min(nodes), None)).collect::<Vec<(u64, Option<TopK>)>>();
        for (at, &[normal, anomalous]) in counts.iter().enumerate() {
            if at == self.flagged {
                flagged = [found, seen];
            }
            let (anomalous, tied) = (u64::from(anomalous), u64::from(anomalous) + u64::from(normal));
            for (k, place) in &mut top {
                if seen < *k && *k <= seen + tied {
                    let expected = found as f64 + anomalous as f64 * (*k - seen) as f64 / tied as f64;
                    let recall = (positives > 0).then(|| expected / positives as f64);
                    *place = Some(TopK { k: *k, precision: expected / *k as f64, recall });
                }
            }
            found += anomalous;
            seen += tied;
            if anomalous > 0 {
                sum += anomalous as f64 * found as f64 / seen as f64;
            }
        }
        if self.flagged == counts.len() {
            flagged = [found, seen];
        }
        measures.push(self.both_classes().map(|[_, positives]| sum / positives));
        measures.push(ratio(flagged[0], flagged[1]));
        measures.push(ratio(flagged[0], positives));
        measures.push(ratio(2 * flagged[0], flagged[1] + positives));
        measures.extend(
            top.iter().flat_map(|(_, place)| [place.map(|top| top.precision), place.and_then(|top| top.recall)]),
        );
        measures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Confusion;

    /// A number in (0, 1) for every counter.
    fn uniform(counter: u64) -> f64 {
        (nth(counter) >> 11) as f64 / (1u64 << 53) as f64 + 1e-17
    }

    fn normal(counter: u64) -> f64 {
        let (radius, angle) = (uniform(2 * counter), uniform(2 * counter + 1));
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// Anomalous nodes lie `shift` standard deviations higher.
    fn two_normals(positives: usize, negatives: usize, shift: f64, seed: u64) -> (Vec<f32>, Vec<u8>) {
        let labels: Vec<u8> = (0..positives + negatives).map(|at| u8::from(at < positives)).collect();
        let score =
            |(at, label): (usize, &u8)| (normal(seed * 1_000_003 + at as u64) + shift * f64::from(*label)) as f32;
        (labels.iter().enumerate().map(score).collect(), labels)
    }

    fn oracle(scores: &[f32], labels: &[u8], threshold: f64, ks: &[u64]) -> Measures {
        let ranking = Ranking::new(scores, labels).unwrap();
        let confusion = Confusion::at(scores, labels, threshold).unwrap();
        let mut measures = vec![
            ranking.roc_auc(),
            ranking.average_precision(),
            confusion.precision(),
            confusion.recall(),
            confusion.f1(),
        ];
        for &k in ks {
            let top = ranking.top_k(k);
            measures.extend([top.map(|top| top.precision), top.and_then(|top| top.recall)]);
        }
        measures
    }

    #[test]
    fn every_resample_has_the_metrics_of_the_nodes_that_were_drawn() {
        // Scores with many ties.
        let (scores, labels) = two_normals(13, 29, 0.8, 1);
        let scores: Vec<f32> = scores.iter().map(|score| (score * 3.0).round() / 3.0).collect();
        let ks = [1, 5, 13, 100];
        let order = descending(&scores);
        let (scores, labels) = (picked(&scores, &order), picked(&labels, &order));
        for threshold in [f64::from(scores[7]), 0.2, 50.0, -50.0] {
            let bootstrap = Bootstrap { resamples: 50, ..Bootstrap::default() };
            let sample = Sample::new(&scores, &labels, threshold, &ks).unwrap();
            let resampled = bootstrap.resampled(&sample);
            let classes = [0, 1].map(|class| (0..labels.len()).filter(|&at| labels[at] == class).collect::<Vec<_>>());
            for (resample, found) in resampled.iter().enumerate() {
                let mut drawn = (Vec::new(), Vec::new());
                for (class, members) in classes.iter().enumerate() {
                    bootstrap.draws(resample, class, members.len(), |member| {
                        drawn.0.push(scores[members[member]]);
                        drawn.1.push(labels[members[member]]);
                    });
                }
                let expected = oracle(&drawn.0, &drawn.1, threshold, &ks);
                for (found, expected) in found.iter().zip(&expected) {
                    match (found, expected) {
                        (Some(found), Some(expected)) => assert!((found - expected).abs() < 1e-12),
                        (found, expected) => assert_eq!(found, expected),
                    }
                }
            }
            assert!(resampled.windows(2).any(|pair| pair[0] != pair[1]), "resamples differ");
        }
    }

    #[test]
    fn the_values_are_those_of_the_nodes_themselves() {
        let (scores, labels) = two_normals(20, 30, 1.0, 2);
        let found = Bootstrap::default().estimate(&scores, &labels, 0.5, &[10]).unwrap();
        let expected = oracle(&scores, &labels, 0.5, &[10]);
        let top = found.top[0];
        let values = [found.roc_auc, found.average_precision, found.precision, found.recall, found.f1, top.precision];
        for (found, expected) in values.iter().chain([&top.recall]).zip(expected) {
            let (found, expected) = (found.unwrap(), expected.unwrap());
            let interval = found.interval.unwrap();
            assert!((found.value - expected).abs() < 1e-12);
            assert!(interval.low < found.value && found.value < interval.high, "{found:?}");
        }
    }

    #[test]
    fn a_class_is_drawn_evenly() {
        let bootstrap = Bootstrap::default();
        let mut counts = [0u32; 7];
        for resample in 0..2000 {
            bootstrap.draws(resample, 1, 7, |member| counts[member] += 1);
        }
        // 14,000 draws: 2,000 each, standard deviation 41.
        assert!(counts.iter().all(|count| count.abs_diff(2000) < 210), "{counts:?}");
    }

    #[test]
    fn a_class_of_several_blocks_is_drawn_evenly_and_as_if_at_once() {
        const MEMBERS: usize = 2 * BLOCK + BLOCK / 4;
        let bootstrap = Bootstrap::default();
        let (resamples, mut of_first, mut of_all) = (400usize, Vec::new(), vec![0u32; MEMBERS]);
        for resample in 0..resamples {
            let (mut first, mut all) = (0usize, 0usize);
            bootstrap.draws(resample, 0, MEMBERS, |member| {
                all += 1;
                first += usize::from(member < BLOCK);
                of_all[member] += 1;
            });
            assert_eq!(all, MEMBERS);
            of_first.push(first as f64);
        }
        // Binomial: mean 4,096, variance 4,096 * 5 / 9.
        let mean = of_first.iter().sum::<f64>() / resamples as f64;
        let variance = of_first.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (resamples - 1) as f64;
        let expected = BLOCK as f64 * 5.0 / 9.0;
        assert!((mean - BLOCK as f64).abs() < 4.0 * (expected / resamples as f64).sqrt(), "{mean}");
        assert!((variance / expected - 1.0).abs() < 4.0 * (2.0 / resamples as f64).sqrt(), "{variance}");
        // Each member once a resample in the mean, whatever its block: 400 draws, standard deviation 20.
        for block in of_all.chunks(BLOCK) {
            let mean = f64::from(block.iter().sum::<u32>()) / block.len() as f64;
            assert!((mean - 400.0).abs() < 4.0 * 20.0 / (block.len() as f64).sqrt(), "{mean}");
            assert!(block.iter().all(|&count| count.abs_diff(400) < 120), "{block:?}");
        }
    }

    #[test]
    fn intervals_cover_the_true_area_about_as_often_as_they_promise() {
        // P(N(1, 1) > N(0, 1)) = Phi(1 / sqrt 2).
        const TRUE_AREA: f64 = 0.760_249_938_906_523_4;
        let bootstrap = Bootstrap { resamples: 200, ..Bootstrap::default() };
        let covered = (0..300u64).filter(|&seed| {
            let (scores, labels) = two_normals(60, 60, 1.0, 100 + seed);
            let area = bootstrap.estimate(&scores, &labels, 0.5, &[]).unwrap().roc_auc.unwrap();
            let interval = area.interval.unwrap();
            interval.low <= TRUE_AREA && TRUE_AREA <= interval.high
        });
        let share = covered.count() as f64 / 300.0;
        // 0.95 with a standard error of 0.013, and percentile intervals of samples this small are a little short.
        assert!((0.90..=0.985).contains(&share), "{share}");
    }

    #[test]
    fn the_difference_of_two_areas_is_zero_for_the_same_scores_and_clear_for_noise() {
        let (scores, labels) = two_normals(60, 60, 1.5, 3);
        let bootstrap = Bootstrap::default();
        let same = bootstrap.area_difference(&scores, &scores, &labels).unwrap().unwrap();
        assert_eq!(same, Estimate { value: 0.0, interval: Some(Interval { low: 0.0, high: 0.0 }) });
        let (noise, _) = two_normals(60, 60, 0.0, 4);
        let better = bootstrap.area_difference(&scores, &noise, &labels).unwrap().unwrap();
        let areas = [&scores, &noise].map(|scores| Ranking::new(scores, &labels).unwrap().roc_auc().unwrap());
        assert!((better.value - (areas[0] - areas[1])).abs() < 1e-12);
        assert!(better.interval.unwrap().low > 0.0, "{better:?}");
    }

    #[test]
    fn few_nodes_of_a_class_have_no_interval_and_one_class_has_no_area() {
        let bootstrap = Bootstrap::default();
        let few = bootstrap.estimate(&[0.9, 0.8, 0.1, 0.2, 0.3, 0.4, 0.5], &[1, 1, 0, 0, 0, 0, 0], 0.5, &[]).unwrap();
        assert_eq!(few.roc_auc, Some(Estimate { value: 1.0, interval: None }));
        let one = bootstrap.estimate(&[0.5; 8], &[0; 8], 0.6, &[3]).unwrap();
        assert_eq!((one.roc_auc, one.precision, one.recall), (None, None, None));
        assert_eq!(one.top[0].precision, Some(Estimate { value: 0.0, interval: None }));
        assert!(bootstrap.estimate(&[0.5], &[2], 0.5, &[]).is_err());
        assert_eq!(bootstrap.area_difference(&[0.5; 8], &[0.5; 8], &[0; 8]).unwrap(), None);
    }

    #[test]
    fn the_same_nodes_on_any_number_of_threads_have_the_same_intervals() {
        let (scores, labels) = two_normals(40, 40, 1.0, 5);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Bootstrap::default().estimate(&scores, &labels, 0.5, &[10]).unwrap())
        };
        assert_eq!(run(1), run(3));
        let other = Bootstrap { seed: 7, ..Bootstrap::default() };
        assert_ne!(other.estimate(&scores, &labels, 0.5, &[10]).unwrap(), run(1));
    }

    #[test]
    fn quantiles_are_interpolated() {
        let values = [0.0, 1.0, 2.0, 4.0];
        assert_eq!([0.0, 0.5, 1.0].map(|share| quantile(&values, share)), [0.0, 1.5, 4.0]);
        assert_eq!(quantile(&values, 0.75), 2.5);
    }
}
