//! The candidates of a tournament as trainings of the tasks that there are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graphsieve_kernels::{GraphBackend, TreeBackend};

use super::ensemble::{Found, MOST_CANDIDATES, Said, found};
use super::search::{Attempt, Contest};
use super::{CANDIDATES, ENSEMBLE, STAGE1};
use crate::config::{AutoConfig, Candidate, ClassifySplit, RunConfig, SplitSource, Stage1Config, Stage3Config, Suits};
use crate::data::class_split::ClassSplit;
use crate::data::groups::Groups;
use crate::data::split::Split;
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::infer::tree_table::Tables;
use crate::memory::{forget_peak, resident_peak};
use crate::metrics::{Bootstrap, Estimate};
use crate::run::bundle::Bundle;
use crate::run::progress::Mode;
use crate::run::splits::{class_split_of, split_of};
use crate::run::stages::Pipeline;
use crate::run::tournament::{Averaged, Entry, Figure, Round, Tournament};
use crate::run::{RunDir, interrupt};
use crate::train::session::RunOptions;
use crate::train::stage3;
use crate::train::stretch::{Judged, Stretch, Validated};
use crate::train::tasks::classifier::ClassifierData;
use crate::train::tasks::{attention, auto_encoder, classifier};
use crate::train::watch::watched;

/// Share of the resamples within one standard error of a mean.
const ONE_ERROR: f64 = 0.682_689_492_137_086;

/// Between two looks at the memory of the device.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(5);

/// What a search may see: the data without other labels than those of the training and the validation part.
pub struct Known {
    dataset: Arc<Dataset>,
    labels: Labels,
    /// How a node classifier is told to divide the labels, which gives these parts.
    class_split: ClassifySplit,
}

/// The parts of the labels; that of the test is empty.
enum Labels {
    Anomalies(Split),
    Classes(ClassSplit),
}

impl Known {
    /// Divides the labels of the data and takes all away but those of the training and the validation part.
    ///
    /// # Errors
    /// Data without labels that can be divided, or without features.
    pub fn of(config: &AutoConfig, mut dataset: Dataset) -> Result<Self> {
        let path = &config.data.path;
        if dataset.features.is_none() {
            let help = "all candidates learn from features; add a feature file";
            return Err(Error::format(path, "features", "a feature file", "none", help));
        }
        let (labels, class_split) = match &dataset.labels {
            Some(known) => {
                let split = split_of(&dataset, &known.entries, &config.split, config.seed)?;
                let class_split = match config.split.source {
                    SplitSource::Masks => ClassifySplit::Masks { index: config.split.index },
                    SplitSource::Random => ClassifySplit::Labels(config.split.drawn.clone()),
                };
                (Labels::Anomalies(Split { test: Vec::new(), ..split }), class_split)
            }
            None => {
                let classes = dataset.node_classes(path)?;
                if config.split.drawn.few().is_some() {
                    return Err(Error::Config {
                        origin: config.name.clone().into(),
                        key: "split.anomalous".into(),
                        expected: format!(
                            "labels that are anomalous or normal; these data have {} classes",
                            classes.count()
                        ),
                        found: config.split.drawn.anomalous.to_string(),
                        help: "leave it out, with split.normal".into(),
                    });
                }
                let masks = config.split.source == SplitSource::Masks || !classes.masks().is_empty();
                let class_split = match dataset.split.is_some() || masks {
                    true => ClassifySplit::Masks { index: config.split.index },
                    false => ClassifySplit::Random { per_class: None, shares: (*config.split).clone() },
                };
                let split = class_split_of(&dataset, &classes, &class_split, config.seed)?;
                (Labels::Classes(ClassSplit { test: Vec::new(), ..split }), class_split)
            }
        };
        match &labels {
            Labels::Anomalies(split) => {
                dataset.keep_labels_of([&split.train[..], &split.validation].concat().iter().map(|e| e.0))
            }
            Labels::Classes(split) => {
                dataset.keep_labels_of([&split.train[..], &split.validation].concat().iter().map(|e| e.0))
            }
        }
        Ok(Self { dataset: Arc::new(dataset), labels, class_split })
    }

