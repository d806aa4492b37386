use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::PathBuf;

use burn_flex::{Flex, FlexDevice};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::config::{
    ClassifyConfig, Jump, LayerKind, NeighbourhoodConfig, Norm, Over, Stage1Config, Stage2Config, Stage2Data,
    Stage2Input, Stage3Config,
};
use crate::graph::{
    Adjacency, EdgeColumns, EdgeValues, Events, Features, Filling, HeteroGraph, IdMaps, Labels, RelationSpec, Spill,
    Values,
};
use crate::infer::tree_table::{TableModel, TableOptions};
use crate::live::{Layer, MadeRows, Makes};
use crate::models::attention::{AttentionSpec, Connections, edge_inputs};
use crate::models::auto_encoder::AutoEncoderSpec;
use crate::models::node_classifier::ClassifierSpec;
use crate::models::parameters::Parameters;
use crate::models::tree_ensemble::{TreeCheckpoint, TreeEnsemble, TreeInputs};
use crate::models::weights::{ModelSpec, Weights};
use crate::models::{NodeClassifier, TripleStreamGae, TripleStreamGat};
use crate::run::Meta;
use crate::run::known_labels::{KNOWN_LABELS_FILE, KnownLabels};
use crate::score::{ScoreOptions, Scores, compute};
use crate::trees::{BinRule, Booster, BoosterParams, Fit, Matrix};

const DEVICE: FlexDevice = FlexDevice;
const COLUMNS: usize = 5;
const PAYMENTS: usize = 64;
const CARDS: usize = PAYMENTS / 4;

/// Payments in a chain, four behind each other of every card, with values on the edges to them.
struct Fixture {
    dir: tempfile::TempDir,
    dataset: Dataset,
}

impl Fixture {
    fn new(timed: bool) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let used: Vec<(u32, u32)> = (0..PAYMENTS as u32).map(|at| (at, at / 4)).collect();
        let next: Vec<(u32, u32)> = (1..PAYMENTS as u32).flat_map(|at| [(at, at - 1), (at - 1, at)]).collect();
        let spec = |name: &str, src, adjacency| RelationSpec::new(name, src, 1, adjacency);
        let relations = vec![
            spec("used", 0, Adjacency::from_edges(PAYMENTS, CARDS, &used)),
            spec("next", 1, Adjacency::from_edges(PAYMENTS, PAYMENTS, &next)),
        ];
        let types = vec![("card".into(), CARDS), ("payment".into(), PAYMENTS)];
        let graph = HeteroGraph::with_reverse_relations(types, relations, |_| false).unwrap();
        let nodes = graph.num_nodes();
        let mut value = |lacks: bool| if lacks { f32::NAN } else { rng.random_range(-1.0..1.0) };
        let features = (0..nodes * COLUMNS).map(|at| value(at % COLUMNS == 4 && at % 3 == 0)).collect();
        let amounts: Vec<f32> = (0..PAYMENTS * 2).map(|_| value(false)).collect();
        let columns =
            Some(EdgeColumns { names: vec!["amount".into(), "fee".into()], values: Values::Made(amounts.into()) });
        let edge_values = vec![EdgeValues { relation: "used".into(), weight: None, time: None, columns }];
        let time = |at: usize| if at < CARDS { Events::NO_TIME } else { 1000 + 60 * at as i64 };
        let known = |at: usize| if at < CARDS { Events::NEVER } else { time(at) + 600 };
        let events = Events {
            time: (0..nodes).map(time).collect(),
            known: (0..nodes).map(known).collect(),
            amount: None,
            value: None,
            alert: None,
        };
        let named = |of: &str, count: usize| (0..count).map(|at| format!("{of}{at}")).collect();
        let ids = IdMaps(vec![named("c", CARDS), named("p", PAYMENTS)]);
        let labels = Labels { entries: (CARDS as u32..nodes as u32).map(|at| (at, u8::from(at % 3 == 0))).collect() };
        let features = Features::from_f32(features, nodes, COLUMNS);
        let made = Dataset::new(graph, Some(features), Some(labels), Some(ids));
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        Dataset { edge_values, events: timed.then_some(events), ..made }.write(&data).unwrap();
        let dataset = Dataset::open(&data).unwrap();
        Self { dir, dataset }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn with_values(&self) -> HeteroGraph {
        self.dataset.graph_with_edge_values().unwrap()
    }

