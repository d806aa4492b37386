//! Labels as input of Stage 2: they tell of other nodes, never of a node itself, and only what was known in time.

use std::fs;
use std::path::{Path, PathBuf};

use burn_flex::{Flex, FlexDevice};
use graphsieve::config::{
    Draw, ForestConfig, LoaderMode, OwnTransform, RunConfig, Stage2Config, Stage2Input, Stage3Config, TreeModel,
};
use graphsieve::graph::{
    Adjacency, Dataset, Features, HeteroGraph, IdMaps, Labels, RelationSpec, SplitRule, StoredSplit,
};
use graphsieve::metrics::{roc_auc, sigmoid};
use graphsieve::run::evaluation::read_scores;
use graphsieve::score::explain::explain_run;
use graphsieve::score::{self, ScoreOptions, ScoredRun, Scores};
use serde_json::Value;
use tempfile::TempDir;

use crate::causal::{ALL, Leak, Payment, WINDOW, before, changed, dataset_with, payments, run, stage2};

/// Nodes in groups of six, each joined to the others of its group and to itself.
const NODES: u32 = 360;
const GROUP: u32 = 6;

/// What the label of a node goes by.
#[derive(Clone, Copy, PartialEq)]
enum Labelled {
    /// Its group: neighbours' labels tell it.
    ByGroup,
    /// Chance: nothing tells it.
    ByChance,
}

fn chance(node: u32) -> u32 {
    (node.wrapping_mul(2_654_435_761) ^ 0x9e37_79b9).wrapping_mul(2_246_822_519) >> 16
}

fn labels(by: Labelled) -> Vec<(u32, u8)> {
    let of = |node: u32| if by == Labelled::ByGroup { node / GROUP } else { node + 1000 };
    (0..NODES).map(|node| (node, u8::from(chance(of(node)).is_multiple_of(2)))).collect()
}

/// Three fifths for training; twins follow one another, so that they stand on both sides.
fn part(node: u32) -> usize {
    [0, 1, 0, 2, 0][node as usize % 5]
}

fn of_part(labels: &[(u32, u8)], wanted: usize) -> Vec<(u32, u8)> {
    labels.iter().filter(|(node, _)| part(*node) == wanted).copied().collect()
}

/// Features tell nothing, unless they are given.
fn dataset(labels: &[(u32, u8)], features: Option<Vec<f32>>) -> Dataset {
    let joined = |node: u32| (0..GROUP).map(move |other| (node, node / GROUP * GROUP + other));
    let edges: Vec<(u32, u32)> = (0..NODES).flat_map(joined).collect();
    let adjacency = Adjacency::from_edges(NODES as usize, NODES as usize, &edges);
    let relation = RelationSpec::new("joins", 0, 0, adjacency);
    let graph = HeteroGraph::new(vec![("account".into(), NODES as usize)], vec![relation]).unwrap();
    let features = features.unwrap_or_else(|| vec![1.0; 2 * NODES as usize]);
    let parts = [0, 1, 2].map(|part| of_part(labels, part));
    let rule = SplitRule::Random { seed: 42, train: 0.6, validation: 0.2, test: 0.2 };
    let ids = IdMaps(vec![(0..NODES).map(|node| format!("a{node}")).collect()]);
    Dataset {
        split: Some(StoredSplit::of_parts(rule, NODES as usize, [&parts[0], &parts[1], &parts[2]])),
        ..Dataset::new(
            graph,
            Some(Features::from_f32(features, NODES as usize, 2)),
            Some(Labels { entries: labels.to_vec() }),
            Some(ids),
        )
    }
}

/// Both ways to go through a graph, with labels unless they are left out again.
fn configs(dir: &Path) -> [Stage2Config; 2] {
    let mut full = stage2(dir, Stage2Input::Features);
    (full.model.own, full.model.labels) = (OwnTransform::Always, true);
    (full.train.epochs, full.train.validate_every) = (60, 60);
    (full.drop_edge.rate, full.loss.lambda_unsup) = (0.0, 0.0);
    let mut sampled = full.clone();
    (sampled.loader.mode, sampled.loader.fanouts, sampled.loader.batch_size) = (LoaderMode::Sampled, vec![0, 0], 64);
    (sampled.train.epochs, sampled.train.validate_every) = (15, 15);
    [full, sampled]
}

