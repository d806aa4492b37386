//! The layers of a model and its loss, as configurations tell them.

use std::path::Path;

use super::work::{Kind, LayerShape};
use crate::config::{
    ClassifyConfig, ClassifySplit, Jump, LabelShares, LayerKind, LoaderConfig, OwnTransform, Rows, RunConfig,
    SplitSource, Stage1Config, Stage2Config, Stage2Input,
};
use crate::error::{Error, Result};
use crate::graph::{ReadLabels, Sizes, matrix_shape};
use crate::models::precision::dtype;

/// A model on some data.
#[derive(Clone, Debug)]
pub struct Network<'a> {
    pub title: String,
    pub data: &'a Path,
    pub loader: &'a LoaderConfig,
    pub rows: Rows,
    pub layers: Vec<LayerShape>,
    /// Bytes of a number that it computes with, and of one that is stored.
    pub element: u64,
    pub stored: u64,
    /// Numbers that are learned.
    pub parameters: f64,
    /// Share of the edges that a training over the whole graph visits.
    pub kept: f64,
    /// Columns of a node that stay beside its features, made of them once for all epochs over the whole graph.
    pub at_hand: f64,
    /// Bytes of what the layers make of a node in a training of all rows, with the gradients that are there at the same
    /// time.
    pub trained: f64,
    /// Whether rows that ranks give each other cross while others are computed.
    pub crosses_beside: bool,
    /// Widths of the rows that ranks give each other between the layers where rows are divided; of the result in f32.
    pub gathered: Vec<usize>,
    pub result: usize,
    pub loss: Loss,
}

/// What an epoch learns from.
#[derive(Clone, Debug, Default)]
pub struct Loss {
    /// By type: labels.
    pub labels: Vec<f64>,
    /// By relation: edges, whose ends it reads.
    pub edges: Vec<(usize, f64)>,
    /// Nodes of a type that are drawn beside them.
    pub drawn: Vec<(usize, f64)>,
    /// What mini-batches count, and the most of them that there can be.
    pub seeds: f64,
    pub most_batches: f64,
}

/// Sizes of the data that `config` names, and the columns of the input.
///
/// # Errors
/// Data as for [`Sizes::read`], no features, another task than those of networks.
pub fn measured(config: &RunConfig) -> Result<(Sizes, usize)> {
    let (data, labels, embeddings) = match config {
        RunConfig::Stage1(config) => (&config.data.path, ReadLabels::None, None),
        RunConfig::Stage2(config) => {
            let embeddings = (config.data.input == Stage2Input::Embeddings).then(|| config.data.embeddings_file());
            (&config.data.path, ReadLabels::Binary, embeddings)
        }
        RunConfig::Classify(config) => (&config.data.path, ReadLabels::Classes, None),
        RunConfig::Stage3(_) | RunConfig::Pipeline(_) | RunConfig::Auto(_) => {
            let expected = "a configuration of task = \"stage1\", \"stage2\" or \"classify\"";
            return Err(usage("CONFIG", expected, config.name(), "plan a stage that is a network by itself"));
        }
    };
    let sizes = Sizes::read(data, labels)?;
    let width = match (embeddings, sizes.features) {
        (Some(file), _) => matrix_shape(&file)?[1],
        (None, Some([width, _])) => width,
        (None, None) => {
            let help = match config {
                RunConfig::Stage2(_) => "use data.input = \"embeddings\" with the file of a Stage 1",
                _ => "add features to the data directory",
            };
            return Err(Error::format(data, "features", "a feature file", "none", help));
        }
    };
    Ok((sizes, width))
}

impl<'a> Network<'a> {
    /// On a graph `scale` times as large as `sizes` say, with `width` columns of input.
    ///
    /// # Errors
    /// Layers that read edges whose number the data do not tell.
    pub fn of(config: &'a RunConfig, sizes: &Sizes, width: usize, scale: f64) -> Result<Self> {
        match config {
            RunConfig::Stage1(config) => Ok(auto_encoder(config, sizes, width, scale)),
            RunConfig::Stage2(config) => Ok(attention(config, sizes, width, scale)),
            RunConfig::Classify(config) => classifier(config, sizes, width, scale),
            RunConfig::Stage3(_) | RunConfig::Pipeline(_) | RunConfig::Auto(_) => {
                unreachable!("`measured` refuses what is no network")
            }
        }
    }
}

