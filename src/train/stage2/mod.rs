//! Stage 2: the loop of the graph attention network.

mod full;
mod loss;
mod passes;
mod plan;
mod sampled;

pub use full::Epochs;
pub use loss::{LossInput, Terms};
pub use plan::plan;
pub use sampled::{SampledEpochs, Step};

use std::fmt;
use std::path::PathBuf;

use burn::module::AutodiffModule;
use graphsieve_kernels::GraphBackend;
use ndarray::{Array1, Array2};
use serde::Serialize;

use self::passes::{Ground, Passes};
use super::optimiser::learning_rate;
use super::plots::{self, Series};
use super::session::{RunOptions, Session, best_file, check_finite, open_or_create, start};
use crate::config::{RunConfig, STAGE2_EMBEDDINGS_FILE, STAGE2_SCORES_FILE, SplitConfig, Stage2Config};
use crate::data::logistic::LogisticRegression;
use crate::data::split::{Split, SplitFractions};
use crate::error::Result;
use crate::graph::formats::atomic_write;
use crate::graph::{Dataset, HeteroGraph, write_npy_f32};
use crate::metrics::roc_auc;
use crate::models::attention::{AttentionSpec, TripleStreamGat};
use crate::models::device_graph::check_device;
use crate::models::parameters::{Parameters, to_host};
use crate::models::weights::{ModelSpec, Weights};
use crate::score::evaluate::{Evaluation, evaluate_split};
use crate::score::layerwise::HostScored;
use crate::score::{input_features, write_calibration};

/// Epochs whose losses are on the device. The allocator goes through all that lives there for every tensor that it makes.
const MOST_UNREAD: usize = 32;

/// One line of `metrics.jsonl`.
#[derive(Serialize)]
struct EpochLine {
    loss: f32,
    supervised: f32,
    unsupervised: f32,
    learning_rate: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    validation_auc: Option<f64>,
}

/// What a finished Stage 2 leaves.
#[derive(Clone, Debug, Serialize)]
pub struct Stage2Outcome {
    pub run: PathBuf,
    pub best_epoch: usize,
    /// Of the best checkpoint, on the validation and the test part.
    pub evaluation: Evaluation,
    /// Test ROC-AUC of a logistic regression on the raw features, for comparison.
    pub baseline_auc: Option<f64>,
    /// Mean wall time of the epochs after the first.
    #[serde(skip)]
    pub seconds_per_epoch: Option<f64>,
}

impl fmt::Display for Stage2Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "best epoch {}, held-out test labels:\n{}", self.best_epoch, self.evaluation.test)?;
        if let Some(auc) = self.baseline_auc {
            writeln!(f, "logistic regression on raw features: test ROC-AUC {auc:.4}")?;
        }
        super::write_speed(f, self.seconds_per_epoch)
    }
}

/// The split that a configuration means.
pub fn split_of(graph: &HeteroGraph, entries: &[(u32, u8)], split: &SplitConfig) -> Result<Split> {
    let fractions = SplitFractions { train: split.train, validation: split.validation, test: split.test };
    Split::stratified(entries, |node| graph.type_of(node as usize), fractions, split.seed)
}

/// Trains the attention network, scores every node with the best checkpoint and evaluates it once on the test labels.
///
/// # Errors
/// Data or a checkpoint that cannot be used, outputs that cannot be written, a loss that is not finite, or an
/// interruption (everything is saved then).
pub fn run<B: GraphBackend>(config: &Stage2Config, options: &RunOptions, device: &B::Device) -> Result<Stage2Outcome> {
    let dataset = Dataset::open(&config.data.path)?;
    let labels = dataset.binary_labels(&config.data.path)?;
    let split = split_of(&dataset.graph, &labels.entries, &config.split)?;
    run_on::<B>(config, &dataset, &split, options, device)
}

