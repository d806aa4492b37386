//! Node classification: training of a [`NodeClassifier`] with early stopping, on the whole graph at once or on sampled
//! mini-batches of it.

mod fit;
mod sampled;
mod task;

use std::fmt;
use std::path::PathBuf;

use graphsieve_kernels::GraphBackend;
use ndarray::{Array1, Array2};
use serde::Serialize;

pub use self::fit::{EpochEnd, EpochLine, Fit, Validation, cross_entropy};
pub use self::sampled::{SampledEpochs, Step};
pub use self::task::Task;
use super::loading::loaded;
use super::plots::{self, Series};
use super::session::{RunOptions, Session, best_file, open_or_create, start_with};
use crate::config::{ClassifyConfig, RunConfig};
use crate::error::Result;
use crate::graph::formats::atomic_write;
use crate::graph::write_npy;
use crate::metrics::{ClassReport, predicted_class};
use crate::models::named;
use crate::models::node_classifier::{NodeClassifier, probabilities};
use crate::models::parameters::Parameters;
use crate::models::weights::{ModelSpec, Weights};

/// What a finished classification leaves.
#[derive(Clone, Debug, Serialize)]
pub struct ClassifyOutcome {
    pub run: PathBuf,
    /// The epoch whose model is kept.
    pub best_epoch: usize,
    /// Epochs that were trained.
    pub epochs: usize,
    /// What reading did to the data.
    pub notes: Vec<String>,
    /// Of the kept model, on the nodes that it was fitted to.
    pub train: ClassReport,
    /// On the nodes that chose the epoch.
    pub validation: ClassReport,
    /// On the nodes that nothing was chosen on.
    pub test: ClassReport,
    /// Mean wall time of the epochs after the first.
    #[serde(skip)]
    pub seconds_per_epoch: Option<f64>,
}

impl fmt::Display for ClassifyOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "best epoch {} of {}, test nodes:\n{}", self.best_epoch, self.epochs, self.test)?;
        let Self { train, validation, test, .. } = self;
        for (name, part) in [("training", train), ("validation", validation), ("test", test)] {
            writeln!(f, "{name} accuracy {:.4}, macro F1 {:.4}", part.accuracy, part.macro_f1)?;
        }
        super::write_speed(f, self.seconds_per_epoch)
    }
}

