//! What a tournament can try: names, shipped files, and the keys that are set over them.

use std::path::Path;

use super::auto::AutoConfig;
use super::reader::Document;
use super::schema::RunConfig;
use super::stages::Stage1Config;
use crate::error::{Result, nearest_name};
use crate::splitmix::mix;

const STAGE1: &str = include_str!("../../configs/stage1.toml");
const STAGE2: &str = include_str!("../../configs/stage2.toml");
const STAGE2_EVENTS: &str = include_str!("../../configs/payments-stage2.toml");
const TREES: &str = include_str!("../../configs/stage3.toml");
const TREES_EVENTS: &str = include_str!("../../configs/payments.toml");
const GCN: &str = include_str!("../../configs/cora-gcn.toml");
const GAT: &str = include_str!("../../configs/cora-gat.toml");

/// One way to train a model: a shipped configuration with some keys of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct Candidate {
    /// As `auto.candidates` names it.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// The data that it is made for.
    pub suits: Suits,
    /// Trainings with seeds of their own, whose mean is the model; of most candidates one, which is the model itself.
    pub restarts: usize,
    base: &'static str,
    /// Keys as on the command line.
    set: &'static [&'static [&'static str]],
}

/// One training of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// That of the candidate, with a number where it has several.
    pub name: String,
    pub config: RunConfig,
}

/// The data that a candidate is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suits {
    /// Labels that are anomalous or normal.
    Anomalies,
    /// The same, of nodes without histories: their neighbours say what windows say of events with any.
    Graphs,
    /// The same, where edges have values.
    Values,
    /// As graphs, of nodes without times: all labels of the training are known at once.
    Untimed,
    /// As graphs, but where the split counts few labels; with more it is tried only by name.
    Few,
    /// As graphs, but tried only by name: it has not won on two data sets.
    Asked,
    /// Anomalous or normal events.
    Events,
    /// The same, with histories.
    Histories,
    /// Labels of any kind, of nodes that are no events.
    Nodes,
    /// Classes, of nodes that are no events.
    Classes,
}

/// The features of a node alone.
const RAW: &[&str] =
    &["features.mean=false", "features.difference=false", "features.wavelets=false", "features.log_degree=false"];
