//! The feature table that a tree ensemble reads.

use std::borrow::Cow;
use std::cell::RefCell;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphsieve_kernels::GraphBackend;
use ndarray::ArrayView2;
use rayon::prelude::*;

use super::attention::{check_width, graph_for, input_features, known_labels};
use super::embed::{Source, TrainedOn};
use super::layerwise::{HostScored, scores_with_labels};
use super::stage2::Stage2;
use super::uploaded::Uploaded;
use crate::config::{RunConfig, Stage2Data, Stage2Input, Stage3Config};
use crate::error::{Error, Result};
use crate::features::{
    Column, Execution, FeatureTable, FoldedLabel, IncidentValues, Neighbourhood, NeighbourhoodConfig, label_shares,
};
use crate::graph::{Dataset, Events, Features, Filling, HeteroGraph, MatrixWriter, Spill, Subset};
use crate::live::{Layer, Part};
use crate::metrics::softplus;
use crate::models::attention::{TripleStreamGat, reads_ages};
use crate::models::device_graph::check_device;
use crate::models::tree_ensemble::{TreeCheckpoint, TreeInputs};
use crate::models::weights::{ModelSpec, Weights};
use crate::run::known_labels::KnownLabels;

/// Names of the blocks that stages before leave.
pub const EMBEDDING: &str = "embedding";
/// Reconstruction error of Stage 1.
pub const RECONSTRUCTION: &str = "reconstruction";
/// Score of Stage 2.
pub const STAGE2_SCORE: &str = "stage2_score";
/// Refined embedding of Stage 2.
pub const STAGE2_EMBEDDING: &str = "stage2_embedding";

/// Scores and refined embeddings of all nodes by some Stage 2.
pub struct Stage2Output {
    /// One per node.
    pub scores: Vec<f32>,
    /// One row per node, in f32.
    pub embeddings: Features,
}

impl Stage2Output {
    /// The mean scores and embeddings of several of them, which are not none.
    ///
    /// # Errors
    /// A file of `spill`.
    ///
    /// # Panics
    /// For outputs of different sizes.
    pub fn mean(outputs: &[Self], spill: &Spill) -> Result<(Vec<f32>, MatrixWriter)> {
        let share = 1.0 / outputs.len() as f32;
        let [nodes, dim] = [outputs[0].scores.len(), outputs[0].embeddings.dim()];
        let is_alike = |of: &Self| [of.scores.len(), of.embeddings.dim()] == [nodes, dim];
        assert!(outputs.iter().all(is_alike), "Stage2Output::mean: expected outputs of one size");
        let (mut scores, mut embeddings) = (vec![0.0; nodes], spill.zeros(nodes, dim)?);
        for output in outputs {
            scores.iter_mut().zip(&output.scores).for_each(|(mean, score)| *mean += share * score);
        }
        for first in (0..nodes).step_by(PIECE_ROWS) {
            let rows = first..nodes.min(first + PIECE_ROWS);
            embeddings.fill(rows.clone(), |mean| {
                for output in outputs {
                    let values = rows.clone().flat_map(|node| output.embeddings.row(node));
                    mean.iter_mut().zip(values).for_each(|(mean, value)| *mean += share * value);
                }
            })?;
        }
        Ok((scores, embeddings))
    }
}

/// Rows that are written at a time.
const PIECE_ROWS: usize = 1 << 16;

/// The neighbourhood blocks of a dataset, which was read from `path`.
///
/// # Errors
/// Data without features, or without the values of edges that are asked for; as for [`Neighbourhood::table`] and
/// [`IncidentValues::of`].
pub fn neighbourhood_table<B: GraphBackend>(
    dataset: &Dataset,
    path: &Path,
    config: &NeighbourhoodConfig,
    device: &B::Device,
) -> Result<FeatureTable> {
    neighbourhood_within::<B>((dataset, None), path, config, None, &Spill::default(), device)
}

