//! Explanations of real runs: the numbers add up to the score, removals are what the model says without the edges, and
//! the planted ring of a flagged node is among its strongest neighbours.

use burn::tensor::DType;
use burn_flex::{Flex, FlexDevice};
use graphsieve::data::synth::{SynthConfig, generate_with_rings};
use graphsieve::graph::{Adjacency, Dataset, HeteroGraph, RelationSpec};
use graphsieve::models::attention::{Pass, TripleStreamGat};
use graphsieve::models::device_graph::{DeviceGraph, upload_features};
use graphsieve::models::parameters::{Parameters, to_host};
use graphsieve::models::receptive_field::ReceptiveField;
use graphsieve::models::{ModelSpec, Weights};
use graphsieve::run::evaluation::evaluate_split;
use graphsieve::score::ScoredRun;
use graphsieve::score::explain::{Explanation, explain_run};

use crate::support::Sandbox;

const STAGE2: &str = r#"
task = "stage2"
name = "gat"
[data]
path = "data"
input = "features"
[output]
dir = "runs"
plots = false
"#;

const STAGE1: &str = r#"
task = "stage1"
[data]
path = "data"
[model]
hidden = 16
out = 16
[train]
epochs = 3
[output]
dir = "runs"
plots = false
"#;

/// Trains Stage 2 on `data`.
fn trained(sandbox: &Sandbox, settings: &[&str]) -> ScoredRun {
    let data = sandbox.path("data");
    sandbox.write("run.toml", STAGE2.replace("\"data\"", &format!("{:?}", data.display().to_string())));
    let mut arguments = vec!["--quiet", "train", "run.toml", "--device", "cpu"];
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    sandbox.succeeds(arguments);
    ScoredRun::open(&sandbox.path(&sandbox.only_run("runs")), None).unwrap()
}

fn explained(run: &ScoredRun, nodes: &[u32]) -> Vec<Explanation> {
    explain_run::<Flex>(run, nodes, &FlexDevice).unwrap()
}

/// Logits of the real model on another graph of the same nodes.
fn logits(run: &ScoredRun, graph: &HeteroGraph) -> Vec<f32> {
    let device = FlexDevice;
    let (weights, file) = Weights::read(run.run.path()).unwrap();
    let ModelSpec::Attention(spec) = &weights.spec else { panic!("not Stage 2") };
    let mut parameters = Parameters::<Flex>::from_tensors(&weights.tensors, &file, &device);
    let model = TripleStreamGat::new(spec, &mut parameters).unwrap();
    let features = run.dataset.features.as_ref().unwrap();
    let x = upload_features::<Flex>(graph.node_types(), features, DType::F32, &device).unwrap();
    let graph = DeviceGraph::upload(graph, &device).unwrap();
    let embedded = model.embed(&graph, &ReceptiveField::all(&graph), &x, Pass::default());
    to_host(model.logits(embedded))
}

/// The graph without any edge between two nodes, by global id.
fn without(graph: &HeteroGraph, a: u32, b: u32) -> HeteroGraph {
    let types = graph.node_types();
    let relation = |relation: &graphsieve::graph::Relation| {
        let [src, dst] = [relation.src, relation.dst].map(|t| types[t].offset as u32);
        let mut edges = Vec::new();
        for row in 0..relation.forward.num_rows() {
            for &column in relation.forward.row(row) {
                let ends = (dst + row as u32, src + column);
                if ends != (a, b) && ends != (b, a) {
                    edges.push((row as u32, column));
                }
            }
        }
        RelationSpec {
            name: relation.name.clone(),
            src: relation.src,
            dst: relation.dst,
            stream: relation.stream.clone(),
            primary: relation.primary,
            adjacency: Adjacency::from_edges(relation.forward.num_rows(), relation.forward.num_cols(), &edges),
        }
    };
    let names = types.iter().map(|t| (t.name.clone(), t.count)).collect();
    HeteroGraph::new(names, graph.relations().iter().map(relation).collect()).unwrap()
}

/// Some nodes of every type with edges.
fn some_nodes(graph: &HeteroGraph) -> Vec<u32> {
    let types = graph.node_types();
    types.iter().flat_map(|t| [0, t.count / 2, t.count - 1].map(|local| (t.offset + local) as u32)).collect()
}