    fn filling(&self) -> Filling {
        Filling::fit(self.dataset.features.as_ref().unwrap(), &vec![true; self.dataset.graph.num_nodes()])
    }

    fn run(&self, name: &str, config: &RunConfig) -> RunDir {
        RunDir::create(self.dir.path(), name, &config.to_toml().unwrap(), Meta::now("cpu", 1)).unwrap()
    }

    /// A network with all that it can have, or with one head and labels.
    fn stage2(&self, rich: bool, input: Stage2Input) -> RunDir {
        let graph = self.with_values();
        let given = if input == Stage2Input::Features { COLUMNS + 1 } else { 8 };
        // Embeddings of both have 24 columns, so that folds of both have a mean.
        let output = if rich { 12 } else { 24 };
        let mut spec = AttentionSpec {
            own: vec![None, Some("payment".into())],
            labels: !rich,
            ..AttentionSpec::new(graph.streams(), given, [12, output], 1)
        };
        if rich {
            let connections = Connections { residual: true, gate: true, norm: Norm::Layer, jump: Jump::Concat };
            spec = AttentionSpec { heads: 2, edges: edge_inputs(&graph, None), connections, ..spec };
        } else {
            spec.input += 2;
        }
        let mut config = Stage2Config::new(self.data());
        config.data = Stage2Data { input, ..config.data };
        let run = self.run("stage2", &RunConfig::Stage2(config));
        let model = TripleStreamGat::<Flex>::new(&spec, &mut Parameters::from_seed(5, &DEVICE)).unwrap();
        write(&run, ModelSpec::Attention(spec.clone()), model.export(&spec).0);
        self.filling().keep(run.path()).unwrap();
        if spec.labels {
            self.known().write(run.path(), &self.dataset).unwrap();
        }
        run
    }

    fn known(&self) -> KnownLabels {
        let train: Vec<(u32, u8)> = self
            .dataset
            .labels
            .iter()
            .flat_map(|of| of.entries.iter().copied())
            .filter(|(node, _)| node % 4 != 1)
            .collect();
        KnownLabels::of(&self.dataset, &train, 0.65, 1)
    }

    /// Stage 1, at a place.
    fn stage1(&self) -> RunDir {
        let graph = &self.dataset.graph;
        let spec = AutoEncoderSpec {
            streams: graph.streams().into_iter().map(String::from).collect(),
            node_types: graph.node_types().iter().map(|of| of.name.clone()).collect(),
            input: COLUMNS + 1,
            hidden: 8,
            output: 8,
            causal: self.dataset.events.is_some(),
            weighted: Vec::new(),
        };
        let run = self.run("stage1", &RunConfig::Stage1(Stage1Config::new(self.dir.path().join("elsewhere"))));
        let model = TripleStreamGae::<Flex>::new(&spec, &mut Parameters::from_seed(6, &DEVICE)).unwrap();
        write(&run, ModelSpec::AutoEncoder(spec.clone()), model.export(&spec).0);
        self.filling().keep(run.path()).unwrap();
        run
    }

    /// A run whose embeddings are made by the Stage 1 that it keeps.
    fn on_embeddings(&self) -> RunDir {
        let (run, stage1) = (self.stage2(true, Stage2Input::Embeddings), self.stage1());
        fs::rename(stage1.path(), run.path().join("stage1")).unwrap();
        run
    }

