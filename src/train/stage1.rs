//! Stage 1: the loop of the graph auto-encoder.

use std::path::{Path, PathBuf};

use burn::backend::Autodiff;
use burn::module::AutodiffModule;
use burn::tensor::{Tensor, TensorData};
use graphsieve_kernels::{GraphBackend, PairIndex, pair_dot};
use ndarray::Array2;
use serde::{Deserialize, Serialize};

use super::edges::{LabelledPairs, Purpose, labelled_pairs};
use super::loss::{bce_with_logits_sum, sigmoid};
use super::optimiser::{dtype, learning_rate};
use super::plots::{self, Series};
use super::session::{RunOptions, Session, check_finite, open_or_create, start};
use crate::config::{EMBEDDINGS_FILE, RunConfig, Stage1Config, TemperatureConfig};
use crate::error::{Error, Result};
use crate::graph::{Dataset, HeteroGraph, Relation, write_npy_f32};
use crate::metrics::roc_auc;
use crate::models::auto_encoder::{AutoEncoderSpec, Normalisation, TripleStreamGae};
use crate::models::device_graph::{DeviceGraph, check_device, upload_by_type};
use crate::models::parameters::to_host;
use crate::models::weights::ModelSpec;

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
struct EpochLine {
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

    let graph = DeviceGraph::<Autodiff<B>>::upload(host, device)?;
    let storage = dtype(config.train.precision);
    let values = features.as_f16();
    let x = upload_by_type::<Autodiff<B>>(host.node_types(), features.dim(), storage, device, |k| values[k].to_f32());
    let normalisation = Normalisation::of(host, device);
    let chunk = config.train.chunk_size;
    // Features have no gradient and no edge is dropped: the first aggregation never changes.
    let aggregated = TripleStreamGae::aggregate(&graph, &normalisation, &x, chunk);

    let model_spec = ModelSpec::AutoEncoder(spec.clone());
    let (mut model, mut optimiser, position) =
        start::<B, _>(&run, checkpoint, &model_spec, config.seed, &config.train, device, |parameters| {
            TripleStreamGae::new(&spec, parameters)
        })?;
    let mut session = Session::new(run, position, "stage 1", &config.train, 2 * graph.num_edges(), options.progress)?;