/// And the means of its neighbours.
const MEANS: &[&str] = &["features.difference=false", "features.wavelets=false"];
/// And how their values are spread.
const QUANTILES: &[&str] = &["features.quantiles=[0.1, 0.5, 0.9]"];
/// And which share of their known labels is anomalous: of training labels alone, but for those of a node's own fold.
const LABEL_SHARE: &[&str] = &["features.label_share=true"];
/// And whatever else there is, over the union of the relations and over each.
const ALL: &[&str] = &["features.max=true", "features.over=both"];
const BOOSTER: &[&str] = &["model.kind=booster"];
/// What a candidate says of validation labels decides: it may not have learned them.
const HELD_OUT: &[&str] = &["model.refit=false"];
/// Few small trees, of which no validation label decides how many.
const SMALL: &[&str] = &[
    "model.kind=booster",
    "model.trees=100",
    "model.patience=0",
    "model.learning_rate=0.03",
    "model.num_leaves=7",
    "model.min_data_in_leaf=5",
    "model.bagging=0.7",
];
/// Self-loops, means over two hops and XGBoost at its defaults, as in GADBench (Tang et al. 2023): XGBGraph. Both
/// classes count alike. Weights are half of those there, where an anomaly counts for as many normal nodes as there are
/// to one and a normal node once; so are the bounds that weights are measured by.
const XGB_GRAPH: &[&str] = &[
    "features.difference=false",
    "features.wavelets=false",
    "features.log_degree=false",
    "features.self_loops=true",
    "model.kind=booster",
    "model.trees=100",
    "model.patience=0",
    "model.learning_rate=0.3",
    "model.num_leaves=64",
    "model.max_depth=6",
    "model.min_data_in_leaf=1",
    "model.min_sum_hessian=0.5",
    "model.lambda_l2=0.5",
    "model.class_weight=balanced",
];
/// Stage 2 that is chosen by what the tournament is about.
const RANKED: &[&str] = &["early_stop.metric=average_precision", "loader.mode=auto"];
/// A high rate that falls, all edges and no smoothness.
const LONG: &[&str] = &[
    "train.epochs=200",
    "train.learning_rate=1e-2",
    "train.schedule=cosine",
    "model.dropout=0.2",
    "drop_edge.rate=0.0",
    "loss.lambda_unsup=0.0",
];
/// Every node beside its neighbours, as `bench gad` takes graphs.
const LOOPS: &[&str] = &["features.self_loops=true"];
/// Of a few hundred columns twice the square root of their number: few matter at a time.
const FEW_COLUMNS: &[&str] = &["model.feature_fraction_bynode=0.0935"];
/// One random threshold per column: labels of anomalies are noisy.
const RANDOM: &[&str] = &["model.extra_trees=true"];
const TREES_300: &[&str] = &["model.trees=300"];
const LEAF_5: &[&str] = &["model.min_data_in_leaf=5"];
const LEAF_10: &[&str] = &["model.min_data_in_leaf=10"];
const LEAF_20: &[&str] = &["model.min_data_in_leaf=20"];
/// With the score of a Stage 2, as [`RANKED`] and [`LONG`] train it, that has not seen the label of a node.
const STACKED: &[&str] = &[
    "stage2.early_stop.metric=average_precision",
    "stage2.loader.mode=auto",
    "stage2.train.epochs=200",
    "stage2.train.learning_rate=1e-2",
    "stage2.train.schedule=cosine",
    "stage2.model.dropout=0.2",
    "stage2.drop_edge.rate=0.0",
    "stage2.loss.lambda_unsup=0.0",
];
/// With embeddings of the tournament's own Stage 1, whose place is known when it is trained.
const EMBEDDINGS: &[&str] = &["data.embeddings=stage1"];
const INPUT: &[&str] = &["data.input=embeddings"];
const LABELS: &[&str] = &["model.labels=true"];
const VALUES: &[&str] = &["model.edge_values=true"];
/// What the edges to a node carry, relation by relation.
const EDGES: &[&str] = &["features.edge_values=true"];
const AGES: &[&str] = &["model.time_encoding=fixed"];
const AUTO: &[&str] = &["loader.mode=auto"];
const WIDE: &[&str] = &["model.hidden=64"];
/// A node classifier that is chosen by what the tournament is about, in whose loss both classes count the same.
const RARE: &[&str] = &[
    "train.best=average_precision",
    "train.patience=50",
    "loss.positive_weight=0",
    "model.dropout=0.2",
    "train.weight_decay=0",
];
const SAGE: &[&str] = &["model.layer=sage", "model.hidden=64", "loader.mode=auto"];
const DIFFERENCE: &[&str] = &["model.layer=difference", "model.hidden=64", "loader.mode=auto"];
const H2GCN: &[&str] = &["model.layer=h2gcn", "model.hidden=64", "loader.mode=auto"];
const BWGNN: &[&str] = &["model.layer=bw", "model.hidden=64"];
const GHRN: &[&str] = &["model.layer=ghrn", "model.hidden=64"];

/// What data are, as far as it decides which candidates suit them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataKind {
    /// Labels are anomalous or normal, and not of classes.
    pub anomalies: bool,
    /// What has labels has times.
    pub events: bool,
    /// Nodes have their earlier events in the order of time.
    pub histories: bool,
    /// Edges have values.
    pub values: bool,
    /// Number of node types.
    pub types: usize,
    /// Number of relations.
    pub relations: usize,
}

impl Suits {
    /// Whether a candidate is made for such data.
    pub fn fits(self, data: DataKind) -> bool {
        let DataKind { anomalies, events, histories, values, .. } = data;
        match self {
            Suits::Anomalies => anomalies,
            Suits::Graphs | Suits::Few | Suits::Asked => anomalies && !histories,
            Suits::Values => anomalies && !histories && values,
            Suits::Untimed => anomalies && !events,
            Suits::Events => anomalies && events,
            Suits::Histories => anomalies && histories,
            Suits::Nodes => !events,
            Suits::Classes => !anomalies && !events,
        }
    }
}

macro_rules! candidates {
    ($($name:literal, $about:literal, $suits:ident, $base:ident, [$($set:ident),*] $(, $restarts:literal)?;)*) => {
        &[$(Candidate {
            name: $name,
            about: $about,
            suits: Suits::$suits,
            restarts: restarts!($($restarts)?),
            base: $base,
            set: &[$($set),*],
        }),*]
    };
}

macro_rules! restarts {
    () => {
        1
    };
    ($restarts:literal) => {
        $restarts
    };
}

