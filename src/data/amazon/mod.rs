//! Amazon reviews and product metadata, turned into a graph with features and weak labels.
//!
//! Both published vintages are read: 2014 (`categories`, `related`, `helpful`, Python dictionaries) and 2018
//! (`category`, `also_buy`, `vote`, `verified`), one object per line, plain or gzip. Products are all of the metadata,
//! sellers the distinct brands, users the reviewers of a known product; ids are sorted by name.
//!
//! Memory for the size of Electronics (6.7 million reviews, 756 thousand products): reviews 0.3 GB (twice that while
//! they are sorted), hashed terms of the texts up to 0.4 GB, features 0.4 GB, relations about 0.5 GB. Texts are never
//! kept.

mod catalogue;
mod core_numbers;
mod edges;
mod features;
mod fields;
mod json_lines;
mod loose;
mod python_literal;
mod reviews;
mod sentiment;
mod summary;
mod weak_labels;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use crate::data::Progress;
use crate::data::text::{Embeddings, RowSpace, TextColumns, TfIdf};
use catalogue::Catalogue;
use core_numbers::core_numbers;
use json_lines::JsonLines;
use reviews::Reviews;
use weak_labels::{CoreNumbers, weak_labels};

pub use json_lines::LineReport;
pub use summary::{ClassCounts, LabelSummary, PrepareSummary, RelationCount};
pub use weak_labels::{ReasonCounts, WeakLabelConfig};

use crate::error::{Error, Result};
use crate::graph::{Dataset, Features, HeteroGraph, IdMaps, Labels};

/// What to prepare, and how.
#[derive(Clone, Debug)]
pub struct PrepareOptions {
    /// Reviews, one JSON object per line, plain or gzip.
    pub reviews: PathBuf,
    /// Product metadata, likewise.
    pub metadata: PathBuf,
    /// Sentence embeddings `.npy` `[products, d]`, rows in the ascending order of the product ids; reduced to 96
    /// principal components. Absent: hashed TF-IDF of title and description.
    pub text_embeddings: Option<PathBuf>,
    /// Labels `id,label` that replace the heuristic ones.
    pub labels: Option<PathBuf>,
    /// Seed of co-purchase samples, projections and normal nodes.
    pub seed: u64,
    /// A malformed line is an error instead of being skipped and counted.
    pub strict: bool,
    /// Sampled users per product between whom co-purchase links are made; default 25.
    pub co_review_cap: usize,
    /// Thresholds of the heuristic labels.
    pub thresholds: WeakLabelConfig,
}

impl PrepareOptions {
    /// The defaults for two files.
    pub fn new(reviews: impl Into<PathBuf>, metadata: impl Into<PathBuf>) -> Self {
        Self {
            reviews: reviews.into(),
            metadata: metadata.into(),
            text_embeddings: None,
            labels: None,
            seed: 42,
            strict: false,
            co_review_cap: 25,
            thresholds: WeakLabelConfig::default(),
        }
    }
}

/// Reads reviews and metadata and builds graph, features, ids and labels. The result depends on the files, the options
/// and the seed only, not on the number of threads. `progress` is called on the calling thread.
///
/// # Errors
/// [`Error::Config`] for thresholds out of range; [`Error::Io`] for files that cannot be read; [`Error::Format`] for
/// damaged gzip data, embeddings of a wrong shape, a bad label file and, when `strict`, the first malformed line;
/// [`Error::Data`] when the metadata holds no product or no review is of a known product.
pub fn prepare(options: &PrepareOptions, progress: &dyn Fn(Progress)) -> Result<(Dataset, PrepareSummary)> {
    options.thresholds.validate()?;
    let seed = options.seed;
    let step = |stage, done, total| progress(Progress { stage, done, total });

    let source = JsonLines { path: &options.metadata, stage: "metadata", strict: options.strict };
    let mut catalogue = Catalogue::read(&source, options.text_embeddings.is_none(), progress)?;
    if catalogue.ids.is_empty() {
        return Err(Error::Data {
            what: options.metadata.display().to_string(),
            expected: "products with an `asin`, one JSON object per line".into(),
            found: format!("{} lines, {} of them malformed", catalogue.report.lines, catalogue.report.malformed),
            help: "give the metadata file that belongs to the reviews, for example meta_Electronics.json.gz".into(),
        });
    }
    // Before the long part, so that a wrong file is reported at once.
    let embeddings = options.text_embeddings.as_deref();
    let embeddings = embeddings.map(|path| Embeddings::read(path, catalogue.ids.len())).transpose()?;
    let source = JsonLines { path: &options.reviews, stage: "reviews", strict: options.strict };
    let reviews = Reviews::read(&source, &catalogue, progress)?;

    step("edges", 0, 3);
    let epu = edges::purchases(&reviews);
    let epu_reverse = epu.reverse();
    step("edges", 1, 3);
    let euu = edges::co_purchases(&epu_reverse, options.co_review_cap, seed)?;
    step("edges", 2, 3);
    let (user_cores, product_cores) = core_numbers(&epu, &epu_reverse);
    drop(epu_reverse);
    let counts = [reviews.users.len(), catalogue.ids.len(), catalogue.sellers.len()];
    let eps = edges::selling(&catalogue);
    let products_of_seller = eps.reverse();
    let graph = HeteroGraph::marketplace(counts[0], counts[1], counts[2], epu, eps, euu)?;
    step("edges", 3, 3);

    let rows: Box<dyn RowSpace> = match embeddings {
        Some(embeddings) => Box::new(embeddings),
        None => Box::new(TfIdf::new(std::mem::take(&mut catalogue.terms))),
    };
    let text = TextColumns::new(rows, features::TEXT_COLUMNS, seed, &|done, total| step("text", done, total));
    step("features", 0, 1);
    let values = features::assemble(&catalogue, &reviews, &products_of_seller, &text, seed);
    drop(text);
    step("features", 1, 1);

    step("labels", 0, 1);
    let ids = IdMaps(vec![reviews.users.clone(), std::mem::take(&mut catalogue.ids), catalogue.sellers.clone()]);
    let (labels, reasons) = match &options.labels {
        Some(path) => (Labels::from_csv(path, Some(&ids), graph.node_types())?, None),
        None => {
            let cores = CoreNumbers { users: &user_cores, products: &product_cores };
            let (labels, reasons) = weak_labels(&catalogue, &reviews, &cores, &options.thresholds, seed);
            (labels, Some(reasons))
        }
    };
    step("labels", 1, 1);

    let relations = graph.relations().iter();
    let summary = PrepareSummary {
        duplicate_products: catalogue.duplicates,
        unknown_product_reviews: reviews.unknown_product,
        duplicate_reviews: reviews.duplicates,
        used_reviews: reviews.reviews.len() as u64,
        users: counts[0],
        products: counts[1],
        sellers: counts[2],
        relations: relations
            .map(|relation| RelationCount { name: relation.name.clone(), entries: relation.forward.num_edges() })
            .collect(),
        labels: LabelSummary::new(&labels, &graph, reasons),
        metadata: catalogue.report,
        reviews: reviews.report,
    };
    let features = Features::from_vec(values, graph.num_nodes(), features::DIM);
    let labels = (!labels.entries.is_empty()).then_some(labels);
    Ok((Dataset::new(graph, Some(features), labels, Some(ids)), summary))
}
