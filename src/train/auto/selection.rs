//! Which candidates form an ensemble, and its figure.
//!
//! The scores of candidates become probabilities by Platt's sigmoid, fitted to the validation labels; an ensemble is
//! the mean of those of its members, all of which count the same. The first members are the candidates whose average
//! precision is at most one standard error below the best, the best first: these labels cannot tell them apart, and
//! their mean errs less than one that chance has put first. Where there is room for more, the next member is always
//! what raises the average precision of the mean most, as long as something does. With few labels the error is large
//! and the first step decides; the second alone would stop at two or three members, as soon as the few anomalies are
//! ranked as well as they can be. With many labels the error is small, and the second step decides.
//!
//! The figure of an ensemble is nested: each of five parts of the validation labels is scored by the members and
//! sigmoids that the other parts choose by the same two steps, so that it stands beside the figures of candidates. Of
//! data that are split by group no group is in two parts.
//!
//! # Source
//! Caruana, Niculescu-Mizil, Crew and Ksikes, Ensemble selection from libraries of models (ICML 2004), with their
//! sorted initialisation; Breiman, Friedman, Olshen and Stone, Classification and Regression Trees (1984), for the rule
//! of one standard error.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::figure::figure;
use crate::error::Result;
use crate::metrics::{Calibration, average_precision};
use crate::run::ensemble::mean_probability;
use crate::train::stretch::Judged;

/// Parts of the validation labels for the figure.
const FOLDS: usize = 5;
/// Candidates that may become members: the best ones.
pub const MOST_CANDIDATES: usize = 10;

/// Members, the best by validation first, and the nested scores of the validation labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub members: Vec<usize>,
    pub scores: Vec<f32>,
}

/// The ensemble of at most `most` of the candidates whose `scores` of the validation labels these are; labels of one of
/// the `groups` stay together. `None` where no second one is of use, or a class has too few labels or groups to divide.
///
/// # Errors
/// [`Error::Data`] for scores that are not finite.
pub fn found(scores: &[Vec<f32>], labels: &[u8], groups: &[u32], most: usize) -> Result<Option<Found>> {
    if scores.len() < 2 || most < 2 {
        return Ok(None);
    }
    let Some((folds, fold_of)) = folds_of(labels, groups) else { return Ok(None) };
    let everything: Vec<usize> = (0..labels.len()).collect();
    let (members, _) = select(scores, labels, &everything, most)?;
    if members.len() < 2 {
        return Ok(None);
    }
    let mut nested = vec![0.0; labels.len()];
    for fold in 0..folds {
        let (held, others): (Vec<usize>, Vec<usize>) = everything.iter().copied().partition(|&at| fold_of[at] == fold);
        let (of_others, calibrations) = select(scores, labels, &others, most)?;
        let of_held: Vec<Vec<f32>> = of_others.iter().map(|&member| at(&scores[member], &held)).collect();
        let mean = mean_probability(&calibrations.iter().zip(&of_held).collect::<Vec<_>>());
        held.iter().zip(mean).for_each(|(&at, score)| nested[at] = score);
    }
    Ok(Some(Found { members, scores: nested }))
}

/// The number of parts and that of each label: whole groups, the largest first, each to the part that has least of what
/// the group has. Labels that stand alone go by turns within a class. `None` where a part would hold all of a class.
fn folds_of(labels: &[u8], groups: &[u32]) -> Option<(usize, Vec<usize>)> {
    let mut counts: BTreeMap<u32, [usize; 2]> = BTreeMap::new();
    for (&group, &label) in groups.iter().zip(labels) {
        counts.entry(group).or_default()[usize::from(label)] += 1;
    }
    let of_class = [0, 1].map(|class| counts.values().filter(|counts| counts[class] > 0).count());
    let total = [0, 1].map(|class| labels.iter().filter(|&&label| label == class).count());
    let folds = FOLDS.min(of_class[0]).min(of_class[1]);
    let mut order: Vec<(u32, [usize; 2])> = counts.into_iter().collect();
    order.sort_by_key(|(_, counts)| Reverse(counts[0] + counts[1]));
    let mut have = vec![[0usize; 2]; folds];
    let mut fold_of: BTreeMap<u32, usize> = BTreeMap::new();
    for (group, counts) in order {
        let share = |fold: usize, class: usize| have[fold][class] as f64 * counts[class] as f64 / total[class] as f64;
        let has = |fold: usize| share(fold, 0) + share(fold, 1);
        let fold = (0..folds).min_by(|&a, &b| has(a).total_cmp(&has(b)))?;
        (0..2).for_each(|class| have[fold][class] += counts[class]);
        fold_of.insert(group, fold);
    }
    let holds_all = |have: &[usize; 2]| (0..2).any(|class| have[class] == total[class]);
    (folds >= 2 && !have.iter().any(holds_all)).then(|| (folds, groups.iter().map(|group| fold_of[group]).collect()))
}

