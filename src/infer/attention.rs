//! A Stage-2 model over a whole graph, and what it starts from.

use std::borrow::Cow;
use std::path::Path;

use burn::tensor::Tensor;
use graphsieve_kernels::{GraphBackend, download};
use ndarray::Array2;

use super::label_input::{HostScored, beside, by_passes};
use super::two_layers::TwoLayers;
pub use super::two_layers::by_type;
use crate::config::{EMBEDDINGS_FILE, OwnTransform, Stage2Config, Stage2Data, Stage2Input, Stage2Model};
use crate::error::{Error, Result};
use crate::graph::{Dataset, Features, Filling, HeteroGraph, NodeType, Spill};
use crate::live::{Layer, Part};
use crate::metrics::{score_of, scores_of};
pub use crate::models::attention::edge_inputs;
use crate::models::attention::{
    AttentionSpec, Frozen, Pass, TripleStreamGat, graph_with_edges, inputs_for, read_edges,
};
use crate::models::device_graph::{DeviceGraph, check_device};
use crate::models::parameters::to_host;
use crate::models::receptive_field::ReceptiveField;
use crate::run::bundle::open_output;
use crate::run::known_labels::{KnownLabels, Seen};

/// Scores of every node, by global id, and the refined embeddings on the device.
pub struct Scored<B: GraphBackend> {
    /// In [0, 1]; higher is more anomalous. NaN where the network overflows.
    pub scores: Vec<f32>,
    /// One matrix per node type.
    pub embeddings: Vec<Tensor<B, 2>>,
}

impl<B: GraphBackend> Scored<B> {
    /// The refined embeddings of all nodes as one matrix on the host.
    pub fn embedding_matrix(self) -> Array2<f32> {
        let width = self.embeddings.first().map_or(0, |h| h.dims()[1]);
        let values = download(self.embeddings);
        Array2::from_shape_vec((self.scores.len(), width), values)
            .unwrap_or_else(|e| unreachable!("one row per score: {e}"))
    }
}

/// Scores of every node with a Stage-2 model and, where they are asked for, refined embeddings, on the host. A model
/// that reads labels has those that are `known`; `x` is its input without them. With `wanted` at least these have them.
///
/// # Errors
/// A device that failed.
pub fn host_scores<B: GraphBackend>(
    model: &TripleStreamGat<B>,
    graph: &DeviceGraph<B>,
    x: &[Tensor<B, 2>],
    known: Option<&KnownLabels>,
    wanted: Option<&[u32]>,
    chunk_rows: Option<usize>,
    embeddings: bool,
) -> Result<HostScored> {
    with_labels(&graph.node_types, x, known, wanted, |x| {
        let scored = attention_scores(model, graph, x, chunk_rows);
        let scores = scored.scores.clone();
        // As large as the hidden layer: on a device the copy takes longer than the scores.
        let embeddings = match embeddings {
            true => as_features(scored.embedding_matrix()),
            false => Features::from_f32(Vec::new(), scores.len(), 0),
        };
        check_device()?;
        Ok(HostScored { scores, embeddings })
    })
}

/// Scores of the targets of a part alone, in their order, and embeddings where they are asked for: only what they
/// depend on is computed, and rows behind the first layer are kept under `layer`. A row of a result is the same to the
/// bit in any company, so that graphs side by side ([`HeteroGraph::side_by_side`]) have the scores that each has alone.
///
/// # Errors
/// A device that failed.
pub fn target_scores<B: GraphBackend>(
    (model, frozen): (&TripleStreamGat<B>, &Frozen<B>),
    graph: &DeviceGraph<B>,
    x: &[Tensor<B, 2>],
    known: Option<&KnownLabels>,
    part: &Part,
    (layer, embeddings): (Layer, bool),
) -> Result<HostScored> {
    let targets = &part.targets;
    let passes = known.map_or_else(|| vec![Seen::All], KnownLabels::passes);
    let mut of_pass: Vec<Vec<usize>> = vec![Vec::new(); passes.len()];
    targets.iter().enumerate().for_each(|(at, &node)| of_pass[known.map_or(0, |of| of.pass_of(node))].push(at));
    let width = if embeddings { model.width_after(TripleStreamGat::<B>::LAYERS - 1) } else { 0 };
    let (mut scores, mut rows) = (vec![0.0; targets.len()], vec![0.0; targets.len() * width]);
    for (seen, places) in passes.iter().zip(&of_pass).filter(|(_, places)| !places.is_empty()) {
        let with_labels = known.map(|known| beside(x, known.by_type(seen, &graph.node_types)));
        let x = with_labels.as_deref().unwrap_or(x);
        // The nodes that are wanted, each once: rows of a result come in this order.
        let mut wanted: Vec<u32> = places.iter().map(|&at| targets[at]).collect();
        wanted.sort_unstable();
        wanted.dedup();
        // What a pass sees of labels is no other's.
        let pass = TwoLayers::new(part, known.is_none().then_some(layer), &wanted);
        let h = pass.pass(
            (x[0].dtype(), &x[0].device()),
            |field| model.layer_frozen(frozen, 0, (graph, field), x),
            |field, h| model.layer_frozen(frozen, 1, (graph, field), h),
        )?;
        let logits = to_host(model.logits(h.iter().cloned()));
        let z = if embeddings { download(h) } else { Vec::new() };
        check_device()?;
        for &at in places {
            let row = wanted.partition_point(|&node| node < targets[at]);
            scores[at] = score_of(logits[row]);
            rows[at * width..(at + 1) * width].copy_from_slice(&z[row * width..(row + 1) * width]);
        }
    }
    Ok(HostScored { scores, embeddings: Features::from_f32(rows, targets.len(), width) })
}