/// The same, or of the `part` of the dataset that a training may see, with columns in files where they need more memory
/// than `spill` has; `missing` are columns that are taken for such as lack values.
fn neighbourhood_within<B: GraphBackend>(
    (dataset, part): (&Dataset, Option<&Subset>),
    path: &Path,
    config: &NeighbourhoodConfig,
    missing: Option<&[bool]>,
    spill: &Spill,
    device: &B::Device,
) -> Result<FeatureTable> {
    let seen = part.map_or(dataset, |part| &part.dataset);
    let plan = Neighbourhood::new(&seen.graph, features_of(seen, path)?, config)?;
    let plan = match missing {
        Some(missing) => plan.with_missing(missing),
        None => plan,
    };
    let mut table = plan.table_within::<B>(spill, device, Execution::default())?;
    check_device()?;
    if config.edge_values {
        let edges = IncidentValues::of(dataset)?;
        if edges.columns().is_empty() {
            let expected = "some, which features.edge_values = true reads";
            let help = "name columns as `values` of an [[edges]] table and import it again, or leave the key out";
            return Err(Error::format(path, "values of edges", expected, "none", help));
        }
        let left = spill.beside(table.bytes_in_memory());
        let values = left.keep(edges.rows(part), table.num_rows(), edges.columns().len())?;
        table.join(edges.columns().to_vec(), values)?;
    }
    Ok(table)
}

/// The rows of some nodes in the same; of others nothing is copied that no column looks at.
fn neighbourhood_rows<B: GraphBackend>(
    dataset: &Dataset,
    path: &Path,
    config: &NeighbourhoodConfig,
    missing: Option<&[bool]>,
    nodes: &[u32],
    device: &B::Device,
) -> Result<FeatureTable> {
    let spill = &Spill::default();
    if config.looks_at_neighbours() || config.edge_values {
        return Ok(neighbourhood_within::<B>((dataset, None), path, config, missing, spill, device)?.rows(nodes));
    }
    let own = features_of(dataset, path)?.select(nodes);
    Neighbourhood::alone(&own, config)?.table::<B>(device, Execution::default())
}

fn features_of<'a>(dataset: &'a Dataset, path: &Path) -> Result<&'a Features> {
    dataset.features.as_ref().ok_or_else(|| {
        let help = "trees read the features of nodes; add them to the data directory";
        Error::format(path, "features", "a feature file", "none", help)
    })
}

/// Bytes of the tables that are kept for other trainings.
const KEPT: u64 = 1 << 30;

/// Neighbourhood tables of one graph with its features, made once for several trainings.
#[derive(Debug, Default)]
pub struct Tables(RefCell<Vec<(NeighbourhoodConfig, bool, Arc<FeatureTable>)>>);

