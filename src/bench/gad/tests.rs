//! The protocol on a graph whose anomalies show in the mean of their neighbours alone.

use burn_flex::{Flex, FlexDevice};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::data::split::Split;
use crate::graph::{Adjacency, Classes, Features, HeteroGraph, Labels, Masks, RelationSpec};

const NODES: usize = 600;

/// Every fifth node is anomalous. It is linked with three nodes whose first feature is high, normal nodes with low
/// ones; everything else is noise.
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
    let edge = RelationSpec::new("edge", 0, 0, adjacency);
    let graph = HeteroGraph::new(vec![("node".into(), NODES)], vec![edge]).unwrap();
    let entries = (0..NODES / 2).map(|node| (node as u32, u8::from(anomalous(node)))).collect();
    Dataset::new(graph, Some(Features::from_f32(values, NODES, 2)), Some(Labels { entries }), None)
}

fn options(models: Vec<Model>) -> GadOptions {
    GadOptions {
        data: "planted".into(),
        protocol: Protocol::Full,
        models,
        splits: 1,
        shares: [0.4, 0.2],
        export: None,
        description: "cpu".into(),
    }
}

fn split(dataset: &Dataset, at: usize) -> Split {
    divided(dataset, Protocol::Full, at).unwrap()
}

fn divided(dataset: &Dataset, protocol: Protocol, at: usize) -> Result<Split> {
    Splits::new(dataset, &dataset.labels.as_ref().unwrap().entries, protocol, [0.4, 0.2])?.split(at)
}

fn named(name: &str) -> Model {
    Model::named(name).unwrap_or_else(|| panic!("{name}"))
}

/// AUROC of a model on the test nodes of a split.
fn auroc(model: &str, split: &Split) -> f64 {
    let runs = tempfile::tempdir().unwrap();
    let mut config = AutoConfig::new("planted");
    (config.output.dir, config.output.plots) = (runs.path().to_path_buf(), false);
    let dataset = planted();
    let features = Some(features::<Flex>(&dataset, &options(vec![named("gadbench-forest")]), &FlexDevice).unwrap());
    let common = Common::<Flex> {
        config,
        options: RunOptions::quiet("cpu"),
        device: &FlexDevice,
        tables: Tables::default(),
        features,
    };
    Fitting::new(&common, dataset, split, 1).unwrap().model(named(model)).unwrap().test.auroc
}

#[test]
fn what_shows_in_neighbours_is_found_with_their_means_only() {
    let split = split(&planted(), 0);
    for [raw, means] in [
        ["gadbench-forest-raw", "gadbench-forest-means"],
        ["gadbench-booster-raw", "gadbench-booster"],
        ["forest-raw", "forest"],
        ["booster-raw", "booster"],
        ["forest-raw", "ensemble"],
        ["booster-raw", "gcn"],
        ["booster-raw", "gcn-x3"],
    ] {
        let [alone, with] = [raw, means].map(|model| auroc(model, &split));
        assert!(alone < 0.7 && with > 0.85, "{raw}: {alone} without, {means}: {with} with neighbours");
    }
}

