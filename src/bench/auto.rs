//! What a tournament's choice is worth: on several splits the test figure of what it picked beside those of everything
//! that it tried.
//!
//! The search sees no test label. When it is over every candidate is tested, so that the choice can be held against the
//! candidate that is best on average over the splits, which nobody knows beforehand: the difference is the regret.
//! Splits need nothing of each other: what processes of their own have measured is put together here.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use graphsieve_kernels::{GraphBackend, TreeBackend};
use serde::{Deserialize, Serialize};

use super::accuracy::Spread;
use super::{Note, usage};
use crate::config::{AutoConfig, RunConfig, SplitSource};
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::metrics::write_table;
use crate::run::progress::{Mode, Progress, Unit};
use crate::run::tournament::Figure;
use crate::train::RunOptions;
use crate::train::auto::{self, Tested};

/// What to measure.
#[derive(Clone, Debug)]
pub struct AutoBenchOptions {
    /// Settings of the tournament; its data.
    pub config: AutoConfig,
    /// Number of splits: of a random one the seed of each is one more than that of the one before, of masks the column.
    pub splits: usize,
    /// Splits that run at a time, for the report.
    pub jobs: usize,
    /// Name and model of the device, for the report.
    pub description: String,
}

/// One tournament.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitOutcome {
    /// Seed of the split, or column of the masks.
    pub split: u64,
    /// What became the model.
    pub picked: String,
    /// From the start of the tournament until its model was tested; the tests of all candidates come on top.
    pub seconds: f64,
    pub candidates: Vec<Tested>,
}

impl SplitOutcome {
    fn tested(&self, name: &str) -> Option<&Tested> {
        self.candidates.iter().find(|of| of.name == name)
    }
}

/// What is measured of some splits: a part of the JSON of an [`AutoReport`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Measured {
    pub figure: Figure,
    pub splits: Vec<SplitOutcome>,
}

/// A candidate on all splits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateSpread {
    pub candidate: String,
    /// Splits on which it was trained.
    pub splits: usize,
    /// How often it was picked.
    pub picked: usize,
    pub validation: Spread,
    pub test: Spread,
    /// On the test labels, where these are anomalous or normal.
    pub roc_auc: Option<Spread>,
    /// Mean time of a split.
    pub seconds: f64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AutoReport {
    pub data: PathBuf,
    pub device: String,
    pub figure: Figure,
    pub minutes: f64,
    /// The best mean first.
    pub candidates: Vec<CandidateSpread>,
    /// Test figure of what was picked.
    pub picked: Spread,
    /// Its ROC-AUC.
    pub picked_roc_auc: Option<Spread>,
    /// The candidate with the best mean test figure of those that were trained on every split.
    pub best: String,
    /// Difference between its test figure and that of what was picked: what the choice lost.
    pub regret: Spread,
    /// The same against the best candidate of each split.
    pub regret_of_each: Spread,
    pub splits: Vec<SplitOutcome>,
    /// Splits that ran at a time. They share the device, so that each takes longer than alone.
    pub jobs: usize,
    pub total_seconds: f64,
}

impl AutoBenchOptions {
    /// Refuses what cannot be measured before the first tournament.
    ///
    /// # Errors
    /// [`Error::Usage`] for no split or no job, and for more splits than the data have masks.
    pub fn check(&self) -> Result<()> {
        if self.splits == 0 {
            return Err(usage("--splits", "at least 1", "0", "10 are usual"));
        }
        if self.jobs == 0 {
            return Err(usage("--jobs", "at least 1", "0", "1 runs one split after the other"));
        }
        check_masks(self)
    }

    /// Settings of the tournament on split `at`, counted from 0.
    pub fn of_split(&self, at: usize) -> AutoConfig {
        let mut config = self.config.clone();
        match config.split.source {
            SplitSource::Masks => config.split.index += at,
            SplitSource::Random => config.split.seed += at as u64,
        }
        config.seed += at as u64;
        config
    }
}

/// Seed of the split of a tournament, or column of the masks.
pub fn split_number(config: &AutoConfig) -> u64 {
    match config.split.source {
        SplitSource::Masks => config.split.index as u64,
        SplitSource::Random => config.split.seed,
    }
}

