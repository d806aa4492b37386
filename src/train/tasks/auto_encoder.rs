//! Stage 1: a graph auto-encoder that learns embeddings without labels.

use std::path::{Path, PathBuf};

use burn::backend::Autodiff;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{GraphBackend, PairList, bce_with_logits_sum, pair_dot};
use ndarray::Array2;
use serde::{Deserialize, Serialize};

use crate::config::{EMBEDDINGS_FILE, Rows, RunConfig, Stage1Config, TemperatureConfig, TrainConfig};
use crate::error::{Error, Result};
use crate::graph::{Dataset, HeteroGraph, Relation, write_npy_f32};
use crate::loader::Batch;
use crate::metrics::{roc_auc, sigmoid};
use crate::models::auto_encoder::{AutoEncoderSpec, Inputs, Normalisation, TripleStreamGae};
use crate::models::device_graph::{DeviceGraph, check_device, upload_features};
use crate::models::parameters::{Export, Parameters, rows_to_host, to_host};
use crate::models::precision::dtype_on;
use crate::models::receptive_field::ReceptiveField;
use crate::models::weights::ModelSpec;
use crate::train::edges::{LabelledPairs, Purpose, labelled_pairs};
use crate::train::full::Full;
use crate::train::loss_rows::LossRows;
use crate::train::plots::{self, Series};
use crate::train::position::Position;
use crate::train::runner::Runner;
use crate::train::session::{RunOptions, Session};
use crate::train::task::{Judgement, Losses, Task};
use crate::train::trainer::{self, Place, Trained};

/// How well scores of pairs tell edges from non-edges.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeMetrics {
    /// Mean probability of positive pairs.
    pub p_positive: f64,
    /// Mean probability of negative pairs.
    pub p_negative: f64,
    /// Difference of the two.
    pub margin: f64,
    /// ROC-AUC of positive against negative pairs.
    pub edge_auc: f64,
}

/// One line of `metrics.jsonl`.
#[derive(Serialize)]
pub struct EpochLine {
    loss: f32,
    learning_rate: f64,
    temperature: f64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    metrics: Option<EdgeMetrics>,
}

/// What a finished Stage 1 leaves.
#[derive(Clone, Debug)]
pub struct Stage1Outcome {
    pub run: PathBuf,
    pub embeddings: PathBuf,
    /// On pairs that were never trained on.
    pub metrics: EdgeMetrics,
    pub loss: f32,
    /// Mean wall time of the epochs after the first.
    pub seconds_per_epoch: Option<f64>,
}

/// The temperature of `epoch`, counted from 1: linear from `start` to `peak`, then a cosine to `end`.
fn temperature(config: &TemperatureConfig, epoch: usize, epochs: usize) -> f64 {
    let warm = config.warmup_epochs;
    if epoch <= warm {
        let progress = if warm > 1 { (epoch - 1) as f64 / (warm - 1) as f64 } else { 1.0 };
        return config.start + (config.peak - config.start) * progress;
    }
    let progress = (epoch - warm) as f64 / (epochs - warm).max(1) as f64;
    config.end + (config.peak - config.end) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
}

/// The auto-encoder with its graph on a device.
pub struct AutoEncoder<B: GraphBackend> {
    config: Stage1Config,
    spec: AutoEncoderSpec,
    host: HeteroGraph,
    graph: DeviceGraph<Autodiff<B>>,
    normalisation: Vec<Normalisation<Autodiff<B>>>,
    inputs: Inputs<Autodiff<B>>,
    device: B::Device,
}

