//! Weak labels: heuristics that call some nodes anomalous, not verified fraud.

use rand::SeedableRng;
use rand::seq::index;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::catalogue::Catalogue;
use super::features::mean;
use super::reviews::{Reviews, verified_ratio};
use crate::error::{Error, Result};
use crate::graph::Labels;

/// Thresholds of the heuristics.
///
/// A product is anomalous if any of these holds:
/// * its mean rating is at least `product_min_rating`, its price below `product_price_ratio` of the median of its
///   category, and its title does not name its brand (a product without brand is not judged);
/// * more than `product_max_also_buy` other products are listed as bought with it, but less than
///   `product_min_verified` of its reviews are verified purchases (a product without reviews is not judged);
/// * its core number reaches the percentile `core_percentile` of the products.
///
/// A user is anomalous if any of these holds:
/// * its core number reaches the percentile `core_percentile` of the users, and less than `user_min_verified` of its
///   reviews are verified purchases;
/// * it wrote more than `user_max_burst` reviews with one timestamp.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WeakLabelConfig {
    /// Mean rating in stars, [1, 5]; default 4.8.
    pub product_min_rating: f64,
    /// Part of the median price of the category, (0, 1]; default 0.15. The category is the most special one of the
    /// product with at least `category_min_prices` priced products.
    pub product_price_ratio: f64,
    /// Prices needed for a median, at least 1; default 5.
    pub category_min_prices: usize,
    /// Number of products; default 80.
    pub product_max_also_buy: u32,
    /// Share of the reviews, [0, 1]; default 0.25.
    pub product_min_verified: f64,
    /// Percentile of the core numbers within a node type, (0, 100]; default 99.4.
    pub core_percentile: f64,
    /// Share of the reviews, [0, 1]; default 0.20.
    pub user_min_verified: f64,
    /// Number of reviews; default 35.
    pub user_max_burst: usize,
}

impl Default for WeakLabelConfig {
    fn default() -> Self {
        Self {
            product_min_rating: 4.8,
            product_price_ratio: 0.15,
            category_min_prices: 5,
            product_max_also_buy: 80,
            product_min_verified: 0.25,
            core_percentile: 99.4,
            user_min_verified: 0.20,
            user_max_burst: 35,
        }
    }
}

impl WeakLabelConfig {
    /// Checks that every threshold lies in its range.
    ///
    /// # Errors
    /// [`Error::Config`] naming the first one that does not.
    pub fn validate(&self) -> Result<()> {
        let ranges = [
            ("product_min_rating", self.product_min_rating, 1.0, 5.0),
            ("product_price_ratio", self.product_price_ratio, 0.0, 1.0),
            ("category_min_prices", self.category_min_prices as f64, 1.0, f64::MAX),
            ("product_min_verified", self.product_min_verified, 0.0, 1.0),
            ("core_percentile", self.core_percentile, 0.0, 100.0),
            ("user_min_verified", self.user_min_verified, 0.0, 1.0),
        ];
        match ranges.into_iter().find(|(_, value, low, high)| !(low..=high).contains(&value)) {
            None => Ok(()),
            Some((key, value, low, high)) => Err(Error::Config {
                origin: "weak labels".into(),
                key: key.into(),
                expected: if high == f64::MAX { format!("at least {low}") } else { format!("{low} to {high}") },
                found: value.to_string(),
                help: "leave the key out for the default".into(),
            }),
        }
    }
}

/// How many nodes each rule found; a node found by two rules counts in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReasonCounts {
    /// Products: top rated, far below the price of their category, brand not in the title.
    pub product_too_cheap: usize,
    /// Products: listed with many others, but hardly any verified review.
    pub product_unverified: usize,
    /// Products: in the densest core of the review graph.
    pub product_dense_core: usize,
    /// Users: in the densest core, with hardly any verified review.
    pub user_dense_core: usize,
    /// Users: many reviews with one timestamp.
    pub user_burst: usize,
    /// Core number from which on a product counts as dense. Core numbers are small integers, so many nodes may share
    /// this one, and the rule may find far more of them than the percentile suggests.
    pub product_core_threshold: f64,
    /// Likewise for users.
    pub user_core_threshold: f64,
}

/// Core numbers of the users and of the products in the review graph.
pub(super) struct CoreNumbers<'a> {
    pub users: &'a [u32],
    pub products: &'a [u32],
}

