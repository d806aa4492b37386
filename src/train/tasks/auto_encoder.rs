//! Stage 1: a graph auto-encoder that learns embeddings without labels.

use std::fmt;
use std::path::{Path, PathBuf};

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use graphsieve_kernels::GraphBackend;
use ndarray::Array2;
use serde::Serialize;

use crate::config::{EMBEDDINGS_FILE, Rows, RunConfig, Stage1Config, TemperatureConfig, TrainConfig};
use crate::data::edge_split::EdgeSplit;
use crate::error::{Error, Result};
use crate::graph::{Dataset, Features, HeteroGraph, Relation, atomic_write, write_npy_f32};
use crate::infer::tree_table::reconstruction_scores;
use crate::loader::Batch;
use crate::models::auto_encoder::{AutoEncoderSpec, Inputs, Normalisation, TripleStreamGae};
use crate::models::device_graph::{DeviceGraph, check_device, upload_features};
use crate::models::parameters::{Export, Parameters, rows_to_host};
use crate::models::precision::dtype_on;
use crate::models::receptive_field::ReceptiveField;
use crate::models::weights::ModelSpec;
use crate::run::bundle::Origin;
use crate::run::bundle::drift::Profile;
use crate::run::evaluation::EVALUATION_FILE;
use crate::train::edges::{Purpose, held_out_pairs, labelled_pairs};
use crate::train::full::Full;
use crate::train::plots::{self, Series};
use crate::train::position::Position;
use crate::train::ranks::{Rank, agree, alone, failed};
use crate::train::reconstruction::{EdgeMetrics, Pairs, Scored, edge_metrics};
use crate::train::runner::Runner;
use crate::train::session::{RunOptions, Session, part_note};
use crate::train::shard::Shard;
use crate::train::task::{Judgement, Losses, Task};
use crate::train::trainer::{self, Place, Trained};

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
#[derive(Clone, Debug, Serialize)]
pub struct Stage1Outcome {
    pub run: PathBuf,
    pub embeddings: PathBuf,
    /// On edges that were neither in the loss nor in the adjacency, against pairs that are no edges; embeddings of the
    /// training's adjacency. `None` where nothing was held out.
    pub held_out: Option<EdgeMetrics>,
    /// On edges of the training against pairs that were drawn, the figure that is usually published. It says what the
    /// model remembers, not what it finds.
    pub trained_on: Option<EdgeMetrics>,
    pub loss: f32,
    /// Mean wall time of the epochs after the first.
    #[serde(skip)]
    pub seconds_per_epoch: Option<f64>,
}

impl fmt::Display for Stage1Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loss {:.4}", self.loss)?;
        let mut line = |what: &str, metrics: &Option<EdgeMetrics>| match metrics {
            Some(EdgeMetrics { edge_auc, p_positive, p_negative, .. }) => {
                write!(f, "\n{what}: edge AUC {edge_auc:.4}, P(edge) {p_positive:.4}, P(no edge) {p_negative:.4}")
            }
            None => Ok(()),
        };
        line("edges held out of training against pairs that are no edges", &self.held_out)?;
        line("edges trained on against drawn pairs, as in the literature", &self.trained_on)
    }
}

/// The temperature of `epoch`, counted from 1: linear from `start` to `peak`, then a cosine to `end`.
pub fn temperature(config: &TemperatureConfig, epoch: usize, epochs: usize) -> f64 {
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
    Ok(alone(run_with::<B>(config, options, None, device)?))
}