#[test]
fn shuffled_training_labels_leave_nothing_to_find() {
    let dataset = planted();
    for model in ["gadbench-forest-means", "gadbench-booster-means", "forest-leaf5", "booster-leaf5", "gcn"] {
        let at_random = |at: usize| {
            let mut split = split(&dataset, at);
            let mut labels: Vec<u8> = split.train.iter().map(|entry| entry.1).collect();
            labels.shuffle(&mut ChaCha8Rng::seed_from_u64(at as u64));
            split.train.iter_mut().zip(labels).for_each(|(entry, label)| entry.1 = label);
            // Validation labels choose the epoch, so true ones would not be chance either.
            let mut labels: Vec<u8> = split.validation.iter().map(|entry| entry.1).collect();
            labels.shuffle(&mut ChaCha8Rng::seed_from_u64(100 + at as u64));
            split.validation.iter_mut().zip(labels).for_each(|(entry, label)| entry.1 = label);
            auroc(model, &split)
        };
        let mean = (0..8).map(at_random).sum::<f64>() / 8.0;
        // A smooth model ranks the few anomalies by how many of them got an anomalous label, most often none.
        let least = if model == "gcn" { 0.0 } else { 0.38 };
        assert!((least..0.62).contains(&mean), "{model}: {mean}, expected chance");
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
    let models = ["forest-means", "forest-raw"].map(named);
    let report = run(&models, 2).unwrap();
    assert_eq!((report.nodes, report.labelled, report.anomalous), (NODES, NODES / 2, NODES / 10));
    assert_eq!(report.models.iter().map(|model| model.model).collect::<Vec<_>>(), ["forest-means", "forest-raw"]);
    assert_eq!([report.models[0].columns, report.models[1].columns], [7, 2], "means have the degree beside them");
    assert_eq!(report.models[0].splits.iter().map(|split| split.seed).collect::<Vec<_>>(), [3407, 3417]);
    let text = report.to_string();
    assert!(text.contains("forest-means") && text.contains("protocol full, 2 splits"), "{text}");
    // Beside another model and in another order: the same figures.
    let again = run(&models[..1], 2).unwrap();
    let figures = |report: &GadReport| (report.models[0].validation, report.models[0].test);
    assert_eq!(figures(&again), figures(&report));

    let refused = |models: &[Model], splits| run(models, splits).unwrap_err().exit_code();
    let unsuited = [named("booster-events")];
    assert_eq!([refused(&unsuited, 1), refused(&models, 0), refused(&[models[0], models[0]], 1)], [2; 3]);
}

#[test]
fn too_few_labels_are_refused() {
    let mut dataset = planted();
    assert_eq!(divided(&dataset, Protocol::Semi, 0).unwrap().train.len(), 100);
    dataset.labels.as_mut().unwrap().entries.truncate(90);
    let error = divided(&dataset, Protocol::Semi, 0).unwrap_err().to_string();
    assert!(error.contains("labels of class"), "{error}");
    let shares = |shares| Splits::new(&planted(), &[], Protocol::Full, shares).err().map(|error| error.exit_code());
    assert_eq!([shares([0.7, 0.3]), shares([0.0, 0.2]), shares([0.5, f64::NAN])], [Some(2); 3]);
}

/// What numpy and scikit-learn made of it: `tests/golden/make_gad_splits.py`.
#[test]
fn splits_are_those_of_scikit_learn_and_numpy() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/golden/gad_splits.json")).unwrap();
    let numbers = |value: &serde_json::Value| -> Vec<u32> {
        value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as u32).collect()
    };
    for case in golden["permutations"].as_array().unwrap() {
        let mut random = numpy_random::RandomState::new(case["seed"].as_u64().unwrap() as u32);
        for wanted in case["drawn"].as_array().unwrap() {
            let wanted = numbers(wanted);
            let drawn: Vec<u32> = random.permutation(wanted.len()).into_iter().map(|place| place as u32).collect();
            assert_eq!(drawn, wanted);
        }
    }
    for case in golden["cases"].as_array().unwrap() {
        let [nodes, anomalous] = ["nodes", "anomalous"].map(|key| case[key].as_u64().unwrap() as u32);
        let entries: Vec<(u32, u8)> = (0..nodes).map(|node| (node, u8::from(node * 7 % nodes < anomalous))).collect();
        let mut dataset = planted();
        dataset.labels = Some(Labels { entries });
        for protocol in [Protocol::Full, Protocol::Semi] {
            let Some(splits) = case[protocol.name()].as_object() else { continue };
            let shares = [0, 1].map(|at| case["shares"][at].as_f64().unwrap());
            let labels = &dataset.labels.as_ref().unwrap().entries;
            let division = Splits::new(&dataset, labels, protocol, shares).unwrap();
            for (at, wanted) in splits {
                let split = division.split(at.parse().unwrap()).unwrap();
                for (part, wanted) in
                    [(&split.train, &wanted[0]), (&split.validation, &wanted[1]), (&split.test, &wanted[2])]
                {
                    // Count, sum, and a sum that tells one set of nodes from another.
                    let sums = part.iter().fold([0u64; 3], |[count, sum, square], entry| {
                        let node = u64::from(entry.0);
                        [count + 1, sum + node, square + node * node * u64::from(entry.1 + 1)]
                    });
                    assert_eq!(
                        sums.map(|sum| sum as u32),
                        numbers(wanted)[..],
                        "{nodes} nodes, {protocol:?}, split {at}"
                    );
                }
            }
        }
    }
}