struct Trained {
    dir: TempDir,
    run: PathBuf,
}

impl Trained {
    fn scores(&self) -> Vec<f32> {
        read_scores(&self.run.join("anomaly_scores_stage2.npy"), NODES as usize).unwrap()
    }

    /// The loss of the last epoch.
    fn loss(&self) -> f64 {
        let log = fs::read_to_string(self.run.join("metrics.jsonl")).unwrap();
        serde_json::from_str::<Value>(log.lines().last().unwrap()).unwrap()["loss"].as_f64().unwrap()
    }
}

/// Trains on `data` in one of the two ways.
fn trained(data: &Dataset, way: usize, change: impl Fn(&mut Stage2Config)) -> Trained {
    let dir = tempfile::tempdir().unwrap();
    data.write(&dir.path().join("data")).unwrap();
    let mut config = configs(dir.path())[way].clone();
    change(&mut config);
    Trained { run: run(RunConfig::Stage2(config)), dir }
}

fn auroc(scores: &[f32], part: &[(u32, u8)]) -> f64 {
    let (scores, labels): (Vec<f32>, Vec<u8>) =
        part.iter().map(|&(node, label)| (scores[node as usize], label)).unzip();
    roc_auc(&scores, &labels).unwrap()
}

pub fn computed(checkpoint: &Path, data: &Path) -> Vec<f32> {
    let options = ScoreOptions::new(checkpoint, data);
    match score::compute::<Flex>(&options, &FlexDevice).unwrap().scores {
        Scores::Anomaly(scores) => scores,
        Scores::Classes(_) => panic!("Stage 2 or 3"),
    }
}

/// Scores of the same weights with other known labels: `change` is told the number of a label and the label.
pub fn with_other_labels(run: &Path, data: &Path, change: impl Fn(usize, &mut Value)) -> Vec<f32> {
    let other = tempfile::tempdir().unwrap();
    fs::create_dir(other.path().join("checkpoint")).unwrap();
    for file in
        ["config.toml", "checkpoint/best.bpk", "checkpoint/best.trees"].iter().filter(|file| run.join(file).exists())
    {
        fs::copy(run.join(file), other.path().join(file)).unwrap();
    }
    let mut known: Value = serde_json::from_slice(&fs::read(run.join("known_labels.json")).unwrap()).unwrap();
    known["labels"].as_array_mut().unwrap().iter_mut().enumerate().for_each(|(at, row)| change(at, row));
    fs::write(other.path().join("known_labels.json"), known.to_string()).unwrap();
    computed(other.path(), data)
}

pub fn flip(row: &mut Value) {
    row["label"] = Value::from(1 - row["label"].as_u64().unwrap());
}

#[test]
fn neighbours_labels_tell_what_nothing_else_does() {
    let labels = labels(Labelled::ByGroup);
    let data = dataset(&labels, None);
    for way in [0, 1] {
        let with = trained(&data, way, |_| ()).scores();
        let without = trained(&data, way, |config| config.model.labels = false).scores();
        for part in 0..3 {
            let [with, without] = [&with, &without].map(|scores| auroc(scores, &of_part(&labels, part)));
            assert!(with > 0.95 && without == 0.5, "way {way}, part {part}: {with}, {without}");
        }
    }
}

#[test]
fn an_own_label_would_be_learned_by_heart_and_a_masked_one_is_not() {
    let labels = labels(Labelled::ByChance);
    for way in [0, 1] {
        let masked = trained(&dataset(&labels, None), way, |_| ());
        assert!(masked.loss() > 0.6, "way {way}: {}", masked.loss());
        let on_training = auroc(&masked.scores(), &of_part(&labels, 0));
        assert!((0.3..0.7).contains(&on_training), "way {way}: scores of training nodes are not told their labels");
        // The same columns with a training node's own label, as features.
        let own = |&(node, label): &(u32, u8)| match part(node) {
            0 => [f32::from(label), 1.0 - f32::from(label)],
            _ => [0.0, 0.0],
        };
        let planted = dataset(&labels, Some(labels.iter().flat_map(own).collect()));
        let planted = trained(&planted, way, |config| config.model.labels = false);
        assert!(planted.loss() < 0.2, "way {way}: {}", planted.loss());
        assert!(auroc(&planted.scores(), &of_part(&labels, 0)) > 0.99);
        assert!(auroc(&planted.scores(), &of_part(&labels, 2)) < 0.7, "and helps no other node");
    }
}