/// Anomalous users and products by the rules of `config`, and as many random normal nodes of the same type (fewer when
/// there are not so many), by ascending global id. Sellers get no labels: no rule is about them.
pub(super) fn weak_labels(
    catalogue: &Catalogue,
    reviews: &Reviews,
    cores: &CoreNumbers,
    config: &WeakLabelConfig,
    seed: u64,
) -> (Labels, ReasonCounts) {
    let medians = category_medians(catalogue, config.category_min_prices);
    let product_core_threshold = percentile(cores.products, config.core_percentile);
    let products: Vec<[bool; 3]> = (0..catalogue.products.len())
        .into_par_iter()
        .map(|p| {
            let product = catalogue.products[p];
            let own = reviews.of_product(p);
            let rating = mean(own.clone().filter_map(|review| review.rating.map(f64::from)));
            // From special to general, as the row goes from general to special.
            let median = catalogue.categories.row(p).iter().rev().find_map(|&category| medians[category as usize]);
            let cheap = product
                .price
                .zip(median)
                .is_some_and(|(price, median)| f64::from(price) < config.product_price_ratio * f64::from(median));
            let top_rated = rating.is_some_and(|rating| rating >= config.product_min_rating);
            let unverified = verified_ratio(own).is_some_and(|ratio| ratio < config.product_min_verified);
            [
                top_rated && cheap && product.brand_in_title == Some(false),
                product.also_buy > config.product_max_also_buy && unverified,
                is_dense(cores.products[p], product_core_threshold),
            ]
        })
        .collect();
    let user_core_threshold = percentile(cores.users, config.core_percentile);
    let users: Vec<[bool; 2]> = (0..reviews.users.len())
        .into_par_iter()
        .map(|u| {
            let own = reviews.of_user(u);
            let unverified = verified_ratio(own.clone()).is_some_and(|ratio| ratio < config.user_min_verified);
            let mut times: Vec<u32> = own.filter_map(|review| review.time).collect();
            times.sort_unstable();
            let burst = times.chunk_by(|a, b| a == b).any(|run| run.len() > config.user_max_burst);
            [is_dense(cores.users[u], user_core_threshold) && unverified, burst]
        })
        .collect();

    let reasons = ReasonCounts {
        product_too_cheap: products.iter().filter(|fired| fired[0]).count(),
        product_unverified: products.iter().filter(|fired| fired[1]).count(),
        product_dense_core: products.iter().filter(|fired| fired[2]).count(),
        user_dense_core: users.iter().filter(|fired| fired[0]).count(),
        user_burst: users.iter().filter(|fired| fired[1]).count(),
        product_core_threshold,
        user_core_threshold,
    };
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut entries = with_normals(0, users.iter().map(|fired| fired.contains(&true)), &mut rng);
    entries.extend(with_normals(users.len(), products.iter().map(|fired| fired.contains(&true)), &mut rng));
    (Labels { entries }, reasons)
}

/// All anomalous nodes of one type and as many random others, by ascending id.
fn with_normals(offset: usize, anomalous: impl Iterator<Item = bool>, rng: &mut ChaCha8Rng) -> Vec<(u32, u8)> {
    let (positives, others): (Vec<_>, Vec<_>) =
        anomalous.enumerate().map(|(i, yes)| ((offset + i) as u32, u8::from(yes))).partition(|&(_, class)| class == 1);
    let amount = positives.len().min(others.len());
    let normals = index::sample(rng, others.len(), amount);
    let mut entries: Vec<(u32, u8)> = normals.iter().map(|i| others[i]).chain(positives).collect();
    entries.sort_unstable();
    entries
}

/// Median price of every category with at least `min_prices` prices.
fn category_medians(catalogue: &Catalogue, min_prices: usize) -> Vec<Option<f32>> {
    let mut prices: Vec<Vec<f32>> = vec![Vec::new(); catalogue.category_names.len()];
    for (product, categories) in catalogue.products.iter().zip(catalogue.categories.rows()) {
        if let Some(price) = product.price {
            categories.iter().for_each(|&category| prices[category as usize].push(price));
        }
    }
    prices
        .par_iter_mut()
        .map(|prices| {
            prices.sort_unstable_by(f32::total_cmp);
            let middle = prices.len() / 2;
            match prices.len() {
                0 => None,
                n if n < min_prices => None,
                n if n % 2 == 0 => Some((prices[middle - 1] + prices[middle]) / 2.0),
                _ => Some(prices[middle]),
            }
        })
        .collect()
}

/// Percentile with linear interpolation between the two nearest ranks (numpy's default).
fn percentile(values: &[u32], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let Some(last) = sorted.len().checked_sub(1) else { return f64::INFINITY };
    let rank = percent / 100.0 * last as f64;
    let (low, part) = (rank.floor() as usize, rank.fract());
    f64::from(sorted[low]) * (1.0 - part) + f64::from(sorted[(low + 1).min(last)]) * part
}

/// A node without any edge is in no core, even where the percentile is 0.
fn is_dense(core: u32, threshold: f64) -> bool {
    core > 0 && f64::from(core) >= threshold
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_interpolate_between_ranks() {
        assert_eq!(percentile(&[4, 1, 3, 2], 50.0), 2.5);
        assert_eq!(percentile(&[7], 99.4), 7.0);
        assert_eq!(percentile(&[], 99.4), f64::INFINITY);
        assert!(!is_dense(0, 0.0));
    }

    #[test]
    fn every_anomaly_gets_a_normal_partner_by_seed() {
        let pick = |seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            with_normals(100, (0..50).map(|i| i % 10 == 3), &mut rng)
        };
        let entries = pick(1);
        assert_eq!(entries.iter().filter(|(_, class)| *class == 1).count(), 5);
        assert_eq!(entries.iter().filter(|(_, class)| *class == 0).count(), 5);
        assert!(entries.is_sorted() && entries.iter().all(|(id, class)| (*class == 1) == (id % 10 == 3)));
        assert_eq!(entries, pick(1));
        assert_ne!(entries, pick(2));
    }

    #[test]
    fn thresholds_outside_their_range_are_named() {
        let config = WeakLabelConfig { user_min_verified: f64::NAN, ..Default::default() };
        assert!(config.validate().unwrap_err().to_string().contains("user_min_verified = NaN"));
        assert!(WeakLabelConfig::default().validate().is_ok());
    }
}
