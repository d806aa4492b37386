//! Who reviews what: ordinary reviews, and the co-review relation that follows from them.

use rand::Rng;
use rand::seq::index;
use rayon::prelude::*;

use super::catalogue::Catalogue;
use super::config::{Progress, SynthConfig};
use super::rng::{Domain, item_rng};
use super::scheme::Scheme;
use super::tastes::Tastes;
use crate::graph::Adjacency;

/// Ordinary reviews that a planted user writes at least: the camouflage.
const MIN_CAMOUFLAGE: usize = 2;
/// Share of ordinary reviews outside the preferred niches.
const STRAY_SHARE: f64 = 0.15;
/// Users per step between two progress reports.
const CHUNK: usize = 1 << 16;

/// Relation user <- product: for every user the products reviewed, planted ones included.
pub(super) fn draw_reviews(
    config: &SynthConfig,
    catalogue: &Catalogue,
    scheme: &Scheme,
    progress: Progress,
) -> Adjacency {
    rows_in_parallel(config.users, config.products, "reviews", progress, |user| {
        let tastes = Tastes::of(config, catalogue, scheme.home.get(&(user as u32)).copied(), user as u32);
        let mut products = scheme.reviews.get(&(user as u32)).cloned().unwrap_or_default();
        products.sort_unstable();
        products.dedup();
        let camouflage = if products.is_empty() { 0 } else { MIN_CAMOUFLAGE };
        let wanted = tastes.reviews.max(products.len() + camouflage);
        let mut rng = item_rng(config.seed, Domain::Reviews, user);
        // A user of a small niche may run out of new products; the attempts are bounded, the degree then falls short.
        for _ in 0..8 * wanted {
            if products.len() >= wanted {
                break;
            }
            let niche = if rng.random_bool(STRAY_SHARE) {
                catalogue.draw_niche(&mut rng)
            } else {
                tastes.niches()[rng.random_range(0..tastes.niches().len())] as usize
            };
            let product = catalogue.draw_product(&mut rng, niche);
            if let Err(place) = products.binary_search(&product) {
                products.insert(place, product);
            }
        }
        products
    })
}

/// Relation user <- user: at most `co_review_cap` sampled reviewers of a product know each other, and everyone
/// knows oneself. Symmetric, without duplicates.
pub(super) fn draw_co_reviews(config: &SynthConfig, epu: &Adjacency, progress: Progress) -> Adjacency {
    let reviewers = epu.reverse();
    let panels = rows_in_parallel(config.products, config.users, "panels", progress, |product| {
        let row = reviewers.row(product);
        if row.len() <= config.co_review_cap {
            return row.to_vec();
        }
        let mut rng = item_rng(config.seed, Domain::Panel, product);
        let mut panel: Vec<u32> =
            index::sample(&mut rng, row.len(), config.co_review_cap).iter().map(|i| row[i]).collect();
        panel.sort_unstable();
        panel
    });
    let seats = panels.reverse();
    rows_in_parallel(config.users, config.users, "co-reviews", progress, |user| {
        let mut others: Vec<u32> = seats.row(user).iter().flat_map(|&p| panels.row(p as usize)).copied().collect();
        others.push(user as u32);
        others.sort_unstable();
        others.dedup();
        others
    })
}

/// Adjacency whose row `i` is `row(i)` (ascending, distinct, below `num_cols`).
fn rows_in_parallel(
    num_rows: usize,
    num_cols: usize,
    stage: &'static str,
    progress: Progress,
    row: impl Fn(usize) -> Vec<u32> + Sync,
) -> Adjacency {
    let mut row_ptr = Vec::with_capacity(num_rows + 1);
    row_ptr.push(0);
    let mut col_idx = Vec::new();
    for start in (0..num_rows).step_by(CHUNK) {
        let end = (start + CHUNK).min(num_rows);
        let rows: Vec<Vec<u32>> = (start..end).into_par_iter().map(&row).collect();
        for row in rows {
            col_idx.extend(row);
            row_ptr.push(col_idx.len() as u64);
        }
        progress(stage, end as u64, num_rows as u64);
    }
    Adjacency::new(row_ptr, col_idx, num_cols).expect("rows are built in order and their entries are local ids")
}