/// [`run`] as one of several ranks, where there are any; what rank 0 leaves.
///
/// # Errors
/// As for [`run`], and where another rank fails.
pub fn run_with<B: GraphBackend>(
    config: &Stage1Config,
    options: &RunOptions,
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Option<Stage1Outcome>> {
    let mut dataset = Dataset::open(&config.data.path)?.in_window(config.data.window)?;
    if config.model.edge_weights {
        dataset.load_edge_weights("model.edge_weights")?;
    }
    let filling = dataset.filling(options.begun())?;
    let features = &dataset.filled(filling.as_ref(), &config.data.path)?.ok_or_else(|| {
        let help = "Stage 1 learns from features; add them to the data directory";
        Error::format(&config.data.path, "features", "a feature file", "none", help)
    })?;
    let causal = dataset.events.is_some();
    let known = dataset.training_part();
    let (host, of_training) = match &known {
        Some(known) => (&known.dataset.graph, &known.rows_of(features)),
        None => (&dataset.graph, features),
    };
    let split = EdgeSplit::new(config.split.held_out, config.split.seed);
    let training = split.map_or_else(|| host.clone(), |split| split.training_graph(host));
    let mut notes = dataset.notes.clone();
    notes.extend(known.as_ref().map(|known| part_note(known, &dataset)));
    notes.extend(filling.as_ref().and_then(|filling| dataset.filling_note(filling)));
    if split.is_some() {
        let (edges, all) = (host.num_edges() - training.num_edges(), host.num_edges());
        notes.push(format!("held out of training: {edges} of {all} edges, both directions counted"));
    }
    if split.is_some() && options.from.is_some() {
        notes.push(
            "the model that it begins with may have learned from edges that are held out now: their figure flatters"
                .into(),
        );
    }
    let toml = RunConfig::Stage1(config.clone()).to_toml()?;
    let origin = Origin::of("stage1", &config.data.path, &dataset, None)?;
    if let Some(rank) = rank {
        agree::<B>(rank, &toml, Some(&origin), None)?;
    }
    let task = AutoEncoder::<B>::upload(config, &training, of_training, causal, device)?;
    let (runs, name, seed) = (&config.output.dir, &config.name, config.seed);
    let place = Place { runs, name, seed, config: &toml, origin: Some(&origin), filling: filling.as_ref() };
    let Some(trained) = trainer::train_with(&task, &place, options, &notes, rank, device)? else {
        return Ok(None);
    };
    let Trained { session, model, loss, seconds_per_epoch, .. } = trained;
    let z = task.embed_all(&model);
    let trained_on = task.pairs_of_training().metrics(&z, device)?;
    let held_out = match &split {
        None => None,
        Some(split) => {
            let drawn = held_out_pairs(host, split, |r| config.sampling.edges_of(&r.stream), config.split.seed);
            Pairs::new(host, &drawn, Rows::All).metrics(&z, device)?
        }
    };
    let z = match (&split, &known) {
        (None, None) => z,
        _ => {
            // What is written is made of all edges.
            drop((z, task));
            AutoEncoder::<B>::upload(config, &dataset.graph, features, causal, device)?.embed_all(&model)
        }
    };
    let embeddings = session.run.output(EMBEDDINGS_FILE);
    let z = write_embeddings(&embeddings, z)?;
    let run = session.run.path().to_path_buf();
    let scores = reconstruction_scores(&dataset.graph, &z);
    let outcome = Stage1Outcome { run, embeddings, held_out, trained_on, loss, seconds_per_epoch };
    atomic_write(session.run.output(EVALUATION_FILE), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
    origin.finish(&session.run, &Profile::of_training::<u8>(&dataset, Some(&scores), &[]))?;
    if config.output.plots {
        plot(&session)?;
    }
    session.finish(&match held_out {
        Some(EdgeMetrics { edge_auc, .. }) => format!("held-out edge AUC {edge_auc:.4}"),
        None => format!("loss {loss:.4}"),
    });
    Ok(Some(outcome))
}

impl<B: GraphBackend> AutoEncoder<B> {
    /// On the graph `host`, which is uploaded with its features.
    fn upload(
        config: &Stage1Config,
        host: &HeteroGraph,
        features: &Features,
        causal: bool,
        device: &B::Device,
    ) -> Result<Self> {
        let spec = AutoEncoderSpec::of(&config.model, host, features.dim(), causal);
        let host = spec.reading(host.clone());
        let graph = DeviceGraph::<Autodiff<B>>::upload(&host, device)?;
        let x = upload_features(host.node_types(), features, dtype_on::<B>(config.train.precision, device)?, device)?;
        Ok(Self::with(config, spec, host, graph, x, device))
    }

    /// On a graph with the features `x`, one matrix per node type. Both graphs are as the layers read them, see
    /// [`AutoEncoderSpec::reading`].
    pub fn new(
        config: &Stage1Config,
        host: &HeteroGraph,
        graph: DeviceGraph<Autodiff<B>>,
        x: Vec<Tensor<Autodiff<B>, 2>>,
        device: &B::Device,
    ) -> Self {
        let spec = AutoEncoderSpec::of(&config.model, host, x.first().map_or(0, |x| x.dims()[1]), false);
        Self::with(config, spec, host.clone(), graph, x, device)
    }

    fn with(
        config: &Stage1Config,
        spec: AutoEncoderSpec,
        host: HeteroGraph,
        graph: DeviceGraph<Autodiff<B>>,
        x: Vec<Tensor<Autodiff<B>, 2>>,
        device: &B::Device,
    ) -> Self {
        let normalisation = Normalisation::of(&host, spec.causal, device);
        // Features have no gradient and no edge is dropped: the first aggregation never changes.
        let inputs = Inputs::new(&graph, &normalisation, x, config.train.chunk_size);
        let (config, device) = (config.clone(), device.clone());
        Self { config, spec, host, graph, normalisation, inputs, device }
    }

    /// Embeddings of every node.
    fn embed_all(&self, model: &TripleStreamGae<B>) -> Vec<Tensor<B, 2>> {
        let graph = self.graph.inner();
        let normalisation: Vec<_> = self.normalisation.iter().cloned().map(Normalisation::inner).collect();
        model.embed(&graph, &ReceptiveField::all(&graph), &normalisation, &self.inputs.clone().inner())
    }

    /// Edges of the training and as many pairs that are drawn as its negatives are.
    fn pairs_of_training(&self) -> Pairs {
        let count = |relation: &Relation| self.config.sampling.edges_of(&relation.stream);
        let drawn = labelled_pairs(&self.host, count, 1, self.config.seed, Purpose::Evaluation, 0);
        Pairs::new(&self.host, &drawn, Rows::All)
    }
}

impl<B: GraphBackend> Task<B> for AutoEncoder<B> {
    type Model = TripleStreamGae<Autodiff<B>>;
    type Inner = TripleStreamGae<B>;
    /// The pairs of a rank in an epoch with the labels of all ranks' pairs, and the temperature.
    type Input = ((Pairs, Vec<Vec<u8>>), f64);
    type Part = ();
    /// Logits of pairs, and labels of all pairs by rank.
    type Detail = Option<(Tensor<B, 1>, Vec<Vec<u8>>)>;
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

    fn runner_of(&self, shard: Shard, seed: u64, first: usize) -> Result<Runner<B, Self>> {
        let (config, host) = (Stage1Config { seed, ..self.config.clone() }, self.host.clone());
        Ok(Runner::Full(Full::prefetched(first, self.config.train.epochs, move |epoch| {
            let tau = temperature(&config.temperature, epoch, config.train.epochs);
            let count = |relation: &Relation| config.sampling.edges_of(&relation.stream);
            let (negatives, purpose) = (config.sampling.negatives_per_positive, Purpose::Reconstruction);
            let drawn = labelled_pairs(&host, count, negatives, config.seed, purpose, epoch as u64);
            (Pairs::of_shard(&host, &drawn, config.train.rows, shard), tau)
        })))
    }

    fn edges_per_epoch(&self) -> usize {
        2 * self.graph.num_edges()
    }

    fn epoch(
        &self,
        model: &Self::Model,
        ((mut pairs, labels), tau): Self::Input,
        _: Option<&Rank<B>>,
    ) -> Result<Losses<B, Self::Detail>> {
        let (graph, device) = (&self.graph, &self.device);
        if pairs.targets.is_empty() {
            return Err(no_edges());
        }
        let field = ReceptiveField::of_rows(graph, pairs.nodes.take(), |_| None, device);
        let z = model.embed(graph, &field, &self.normalisation, &self.inputs);
        let Scored { loss, logits, .. } = pairs.score(&z, tau, device);
        Ok(Losses { loss, terms: Vec::new(), detail: Some((logits.inner(), labels)) })
    }

    fn gathered(&self, own: Self::Detail, rank: &Rank<B>) -> Result<Self::Detail> {
        let Some((logits, labels)) = own else { return Ok(None) };
        let rows: Vec<usize> = labels.iter().map(Vec::len).collect();
        let all = rank.all_gather_rows(logits.unsqueeze_dim::<2>(1), &rows).map_err(failed)?;
        Ok(Some((all.squeeze_dim::<1>(1), labels)))
    }

    fn batch(&self, _: &Self::Model, _: Batch<Autodiff<B>, ()>) -> Losses<B, Self::Detail> {
        unreachable!("the auto-encoder is trained on the whole graph")
    }

    fn validate(&self, _: &Self::Inner, detail: Self::Detail, _: usize) -> Result<EdgeMetrics> {
        let (logits, labels) = detail.unwrap_or_else(|| unreachable!("every epoch has pairs"));
        edge_metrics(logits, &labels.concat())
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
        figures.map_or(String::new(), |figures| format!("  edge AUC of its pairs {:.4}", figures.edge_auc))
    }
}

fn no_edges() -> Error {
    Error::Data {
        what: "the graph".into(),
        expected: "at least one relation with edges other than self-loops".into(),
        found: "none".into(),
        help: "Stage 1 reconstructs edges; check the relations with `graphsieve info --data DIR`, and split.held_out"
            .into(),
    }
}

/// Writes the embeddings of all nodes and returns them.
fn write_embeddings<B: GraphBackend>(path: &Path, z: Vec<Tensor<B, 2>>) -> Result<Array2<f32>> {
    let width = z.first().map_or(0, |z| z.dims()[1]);
    let values = rows_to_host(z);
    check_device()?;
    let rows = values.len() / width.max(1);
    let matrix =
        Array2::from_shape_vec((rows, width), values).unwrap_or_else(|e| unreachable!("whole rows of one width: {e}"));
    write_npy_f32(path, &matrix)?;
    Ok(matrix)
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