impl Tables {
    /// As [`neighbourhood_table`], or of a part. Tables beyond a gibibyte of memory in all are not kept.
    ///
    /// # Errors
    /// As for [`neighbourhood_table`]; a file that cannot be written.
    pub fn of<B: GraphBackend>(
        &self,
        (dataset, part): (&Dataset, Option<&Subset>),
        path: &Path,
        config: &NeighbourhoodConfig,
        spill: &Spill,
        device: &B::Device,
    ) -> Result<Arc<FeatureTable>> {
        let is_same = |of: &NeighbourhoodConfig, of_part: bool| of == config && of_part == part.is_some();
        if let Some((.., table)) = self.0.borrow().iter().find(|(of, of_part, _)| is_same(of, *of_part)) {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(neighbourhood_within::<B>((dataset, part), path, config, None, spill, device)?);
        let kept: u64 = self.0.borrow().iter().map(|(.., table)| table.bytes_in_memory()).sum();
        if kept + table.bytes_in_memory() <= KEPT {
            self.0.borrow_mut().push((config.clone(), part.is_some(), Arc::clone(&table)));
        }
        Ok(table)
    }
}

/// Appends the blocks of Stage 1 from the embeddings of all nodes.
///
/// # Errors
/// Embeddings that are not one per node.
pub fn append_stage1(table: &mut FeatureTable, graph: &HeteroGraph, inputs: &TreeInputs, z: &Features) -> Result<()> {
    if inputs.embedding {
        table.append(EMBEDDING, z.clone())?;
    }
    if inputs.reconstruction {
        table.append(RECONSTRUCTION, of_nodes(reconstruction_errors(graph, z.as_f32())))?;
    }
    Ok(())
}

/// Appends the blocks of Stage 2.
///
/// # Errors
/// [`Error::Data`] when it is not one row per node.
pub fn append_stage2(table: &mut FeatureTable, inputs: &TreeInputs, output: &Stage2Output) -> Result<()> {
    if inputs.stage2_score {
        table.append(STAGE2_SCORE, of_nodes(output.scores.clone()))?;
    }
    if inputs.stage2_embedding {
        table.append(STAGE2_EMBEDDING, output.embeddings.clone())?;
    }
    Ok(())
}

/// A column of a number per node.
fn of_nodes(values: Vec<f32>) -> Features {
    let nodes = values.len();
    Features::from_f32(values, nodes, 1)
}

/// Appends the columns of known labels.
///
/// # Errors
/// Labels whose nodes have times; as for [`label_shares`].
pub fn append_labels(
    table: &mut FeatureTable,
    graph: &HeteroGraph,
    config: &NeighbourhoodConfig,
    known: &KnownLabels,
) -> Result<()> {
    let (columns, values) = label_columns(graph, config, known)?;
    table.join(columns, values).map(drop)
}

/// The columns of known labels, and the values of all nodes.
fn label_columns(
    graph: &HeteroGraph,
    config: &NeighbourhoodConfig,
    known: &KnownLabels,
) -> Result<(Vec<Column>, Features)> {
    let Some((folds, labels)) = known.folds() else { return Err(labels_in_time()) };
    let labels: Vec<FoldedLabel> = labels.map(|(node, label, fold)| FoldedLabel { node, label, fold }).collect();
    let (columns, values) = label_shares(graph, config, &labels, folds)?;
    let values = Features::from_f32(values, graph.num_nodes(), columns.len());
    Ok((columns, values))
}

/// Refuses shares of labels that become known with time.
pub fn labels_in_time() -> Error {
    Error::setting(
        "features.label_share",
        "true",
        "false for events: their labels become known with time",
        "[[windows]] of `graphsieve import tables` has such shares as of each event: known_frauds, fraud_share",
    )
}

/// How badly embeddings explain the edges that lead to each node, see [`reconstruction_error`].
pub fn reconstruction_errors(graph: &HeteroGraph, z: ArrayView2<f32>) -> Vec<f32> {
    let error = reconstruction_error(graph, z);
    (0..graph.num_nodes()).into_par_iter().with_min_len(256).map(error).collect()
}

/// Rows of neighbours that are fetched side by side.
const FETCHED: usize = 32;
/// Values of a cache line.
const LINE: usize = 16;

/// How badly embeddings explain the edges that lead to a node: the mean of `-ln sigmoid(<z_i, z_j>)` over all
/// relations; NaN without edges.
pub fn reconstruction_error<'a>(graph: &'a HeteroGraph, z: ArrayView2<'a, f32>) -> impl Fn(usize) -> f32 + Sync + 'a {
    let types = graph.node_types();
    let (dim, values) = (z.ncols(), z.to_slice().unwrap_or_default());
    let row = move |node: usize| &values[node * dim..(node + 1) * dim];
    move |node: usize| {
        let (of_type, own) = (graph.type_of(node), row(node));
        let (mut sum, mut edges) = (0f64, 0usize);
        for relation in graph.relations().iter().filter(|relation| relation.dst == of_type) {
            let first = types[relation.src].offset;
            let neighbours = relation.forward.row(node - types[of_type].offset);
            for neighbours in neighbours.chunks(FETCHED) {
                let rows = neighbours.iter().map(|&neighbour| row(first + neighbour as usize));
                // One value of each cache line of them all: while it multiplies, a processor does not look far enough
                // ahead to fetch rows side by side.
                black_box(rows.clone().flat_map(|row| row.iter().step_by(LINE)).sum::<f32>());
                sum = rows.fold(sum, |sum, row| sum + softplus(-f64::from(dot(own, row))));
            }
            edges += neighbours.len();
        }
        if edges == 0 { f32::NAN } else { (sum / edges as f64) as f32 }
    }
}

/// `<a, b>`, in sums that a processor adds side by side, of the same order on all of them.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let (mut sums, [whole_a, whole_b]) = ([0f32; LANES], [a, b].map(|row| row.chunks_exact(LANES)));
    let rest: f32 = whole_a.remainder().iter().zip(whole_b.remainder()).map(|(a, b)| a * b).sum();
    whole_a.zip(whole_b).for_each(|(a, b)| (0..LANES).for_each(|lane| sums[lane] += a[lane] * b[lane]));
    sums.iter().sum::<f32>() + rest
}