impl Candidate {
    /// All candidates, the simplest first.
    pub const ALL: &[Candidate] = candidates! {
        "forest-raw", "a forest on the features of a node", Anomalies, TREES, [RAW];
        "booster-raw", "a booster on the features of a node", Anomalies, TREES, [RAW, BOOSTER];
        "booster-events", "a booster on the windows of an event", Events, TREES_EVENTS, [HELD_OUT];
        "forest-means", "a forest on features and their means over neighbours", Graphs, TREES, [MEANS];
        "booster-small", "a hundred small trees on features and their means", Graphs, TREES, [MEANS, SMALL];
        "booster-means", "a booster on features and their means", Graphs, TREES, [MEANS, BOOSTER];
        "booster-quantiles", "booster-small on quantiles of neighbours, too", Graphs, TREES, [MEANS, SMALL, QUANTILES];
        "booster-labels", "small trees that also read labels out of fold", Untimed, TREES, [MEANS, SMALL, LABEL_SHARE];
        "booster-values", "small trees that also read values of edges", Values, TREES, [MEANS, SMALL, EDGES];
        "forest-all", "a forest on all neighbourhood features", Graphs, TREES, [ALL];
        "booster-all", "a booster on all neighbourhood features", Graphs, TREES, [ALL, BOOSTER];
        "forest-leaf1", "300 trees on all features, with self-loops", Graphs, TREES, [LOOPS, TREES_300];
        "forest-leaf5", "the same with leaves of 5 nodes", Graphs, TREES, [LOOPS, TREES_300, LEAF_5];
        "forest-leaf10", "the same with leaves of 10 nodes", Graphs, TREES, [LOOPS, TREES_300, LEAF_10];
        "forest-leaf20", "the same with leaves of 20 nodes", Graphs, TREES, [LOOPS, TREES_300, LEAF_20];
        "booster-leaf5", "a hundred small trees on few columns each", Graphs, TREES, [LOOPS, SMALL, FEW_COLUMNS];
        "booster-leaf5-random", "the same with random thresholds", Graphs, TREES, [LOOPS, SMALL, FEW_COLUMNS, RANDOM];
        "booster-leaf20", "the same with leaves of 20 nodes", Graphs, TREES, [LOOPS, SMALL, FEW_COLUMNS, LEAF_20];
        "booster-leaf20-random", "the same with both", Graphs, TREES, [LOOPS, SMALL, FEW_COLUMNS, LEAF_20, RANDOM];
        "gcn", "graph convolution", Nodes, GCN, [AUTO];
        "gcn-wide", "graph convolution with 64 channels", Nodes, GCN, [AUTO, WIDE];
        "gat", "graph attention", Nodes, GAT, [AUTO, VALUES];
        "stage2", "Stage 2 on features, as published", Graphs, STAGE2, [RANKED];
        "stage2-long", "Stage 2 with a high rate that falls, on all edges", Graphs, STAGE2, [RANKED, LONG];
        "stage2-labels", "the same with known labels as input", Graphs, STAGE2, [RANKED, LONG, LABELS];
        "stage2-values", "stage2-long that reads values of edges", Values, STAGE2, [RANKED, LONG, VALUES];
        "stage2-values-labels", "the same with known labels, too", Values, STAGE2, [RANKED, LONG, VALUES, LABELS];
        "booster-stage2", "small trees that also read Stage 2 out of fold", Graphs, TREES, [MEANS, SMALL, STACKED];
        "stage2-embeddings", "Stage 2 on embeddings of Stage 1", Graphs, STAGE2, [RANKED, LONG, INPUT, EMBEDDINGS];
        "booster-embeddings", "small trees that also read Stage 1", Graphs, TREES, [MEANS, SMALL, EMBEDDINGS];
        "stage2-events", "Stage 2 on events, in mini-batches", Histories, STAGE2_EVENTS, [];
        "stage2-events-labels", "the same with known labels as input", Histories, STAGE2_EVENTS, [LABELS];
        "stage2-events-ages", "stage2-events that reads how old an edge is", Histories, STAGE2_EVENTS, [AGES];
        "xgb-graph", "boosted trees as in GADBench on features and their means", Graphs, TREES, [XGB_GRAPH];
        "gcn-anomalies", "graph convolution, both classes count the same", Graphs, GCN, [AUTO, WIDE, RARE];
        "gat-anomalies", "graph attention, both classes count the same", Asked, GAT, [AUTO, VALUES, RARE];
        "sage", "a node beside the mean of its neighbours", Graphs, GCN, [SAGE, RARE];
        "difference", "a node, its neighbours and how far it is from them", Asked, GCN, [DIFFERENCE, RARE];
        "h2gcn", "a node, its neighbours and nodes two edges away", Asked, GCN, [H2GCN, RARE];
        "bwgnn", "Beta wavelets, filters of the graph", Graphs, GCN, [BWGNN, RARE];
        "ghrn", "the same without edges between unlike nodes", Few, GCN, [GHRN, RARE];
        "gcn-x3", "the mean of three gcn with seeds of their own", Nodes, GCN, [AUTO], 3;
        "gcn-wide-x5", "the mean of five gcn-wide with seeds of their own", Classes, GCN, [AUTO, WIDE], 5;
        "gat-x5", "the mean of five gat with seeds of their own", Classes, GAT, [AUTO, VALUES], 5;
        "stage2-long-x3", "the mean of three stage2-long with seeds of their own", Graphs, STAGE2, [RANKED, LONG], 3;
        "bwgnn-x3", "the mean of three bwgnn with seeds of their own", Graphs, GCN, [BWGNN, RARE], 3;
    };

