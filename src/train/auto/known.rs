//! What a tournament may see: labels of the training and the validation part, and the candidates that suit them.

use std::path::Path;
use std::sync::Arc;

use crate::config::{AutoConfig, Candidate, ClassifySplit, DataKind, LabelSplit, RunConfig, SplitSource, Training};
use crate::data::class_split::ClassSplit;
use crate::data::groups::Groups;
use crate::data::split::Split;
use crate::error::{Error, Result};
use crate::graph::Dataset;
use crate::run::splits::{class_split_of, split_of};
use crate::run::tournament::Figure;

/// What a search may see: the data without other labels than those of the training and the validation part.
pub struct Known {
    pub(in crate::train) dataset: Arc<Dataset>,
    pub(in crate::train) labels: Labels,
    /// How a node classifier is told to divide the labels, which gives these parts.
    class_split: ClassifySplit,
}

/// The parts of the labels; that of the test is empty.
pub(in crate::train) enum Labels {
    Anomalies(Split),
    Classes(ClassSplit),
}

/// What data are to candidates; `anomalies` says whether labels are anomalous or normal.
pub fn kind_of(dataset: &Dataset, anomalies: bool) -> DataKind {
    let histories = dataset.graph.relations().iter().any(|relation| relation.forward.is_spans());
    DataKind {
        anomalies,
        events: dataset.events.is_some(),
        histories,
        values: dataset.has_edge_values(),
        types: dataset.graph.node_types().len(),
        relations: dataset.graph.relations().len(),
    }
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
    pub(super) fn validation_groups(&self) -> Option<Vec<u32>> {
        let (Labels::Anomalies(split), mut groups) = (&self.labels, Groups::of_split(&self.dataset)?) else {
            return None;
        };
        Some(split.validation.iter().map(|&(node, _)| groups.of(node)).collect())
    }

    /// The candidates that the settings name, or all that suit the data but those that are tried by name alone, where
    /// the split counts few labels or where it does not, and those whose layers do not take the graph.
    ///
    /// # Errors
    /// [`Error::Config`] for one that does not suit the data.
    pub fn candidates(&self, config: &AutoConfig) -> Result<Vec<&'static Candidate>> {
        let kind = kind_of(&self.dataset, self.figure() == Figure::AveragePrecision);
        let suits = |candidate: &&Candidate| candidate.suits.fits(kind);
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
        let few = config.split.drawn.few().is_some();
        let unasked = |of: &Candidate| config.auto.candidates.is_empty() && !of.is_asked(few) && of.takes(kind);
        Ok(suitable.into_iter().filter(|candidate| unasked(candidate) || named(candidate.name)).collect())
    }

    /// The trainings of a candidate on these data, with their runs in `runs`.
    pub(super) fn trainings(&self, candidate: &Candidate, config: &AutoConfig, runs: &Path) -> Result<Vec<Training>> {
        let mut trainings = candidate.trainings(config)?;
        trainings.iter_mut().for_each(|training| self.suit(&mut training.config, config.seed, runs));
        Ok(trainings)
    }

    /// Makes `own` the settings of a training on these data, in a tournament with this `seed`.
    fn suit(&self, own: &mut RunConfig, seed: u64, runs: &Path) {
        // A seed of its own asks for no other split than that of the data.
        let stored = self.dataset.split.is_some() && own.seed() != seed;
        own.output_mut().dir = runs.into();
        match own {
            RunConfig::Stage2(own) if stored => {
                own.split = LabelSplit { source: SplitSource::Masks, index: 0, ..own.split.clone() };
            }
            RunConfig::Classify(own) => {
                own.split = if stored { ClassifySplit::Masks { index: 0 } } else { self.class_split.clone() };
                // Rows of negative values cannot be made to add up to one.
                let features = self.dataset.features.as_ref();
                let is_negative =
                    |of: &crate::graph::Features| (0..of.num_rows()).any(|node| of.row(node).any(|value| value < 0.0));
                own.data.row_normalise = !features.is_some_and(is_negative);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{
        Adjacency, Classes, EdgeMatrix, Features, HeteroGraph, Labels as BinaryLabels, Masks, RelationSpec, SplitRule,
        StoredSplit,
    };

    fn dataset(labels: Option<BinaryLabels>, classes: Option<Classes>) -> Dataset {
        let graph = HeteroGraph::new(vec![("node".into(), 100)], Vec::new()).unwrap();
        let features = Features::from_f32((0..200).map(|at| at as f32).collect(), 100, 2);
        Dataset { classes, ..Dataset::new(graph, Some(features), labels, None) }
    }

    fn configs(known: &Known, candidate: &str, config: &AutoConfig) -> Vec<RunConfig> {
        let trainings = known.trainings(Candidate::named(candidate).unwrap(), config, Path::new("")).unwrap();
        trainings.into_iter().map(|training| training.config).collect()
    }

    #[test]
    fn restarts_keep_the_split_that_data_come_with() {
        let config = AutoConfig::new("data");
        let entries: Vec<(u32, u8)> = (0..100).map(|node| (node, u8::from(node % 4 == 0))).collect();
        let parts = [&entries[..60], &entries[60..80], &entries[80..]];
        let rule = SplitRule::Random { seed: 9, train: 0.6, validation: 0.2, test: 0.2 };
        let stored = StoredSplit::of_parts(rule, 100, parts);
        let data = || Dataset {
            split: Some(stored.clone()),
            ..dataset(Some(BinaryLabels { entries: entries.clone() }), None)
        };
        let known = Known::of(&config, data()).unwrap();
        let data = data();
        let classes = data.node_classes("data".as_ref()).unwrap();
        for name in ["stage2-long-x3", "bwgnn-x3"] {
            let all = configs(&known, name, &config);
            assert_eq!(all.len(), 3);
            for own in all {
                let found = match &own {
                    RunConfig::Stage2(own) => {
                        ClassSplit::of_labels(split_of(&data, &entries, &own.split, own.seed).unwrap())
                    }
                    RunConfig::Classify(own) => class_split_of(&data, &classes, &own.split, own.seed).unwrap(),
                    other => panic!("{other:?}"),
                };
                let nodes = |part: &[(u32, u32)]| part.iter().map(|entry| entry.0).collect::<Vec<_>>();
                assert_eq!(nodes(&found.train), (0..60).collect::<Vec<_>>(), "{name}");
                assert_eq!(nodes(&found.validation), (60..80).collect::<Vec<_>>(), "{name}");
                assert_eq!(nodes(&found.test), (80..100).collect::<Vec<_>>(), "{name}");
            }
        }
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
        let gcn = configs(&known, "gcn", &config);
        let [RunConfig::Classify(gcn)] = &gcn[..] else { panic!("a classifier") };
        assert_eq!(gcn.split, ClassifySplit::Masks { index: 1 });
        let refused = Known::of(&config, dataset(labels(), None)).err().unwrap();
        assert!(refused.to_string().contains("train_mask"), "{refused}");
    }

    #[test]
    fn all_candidates_of_a_node_are_judged_by_the_same_labels() {
        let config = AutoConfig::new("data");
        let entries: Vec<(u32, u8)> = (0..100).map(|node| (node, u8::from(node % 4 == 0))).collect();
        let data = dataset(Some(BinaryLabels { entries: entries.clone() }), None);
        let split = split_of(&data, &entries, &config.split, config.seed).unwrap();
        let known = Known::of(&config, dataset(Some(BinaryLabels { entries }), None)).unwrap();
        let gcn = configs(&known, "gcn", &config);
        let [RunConfig::Classify(gcn)] = &gcn[..] else { panic!("a classifier") };
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
        let anomalies = Known::of(&config, dataset(Some(BinaryLabels { entries: entries.clone() }), None)).unwrap();
        let of_node: Vec<Option<u32>> = (0..100).map(|node| Some(node % 5)).collect();
        let classes = Known::of(&config, dataset(None, Some(Classes::new(of_node)))).unwrap();
        let all = names(&anomalies, &config).unwrap();
        assert!(all.contains(&"booster-all") && all.contains(&"gcn") && !all.contains(&"stage2-events"));
        assert!(["gcn-anomalies", "sage", "bwgnn"].iter().all(|name| all.contains(name)));
        let by_name = ["gat-anomalies", "difference", "h2gcn", "ghrn", "gcn-x3"];
        assert!(by_name.iter().all(|name| !all.contains(name)), "they are tried only by name: {all:?}");
        let mut few = config.clone();
        (few.split.drawn.anomalous, few.split.drawn.normal) = (5, 20);
        let mut of_few = names(&anomalies, &few).unwrap();
        assert!(of_few.contains(&"ghrn"), "with few labels it is tried unasked: {of_few:?}");
        of_few.retain(|name| *name != "ghrn");
        assert_eq!(of_few, all);
        let mut asked = config.clone();
        asked.auto.candidates = by_name.iter().rev().map(|&name| name.into()).collect();
        assert_eq!(names(&anomalies, &asked).unwrap(), by_name);
        asked.auto.candidates.truncate(1);
        assert_eq!(names(&classes, &asked).unwrap(), ["gcn-x3"]);
        let of_classes = ["gcn", "gcn-wide", "gat", "gcn-wide-x5", "gat-x5"];
        assert_eq!(names(&classes, &config).unwrap(), of_classes, "classes have no other ensemble");
        assert!(!all.contains(&"gat-x5"));
        let mut some = config.clone();
        some.auto.candidates = vec!["gat".into(), "forest-raw".into()];
        assert_eq!(names(&anomalies, &some).unwrap(), ["forest-raw", "gat"], "the simplest first");
        let error = names(&classes, &some).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("forest-raw"), "{error}");

        let mut data = dataset(Some(BinaryLabels { entries: entries.clone() }), None);
        data.graph = HeteroGraph::new(vec![("node".into(), 60), ("other".into(), 40)], Vec::new()).unwrap();
        let typed = Known::of(&config, data).unwrap();
        let mut of_one_type = all.clone();
        of_one_type.retain(|name| *name != "bwgnn");
        assert_eq!(names(&typed, &config).unwrap(), of_one_type, "it takes one node type");
        let mut asked = config.clone();
        asked.auto.candidates = vec!["bwgnn".into()];
        assert_eq!(names(&typed, &asked).unwrap(), ["bwgnn"], "by name it says so itself");

        let mut data = dataset(Some(BinaryLabels { entries: entries.clone() }), None);
        let loops = Adjacency::from_edges(100, 100, &(0..100).map(|node| (node, node)).collect::<Vec<_>>());
        let relation = RelationSpec::new("pays", 0, 0, loops);
        data.graph = HeteroGraph::new(vec![("node".into(), 100)], vec![relation]).unwrap();
        data.graph.set_edge_values("pays", Arc::new(EdgeMatrix::new(vec![1.0; 100], 1)));
        let mut with_values = names(&Known::of(&config, data).unwrap(), &config).unwrap();
        let reads_values = |name: &&str| ["booster-values", "stage2-values", "stage2-values-labels"].contains(name);
        assert_eq!(with_values.iter().filter(|name| reads_values(name)).count(), 3);
        with_values.retain(|name| !reads_values(name));
        assert_eq!(with_values, all, "without values none reads them");
    }
}