fn at<T: Copy>(values: &[T], places: &[usize]) -> Vec<T> {
    places.iter().map(|&at| values[at]).collect()
}

/// At most `most` of the candidates with these probabilities of the `labels`: those at most one standard error below
/// the best, the best first. Of those that say the same there is one.
fn first(probabilities: &[Vec<f32>], labels: &[u8], most: usize) -> Result<Vec<usize>> {
    let values = probabilities.iter().map(|own| average_precision(own, labels)).collect::<Result<Vec<f64>>>()?;
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    let best = order[0];
    let (_, error) = figure(&Judged::Anomalies { scores: probabilities[best].clone(), labels: labels.to_vec() })?;
    let enough = values[best] - error.unwrap_or(0.0);
    let mut members: Vec<usize> = Vec::new();
    for candidate in order.into_iter().filter(|&candidate| values[candidate] >= enough) {
        let is_new = members.iter().all(|&member| probabilities[member] != probabilities[candidate]);
        if is_new && members.len() < most {
            members.push(candidate);
        }
    }
    Ok(members)
}

/// Members and their sigmoids by the labels at some places.
fn select(scores: &[Vec<f32>], labels: &[u8], places: &[usize], most: usize) -> Result<(Vec<usize>, Vec<Calibration>)> {
    let labels = at(labels, places);
    let mut calibrations = Vec::with_capacity(scores.len());
    let mut probabilities = Vec::with_capacity(scores.len());
    for scores in scores {
        let scores = at(scores, places);
        let calibration = Calibration::platt(&scores, &labels)?;
        probabilities.push(mean_probability(&[(&calibration, &scores)]));
        calibrations.push(calibration);
    }
    let mut members = first(&probabilities, &labels, most)?;
    let mut sum = vec![0.0f32; labels.len()];
    for &member in &members {
        sum.iter_mut().zip(&probabilities[member]).for_each(|(sum, own)| *sum += own);
    }
    let mut reached = average_precision(&sum, &labels)?;
    while members.len() < most {
        let mut best: Option<(f64, usize, Vec<f32>)> = None;
        for candidate in (0..scores.len()).filter(|candidate| !members.contains(candidate)) {
            let with: Vec<f32> = sum.iter().zip(&probabilities[candidate]).map(|(sum, own)| sum + own).collect();
            let value = average_precision(&with, &labels)?;
            if best.as_ref().is_none_or(|(best, ..)| value > *best) {
                best = Some((value, candidate, with));
            }
        }
        match best {
            Some((value, candidate, with)) if value > reached + 1e-9 => {
                (reached, sum) = (value, with);
                members.push(candidate);
            }
            _ => break,
        }
    }
    let calibrations = members.iter().map(|&member| calibrations[member].clone()).collect();
    Ok((members, calibrations))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// Labels in no order, and scores that know as much of them as `knows`, the rest being noise of a seed.
    fn labels(count: u64) -> Vec<u8> {
        (0..count).map(|at| u8::from(noise(7, at) < 0.25)).collect()
    }

    fn noise(seed: u64, at: u64) -> f64 {
        let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9));
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 32)) as f64 / u64::MAX as f64
    }

    fn scores(labels: &[u8], seed: u64, knows: f64) -> Vec<f32> {
        let of = |(at, &label): (usize, &u8)| knows * f64::from(label) + (1.0 - knows) * noise(seed, at as u64);
        labels.iter().enumerate().map(|of_one| of(of_one) as f32).collect()
    }

    /// Every label in a group of its own.
    static ALONE: LazyLock<Vec<u32>> = LazyLock::new(|| (0..400).collect());

    #[test]
    fn candidates_that_err_elsewhere_are_better_together_and_copies_are_not() {
        let labels = labels(400);
        let good: Vec<Vec<f32>> = (1..4).map(|seed| scores(&labels, seed, 0.3)).collect();
        let value = |scores: &[f32]| average_precision(scores, &labels).unwrap();
        let together = found(&good, &labels, &ALONE, 3).unwrap().unwrap();
        assert!(together.members.len() >= 2, "{together:?}");
        let best = good.iter().map(|own| value(own)).fold(0.0, f64::max);
        assert!(value(&together.scores) > best + 0.02, "{} against {best}", value(&together.scores));
        assert_eq!(
            found(&[good[0].clone(), good[0].clone()], &labels, &ALONE, 3).unwrap(),
            None,
            "a copy adds nothing"
        );
        assert_eq!(found(&good, &labels, &ALONE, 1).unwrap(), None);
        assert_eq!(found(&good[..1], &labels, &ALONE, 3).unwrap(), None);
        assert_eq!(found(&good, &labels, &ALONE, 2).unwrap().unwrap().members.len(), 2);
        let few: Vec<u8> = (0..400).map(|at| u8::from(at == 5)).collect();
        assert_eq!(found(&good, &few, &ALONE, 3).unwrap(), None, "a single anomaly cannot be divided");
    }

    #[test]
    fn among_many_candidates_that_know_nothing_the_figure_is_chance() {
        let labels = labels(400);
        let share = labels.iter().filter(|&&label| label == 1).count() as f64 / 400.0;
        let mut sum = 0.0;
        for draw in 0..6u64 {
            let blind: Vec<Vec<f32>> = (0..10).map(|seed| scores(&labels, 100 * draw + seed + 11, 0.0)).collect();
            let Some(of) = found(&blind, &labels, &ALONE, 3).unwrap() else { continue };
            // On the labels that chose the members they look better than they are.
            let (members, calibrations) = select(&blind, &labels, &(0..400).collect::<Vec<_>>(), 3).unwrap();
            let own: Vec<(&Calibration, &Vec<f32>)> =
                calibrations.iter().zip(members.iter().map(|&member| &blind[member])).collect();
            let chosen = average_precision(&mean_probability(&own), &labels).unwrap();
            let nested = average_precision(&of.scores, &labels).unwrap();
            assert!(chosen > nested, "{chosen} {nested}");
            sum += nested - share;
        }
        assert!((sum / 6.0).abs() < 0.04, "{} beside chance", sum / 6.0);
    }

    /// The same of candidates that mostly err at the same labels, where `common` is the same.
    fn alike(labels: &[u8], common: u64, seed: u64, knows: f64) -> Vec<f32> {
        let error = |at: u64| 0.7 * noise(common, at) + 0.3 * noise(seed, at);
        let of = |(&label, at): (&u8, u64)| (knows * f64::from(label) + (1.0 - knows) * error(at)) as f32;
        labels.iter().zip(0..).map(of).collect()
    }

    /// Labels of which a fifth is anomalous.
    fn fifth(count: u64, seed: u64) -> Vec<u8> {
        (0..count).map(|at| u8::from(noise(seed, at) < 0.2)).collect()
    }

    #[test]
    fn candidates_that_few_labels_cannot_tell_apart_are_members_and_rank_better_than_the_one_that_comes_first() {
        let mut gained = 0.0;
        for draw in 0..3u64 {
            let known = fifth(100, 40 + draw);
            let said: Vec<Vec<f32>> = (1..9).map(|of| alike(&known, 500 + draw, 1000 * draw + of, 0.15)).collect();
            let everything: Vec<usize> = (0..100).collect();
            let (members, calibrations) = select(&said, &known, &everything, 5).unwrap();
            assert_eq!(members.len(), 5, "as many as may be: {members:?}");
            let value = |member: usize| average_precision(&said[member], &known).unwrap();
            assert!(members.windows(2).all(|pair| value(pair[0]) >= value(pair[1])), "the best first: {members:?}");
            // On labels that chose nothing.
            let unseen = fifth(4000, 900 + draw);
            let said = members.iter().map(|&of| alike(&unseen, 700 + draw, 5000 * draw + of as u64 + 77, 0.15));
            let said: Vec<Vec<f32>> = said.collect();
            let mean = mean_probability(&calibrations.iter().zip(&said).collect::<Vec<_>>());
            let [mean, first] = [&mean, &said[0]].map(|scores| average_precision(scores, &unseen).unwrap());
            assert!(mean > first, "{draw}: {mean} {first}");
            gained += (mean - first) / 3.0;
        }
        assert!(gained > 0.03, "{gained}");
    }

    #[test]
    fn a_candidate_that_is_worse_by_more_than_a_standard_error_is_none_of_the_first_members() {
        for count in [100, 4000] {
            let labels = fifth(count, 40);
            let knows = [0.1, 0.3, 0.1, 0.1].into_iter().zip(1..);
            let scores: Vec<Vec<f32>> = knows.map(|(knows, seed)| alike(&labels, 500, seed, knows)).collect();
            assert_eq!(first(&scores, &labels, 5).unwrap(), [1]);
            let twice = [scores[1].clone(), scores[0].clone(), scores[1].clone()];
            assert_eq!(first(&twice, &labels, 5).unwrap(), [0], "of those that say the same there is one");
        }
        // So few anomalies have no standard error: the best alone is first.
        let labels: Vec<u8> = (0..50).map(|at| u8::from(at % 20 == 0)).collect();
        let scores: Vec<Vec<f32>> =
            [0.3, 0.29].into_iter().zip(1..).map(|(of, seed)| alike(&labels, 5, seed, of)).collect();
        assert_eq!(first(&scores, &labels, 5).unwrap().len(), 1);
    }

    #[test]
    fn labels_that_stand_alone_are_divided_by_turns_within_a_class() {
        let labels = labels(400);
        let (folds, fold_of) = folds_of(&labels, &ALONE).unwrap();
        assert_eq!(folds, FOLDS);
        for class in 0..2 {
            let of_class = (0..400).filter(|&at| labels[at] == class).map(|at| fold_of[at]);
            assert!(of_class.enumerate().all(|(turn, fold)| fold == turn % FOLDS), "{fold_of:?}");
        }
    }

    #[test]
    fn labels_of_a_group_are_in_one_part_and_every_part_leaves_both_classes() {
        let labels = labels(400);
        let groups: Vec<u32> = (0..400).map(|at| (noise(3, at) * 60.0) as u32).collect();
        let (folds, fold_of) = folds_of(&labels, &groups).unwrap();
        assert_eq!(folds, FOLDS);
        let mut of_group: BTreeMap<u32, usize> = BTreeMap::new();
        for (&group, &fold) in groups.iter().zip(&fold_of) {
            assert_eq!(*of_group.entry(group).or_insert(fold), fold, "group {group}");
        }
        for fold in 0..folds {
            let size = fold_of.iter().filter(|&&of| of == fold).count();
            assert!((50..=110).contains(&size), "{size}");
        }
        // Two groups have all anomalies.
        let pairs: Vec<u32> =
            labels.iter().zip(0..).map(|(&label, at)| if label == 1 { at % 2 } else { at + 2 }).collect();
        assert_eq!(folds_of(&labels, &pairs).unwrap().0, 2);
        let one: Vec<u32> = labels.iter().zip(0..).map(|(&label, at)| if label == 1 { 0 } else { at + 1 }).collect();
        assert_eq!(folds_of(&labels, &one), None, "one group has all anomalies");
    }
}