pub fn assert_adds_up(found: &Explanation, logit: f64) {
    let near = |name: &str, sum: f64| {
        assert!((sum - logit).abs() < 1e-4, "{}: {name} {sum}, the model's logit is {logit}", found.name);
    };
    near("sum", found.sum);
    let neighbours: f64 = found.neighbours.iter().map(|part| part.contribution).sum();
    near("neighbours", found.base + found.own + neighbours + found.rest);
    near("relations", found.base + found.relations.iter().map(|part| part.contribution).sum::<f64>());
    near("blocks", found.base + found.blocks.iter().map(|part| part.contribution).sum::<f64>());
    near("columns", found.base + found.columns.iter().map(|part| part.contribution).sum::<f64>());
    assert!(found.method.additive && found.method.text.contains("do not add up"));
}

#[test]
fn parts_add_up_to_the_models_logit_and_removals_are_what_it_says_without_the_edges() {
    let concat: &[&str] = &["model.own=always", "model.gate=true", "model.norm=layer", "model.jump=concat"];
    let max: &[&str] = &["model.heads=4", "model.residual=true", "model.norm=layer", "model.jump=max"];
    let pieces: &[&str] = &["model.own=always", "model.pieces=5", "model.residual=true"];
    let runs: [&[&str]; 6] = [&[], &["model.heads=4"], &["model.heads=2", "model.residual=true"], concat, max, pieces];
    for keys in runs {
        let sandbox = Sandbox::with_data();
        let run = trained(&sandbox, &[&["train.epochs=5", "model.hidden=16", "model.out=16"][..], keys].concat());
        let graph = &run.dataset.graph;
        let of_model = logits(&run, graph);
        let nodes = some_nodes(graph);
        let mut removed = 0;
        for found in explained(&run, &nodes) {
            let logit = f64::from(of_model[found.node as usize]);
            assert_adds_up(&found, logit);
            assert_eq!(found.score, run.scores[found.node as usize]);
            for part in found.neighbours.iter().take(2) {
                let cut = logits(&run, &without(graph, found.node, part.node));
                let removal = logit - f64::from(cut[found.node as usize]);
                assert!((part.removal.unwrap() - removal).abs() < 1e-4, "{} without {}", found.name, part.name);
                removed += 1;
            }
        }
        assert!(removed >= nodes.len(), "{removed} removals prove little");
    }
}

#[test]
fn the_planted_ring_of_a_flagged_node_is_among_its_five_strongest_neighbours() {
    let sandbox = Sandbox::new();
    let (dataset, rings) = generate_with_rings(&SynthConfig::default(), &|_, _, _| {}).unwrap();
    dataset.write(&sandbox.path("data")).unwrap();
    let run = trained(&sandbox, &["train.epochs=40", "seed=0"]);
    let graph = &run.dataset.graph;
    let threshold = evaluate_split(&run.scores, &run.dataset, run.split.as_ref().unwrap()).unwrap().threshold;
    for kind in ["user", "seller"] {
        let labels = run.dataset.labels.as_ref().unwrap();
        let flagged = |node: u32| f64::from(run.scores[node as usize]) >= threshold;
        let of_kind = |node: u32| graph.node_types()[graph.type_of(node as usize)].name == kind;
        let anomalies = labels.entries.iter().filter(|(_, label)| *label == 1).map(|&(node, _)| node);
        let cases: Vec<u32> = anomalies.filter(|&node| flagged(node) && of_kind(node)).collect();
        let of_ring = |found: &Explanation| {
            let ring = rings[found.node as usize].unwrap();
            found.neighbours.iter().take(5).filter(|part| rings[part.node as usize] == Some(ring)).count()
        };
        let hits: Vec<usize> = explained(&run, &cases).iter().map(of_ring).collect();
        let found = hits.iter().filter(|&&hits| hits > 0).count();
        let mean = hits.iter().sum::<usize>() as f64 / hits.len() as f64;
        println!("{kind}: {found} of {} cases, {mean:.2} of five", cases.len());
        assert!(cases.len() >= 5, "{kind}: {} cases prove little", cases.len());
        assert!(found * 5 >= cases.len() * 4, "{kind}: the ring is found in {found} of {} cases", cases.len());
        // As many would be no news where all neighbours are of the ring.
        assert!(mean > 2.5, "{kind}: {mean} of five");
    }
}

