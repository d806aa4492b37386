//! The 128 feature columns of every node.
//!
//! - product: 0..96 text, 96..120 categories, 120..128 behaviour: price, reviews, mean rating, rating variance, time
//!   span, helpful votes, words per review, mean mismatch of sentiment and rating
//! - user: 0..112 category preference, 112..128 behaviour: reviews, mean rating, rating variance, shares of
//!   ratings >= 4 and <= 2, words per review, lexical diversity, mismatch, votes, time span per review, six zeros
//! - seller: 0..112 mean of columns 0..120 of the seller's products, 112..128 catalogue: products, mean price, price
//!   variance, reviews, mean rating, eleven zeros
//!
//! Behaviour columns are min-max scaled to [0, 1] over the nodes of the type that have the value; the others get 0.
//! Categories and product means are reduced by fixed random projections that depend on the seed and on the names alone.

use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use super::catalogue::Catalogue;
use super::reviews::{Review, Reviews};
use crate::data::text::TextColumns;
use crate::data::text::hashing::{add_random_direction, hash_text};
use crate::graph::Adjacency;

/// Feature columns of a node.
pub(super) const DIM: usize = 128;
/// Text columns of a product.
pub(super) const TEXT_COLUMNS: usize = 96;
/// Text and category columns of a product: what a seller inherits.
const CONTENT_COLUMNS: usize = 120;

/// Values of `K` behaviour columns of one node.
type Behaviour<const K: usize> = [Option<f64>; K];

/// All features, row-major, users before products before sellers. `products_of` is seller <- product.
pub(super) fn assemble(
    catalogue: &Catalogue,
    reviews: &Reviews,
    products_of: &Adjacency,
    text: &TextColumns,
    seed: u64,
) -> Vec<f16> {
    let counts = [reviews.users.len(), catalogue.ids.len(), catalogue.sellers.len()];
    let mut values = vec![f16::ZERO; counts.iter().sum::<usize>() * DIM];
    let (users, rest) = values.split_at_mut(counts[0] * DIM);
    let (products, sellers) = rest.split_at_mut(counts[1] * DIM);
    let category_hash: Vec<u64> = catalogue.category_names.par_iter().map(|name| hash_text(name)).collect();
    let categories = Categories { catalogue, hash: category_hash, seed };

    fill_rows(
        products,
        |p| product_behaviour(catalogue, reviews, p),
        |p, content| {
            let (text_part, category_part) = content.split_at_mut(TEXT_COLUMNS);
            text.write(p, text_part);
            categories.write([p as u32].into_iter(), category_part);
        },
    );
    fill_rows(
        users,
        |u| user_behaviour(reviews, u),
        |u, content| {
            // Reviews are sorted by product, so repeated purchases of one product stand together.
            let mut bought: Vec<u32> = reviews.of_user(u).map(|review| review.product).collect();
            bought.dedup();
            categories.write(bought.into_iter(), content);
        },
    );
    let content_of = |p: u32| &products[p as usize * DIM..p as usize * DIM + CONTENT_COLUMNS];
    fill_rows(
        sellers,
        |s| seller_behaviour(catalogue, reviews, products_of.row(s)),
        |s, content| {
            let mut mean = [0.0_f32; CONTENT_COLUMNS];
            let mut row = [0.0_f32; CONTENT_COLUMNS];
            for &product in products_of.row(s) {
                content_of(product).convert_to_f32_slice(&mut row);
                mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
            let count = products_of.degree(s).max(1) as f32;
            for (column, sum) in mean.into_iter().enumerate().filter(|(_, sum)| *sum != 0.0) {
                add_random_direction(column as u64, seed, sum / count, content);
            }
        },
    );
    values
}

/// Fills rows in parallel: the first `DIM - K` columns by `write_content`, the last `K` with the scaled behaviour.
fn fill_rows<const K: usize>(
    rows: &mut [f16],
    behaviour: impl Fn(usize) -> Behaviour<K> + Sync,
    write_content: impl Fn(usize, &mut [f32]) + Sync,
) {
    let behaviours: Vec<Behaviour<K>> = (0..rows.len() / DIM).into_par_iter().map(&behaviour).collect();
    let empty = [(f64::INFINITY, f64::NEG_INFINITY); K];
    let ranges = behaviours.iter().fold(empty, |mut ranges, row| {
        for ((low, high), value) in ranges.iter_mut().zip(row) {
            if let Some(value) = value {
                (*low, *high) = (low.min(*value), high.max(*value));
            }
        }
        ranges
    });
    rows.par_chunks_mut(DIM).zip(&behaviours).enumerate().for_each(|(i, (row, behaviour))| {
        let mut wide = [0.0_f32; DIM];
        let (content, tail) = wide.split_at_mut(DIM - K);
        write_content(i, content);
        for ((out, value), (low, high)) in tail.iter_mut().zip(behaviour).zip(ranges) {
            // A column with one value says nothing, and a missing value is 0.
            *out = value.filter(|_| high > low).map_or(0.0, |value| ((value - low) / (high - low)) as f32);
        }
        row.convert_from_f32_slice(&wide);
    });
}

struct Categories<'a> {
    catalogue: &'a Catalogue,
    hash: Vec<u64>,
    seed: u64,
}