    /// The candidate of that name.
    pub fn named(name: &str) -> Option<&'static Candidate> {
        Self::ALL.iter().find(|candidate| candidate.name == name)
    }

    /// Whether it is tried only by name, of a split that counts `few` labels or of another: it has not won on two such
    /// data sets, or takes the time of several where an ensemble of different candidates is to be had.
    pub fn is_asked(&self, few: bool) -> bool {
        match self.suits {
            Suits::Asked => true,
            Suits::Few if !few => true,
            Suits::Classes => false,
            _ => self.restarts > 1,
        }
    }

    /// Whether its layers take such data; tried by name it says why not.
    pub fn takes(&self, data: DataKind) -> bool {
        match self.config(&AutoConfig::new("data")) {
            Ok(RunConfig::Classify(own)) => own.model.layer.takes(data.types, data.relations),
            _ => true,
        }
    }

    /// The Stage 1 whose embeddings some candidates read, trained once for all of them.
    ///
    /// # Errors
    /// None: the shipped file is one of Stage 1.
    pub fn stage1(config: &AutoConfig) -> Result<Stage1Config> {
        let set: Vec<String> = AUTO.iter().map(|set| set.to_string()).collect();
        let RunConfig::Stage1(mut own) = RunConfig::parse(STAGE1, Path::new("stage1"), &set)? else {
            unreachable!("the shipped file of Stage 1")
        };
        own.name = format!("{}-stage1", config.name);
        (own.seed, own.split.seed, own.output) = (config.seed, config.seed, config.output.clone());
        (own.data.path, own.data.window) = (config.data.path.clone(), config.data.window);
        Ok(own)
    }

    /// All its trainings, see [`config`](Self::config). The first has the seed of the tournament.
    ///
    /// # Errors
    /// Never for a candidate of [`Candidate::ALL`].
    pub fn trainings(&self, config: &AutoConfig) -> Result<Vec<Training>> {
        let training = |at: usize| {
            let name = match self.restarts {
                1 => self.name.to_owned(),
                _ => format!("{}-{}", self.name, at + 1),
            };
            let mut own = self.config(&AutoConfig { seed: seed_of(config.seed, at), ..config.clone() })?;
            own.set_name(format!("{}-{name}", config.name));
            Ok(Training { name, config: own })
        };
        (0..self.restarts).map(training).collect()
    }

    /// The configuration that trains it, with the data, the seed, the split and the output of `config`. How the labels
    /// of a node classifier are divided depends on the data and is left to the caller.
    ///
    /// # Errors
    /// Never for a candidate of [`Candidate::ALL`].
    pub fn config(&self, config: &AutoConfig) -> Result<RunConfig> {
        let set: Vec<String> = self.set.concat().into_iter().map(String::from).collect();
        let mut own = RunConfig::parse(self.base, Path::new(self.name), &set)?;
        own.set_name(format!("{}-{}", config.name, self.name));
        own.set_data_path(config.data.path.clone());
        own.set_window(config.data.window);
        let AutoConfig { seed, split, output, .. } = config;
        match &mut own {
            RunConfig::Stage2(own) => (own.seed, own.split, own.output) = (*seed, split.clone(), output.clone()),
            RunConfig::Stage3(own) => {
                (own.seed, own.split, own.output) = (*seed, split.clone(), output.clone());
                if let Some(stage2) = &mut own.stage2 {
                    (stage2.seed, stage2.split, stage2.output) = (*seed, split.clone(), output.clone());
                    stage2.data.path = config.data.path.clone();
                }
            }
            RunConfig::Classify(own) => (own.seed, own.output) = (*seed, output.clone()),
            RunConfig::Stage1(_) | RunConfig::Pipeline(_) | RunConfig::Auto(_) => {}
        }
        Ok(own)
    }
}