/// What `scored` makes of the input `x` with labels that are `known` beside it, where there are any: in as many passes
/// as it takes that no node sees its own. With `wanted` at least these are scored.
///
/// # Errors
/// What a pass runs into.
pub fn with_labels<B: GraphBackend>(
    types: &[NodeType],
    x: &[Tensor<B, 2>],
    known: Option<&KnownLabels>,
    wanted: Option<&[u32]>,
    scored: impl Fn(&[Tensor<B, 2>]) -> Result<HostScored>,
) -> Result<HostScored> {
    let Some(known) = known else { return scored(x) };
    let nodes = types.iter().map(|of| of.count).sum();
    by_passes(known, nodes, wanted, &Spill::default(), |seen, _| scored(&beside(x, known.by_type(seen, types))))
}

/// Scores of every node with a Stage-2 model.
pub fn attention_scores<B: GraphBackend>(
    model: &TripleStreamGat<B>,
    graph: &DeviceGraph<B>,
    x: &[Tensor<B, 2>],
    chunk_rows: Option<usize>,
) -> Scored<B> {
    let embeddings = model.embed(graph, &ReceptiveField::all(graph), x, Pass { chunk_rows, ..Default::default() });
    let scores = scores_of(to_host(model.logits(embeddings.iter().cloned())));
    Scored { scores, embeddings }
}

/// The node types of a graph that have a transform of their nodes themselves, as [`AttentionSpec::own`] has them.
pub fn own_types(own: OwnTransform, graph: &HeteroGraph) -> Vec<Option<String>> {
    let looped = graph.looped_types();
    let has = |t: usize| match own {
        OwnTransform::Auto => !looped[t],
        OwnTransform::Always => true,
        OwnTransform::Never => false,
    };
    if !(0..looped.len()).any(has) {
        return Vec::new();
    }
    graph.node_types().iter().enumerate().map(|(t, of)| has(t).then(|| of.name.clone())).collect()
}

/// Fails where a gate or pieces are asked for and no node type has a transform of its own, which they are part of.
///
/// # Errors
/// [`Error::Config`].
pub fn check_own(config: &Stage2Config, graph: &HeteroGraph) -> Result<()> {
    let Stage2Model { gate, pieces, own, .. } = config.model;
    let (key, without, found) = match (gate, pieces) {
        (true, _) => ("model.gate", "false", "true".into()),
        (_, 1..) => ("model.pieces", "0", pieces.to_string()),
        _ => return Ok(()),
    };
    if own_types(own, graph).iter().any(Option::is_some) {
        return Ok(());
    }
    Err(Error::Config {
        origin: config.name.clone().into(),
        key: key.into(),
        expected: format!("{without} where no node type has a transform of its own"),
        found,
        help: "every node of this graph has a loop, so that model.own = \"auto\" gives none: set it to \"always\", or leave \
               the key out"
            .into(),
    })
}

/// Gives the graph of some data what a training of these settings reads of its edges.
///
/// # Errors
/// Values, weights or times that cannot be read; ages that are asked for of edges without times, and weights.
pub fn load_edges(config: &Stage2Config, dataset: &mut Dataset) -> Result<()> {
    if config.loader.draws_by_weight() {
        dataset.load_edge_weights("loader.draw")?;
    }
    read_edges(config.model.edges(), dataset)
}