    /// Trees on all columns that there are; or on embeddings of the nodes themselves, beside a network without labels.
    fn stage3(&self, own: bool) -> RunDir {
        let neighbourhood = NeighbourhoodConfig {
            max: true,
            sum: true,
            quantiles: vec![0.5],
            edge_values: true,
            over: Over::Both,
            ..Default::default()
        };
        let label_share = self.dataset.events.is_none() && !own;
        let folds = ["folds/a", "folds/b"].map(PathBuf::from);
        let inputs = TreeInputs {
            neighbourhood,
            embedding: true,
            reconstruction: !own,
            stage2_score: true,
            stage2_embedding: true,
            label_share,
            folds: folds[..if own { 1 } else { 2 }].to_vec(),
        };
        let mut config = Stage3Config::new(self.data());
        let of_features = |config: Stage2Config| {
            let data = Stage2Data { input: Stage2Input::Features, ..config.data };
            Stage2Config { data, ..config }
        };
        config.stage2 = Some(of_features(Stage2Config::new(self.data())));
        config.features.stage2_score = true;
        let run = self.run("stage3", &RunConfig::Stage3(config));
        fs::create_dir_all(run.path().join("folds")).unwrap();
        for (name, rich) in [("a", true), ("b", false)] {
            let fold = self.stage2(rich, Stage2Input::Features);
            fs::rename(fold.path(), run.path().join("folds").join(name)).unwrap();
        }
        fs::rename(self.stage1().path(), run.path().join("stage1")).unwrap();
        if label_share {
            self.known().write(run.path(), &self.dataset).unwrap();
        }
        let data = self.data();
        let options = TableOptions {
            checkpoint: run.path(),
            run: Some(run.path()),
            data: &data,
            input: None,
            spill: &Spill::default(),
        };
        // Grown on the table that it will read.
        let nothing = booster(&[0.0, 1.0].repeat(50), vec!["x0".into()]);
        let mut checkpoint = TreeCheckpoint { inputs, ensemble: TreeEnsemble::Booster(nothing) };
        let model = TableModel::<Flex>::open(&options, &checkpoint, &self.dataset, &DEVICE).unwrap();
        let z = |_: &Spill| model.source().read::<Flex>(&self.dataset, &data, &Spill::default(), &DEVICE);
        let labels = model.labels(&self.dataset, &data).unwrap();
        let table = model.table(&self.dataset, &data, &labels, z, (&Spill::default(), false)).unwrap();
        let rows: Vec<f32> = (0..table.num_rows()).flat_map(|node| table.row(node)).collect();
        let names: Vec<String> = table.columns().iter().map(|column| column.name.clone()).collect();
        checkpoint.ensemble = TreeEnsemble::Booster(booster(&rows, names));
        fs::create_dir_all(run.path().join("checkpoint")).unwrap();
        checkpoint.write(&run.path().join("checkpoint/best.trees")).unwrap();
        run
    }

    fn classifier(&self, layer: LayerKind, classes: usize) -> RunDir {
        let config = ClassifyConfig::new(layer, self.data());
        let spec = ClassifierSpec {
            attention: crate::models::node_classifier::AttentionShape::of(&config.model),
            row_normalise: true,
            connections: Connections { norm: Norm::Layer, ..Connections::default() },
            ..ClassifierSpec::new(layer, [COLUMNS + 1, 8, classes], 2)
        };
        let spec = spec.over(&self.dataset.graph).unwrap();
        let run = self.run("classify", &RunConfig::Classify(config));
        let model = NodeClassifier::<Flex>::new(&spec, &mut Parameters::from_seed(7, &DEVICE), &DEVICE).unwrap();
        write(&run, ModelSpec::NodeClassifier(spec.clone()), model.export(&spec).0);
        self.filling().keep(run.path()).unwrap();
        run
    }

