use std::fs;

use super::*;
use crate::config::{LoaderMode, TreeModel};
use crate::data::synth::{Preset, SynthConfig, generate};
use crate::graph::{
    Adjacency, Events, Features, HeteroGraph, Labels, Masks, RelationSpec, SplitRule, StoredSplit, TimeWindow,
};

/// A ring of so many nodes; features lie around `offset`.
fn ring(nodes: usize, offset: f32) -> Dataset {
    let next = |node: usize| ((node + 1) % nodes) as u32;
    let edges: Vec<(u32, u32)> = (0..nodes).flat_map(|n| [(n as u32, next(n)), (next(n), n as u32)]).collect();
    let adjacency = Adjacency::from_edges(nodes, nodes, &edges);
    let (name, stream) = ("friends".into(), "close-friends".into());
    let spec = RelationSpec { name, src: 0, dst: 0, stream, primary: true, adjacency };
    let graph = HeteroGraph::new(vec![("node".into(), nodes)], vec![spec]).unwrap();
    let values = (0..nodes).map(|node| offset + (node % 7) as f32).collect();
    Dataset::new(graph, Some(Features::from_f32(values, nodes, 1)), None, None)
}

fn classes(nodes: usize, count: u32) -> Classes {
    Classes::new((0..nodes).map(|node| Some(node as u32 % count)).collect())
}

/// The text, and what it loads to from a file.
fn made(dataset: &Dataset, path: &str, task: Option<InitTask>) -> (String, RunConfig) {
    let text = init(dataset, Path::new(path), task).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("made.toml");
    fs::write(&file, &text).unwrap();
    let config = RunConfig::load(&file, &[]).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
    for line in text.lines().filter(|line| line.contains(" = ")) {
        assert!(line.contains('#'), "no comment on {line}");
    }
    (text, config)
}

#[test]
fn a_labelled_marketplace_gets_stage_2_with_what_was_seen() {
    let config = SynthConfig::preset(Preset::Quickstart).scaled(0.1);
    let dataset = generate(&config, &|_, _, _| {}).unwrap();
    let (text, config) = made(&dataset, "some/\"dir\" ü", None);
    let RunConfig::Stage2(stage2) = config else { panic!("{text}") };
    assert_eq!((&*stage2.name, stage2.data.path.as_path()), ("dir-stage2", Path::new("some/\"dir\" ü")));
    assert_eq!(stage2.loader.mode, LoaderMode::Full);
    let statistics = Statistics::of(&dataset);
    for node_type in &statistics.node_types {
        let seen = format!("nodes {}: {}, {} anomalous", node_type.name, node_type.nodes, node_type.anomalous);
        assert!(text.contains(&seen), "{text}\nlacks {seen}");
    }
    assert!(text.contains("# task = \"stage2\": some nodes are labelled"), "{text}");
    for (task, name) in [(InitTask::Stage1, "stage1"), (InitTask::Stage3, "stage3"), (InitTask::Classify, "classify")] {
        let (text, config) = made(&dataset, "d", Some(task));
        assert_eq!(config.name(), format!("d-{name}"), "{text}");
        assert!(text.contains(&format!("task = \"{name}\" ")) && text.contains("as asked for"), "{text}");
    }
}

#[test]
fn events_get_mini_batches_and_a_booster() {
    let time = (0..60).collect();
    let events = Events { known: vec![0; 60], time, amount: None, value: None, alert: None };
    let labels = Labels { entries: (0..60).map(|node| (node, u8::from(node % 3 == 0))).collect() };
    let dataset = Dataset { events: Some(events), labels: Some(labels), ..ring(60, 0.0) };
    let (text, config) = made(&dataset, "d", None);
    let RunConfig::Stage2(stage2) = config else { panic!("{text}") };
    assert_eq!((stage2.loader.mode, stage2.loader.batch_size, &*stage2.name), (LoaderMode::Sampled, 1024, "d-stage2"));
    let (text, config) = made(&dataset, "d", Some(InitTask::Stage3));
    let RunConfig::Stage3(stage3) = config else { panic!("{text}") };
    assert!(matches!(stage3.model, TreeModel::Booster(_)) && &*stage3.name == "d-stage3", "{text}");
    assert!(!stage3.model.shared().refit, "no split by time has newest labels:\n{text}");
    let rule = SplitRule::Time {
        windows: vec![TimeWindow { train: [0, 30], validation: [30, 45], test: [45, 60] }],
        blocked: None,
    };
    let parts = (0..60).map(|node| 1 + u8::from(node >= 30) + u8::from(node >= 45)).collect();
    let split = Some(StoredSplit { rule, windows: vec![parts], window: 0 });
    let (text, config) = made(&Dataset { split, ..dataset }, "d", Some(InitTask::Stage3));
    let RunConfig::Stage3(stage3) = config else { panic!("{text}") };
    assert!(stage3.model.shared().refit, "{text}");
}