/// Trains the auto-encoder and writes its embeddings.
///
/// # Errors
/// Data or a checkpoint that cannot be used, outputs that cannot be written, a loss that is not finite, or an
/// interruption (everything is saved then).
pub fn run<B: GraphBackend>(config: &Stage1Config, options: &RunOptions, device: &B::Device) -> Result<Stage1Outcome> {
    let dataset = Dataset::open(&config.data.path)?;
    let features = dataset.features.as_ref().ok_or_else(|| {
        let help = "Stage 1 learns from features; add them to the data directory";
        Error::format(&config.data.path, "features", "a feature file", "none", help)
    })?;
    let host = &dataset.graph;
    let storage = dtype_on::<B>(config.train.precision, device)?;
    let graph = DeviceGraph::<Autodiff<B>>::upload(host, device)?;
    let x = upload_features(host.node_types(), features, storage, device)?;
    let task = AutoEncoder::new(config, host, graph, x, device);

    let toml = RunConfig::Stage1(config.clone()).to_toml()?;
    let place = Place { runs: &config.output.dir, name: &config.name, seed: config.seed, config: &toml };
    let Trained { session, model, loss, seconds_per_epoch, .. } =
        trainer::train(&task, &place, options, &dataset.notes, device)?;
    let z = task.embed_all(&model);
    let metrics = task.held_out_metrics(&z)?;
    let embeddings = session.run.output(EMBEDDINGS_FILE);
    write_embeddings(&embeddings, z)?;
    if config.output.plots {
        plot(&session)?;
    }
    session.finish(&format!("edge AUC {:.4}", metrics.edge_auc));
    Ok(Stage1Outcome { run: session.run.path().to_path_buf(), embeddings, metrics, loss, seconds_per_epoch })
}

impl<B: GraphBackend> AutoEncoder<B> {
    /// On a graph with the features `x`, one matrix per node type.
    pub fn new(
        config: &Stage1Config,
        host: &HeteroGraph,
        graph: DeviceGraph<Autodiff<B>>,
        x: Vec<Tensor<Autodiff<B>, 2>>,
        device: &B::Device,
    ) -> Self {
        let spec = AutoEncoderSpec {
            streams: host.streams().into_iter().map(String::from).collect(),
            node_types: host.node_types().iter().map(|t| t.name.clone()).collect(),
            input: x.first().map_or(0, |x| x.dims()[1]),
            hidden: config.model.hidden,
            output: config.model.out,
        };
        let normalisation = Normalisation::of(host, device);
        // Features have no gradient and no edge is dropped: the first aggregation never changes.
        let inputs = Inputs::new(&graph, &normalisation, x, config.train.chunk_size);
        let (config, host, device) = (config.clone(), host.clone(), device.clone());
        Self { config, spec, host, graph, normalisation, inputs, device }
    }

    /// Embeddings of every node.
    fn embed_all(&self, model: &TripleStreamGae<B>) -> Vec<Tensor<B, 2>> {
        let graph = self.graph.inner();
        let normalisation: Vec<_> = self.normalisation.iter().cloned().map(Normalisation::inner).collect();
        let chunk_rows = self.config.train.chunk_size;
        model.embed(&graph, &ReceptiveField::all(&graph), &normalisation, &self.inputs.clone().inner(), chunk_rows)
    }

    /// How well finished embeddings tell edges from pairs that no epoch drew.
    fn held_out_metrics(&self, z: &[Tensor<B, 2>]) -> Result<EdgeMetrics> {
        let pairs = EpochPairs::new(&self.config, &self.host, (1, Purpose::Evaluation, 0), Rows::All, 1.0);
        edge_metrics(pair_logits(z, pairs.pairs, 1.0, &self.device), &pairs.targets)
    }
}

impl<B: GraphBackend> Task<B> for AutoEncoder<B> {
    type Model = TripleStreamGae<Autodiff<B>>;
    type Inner = TripleStreamGae<B>;
    type Input = EpochPairs;
    type Part = ();
    /// Logits and labels of all pairs.
    type Detail = Option<(Tensor<B, 1>, Vec<u8>)>;
    type Figures = EdgeMetrics;
    type Line = EpochLine;