    /// The same of labels that are anomalous or normal and divided already.
    pub fn of_split(mut dataset: Dataset, split: &Split) -> Self {
        let split = Split { test: Vec::new(), ..split.clone() };
        dataset.keep_labels_of([&split.train[..], &split.validation].concat().iter().map(|entry| entry.0));
        let class_split = ClassifySplit::Labels(AutoConfig::new("").split.drawn);
        Self { dataset: Arc::new(dataset), labels: Labels::Anomalies(split), class_split }
    }

    /// What the validation labels are asked for.
    pub fn figure(&self) -> Figure {
        match self.labels {
            Labels::Anomalies(_) => Figure::AveragePrecision,
            Labels::Classes(_) => Figure::Accuracy,
        }
    }

    /// Labels of the validation part.
    pub fn validation_labels(&self) -> usize {
        match &self.labels {
            Labels::Anomalies(split) => split.validation.len(),
            Labels::Classes(split) => split.validation.len(),
        }
    }

    /// Of data that are split by group, the groups of the validation labels.
    fn validation_groups(&self) -> Option<Vec<u32>> {
        let (Labels::Anomalies(split), mut groups) = (&self.labels, Groups::of_split(&self.dataset)?) else {
            return None;
        };
        Some(split.validation.iter().map(|&(node, _)| groups.of(node)).collect())
    }

    /// The candidates that the settings name, or all that suit the data but those that are tried by name alone.
    ///
    /// # Errors
    /// [`Error::Config`] for one that does not suit the data.
    pub fn candidates(&self, config: &AutoConfig) -> Result<Vec<&'static Candidate>> {
        let events = self.dataset.events.is_some();
        let anomalies = self.figure() == Figure::AveragePrecision;
        let suits = |candidate: &&Candidate| candidate.suits.fits(anomalies, events);
        let suitable: Vec<&'static Candidate> = Candidate::ALL.iter().filter(suits).collect();
        let named = |name: &str| config.auto.candidates.iter().any(|wanted| wanted == name);
        if let Some(other) = config.auto.candidates.iter().find(|name| suitable.iter().all(|of| of.name != **name)) {
            return Err(Error::Config {
                origin: config.name.clone().into(),
                key: "auto.candidates".into(),
                expected: format!(
                    "candidates that suit these data: {}",
                    suitable.iter().map(|candidate| candidate.name).collect::<Vec<_>>().join(", ")
                ),
                found: format!("\"{other}\""),
                help: "leave it out; without names those that suit the data are tried".into(),
            });
        }
        let unasked = |of: &Candidate| config.auto.candidates.is_empty() && of.suits != Suits::Asked;
        Ok(suitable.into_iter().filter(|candidate| unasked(candidate) || named(candidate.name)).collect())
    }

    /// The settings of a candidate on these data.
    fn config(&self, candidate: &Candidate, config: &AutoConfig, runs: PathBuf) -> Result<RunConfig> {
        let mut own = candidate.config(config)?;
        match &mut own {
            RunConfig::Stage2(own) => own.output.dir = runs,
            RunConfig::Stage3(own) => own.output.dir = runs,
            RunConfig::Classify(own) => {
                own.output.dir = runs;
                own.split = self.class_split.clone();
                // Rows of negative values cannot be made to add up to one.
                let features = self.dataset.features.as_ref();
                let is_negative =
                    |of: &crate::graph::Features| (0..of.num_rows()).any(|node| of.row(node).any(|value| value < 0.0));
                own.data.row_normalise = !features.is_some_and(is_negative);
            }
            RunConfig::Stage1(_) | RunConfig::Pipeline(_) | RunConfig::Auto(_) => {}
        }
        Ok(own)
    }
}