#[test]
fn classes_get_a_classification_with_their_masks_or_a_random_split() {
    let dataset = |classes| Dataset { classes: Some(classes), ..ring(60, -3.0) };
    let (text, config) = made(&dataset(classes(60, 20)), "graph.npz", None);
    let RunConfig::Classify(random) = config else { panic!("{text}") };
    assert!(matches!(random.split, crate::config::ClassifySplit::Random { per_class: None, .. }));
    assert_eq!((random.model.hidden, random.data.row_normalise, &*random.name), (64, false, "graph-classify"));
    let masks = Masks { train: vec![0, 1, 2], validation: vec![3], test: vec![4] };
    let masked = Dataset { classes: Some(classes(60, 3).with_masks(vec![masks])), ..ring(60, 0.0) };
    let (text, config) = made(&masked, "graph.npz", None);
    let RunConfig::Classify(masked) = config else { panic!("{text}") };
    assert_eq!(masked.split, crate::config::ClassifySplit::Masks { index: 0 });
    assert_eq!((masked.model.hidden, masked.data.row_normalise), (16, true));
    assert!(text.contains("classes: 3, of 60 nodes"), "{text}");
}

#[test]
fn data_without_usable_labels_get_stage_1_and_the_streams_that_there_are() {
    let (text, config) = made(&ring(60, 0.0), "d", None);
    let RunConfig::Stage1(stage1) = config else { panic!("{text}") };
    assert_eq!(stage1.sampling.edges_of("close-friends"), 120);
    assert!(text.contains("no node is labelled"), "{text}");
    let few = Dataset { labels: Some(Labels { entries: vec![(0, 1), (1, 0)] }), ..ring(60, 0.0) };
    let (text, config) = made(&few, "d", None);
    assert!(matches!(config, RunConfig::Stage1(_)) && text.contains("cannot be used: "), "{text}");
    for task in [InitTask::Stage2, InitTask::Stage3, InitTask::Classify] {
        assert!(init(&ring(60, 0.0), Path::new("d"), Some(task)).is_err(), "{task:?} without labels");
    }
}

#[test]
fn a_large_graph_is_left_to_the_device_and_says_why() {
    let nodes = LARGE[0] + 1;
    let dataset = Dataset { classes: Some(classes(nodes, 3)), ..ring(nodes, 0.0) };
    let (text, config) = made(&dataset, "d", None);
    let RunConfig::Classify(config) = config else { panic!("{text}") };
    assert_eq!(config.loader.mode, LoaderMode::Auto);
    assert!(text.contains("# a large graph") && text.contains("200,001 nodes"), "{text}");
}

#[test]
fn data_without_features_are_refused_unless_there_are_embeddings() {
    let labels = Labels { entries: (0..60).map(|node| (node, (node % 2) as u8)).collect() };
    let dataset = Dataset { labels: Some(labels), features: None, ..ring(60, 0.0) };
    let dir = tempfile::tempdir().unwrap();
    let fault = init(&dataset, dir.path(), None).unwrap_err().to_string();
    assert!(fault.contains("expected data with features, found none"), "{fault}");
    fs::write(dir.path().join(EMBEDDINGS_FILE), "").unwrap();
    let (text, config) = made(&dataset, dir.path().to_str().unwrap(), None);
    let RunConfig::Stage2(config) = config else { panic!("{text}") };
    assert_eq!(config.data.input, crate::config::Stage2Input::Embeddings);
}

#[test]
fn a_path_stays_in_its_comment_and_its_quotes() {
    for path in ["a\nseed = 7", "b\r[data]", "c # \"d\" = 1 #", "\u{1b}[31m\u{7f}"] {
        let (text, config) = made(&ring(60, 0.0), path, None);
        let RunConfig::Stage1(config) = config else { panic!("{text}") };
        assert_eq!((config.data.path.as_path(), config.seed), (Path::new(path), 42), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