    /// What is within some edges of some nodes; rows of the nodes at the border are left out.
    fn part(&self, targets: &[u32], hops: usize) -> Part {
        let graph = self.with_values();
        let types = graph.node_types();
        let local = |node: u32| node as usize - types[graph.type_of(node as usize)].offset;
        let mut found: Vec<Vec<u32>> = vec![Vec::new(); types.len()];
        let mut places: HashMap<u32, u32> = HashMap::new();
        let mut add = |node: u32, found: &mut Vec<Vec<u32>>| {
            let of_type = &mut found[graph.type_of(node as usize)];
            let is_new = !places.contains_key(&node);
            if is_new {
                places.insert(node, of_type.len() as u32);
                of_type.push(node);
            }
            is_new
        };
        let (mut border, mut inner) = (targets.to_vec(), Vec::new());
        for &node in targets {
            add(node, &mut found);
        }
        let mut into = |node: u32, found: &mut Vec<Vec<u32>>, next: &mut Vec<u32>| {
            for relation in graph.relations().iter().filter(|relation| relation.dst == graph.type_of(node as usize)) {
                for &source in relation.forward.row(local(node)) {
                    let source = types[relation.src].offset as u32 + source;
                    if add(source, found) {
                        next.push(source);
                    }
                }
            }
        };
        for _ in 0..hops {
            let mut next = Vec::new();
            border.iter().for_each(|&node| into(node, &mut found, &mut next));
            inner.append(&mut border);
            border = next;
        }
        let counts: Vec<usize> = found.iter().map(Vec::len).collect();
        let (mut forward, mut edge_values) = (Vec::new(), Vec::new());
        for relation in graph.relations() {
            let (mut row_ptr, mut col_idx, mut values) = (vec![0u64], Vec::new(), Vec::<f32>::new());
            for &node in &found[relation.dst] {
                if inner.contains(&node) {
                    for (entry, &at) in relation.forward.entries(local(node)).zip(relation.forward.row(local(node))) {
                        col_idx.push(places[&(types[relation.src].offset as u32 + at)]);
                        values.extend(relation.values.iter().flat_map(|values| values.row(entry)));
                    }
                }
                row_ptr.push(col_idx.len() as u64);
            }
            forward.push(Adjacency::new(row_ptr, col_idx, counts[relation.src]).unwrap());
            if relation.values.is_some() {
                let names = vec!["amount".into(), "fee".into()];
                let columns = Some(EdgeColumns { names, values: Values::Made(values.into()) });
                edge_values.push(EdgeValues { relation: relation.name.clone(), weight: None, time: None, columns });
            }
        }
        let nodes = found.concat();
        let of = &self.dataset;
        let events = of.events.as_ref().map(|events| Events {
            time: nodes.iter().map(|&node| events.time[node as usize]).collect(),
            known: nodes.iter().map(|&node| events.known[node as usize]).collect(),
            amount: None,
            value: None,
            alert: None,
        });
        let ids = IdMaps(
            found.iter().map(|of_type| of_type.iter().map(|&node| of.id_of(node).into_owned()).collect()).collect(),
        );
        let features = of.features.as_ref().map(|features| features.select(&nodes));
        let part = graph.with_rows(&counts, forward);
        let offsets: Vec<usize> = part.node_types().iter().map(|of| of.offset).collect();
        let place = |node: u32| offsets[graph.type_of(node as usize)] as u32 + places[&node];
        let targets = targets.iter().map(|&node| place(node)).collect();
        let dataset = Dataset { edge_values, events, ..Dataset::new(part, features, None, Some(ids)) };
        Part { dataset, targets, refreshed: nodes.into_iter().map(Some).collect(), made: BTreeMap::new() }
    }
}

fn write(
    run: &RunDir,
    spec: ModelSpec,
    tensors: std::collections::BTreeMap<String, crate::models::parameters::HostTensor>,
) {
    fs::create_dir_all(run.path().join("checkpoint")).unwrap();
    let weights = Weights { spec, tensors, training: None };
    weights.write_native(&run.path().join("checkpoint/best.bpk")).unwrap();
}

