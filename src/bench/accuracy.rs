//! The accuracy of a node classification over many seeds, without run directories.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use graphsieve_kernels::GraphBackend;
use serde::Serialize;

use super::Note;
use crate::config::{ClassifyConfig, LayerKind, RunConfig};
use crate::error::{Error, Result};
use crate::train::tasks::classifier::{Classifier, ClassifierData};
use crate::train::trainer::Trainer;

/// What to measure.
#[derive(Clone, Debug)]
pub struct AccuracyOptions {
    /// The configuration file, with what the command line replaces.
    pub config: PathBuf,
    pub overrides: Vec<String>,
    /// Number of trainings; the first has the seed of the configuration, each further one the next.
    pub seeds: usize,
    /// Name and model of the device, for the report.
    pub description: String,
}

/// The figures of all seeds.
#[derive(Clone, Debug, Serialize)]
pub struct AccuracyReport {
    pub config: PathBuf,
    pub data: PathBuf,
    pub layer: LayerKind,
    pub device: String,
    /// Of the test accuracies.
    pub test_accuracy: Spread,
    /// Of the accuracies on the nodes that chose the epoch.
    pub validation_accuracy: Spread,
    /// Median number of epochs that a training ran.
    pub median_epochs: f64,
    /// Median over the seeds of the mean time of an epoch after the first, validation included.
    pub median_seconds_per_epoch: f64,
    /// Median time of a whole training.
    pub median_seconds_per_run: f64,
    /// Reading the data once and all trainings.
    pub total_seconds: f64,
    pub seeds: Vec<SeedFigures>,
}

/// One training.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SeedFigures {
    pub seed: u64,
    /// The epoch whose model is kept.
    pub best_epoch: usize,
    pub epochs: usize,
    pub validation_accuracy: f64,
    pub test_accuracy: f64,
    pub test_macro_f1: f64,
    pub seconds: f64,
}

/// A sample of figures in short.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    /// Of the sample: divided by one less than its size; 0 for a single figure.
    pub standard_deviation: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / count;
        let squares: f64 = values.clone().map(|value| (value - mean).powi(2)).sum();
        Self {
            mean,
            standard_deviation: (squares / (count - 1.0).max(1.0)).sqrt(),
            min: values.clone().fold(f64::INFINITY, f64::min),
            max: values.fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => (values[len / 2 - 1] + values[len / 2]) / 2.0,
    }
}

/// Trains the classifier of a configuration from one seed after the other; data and split stay the same.
///
/// # Errors
/// A configuration of another task, data that cannot be used, a loss that is not finite, or a device that fails.
pub fn run<B: GraphBackend>(options: &AccuracyOptions, device: &B::Device, note: Note) -> Result<AccuracyReport> {
    graphsieve_kernels::device::watch();
    if options.seeds == 0 {
        return Err(super::usage("--seeds", "at least 1", "0", "20 is the default"));
    }
    let config = match RunConfig::load(&options.config, &options.overrides)? {
        RunConfig::Classify(config) => config,
        _ => {
            let found = options.config.display().to_string();
            let help = "configs/cora-gcn.toml and configs/cora-gat.toml are such files";
            return Err(super::usage("--config", "a configuration of task = \"classify\"", &found, help));
        }
    };
    let started = Instant::now();
    note(&format!("reading {}", config.data.path.display()));
    let data = ClassifierData::read(&config, None)?;
    let task = Classifier::<B>::of(&config, &data, None, device)?;
    data.dataset.notes.iter().for_each(|text| note(text));
    let mut epoch_seconds = Vec::new();
    let mut seeds = Vec::with_capacity(options.seeds);
    for at in 0..options.seeds as u64 {
        let figures = train(&config, &task, config.seed.wrapping_add(at), device, &mut epoch_seconds)?;
        note(&format!("seed {}: test accuracy {:.4}", figures.seed, figures.test_accuracy));
        seeds.push(figures);
    }
    Ok(AccuracyReport {
        config: options.config.clone(),
        data: config.data.path.clone(),
        layer: config.model.layer,
        device: options.description.clone(),
        test_accuracy: Spread::of(seeds.iter().map(|seed| seed.test_accuracy)),
        validation_accuracy: Spread::of(seeds.iter().map(|seed| seed.validation_accuracy)),
        median_epochs: median(seeds.iter().map(|seed| seed.epochs as f64).collect()),
        median_seconds_per_epoch: median(epoch_seconds),
        median_seconds_per_run: median(seeds.iter().map(|seed| seed.seconds).collect()),
        total_seconds: started.elapsed().as_secs_f64(),
        seeds,
    })
}