    let per_relation = |relation: &Relation| config.sampling.edges_of(&relation.stream);
    let negatives = config.sampling.negatives_per_positive;
    let mut pending: Vec<Pending<B>> = Vec::new();
    let mut last_loss = f32::NAN;
    let mut last_metrics = None;
    for epoch in position.epoch + 1..=config.train.epochs {
        let pairs = labelled_pairs(host, per_relation, negatives, config.seed, Purpose::Reconstruction, epoch as u64);
        let tau = temperature(&config.temperature, epoch, config.train.epochs);
        let rate = learning_rate(&config.train, epoch);
        let z = model.embed(&graph, &normalisation, &x, &aggregated, chunk);
        let logits = pair_logits(host, &z, &pairs, tau, device)?;
        let total: usize = pairs.iter().map(|p| p.dst.len()).sum();
        let mut loss: Option<Tensor<Autodiff<B>, 1>> = None;
        for (pairs, logits) in pairs.iter().zip(&logits) {
            let term = bce_with_logits_sum(logits.clone(), targets(pairs, device));
            loss = Some(match loss {
                Some(sum) => sum + term,
                None => term,
            });
        }
        let loss = loss.ok_or_else(no_edges)? / total as f64;
        let due = epoch == config.train.epochs || epoch.is_multiple_of(config.train.validate_every);
        pending.push(Pending {
            epoch,
            loss: loss.clone().inner(),
            rate,
            tau,
            logits: if due { logits.into_iter().map(Tensor::inner).collect() } else { Vec::new() },
            pairs: if due { pairs } else { Vec::new() },
        });
        model = optimiser.step(model, loss, rate);

        session.epoch_done::<B>(device)?;
        session.position.epoch = epoch;
        let save = session.checkpoint_due(epoch, &config.train);
        if due || save {
            for entry in pending.drain(..) {
                let loss = to_host(entry.loss)[0];
                check_device()?;
                check_finite("the reconstruction loss", loss, entry.epoch)?;
                let metrics = match entry.logits.is_empty() {
                    true => None,
                    false => Some(edge_metrics(&entry.logits, &entry.pairs)?),
                };
                last_metrics = metrics.or(last_metrics);
                last_loss = loss;
                let (learning_rate, temperature) = (entry.rate, entry.tau);
                let line = EpochLine { loss, learning_rate, temperature, metrics };
                session.log(entry.epoch, &line)?;
            }
            let auc = last_metrics.map_or(String::new(), |m: EdgeMetrics| format!("  edge AUC {:.4}", m.edge_auc));
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
    let inner = graph.inner();
    let plain = |tensors: &[Tensor<Autodiff<B>, 2>]| -> Vec<Tensor<B, 2>> {
        tensors.iter().map(|t| t.clone().inner()).collect()
    };
    let normalisation = Normalisation::of(host, device);
    let z = model.embed(&inner, &normalisation, &plain(&x), &plain(&aggregated), chunk);
    let pairs = labelled_pairs(host, per_relation, 1, config.seed, Purpose::Evaluation, 0);
    let logits = pair_logits(host, &z, &pairs, 1.0, device)?;
    let metrics = edge_metrics(&logits, &pairs)?;
    let embeddings = session.run.output(EMBEDDINGS_FILE);
    write_embeddings(&embeddings, z)?;
    if config.output.plots {
        plot(&session)?;
    }
    session.finish(&format!("edge AUC {:.4}", metrics.edge_auc));
    Ok(Stage1Outcome { run: session.run.path().to_path_buf(), embeddings, metrics, loss: last_loss, seconds_per_epoch })
}

/// What an epoch leaves on the device until the next report.
struct Pending<B: GraphBackend> {
    epoch: usize,
    loss: Tensor<B, 1>,
    rate: f64,
    tau: f64,
    logits: Vec<Tensor<B, 1>>,
    pairs: Vec<LabelledPairs>,
}

fn no_edges() -> Error {
    Error::Data {
        what: "the graph".into(),
        expected: "at least one relation with edges other than self-loops".into(),
        found: "none".into(),
        help: "Stage 1 reconstructs edges; check the relations with `graphsieve info --data DIR`".into(),
    }
}

/// `tau <z_dst, z_src>` of every pair, one tensor per entry of `pairs`.
fn pair_logits<B: GraphBackend>(
    host: &HeteroGraph,
    z: &[Tensor<B, 2>],
    pairs: &[LabelledPairs],
    tau: f64,
    device: &B::Device,
) -> Result<Vec<Tensor<B, 1>>> {
    let one = |pairs: &LabelledPairs| {
        let relation = &host.relations()[pairs.relation];
        let (dst, src) = (relation.dst, relation.src);
        let count = |t: usize| host.node_types()[t].count;
        let index = PairIndex::new(&pairs.dst, &pairs.src, count(dst), count(src), device);
        Ok(pair_dot(z[dst].clone(), z[src].clone(), &index) * tau)
    };
    pairs.iter().map(one).collect()
}

fn targets<B: GraphBackend>(pairs: &LabelledPairs, device: &B::Device) -> Tensor<B, 1> {
    let values: Vec<f32> = (0..pairs.dst.len()).map(|p| f32::from(u8::from(p < pairs.positives))).collect();
    let len = values.len();
    Tensor::from_data(TensorData::new(values, [len]), device)
}

fn edge_metrics<B: GraphBackend>(logits: &[Tensor<B, 1>], pairs: &[LabelledPairs]) -> Result<EdgeMetrics> {
    let (mut scores, mut labels) = (Vec::new(), Vec::new());
    for (logits, pairs) in logits.iter().zip(pairs) {
        let values = to_host(logits.clone());
        labels.extend((0..values.len()).map(|p| u8::from(p < pairs.positives)));
        scores.extend(values.into_iter().map(sigmoid));
    }
    let mean = |class: u8| {
        let own = scores.iter().zip(&labels).filter(|(_, l)| **l == class).map(|(s, _)| f64::from(*s));
        own.clone().sum::<f64>() / own.count().max(1) as f64
    };
    let (p_positive, p_negative) = (mean(1), mean(0));
    let edge_auc = roc_auc(&scores, &labels)?;
    Ok(EdgeMetrics { p_positive, p_negative, margin: p_positive - p_negative, edge_auc })
}

fn write_embeddings<B: GraphBackend>(path: &Path, z: Vec<Tensor<B, 2>>) -> Result<()> {
    let width = z.first().map_or(0, |z| z.dims()[1]);
    let values: Vec<f32> = z.into_iter().flat_map(to_host).collect();
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