impl Categories<'_> {
    /// Writes the projection of the category counts of `products`, scaled to length one before the projection.
    fn write(&self, products: impl Iterator<Item = u32>, out: &mut [f32]) {
        let mut all: Vec<u32> = products.flat_map(|p| self.catalogue.categories.row(p as usize)).copied().collect();
        all.sort_unstable();
        let counts = || all.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as f32));
        let length = counts().map(|(_, count)| count * count).sum::<f32>().sqrt();
        for (category, count) in counts() {
            add_random_direction(self.hash[category as usize], self.seed, count / length, out);
        }
    }
}

fn product_behaviour(catalogue: &Catalogue, reviews: &Reviews, p: usize) -> Behaviour<8> {
    let own = reviews.of_product(p);
    let ratings = mean_and_variance(own.clone().filter_map(|review| review.rating.map(f64::from)));
    [
        catalogue.products[p].price.map(f64::from),
        Some(own.clone().count() as f64),
        ratings.map(|(mean, _)| mean),
        ratings.map(|(_, variance)| variance),
        time_span(own.clone()),
        Some(votes(own.clone())),
        mean(own.clone().map(|review| f64::from(review.words))),
        mean(own.filter_map(|review| review.mismatch.map(f64::from))),
    ]
}

fn user_behaviour(reviews: &Reviews, u: usize) -> Behaviour<16> {
    let own = reviews.of_user(u);
    let ratings = own.clone().filter_map(|review| review.rating.map(f64::from));
    let moments = mean_and_variance(ratings.clone());
    let share = |wanted: fn(f64) -> bool| mean(ratings.clone().map(|stars| f64::from(u8::from(wanted(stars)))));
    let count = own.clone().count() as f64;
    let words: f64 = own.clone().map(|review| f64::from(review.words)).sum();
    let known = [
        Some(count),
        moments.map(|(mean, _)| mean),
        moments.map(|(_, variance)| variance),
        share(|stars| stars >= 4.0),
        share(|stars| stars <= 2.0),
        Some(words / count),
        // Different words per word; the sketch may overshoot a little.
        (words > 0.0).then(|| (reviews.vocabularies[u].estimate() / words).min(1.0)),
        mean(own.clone().filter_map(|review| review.mismatch.map(f64::from))),
        Some(votes(own.clone())),
        time_span(own).map(|span| span / count),
    ];
    std::array::from_fn(|column| known.get(column).copied().flatten())
}

fn seller_behaviour(catalogue: &Catalogue, reviews: &Reviews, products: &[u32]) -> Behaviour<16> {
    let prices =
        mean_and_variance(products.iter().filter_map(|&p| catalogue.products[p as usize].price.map(f64::from)));
    let own = products.iter().flat_map(|&p| reviews.of_product(p as usize));
    let known = [
        Some(products.len() as f64),
        prices.map(|(mean, _)| mean),
        prices.map(|(_, variance)| variance),
        Some(own.clone().count() as f64),
        mean(own.filter_map(|review| review.rating.map(f64::from))),
    ];
    std::array::from_fn(|column| known.get(column).copied().flatten())
}

fn votes<'a>(reviews: impl Iterator<Item = &'a Review>) -> f64 {
    reviews.map(|review| f64::from(review.votes)).sum()
}

/// Seconds between the first and the last review.
fn time_span<'a>(reviews: impl Iterator<Item = &'a Review> + Clone) -> Option<f64> {
    let times = reviews.filter_map(|review| review.time);
    Some(f64::from(times.clone().max()? - times.min()?))
}

pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// Mean and population variance.
fn mean_and_variance(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let centre = mean(values.clone())?;
    let variance = mean(values.map(|value| (value - centre) * (value - centre)))?;
    Some((centre, variance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviour_is_scaled_to_the_unit_interval_and_missing_values_are_zero() {
        let mut rows = vec![f16::ZERO; 3 * DIM];
        let values = [[Some(10.0), Some(4.0)], [Some(30.0), Some(4.0)], [None, Some(4.0)]];
        fill_rows(&mut rows, |i| values[i], |i, content| content[0] = i as f32);
        let column = |c: usize| -> Vec<f32> { (0..3).map(|i| rows[i * DIM + c].to_f32()).collect() };
        assert_eq!(column(0), [0.0, 1.0, 2.0]);
        assert_eq!(column(126), [0.0, 1.0, 0.0]);
        assert_eq!(column(127), [0.0, 0.0, 0.0], "a constant column says nothing");
    }

    #[test]
    fn moments_of_nothing_are_absent() {
        assert_eq!(mean_and_variance(std::iter::empty()), None);
        assert_eq!(mean_and_variance([1.0, 5.0].into_iter()), Some((3.0, 4.0)));
    }
}