fn auto_encoder<'a>(config: &'a Stage1Config, sizes: &Sizes, width: usize, scale: f64) -> Network<'a> {
    let (hidden, out, whole) = (config.model.hidden, config.model.out, config.train.chunk_size.is_none());
    let into = relations_into(sizes);
    let sums = if whole { hidden as f64 * into } else { 0.0 };
    let layers = vec![
        LayerShape { kind: Kind::Sums, input: width, output: hidden, columns: hidden as f64 },
        LayerShape { kind: Kind::Sums, input: hidden, output: out, columns: sums + 2.0 * out as f64 },
    ];
    let element = dtype(config.train.precision).size();
    // A result and its gradient; in full the second layer's sums, too, and embeddings and their gradient in f32.
    let trained = match whole {
        true => element as f64 * (hidden as f64 + sums + out as f64) + (8 * out) as f64,
        false => (2 * element * (hidden + 2 * out)) as f64,
    };
    let positives = |relation: usize| config.sampling.edges_of(&sizes.relations[relation].stream) as f64;
    let kept = 1.0 - config.split.held_out;
    let edges = primary(sizes, kept * scale, positives);
    let drawn = edges.iter().map(|&(relation, count)| {
        (sizes.relations[relation].dst, count * config.sampling.negatives_per_positive as f64)
    });
    let counts = edges.iter().map(|(_, count)| *count);
    let loss = Loss {
        labels: vec![0.0; sizes.node_types.len()],
        drawn: drawn.collect(),
        seeds: counts.clone().sum(),
        most_batches: counts.fold(0.0, f64::max),
        edges,
    };
    let weights = width * hidden + hidden * out;
    let streams = streams(sizes);
    Network {
        title: "Stage 1".into(),
        data: &config.data.path,
        loader: &config.loader,
        rows: config.train.rows,
        layers,
        element: element as u64,
        stored: stored(sizes),
        parameters: (streams * (weights + hidden + out) + sizes.node_types.len() * weights) as f64,
        kept,
        at_hand: if whole { into * width as f64 } else { 0.0 },
        trained,
        crosses_beside: crosses_beside(sizes, whole),
        gathered: vec![hidden],
        result: out,
        loss,
    }
}

/// Relations into a node, on average.
fn relations_into(sizes: &Sizes) -> f64 {
    let into = sizes.relations.iter().map(|of| sizes.node_types[of.dst].count as f64).sum::<f64>();
    into / (sizes.nodes() as f64).max(1.0)
}

fn attention<'a>(config: &'a Stage2Config, sizes: &Sizes, width: usize, scale: f64) -> Network<'a> {
    let (hidden, out) = (config.model.hidden, config.model.out);
    // In chunks of rows there are whole results alone.
    let columns = match config.train.chunk_size {
        None => [width + 2 * hidden, 2 * out],
        Some(_) => [hidden, out],
    };
    let element = dtype(config.train.precision).size();
    let again = config.model.recompute && config.train.chunk_size.is_none();
    let kind = Kind::Attention { again };
    // The sums of positive scores of every relation, which are not kept.
    let left_out = if again { element as f64 * relations_into(sizes) * (width + hidden) as f64 } else { 0.0 };
    let layer = |input, output, columns: usize| LayerShape { kind, input, output, columns: columns as f64 };
    let labels = match config.split.source {
        SplitSource::Masks => in_masks(sizes, config.split.index, scale),
        SplitSource::Random => None,
    };
    let labels = labels.unwrap_or_else(|| of_shares(&config.split.drawn, sizes, scale));
    let most = if config.loss.lambda_unsup > 0.0 { config.loss.samples_per_relation as f64 } else { 0.0 };
    let edges = primary(sizes, scale, |_| most);
    let labelled: f64 = labels.iter().sum();
    let loss = Loss {
        drawn: Vec::new(),
        seeds: labelled + edges.iter().map(|(_, count)| 2.0 * count).sum::<f64>(),
        most_batches: edges.iter().map(|(_, count)| *count).fold(labelled, f64::max),
        labels,
        edges,
    };
    let streams = streams(sizes);
    let own = if config.model.own == OwnTransform::Always { sizes.node_types.len() } else { 0 };
    let weights = (streams + own) * (width * hidden + hidden * out);
    Network {
        title: "Stage 2".into(),
        data: &config.data.path,
        loader: &config.loader,
        rows: config.train.rows,
        layers: vec![layer(width, hidden, columns[0]), layer(hidden, out, columns[1])],
        element: element as u64,
        stored: if config.data.input == Stage2Input::Features { stored(sizes) } else { 4 },
        parameters: (weights + streams * 2 * (hidden + out) + out + 1) as f64,
        kept: 1.0 - config.drop_edge.rate,
        at_hand: 0.0,
        trained: (2 * element * (columns[0] + columns[1])) as f64 - left_out,
        crosses_beside: crosses_beside(sizes, config.train.chunk_size.is_none() && config.model.heads == 1),
        gathered: vec![hidden],
        result: 1,
        loss,
    }
}