/// Grown on rows every third of which is anomalous.
fn booster(rows: &[f32], names: Vec<String>) -> Booster {
    let data = crate::trees::Dataset::new(&Matrix::f32(rows, names.len()).unwrap(), &BinRule::default()).unwrap();
    let labels: Vec<f32> = (0..data.rows()).map(|row| f32::from(u8::from(row % 3 == 0))).collect();
    let params = BoosterParams { rounds: 20, ..BoosterParams::default() };
    Booster::fit(&data.with_names(names).unwrap(), Fit::labels(&labels), &params).unwrap()
}

fn bits(scores: &[Vec<f32>]) -> Vec<u32> {
    scores.iter().flatten().map(|score| score.to_bits()).collect()
}

/// Whole parts have the scores of `score`, to the bit in any company; a node that is new has that of the same node.
fn check(of: &Fixture, run: &RunDir, reads_labels: bool) {
    let options = ScoreOptions::new(run.path(), of.data());
    let expected = match compute::<Flex>(&options, &DEVICE).unwrap().scores {
        Scores::Anomaly(scores) => scores,
        Scores::Classes(probabilities) => probabilities.column(1).to_vec(),
    };
    let prepared = Prepared::<Flex>::open(run.path(), &of.data(), &of.dataset, &DEVICE).unwrap();
    let refreshed = prepared.refresh(&of.dataset).unwrap();
    let nodes = of.dataset.graph.num_nodes() as u32;
    let parts: Vec<Part> = (0..nodes).map(|node| of.part(&[node], prepared.hops())).collect();
    assert!(
        parts.iter().any(|part| part.refreshed.len() < nodes as usize),
        "{}: a part is no part",
        run.path().display()
    );
    let together = prepared.scores(&parts, &refreshed).unwrap();
    for (node, (found, expected)) in together.iter().zip(&expected).enumerate() {
        let same = (found[0] - expected).abs() < 1e-6 || found[0].is_nan() && expected.is_nan();
        assert!(same, "{}: {node}: {} and {expected}", run.path().display(), found[0]);
    }
    let alone: Vec<Vec<f32>> = parts
        .iter()
        .map(|part| prepared.scores(std::slice::from_ref(part), &refreshed).unwrap().swap_remove(0))
        .collect();
    assert!(bits(&alone) == bits(&together), "{}: alone", run.path().display());
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
    for some in order.chunks(7) {
        let few: Vec<Part> = some.iter().map(|&at| parts[at].clone()).collect();
        let expected: Vec<Vec<f32>> = some.iter().map(|&at| alone[at].clone()).collect();
        assert!(bits(&prepared.scores(&few, &refreshed).unwrap()) == bits(&expected), "{}: few", run.path().display());
    }
    for node in [20, nodes / 2, nodes - 1] {
        let mut part = parts[node as usize].clone();
        let why = prepared.explain(&part, &refreshed, 0).unwrap();
        assert!(why.score > 0.0 && !why.neighbours.is_empty());
        assert_eq!(why.name, format!("payment:p{}", node as usize - CARDS));
        // What is new has no label of its own, so that it may see more of others.
        if !reads_labels {
            part.refreshed[part.targets[0] as usize] = None;
            let score = prepared.scores(std::slice::from_ref(&part), &refreshed).unwrap();
            assert!((score[0][0] - expected[node as usize]).abs() < 1e-6, "{}: new {node}", run.path().display());
            assert!((why.score - expected[node as usize]).abs() < 1e-6);
            let among = prepared.scores(&[parts[18].clone(), part.clone(), parts[30].clone()], &refreshed).unwrap();
            assert!(bits(&among[1..2]) == bits(&score), "{}: new {node} among others", run.path().display());
            // What is kept of nodes is all that is needed of what is further away.
            let (hops, makes) = prepared.reach();
            if makes == Makes::default() {
                continue;
            }
            let hops = if makes.networks > 0 { hops - 1 } else { hops };
            let (mut kept, mut close) = (HashMap::new(), of.part(&[node], hops));
            for part in [&mut part, &mut close] {
                part.refreshed[part.targets[0] as usize] = None;
                for at in 0..part.refreshed.len() as u32 {
                    let id = (part.dataset.graph.type_of(at as usize), part.dataset.id_of(at).into_owned());
                    part.made.insert(at, kept.entry(id).or_insert_with(|| MadeRows::new(makes.networks)).clone());
                }
                let found = prepared.scores(std::slice::from_ref(part), &refreshed).unwrap();
                assert!(bits(&found) == bits(&score), "{}: {node} kept", run.path().display());
            }
            let of_target = &part.made[&part.targets[0]];
            assert_eq!(of_target.get(Layer::Embedding).is_some(), makes.embeddings.is_some());
            assert_eq!(of_target.get(Layer::Network(0)).is_some(), makes.networks > 0);
        }
    }
}

