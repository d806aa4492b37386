//! Counter-based random numbers: every user, product, customer and group has a stream of its own, whatever thread asks
//! for it.

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What a random stream is for; streams of different domains never overlap.
#[derive(Clone, Copy)]
pub(super) enum Domain {
    Catalogue = 1,
    Scheme,
    Tastes,
    Reviews,
    Panel,
    Basis,
    Features,
    Labels,
    Customers,
    Terminals,
    Payments,
    Compromised,
}

/// The stream of one `item` (a local id, or 0 where a domain has a single stream).
pub(super) fn item_rng(seed: u64, domain: Domain, item: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((domain as u64) << 48 | item as u64);
    rng
}

/// Nearly normal number with mean 0 and variance 1: the sum of four uniform ones, from a single 64-bit draw.
pub(super) fn normal(rng: &mut ChaCha8Rng) -> f32 {
    const MEAN: f32 = 2.0 * 65_535.0;
    const STD: f32 = 37_837.23; // sqrt(4 * (65_536^2 - 1) / 12)
    let bits = rng.next_u64();
    let sum = (bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48);
    (sum as f32 - MEAN) / STD
}

/// Geometric number (0, 1, 2, ...) with the given mean.
pub(super) fn geometric(rng: &mut ChaCha8Rng, mean: f64) -> usize {
    if mean <= 0.0 {
        return 0;
    }
    let failure = mean / (1.0 + mean);
    ((1.0 - rng.random::<f64>()).ln() / failure.ln()) as usize
}

/// Index drawn from cumulative weights `cumulative[0] = 0 <= cumulative[1] <= ...`; needs a positive total.
pub(super) fn draw(rng: &mut ChaCha8Rng, cumulative: &[f64]) -> usize {
    let last = cumulative.len() - 1;
    let x = rng.random::<f64>() * cumulative[last];
    cumulative[1..].partition_point(|&c| c <= x).min(last - 1)
}

/// Prefix sums that [`draw`] takes, one entry longer than `weights`.
pub(super) fn cumulative(weights: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sums = vec![0.0];
    let mut total = 0.0;
    for weight in weights {
        total += weight;
        sums.push(total);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut rng = item_rng(3, Domain::Features, 0);
        let draws: Vec<f64> = (0..40_000).map(|_| f64::from(normal(&mut rng))).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "mean {mean}, variance {variance}");
    }

    #[test]
    fn geometric_numbers_have_the_requested_mean() {
        let mut rng = item_rng(3, Domain::Tastes, 0);
        let mean = (0..40_000).map(|_| geometric(&mut rng, 4.0)).sum::<usize>() as f64 / 40_000.0;
        assert!((mean - 4.0).abs() < 0.1, "{mean}");
        assert_eq!(geometric(&mut rng, 0.0), 0);
    }

    #[test]
    fn draws_follow_the_weights_and_never_hit_a_weight_of_zero() {
        let sums = cumulative([1.0, 0.0, 3.0, 0.0]);
        let mut rng = item_rng(3, Domain::Catalogue, 0);
        let mut counts = [0; 4];
        (0..10_000).for_each(|_| counts[draw(&mut rng, &sums)] += 1);
        assert_eq!((counts[1], counts[3]), (0, 0));
        assert!((2_300..2_700).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn streams_differ_by_seed_domain_and_item() {
        let first = |seed, domain, item| item_rng(seed, domain, item).next_u64();
        let reference = first(1, Domain::Reviews, 1);
        assert_eq!(reference, first(1, Domain::Reviews, 1));
        for other in [first(2, Domain::Reviews, 1), first(1, Domain::Panel, 1), first(1, Domain::Reviews, 2)] {
            assert_ne!(reference, other);
        }
    }
}
