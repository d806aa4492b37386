//! Stage 1: the loop of the graph auto-encoder.

use std::fmt;
use std::path::{Path, PathBuf};

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::tensor::Tensor;
use graphsieve_kernels::GraphBackend;
use ndarray::Array2;
use serde::Serialize;

use super::edges::{Purpose, held_out_pairs, labelled_pairs};
use super::optimiser::{dtype, learning_rate};
use super::plots::{self, Series};
use super::prefetch::Prefetch;
use super::reconstruction::{EdgeMetrics, Pairs, Scored, edge_metrics};
use super::session::{RunOptions, Session, check_finite, open_or_create, reach_of, start};
use crate::config::{EMBEDDINGS_FILE, Rows, RunConfig, Stage1Config, TemperatureConfig};
use crate::data::edge_split::EdgeSplit;
use crate::error::{Error, Result};
use crate::graph::{Dataset, Features, HeteroGraph, Relation, atomic_write, write_npy_f32};
use crate::models::auto_encoder::{AutoEncoderSpec, Inputs, Normalisation, TripleStreamGae};
use crate::models::device_graph::{DeviceGraph, check_device, upload_features};
use crate::models::parameters::{rows_to_host, to_host};
use crate::models::reach::Reach;
use crate::models::weights::ModelSpec;

/// One line of `metrics.jsonl`.
#[derive(Serialize)]
struct EpochLine {
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
    /// On edges of the training against pairs that were drawn, the figure that is usually published. It says what the model
    /// remembers, not what it finds.
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
    let spec = AutoEncoderSpec {
        streams: host.streams().into_iter().map(String::from).collect(),
        node_types: host.node_types().iter().map(|t| t.name.clone()).collect(),
        input: features.dim(),
        hidden: config.model.hidden,
        output: config.model.out,
    };
    let toml = RunConfig::Stage1(config.clone()).to_toml()?;
    let (run, checkpoint) = open_or_create(options, &config.output.dir, &config.name, config.seed, &toml)?;

    let split = EdgeSplit::new(config.split.held_out, config.split.seed);
    let training = split.map_or_else(|| host.clone(), |split| split.training_graph(host));
    let graph = DeviceGraph::<Autodiff<B>>::upload(&training, device)?;
    let storage = dtype(config.train.precision);
    let x = upload_features::<Autodiff<B>>(host.node_types(), features, storage, device)?;
    let model_spec = ModelSpec::AutoEncoder(spec.clone());
    let (mut model, mut optimiser, position) =
        start::<B, _>(&run, checkpoint, &model_spec, config.seed, &config.train, device, |parameters| {
            TripleStreamGae::new(&spec, parameters)
        })?;
    let mut session = Session::new(run, position, "stage 1", &config.train, 2 * graph.num_edges(), options.progress)?;
    dataset.notes.iter().for_each(|note| session.note(note));
    if split.is_some() {
        let (edges, all) = (host.num_edges() - training.num_edges(), host.num_edges());
        session.note(&format!("held out of training: {edges} of {all} edges, both directions counted"));
    }

    let mut epochs = Epochs::new(config, &training, graph, x, position.epoch + 1, device);
    let mut pending: Vec<Pending<B>> = Vec::new();
    let mut last_loss = f32::NAN;
    let mut last_metrics = None;
    for epoch in position.epoch + 1..=config.train.epochs {
        let rate = learning_rate(&config.train, epoch);
        let tau = temperature(&config.temperature, epoch, config.train.epochs);
        let Scored { loss, logits, targets } = epochs.next(&model).ok_or_else(no_edges)?;
        let due = epoch == config.train.epochs || epoch.is_multiple_of(config.train.validate_every);
        let inner = loss.clone().inner();
        let scores = due.then(|| (logits.inner(), targets));
        pending.push(Pending { epoch, loss: inner, rate, tau, scores });
        model = optimiser.step(model, loss, rate);

        session.epoch_done::<B>(device)?;
        session.position.epoch = epoch;
        let save = session.checkpoint_due(epoch, &config.train);
        if due || save {
            for entry in pending.drain(..) {
                let loss = to_host(entry.loss)[0];
                check_device()?;
                check_finite("the reconstruction loss", loss, entry.epoch)?;
                let metrics = entry.scores.map(|(logits, targets)| edge_metrics(logits, &targets)).transpose()?;
                last_metrics = metrics.or(last_metrics);
                last_loss = loss;
                let (learning_rate, temperature) = (entry.rate, entry.tau);
                let line = EpochLine { loss, learning_rate, temperature, metrics };
                session.log(entry.epoch, &line)?;
            }
            let auc = last_metrics
                .map_or(String::new(), |m: EdgeMetrics| format!("  edge AUC of its pairs {:.4}", m.edge_auc));
            session.show(epoch, &format!("loss {last_loss:.4}{auc}"));
        }
        if save {
            session.save_last(&model_spec, model.export(&spec), &optimiser)?;
            session.stop_if_asked(epoch)?;
        }
    }

