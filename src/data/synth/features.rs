//! Node features: category and niche centroids, noise, and the faint traces of planted groups.
//!
//! The first 96 columns hold "text" of all node types in one topic space; then come category columns (product 24,
//! user and seller 16) and behaviour columns (product 8, user and seller 16). A trace is an offset along a few hidden
//! directions of the text columns. It is small against the noise of a single node, so a model without the graph sees
//! little of it, and it is the same for the nodes of a group, so it stands out in a mean over neighbours.

use half::f16;
use ndarray::Array2;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::catalogue::Catalogue;
use super::config::{Progress, SynthConfig};
use super::rng::{Domain, item_rng, normal};
use super::scheme::{HIDDEN_DIRECTIONS, Scheme, Trace};
use super::tastes::Tastes;
use crate::graph::Adjacency;

/// Columns of every feature row.
pub(super) const FEATURE_DIM: usize = 128;

const TEXT: usize = 96;
const TOPICS: usize = 24;
const PRODUCT_CATEGORY: usize = 24;
const CATEGORY: usize = 16;
/// Standard deviation of the noise of one text or category column; 128 columns of it have length about 1.
const NOISE: f32 = 0.09;
/// Length of a centroid's category and niche parts in the text columns.
const CATEGORY_LENGTH: f32 = 0.22;
const NICHE_LENGTH: f32 = 0.14;
const CATEGORY_COLUMN: f32 = 0.05;
/// Length of a trace in units of `NOISE`: alone, it allows an optimal ROC-AUC of `Phi(SIGNAL / sqrt 2)`.
const SIGNAL: f32 = 0.95;
const BEHAVIOUR_MEAN: f32 = 0.1;
const BEHAVIOUR_STD: f32 = 0.04;
/// Shift of the two telling behaviour columns (mean rating, review span) in units of `BEHAVIOUR_STD`.
const BEHAVIOUR_SIGNAL: f32 = 0.2;

/// Everything that features depend on besides the configuration.
pub(super) struct Marketplace<'a> {
    pub catalogue: &'a Catalogue,
    pub scheme: &'a Scheme,
    pub user_products: &'a Adjacency,
    pub product_users: &'a Adjacency,
    pub seller_products: &'a Adjacency,
}

/// Feature rows of all nodes in global order, `[nodes, 128]` flattened.
pub(super) fn draw_features(config: &SynthConfig, market: &Marketplace, progress: Progress) -> Vec<f16> {
    const CHUNK: usize = 1 << 16;
    let space = Space::generate(config, market.catalogue);
    let nodes = config.num_nodes();
    let mut features = vec![f16::ZERO; nodes * FEATURE_DIM];
    for (chunk, block) in features.chunks_mut(CHUNK * FEATURE_DIM).enumerate() {
        let start = chunk * CHUNK;
        block.par_chunks_mut(FEATURE_DIM).enumerate().for_each(|(i, row)| {
            let mut values = [0.0; FEATURE_DIM];
            space.fill(config, market, start + i, &mut values);
            row.iter_mut().zip(values).for_each(|(cell, value)| *cell = f16::from_f32(value));
        });
        progress("features", (start + block.len() / FEATURE_DIM) as u64, nodes as u64);
    }
    features
}

/// Centroids and hidden directions.
struct Space {
    /// Text centroid of every niche.
    niches: Array2<f32>,
    /// Category columns of products, and of users and sellers.
    product_categories: Array2<f32>,
    categories: Array2<f32>,
    directions: Array2<f32>,
}

impl Space {
    fn generate(config: &SynthConfig, catalogue: &Catalogue) -> Self {
        let mut rng = item_rng(config.seed, Domain::Basis, 0);
        let basis = orthonormal_rows(TOPICS + HIDDEN_DIRECTIONS, TEXT, &mut rng);
        let topics = basis.slice(ndarray::s![..TOPICS, ..]);
        let num_categories = catalogue.category_of_niche.iter().map(|&c| c as usize + 1).max().unwrap_or(0);
        let mut gaussian =
            |rows, cols, scale: f32| Array2::from_shape_simple_fn((rows, cols), || scale * normal(&mut rng));
        let per_topic = (TOPICS as f32).sqrt().recip();
        let category_topics = gaussian(num_categories, TOPICS, CATEGORY_LENGTH * per_topic);
        let mut niche_topics = gaussian(catalogue.niches.len(), TOPICS, NICHE_LENGTH * per_topic);
        for (mut niche, &category) in niche_topics.outer_iter_mut().zip(&catalogue.category_of_niche) {
            niche += &category_topics.row(category as usize);
        }
        Self {
            niches: niche_topics.dot(&topics),
            product_categories: gaussian(num_categories, PRODUCT_CATEGORY, CATEGORY_COLUMN),
            categories: gaussian(num_categories, CATEGORY, CATEGORY_COLUMN),
            directions: basis.slice(ndarray::s![TOPICS.., ..]).to_owned(),
        }
    }