/// One training, evaluated on the test nodes with the model of its best epoch.
fn train<B: GraphBackend>(
    config: &ClassifyConfig,
    task: &Classifier<B>,
    seed: u64,
    device: &B::Device,
    epoch_seconds: &mut Vec<f64>,
) -> Result<SeedFigures> {
    let started = Instant::now();
    let mut trainer = Trainer::from_seed(task, seed, device)?;
    let mut epochs = 0;
    let mut first = 0.0;
    loop {
        epochs += 1;
        let end = trainer.epoch(epochs, false)?;
        if epochs == 1 {
            first = started.elapsed().as_secs_f64();
        }
        if end.stop || epochs == config.train.epochs {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    if epochs > 1 {
        // Not epoch by epoch: one that is not validated need not have ended when the next begins.
        epoch_seconds.push((seconds - first) / (epochs - 1) as f64);
    }
    let Some(model) = &trainer.best else {
        return Err(Error::Data {
            what: "training".into(),
            expected: "a validation".into(),
            found: "none".into(),
            help: "set train.validate_every to at most train.epochs".into(),
        });
    };
    let logits = task.logits(model, None)?;
    let test = task.report(&logits, &task.split.test)?;
    Ok(SeedFigures {
        seed,
        best_epoch: trainer.position.best_epoch,
        epochs,
        validation_accuracy: task.report(&logits, &task.split.validation)?.accuracy,
        test_accuracy: test.accuracy,
        test_macro_f1: test.macro_f1,
        seconds,
    })
}

impl fmt::Display for AccuracyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}, {}", self.config.display(), self.data.display(), self.device)?;
        writeln!(
            f,
            "\n{:>6}  {:>6}  {:>6}  {:>10}  {:>6}  {:>8}  {:>7}",
            "seed", "epochs", "best", "validation", "test", "macro F1", "seconds"
        )?;
        for seed in &self.seeds {
            let SeedFigures { validation_accuracy, test_accuracy, test_macro_f1, seconds, .. } = seed;
            writeln!(
                f,
                "{:>6}  {:>6}  {:>6}  {:>10.4}  {:>6.4}  {:>8.4}  {:>7.2}",
                seed.seed, seed.epochs, seed.best_epoch, validation_accuracy, test_accuracy, test_macro_f1, seconds
            )?;
        }
        for (name, spread) in [("test", self.test_accuracy), ("validation", self.validation_accuracy)] {
            let Spread { mean, standard_deviation, min, max } = spread;
            write!(f, "\n{name} accuracy {mean:.4} +- {standard_deviation:.4}, {min:.4} to {max:.4}")?;
        }
        writeln!(f, " over {} seeds", self.seeds.len())?;
        writeln!(
            f,
            "median {:.0} epochs of {:.2} ms, {:.2} s per training; {:.1} s in all",
            self.median_epochs,
            self.median_seconds_per_epoch * 1e3,
            self.median_seconds_per_run,
            self.total_seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_that_of_the_sample() {
        let spread = Spread::of([1.0, 2.0, 3.0, 6.0].into_iter());
        assert_eq!((spread.mean, spread.min, spread.max), (3.0, 1.0, 6.0));
        assert!((spread.standard_deviation - (14.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of([0.5].into_iter()).standard_deviation, 0.0);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0, 2.0, 9.0])), (2.0, 3.0));
    }
}