/// The same data with what a training of these settings reads of edges, where it reads anything.
///
/// # Errors
/// As for [`load_edges`].
pub fn with_edges<'a>(config: &Stage2Config, dataset: &'a Dataset) -> Result<Cow<'a, Dataset>> {
    if !config.model.edges().any() && !config.loader.draws_by_weight() {
        return Ok(Cow::Borrowed(dataset));
    }
    let mut own = dataset.clone();
    load_edges(config, &mut own)?;
    Ok(Cow::Owned(own))
}

/// The graph of some data as a model reads it: with values and ages of its edges where the model takes any.
///
/// # Errors
/// Values or times that cannot be read.
pub fn graph_for(spec: &AttentionSpec, dataset: &Dataset) -> Result<HeteroGraph> {
    graph_with_edges(&spec.edges, dataset)
}

/// The labels that a model reads, if it does, of its run at `checkpoint` and for a `dataset`, read from `data`.
///
/// # Errors
/// A checkpoint outside of its run, and as for [`KnownLabels::read`].
pub fn known_labels(
    spec: &AttentionSpec,
    checkpoint: &Path,
    dataset: &Dataset,
    data: &Path,
) -> Result<Option<KnownLabels>> {
    if !spec.labels {
        return Ok(None);
    }
    if !checkpoint.is_dir() {
        let help = "give the directory of the run: it holds the labels that the model reads";
        return Err(Error::format(checkpoint, "known labels", "the directory of a run", "a checkpoint alone", help));
    }
    KnownLabels::read(checkpoint, dataset, data).map(Some)
}

/// The model's shape with streams and node types in the graph's order; `file` is the checkpoint, for errors.
///
/// # Errors
/// A graph with other streams or values of edges, or without a node type that has a transform of its own.
pub fn for_graph(spec: &AttentionSpec, graph: &HeteroGraph, file: &Path) -> Result<AttentionSpec> {
    let streams: Vec<String> = graph.streams().into_iter().map(String::from).collect();
    let same = streams.len() == spec.streams.len() && streams.iter().all(|s| spec.streams.contains(s));
    if !same {
        let help = "score a graph with the relations that the model was trained on";
        let (expected, found) = (format!("streams {}", streams.join(", ")), spec.streams.join(", "));
        return Err(Error::format(file, "streams", expected, found, help));
    }
    let types = || graph.node_types().iter().map(|t| &t.name);
    if let Some(missing) = spec.own.iter().flatten().find(|name| !types().any(|known| known == *name)) {
        let help = "score a graph with the node types that the model was trained on";
        let names: Vec<&str> = types().map(String::as_str).collect();
        return Err(Error::format(file, "node types", names.join(", "), missing.clone(), help));
    }
    let own = match spec.own.iter().any(Option::is_some) {
        false => Vec::new(),
        true => types().map(|name| spec.own.iter().flatten().find(|own| *own == name).cloned()).collect(),
    };
    let edges = inputs_for(&spec.edges, graph, file)?;
    Ok(AttentionSpec { streams, own, edges, ..spec.clone() })
}

/// Fails for an input of another width than that of the model.
///
/// # Errors
/// [`Error::Format`].
pub fn check_width(what: &Path, width: usize, expected: Option<usize>) -> Result<()> {
    match expected {
        Some(expected) if expected != width => Err(Error::format(
            what,
            "width",
            format!("{expected} columns, as the model was trained on"),
            width.to_string(),
            "give the embeddings or features that belong to this model",
        )),
        _ => Ok(()),
    }
}

/// A row of embeddings per node.
fn as_features(z: Array2<f32>) -> Features {
    let (rows, width) = z.dim();
    let values = if z.is_standard_layout() { z.into_raw_vec_and_offset().0 } else { z.iter().copied().collect() };
    Features::from_f32(values, rows, width)
}

/// What a Stage-2 model starts from on the data of its training, in host memory; `filling` is what stands for missing
/// values of features.
///
/// # Errors
/// When the embeddings or features are missing, or have another width than `expected_width`.
pub fn input_features(
    data: &Stage2Data,
    dataset: &Dataset,
    filling: Option<&Filling>,
    expected_width: Option<usize>,
) -> Result<Features> {
    match data.input {
        Stage2Input::Features => {
            let features = dataset.filled(filling, &data.path)?.ok_or_else(|| {
                let help = format!("use data.input = \"embeddings\" with a {EMBEDDINGS_FILE}");
                Error::format(&data.path, "features", "a feature file", "none", help)
            })?;
            check_width(&data.path, features.dim(), expected_width)?;
            Ok(features)
        }
        Stage2Input::Embeddings => {
            let file = data.embeddings_file();
            let z = open_output(&file, Some(dataset.graph.num_nodes()))?;
            check_width(&file, z.dim(), expected_width)?;
            Ok(z)
        }
    }
}
