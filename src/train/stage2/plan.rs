//! Whether a graph is trained at once or in mini-batches: decided from sizes before anything is uploaded.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::config::{LoaderMode, Rows, Stage2Config};
use crate::graph::HeteroGraph;
use crate::loader::Footprint;

/// A decision and what it was made from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whether mini-batches are sampled.
    pub sampled: bool,
    mode: LoaderMode,
    footprint: Footprint,
    /// Memory that may be used, and whether the configuration says so.
    available: Option<u64>,
    capped: bool,
}

impl Plan {
    /// Decides for a graph with features of `width` columns; `available` is what the device has free.
    pub fn new(config: &Stage2Config, graph: &HeteroGraph, width: usize, available: Option<u64>) -> Self {
        let capped = config.loader.memory > 0.0;
        let available = if capped { Some((config.loader.memory * 1e9) as u64) } else { available };
        let footprint = footprint(config, graph, width);
        let sampled = match config.loader.mode {
            LoaderMode::Full => false,
            LoaderMode::Sampled => true,
            LoaderMode::Auto => available.is_some_and(|available| footprint.total() > available),
        };
        Plan { sampled, mode: config.loader.mode, footprint, available, capped }
    }

    /// Whether the user has to be told.
    pub fn is_news(&self) -> bool {
        self.mode != LoaderMode::Full
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.sampled { "sampled mini-batches" } else { "the whole graph at once" };
        if self.mode != LoaderMode::Auto {
            return write!(f, "{what}: as asked for");
        }
        write!(f, "{what}: at once it takes {}, ", self.footprint)?;
        match self.available {
            Some(available) if self.capped => write!(f, "loader.memory allows {}", Footprint::bytes(available)),
            Some(available) => write!(f, "the device has {} free", Footprint::bytes(available)),
            None => write!(f, "and the device does not tell what it has"),
        }
    }
}

/// What a training takes that computes the whole graph at once.
fn footprint(config: &Stage2Config, graph: &HeteroGraph, width: usize) -> Footprint {
    let element = crate::train::optimiser::dtype(config.train.precision).size() as u64;
    // Adjacencies that relations share are there once.
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for adjacency in graph.relations().iter().flat_map(|r| [&r.forward, &r.reverse]) {
        if seen.insert(Arc::as_ptr(adjacency)) {
            bytes += 4 * (adjacency.num_edges() + adjacency.num_rows() + 1) as u64;
        }
    }
    let nodes = graph.num_nodes() as u64;
    // Inference holds a layer's input, what each relation makes of it and the result; training of all rows holds the same of
    // both layers and gradients of it.
    let channels = (width + 2 * config.model.hidden + 2 * config.model.out) as u64;
    let passes = match config.train.rows {
        Rows::Reachable => 1,
        Rows::All => 2,
    };
    Footprint {
        graph: bytes,
        features: nodes * width as u64 * element,
        activations: passes * nodes * channels * element,
    }
}