#[test]
fn no_label_of_validation_or_test_reaches_a_training() {
    let labels = labels(Labelled::ByGroup);
    // Among them the labels of twins: a node of the same group has the same features and neighbours.
    let others: Vec<(u32, u8)> =
        labels.iter().map(|&(node, label)| (node, if part(node) == 0 { label } else { 1 - label })).collect();
    for way in [0, 1] {
        let [a, b] = [&labels, &others].map(|labels| trained(&dataset(labels, None), way, |_| ()));
        assert_eq!(a.scores(), b.scores(), "way {way}");
        let known: Value = serde_json::from_slice(&fs::read(a.run.join("known_labels.json")).unwrap()).unwrap();
        let rows = known["labels"].as_array().unwrap();
        let known: Vec<(u32, u8)> = rows
            .iter()
            .map(|row| (row["id"].as_str().unwrap()[1..].parse().unwrap(), row["label"].as_u64().unwrap() as u8))
            .collect();
        assert_eq!(known, of_part(&labels, 0));
    }
}

#[test]
fn at_fixed_weights_no_nodes_score_depends_on_its_own_label() {
    let labels = labels(Labelled::ByGroup);
    let Trained { dir, run } = trained(&dataset(&labels, None), 0, |_| ());
    let data = dir.path().join("data");
    let own = computed(&run, &data);
    assert_eq!(own, with_other_labels(&run, &data, |_, _| ()));
    assert_eq!(own, read_scores(&run.join("anomaly_scores_stage2.npy"), NODES as usize).unwrap());
    for at in [0, 7, 50, 119] {
        let node = of_part(&labels, 0)[at].0 as usize;
        let flipped = with_other_labels(&run, &data, |row, label| {
            if row == at {
                flip(label)
            }
        });
        assert_eq!(own[node], flipped[node], "{node}");
        let group = node - node % GROUP as usize;
        assert!((group..group + GROUP as usize).any(|other| own[other] != flipped[other]), "{node}");
    }
}

#[test]
fn a_label_is_read_from_the_moment_on_at_which_it_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let now = payments();
    let data = dir.path().join("data");
    let all = dataset_with(&now, Leak::Nothing, ALL);
    all.write(&data).unwrap();
    let mut config = stage2(dir.path(), Stage2Input::Features);
    config.model.labels = true;
    let run = run(RunConfig::Stage2(config));
    let first = WINDOW.validation[0];
    // Labels that became known soon after validation began, of payments before that.
    let moved = |row: &Value| (first + 2..first + 5).contains(&row["known"].as_i64().unwrap());
    let scores = |time: i64, early: bool, flipped: bool| {
        let scores = with_other_labels(&run, &data, |_, row| {
            if flipped && moved(row) {
                flip(row);
            }
            // Without the delay.
            if early {
                row["known"] = row["time"].clone();
            }
        });
        before(&now, time, &scores)
    };
    let known_at = first + 2;
    assert_eq!(scores(known_at, false, false), scores(known_at, false, true));
    assert_ne!(scores(known_at, true, false), scores(known_at, true, true), "an early label is noticed");
    assert_ne!(scores(WINDOW.test[1], false, false), scores(WINDOW.test[1], false, true), "and a known one is read");
}

#[test]
fn a_training_with_labels_does_not_depend_on_what_comes_after_it() {
    let now = payments();
    let end = WINDOW.known_until();
    for mode in [LoaderMode::Full, LoaderMode::Sampled] {
        let scores = |payments: &[Payment], labels: bool| {
            let (dir, data) = (tempfile::tempdir().unwrap(), dataset_with(payments, Leak::Nothing, ALL));
            data.write(&dir.path().join("data")).unwrap();
            let mut config = stage2(dir.path(), Stage2Input::Features);
            (config.model.labels, config.loader.mode, config.train.epochs) = (labels, mode, 3);
            if mode == LoaderMode::Sampled {
                (config.loader.draw, config.loader.fanouts, config.loader.batch_size) = (Draw::Latest, vec![3, 2], 96);
            }
            let run = run(RunConfig::Stage2(config));
            let scores = read_scores(&run.join("anomaly_scores_stage2.npy"), data.graph.num_nodes()).unwrap();
            before(payments, end, &scores)
        };
        let want = scores(&now, true);
        assert!(want == scores(&changed(&now, end, WINDOW.test[0] + 1), true), "{mode:?}");
        assert!(want != scores(&now, false), "{mode:?}: labels are read");
    }
}