#[test]
fn masks_of_the_data_are_its_splits() {
    let mut dataset = planted();
    let labels = dataset.labels.clone().unwrap();
    let masks = |count: u32| -> Vec<Masks> {
        let part = |from: u32| (from..300).step_by(3).collect();
        (0..count)
            .map(|at| Masks { train: part(at % 3), validation: part((at + 1) % 3), test: part((at + 2) % 3) })
            .collect()
    };
    let mut with = |count| {
        let classes = Classes::of_labels(&labels, NODES).with_masks(masks(count));
        dataset.classes = Some(classes);
        let first = |protocol, at| divided(&dataset, protocol, at).unwrap().train[0].0;
        [first(Protocol::Full, 0), first(Protocol::Full, 1), first(Protocol::Full, 2), first(Protocol::Semi, 1)]
    };
    let drawn = with(0);
    assert_eq!(with(1)[..3], [0, 0, 0], "one mask is every split");
    assert_eq!(with(10)[..3], [0, 1, 2]);
    assert_eq!(with(10)[3], drawn[3], "masks of full are none of semi");
    assert_eq!(with(20)[3], 11 % 3, "ten of full, then ten of semi");
    let division = Splits::new(&dataset, &labels.entries, Protocol::Full, [0.4, 0.2]).unwrap();
    assert_eq!(division.source(), "masks of the data");
}

#[test]
fn an_export_holds_columns_splits_and_settings() {
    let dataset = planted();
    let dir = tempfile::tempdir().unwrap();
    let (path, export) = (dir.path().join("data"), dir.path().join("export"));
    dataset.write(&path).unwrap();
    let models = ["gadbench-forest-raw", "booster", "gcn"].map(named).to_vec();
    let options = GadOptions { data: path, splits: 2, export: Some(export.clone()), ..options(models) };
    super::run::<Flex>(&options, &FlexDevice, Mode::Quiet, &|_| {}).unwrap();
    let read = |name: &str| std::fs::File::open(export.join(name)).unwrap();
    let features: ndarray::Array2<f32> = ndarray_npy::ReadNpyExt::read_npy(read("features.npy")).unwrap();
    let splits: ndarray::Array2<i8> = ndarray_npy::ReadNpyExt::read_npy(read("splits.npy")).unwrap();
    let labels: ndarray::Array1<i8> = ndarray_npy::ReadNpyExt::read_npy(read("labels.npy")).unwrap();
    let settings: serde_json::Value = serde_json::from_reader(read("settings.json")).unwrap();
    assert_eq!((features.nrows(), splits.dim(), labels.len()), (NODES, (NODES, 2), NODES));
    let columns = settings["columns"].as_array().unwrap();
    assert_eq!((columns.len(), settings["inputs"]["raw"].as_array().unwrap().len()), (features.ncols(), 2));
    let raw = dataset.features.as_ref().unwrap();
    assert_eq!(features.row(7).to_vec()[..2], raw.row(7).collect::<Vec<f32>>());
    let split = split(&dataset, 1);
    for (code, part) in [(1, &split.train), (2, &split.validation), (3, &split.test)] {
        assert_eq!(splits.column(1).iter().filter(|&&found| found == code).count(), part.len());
        assert!(
            part.iter()
                .all(|&(node, label)| splits[[node as usize, 1]] == code && labels[node as usize] == label as i8)
        );
    }
    let forest = &settings["models"][0];
    assert_eq!(
        (&forest["name"], forest["candidates"][0]["trees"].as_u64()),
        (&"gadbench-forest-raw".into(), Some(100))
    );
    let booster = &settings["models"][1];
    assert_eq!((&booster["inputs"], booster["candidates"].as_array().unwrap().len()), (&"all".into(), 4));
    assert_eq!(booster["candidates"][1]["random_thresholds"], true);
    assert_eq!(settings["models"].as_array().unwrap().len(), 2, "no network");
    assert!(super::run::<Flex>(&options, &FlexDevice, Mode::Quiet, &|_| {}).is_err(), "never over another export");
}