#[test]
fn parts_have_the_scores_of_the_whole_with_attention_over_features() {
    for timed in [false, true] {
        let of = Fixture::new(timed);
        let (rich, labelled) = (of.stage2(true, Stage2Input::Features), of.stage2(false, Stage2Input::Features));
        check(&of, &rich, false);
        check(&of, &labelled, true);
        let ensemble = of.run("ensemble", &RunConfig::Auto(crate::config::AutoConfig::new(of.data())));
        let member = |run: &RunDir| PathBuf::from("..").join(run.path().file_name().unwrap());
        let members = [("a".into(), member(&rich)), ("b".into(), member(&labelled))];
        Ensemble::of_restarts(members).write(&ensemble).unwrap();
        check(&of, &ensemble, true);
    }
}

#[test]
fn parts_have_the_scores_of_the_whole_with_embeddings() {
    for timed in [false, true] {
        let of = Fixture::new(timed);
        check(&of, &of.on_embeddings(), false);
        check(&of, &of.stage1(), false);
    }
}

#[test]
fn parts_have_the_scores_of_the_whole_with_trees() {
    for timed in [false, true] {
        let of = Fixture::new(timed);
        check(&of, &of.stage3(false), true);
        check(&of, &of.stage3(true), false);
    }
}

#[test]
fn parts_have_the_scores_of_the_whole_with_classifiers_of_two_classes() {
    let of = Fixture::new(false);
    for layer in [LayerKind::Gcn, LayerKind::Gat, LayerKind::Sage] {
        check(&of, &of.classifier(layer, 2), false);
    }
    let run = of.classifier(LayerKind::Sage, 3);
    let refused = Prepared::<Flex>::open(run.path(), &of.data(), &of.dataset, &DEVICE).err().unwrap();
    assert_eq!(refused.exit_code(), 2);
    assert!(refused.to_string().contains("found 3 classes"), "{refused}");
}

#[test]
fn a_label_tells_of_others_and_never_of_its_own_node() {
    for timed in [false, true] {
        let of = Fixture::new(timed);
        let run = of.stage2(false, Stage2Input::Features);
        let nodes: Vec<u32> = (CARDS as u32 + 20..CARDS as u32 + 24).collect();
        let scores = || {
            let prepared = Prepared::<Flex>::open(run.path(), &of.data(), &of.dataset, &DEVICE).unwrap();
            let refreshed = prepared.refresh(&of.dataset).unwrap();
            prepared.scores(&[of.part(&nodes, prepared.hops())], &refreshed).unwrap().swap_remove(0)
        };
        let before = scores();
        let file = run.path().join(KNOWN_LABELS_FILE);
        let text = fs::read_to_string(&file).unwrap();
        // Node 36 + 2 is payment 22, of the training labels.
        let label = |label: u8| format!("\"id\":\"p22\",\"label\":{label}");
        let own = of.dataset.labels.as_ref().unwrap().entries[22].1;
        assert!(text.contains(&label(own)), "{text}");
        fs::write(&file, text.replace(&label(own), &label(1 - own))).unwrap();
        let after = scores();
        assert_eq!(before[2].to_bits(), after[2].to_bits());
        // Events see what was known before them.
        assert_eq!(before != after, !timed);
    }
}