/// Trains a classifier, predicts the class of every node with the best epoch's model and evaluates it once on the test
/// nodes.
///
/// # Errors
/// Data or a checkpoint that cannot be used, outputs that cannot be written, a loss that is not finite, or an
/// interruption (everything is saved then).
pub fn run<B: GraphBackend>(
    config: &ClassifyConfig,
    options: &RunOptions,
    device: &B::Device,
) -> Result<ClassifyOutcome> {
    let task = Task::<B>::open(config, device)?;
    let toml = RunConfig::Classify(config.clone()).to_toml()?;
    let (run, checkpoint) = open_or_create(options, &config.output.dir, &config.name, config.seed, &toml)?;
    let spec = ModelSpec::NodeClassifier(task.spec.clone());
    let (model, optimiser, position) =
        start_with(&run, checkpoint, &spec, config.seed, task.optimiser(), device, |parameters| {
            task.model(parameters)
        })?;
    let shared = config.train.shared();
    let mut fit = Fit::new(&task, model, optimiser, config.seed, position.epoch + 1)?;
    fit.stopping = position.early_stopping.unwrap_or_default();
    if position.best_epoch > 0 {
        let file = best_file(&run);
        let (best, _) = Weights::read(&file)?;
        let model = task.model(&mut Parameters::<B>::from_tensors(&best.tensors, &file, device))?;
        fit.best = Some((position.best_epoch, model));
    }
    let mut session = Session::new(run, position, "classify", &shared, task.edges_per_epoch(), options.progress)?;
    task.notes.iter().chain(&task.decisions).for_each(|note| session.note(note));
    if let Some(sampled) = fit.sampled() {
        session.note(&sampled.placement.to_string());
    }

    // A run that had stopped when it was saved has nothing left to do.
    let mut over = fit.stopping.is_over(config.train.patience);
    let mut saved_best = position.best_epoch;
    let mut epoch = position.epoch;
    while epoch < config.train.epochs && !over {
        epoch += 1;
        let save = session.checkpoint_due(epoch, &shared);
        let EpochEnd { lines, stop } = fit.epoch(epoch, save)?;
        session.epoch_done::<B>(device)?;
        session.position.epoch = epoch;
        session.position.early_stopping = Some(fit.stopping);
        over = stop;
        if over {
            session.end_at(epoch);
        }
        for line in &lines {
            session.log(line.epoch, line)?;
        }
        let last = lines.last();
        if let (Some((best, _)), Some(Validation { validation_accuracy, .. })) =
            (&fit.best, last.and_then(|line| line.validation))
            && *best == epoch
        {
            session.position.best_epoch = epoch;
            session.position.best_metric = validation_accuracy;
        }
        if let Some(line) = last {
            let best = session.position.best_metric;
            session.show(epoch, &format!("loss {:.4}  best validation accuracy {best:.4}", line.loss));
        }
        if save || over {
            // The best model first: a checkpoint to go on from refers to it.
            if let Some((best, model)) = &fit.best
                && *best != saved_best
            {
                session.save_best(&spec, named::export(model))?;
                saved_best = *best;
            }
            session.save_last(&spec, named::export(&fit.model), &fit.optimiser)?;
            session.stop_if_asked(epoch)?;
        }
    }
    if let Some(sampled) = fit.sampled() {
        session.note(&loaded::<B>(sampled.stats(), device));
    }
    finish(config, session, &task, fit)
}

/// Predictions, figures and plots of the best epoch's model.
fn finish<B: GraphBackend>(
    config: &ClassifyConfig,
    session: Session,
    task: &Task<B>,
    fit: Fit<B>,
) -> Result<ClassifyOutcome> {
    let seconds_per_epoch = session.seconds_per_epoch();
    let model: NodeClassifier<B> = match fit.best {
        Some((_, model)) => model,
        None => unreachable!("the last epoch is always validated, and the first validation is the best so far"),
    };
    let logits = task.logits(&model)?;
    let classes = task.spec.classes;
    let predictions: Array1<i64> = logits.chunks_exact(classes).map(|row| i64::from(predicted_class(row))).collect();
    let probabilities = Array2::from_shape_vec((predictions.len(), classes), probabilities(&logits, classes))
        .unwrap_or_else(|e| unreachable!("one row per node: {e}"));
    write_npy(session.run.output("probabilities.npy"), &probabilities)?;
    write_npy(session.run.output("predictions.npy"), &predictions)?;
    let outcome = ClassifyOutcome {
        run: session.run.path().to_path_buf(),
        best_epoch: session.position.best_epoch,
        epochs: session.position.epoch,
        notes: task.notes.clone(),
        train: task.report(&logits, &task.split.train)?,
        validation: task.report(&logits, &task.split.validation)?,
        test: task.report(&logits, &task.split.test)?,
        seconds_per_epoch,
    };
    atomic_write(session.run.output("evaluation.json"), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
    if config.output.plots {
        plot(&session)?;
    }
    session.finish(&format!("test accuracy {:.4}", outcome.test.accuracy));
    Ok(outcome)
}

fn plot(session: &Session) -> Result<()> {
    let history = session.run.history()?;
    let [loss, validation, accuracy] =
        ["loss", "validation_loss", "validation_accuracy"].map(|key| history.series(key));
    let losses =
        [Series { name: "training loss", points: &loss }, Series { name: "validation loss", points: &validation }];
    let metrics = [Series { name: "validation accuracy", points: &accuracy }];
    plots::training_curves(&session.run.output("training.svg"), "Node classification", &losses, &metrics)
}