#[test]
fn stage_1_explains_a_score_by_its_edges() {
    let sandbox = Sandbox::with_data();
    let data = sandbox.path("data").display().to_string();
    sandbox.write("run.toml", STAGE1.replace("\"data\"", &format!("{data:?}")));
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let run = ScoredRun::open(&sandbox.path(&sandbox.only_run("runs")), None).unwrap();
    let with_score: Vec<u32> =
        some_nodes(&run.dataset.graph).into_iter().filter(|&node| run.scores[node as usize].is_finite()).collect();
    assert!(with_score.len() > 3);
    for found in explained(&run, &with_score) {
        let neighbours: f64 = found.neighbours.iter().map(|part| part.contribution).sum();
        assert!((found.own + neighbours + found.rest - found.sum).abs() < 1e-9);
        assert!((1.0 - (-found.sum).exp() - f64::from(found.score)).abs() < 1e-4, "{}", found.name);
        assert!(found.columns.is_empty() && found.base == 0.0);
        assert!(!found.similar.is_empty(), "embeddings have neighbours among the known anomalies");
    }
    let path = run.run.path().display().to_string();
    let other = ["explain", &path, "--node", "0", "--device", "cpu", "--data", "data"];
    sandbox.succeeds(other);
    sandbox.refuses([&other[..], &["--input", "data"]].concat(), 2, &["--input", "Stage 1"]);
}

#[test]
fn the_command_writes_tables_json_and_drawings() {
    let sandbox = Sandbox::with_data();
    let run = trained(&sandbox, &["train.epochs=2", "model.hidden=8", "model.out=8"]);
    let path = run.run.path().display().to_string();
    let explain = ["--quiet", "explain", &path, "--node", "user:U000003", "--device", "cpu"];
    let table = sandbox.succeeds(explain).stdout;
    for text in [
        "user:U000003",
        "log-odds",
        "neighbour",
        "attention",
        "do not add up",
        "feature ",
        " in the model",
        "nearest known",
    ] {
        assert!(table.contains(text), "{text} is missing:\n{table}");
    }
    let json = sandbox.succeeds([&explain[..], &["--format", "json"]].concat()).stdout;
    let found: Explanation = serde_json::from_str(&json).unwrap();
    assert_eq!(found, explained(&run, &[3])[0], "JSON keeps every number");
    assert!(found.similar.iter().all(|part| part.label == 1 && part.part == "train"));
    sandbox.succeeds([&explain[..], &["--out", "why.svg"]].concat());
    let svg = String::from_utf8(sandbox.read("why.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("U000003"));
    assert_eq!(svg.trim_end(), sandbox.succeeds([&explain[..], &["--format", "svg"]].concat()).stdout.trim_end());
    sandbox.refuses([&explain[..], &["--out", "why.svg"]].concat(), 1, &["exists already"]);
    sandbox.succeeds([&explain[..], &["--out", "why.svg", "--force", "--format", "json"]].concat());
    // The data of the run by another name have the same scores, without a split of their labels.
    let other: Explanation = serde_json::from_str(
        &sandbox.succeeds([&explain[..], &["--data", "data", "--format", "json"]].concat()).stdout,
    )
    .unwrap();
    assert_eq!((other.sum, other.neighbours.len()), (found.sum, found.neighbours.len()));
    assert!(other.similar.is_empty());
    sandbox.refuses(["explain", &path, "--node", "seller:nobody"], 2, &["--node seller:nobody", "TYPE:ID"]);
    sandbox.refuses(["explain", "data", "--node", "1"], 2, &["the directory of a run"]);
}

#[test]
fn ids_that_look_like_markup_are_text_in_a_drawing() {
    let sandbox = Sandbox::with_data();
    let mut dataset = Dataset::open(&sandbox.path("data")).unwrap();
    let ids = dataset.ids.as_mut().unwrap();
    for (at, id) in ids.0.iter_mut().flatten().enumerate() {
        *id = format!("<script>alert({at})</script>\"&");
    }
    std::fs::remove_dir_all(sandbox.path("data")).unwrap();
    dataset.write(&sandbox.path("data")).unwrap();
    let run = trained(&sandbox, &["train.epochs=1", "model.hidden=8", "model.out=8"]);
    let path = run.run.path().display().to_string();
    let explain = ["--quiet", "explain", &path, "--node", "3", "--device", "cpu", "--format", "svg"];
    let svg = sandbox.succeeds(explain).stdout;
    assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;alert(3)&lt;/script&gt;&quot;&amp;"), "{svg}");
}
