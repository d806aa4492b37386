//! The labelled subset: every anomaly, and as many normal nodes of the same degrees.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Two degrees of a node; logarithmic bins of both are matched.
pub(super) type Degrees = [usize; 2];

/// Local ids of normal nodes, one for each of `anomalies`, with degrees as near as the pools allow.
///
/// The first `hard_share` of them come from `hard` (nodes in benign dense groups) while it lasts, the others from
/// `ordinary`. A pool that runs dry leaves the result shorter.
pub(super) fn match_degrees(
    anomalies: &[u32],
    hard: &[u32],
    ordinary: &[u32],
    hard_share: f64,
    degrees: impl Fn(u32) -> Degrees,
    rng: &mut ChaCha8Rng,
) -> Vec<u32> {
    let mut wanted = anomalies.to_vec();
    wanted.shuffle(rng);
    let num_hard = ((wanted.len() as f64 * hard_share).round() as usize).min(hard.len());
    let mut hard = Pool::new(hard, &degrees, rng);
    let mut ordinary = Pool::new(ordinary, &degrees, rng);
    let mut chosen = Vec::with_capacity(wanted.len());
    for (i, &anomaly) in wanted.iter().enumerate() {
        let pool = if i < num_hard { &mut hard } else { &mut ordinary };
        chosen.extend(pool.take_nearest(degrees(anomaly)));
    }
    chosen
}

/// Candidates by bin of their degrees.
struct Pool {
    bins: BTreeMap<[i32; 2], Vec<u32>>,
}

impl Pool {
    fn new(candidates: &[u32], degrees: impl Fn(u32) -> Degrees, rng: &mut ChaCha8Rng) -> Self {
        let mut candidates = candidates.to_vec();
        candidates.shuffle(rng);
        let mut bins: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for candidate in candidates {
            bins.entry(bin(degrees(candidate))).or_default().push(candidate);
        }
        Self { bins }
    }

    fn take_nearest(&mut self, degrees: Degrees) -> Option<u32> {
        let [a, b] = bin(degrees);
        let distance = |key: &[i32; 2]| (key[0] - a).pow(2) + (key[1] - b).pow(2);
        let key = *self.bins.keys().min_by_key(|key| distance(key))?;
        let ids = self.bins.get_mut(&key)?;
        let id = ids.pop();
        if ids.is_empty() {
            self.bins.remove(&key);
        }
        id
    }
}

/// Bins of width 1 for small degrees and of about 12 % for large ones.
fn bin(degrees: Degrees) -> [i32; 2] {
    degrees.map(|d| if d < 8 { d as i32 } else { ((d as f64 / 8.0).ln() * 8.0) as i32 + 8 })
}

#[cfg(test)]
mod tests {
    use super::super::rng::{Domain, item_rng};
    use super::*;

    #[test]
    fn matches_have_the_degrees_of_the_anomalies_and_no_node_is_taken_twice() {
        let degrees = |id: u32| [(id % 50) as usize, (id % 7) as usize];
        let anomalies: Vec<u32> = (0..100).collect();
        let ordinary: Vec<u32> = (100..5_000).collect();
        let chosen = match_degrees(&anomalies, &[], &ordinary, 0.3, degrees, &mut item_rng(1, Domain::Labels, 0));
        assert_eq!(chosen.len(), 100);
        let sum = |ids: &[u32]| ids.iter().map(|&id| degrees(id)[0]).sum::<usize>() as i64;
        assert!((sum(&chosen) - sum(&anomalies)).abs() < 100, "{} for {}", sum(&chosen), sum(&anomalies));
        let mut distinct = chosen.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 100);
    }

    #[test]
    fn hard_negatives_are_used_first_and_an_exhausted_pool_shortens_the_result() {
        let chosen =
            match_degrees(&[0, 1, 2, 3], &[10, 11], &[20], 0.5, |_| [1, 1], &mut item_rng(1, Domain::Labels, 0));
        assert_eq!(chosen.len(), 3);
        assert!(chosen.contains(&10) && chosen.contains(&11) && chosen.contains(&20));
    }
}