/// Runs a tournament on every split, one after the other.
///
/// # Errors
/// As for [`AutoBenchOptions::check`]; what a tournament runs into.
pub fn run<B: GraphBackend + TreeBackend>(
    options: &AutoBenchOptions,
    device: &B::Device,
    mode: Mode,
    note: Note,
) -> Result<AutoReport> {
    graphsieve_kernels::device::watch();
    options.check()?;
    let started = Instant::now();
    let runs = tempfile::tempdir().map_err(|source| Error::io(std::env::temp_dir(), "write", source))?;
    let quiet = RunOptions::quiet(&options.description);
    let progress = Progress::with_mode("tournaments", options.splits as u64, Unit::Items, mode);
    let (mut splits, mut figure) = (Vec::with_capacity(options.splits), Figure::AveragePrecision);
    for at in 0..options.splits {
        let mut config = options.of_split(at);
        (config.output.dir, config.output.plots) = (runs.path().join(at.to_string()), false);
        let begun = Instant::now();
        let outcome = auto::run::<B>(&config, &quiet, device)?;
        let seconds = begun.elapsed().as_secs_f64();
        let (run, tournament) = outcome.tournament.unwrap_or_else(|| unreachable!("a tournament leaves one"));
        let tested = auto::tested::<B>(&config, (&run, &tournament), &quiet, device)?;
        let picked = tournament.model.as_ref().map(|model| model.name.clone()).unwrap_or_default();
        figure = tournament.figure;
        let split = split_number(&config);
        note(&format!("split {split}: {picked}"));
        splits.push(SplitOutcome { split, picked, seconds, candidates: tested });
        progress.update(at as u64 + 1, "");
    }
    progress.finish("");
    Ok(AutoReport::new(options, Measured { figure, splits }, started.elapsed().as_secs_f64()))
}

/// Refuses more splits than the data have masks.
fn check_masks(options: &AutoBenchOptions) -> Result<()> {
    let AutoConfig { data, split, .. } = &options.config;
    if split.source != SplitSource::Masks {
        return Ok(());
    }
    let dataset = Dataset::open(&data.path)?.in_window(data.window)?;
    let masks = match &dataset.split {
        Some(_) => 1,
        None => dataset.classes.as_ref().map_or(0, |classes| classes.masks().len()),
    };
    if split.index + options.splits <= masks {
        return Ok(());
    }
    let expected = format!("at most {}: the data have {masks} masks", masks.saturating_sub(split.index));
    let help = "lower it, or split.index, or leave split.use = \"masks\" out";
    Err(usage("--splits", &expected, &options.splits.to_string(), help))
}

impl AutoReport {
    /// What tournaments with `options` came to, in `total_seconds`.
    pub fn new(options: &AutoBenchOptions, Measured { figure, splits }: Measured, total_seconds: f64) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for of in splits.iter().flat_map(|split| &split.candidates) {
            if !names.contains(&of.name.as_str()) {
                names.push(&of.name);
            }
        }
        let of_name = |name: &str| -> Vec<&Tested> {
            let all = splits.iter().flat_map(|split| &split.candidates);
            all.filter(|of| of.name == name).collect()
        };
        let spread = |name: &&str| {
            let own = of_name(name);
            CandidateSpread {
                candidate: (*name).into(),
                splits: own.len(),
                picked: splits.iter().filter(|split| split.picked == *name).count(),
                validation: Spread::of(own.iter().map(|of| of.validation)),
                test: Spread::of(own.iter().map(|of| of.test)),
                roc_auc: all_of(own.iter().map(|of| of.roc_auc)),
                seconds: own.iter().map(|of| of.seconds).sum::<f64>() / own.len() as f64,
            }
        };
        let mut candidates: Vec<CandidateSpread> = names.iter().map(spread).collect();
        candidates.sort_by(|a, b| b.test.mean.total_cmp(&a.test.mean));
        let test_of = |split: &SplitOutcome, name: &str| split.tested(name).map_or(f64::NAN, |of| of.test);
        let picked = Spread::of(splits.iter().map(|split| test_of(split, &split.picked)));
        let picked_roc_auc = all_of(splits.iter().map(|split| split.tested(&split.picked)?.roc_auc));
        let always = candidates.iter().find(|of| of.splits == splits.len());
        let highest = |split: &SplitOutcome| split.candidates.iter().map(|of| of.test).fold(f64::MIN, f64::max);
        let best = always.map(|of| of.candidate.clone()).unwrap_or_default();
        let lost = |most: &dyn Fn(&SplitOutcome) -> f64| {
            let lost: Vec<f64> = splits.iter().map(|split| most(split) - test_of(split, &split.picked)).collect();
            Spread::of(lost.into_iter())
        };
        Self {
            data: options.config.data.path.clone(),
            device: options.description.clone(),
            figure,
            minutes: options.config.auto.minutes,
            regret: lost(&|split| test_of(split, &best)),
            regret_of_each: lost(&highest),
            best,
            picked,
            picked_roc_auc,
            candidates,
            splits,
            jobs: options.jobs,
            total_seconds,
        }
    }
}

/// The spread of figures that all splits have.
fn all_of(figures: impl Iterator<Item = Option<f64>>) -> Option<Spread> {
    let figures: Vec<f64> = figures.collect::<Option<_>>()?;
    Some(Spread::of(figures.into_iter()))
}

