//! A classification from its data to what it leaves.

use std::fmt;
use std::path::PathBuf;

use graphsieve_kernels::GraphBackend;
use ndarray::{Array1, Array2};
use serde::Serialize;

use super::data::ClassifierData;
use super::task::Classifier;
use crate::config::{Best, ClassifyConfig, PROBABILITIES_FILE, RankingMetric, RunConfig};
use crate::data::class_split::ClassSplit;
use crate::error::Result;
use crate::graph::formats::atomic_write;
use crate::graph::{Dataset, write_npy};
use crate::infer::finite::check_finite_rows;
use crate::metrics::{ClassReport, Ranking, class_scores, predicted_class};
use crate::models::node_classifier::{NodeClassifier, probabilities};
use crate::run::RunDir;
use crate::run::baseline::BesideBaseline;
use crate::run::bundle::Origin;
use crate::run::bundle::drift::Profile;
use crate::run::calibration::write_class_calibrations;
use crate::run::ensemble::Ensemble;
use crate::run::evaluation::{EVALUATION_FILE, class_report, read_probabilities};
use crate::train::plots::{self, Series};
use crate::train::ranks::{Rank, agree, alone};
use crate::train::session::{RunOptions, Session};
use crate::train::stretch::{Judged, Validated};
use crate::train::task::Task;
use crate::train::trainer::{self, Led, Place, Trained};

/// What a finished classification leaves.
#[derive(Clone, Debug, Serialize)]
pub struct ClassifyOutcome {
    pub run: PathBuf,
    /// The epoch whose model is kept; of the mean of several trainings the latest of theirs.
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
    /// How the probability of class 1 ranks the test nodes, where average precision chose the epoch.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub ranked: Option<Ranked>,
    /// Of labels that are anomalous or normal.
    #[serde(flatten)]
    pub baseline: BesideBaseline,
    /// Mean wall time of the epochs after the first.
    #[serde(skip)]
    pub seconds_per_epoch: Option<f64>,
}

/// How well scores tell anomalies from normal test nodes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ranked {
    pub test_average_precision: Option<f64>,
    pub test_roc_auc: Option<f64>,
}

impl fmt::Display for ClassifyOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "best epoch {} of {}, test nodes:\n{}", self.best_epoch, self.epochs, self.test)?;
        let Self { train, validation, test, .. } = self;
        for (name, part) in [("training", train), ("validation", validation), ("test", test)] {
            writeln!(f, "{name} accuracy {:.4}, macro F1 {:.4}", part.accuracy, part.macro_f1)?;
        }
        if let Some(Ranked { test_average_precision: Some(precision), test_roc_auc: Some(area) }) = self.ranked {
            writeln!(f, "test average precision {precision:.4}, ROC-AUC {area:.4}")?;
        }
        write!(f, "{}", self.baseline)?;
        crate::train::session::write_speed(f, self.seconds_per_epoch)
    }
}

