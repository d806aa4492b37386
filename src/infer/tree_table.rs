//! The feature table that a tree ensemble reads.

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::Tensor;
use graphsieve_kernels::GraphBackend;
use ndarray::ArrayView2;
use rayon::prelude::*;

use super::attention::{check_width, for_graph, graph_for, host_scores, input_features, known_labels};
use super::embed::{Source, TrainedOn};
use super::layerwise::{HostScored, scores_with_labels};
use crate::config::{RunConfig, Stage2Data, Stage2Input, Stage3Config};
use crate::error::{Error, Result};
use crate::features::{
    Execution, FeatureTable, FoldedLabel, IncidentValues, Neighbourhood, NeighbourhoodConfig, label_shares,
};
use crate::graph::{Dataset, Features, Filling, HeteroGraph, MatrixWriter, Spill, Subset};
use crate::metrics::softplus;
use crate::models::attention::TripleStreamGat;
use crate::models::device_graph::{DeviceGraph, check_device, upload_features};
use crate::models::parameters::Parameters;
use crate::models::precision::dtype_on;
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
    pub fn mean(outputs: &[Self], spill: &Spill) -> Result<(Vec<f32>, MatrixWriter)> {
        let share = 1.0 / outputs.len() as f32;
        let [nodes, dim] = [outputs[0].scores.len(), outputs[0].embeddings.dim()];
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

/// The neighbourhood blocks of a dataset, which was read from `path`, or of the `part` of it that a training may see.
///
/// # Errors
/// Data without features, or without the values of edges that are asked for; as for [`Neighbourhood::table`] and
/// [`IncidentValues::of`].
pub fn neighbourhood_table<B: GraphBackend>(
    dataset: &Dataset,
    part: Option<&Subset>,
    path: &Path,
    config: &NeighbourhoodConfig,
    device: &B::Device,
) -> Result<FeatureTable> {
    neighbourhood_within::<B>((dataset, part), path, config, &Spill::default(), device)
}

/// The same, with columns in files where they need more memory than `spill` has.
///
/// # Errors
/// As for [`neighbourhood_table`]; a file that cannot be written.
pub fn neighbourhood_within<B: GraphBackend>(
    (dataset, part): (&Dataset, Option<&Subset>),
    path: &Path,
    config: &NeighbourhoodConfig,
    spill: &Spill,
    device: &B::Device,
) -> Result<FeatureTable> {
    let seen = part.map_or(dataset, |part| &part.dataset);
    let features = seen.features.as_ref().ok_or_else(|| {
        let help = "trees read the features of nodes; add them to the data directory";
        Error::format(path, "features", "a feature file", "none", help)
    })?;
    let mut table =
        Neighbourhood::new(&seen.graph, features, config)?.table_within::<B>(spill, device, Execution::default())?;
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

/// Bytes of the tables that are kept for other trainings.
const KEPT: u64 = 1 << 30;

/// Neighbourhood tables of one graph with its features, made once for several trainings.
#[derive(Debug, Default)]
pub struct Tables(RefCell<Vec<(NeighbourhoodConfig, bool, Arc<FeatureTable>)>>);

impl Tables {
    /// As [`neighbourhood_within`]. Tables beyond a gibibyte of memory in all are not kept.
    ///
    /// # Errors
    /// As for [`neighbourhood_within`].
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
        let table = Arc::new(neighbourhood_within::<B>((dataset, part), path, config, spill, device)?);
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
    let Some((folds, labels)) = known.folds() else { return Err(labels_in_time()) };
    let labels: Vec<FoldedLabel> = labels.map(|(node, label, fold)| FoldedLabel { node, label, fold }).collect();
    let (columns, values) = label_shares(graph, config, &labels, folds)?;
    let values = Features::from_f32(values, table.num_rows(), columns.len());
    table.join(columns, values).map(drop)
}

/// Refuses shares of labels that become known with time.
pub fn labels_in_time() -> Error {
    Error::Config {
        origin: "the configuration".into(),
        key: "features.label_share".into(),
        expected: "false for events: their labels become known with time".into(),
        found: "true".into(),
        help: "[[windows]] of `graphsieve import tables` has such shares as of each event: known_frauds, fraud_share"
            .into(),
    }
}

/// How badly embeddings explain the edges that lead to a node: the mean of `-ln sigmoid(<z_i, z_j>)` over all
/// relations; NaN without edges.
pub fn reconstruction_errors(graph: &HeteroGraph, z: ArrayView2<f32>) -> Vec<f32> {
    let types = graph.node_types();
    let (dim, values) = (z.ncols(), z.to_slice().unwrap_or_default());
    let row = |node: usize| &values[node * dim..(node + 1) * dim];
    let error = |node: usize| {
        let of_type = graph.type_of(node);
        let (mut sum, mut edges) = (0f64, 0usize);
        for relation in graph.relations().iter().filter(|relation| relation.dst == of_type) {
            let first = types[relation.src].offset;
            for &neighbour in relation.forward.row(node - types[of_type].offset) {
                let pair = row(node).iter().zip(row(first + neighbour as usize));
                let logit = f64::from(pair.map(|(a, b)| a * b).sum::<f32>());
                sum += softplus(-logit);
                edges += 1;
            }
        }
        if edges == 0 { f32::NAN } else { (sum / edges as f64) as f32 }
    };
    (0..graph.num_nodes()).into_par_iter().with_min_len(256).map(error).collect()
}

/// The scores that Stage 1 gives: `1 - exp(-error)` of [`reconstruction_errors`].
pub fn reconstruction_scores(graph: &HeteroGraph, z: ArrayView2<f32>) -> Vec<f32> {
    reconstruction_errors(graph, z).into_iter().map(|error| -(-error).exp_m1()).collect()
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
    let inputs = &checkpoint.inputs;
    let trained = match options.run {
        Some(run) => match RunConfig::load_kept(&run.join("config.toml"), &[])? {
            RunConfig::Stage3(config) => Some(config),
            _ => None,
        },
        None => None,
    };
    let spill = &options.spill.or_gigabytes(trained.as_ref().map_or(0.0, |trained| trained.features.host_memory));
    let mut table = neighbourhood_within::<B>((dataset, None), options.data, &inputs.neighbourhood, spill, device)?;
    let left = &spill.beside(table.bytes_in_memory());
    // Without a limit of the caller's layers are computed as the run's were.
    let of_layers = if options.spill.is_limited() { left } else { options.spill };
    let source = source_of(options, trained.as_ref());
    let of_stage2 = trained.as_ref().and_then(|trained| trained.stage2.as_ref());
    let by_stage2 = (inputs.stage2_score || inputs.stage2_embedding)
        && of_stage2.is_some_and(|stage2| stage2.data.input == Stage2Input::Embeddings);
    let by_trees = inputs.embedding || inputs.reconstruction;
    let z = (by_trees || by_stage2).then(|| source.read::<B>(dataset, options.data, of_layers, device)).transpose()?;
    if let (true, Some(z)) = (by_trees, &z) {
        append_stage1(&mut table, &dataset.graph, inputs, z)?;
    }
    let z = z.filter(|_| by_stage2);
    let left = &left.beside(z.as_ref().map_or(0, Features::bytes_in_memory));
    if inputs.stage2_score || inputs.stage2_embedding {
        let (Some(run), Some(trained)) = (options.run, &trained) else {
            let help = "give the directory of the run: its folds hold the models of Stage 2";
            let found = "a checkpoint file alone";
            return Err(Error::format(options.checkpoint, "checkpoint", "the directory of a run", found, help));
        };
        let outputs = inputs
            .folds
            .iter()
            .map(|fold| stage2_output::<B>(&run.join(fold), trained, options, z.as_ref(), dataset, (left, device)));
        let (scores, embeddings) = Stage2Output::mean(&outputs.collect::<Result<Vec<_>>>()?, left)?;
        append_stage2(&mut table, inputs, &Stage2Output { scores, embeddings: embeddings.finish()? })?;
    }
    if inputs.label_share {
        let Some(run) = options.run else {
            let (place, found) = ("known labels", "a checkpoint file alone");
            let help = "give the directory of the run: it holds the labels that the trees read";
            return Err(Error::format(options.checkpoint, place, "the directory of a run", found, help));
        };
        let known = KnownLabels::read(run, dataset, options.data)?;
        append_labels(&mut table, &dataset.graph, &inputs.neighbourhood, &known)?;
    }
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

/// Where the embeddings of Stage 1 come from.
fn source_of(options: &TableOptions, trained: Option<&Stage3Config>) -> Source {
    let trained = match (options.run, trained) {
        (Some(run), Some(trained)) => {
            let of_stage2 = trained.stage2.as_ref().and_then(|stage2| stage2.data.embeddings.as_deref());
            let embeddings = trained.data.embeddings.as_deref().or(of_stage2);
            Some(TrainedOn { run, data: &trained.data.path, embeddings })
        }
        _ => None,
    };
    Source::of(options.input, trained, options.data)
}

/// What one model of Stage 2 makes of the data.
fn stage2_output<B: GraphBackend>(
    fold: &Path,
    trained: &Stage3Config,
    options: &TableOptions,
    embeddings: Option<&Features>,
    dataset: &Dataset,
    (spill, device): (&Spill, &B::Device),
) -> Result<Stage2Output> {
    let (weights, file) = Weights::read(fold)?;
    let (ModelSpec::Attention(spec), Some(stage2)) = (&weights.spec, &trained.stage2) else {
        let help = "the run directory was changed; train it again";
        return Err(Error::format(file, "model", "a Stage-2 attention network", weights.spec.name(), help));
    };
    let host = graph_for(spec, dataset)?;
    let spec = for_graph(spec, &host, &file)?;
    let model = TripleStreamGat::<B>::new(&spec, &mut Parameters::from_tensors(&weights.tensors, &file, device))?;
    let features = match embeddings {
        Some(z) => {
            check_width(&file, z.dim(), Some(spec.given()))?;
            Cow::Borrowed(z)
        }
        None => {
            let data = Stage2Data { path: options.data.to_path_buf(), ..stage2.data.clone() };
            Cow::Owned(input_features(&data, dataset, Filling::of_run(fold)?.as_ref(), Some(spec.given()))?)
        }
    };
    let dtype = dtype_on::<B>(stage2.train.precision, device)?;
    let known = known_labels(&spec, fold, dataset, options.data)?;
    let known = known.as_ref();
    let HostScored { scores, embeddings } = if options.spill.is_limited() {
        let replica = [(model, device.clone())];
        scores_with_labels(&replica, &Arc::new(host), &features, known, None, dtype, (None, spill))?
    } else {
        let x: Vec<Tensor<B, 2>> = upload_features(dataset.graph.node_types(), &features, dtype, device)?;
        let graph = DeviceGraph::<B>::upload(&host, device)?;
        host_scores(&model, &graph, &x, known, None, stage2.train.chunk_size, true)?
    };
    Ok(Stage2Output { scores, embeddings })
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::graph::{Adjacency, RelationSpec};

    #[test]
    fn the_reconstruction_error_is_the_mean_loss_of_a_nodes_edges() {
        let adjacency = Adjacency::from_edges(3, 3, &[(0, 1), (1, 0), (0, 0)]);
        let relation = RelationSpec {
            name: "edge".into(),
            src: 0,
            dst: 0,
            stream: "edge".into(),
            primary: true,
            adjacency: adjacency.clone(),
        };
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