impl fmt::Display for AutoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, figure) = (self.splits.len(), self.figure.title());
        writeln!(f, "{}, {count} splits, {} minutes each, {}", self.data.display(), self.minutes, self.device)?;
        writeln!(f, "{figure} in %, mean +- standard deviation over splits\n")?;
        let percent = |of: &Spread| format!("{:.2} +- {:.2}", 100.0 * of.mean, 100.0 * of.standard_deviation);
        let percent_of = |of: &Option<Spread>| of.as_ref().map_or("-".into(), percent);
        let titles = ["candidate", "splits", "picked", "validation", "test", "its ROC-AUC", "seconds"];
        let mut rows = vec![titles.map(String::from)];
        rows.extend(self.candidates.iter().map(|of| {
            [
                of.candidate.clone(),
                of.splits.to_string(),
                of.picked.to_string(),
                percent(&of.validation),
                percent(&of.test),
                percent_of(&of.roc_auc),
                format!("{:.1}", of.seconds),
            ]
        }));
        write_table(f, &rows)?;
        writeln!(f, "\npicked: test {}, its ROC-AUC {}", percent(&self.picked), percent_of(&self.picked_roc_auc))?;
        writeln!(
            f,
            "regret: {} against {}, the best on average; {} against the best of each split",
            percent(&self.regret),
            self.best,
            percent(&self.regret_of_each)
        )?;
        let seconds = Spread::of(self.splits.iter().map(|split| split.seconds));
        let beside = match self.jobs {
            1 => "one after the other".into(),
            jobs => format!("{jobs} at a time on the same device, which makes each longer"),
        };
        writeln!(f, "a tournament took {:.1} s on average, {beside}", seconds.mean)?;
        writeln!(f, "{:.1} s in all", self.total_seconds)
    }
}

/// The settings of a tournament on some data, with what the command line sets.
///
/// # Errors
/// [`Error::Config`] for settings that a tournament does not have.
pub fn config(data: PathBuf, minutes: f64, set: &[String]) -> Result<AutoConfig> {
    let minutes = format!("auto.minutes={minutes:?}");
    let set: Vec<String> = std::iter::once(minutes).chain(set.iter().cloned()).collect();
    let text = "task = \"auto\"\n[data]\npath = \"data\"\n";
    match RunConfig::parse(text, "bench auto".as_ref(), &set)? {
        RunConfig::Auto(mut config) => {
            config.data.path = data;
            Ok(config)
        }
        other => Err(usage("--set task", "a tournament", other.name(), "leave it out")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regret_is_what_the_choice_lost_against_the_best_on_average() {
        let split = |picked: &str, tests: &[(&str, f64)]| SplitOutcome {
            split: 0,
            picked: picked.into(),
            seconds: 3.0,
            candidates: tests
                .iter()
                .map(|&(name, test)| {
                    let roc_auc = (name != "rare").then_some(test + 0.1);
                    Tested { name: name.into(), validation: 0.5, test, roc_auc, seconds: 2.0 }
                })
                .collect(),
        };
        let splits = vec![split("a", &[("a", 0.4), ("b", 0.6)]), split("b", &[("a", 0.7), ("b", 0.5), ("rare", 0.9)])];
        let options = AutoBenchOptions {
            config: config("d".into(), 0.5, &[]).unwrap(),
            splits: splits.len(),
            jobs: 1,
            description: "CPU".into(),
        };
        let measured = Measured { figure: Figure::AveragePrecision, splits };
        let report = AutoReport::new(&options, measured.clone(), 8.0);
        assert!(report.to_string().contains("took 3.0 s on average, one after the other\n8.0 s in all"), "{report}");
        // What another process reads of it.
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Measured>(&text).unwrap(), measured);
        let beside = AutoReport::new(&AutoBenchOptions { jobs: 2, ..options }, measured, 8.0);
        assert!(beside.to_string().contains("on average, 2 at a time on the same device"), "{beside}");
        assert!(report.to_string().starts_with("d, 2 splits, 0.5 minutes each, CPU\n"), "{report}");
        let names: Vec<&str> = report.candidates.iter().map(|of| of.candidate.as_str()).collect();
        assert_eq!(names, ["rare", "a", "b"], "a and b are equal");
        assert_eq!((report.best.as_str(), report.candidates[1].picked), ("a", 1), "what was trained on every split");
        assert!((report.picked.mean - 0.45).abs() < 1e-12);
        assert!(report.to_string().contains("picked: test 45.00 +- 7.07, its ROC-AUC 55.00 +- 7.07\n"), "{report}");
        assert_eq!(report.candidates[0].roc_auc, None);
        let near = |of: &Spread, mean: f64, deviation: f64| {
            (of.mean - mean).abs() < 1e-12 && (of.standard_deviation - deviation).abs() < 1e-12
        };
        // 0 and 0.2; 0.2 and 0.4.
        assert!(near(&report.regret, 0.1, 0.02f64.sqrt()), "{:?}", report.regret);
        assert!(near(&report.regret_of_each, 0.3, 0.02f64.sqrt()), "{:?}", report.regret_of_each);
        assert!(report.to_string().contains("regret: 10.00 +- 14.14 against a"), "{report}");
        assert!(config("d".into(), 0.5, &["auto.ensemble=1".into()]).is_ok());
        assert!(config("d".into(), 0.5, &["auto.nothing=1".into()]).is_err());
    }
}