    const NAME: &'static str = "stage 1";
    const TERMS: &'static [&'static str] = &["the reconstruction loss"];

    fn train(&self) -> &TrainConfig {
        &self.config.train
    }

    fn spec(&self) -> ModelSpec {
        ModelSpec::AutoEncoder(self.spec.clone())
    }

    fn model(&self, parameters: &mut Parameters<Autodiff<B>>) -> Result<Self::Model> {
        TripleStreamGae::new(&self.spec, parameters)
    }

    fn inner_model(&self, parameters: &mut Parameters<B>) -> Result<Self::Inner> {
        TripleStreamGae::new(&self.spec, parameters)
    }

    fn export(&self, model: &Self::Inner) -> Export {
        model.export(&self.spec)
    }

    fn runner(&self, seed: u64, first: usize) -> Result<Runner<B, Self>> {
        let (config, host) = (Stage1Config { seed, ..self.config.clone() }, self.host.clone());
        Ok(Runner::Full(Full::prefetched(first, self.config.train.epochs, move |epoch| {
            let tau = temperature(&config.temperature, epoch, config.train.epochs);
            let draw = (config.sampling.negatives_per_positive, Purpose::Reconstruction, epoch);
            EpochPairs::new(&config, &host, draw, config.train.rows, tau)
        })))
    }

    fn edges_per_epoch(&self) -> usize {
        2 * self.graph.num_edges()
    }

    fn epoch(&self, model: &Self::Model, input: EpochPairs) -> Result<Losses<B, Self::Detail>> {
        let (graph, device) = (&self.graph, &self.device);
        if input.pairs.is_empty() {
            return Err(no_edges());
        }
        let field = ReceptiveField::of_rows(graph, input.nodes, |_| None, device);
        let z = model.embed(graph, &field, &self.normalisation, &self.inputs, self.config.train.chunk_size);
        let logits = pair_logits(&z, input.pairs, input.tau, device);
        let targets: Vec<f32> = input.targets.iter().map(|&t| f32::from(t)).collect();
        let total = targets.len();
        let targets = Tensor::from_data(TensorData::new(targets, [total]), device);
        let loss = bce_with_logits_sum(logits.clone(), targets, 1.0 / total as f64);
        Ok(Losses { loss, terms: Vec::new(), detail: Some((logits.inner(), input.targets)) })
    }

    fn batch(&self, _: &Self::Model, _: Batch<Autodiff<B>, ()>) -> Losses<B, Self::Detail> {
        unreachable!("the auto-encoder is trained on the whole graph")
    }

    fn validate(&self, _: &Self::Inner, detail: Self::Detail, _: usize) -> Result<EdgeMetrics> {
        let (logits, labels) = detail.unwrap_or_else(|| unreachable!("every epoch has pairs"));
        edge_metrics(logits, &labels)
    }

    /// The last model is kept: nothing is chosen on pairs that it was trained on.
    fn judge(&self, figures: &EdgeMetrics, position: &mut Position) -> Judgement {
        Judgement { keep: position.epoch == self.config.train.epochs, stop: false, metric: figures.edge_auc }
    }

    fn line(&self, epoch: usize, rate: f64, values: &[f32], figures: Option<EdgeMetrics>) -> EpochLine {
        let temperature = temperature(&self.config.temperature, epoch, self.config.train.epochs);
        EpochLine { loss: values[0], learning_rate: rate, temperature, metrics: figures }
    }

    fn progress(&self, figures: Option<EdgeMetrics>, _: &Position) -> String {
        figures.map_or(String::new(), |figures| format!("  edge AUC {:.4}", figures.edge_auc))
    }
}

fn no_edges() -> Error {
    Error::Data {
        what: "the graph".into(),
        expected: "at least one relation with edges other than self-loops".into(),
        found: "none".into(),
        help: "Stage 1 reconstructs edges; check the relations with `graphsieve info --data DIR`".into(),
    }
}

/// The pairs of one epoch as numbers of rows.
pub struct EpochPairs {
    tau: f64,
    /// The rows that are computed, by type; all when there is no list.
    nodes: Option<Vec<Vec<u32>>>,
    /// Types of both ends and the pairs, for every relation that has some.
    pairs: Vec<(usize, usize, PairList)>,
    targets: Vec<u8>,
}