    fn fill(&self, config: &SynthConfig, market: &Marketplace, node: usize, row: &mut [f32; FEATURE_DIM]) {
        let mut rng = item_rng(config.seed, Domain::Features, node);
        let Marketplace { catalogue, scheme, .. } = market;
        if node < config.users {
            let user = node as u32;
            let tastes = Tastes::of(config, catalogue, scheme.home.get(&user).copied(), user);
            let share = 1.0 / tastes.niches().len() as f32;
            tastes.niches().iter().for_each(|&niche| self.add_niche(row, catalogue, niche as usize, share, CATEGORY));
            let trace = scheme.users.get(&user);
            let activity = log_share(market.user_products.degree(node), 500);
            self.finish(row, trace, CATEGORY, &[activity], 9, &mut rng);
        } else if node < config.users + config.products {
            let product = node - config.users;
            self.add_niche(row, catalogue, catalogue.niche_of[product] as usize, 1.0, PRODUCT_CATEGORY);
            let trace = scheme.products.get(&(product as u32));
            let popularity = log_share(market.product_users.degree(product), 100_000);
            self.finish(row, trace, PRODUCT_CATEGORY, &[popularity], 8, &mut rng);
        } else {
            let seller = node - config.users - config.products;
            let products = market.seller_products.row(seller);
            let share = 1.0 / products.len().max(1) as f32;
            for &product in products {
                self.add_niche(row, catalogue, catalogue.niche_of[product as usize] as usize, share, CATEGORY);
            }
            let trace = scheme.sellers.get(&(seller as u32));
            self.finish(row, trace, CATEGORY, &[log_share(products.len(), 100_000)], 5, &mut rng);
        }
    }

    /// Adds `share` of a niche's text centroid and of its category's columns.
    fn add_niche(&self, row: &mut [f32], catalogue: &Catalogue, niche: usize, share: f32, category_columns: usize) {
        let category = catalogue.category_of_niche[niche] as usize;
        let columns = if category_columns == CATEGORY { &self.categories } else { &self.product_categories };
        let centroid = self.niches.row(niche).into_iter().chain(columns.row(category));
        row.iter_mut().zip(centroid).for_each(|(cell, value)| *cell += share * value);
    }

    /// Adds trace and noise, and writes the behaviour columns: `known` first, then noise up to `used`, then zeros.
    fn finish(
        &self,
        row: &mut [f32],
        trace: Option<&Trace>,
        category_columns: usize,
        known: &[f32],
        used: usize,
        rng: &mut ChaCha8Rng,
    ) {
        let (content, behaviour) = row.split_at_mut(TEXT + category_columns);
        content.iter_mut().for_each(|cell| *cell += NOISE * normal(rng));
        if let Some(trace) = trace {
            for (direction, weight) in self.directions.outer_iter().zip(trace) {
                let step = SIGNAL * NOISE * weight;
                content.iter_mut().zip(direction).for_each(|(cell, d)| *cell += step * d);
            }
        }
        for (column, cell) in behaviour.iter_mut().take(used).enumerate() {
            let shift = match (trace, column) {
                (Some(_), 1) => BEHAVIOUR_SIGNAL,
                (Some(_), 2) => -BEHAVIOUR_SIGNAL,
                _ => 0.0,
            };
            let noise = (BEHAVIOUR_MEAN + BEHAVIOUR_STD * (normal(rng) + shift)).clamp(0.0, 1.0);
            *cell = known.get(column).copied().unwrap_or(noise);
        }
    }
}

/// `log(1 + count)` relative to that of `most`, in [0, 0.3]: counts of behaviour columns, min-max scaled.
fn log_share(count: usize, most: usize) -> f32 {
    (0.3 * (1.0 + count as f32).ln() / (1.0 + most as f32).ln()).min(0.3)
}

/// Gram-Schmidt on random rows; `rows <= columns`.
fn orthonormal_rows(rows: usize, columns: usize, rng: &mut ChaCha8Rng) -> Array2<f32> {
    let mut basis = Array2::from_shape_simple_fn((rows, columns), || normal(rng));
    for i in 0..rows {
        let mut row = basis.row(i).to_owned();
        for previous in basis.outer_iter().take(i) {
            let overlap = previous.dot(&row);
            row.scaled_add(-overlap, &previous);
        }
        row /= row.dot(&row).sqrt().max(f32::MIN_POSITIVE);
        basis.row_mut(i).assign(&row);
    }
    basis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basis_rows_are_orthonormal() {
        let basis = orthonormal_rows(TOPICS + HIDDEN_DIRECTIONS, TEXT, &mut item_rng(1, Domain::Basis, 0));
        let gram = basis.dot(&basis.t());
        for ((i, j), &value) in gram.indexed_iter() {
            assert!((value - f32::from(u8::from(i == j))).abs() < 1e-4, "[{i}, {j}] = {value}");
        }
    }
}