fn classifier<'a>(config: &'a ClassifyConfig, sizes: &Sizes, width: usize, scale: f64) -> Result<Network<'a>> {
    let (model, classes) = (&config.model, sizes.classes);
    if model.layer == LayerKind::H2gcn {
        let help = "plan model.layer = \"sage\", which has all but the nodes two edges away";
        return Err(usage("model.layer", "layers that read edges of the data", "\"h2gcn\"", help));
    }
    let relations = sizes.relations.len();
    let typed = sizes.node_types.len() > 1 || relations > 1;
    let own = typed || model.layer.has_own() || model.attention.as_ref().is_some_and(|of| of.edges().any());
    let has_head = model.jump != Jump::None;
    // The projection of a layer and its result, and gradients of both; of attention also the part with positive scores.
    // Relations have a projection and a result each.
    let kept = if model.attention.is_some() { 2.5 } else { 2.0 };
    let kept = if own { (kept - 1.0) * relations as f64 + 1.0 } else { kept };
    let dropped = if model.dropout > 0.0 { 0.5 } else { 0.0 };
    let layer = |at: usize| {
        let last = at + 1 == model.layers && !has_head;
        let (input, output) = (if at == 0 { width } else { model.hidden }, if last { classes } else { model.hidden });
        let heads = model.attention.as_ref().map_or(0, |of| if last { of.out_heads } else { of.heads });
        let columns = match model.layer {
            LayerKind::Difference => 2 * output,
            // Averaged heads are as wide as the result each, others share its columns.
            LayerKind::Gat if last => heads * output,
            _ => output,
        };
        let kind = Kind::Projected { width: columns, heads, own };
        LayerShape {
            kind,
            input,
            output,
            columns: kept * columns as f64 + if last { 0.0 } else { dropped * output as f64 },
        }
    };
    let dense = |input: usize, output: usize| LayerShape {
        kind: Kind::Dense,
        input,
        output,
        columns: (2.0 + dropped) * output as f64,
    };
    let layers: Vec<LayerShape> = if model.layer.is_wavelets() {
        let (hidden, order) = (model.hidden, model.order);
        let columns = 2.0 * (order + 1) as f64 * hidden as f64;
        let wavelets = LayerShape { kind: Kind::Wavelets { order }, input: hidden, output: hidden, columns };
        let before = [dense(width, hidden), dense(hidden, hidden)];
        before.into_iter().chain((0..model.layers).map(|_| wavelets)).chain([dense(hidden, classes)]).collect()
    } else {
        let head = has_head.then(|| dense(model.layers * model.hidden, classes));
        (0..model.layers).map(layer).chain(head).collect()
    };
    // What ranks give each other: rows that are projected, where nothing else reads them; of several relations the rows
    // between the layers.
    let gathered = |(at, of): (usize, &LayerShape)| match of.kind {
        Kind::Projected { own: true, .. } if at == 0 => vec![],
        Kind::Projected { own: true, .. } => vec![of.input],
        Kind::Projected { width, .. } => vec![width],
        Kind::Wavelets { order } => vec![of.output; order * relations],
        Kind::Attention { .. } | Kind::Sums | Kind::Dense => vec![],
    };
    let parameters = |of: &LayerShape| match of.kind {
        Kind::Projected { width, own, .. } => {
            let nodes = if own { sizes.node_types.len() } else { 0 };
            of.input * (relations * width + nodes * of.output) + nodes.max(1) * of.output
        }
        Kind::Wavelets { order } => relations * (order + 1) * of.input * of.output + of.output,
        Kind::Attention { .. } | Kind::Sums | Kind::Dense => of.input * of.output + of.output,
    };
    let labels = match &config.split {
        ClassifySplit::Masks { index } => in_masks(sizes, *index, scale),
        ClassifySplit::Random { per_class: Some(count), .. } => Some(of_all(sizes, scale, (count * classes) as f64)),
        ClassifySplit::Random { per_class: None, shares } => Some(shared_out(sizes, scale, shares.train)),
        ClassifySplit::Labels(shares) => Some(of_shares(shares, sizes, scale)),
    };
    // Of data that import has divided.
    let labels = labels.unwrap_or_else(|| shared_out(sizes, scale, DIVIDED));
    let (seeds, element) = (labels.iter().sum(), dtype(config.train.precision).size() as u64);
    Ok(Network {
        title: format!("classify, layers of {}", model.layer.name()),
        data: &config.data.path,
        loader: &config.loader,
        rows: Rows::All,
        gathered: layers.iter().enumerate().flat_map(gathered).collect(),
        parameters: layers.iter().map(parameters).sum::<usize>() as f64,
        trained: 2.0 * element as f64 * layers.iter().map(|of| of.columns).sum::<f64>(),
        layers,
        element,
        stored: stored(sizes),
        kept: 1.0,
        at_hand: 0.0,
        crosses_beside: false,
        result: classes,
        loss: Loss { labels, seeds, most_batches: seeds, ..Loss::default() },
    })
}