impl EpochPairs {
    fn new(
        config: &Stage1Config,
        host: &HeteroGraph,
        (negatives, purpose, epoch): (usize, Purpose, usize),
        rows: Rows,
        tau: f64,
    ) -> Self {
        let per_relation = |relation: &Relation| config.sampling.edges_of(&relation.stream);
        let drawn = labelled_pairs(host, per_relation, negatives, config.seed, purpose, epoch as u64);
        let counts: Vec<usize> = host.node_types().iter().map(|t| t.count).collect();
        let types =
            |pairs: &LabelledPairs| (host.relations()[pairs.relation].dst, host.relations()[pairs.relation].src);
        let rows = match rows {
            Rows::All => LossRows::all(&counts),
            Rows::Reachable => LossRows::of(
                &counts,
                drawn.iter().flat_map(|p| [(types(p).0, p.dst.as_slice()), (types(p).1, p.src.as_slice())]),
            ),
        };
        let list = |pairs: &LabelledPairs| {
            let (dst, src) = types(pairs);
            let (left, right) = (rows.numbers(dst, &pairs.dst), rows.numbers(src, &pairs.src));
            (dst, src, PairList::new(&left, &right, rows.len(dst), rows.len(src)))
        };
        let target = |pairs: &LabelledPairs| {
            let positives = pairs.positives;
            (0..pairs.dst.len()).map(move |p| u8::from(p < positives))
        };
        Self {
            tau,
            nodes: rows.nodes(),
            pairs: drawn.iter().map(list).collect(),
            targets: drawn.iter().flat_map(target).collect(),
        }
    }
}

/// `tau <z_dst, z_src>` of every pair.
fn pair_logits<B: GraphBackend>(
    z: &[Tensor<B, 2>],
    pairs: Vec<(usize, usize, PairList)>,
    tau: f64,
    device: &B::Device,
) -> Tensor<B, 1> {
    let one =
        |(dst, src, pairs): (usize, usize, PairList)| pair_dot(z[dst].clone(), z[src].clone(), &pairs.upload(device));
    Tensor::cat(pairs.into_iter().map(one).collect(), 0) * tau
}

fn edge_metrics<B: GraphBackend>(logits: Tensor<B, 1>, labels: &[u8]) -> Result<EdgeMetrics> {
    let scores: Vec<f32> = to_host(logits).into_iter().map(sigmoid).collect();
    let mean = |class: u8| {
        let own = scores.iter().zip(labels).filter(|(_, l)| **l == class).map(|(s, _)| f64::from(*s));
        own.clone().sum::<f64>() / own.count().max(1) as f64
    };
    let (p_positive, p_negative) = (mean(1), mean(0));
    let edge_auc = roc_auc(&scores, labels)?;
    Ok(EdgeMetrics { p_positive, p_negative, margin: p_positive - p_negative, edge_auc })
}

fn write_embeddings<B: GraphBackend>(path: &Path, z: Vec<Tensor<B, 2>>) -> Result<()> {
    let width = z.first().map_or(0, |z| z.dims()[1]);
    let values = rows_to_host(z);
    check_device()?;
    let rows = values.len() / width.max(1);
    let matrix =
        Array2::from_shape_vec((rows, width), values).unwrap_or_else(|e| unreachable!("whole rows of one width: {e}"));
    write_npy_f32(path, &matrix)
}

fn plot(session: &Session) -> Result<()> {
    let history = session.run.history()?;
    let (loss, auc) = (history.series("loss"), history.series("edge_auc"));
    plots::training_curves(
        &session.run.output("training.svg"),
        "Stage 1: graph auto-encoder",
        &[Series { name: "reconstruction loss", points: &loss }],
        &[Series { name: "edge AUC (training pairs)", points: &auc }],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_temperature_rises_linearly_and_falls_as_a_cosine() {
        let config = TemperatureConfig::default();
        assert_eq!(temperature(&config, 1, 200), 2.0);
        assert_eq!(temperature(&config, 20, 200), 10.0);
        assert!((temperature(&config, 110, 200) - 6.5).abs() < 1e-9);
        assert!((temperature(&config, 200, 200) - 3.0).abs() < 1e-9);
        assert_eq!(temperature(&TemperatureConfig { warmup_epochs: 0, ..config }, 1, 1), 3.0);
    }
}