/// Trains a classifier, predicts the class of every node with the best epoch's model and evaluates it once on the test
/// nodes; as one of several ranks, where there are any: what rank 0 leaves.
///
/// # Errors
/// Data or a checkpoint that cannot be used, outputs that cannot be written, a loss that is not finite, another rank
/// that fails, or an interruption (everything is saved then).
pub fn run<B: GraphBackend>(
    config: &ClassifyConfig,
    options: &RunOptions,
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Option<ClassifyOutcome>> {
    let data = ClassifierData::read(config, options.begun())?;
    let origin = Origin::of("classify", &config.data.path, &data.dataset, None)?;
    let Some(fitted) = fitted::<B>(config, &data, Some(&origin), options, rank, device)? else { return Ok(None) };
    finished(config, &data, &origin, fitted, rank, device)
}

/// What a trained classifier leaves, on rank 0; the others score with it where they can.
fn finished<B: GraphBackend>(
    config: &ClassifyConfig,
    data: &ClassifierData,
    origin: &Origin,
    Fitted { trained: Trained { model, led }, task, known }: Fitted<B>,
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Option<ClassifyOutcome>> {
    let rank = rank.filter(|_| task.scores_together());
    if led.is_none() && rank.is_none() {
        return Ok(None);
    }
    let task = match known {
        None => task,
        // What is written is of the whole graph.
        Some(_) => {
            drop(task);
            Classifier::<B>::of(config, data, rank, device)?
        }
    };
    let logits = task.logits(&model, rank)?;
    let Some(Led { session, position, seconds_per_epoch, .. }) = led else { return Ok(None) };
    let classes = task.spec.classes;
    check_finite_rows("the logits", &logits, classes, &data.dataset)?;
    let ending = Ending { config, dataset: &data.dataset, split: &task.split, origin, run: &session.run };
    let epochs = [position.best_epoch, position.epoch];
    let outcome = ending.write(&logits, probabilities(&logits, classes), classes, epochs, seconds_per_epoch)?;
    if config.output.plots {
        plot(&session)?;
    }
    session.finish(&match outcome.ranked.and_then(|ranked| ranked.test_average_precision) {
        Some(precision) => format!("test average precision {precision:.4}"),
        None => format!("test accuracy {:.4}", outcome.test.accuracy),
    });
    Ok(Some(outcome))
}

/// Makes `run` the model that is the mean of finished runs of `config` with seeds of their own, which ended as `ends`
/// say and are the members of `ensemble`: its probabilities are the means of theirs, and it is tested once.
///
/// # Errors
/// Data and runs that cannot be read, files that cannot be written.
pub fn averaged(
    config: &ClassifyConfig,
    ensemble: &Ensemble,
    ends: &[ClassifyOutcome],
    run: &RunDir,
) -> Result<ClassifyOutcome> {
    let data = ClassifierData::read(config, None)?;
    let origin = Origin::of("classify", &config.data.path, &data.dataset, None)?;
    origin.begin(run, None)?;
    let (nodes, classes) = (data.dataset.graph.num_nodes(), data.spec.classes);
    let of_member = |end: &ClassifyOutcome| read_probabilities(&end.run.join(PROBABILITIES_FILE), nodes, classes);
    let mean = ensemble.mean(&ends.iter().map(of_member).collect::<Result<Vec<_>>>()?);
    ensemble.write(run)?;
    let latest = |epoch: fn(&ClassifyOutcome) -> usize| ends.iter().map(epoch).max().unwrap_or(0);
    let epochs = [latest(|end| end.best_epoch), latest(|end| end.epochs)];
    let ending = Ending { config, dataset: &data.dataset, split: &data.split, origin: &origin, run };
    ending.write(&mean, mean.clone(), classes, epochs, None)
}

/// Where a classification ends.
struct Ending<'a> {
    config: &'a ClassifyConfig,
    dataset: &'a Dataset,
    split: &'a ClassSplit,
    origin: &'a Origin,
    run: &'a RunDir,
}

impl Ending<'_> {
    /// Writes what a model says of all nodes, row by row: `values`, which are logits or probabilities, decide about the
    /// class. It is tested once. Its epochs are that of the best model and the last one.
    fn write(
        &self,
        values: &[f32],
        probabilities: Vec<f32>,
        classes: usize,
        [best_epoch, epochs]: [usize; 2],
        seconds_per_epoch: Option<f64>,
    ) -> Result<ClassifyOutcome> {
        let Self { config, dataset, split, origin, run } = self;
        let predictions: Array1<i64> =
            values.chunks_exact(classes).map(|row| i64::from(predicted_class(row))).collect();
        let probabilities = Array2::from_shape_vec((predictions.len(), classes), probabilities)
            .unwrap_or_else(|e| unreachable!("one row per node: {e}"));
        write_npy(run.output(PROBABILITIES_FILE), &probabilities)?;
        write_npy(run.output("predictions.npy"), &predictions)?;
        write_class_calibrations(run, &probabilities, split)?;
        let by_precision = config.train.best == Best::AveragePrecision;
        let profile = Profile::of_training(dataset, Some(&class_scores(&probabilities)), &split.train);
        let outcome = ClassifyOutcome {
            run: run.path().to_path_buf(),
            best_epoch,
            epochs,
            notes: dataset.notes.clone(),
            train: class_report(values, classes, &split.train)?,
            validation: class_report(values, classes, &split.validation)?,
            test: class_report(values, classes, &split.test)?,
            ranked: by_precision.then(|| ranked(&probabilities, split)).transpose()?,
            baseline: self.beside_baseline(&probabilities)?,
            seconds_per_epoch,
        };
        atomic_write(run.output(EVALUATION_FILE), |file| Ok(serde_json::to_writer_pretty(file, &outcome)?))?;
        origin.finish(run, &profile, &[])?;
        Ok(outcome)
    }

    /// Of several classes, and of a part without one of two, there is nothing to compare.
    fn beside_baseline(&self, probabilities: &Array2<f32>) -> Result<BesideBaseline> {
        let split = self.split.against_rest(1);
        let has_both = |part: &Vec<(u32, u8)>| [0, 1].iter().all(|label| part.iter().any(|entry| entry.1 == *label));
        let compared = [&split.train, &split.validation, &split.test].into_iter().all(has_both);
        if probabilities.ncols() != 2 || !compared {
            return Ok(BesideBaseline::default());
        }
        let metric = match self.config.train.best {
            Best::AveragePrecision => RankingMetric::AveragePrecision,
            Best::Loss | Best::Accuracy | Best::Both => RankingMetric::Auroc,
        };
        BesideBaseline::of(self.dataset, &split, metric, &probabilities.column(1).to_vec())
    }
}