/// Refuses what `auto.candidates` of a document names in vain.
pub(super) fn check_names(document: &Document, names: &[String]) -> Result<()> {
    const KEY: &str = "auto.candidates";
    let known: Vec<&str> = Candidate::ALL.iter().map(|candidate| candidate.name).collect();
    for (at, name) in names.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            let help = match nearest_name(name, known.iter().copied()) {
                Some(near) => format!("there is no candidate \"{name}\"; did you mean \"{near}\"?"),
                None => format!("there is no candidate \"{name}\"; configs/README.md describes all of them"),
            };
            return Err(document.error(KEY, format!("names out of {}", known.join(", ")), help));
        }
        if names[..at].contains(name) {
            return Err(document.error(KEY, "every name once", format!("\"{name}\" is there twice")));
        }
    }
    Ok(())
}

/// The seed of training number `at` of a tournament with a seed, below 2^63.
fn seed_of(seed: u64, at: usize) -> u64 {
    if at == 0 { seed } else { mix(mix(seed).wrapping_add(at as u64)) >> 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Stage2Config;

    /// Anomalies in a graph with one node type and one relation.
    const GRAPH: DataKind =
        DataKind { anomalies: true, events: false, histories: false, values: false, types: 1, relations: 1 };

    #[test]
    fn layers_for_one_node_type_are_not_offered_several_unasked() {
        let taken = |types, relations| {
            let data = DataKind { types, relations, ..GRAPH };
            ["sage", "gcn-anomalies", "bwgnn", "bwgnn-x3", "ghrn", "h2gcn", "booster-all", "stage2"]
                .map(|name| Candidate::named(name).unwrap().takes(data))
        };
        assert_eq!(taken(1, 1), [true; 8]);
        assert_eq!(taken(1, 3), [true, true, true, true, true, false, true, true]);
        assert_eq!(taken(2, 2), [true, true, false, false, false, false, true, true]);
    }

    #[test]
    fn restarts_differ_in_seed_and_name_alone_and_are_tried_only_by_name_or_on_classes() {
        let config = AutoConfig::new("some/data");
        let several: Vec<&Candidate> = Candidate::ALL.iter().filter(|candidate| candidate.restarts > 1).collect();
        assert!(several.len() >= 5);
        for candidate in several {
            let (single, restarts) = candidate.name.rsplit_once("-x").unwrap();
            let single = Candidate::named(single).unwrap();
            assert_eq!(restarts, candidate.restarts.to_string());
            for few in [false, true] {
                let tried = !candidate.suits.fits(GRAPH);
                assert!(candidate.is_asked(few) != tried && !single.is_asked(few), "{}", candidate.name);
            }
            let alone = single.trainings(&config).unwrap();
            let [one] = &alone[..] else { panic!("one training") };
            assert_eq!((&*one.name, &one.config), (single.name, &single.config(&config).unwrap()));
            let trainings = candidate.trainings(&config).unwrap();
            assert_eq!(trainings.len(), candidate.restarts);
            let mut seeds: Vec<u64> = Vec::new();
            for (at, Training { name, config: own }) in trainings.into_iter().enumerate() {
                assert_eq!(
                    (&*name, own.name()),
                    (&*format!("{}-{}", candidate.name, at + 1), &*format!("auto-{name}"))
                );
                seeds.push(own.seed());
                // The labels are divided as for all others.
                let mut same = single.config(&AutoConfig { seed: own.seed(), ..config.clone() }).unwrap();
                same.set_name(own.name().into());
                assert_eq!(same, own);
            }
            assert_eq!(seeds[0], config.seed);
            assert!(seeds.iter().enumerate().all(|(at, seed)| !seeds[..at].contains(seed)), "{seeds:?}");
        }
        let seeds = [42, 43, u64::MAX >> 1].map(|seed| [1, 2].map(|at| seed_of(seed, at))).concat();
        assert!(seeds.iter().all(|&seed| seed <= u64::MAX >> 1), "a configuration can hold them");
        assert!(seeds.iter().enumerate().all(|(at, seed)| !seeds[..at].contains(seed)), "{seeds:?}");
    }

    #[test]
    fn nodes_with_times_and_no_histories_are_compared_by_their_edges() {
        let data = DataKind { events: true, values: true, ..GRAPH };
        let fit =
            |data: DataKind, names: &[&str]| names.iter().all(|name| Candidate::named(name).unwrap().suits.fits(data));
        let by_edges = ["stage2-values", "booster-values", "stage2-long", "booster-all"];
        let by_windows = ["stage2-events"];
        assert!(
            fit(data, &["booster-events"]) && fit(data, &by_edges) && !fit(data, &by_windows) && !fit(data, &["gcn"])
        );
        let by_labels = ["booster-labels"];
        assert!(fit(GRAPH, &by_labels) && !fit(data, &by_labels), "labels of events become known with time");
        let with_histories = DataKind { histories: true, ..data };
        assert!(fit(with_histories, &["booster-events"]) && fit(with_histories, &by_windows));
        assert!(by_edges.iter().all(|name| !fit(with_histories, &[name])));
    }

    #[test]
    fn every_candidate_is_a_configuration_with_the_settings_of_its_tournament() {
        let mut config = AutoConfig::new("some/data");
        (config.seed, config.data.window, config.split.seed) = (7, 3, 9);
        for (at, candidate) in Candidate::ALL.iter().enumerate() {
            let own = candidate.config(&config).unwrap_or_else(|error| panic!("{}: {error}", candidate.name));
            assert_eq!((own.seed(), own.window(), own.data_path()), (7, 3, Path::new("some/data")), "{own:?}");
            assert_eq!(own.output(), &config.output);
            assert_eq!(own.name(), format!("auto-{}", candidate.name));
            if let RunConfig::Stage3(trees) = &own {
                assert!(!trees.model.shared().refit, "{} is judged by labels that it has learned", candidate.name);
            }
            // What a run keeps loads again.
            assert_eq!(RunConfig::parse(&own.to_toml().unwrap(), Path::new("kept"), &[]).unwrap(), own);
            assert!(Candidate::ALL[..at].iter().all(|other| other.name != candidate.name), "{}", candidate.name);
        }
        let RunConfig::Stage2(long) = Candidate::named("stage2-labels").unwrap().config(&config).unwrap() else {
            panic!("a Stage 2")
        };
        assert_eq!((long.train.epochs, long.model.labels, long.split.seed), (200, true, 9));
        let of = |name: &str| Candidate::named(name).unwrap().config(&config).unwrap();
        let (RunConfig::Stage2(long), RunConfig::Stage3(stacked)) = (of("stage2-long"), of("booster-stage2")) else {
            panic!("a Stage 2 and a Stage 3")
        };
        assert!(stacked.features.stage2_score && !stacked.features.stage2_embedding);
        let stage1 = Candidate::stage1(&config).unwrap();
        assert_eq!((stage1.seed, stage1.data.window, stage1.split.seed, &*stage1.name), (7, 3, 7, "auto-stage1"));
        let kept = RunConfig::Stage1(stage1);
        assert_eq!(RunConfig::parse(&kept.to_toml().unwrap(), Path::new("kept"), &[]).unwrap(), kept);
        for (name, reads) in [("stage2-embeddings", true), ("booster-embeddings", true), ("stage2-long", false)] {
            assert_eq!(of(name).embeddings_mut().is_some(), reads, "{name}");
        }
        let (RunConfig::Stage3(trees), RunConfig::Classify(attention)) = (of("booster-values"), of("gat")) else {
            panic!("a Stage 3 and a classifier")
        };
        assert!(
            trees.features.neighbourhood.edge_values
                && attention.model.attention.is_some_and(|attention| attention.edge_values)
        );
        let folded = stacked.stage2.unwrap();
        assert_eq!(Stage2Config { name: folded.name.clone(), ..long }, folded, "the same Stage 2 as alone");
    }
}