/// Trainings of candidates, in runs of their own within that of the tournament.
pub struct Trainings<'a, B: GraphBackend> {
    known: &'a Known,
    candidates: &'a [&'static Candidate],
    configs: Vec<RunConfig>,
    /// What candidates on embeddings read.
    stage1: Stage1Config,
    run: &'a RunDir,
    options: &'a RunOptions,
    device: &'a B::Device,
    /// Of the same graph and features.
    tables: &'a Tables,
    started: Instant,
}

/// How the run of a candidate is gone on with; without a stretch of its own it trains nothing.
pub fn options_of(name: &'static str, run: &RunDir, options: &RunOptions) -> Result<RunOptions> {
    let pipeline = Pipeline::candidate(run, &run.path().join(CANDIDATES), name);
    Ok(RunOptions {
        resume: pipeline.begun()?,
        pipeline: Some(pipeline),
        stretch: Some(Stretch::NONE),
        progress: Mode::Quiet,
        ..options.clone()
    })
}

impl<'a, B: GraphBackend> Trainings<'a, B> {
    pub fn new(
        config: &AutoConfig,
        known: &'a Known,
        candidates: &'a [&'static Candidate],
        run: &'a RunDir,
        options: &'a RunOptions,
        device: &'a B::Device,
        tables: &'a Tables,
    ) -> Result<Self> {
        let runs = run.path().join(CANDIDATES);
        let configs = candidates.iter().map(|candidate| known.config(candidate, config, runs.clone()));
        let configs = configs.collect::<Result<Vec<_>>>()?;
        let mut stage1 = Candidate::stage1(config)?;
        stage1.output.dir = runs;
        Ok(Self { known, candidates, configs, stage1, run, options, device, tables, started: Instant::now() })
    }

    /// The settings of all candidates, with the run of Stage 1 where it was begun.
    ///
    /// # Errors
    /// A record of runs that cannot be read.
    pub fn into_configs(mut self) -> Result<Vec<RunConfig>> {
        if let Some(stage1) = options_of(STAGE1, self.run, self.options)?.resume {
            let places = self.configs.iter_mut().filter_map(RunConfig::embeddings_mut);
            places.for_each(|place| place.clone_from(&stage1));
        }
        Ok(self.configs)
    }
}

impl<B: GraphBackend + TreeBackend> Trainings<'_, B> {
    /// The run of the Stage 1 whose embeddings candidates read. It needs no label, and is trained once: to its end, or
    /// for half of the time that the first of these candidates has.
    fn stage1(&self, stretch: Stretch) -> Result<PathBuf> {
        let stretch = Stretch { share: 1.0, ..stretch.divided(2) };
        let options = RunOptions { stretch: Some(stretch), ..options_of(STAGE1, self.run, self.options)? };
        match &options.resume {
            Some(run) if Bundle::is_finished(run)? => Ok(run.clone()),
            _ => Ok(auto_encoder::run::<B>(&self.stage1, &options, self.device)?.run),
        }
    }

    /// Trains candidate `at` as far as `stretch` says. `also` are nodes that are scored beside those of the validation
    /// part, of labels that are anomalous or normal.
    ///
    /// # Errors
    /// What the training runs into.
    pub fn validated(&self, at: usize, stretch: Stretch, also: &[u32]) -> Result<Validated> {
        let options =
            RunOptions { stretch: Some(stretch), ..options_of(self.candidates[at].name, self.run, self.options)? };
        let Known { dataset, labels, .. } = self.known;
        let mut config = self.configs[at].clone();
        if let Some(place) = config.embeddings_mut() {
            *place = self.stage1(stretch)?;
        }
        match (&config, labels) {
            (RunConfig::Stage2(own), Labels::Anomalies(split)) => {
                attention::validated::<B>(own, dataset, split, also, &options, self.device)
            }
            (RunConfig::Stage3(own), Labels::Anomalies(split)) => {
                stage3::validated::<B>(own, dataset, split, (also, self.tables), &options, self.device)
            }
            (RunConfig::Classify(own), labels) => {
                let (split, anomalies) = match labels {
                    Labels::Anomalies(split) => (ClassSplit::of_labels(split.clone()), true),
                    Labels::Classes(split) => (split.clone(), false),
                };
                let data = ClassifierData::of(own, dataset.clone(), split, options.begun())?;
                classifier::validated::<B>(own, &data, anomalies, also, &options, self.device)
            }
            (config, _) => unreachable!("{} does not suit the labels", config.name()),
        }
    }
}

