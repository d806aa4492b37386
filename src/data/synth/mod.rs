//! Synthetic marketplace: users, products and sellers with planted review fraud, for trials and benchmarks.
//!
//! Ordinary life follows the laws of 5-core review data: five reviews per user plus a geometric tail, Zipf-like
//! popularity of products within niches, Zipf-like brand sizes, one to three preferred niches per user. Into it are
//! planted
//!
//! - **review rings**: 8 to 20 users who review the same 4 to 8 obscure products across categories, besides ordinary
//!   reviews as camouflage;
//! - **bursts**: obscure products reviewed by members of unrelated rings and by hardly active users;
//! - **shill brands**: small sellers to whom the targets of a ring belong;
//! - **fan clubs**: benign groups with the density of rings, so that density alone does not give a ring away.
//!
//! Ring members, targets, burst products and shill brands are anomalous (label 1). Each carries a faint offset in its
//! features that drowns in the noise of the single node and emerges in means over neighbours; see [`generate`] for
//! this and for what else a model can learn from the structure.
//!
//! [`payments`] are another world: tables of card payments, for import.

mod catalogue;
mod config;
mod features;
mod labels;
pub mod payments;
mod provide;
mod reviews;
mod rng;
mod scheme;
mod tastes;

use std::collections::{HashMap, HashSet};

use crate::data::split::{Split, SplitFractions};
use crate::error::Result;
use crate::graph::{Adjacency, Dataset, Features, HeteroGraph, IdMaps, Labels, SplitRule, StoredSplit};
use catalogue::Catalogue;
pub use config::SynthConfig;
use features::{FEATURE_DIM, Marketplace};
pub use provide::provide;
use rng::{Domain, item_rng};
use scheme::{Scheme, Trace};

pub use crate::config::Preset;

/// Seed of `graphsieve synth` and of the marketplace that a first training makes.
pub const DEFAULT_SEED: u64 = 42;

/// Share of labelled normal users and products that come from fan clubs.
const HARD_SHARE: f64 = 0.3;