/// The scores that Stage 1 gives: `1 - exp(-error)` of [`reconstruction_errors`].
pub fn reconstruction_scores(graph: &HeteroGraph, z: ArrayView2<f32>) -> Vec<f32> {
    reconstruction_errors(graph, z).into_iter().map(score_of_error).collect()
}

/// The score of a [`reconstruction_error`].
pub fn score_of_error(error: f32) -> f32 {
    -(-error).exp_m1()
}

/// What the tables of the trees of a checkpoint are made with, read once: settings, models of Stage 2, and where the
/// embeddings of Stage 1 come from.
#[derive(Debug)]
pub struct TableModel<B: GraphBackend> {
    inputs: TreeInputs,
    trained: Option<Stage3Config>,
    source: Source,
    /// What an array of embeddings is from.
    weights: Option<PathBuf>,
    folds: Vec<Fold<B>>,
    /// The run directory, of models that read labels.
    run: Option<PathBuf>,
    /// Columns of features that are taken for such as lack values.
    missing: Option<Vec<bool>>,
    device: B::Device,
}

/// A model of Stage 2.
#[derive(Debug)]
struct Fold<B: GraphBackend> {
    network: Stage2<B>,
    /// What it starts from.
    data: Stage2Data,
    filling: Option<Filling>,
    /// Its run.
    run: PathBuf,
    /// Its checkpoint, for errors.
    file: PathBuf,
}

/// The labels that a model reads: trees, and the models of Stage 2 before them.
#[derive(Clone, Debug, Default)]
pub struct TableLabels {
    own: Option<KnownLabels>,
    /// By model of Stage 2.
    folds: Vec<Option<KnownLabels>>,
}

impl TableLabels {
    /// Those of a model without others before it.
    pub fn own(own: Option<KnownLabels>) -> Self {
        Self { own, folds: Vec::new() }
    }

    /// Those that the model reads itself.
    pub fn into_own(self) -> Option<KnownLabels> {
        self.own
    }

    /// Those of a part of the nodes, as [`KnownLabels::of_part`] has them.
    pub fn of_part(&self, whole: &[Option<u32>], events: Option<&Events>) -> Self {
        let part = |known: &Option<KnownLabels>| known.as_ref().map(|known| known.of_part(whole, events));
        Self { own: part(&self.own), folds: self.folds.iter().map(part).collect() }
    }
}

