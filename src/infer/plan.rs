//! Whether a graph is gone through at once or in mini-batches: what that takes on a device, and what the device has.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use graphsieve_kernels::GraphBackend;

use crate::config::{ClassifyConfig, LoaderConfig, LoaderMode, Rows, Stage1Config, Stage2Config};
use crate::graph::{Features, HeteroGraph};
use crate::loader::Footprint;
use crate::models::node_classifier::ClassifierSpec;
use crate::models::node_input::device_bytes;
use crate::models::precision::dtype;

/// Whether a graph is trained at once or in mini-batches, and what that was decided from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whether mini-batches are sampled.
    pub sampled: bool,
    reason: Reason,
}

#[derive(Clone, Debug)]
enum Reason {
    /// The configuration says so.
    Asked,
    Memory {
        /// Of a training at once.
        needed: Footprint,
        /// That may be used, and whether the configuration says so.
        available: Option<u64>,
        capped: bool,
    },
}

impl Plan {
    /// Decides; `needed` is what a training at once takes.
    pub fn new<B: GraphBackend>(loader: &LoaderConfig, needed: impl FnOnce() -> Footprint, device: &B::Device) -> Self {
        let asked = |sampled| Plan { sampled, reason: Reason::Asked };
        match loader.mode {
            LoaderMode::Full => asked(false),
            LoaderMode::Sampled => asked(true),
            LoaderMode::Auto => {
                let (needed, capped) = (needed(), loader.memory > 0.0);
                let available = memory_of::<B>(loader, device);
                let sampled = available.is_some_and(|available| needed.total() > available);
                Plan { sampled, reason: Reason::Memory { needed, available, capped } }
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.sampled { "sampled mini-batches" } else { "the whole graph at once" };
        let Reason::Memory { needed, available, capped } = &self.reason else {
            return write!(f, "{what}: as asked for");
        };
        write!(f, "{what}: at once it takes {needed}, ")?;
        match available {
            Some(available) if *capped => write!(f, "loader.memory allows {}", Footprint::bytes(*available)),
            Some(available) => write!(f, "the device has {} free", Footprint::bytes(*available)),
            None => write!(f, "and the device does not tell what it has"),
        }
    }
}

/// Device memory that may be used, if that is known.
pub fn memory_of<B: GraphBackend>(loader: &LoaderConfig, device: &B::Device) -> Option<u64> {
    match loader.memory {
        0.0 => B::available_memory(device),
        memory => Some((memory * 1e9) as u64),
    }
}

/// Whether Stage 1 is trained at once on a graph with features of `width` columns.
pub fn auto_encoder<B: GraphBackend>(
    config: &Stage1Config,
    graph: &HeteroGraph,
    width: usize,
    device: &B::Device,
) -> Plan {
    Plan::new::<B>(&config.loader, || auto_encoder_footprint(config, graph, width), device)
}

/// What a training takes that computes the whole graph at once.
fn auto_encoder_footprint(config: &Stage1Config, graph: &HeteroGraph, width: usize) -> Footprint {
    let element = dtype(config.train.precision).size() as u64;
    let (hidden, out, width) = (config.model.hidden as u64, config.model.out as u64, width as u64);
    // Sums over the neighbours of every relation are kept beside the rows: of the features for all epochs, of the
    // hidden layer in a pass. In chunks of rows there are results alone, and their gradients.
    let of_node = |t: usize| {
        let into = graph.relations().iter().filter(|relation| relation.dst == t).count() as u64;
        let hidden_and_sums = (into + 1) * hidden;
        match (config.train.chunk_size.is_some(), config.train.rows) {
            (true, Rows::Reachable) => element * (hidden + 2 * out),
            (true, Rows::All) => 2 * element * (hidden + 2 * out),
            (false, Rows::Reachable) => element * (into * width + hidden_and_sums + 2 * out),
            // Embeddings and their gradient are f32; that of what they are made of is not, and others come later.
            (false, Rows::All) => element * (into * width + hidden_and_sums + out) + 8 * out,
        }
    };
    let rows = graph.node_types().iter().enumerate().map(|(t, of)| of.count as u64 * of_node(t));
    Footprint {
        graph: adjacency_bytes(graph) + 4 * num_values(graph),
        features: graph.num_nodes() as u64 * width * element,
        activations: rows.sum(),
    }
}

/// Whether a graph with features of `width` columns is trained at once.
pub fn attention<B: GraphBackend>(
    config: &Stage2Config,
    graph: &HeteroGraph,
    width: usize,
    device: &B::Device,
) -> Plan {
    Plan::new::<B>(&config.loader, || attention_footprint(config, graph, width), device)
}

/// What a training takes that computes the whole graph at once.
fn attention_footprint(config: &Stage2Config, graph: &HeteroGraph, width: usize) -> Footprint {
    let (nodes, element) = (graph.num_nodes() as u64, dtype(config.train.precision).size());
    Footprint {
        graph: adjacency_bytes(graph) + attended_values(graph, element),
        features: nodes * (width * element) as u64,
        activations: attention_activations(config, nodes, width, config.train.rows),
    }
}

/// Bytes of what the layers of Stage 2 make of `nodes` nodes: in scoring, which is what a training of reachable rows
/// takes at most, or in a training of all rows.
pub fn attention_activations(config: &Stage2Config, nodes: u64, width: usize, rows: Rows) -> u64 {
    // Inference holds a layer's input, what each relation makes of it and the result; training of all rows holds the
    // same of both layers and gradients of it. In chunks of rows there are whole results and their gradients alone.
    let results = config.model.hidden + config.model.out;
    let channels = if config.train.chunk_size.is_some() { results } else { width + 2 * results };
    let passes = match rows {
        Rows::Reachable => 1,
        Rows::All => 2,
    };
    passes * nodes * (channels * dtype(config.train.precision).size()) as u64
}

/// Of the adjacencies of all relations; what relations share is there once.
fn adjacency_bytes(graph: &HeteroGraph) -> u64 {
    let mut seen = HashSet::new();
    let all = graph.relations().iter().flat_map(|r| [&r.forward, &r.reverse]);
    let once = all.filter(|adjacency| seen.insert(Arc::as_ptr(adjacency)));
    once.map(|adjacency| 4 * adjacency.num_words() as u64).sum()
}

/// Values of the edges of all relations.
fn num_values(graph: &HeteroGraph) -> u64 {
    let values = graph.relations().iter().filter_map(|relation| relation.values.as_ref());
    values.map(|values| values.values().len() as u64).sum()
}

/// Bytes of the values that attention reads, in elements of so many bytes: beside those in the order of the adjacency
/// there are the same in that of the reverse.
fn attended_values(graph: &HeteroGraph, element: usize) -> u64 {
    2 * element as u64 * num_values(graph)
}

/// Whether a graph is trained at once.
pub fn classes<B: GraphBackend>(
    config: &ClassifyConfig,
    spec: &ClassifierSpec,
    graph: &HeteroGraph,
    features: &Features,
    device: &B::Device,
) -> Plan {
    Plan::new::<B>(&config.loader, || classes_footprint(config, spec, graph, features), device)
}

/// What a training takes that computes the whole graph at once.
fn classes_footprint(
    config: &ClassifyConfig,
    spec: &ClassifierSpec,
    graph: &HeteroGraph,
    features: &Features,
) -> Footprint {
    let (drops, dtype) = (config.model.dropout > 0.0, dtype(config.train.precision));
    let nodes = graph.num_nodes() as u64;
    // Attention on one type walks a copy that has every node among its own neighbours, and its reverse.
    let looped = match spec.attention {
        Some(_) if !spec.has_own() => 8 * (graph.num_edges() as u64 + 2 * nodes + 1),
        _ => 0,
    };
    let [features, dropped] = device_bytes(features, dtype);
    // The backward pass of a layer has its projection, its result and gradients of both, that of attention also the
    // part of the result with positive scores; all but the first layer keep their input with what was dropped. Several
    // relations have a projection and a result each.
    let kept = if spec.attention.is_some() { 5 } else { 4 };
    let kept = match spec.order {
        // Linear layers around a wavelet for each power of the adjacency.
        Some(order) => kept * (order + 3),
        None if spec.has_own() => (kept - 2) * spec.num_relations() + 2,
        None => kept,
    };
    let heads = spec.attention.map_or(1, |shape| shape.out_heads);
    let inner = (spec.layers - usize::from(spec.order.is_none() && !spec.has_head())) * spec.hidden;
    let channels = kept * (inner + heads * spec.classes) + if drops { inner } else { 0 };
    // Rows around their mean and divided by their deviation, and gradients of both, in f32.
    let normalised = if spec.is_normalised() { 16 * inner } else { 0 };
    let of_node = dtype.size() * channels + normalised;
    let values = match spec.attention {
        Some(_) => attended_values(graph, dtype.size()),
        None => 4 * num_values(graph),
    };
    Footprint {
        graph: adjacency_bytes(graph) + values + looped,
        features,
        activations: nodes * of_node as u64 + if drops { dropped } else { 0 },
    }
}