    let seconds_per_epoch = session.seconds_per_epoch();
    let model = model.valid();
    session.save_best(&model_spec, model.export(&spec))?;
    let z = epochs.embed_all(&model);
    let trained_on = epochs.pairs_of_training().metrics(&z, device)?;
    let held_out = match &split {
        None => None,
        Some(split) => {
            let drawn = held_out_pairs(host, split, |r| config.sampling.edges_of(&r.stream), config.split.seed);
            Pairs::new(host, &drawn, Rows::All).metrics(&z, device)?
        }
    };
    let z = match split {
        None => z,
        Some(_) => {
            drop((z, epochs));
            embed_graph(&model, host, features, config, device)?
        }
    };
    let embeddings = session.run.output(EMBEDDINGS_FILE);
    write_embeddings(&embeddings, z)?;
    let run = session.run.path().to_path_buf();
    let outcome = Stage1Outcome { run, embeddings, held_out, trained_on, loss: last_loss, seconds_per_epoch };
    atomic_write(session.run.output("evaluation.json"), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
    if config.output.plots {
        plot(&session)?;
    }
    session.finish(&match held_out {
        Some(EdgeMetrics { edge_auc, .. }) => format!("held-out edge AUC {edge_auc:.4}"),
        None => format!("loss {last_loss:.4}"),
    });
    Ok(outcome)
}

/// Embeddings of every node from all edges of `host`.
fn embed_graph<B: GraphBackend>(
    model: &TripleStreamGae<B>,
    host: &HeteroGraph,
    features: &Features,
    config: &Stage1Config,
    device: &B::Device,
) -> Result<Vec<Tensor<B, 2>>> {
    let graph = DeviceGraph::<B>::upload(host, device)?;
    let x = upload_features(host.node_types(), features, dtype(config.train.precision), device)?;
    let normalisation = Normalisation::of(host, device);
    let chunk_rows = config.train.chunk_size;
    let inputs = Inputs::new(&graph, &normalisation, x, chunk_rows);
    Ok(model.embed(&graph, &Reach::all(&graph), &normalisation, &inputs, chunk_rows))
}

/// What an epoch leaves on the device until the next report.
struct Pending<B: GraphBackend> {
    epoch: usize,
    loss: Tensor<B, 1>,
    rate: f64,
    tau: f64,
    /// Logits and labels of all pairs, of an epoch that is reported.
    scores: Option<(Tensor<B, 1>, Vec<u8>)>,
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

/// The forward passes of a training, one epoch after the other.
pub struct Epochs<B: GraphBackend> {
    graph: DeviceGraph<Autodiff<B>>,
    normalisation: Vec<Normalisation<Autodiff<B>>>,
    inputs: Inputs<Autodiff<B>>,
    batches: Prefetch<(Pairs, f64)>,
    host: HeteroGraph,
    config: Stage1Config,
    device: B::Device,
}

impl<B: GraphBackend> Epochs<B> {
    /// Epochs from `first` on.
    pub fn new(
        config: &Stage1Config,
        host: &HeteroGraph,
        graph: DeviceGraph<Autodiff<B>>,
        x: Vec<Tensor<Autodiff<B>, 2>>,
        first: usize,
        device: &B::Device,
    ) -> Self {
        let normalisation = Normalisation::of(host, device);
        // Features have no gradient and no edge is dropped: the first aggregation never changes.
        let inputs = Inputs::new(&graph, &normalisation, x, config.train.chunk_size);
        let (settings, host_of_worker) = (config.clone(), host.clone());
        let batches = Prefetch::new(first..=config.train.epochs, move |epoch| {
            let tau = temperature(&settings.temperature, epoch, settings.train.epochs);
            let negatives = settings.sampling.negatives_per_positive;
            let count = |relation: &Relation| settings.sampling.edges_of(&relation.stream);
            let (seed, purpose) = (settings.seed, Purpose::Reconstruction);
            let drawn = labelled_pairs(&host_of_worker, count, negatives, seed, purpose, epoch as u64);
            (Pairs::new(&host_of_worker, &drawn, settings.train.rows), tau)
        });
        let (host, config, device) = (host.clone(), config.clone(), device.clone());
        Self { graph, normalisation, inputs, batches, host, config, device }
    }

    /// The loss of the next epoch; `None` when the graph has no edge to reconstruct.
    pub fn next(&mut self, model: &TripleStreamGae<Autodiff<B>>) -> Option<Scored<Autodiff<B>>> {
        let (mut pairs, tau) = self.batches.next();
        let (graph, device) = (&self.graph, &self.device);
        if pairs.targets.is_empty() {
            return None;
        }
        let reach = reach_of(graph, pairs.nodes.take(), |_| None, device);
        let z = model.embed(graph, &reach, &self.normalisation, &self.inputs, self.config.train.chunk_size);
        Some(pairs.score(&z, tau, device))
    }

    /// Embeddings of every node.
    fn embed_all(&self, model: &TripleStreamGae<B>) -> Vec<Tensor<B, 2>> {
        let graph = self.graph.inner();
        let normalisation: Vec<_> = self.normalisation.iter().cloned().map(Normalisation::inner).collect();
        let chunk_rows = self.config.train.chunk_size;
        model.embed(&graph, &Reach::all(&graph), &normalisation, &self.inputs.clone().inner(), chunk_rows)
    }

    /// Edges of the training and as many pairs that are drawn as its negatives are.
    fn pairs_of_training(&self) -> Pairs {
        let count = |relation: &Relation| self.config.sampling.edges_of(&relation.stream);
        let drawn = labelled_pairs(&self.host, count, 1, self.config.seed, Purpose::Evaluation, 0);
        Pairs::new(&self.host, &drawn, Rows::All)
    }
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