/// Whether there are rows of one type to compute while those of another cross, in layers of whole rows.
fn crosses_beside(sizes: &Sizes, whole: bool) -> bool {
    whole && sizes.node_types.len() > 1
}

/// The share of the labels that a training has of data without masks, where nothing else is said.
const DIVIDED: f64 = 0.6;

fn stored(sizes: &Sizes) -> u64 {
    sizes.features.map_or(4, |[_, bytes]| bytes as u64)
}

/// Groups of relations that have weights in common.
fn streams(sizes: &Sizes) -> usize {
    let mut streams: Vec<&str> = sizes.relations.iter().map(|relation| relation.stream.as_str()).collect();
    streams.sort_unstable();
    streams.dedup();
    streams.len()
}

/// By primary relation: the edges that a loss reads, `most` of those that there are.
fn primary(sizes: &Sizes, share: f64, most: impl Fn(usize) -> f64) -> Vec<(usize, f64)> {
    let primary = sizes.relations.iter().enumerate().filter(|(_, relation)| relation.primary);
    primary.map(|(at, of)| (at, most(at).min(of.degrees[0].edges() as f64 * share))).collect()
}

/// By type: a share of the labels.
fn shared_out(sizes: &Sizes, scale: f64, share: f64) -> Vec<f64> {
    sizes.labels.iter().map(|&count| share.min(1.0) * scale * count as f64).collect()
}

/// By type: so many labels of all.
fn of_all(sizes: &Sizes, scale: f64, count: f64) -> Vec<f64> {
    shared_out(sizes, scale, count / (scale * sizes.labels.iter().sum::<usize>() as f64).max(1.0))
}

/// By type: labels of the training part by shares or counts.
fn of_shares(drawn: &LabelShares, sizes: &Sizes, scale: f64) -> Vec<f64> {
    match drawn.few() {
        Some(few) => of_all(sizes, scale, few.iter().sum::<usize>() as f64),
        None => shared_out(sizes, scale, drawn.shares.train),
    }
}

/// By type: labels of the training part by the masks of the data, where they have any.
fn in_masks(sizes: &Sizes, index: usize, scale: f64) -> Option<Vec<f64>> {
    Some(sizes.masks.get(index)?.iter().map(|&count| scale * count as f64).collect())
}

pub(super) fn usage(argument: &str, expected: &str, found: &str, help: &str) -> Error {
    let [argument, expected, found, help] = [argument, expected, found, help].map(String::from);
    Error::Usage { argument, expected, found, help }
}