impl<B: GraphBackend> TableModel<B> {
    /// Reads what the trees of `checkpoint` need, for data like `dataset`.
    ///
    /// # Errors
    /// Models of Stage 2 that cannot be read or do not fit the data; a checkpoint outside of its run that needs one.
    pub fn open(
        options: &TableOptions,
        checkpoint: &TreeCheckpoint,
        dataset: &Dataset,
        device: &B::Device,
    ) -> Result<Self> {
        let inputs = checkpoint.inputs.clone();
        let trained = match options.run {
            Some(run) => match RunConfig::load_kept(&run.join("config.toml"), &[])? {
                RunConfig::Stage3(config) => Some(config),
                _ => None,
            },
            None => None,
        };
        let on = trained_on(options, trained.as_ref());
        let source = Source::of(options.input, on, options.data);
        let weights = source.weights(on);
        let mut folds = Vec::new();
        if inputs.stage2_score || inputs.stage2_embedding {
            let (Some(run), Some(trained)) = (options.run, &trained) else {
                let help = "give the directory of the run: its folds hold the models of Stage 2";
                let found = "a checkpoint file alone";
                return Err(Error::format(options.checkpoint, "checkpoint", "the directory of a run", found, help));
            };
            let open = |fold: &PathBuf| Fold::open(&run.join(fold), trained, dataset, device);
            folds = inputs.folds.iter().map(open).collect::<Result<_>>()?;
        }
        if let (true, None) = (inputs.label_share, options.run) {
            let (place, found) = ("known labels", "a checkpoint file alone");
            let help = "give the directory of the run: it holds the labels that the trees read";
            return Err(Error::format(options.checkpoint, place, "the directory of a run", found, help));
        }
        let (run, device) = (options.run.map(Path::to_owned), device.clone());
        Ok(Self { inputs, trained, source, weights, folds, run, missing: None, device })
    }

    /// For parts of data whose features are `features`: what these lack anywhere counts as what a part may lack.
    pub fn for_parts_of(self, features: Option<&Features>) -> Self {
        let missing = features.filter(|_| self.inputs.neighbourhood.walks()).map(Features::missing);
        Self { missing, ..self }
    }

    /// Whether the rows of a part with these features are the same to the bit beside others.
    pub fn joins(&self, features: Option<&Features>) -> bool {
        let (Some(missing), Some(features)) = (&self.missing, features) else { return true };
        features.missing().iter().zip(missing).all(|(own, missing)| *missing || !*own)
    }

    /// Where the embeddings of Stage 1 come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The weights that an array of embeddings is from, where they are at hand.
    pub fn weights(&self) -> Option<&Path> {
        self.weights.as_deref()
    }

    /// The settings of the run, where there is one.
    pub fn trained(&self) -> Option<&Stage3Config> {
        self.trained.as_ref()
    }

    /// Whether models of Stage 2 read embeddings of Stage 1.
    fn by_stage2(&self) -> bool {
        let stage2 = self.trained.as_ref().and_then(|trained| trained.stage2.as_ref());
        !self.folds.is_empty() && stage2.is_some_and(|stage2| stage2.data.input == Stage2Input::Embeddings)
    }

    /// Whether embeddings of Stage 1 are read, by trees or by Stage 2.
    pub fn reads_embeddings(&self) -> bool {
        self.inputs.embedding || self.inputs.reconstruction || self.by_stage2()
    }

    /// Whether models of Stage 2 read ages of edges.
    pub fn reads_ages(&self) -> bool {
        self.folds.iter().any(|fold| reads_ages(&fold.network.spec().edges))
    }

    /// How many edges from a node the columns of a node look, with the embeddings of Stage 1 given.
    pub fn reach(&self) -> usize {
        let TreeInputs { neighbourhood: of, .. } = &self.inputs;
        let walks = if of.mean || of.max || of.sum || self.inputs.label_share { of.hops } else { 0 };
        // Wavelets divide by the degrees of both ends.
        let wavelets = if of.wavelets { of.wavelet_order + 1 } else { 0 };
        walks.max(wavelets).max(self.layers())
    }

    /// How many models of Stage 2 keep rows of nodes that are two layers away from a target: none where anything else
    /// looks as far, or where it is another node's label or embedding that they read.
    pub fn networks(&self) -> usize {
        let TreeInputs { neighbourhood: of, .. } = &self.inputs;
        let is_far = of.wavelets || self.inputs.label_share || (of.mean || of.max || of.sum) && of.hops > 1;
        let reads_labels = self.folds.iter().any(|fold| fold.network.spec().labels);
        if is_far || reads_labels || self.by_stage2() { 0 } else { self.folds.len() }
    }