#[test]
fn stage_3_stacks_on_models_that_do_not_read_the_labels_that_they_score() {
    let labels = labels(Labelled::ByGroup);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    dataset(&labels, None).write(&data).unwrap();
    let mut config = Stage3Config::new(&data);
    (config.output.dir, config.output.plots) = (dir.path().join("runs"), false);
    (config.features.stage2_score, config.features.stage2_folds) = (true, 3);
    let TreeModel::Forest(forest) = config.model else { panic!("forests are the default") };
    config.model = TreeModel::Forest(ForestConfig { trees: 15, ..forest });
    config.stage2 = Some(configs(dir.path())[0].clone());
    let run = run(RunConfig::Stage3(config));
    let mut left_out = vec![0; NODES as usize];
    for fold in fs::read_dir(run.join("folds")).unwrap() {
        let file = fold.unwrap().path().join("known_labels.json");
        let known: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        left_out.iter_mut().for_each(|folds| *folds += 1);
        for row in known["labels"].as_array().unwrap() {
            left_out[row["id"].as_str().unwrap()[1..].parse::<usize>().unwrap()] -= 1;
        }
    }
    // A training label is left out by the fold that scores it, and no other label is read by any.
    let folds = |node: u32| if part(node) == 0 { 1 } else { 3 };
    assert!((0..NODES).all(|node| left_out[node as usize] == folds(node)), "{left_out:?}");
    // The run has all that it takes to make the table again.
    let written = read_scores(&run.join("anomaly_scores_stage3.npy"), NODES as usize).unwrap();
    let again = computed(&run, &data);
    assert!((0..NODES).filter(|&node| part(node) > 0).all(|node| written[node as usize] == again[node as usize]));
    assert!(auroc(&written, &of_part(&labels, 2)) > 0.9);
}

#[test]
fn an_explanation_names_known_labels_and_adds_up_to_the_score() {
    let labels = labels(Labelled::ByGroup);
    let Trained { run, dir: _dir } = trained(&dataset(&labels, None), 0, |_| ());
    let run = ScoredRun::open(&run, None).unwrap();
    let nodes = [1, 0, 3, 121, 2];
    let explained = explain_run::<Flex>(&run, &nodes, &FlexDevice).unwrap();
    assert_eq!(explained.iter().map(|found| found.node).collect::<Vec<_>>(), nodes);
    for found in &explained {
        let score = run.scores[found.node as usize];
        assert!((sigmoid(found.sum as f32) - score).abs() < 1e-5, "{}: {} for {score}", found.name, found.sum);
        let columns: f64 = found.columns.iter().map(|part| part.contribution).sum();
        assert!((found.base + columns - found.sum).abs() < 1e-4);
        let of_labels =
            |name: &str| found.columns.iter().find(|part| part.column == name && part.block == "known labels");
        let [anomalous, normal] =
            ["known label: anomalous", "known label: normal"].map(|name| of_labels(name).unwrap());
        assert_eq!((anomalous.value, normal.value), (0.0, 0.0), "no node reads its own");
        assert!(anomalous.contribution.abs() + normal.contribution.abs() > 0.0);
    }
}

#[test]
fn labels_that_cannot_be_had_are_refused() {
    let labels = labels(Labelled::ByGroup);
    let Trained { run, dir } = trained(&dataset(&labels, None), 0, |config| config.train.epochs = 2);
    let refused = |checkpoint: &Path, data: &Path| {
        let options = ScoreOptions::new(checkpoint, data);
        score::compute::<Flex>(&options, &FlexDevice).unwrap_err().to_string()
    };
    let strangers = dir.path().join("strangers");
    let ids = IdMaps(vec![(0..NODES).map(|node| format!("b{node}")).collect()]);
    Dataset { ids: Some(ids), ..dataset(&labels, None) }.write(&strangers).unwrap();
    let error = refused(&run, &strangers);
    assert!(error.contains("strangers") && error.contains("known labels") && error.contains("none of them"), "{error}");
    // A checkpoint alone has its input from an array, and no labels.
    let z = ndarray::Array2::<f32>::ones((NODES as usize, 2));
    graphsieve::graph::write_npy_f32(dir.path().join("data/Z_embeddings_stage1.npy"), &z).unwrap();
    let error = refused(&run.join("checkpoint/best.bpk"), &dir.path().join("data"));
    assert!(error.contains("known labels") && error.contains("the directory of a run"), "{error}");
}

