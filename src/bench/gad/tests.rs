//! The protocol on a graph whose anomalies show in the mean of their neighbours alone.

use burn_flex::{Flex, FlexDevice};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::data::split::Split;
use crate::graph::{Adjacency, Features, HeteroGraph, Labels, RelationSpec};

const NODES: usize = 600;

/// Every fifth node is anomalous. It is linked with three nodes whose first feature is high, normal nodes with low ones;
/// everything else is noise.
fn planted() -> Dataset {
    let mut noise = graphsieve_kernels::testing::Rng::new(5);
    let anomalous = |node: usize| node < NODES / 2 && node.is_multiple_of(5);
    // The second half has the features that the first half's neighbours show.
    let high = |node: usize| node >= NODES * 3 / 4;
    let mut edges = Vec::new();
    for node in 0..NODES / 2 {
        let start = if anomalous(node) { NODES * 3 / 4 } else { NODES / 2 };
        for _ in 0..3 {
            let other = start + noise.below(NODES / 4);
            edges.extend([(node as u32, other as u32), (other as u32, node as u32)]);
        }
    }
    let values = (0..NODES)
        .flat_map(|node| {
            let [a, b] = [noise.normal(1)[0], noise.normal(1)[0]];
            [if node < NODES / 2 { a } else { f64::from(u8::from(high(node))) } as f32, b as f32]
        })
        .collect();
    let adjacency = Adjacency::from_edges(NODES, NODES, &edges);
    let edge = RelationSpec { name: "edge".into(), src: 0, dst: 0, stream: "edge".into(), primary: true, adjacency };
    let graph = HeteroGraph::new(vec![("node".into(), NODES)], vec![edge]).unwrap();
    let entries = (0..NODES / 2).map(|node| (node as u32, u8::from(anomalous(node)))).collect();
    Dataset::new(graph, Some(Features::from_f32(values, NODES, 2)), Some(Labels { entries }), None)
}

fn options(models: Vec<Model>) -> GadOptions {
    let protocol = Protocol::Full;
    GadOptions { data: "planted".into(), protocol, models, splits: 1, description: "cpu".into() }
}

fn split(dataset: &Dataset, at: usize) -> Split {
    Protocol::Full.split(dataset.labels.as_ref().unwrap(), at).unwrap()
}

fn table(dataset: &Dataset, inputs: Inputs) -> FeatureTable {
    let models = Model::ALL.into_iter().filter(|model| model.inputs() == inputs).collect();
    features::<Flex>(dataset, &options(models), &FlexDevice).unwrap()
}

#[test]
fn what_shows_in_neighbours_is_found_with_their_means_only() {
    let dataset = planted();
    let auroc = |inputs, learner| {
        let mut fitting = Fitting::new(&table(&dataset, inputs), &split(&dataset, 0), 1).unwrap();
        fitting.model(learner).unwrap().test.auroc
    };
    for learner in [Learner::Forest, Learner::Booster, Learner::Ensemble] {
        let (raw, means) = (auroc(Inputs::Raw, learner), auroc(Inputs::Means, learner));
        assert!(raw < 0.7 && means > 0.95, "{learner:?}: {raw} without, {means} with neighbours");
    }
}

#[test]
fn shuffled_training_labels_leave_nothing_to_find() {
    let dataset = planted();
    let table = table(&dataset, Inputs::Means);
    for learner in [Learner::Forest, Learner::Booster] {
        let auroc = |at: usize| {
            let mut split = split(&dataset, at);
            let mut labels: Vec<u8> = split.train.iter().map(|entry| entry.1).collect();
            labels.shuffle(&mut ChaCha8Rng::seed_from_u64(at as u64));
            split.train.iter_mut().zip(labels).for_each(|(entry, label)| entry.1 = label);
            // Validation labels choose the setting, so true ones would not be chance either.
            let mut labels: Vec<u8> = split.validation.iter().map(|entry| entry.1).collect();
            labels.shuffle(&mut ChaCha8Rng::seed_from_u64(100 + at as u64));
            split.validation.iter_mut().zip(labels).for_each(|(entry, label)| entry.1 = label);
            Fitting::new(&table, &split, at as u64).unwrap().model(learner).unwrap().test.auroc
        };
        let mean = (0..8).map(auroc).sum::<f64>() / 8.0;
        assert!((mean - 0.5).abs() < 0.12, "{learner:?}: {mean}, expected chance");
    }
}

#[test]
fn a_run_says_what_it_did_and_says_it_again() {
    let dataset = planted();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    dataset.write(&path).unwrap();
    let run = |models: &[Model], splits| {
        let options = GadOptions { data: path.clone(), splits, ..options(models.to_vec()) };
        super::run::<Flex>(&options, &FlexDevice, Mode::Quiet, &|_| {})
    };
    let models = [Model::ALL[1], Model::ALL[0]];
    let report = run(&models, 2).unwrap();
    assert_eq!((report.nodes, report.labelled, report.anomalous), (NODES, NODES / 2, NODES / 10));
    assert_eq!(report.models.iter().map(|model| model.model).collect::<Vec<_>>(), ["forest-means", "forest-raw"]);
    assert_eq!([report.models[0].columns, report.models[1].columns], [6, 2]);
    assert_eq!(report.models[0].splits.iter().map(|split| split.seed).collect::<Vec<_>>(), [3407, 3417]);
    let text = report.to_string();
    assert!(text.contains("forest-means") && text.contains("protocol full, 2 splits"), "{text}");
    // Beside another model and in another order: the same figures.
    let again = run(&models[..1], 2).unwrap();
    let figures = |report: &GadReport| (report.models[0].validation, report.models[0].test);
    assert_eq!(figures(&again), figures(&report));

    let refused = |models: &[Model], splits| run(models, splits).unwrap_err().exit_code();
    assert_eq!([refused(&[], 1), refused(&models, 0), refused(&[models[0], models[0]], 1)], [2; 3]);
}

#[test]
fn too_few_labels_are_refused() {
    let labels = planted().labels.unwrap();
    let error = Protocol::Semi.split(&Labels { entries: labels.entries[..90].to_vec() }, 0).unwrap_err().to_string();
    assert!(error.contains("labels of class"), "{error}");
    assert_eq!(Protocol::Semi.split(&labels, 0).unwrap().train.len(), 100);
}