/// [`run`] on data that are read and labels that are divided already.
///
/// # Errors
/// As for [`run`].
pub fn run_on<B: GraphBackend>(
    config: &Stage2Config,
    dataset: &Dataset,
    split: &Split,
    options: &RunOptions,
    device: &B::Device,
) -> Result<Stage2Outcome> {
    let host = &dataset.graph;
    let features = input_features(&config.data, dataset, None)?;
    let spec = AttentionSpec {
        streams: host.streams().into_iter().map(String::from).collect(),
        input: features.dim(),
        hidden: config.model.hidden,
        output: config.model.out,
        heads: config.model.heads,
        negative_slope: config.model.negative_slope as f32,
    };
    let plan = plan::<B>(config, host, features.dim(), device);
    // Before there is a run: what does not fit leaves none.
    let ground = Ground::new(&plan, config, host, &features, device)?;
    let toml = RunConfig::Stage2(config.clone()).to_toml()?;
    let (run, checkpoint) = open_or_create(options, &config.output.dir, &config.name, config.seed, &toml)?;

    let model_spec = ModelSpec::Attention(spec.clone());
    let (mut model, mut optimiser, position) =
        start::<B, _>(&run, checkpoint, &model_spec, config.seed, &config.train, device, |parameters| {
            TripleStreamGat::new(&spec, parameters)
        })?;
    let mut passes = Passes::new(ground, config, host, features, &split.train, position.epoch + 1, device)?;
    let mut session = Session::new(run, position, "stage 2", &config.train, passes.edges(), options.progress)?;
    dataset.notes.iter().for_each(|note| session.note(note));
    passes.notes.iter().for_each(|note| session.note(note));

    let (mut pending, mut terms) = (Vec::new(), Vec::new());
    let mut shown_loss = f32::NAN;
    for epoch in position.epoch + 1..=config.train.epochs {
        let rate = learning_rate(&config.train, epoch);
        let values;
        (model, values) = passes.epoch(model, &mut optimiser, rate)?;
        pending.push((epoch, rate, values));

        session.epoch_done::<B>(device)?;
        session.position.epoch = epoch;
        let due = epoch == config.train.epochs || epoch.is_multiple_of(config.train.validate_every);
        let save = session.checkpoint_due(epoch, &config.train);
        if !due && !save && pending.len() < MOST_UNREAD {
            continue;
        }
        for (at, rate, values) in pending.drain(..) {
            let [loss, supervised, unsupervised] = values.map(|value| to_host(value)[0]);
            check_device()?;
            check_finite("the supervised loss", supervised, at)?;
            check_finite("the unsupervised loss", unsupervised, at)?;
            check_finite("the loss", loss, at)?;
            terms.push((at, rate, loss, supervised, unsupervised));
        }
        if !due && !save {
            continue;
        }
        let validation_auc = match due {
            true => {
                let scores = passes.scores(&model.valid())?;
                if let Some(&score) = scores.iter().find(|score| !score.is_finite()) {
                    check_finite("a validation score", score, epoch)?;
                }
                Some(part_auc(&scores, &split.validation)?)
            }
            false => None,
        };
        for (at, rate, loss, supervised, unsupervised) in terms.drain(..) {
            let validation_auc = validation_auc.filter(|_| at == epoch);
            shown_loss = loss;
            session.log(at, &EpochLine { loss, supervised, unsupervised, learning_rate: rate, validation_auc })?;
        }
        if let Some(auc) = validation_auc
            && (session.position.best_epoch == 0 || auc > session.position.best_metric)
        {
            session.position.best_epoch = epoch;
            session.position.best_metric = auc;
            session.save_best(&model_spec, model.export(&spec))?;
        }
        session.show(epoch, &format!("loss {shown_loss:.4}  best validation AUC {:.4}", session.position.best_metric));
        if save {
            session.save_last(&model_spec, model.export(&spec), &optimiser)?;
            session.stop_if_asked(epoch)?;
        }
    }

    let seconds_per_epoch = session.seconds_per_epoch();
    let file = best_file(&session.run);
    let (best, _) = Weights::read(&file)?;
    let model = TripleStreamGat::<B>::new(&spec, &mut Parameters::from_tensors(&best.tensors, &file, device))?;
    let HostScored { scores, embeddings } = passes.scored(&model)?;
    if let Some(loaded) = passes.loaded() {
        session.note(&loaded);
    }
    write_npy_f32(session.run.output(STAGE2_SCORES_FILE), &Array1::from_vec(scores.clone()))?;
    write_npy_f32(session.run.output(STAGE2_EMBEDDINGS_FILE), &embeddings)?;
    let outcome = Stage2Outcome {
        run: session.run.path().to_path_buf(),
        best_epoch: session.position.best_epoch,
        evaluation: evaluate_split(&scores, host, split)?,
        baseline_auc: baseline(dataset, split)?,
        seconds_per_epoch,
    };
    write_calibration(&session.run, &scores, split)?;
    atomic_write(session.run.output("evaluation.json"), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
    if config.output.plots {
        plot(&session, &scores, split, outcome.evaluation.threshold)?;
    }
    session.finish(&format!("best validation AUC {:.4}", session.position.best_metric));
    Ok(outcome)
}

fn part_auc(scores: &[f32], part: &[(u32, u8)]) -> Result<f64> {
    let (values, labels): (Vec<f32>, Vec<u8>) =
        part.iter().map(|&(node, label)| (scores[node as usize], label)).unzip();
    roc_auc(&values, &labels)
}

/// Strengths of the L2 penalty of the baseline; the best on the validation part is taken.
const PENALTIES: [f64; 4] = [0.1, 1.0, 10.0, 100.0];

/// Test ROC-AUC of a logistic regression on the raw features.
pub(super) fn baseline(dataset: &Dataset, split: &Split) -> Result<Option<f64>> {
    let Some(scores) = baseline_scores(dataset, split)? else { return Ok(None) };
    roc_auc(&scores, &split.test.iter().map(|(_, label)| *label).collect::<Vec<u8>>()).map(Some)
}

/// Scores that a logistic regression on the raw features gives to the test part of `split`, in its order; `None` without
/// features. The strength of its penalty is chosen on the validation part.
///
/// # Errors
/// [`Error::Data`](crate::error::Error::Data) when a part lacks a class.
pub fn baseline_scores(dataset: &Dataset, split: &Split) -> Result<Option<Vec<f32>>> {
    let Some(features) = &dataset.features else { return Ok(None) };
    let rows = |part: &[(u32, u8)]| {
        let values = part.iter().flat_map(|(node, _)| features.row(*node as usize)).collect();
        Array2::from_shape_vec((part.len(), features.dim()), values)
            .unwrap_or_else(|e| unreachable!("whole rows of features: {e}"))
    };
    let labels = |part: &[(u32, u8)]| part.iter().map(|(_, label)| *label).collect::<Vec<u8>>();
    let (train, validation) = (rows(&split.train), rows(&split.validation));
    let mut best: Option<(f64, LogisticRegression)> = None;
    for penalty in PENALTIES {
        let fitted = LogisticRegression::fit(train.view(), &labels(&split.train), penalty)?;
        let auc = roc_auc(&fitted.scores(validation.view()), &labels(&split.validation))?;
        if best.as_ref().is_none_or(|(so_far, _)| auc > *so_far) {
            best = Some((auc, fitted));
        }
    }
    Ok(best.map(|(_, fitted)| fitted.scores(rows(&split.test).view())))
}

fn plot(session: &Session, scores: &[f32], split: &Split, threshold: f64) -> Result<()> {
    let history = session.run.history()?;
    let series = |key: &str| history.series(key);
    let (supervised, unsupervised, auc) = (series("supervised"), series("unsupervised"), series("validation_auc"));
    let losses = [
        Series { name: "supervised loss", points: &supervised },
        Series { name: "unsupervised loss", points: &unsupervised },
    ];
    let metrics = [Series { name: "validation ROC-AUC", points: &auc }];
    let file = |name: &str| session.run.output(name);
    plots::training_curves(&file("training.svg"), "Stage 2: graph attention", &losses, &metrics)?;

    plots::held_out(file, "Stage 2: test labels", scores, &split.test, threshold)
}