/// The figure that decides, with its standard error: half of what the middle 68.3 % of the resamples span, as if they
/// were normal.
fn figure(judged: &Judged) -> Result<(f64, Option<f64>)> {
    let bootstrap = Bootstrap { level: ONE_ERROR, ..Bootstrap::default() };
    let found = match judged {
        Judged::Classes(report) => Some(bootstrap.estimate_classes(report).accuracy),
        Judged::Anomalies { scores, labels } => bootstrap.estimate(scores, labels, 0.5, &[])?.average_precision,
    };
    let Estimate { value, interval } = found.ok_or_else(|| Error::Data {
        what: "validation labels".into(),
        expected: "at least one anomalous and one normal node".into(),
        found: "one class".into(),
        help: "label more nodes, or give validation a larger share".into(),
    })?;
    Ok((value, interval.map(|interval| (interval.high - interval.low) / 2.0)))
}

impl<B: GraphBackend> Trainings<'_, B> {
    /// The ensemble of at most `most` of the candidates so far, by what they said about the validation labels.
    ///
    /// # Errors
    /// Files that were changed.
    pub fn ensemble(&self, tournament: &Tournament, most: usize) -> Result<Option<Averaged>> {
        let mut entries: Vec<(&Entry, &Round)> =
            tournament.candidates.iter().filter_map(|entry| Some((entry, entry.latest()?))).collect();
        entries.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
        let (mut judged, mut scores, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, round) in entries {
            let Some(said) = Said::read(self.run, &entry.name)? else { continue };
            if (scores.is_empty() || labels == said.labels) && scores.len() < MOST_CANDIDATES {
                judged.push((entry, round));
                scores.push(said.scores);
                labels = said.labels;
            }
        }
        let groups = self.known.validation_groups().unwrap_or_else(|| (0..labels.len() as u32).collect());
        let Some(Found { members, scores }) = found(&scores, &labels, &groups, most)? else { return Ok(None) };
        let (value, error) = figure(&Judged::Anomalies { scores, labels })?;
        let members: Vec<(&Entry, &Round)> = members.into_iter().map(|member| judged[member]).collect();
        let names: Vec<String> = members.iter().map(|(entry, _)| entry.name.clone()).collect();
        let rounds = |(entry, _): &(&Entry, &Round)| entry.rounds.iter().map(|round| round.seconds).sum::<f64>();
        let round = Round {
            round: members.iter().map(|(_, round)| round.round).max().unwrap_or(1),
            share: 1.0,
            done: members.len(),
            value,
            error,
            seconds: members.iter().map(rounds).sum(),
            memory: members.iter().filter_map(|(_, round)| round.memory).max(),
            device_memory: members.iter().filter_map(|(_, round)| round.device_memory).max(),
            complete: members.iter().all(|(_, round)| round.complete),
        };
        let about = format!("the mean of {}", names.join(", "));
        let entry = Entry { name: ENSEMBLE.into(), about, rounds: vec![round], fault: None };
        Ok(Some(Averaged { entry, members: names }))
    }
}