/// Generates graph, features `[N, 128]`, labels and string ids.
///
/// Features are centroids of niches plus noise; an anomalous node adds an offset of 0.95 noise standard deviations in
/// directions orthogonal to the centroids. Labelled are all anomalies and as many normal nodes with like degrees, three
/// tenths of the users and products among them from fan clubs. The result depends on `config` only, never on the
/// number of threads. `progress` is called from this thread with `(stage, done, total)`.
///
/// Members of a ring share their neighbours, so a model can also recognise the neighbourhood of a *known* ring, without
/// any offset. A random split puts ring-mates on both sides; figures from it do not tell how well unseen rings are
/// found.
///
/// # Errors
/// [`Error::Usage`](crate::error::Error::Usage) for a configuration outside the documented ranges.
pub fn generate(config: &SynthConfig, progress: &dyn Fn(&'static str, u64, u64)) -> Result<Dataset> {
    generate_with_rings(config, progress).map(|(dataset, _)| dataset)
}

/// [`generate`], and the review ring that each node belongs to, by global id: as member, target or shill brand. Burst
/// products belong to none. What the labels do not tell: whether an explanation names those who acted together.
///
/// # Errors
/// As for [`generate`].
pub fn generate_with_rings(
    config: &SynthConfig,
    progress: &dyn Fn(&'static str, u64, u64),
) -> Result<(Dataset, Vec<Option<u32>>)> {
    config.check()?;
    let mut catalogue = Catalogue::generate(config);
    let scheme = Scheme::plant(config, &mut catalogue);
    let epu = reviews::draw_reviews(config, &catalogue, &scheme, progress);
    let euu = reviews::draw_co_reviews(config, &epu, progress);
    let sold_by: Vec<(u32, u32)> = catalogue
        .brand_of
        .iter()
        .enumerate()
        .filter_map(|(product, seller)| Some((product as u32, (*seller)?)))
        .collect();
    let eps = Adjacency::from_edges(config.products, config.sellers, &sold_by);
    let graph = HeteroGraph::marketplace(config.users, config.products, config.sellers, epu, eps, euu)?;

    let relation = |name: &str| {
        let found = graph.relations().iter().find(|relation| relation.name == name);
        found.expect("the marketplace preset has this relation").forward.as_ref()
    };
    let market = Marketplace {
        catalogue: &catalogue,
        scheme: &scheme,
        user_products: relation("epu"),
        product_users: relation("epu_T"),
        seller_products: relation("eps_T"),
    };
    let features = features::draw_features(config, &market, progress);
    let labels = draw_labels(config, &market, relation("euu"));
    let features = Features::from_vec(features, config.num_nodes(), FEATURE_DIM);
    let rings = rings_of_nodes(config, &scheme);
    Ok((Dataset::new(graph, Some(features), Some(labels), Some(draw_ids(config))), rings))
}

/// The split of the labels of a marketplace in which no ring has members on two sides: nodes of no ring stand alone.
///
/// # Errors
/// As for [`Split::of_groups`].
pub fn split_by_rings(dataset: &Dataset, rings: &[Option<u32>], seed: u64) -> Result<StoredSplit> {
    let SplitFractions { train, validation, test } = SplitFractions::default();
    let labels = dataset.labels.as_ref().map_or(&[][..], |labels| &labels.entries);
    let first = rings.iter().flatten().max().map_or(0, |last| last + 1);
    let group_of = |node: u32| rings[node as usize].unwrap_or(first + node);
    let split = Split::of_groups(labels, group_of, SplitFractions::default(), seed)?;
    let rule = SplitRule::Group { groups: vec!["ring".into()], seed, train, validation, test };
    Ok(StoredSplit::of_parts(rule, dataset.graph.num_nodes(), [&split.train, &split.validation, &split.test]))
}

fn rings_of_nodes(config: &SynthConfig, scheme: &Scheme) -> Vec<Option<u32>> {
    let mut rings = vec![None; config.num_nodes()];
    let first = [0, config.users, config.users + config.products];
    for (ring, [users, products, sellers]) in scheme.rings.iter().enumerate() {
        for (first, ids) in first.into_iter().zip([users, products, sellers]) {
            ids.iter().for_each(|&id| rings[first + id as usize] = Some(ring as u32));
        }
    }
    rings
}

fn draw_labels(config: &SynthConfig, market: &Marketplace, co_reviews: &Adjacency) -> Labels {
    let scheme = market.scheme;
    let mut rng = item_rng(config.seed, Domain::Labels, 0);
    let mut entries = Vec::new();
    let mut label_type = |offset: usize,
                          count: usize,
                          anomalies: &HashMap<u32, Trace>,
                          hard: &HashSet<u32>,
                          degrees: &dyn Fn(u32) -> labels::Degrees| {
        let of_kind = |keep: &dyn Fn(&u32) -> bool| (0..count as u32).filter(keep).collect::<Vec<u32>>();
        let anomalous = of_kind(&|id| anomalies.contains_key(id));
        let hard_pool = of_kind(&|id| hard.contains(id) && !anomalies.contains_key(id));
        let ordinary = of_kind(&|id| !hard.contains(id) && !anomalies.contains_key(id));
        let normal = labels::match_degrees(&anomalous, &hard_pool, &ordinary, HARD_SHARE, degrees, &mut rng);
        entries.extend(anomalous.iter().map(|&id| (offset as u32 + id, 1)));
        entries.extend(normal.iter().map(|&id| (offset as u32 + id, 0)));
    };
    let user_degrees = |id: u32| [market.user_products.degree(id as usize), co_reviews.degree(id as usize)];
    let has_brand = |id: u32| usize::from(market.catalogue.brand_of[id as usize].is_some());
    let product_degrees = |id: u32| [market.product_users.degree(id as usize), has_brand(id)];
    let seller_degrees = |id: u32| [market.seller_products.degree(id as usize), 0];
    label_type(0, config.users, &scheme.users, &scheme.fans, &user_degrees);
    label_type(config.users, config.products, &scheme.products, &scheme.fan_products, &product_degrees);
    label_type(config.users + config.products, config.sellers, &scheme.sellers, &HashSet::new(), &seller_degrees);
    entries.sort_unstable();
    Labels { entries }
}

/// Ids whose alphabetical order is their numerical one.
fn draw_ids(config: &SynthConfig) -> IdMaps {
    let numbered = |prefix: &str, count: usize, width: usize| {
        let width = width.max(count.saturating_sub(1).to_string().len());
        (0..count).map(|i| format!("{prefix}{i:0width$}")).collect()
    };
    IdMaps(vec![
        numbered("U", config.users, 6),
        numbered("P", config.products, 6),
        numbered("brand-", config.sellers, 5),
    ])
}

#[cfg(test)]
mod tests;