/// Figures of the probability of class 1 on the test nodes.
fn ranked(probabilities: &Array2<f32>, split: &ClassSplit) -> Result<Ranked> {
    let test = split.against_rest(1).test;
    let (scores, labels): (Vec<f32>, Vec<u8>) =
        test.iter().map(|&(node, label)| (probabilities[[node as usize, 1]], label)).unzip();
    let ranking = Ranking::new(&scores, &labels)?;
    Ok(Ranked { test_average_precision: ranking.average_precision(), test_roc_auc: ranking.roc_auc() })
}

/// Trains as far as `options` say and looks at nothing but the training and the validation nodes of `data`. Of labels
/// that are `anomalies` the score is the probability of class 1, which the nodes `also` are given, too.
///
/// # Errors
/// As for [`run`].
///
/// # Panics
/// For other nodes of data that are split by time.
pub fn validated<B: GraphBackend>(
    config: &ClassifyConfig,
    data: &ClassifierData,
    anomalies: bool,
    also: &[u32],
    options: &RunOptions,
    device: &B::Device,
) -> Result<Validated> {
    let fitted = alone(fitted::<B>(config, data, None, options, None, device)?);
    let Fitted { trained: Trained { model, led }, task, known } = fitted;
    let Led { session, position, .. } = alone(led);
    assert!(known.is_none() || also.is_empty(), "the nodes of a part of the data have other numbers");
    let classes = task.spec.classes;
    let probabilities = probabilities(&task.logits(&model, None)?, classes);
    let (judged, also) = match anomalies {
        false => (Judged::of_classes(&probabilities, classes, &task.split.validation), Vec::new()),
        true => {
            let scores: Vec<f32> = probabilities.chunks_exact(classes).map(|row| row[1]).collect();
            let also = also.iter().map(|&node| scores[node as usize]).collect();
            (Judged::of(&scores, &task.split.against_rest(1).validation), also)
        }
    };
    session.finish("");
    Ok(Validated {
        run: session.run.path().to_path_buf(),
        judged,
        also,
        done: position.epoch,
        complete: position.epoch == config.train.epochs || task.is_over(&position),
    })
}

/// A trained classifier, and what it was trained on.
struct Fitted<B: GraphBackend> {
    trained: Trained<NodeClassifier<B>>,
    task: Classifier<B>,
    /// Of data that are split by time what the training saw.
    known: Option<ClassifierData>,
}

fn fitted<B: GraphBackend>(
    config: &ClassifyConfig,
    data: &ClassifierData,
    origin: Option<&Origin>,
    options: &RunOptions,
    rank: Option<&Rank<B>>,
    device: &B::Device,
) -> Result<Option<Fitted<B>>> {
    let (known, of_part) = data.known().unzip();
    let toml = RunConfig::Classify(config.clone()).to_toml()?;
    if let Some(rank) = rank {
        agree::<B>(rank, &toml, origin, None)?;
    }
    let task = Classifier::<B>::of(config, known.as_ref().unwrap_or(data), rank, device)?;
    let (runs, name, seed) = (&config.output.dir, &config.name, config.seed);
    let place = Place { runs, name, seed, config: &toml, origin, filling: Some(&data.filling) };
    let filled = data.dataset.filling_note(&data.filling);
    let notes = data.dataset.notes.iter().chain(&task.decisions).cloned().chain(of_part).chain(filled);
    let notes: Vec<String> = notes.collect();
    let trained = trainer::train(&task, &place, options, &notes, rank, device)?;
    Ok(trained.map(|trained| Fitted { trained, task, known }))
}

fn plot(session: &Session) -> Result<()> {
    let history = session.run.history()?;
    let [loss, validation, accuracy, precision] =
        ["loss", "validation_loss", "validation_accuracy", "validation_average_precision"]
            .map(|key| history.series(key));
    let losses =
        [Series { name: "training loss", points: &loss }, Series { name: "validation loss", points: &validation }];
    let metrics = [("validation accuracy", &accuracy), ("validation average precision", &precision)];
    let metrics = metrics.into_iter().filter(|(_, points)| !points.is_empty());
    let metrics: Vec<Series> = metrics.map(|(name, points)| Series { name, points }).collect();
    plots::training_curves(&session.run.output("training.svg"), "Node classification", &losses, &metrics)
}