impl<B: GraphBackend + TreeBackend> Contest for Trainings<'_, B> {
    fn attempt(&mut self, at: usize, share: f64, time: Option<Duration>) -> Result<Attempt> {
        forget_peak();
        B::memory_cleanup(self.device);
        let deadline = time.and_then(|time| Instant::now().checked_add(time));
        let stretch = Stretch { share, deadline };
        let (validated, on_device) = watched::<B, _>(self.device, BETWEEN_SAMPLES, || self.validated(at, stretch, &[]));
        let Validated { judged, done, complete, .. } = validated?;
        let (value, error) = figure(&judged)?;
        if let Judged::Anomalies { scores, labels } = judged {
            Said { scores, labels }.write(self.run, self.candidates[at].name)?;
        }
        let device_memory = on_device.map(|peak| peak.in_use);
        Ok(Attempt { value, error, done, memory: resident_peak(), device_memory, complete })
    }

    fn stops(&self, at: usize) -> bool {
        // Networks before the trees are most of their time, and stop.
        let alone = |own: &Stage3Config| own.stage2.is_none() && own.data.embeddings.is_none();
        !matches!(&self.configs[at], RunConfig::Stage3(own) if alone(own))
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn interrupted(&self) -> bool {
        interrupt::requested()
    }

    fn keep(&mut self, tournament: &Tournament, tried: Option<usize>) -> Result<()> {
        tournament.write(self.run)?;
        let Some(entry) = tried.map(|at| &tournament.candidates[at]) else { return Ok(()) };
        match (entry.latest(), &entry.fault) {
            (_, Some(fault)) => log::warn!("{}: given up: {fault}", entry.name),
            (Some(_), None) => log::info!("{}", tournament.line(entry)),
            (None, None) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Classes, Features, HeteroGraph, Labels as BinaryLabels, Masks};

    fn dataset(labels: Option<BinaryLabels>, classes: Option<Classes>) -> Dataset {
        let graph = HeteroGraph::new(vec![("node".into(), 100)], Vec::new()).unwrap();
        let features = Features::from_f32((0..200).map(|at| at as f32).collect(), 100, 2);
        Dataset { classes, ..Dataset::new(graph, Some(features), labels, None) }
    }

    #[test]
    fn a_search_knows_no_label_of_the_test_part() {
        let config = AutoConfig::new("data");
        let entries: Vec<(u32, u8)> = (0..100).map(|node| (node, u8::from(node % 4 == 0))).collect();
        let known = Known::of(&config, dataset(Some(BinaryLabels { entries: entries.clone() }), None)).unwrap();
        let Labels::Anomalies(split) = &known.labels else { panic!("anomalies") };
        let mut seen = [split.train.clone(), split.validation.clone()].concat();
        seen.sort_unstable();
        assert_eq!((seen.len(), split.test.len()), (80, 0));
        assert_eq!(known.dataset.labels.as_ref().unwrap().entries, seen);
        assert!(known.dataset.node_classes("data".as_ref()).unwrap().labelled().count() == 80);
        assert_eq!((known.figure(), known.validation_labels()), (Figure::AveragePrecision, 20));

        let of_node: Vec<Option<u32>> = (0..100).map(|node| Some(node % 5)).collect();
        let known = Known::of(&config, dataset(None, Some(Classes::new(of_node)))).unwrap();
        let Labels::Classes(split) = &known.labels else { panic!("classes") };
        let mut seen = [split.train.clone(), split.validation.clone()].concat();
        seen.sort_unstable();
        let classes = known.dataset.node_classes("data".as_ref()).unwrap();
        assert_eq!((classes.labelled().collect::<Vec<_>>(), classes.count()), (seen, 5));
        assert!(split.test.is_empty());
    }

    #[test]
    fn masks_and_few_labels_divide_what_a_search_knows() {
        let mut config = AutoConfig::new("data");
        let entries: Vec<(u32, u8)> = (0..100).map(|node| (node, u8::from(node % 4 == 0))).collect();
        let labels = || Some(BinaryLabels { entries: entries.clone() });
        (config.split.drawn.anomalous, config.split.drawn.normal) = (5, 20);
        let known = Known::of(&config, dataset(labels(), None)).unwrap();
        let Labels::Anomalies(split) = &known.labels else { panic!("anomalies") };
        assert_eq!((split.train.len(), split.validation.len(), split.test.len()), (25, 25, 0));
        assert_eq!(known.dataset.labels.as_ref().unwrap().entries.len(), 50);
        let of_node: Vec<Option<u32>> = (0..100).map(|node| Some(node % 5)).collect();
        let refused = Known::of(&config, dataset(None, Some(Classes::new(of_node)))).err().unwrap();
        assert!(refused.to_string().contains("split.anomalous"), "{refused}");
        let mut config = AutoConfig::new("data");
        (config.split.source, config.split.index) = (SplitSource::Masks, 1);
        let mask = |first: u32| Masks {
            train: (first..first + 10).collect(),
            validation: (first + 10..first + 20).collect(),
            test: (first + 20..first + 30).collect(),
        };
        let classes = Classes::of_labels(&labels().unwrap(), 100).with_masks(vec![mask(0), mask(50)]);
        let data = Dataset { classes: Some(classes), ..dataset(labels(), None) };
        let known = Known::of(&config, data).unwrap();
        let Labels::Anomalies(split) = &known.labels else { panic!("anomalies") };
        assert_eq!((split.train[0].0, split.validation[0].0, split.test.len()), (50, 60, 0));
        let gcn = known.config(Candidate::named("gcn").unwrap(), &config, PathBuf::new()).unwrap();
        let RunConfig::Classify(gcn) = gcn else { panic!("a classifier") };
        assert_eq!(gcn.split, ClassifySplit::Masks { index: 1 });
        let refused = Known::of(&config, dataset(labels(), None)).err().unwrap();
        assert!(refused.to_string().contains("no masks"), "{refused}");
    }

    #[test]
    fn all_candidates_of_a_node_are_judged_by_the_same_labels() {
        let config = AutoConfig::new("data");
        let entries: Vec<(u32, u8)> = (0..100).map(|node| (node, u8::from(node % 4 == 0))).collect();
        let data = dataset(Some(BinaryLabels { entries: entries.clone() }), None);
        let split = split_of(&data, &entries, &config.split, config.seed).unwrap();
        let known = Known::of(&config, dataset(Some(BinaryLabels { entries }), None)).unwrap();
        let gcn = known.config(Candidate::named("gcn").unwrap(), &config, PathBuf::new()).unwrap();
        let RunConfig::Classify(gcn) = gcn else { panic!("a classifier") };
        let classes = data.node_classes("data".as_ref()).unwrap();
        let of_classes = class_split_of(&data, &classes, &gcn.split, gcn.seed).unwrap();
        assert_eq!(of_classes, ClassSplit::of_labels(split));
    }

    #[test]
    fn candidates_suit_the_labels() {
        let config = AutoConfig::new("data");
        let names = |known: &Known, config: &AutoConfig| {
            known.candidates(config).map(|of| of.iter().map(|of| of.name).collect::<Vec<_>>())
        };
        let entries: Vec<(u32, u8)> = (0..100).map(|node| (node, u8::from(node % 4 == 0))).collect();
        let anomalies = Known::of(&config, dataset(Some(BinaryLabels { entries }), None)).unwrap();
        let of_node: Vec<Option<u32>> = (0..100).map(|node| Some(node % 5)).collect();
        let classes = Known::of(&config, dataset(None, Some(Classes::new(of_node)))).unwrap();
        let all = names(&anomalies, &config).unwrap();
        assert!(all.contains(&"booster-all") && all.contains(&"gcn") && !all.contains(&"stage2-events"));
        assert!(!all.contains(&"pmp"), "it is tried only by name");
        let mut asked = config.clone();
        asked.auto.candidates = vec!["pmp".into()];
        assert_eq!(names(&anomalies, &asked).unwrap(), ["pmp"]);
        assert_eq!(names(&classes, &config).unwrap(), ["gcn", "gcn-wide", "gat"]);
        let mut some = config.clone();
        some.auto.candidates = vec!["gat".into(), "forest-raw".into()];
        assert_eq!(names(&anomalies, &some).unwrap(), ["forest-raw", "gat"], "the simplest first");
        let error = names(&classes, &some).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("forest-raw"), "{error}");
    }
}