    /// Layers of the models of Stage 2 that its columns read, or one.
    pub fn layers(&self) -> usize {
        if self.folds.is_empty() { 1 } else { TripleStreamGat::<B>::LAYERS }
    }

    /// How many edges from a node the nodes are whose embeddings of Stage 1 its columns read.
    pub fn embeddings_within(&self) -> usize {
        match self.by_stage2() {
            true => TripleStreamGat::<B>::LAYERS,
            false => usize::from(self.inputs.reconstruction),
        }
    }

    /// The labels that are read, for a `dataset` that was read from `data`.
    ///
    /// # Errors
    /// As for [`KnownLabels::read`].
    pub fn labels(&self, dataset: &Dataset, data: &Path) -> Result<TableLabels> {
        let of_trees = self.run.as_ref().filter(|_| self.inputs.label_share);
        let of_fold = |fold: &Fold<B>| known_labels(fold.network.spec(), &fold.run, dataset, data);
        Ok(TableLabels {
            own: of_trees.map(|run| KnownLabels::read(run, dataset, data)).transpose()?,
            folds: self.folds.iter().map(of_fold).collect::<Result<_>>()?,
        })
    }

    /// The table for `dataset`, which was read from `data`, within the memory of `spill`; `embeddings` reads or makes
    /// those of Stage 1, where they are [read](Self::reads_embeddings), and `by_layers` is a limit that layers are
    /// computed one by one for.
    ///
    /// # Errors
    /// Data that do not fit, a device that failed, and what `embeddings` runs into.
    pub fn table(
        &self,
        dataset: &Dataset,
        data: &Path,
        labels: &TableLabels,
        embeddings: impl FnOnce(&Spill) -> Result<Features>,
        (spill, by_layers): (&Spill, bool),
    ) -> Result<FeatureTable> {
        let (inputs, device) = (&self.inputs, &self.device);
        let (of, missing) = (&inputs.neighbourhood, self.missing.as_deref());
        let mut table = neighbourhood_within::<B>((dataset, None), data, of, missing, spill, device)?;
        let left = &spill.beside(table.bytes_in_memory());
        let z = self.reads_embeddings().then(|| embeddings(left)).transpose()?;
        if let (true, Some(z)) = (inputs.embedding || inputs.reconstruction, &z) {
            append_stage1(&mut table, &dataset.graph, inputs, z)?;
        }
        let z = z.filter(|_| self.by_stage2());
        let left = &left.beside(z.as_ref().map_or(0, Features::bytes_in_memory));
        if !self.folds.is_empty() {
            let outputs =
                self.folds.iter().zip(&labels.folds).map(|(fold, known)| {
                    fold.output(z.as_ref(), dataset, data, known.as_ref(), by_layers.then_some(left))
                });
            let (scores, embeddings) = Stage2Output::mean(&outputs.collect::<Result<Vec<_>>>()?, left)?;
            append_stage2(&mut table, inputs, &Stage2Output { scores, embeddings: embeddings.finish()? })?;
        }
        if let Some(known) = &labels.own {
            append_labels(&mut table, &dataset.graph, &inputs.neighbourhood, known)?;
        }
        Ok(table)
    }