/// Trees on nothing but the known labels of neighbours, and features that tell nothing.
fn trees(labels: &[(u32, u8)], label_share: bool) -> Trained {
    let dir = tempfile::tempdir().unwrap();
    dataset(labels, None).write(&dir.path().join("data")).unwrap();
    let mut config = Stage3Config::new(dir.path().join("data"));
    (config.output.dir, config.output.plots) = (dir.path().join("runs"), false);
    config.features.label_share = label_share;
    let TreeModel::Forest(forest) = config.model else { panic!("forests are the default") };
    config.model = TreeModel::Forest(ForestConfig { trees: 30, min_data_in_leaf: 5, ..forest });
    Trained { run: run(RunConfig::Stage3(config)), dir }
}

fn scores_of_trees(trained: &Trained) -> Vec<f32> {
    read_scores(&trained.run.join("anomaly_scores_stage3.npy"), NODES as usize).unwrap()
}

#[test]
fn trees_read_the_training_labels_of_neighbours() {
    let labels = labels(Labelled::ByGroup);
    let [with, without] = [true, false].map(|label_share| trees(&labels, label_share));
    for part in 0..3 {
        let [with, without] = [&with, &without].map(|of| auroc(&scores_of_trees(of), &of_part(&labels, part)));
        assert!(with > 0.9 && without == 0.5, "part {part}: {with}, {without}");
    }
    let importance = fs::read_to_string(with.run.join("importance.csv")).unwrap();
    for column in ["label_share1", "label_count1", "label_share2", "label_count2"] {
        assert!(importance.contains(&format!("{column},labels,")), "{importance}");
    }
    // The run has all that it takes to make the table again.
    let data = with.dir.path().join("data");
    assert_eq!(computed(&with.run, &data), scores_of_trees(&with));
    let alone = ScoreOptions::new(with.run.join("checkpoint/best.trees"), data.clone());
    let error = score::compute::<Flex>(&alone, &FlexDevice).unwrap_err().to_string();
    assert!(error.contains("the directory of a run"), "{error}");
}

#[test]
fn no_label_of_validation_or_test_reaches_the_trees_and_no_node_reads_its_own() {
    let labels = labels(Labelled::ByGroup);
    let others: Vec<(u32, u8)> =
        labels.iter().map(|&(node, label)| (node, if part(node) == 0 { label } else { 1 - label })).collect();
    let [own, other] = [&labels, &others].map(|labels| trees(labels, true));
    assert_eq!(scores_of_trees(&own), scores_of_trees(&other));
    let grown = |of: &Trained| fs::read(of.run.join("checkpoint/best.trees")).unwrap();
    assert!(grown(&own) == grown(&other));
    let data = own.dir.path().join("data");
    let scores = scores_of_trees(&own);
    let mut read = 0;
    for at in [0, 7, 50, 119] {
        let node = of_part(&labels, 0)[at].0 as usize;
        let flipped = with_other_labels(&own.run, &data, |row, label| {
            if row == at {
                flip(label);
            }
        });
        assert_eq!(scores[node], flipped[node], "{node}");
        let of_others = with_other_labels(&own.run, &data, |row, label| {
            if row != at {
                flip(label);
            }
        });
        read += usize::from(scores[node] != of_others[node]);
    }
    assert!(read >= 2, "{read} of 4 read the labels of their group; those whose group is in their fold do not");
    // Labels that nothing tells are not told by what others see of them.
    let chance = self::labels(Labelled::ByChance);
    let on_test = auroc(&scores_of_trees(&trees(&chance, true)), &of_part(&chance, 2));
    assert!((0.25..0.75).contains(&on_test), "{on_test}");
}