    /// The rows of the targets of a part alone; of Stage 1 and 2 no more is computed than they need: `embeddings` has
    /// those of given nodes, in their order, or of all, of which these [are read](Self::embeddings_within).
    ///
    /// # Errors
    /// As for [`table`](Self::table).
    pub fn rows(
        &self,
        part: &Part,
        data: &Path,
        labels: &TableLabels,
        embeddings: impl FnOnce(Option<&[u32]>) -> Result<Features>,
        uploaded: &Uploaded<B>,
    ) -> Result<FeatureTable> {
        let (dataset, nodes) = (&part.dataset, &part.targets[..]);
        let (inputs, graph, spill) = (&self.inputs, &dataset.graph, &Spill::default());
        let (of, missing) = (&inputs.neighbourhood, self.missing.as_deref());
        let mut table = neighbourhood_rows::<B>(dataset, data, of, missing, nodes, &self.device)?;
        let own = (self.embeddings_within() == 0).then_some(nodes);
        let z = self.reads_embeddings().then(|| embeddings(own)).transpose()?;
        if let (true, Some(z)) = (inputs.embedding, &z) {
            table.append(EMBEDDING, if own.is_some() { z.clone() } else { z.select(nodes) })?;
        }
        if let (true, Some(z)) = (inputs.reconstruction, &z) {
            let error = reconstruction_error(graph, z.as_f32());
            table.append(RECONSTRUCTION, of_nodes(nodes.iter().map(|&node| error(node as usize)).collect()))?;
        }
        if !self.folds.is_empty() {
            let z = z.filter(|_| self.by_stage2());
            let mut outputs = Vec::with_capacity(self.folds.len());
            for (at, (fold, known)) in self.folds.iter().zip(&labels.folds).enumerate() {
                let features = fold.input(z.as_ref(), dataset, data)?;
                let keeps = (Layer::Network(at), true);
                let of = fold.network.target_scores((part, &*features), known.as_ref(), keeps, uploaded)?;
                outputs.push(Stage2Output { scores: of.scores, embeddings: of.embeddings });
            }
            let (scores, embeddings) = Stage2Output::mean(&outputs, spill)?;
            append_stage2(&mut table, inputs, &Stage2Output { scores, embeddings: embeddings.finish()? })?;
        }
        if let Some(known) = &labels.own {
            let (columns, values) = label_columns(graph, of, known)?;
            table.join(columns, values.select(nodes))?;
        }
        Ok(table)
    }
}

/// The table that the trees of a checkpoint read, for the data of `options`.
///
/// # Errors
/// Data, embeddings or models of Stage 2 that cannot be read or do not fit the checkpoint.
pub fn table<B: GraphBackend>(
    options: &TableOptions,
    checkpoint: &TreeCheckpoint,
    dataset: &Dataset,
    device: &B::Device,
) -> Result<FeatureTable> {
    let model = TableModel::<B>::open(options, checkpoint, dataset, device)?;
    let labels = model.labels(dataset, options.data)?;
    let spill = &options.spill.or_gigabytes(model.trained().map_or(0.0, |trained| trained.features.host_memory));
    let limited = options.spill.is_limited();
    // Without a limit of the caller's layers are computed as the run's were.
    let z = |left: &Spill| {
        let of_layers = if limited { left } else { options.spill };
        model.source().read::<B>(dataset, options.data, of_layers, device)
    };
    let table = model.table(dataset, options.data, &labels, z, (spill, limited))?;
    checkpoint.check_columns(table.columns(), options.data)?;
    Ok(table)
}

/// What [`table`] is made from.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions<'a> {
    /// A checkpoint file or a run directory.
    pub checkpoint: &'a Path,
    /// The run directory, if `checkpoint` is one.
    pub run: Option<&'a Path>,
    /// The data that were read.
    pub data: &'a Path,
    /// Embeddings of Stage 1 instead of those that the run was trained on.
    pub input: Option<&'a Path>,
    /// The host memory that columns, and rows of layers, may take; the run's where it says nothing.
    pub spill: &'a Spill,
}

/// What the run of `options` was trained on.
fn trained_on<'a>(options: &TableOptions<'a>, trained: Option<&'a Stage3Config>) -> Option<TrainedOn<'a>> {
    let (run, trained) = (options.run?, trained?);
    let of_stage2 = trained.stage2.as_ref().and_then(|stage2| stage2.data.embeddings.as_deref());
    let embeddings = trained.data.embeddings.as_deref().or(of_stage2);
    Some(TrainedOn { run, data: &trained.data.path, embeddings })
}

impl<B: GraphBackend> Fold<B> {
    /// The model of Stage 2 of the run `run`, part of one whose settings are `trained`, for data like `dataset`.
    fn open(run: &Path, trained: &Stage3Config, dataset: &Dataset, device: &B::Device) -> Result<Self> {
        let (weights, file) = Weights::read(run)?;
        let (ModelSpec::Attention(spec), Some(stage2)) = (&weights.spec, &trained.stage2) else {
            let help = "the run directory was changed; train it again";
            return Err(Error::format(file, "model", "a Stage-2 attention network", weights.spec.name(), help));
        };
        let graph = graph_for(spec, dataset)?;
        let network = Stage2::new((spec, &weights.tensors, &file), &graph, Some(stage2), device)?;
        let data = stage2.data.clone();
        Ok(Self { network, data, filling: Filling::of_run(run)?, run: run.to_owned(), file })
    }

    /// What it makes of `dataset`, which was read from `data`; layer by layer within `spill`, where that is given.
    fn output(
        &self,
        embeddings: Option<&Features>,
        dataset: &Dataset,
        data: &Path,
        known: Option<&KnownLabels>,
        spill: Option<&Spill>,
    ) -> Result<Stage2Output> {
        let network = &self.network;
        let (graph, features) = (network.graph_of(dataset)?, self.input(embeddings, dataset, data)?);
        let HostScored { scores, embeddings } = match spill {
            Some(spill) => {
                let place = (None, spill);
                let (replica, graph) = ([network.replica()], Arc::new(graph));
                scores_with_labels(&replica, &graph, &features, known, None, network.storage(), place)?
            }
            None => network.scores(&graph, &features, known, true)?,
        };
        Ok(Stage2Output { scores, embeddings })
    }

    /// What the model starts from.
    fn input<'z>(&self, embeddings: Option<&'z Features>, dataset: &Dataset, data: &Path) -> Result<Cow<'z, Features>> {
        let width = Some(self.network.spec().given());
        match embeddings {
            Some(z) => {
                check_width(&self.file, z.dim(), width)?;
                Ok(Cow::Borrowed(z))
            }
            None => {
                let data = Stage2Data { path: data.to_path_buf(), ..self.data.clone() };
                Ok(Cow::Owned(input_features(&data, dataset, self.filling.as_ref(), width)?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::graph::{Adjacency, RelationSpec};

    #[test]
    fn the_reconstruction_error_is_the_mean_loss_of_a_nodes_edges() {
        let adjacency = Adjacency::from_edges(3, 3, &[(0, 1), (1, 0), (0, 0)]);
        let relation = RelationSpec::new("edge", 0, 0, adjacency.clone());
        let graph = HeteroGraph::new(vec![("node".into(), 3)], vec![relation]).unwrap();
        let z = array![[2.0f32, 0.0], [-1.0, 5.0], [3.0, 3.0]];
        let found = reconstruction_errors(&graph, z.view());
        let loss = |logit: f64| (1.0 + (-logit).exp()).ln();
        let of_zero: Vec<f64> =
            graph.relations()[0].forward.row(0).iter().map(|&j| loss([4.0, -2.0][j as usize])).collect();
        assert!((f64::from(found[0]) - of_zero.iter().sum::<f64>() / of_zero.len() as f64).abs() < 1e-6);
        assert!((f64::from(found[1]) - loss(-2.0)).abs() < 1e-6);
        assert!(found[2].is_nan(), "a node without edges has no error");
        let huge = reconstruction_errors(&graph, array![[1e4f32, 0.0], [-1e4, 0.0], [0.0, 0.0]].view());
        assert_eq!(huge[1], 1e8, "no overflow");
    }

    #[test]
    fn the_mean_of_several_stages_is_that_of_each_number() {
        let rows = |score: f32| Features::from_f32(vec![score, 2.0 * score], 2, 1);
        let output = |score: f32| Stage2Output { scores: vec![score, 1.0], embeddings: rows(score) };
        let (scores, rows) = Stage2Output::mean(&[output(0.0), output(1.0)], &Spill::default()).unwrap();
        assert_eq!((scores, rows.finish().unwrap().into_f32()), (vec![0.5, 1.0], vec![0.5, 1.0]));
    }
}
