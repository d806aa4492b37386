//! Explanations of runs of node classification: the numbers are those of the probabilities that the run has.

use burn_flex::{Flex, FlexDevice};
use graphsieve::graph::{Adjacency, Classes, Dataset, Features, HeteroGraph, RelationSpec};
use graphsieve::run::ensemble::Ensemble;
use graphsieve::score::ScoredRun;
use graphsieve::score::explain::{Explanation, explain_run, open_run};
use serde_json::{Value, json};

use crate::explain::assert_adds_up;
use crate::support::Sandbox;

const NODES: usize = 60;
const WIDTH: usize = 9;

/// Every node has edges to some of its class and one to another, and a column of its class.
fn dataset(classes: usize) -> Dataset {
    let edges = (0..NODES as u32).flat_map(|a| {
        let of_class = [classes as u32, 5 * classes as u32].map(|step| (a, (a + step) % NODES as u32));
        of_class.into_iter().chain([(a, (a * a + 1) % NODES as u32)])
    });
    let edges: Vec<(u32, u32)> = edges.flat_map(|(a, b)| [(a, b), (b, a)]).collect();
    let adjacency = Adjacency::from_edges(NODES, NODES, &edges);
    let spec = RelationSpec::new("cites", 0, 0, adjacency);
    let graph = HeteroGraph::new(vec![("paper".into(), NODES)], vec![spec]).unwrap();
    let value = |at: usize| match (at / WIDTH, at % WIDTH) {
        (node, column) if column == node % classes => 1.0,
        (node, column) => ((node * 7 + column * 5) % 11) as f32 / 11.0,
    };
    let features = Features::from_f32((0..NODES * WIDTH).map(value).collect(), NODES, WIDTH);
    let of_node = (0..NODES).map(|node| (node % 7 != 6).then_some((node % classes) as u32)).collect();
    Dataset { classes: Some(Classes::new(of_node)), ..Dataset::new(graph, Some(features), None, None) }
}

/// Trains on `data`; the directory of the run.
fn trained(sandbox: &Sandbox, classes: usize, layer: &str) -> String {
    dataset(classes).write(&sandbox.path("data")).unwrap();
    let data = sandbox.path("data").display().to_string();
    let heads = if layer == "gat" { "heads = 2\nout_heads = 2\n" } else { "" };
    sandbox.write(
        "run.toml",
        format!(
            "task = \"classify\"\n[data]\npath = {data:?}\n[model]\nlayer = \"{layer}\"\nhidden = 8\n{heads}[train]\n\
             epochs = 30\n[split]\nuse = \"random\"\n[output]\ndir = \"runs\"\nplots = false\n"
        ),
    );
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    sandbox.only_run("runs")
}

fn explained(run: &ScoredRun, nodes: &[u32]) -> Vec<Explanation> {
    explain_run::<Flex>(run, nodes, &FlexDevice).unwrap()
}

/// The logit of a class less the mean of the others, from probabilities: what they have in common cancels out.
fn margin(run: &ScoredRun, node: u32, class: u32) -> f64 {
    let row = run.classes.as_ref().unwrap().probabilities().row(node as usize);
    let logits: Vec<f64> = row.iter().map(|&p| f64::from(p).ln()).collect();
    let others = logits.iter().sum::<f64>() - logits[class as usize];
    logits[class as usize] - others / (logits.len() - 1) as f64
}

#[test]
fn parts_add_up_to_the_margin_of_the_class_and_removals_are_what_the_model_says_of_other_data() {
    for layer in ["gcn", "gat", "sage"] {
        let sandbox = Sandbox::new();
        let path = sandbox.path(&trained(&sandbox, 3, layer));
        for class in [None, Some(2)] {
            let run = ScoredRun::open(&path, class).unwrap();
            let nodes: Vec<u32> = (0..NODES as u32).collect();
            let probabilities = run.classes.as_ref().unwrap().probabilities();
            for found in explained(&run, &nodes) {
                let its = found.class.unwrap();
                assert_eq!(Some(its), run.class_of(found.node));
                assert_eq!(found.score, probabilities[[found.node as usize, its as usize]]);
                assert_eq!(
                    (found.probability, &found.unit),
                    (run.probability(found.node), &format!("margin of class {its}"))
                );
                assert_adds_up(&found, margin(&run, found.node, its));
                for part in &found.neighbours {
                    let known = (part.node % 7 != 6).then_some(u8::from(part.node % 3 == its));
                    let score = probabilities[[part.node as usize, its as usize]];
                    assert_eq!((part.label, part.score), (known, Some(score)), "of the same class");
                }
            }
        }
        let run = ScoredRun::open(&path, Some(1)).unwrap();
        let [found] = &explained(&run, &[4])[..] else { panic!("one node was asked for") };
        let part = &found.neighbours[0];
        let whole = dataset(3);
        let ends = (part.node.min(4), part.node.max(4));
        let cut = Dataset { graph: whole.graph.without_pairs(|a, b| (a, b) == ends), ..whole };
        cut.write(&sandbox.path("cut")).unwrap();
        let other = open_run::<Flex>(&path, Some(1), Some(&sandbox.path("cut")), None, &FlexDevice).unwrap();
        let removal = found.sum - margin(&other, 4, 1);
        assert!((part.removal.unwrap() - removal).abs() < 1e-4, "{layer}: {removal}");
        assert_adds_up(&explained(&other, &[4])[0], margin(&other, 4, 1));
    }
}

#[test]
fn of_two_classes_the_log_odds_are_explained() {
    let sandbox = Sandbox::new();
    let path = sandbox.path(&trained(&sandbox, 2, "gcn"));
    let run = ScoredRun::open(&path, None).unwrap();
    for found in explained(&run, &[0, 5, 9]) {
        assert_eq!((found.class, found.unit.as_str()), (Some(1), "log-odds"));
        let score = f64::from(found.score);
        assert_adds_up(&found, (score / (1.0 - score)).ln());
        assert!(found.neighbours.iter().all(|part| part.attention.is_none()), "a convolution has no attention");
    }
}

#[test]
fn the_command_takes_a_class() {
    let sandbox = Sandbox::new();
    let run = trained(&sandbox, 3, "gat");
    let explain = ["--quiet", "explain", &run, "--node", "paper:7", "--device", "cpu"];
    let table = sandbox.succeeds([&explain[..], &["--class", "2"]].concat()).stdout;
    for text in ["paper:7  class 2", "margin of class 2", "attention", "biases of the hidden layers", "of another"] {
        assert!(table.contains(text), "{text} is missing:\n{table}");
    }
    let json = sandbox.succeeds([&explain[..], &["--format", "json"]].concat()).stdout;
    let found: Explanation = serde_json::from_str(&json).unwrap();
    let opened = ScoredRun::open(&sandbox.path(&run), None).unwrap();
    assert_eq!(found, explained(&opened, &[7])[0], "JSON keeps every number");
    let svg = sandbox.succeeds([&explain[..], &["--format", "svg"]].concat()).stdout;
    assert!(svg.contains("known to be of the class") && !svg.contains("anomaly"));
    sandbox.refuses([&explain[..], &["--class", "3"]].concat(), 2, &["--class 3", "a class of the model: 0, 1, 2"]);
    sandbox.refuses([&explain[..], &["--input", "z.npy"]].concat(), 2, &["--input", "a node classifier"]);
}

#[test]
fn an_ensemble_says_what_each_of_its_members_says() {
    let sandbox = Sandbox::new();
    let own = trained(&sandbox, 2, "sage");
    let members = ["gcn", "bw"].map(|layer| {
        let set = ["model.layer", "output.dir"].map(|key| format!("{key}={layer}"));
        sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu", "--set", &set[0], "--set", &set[1]]);
        (layer.to_owned(), sandbox.path(&sandbox.only_run(layer)))
    });
    let record = serde_json::to_string(&Ensemble::of_restarts(members)).unwrap();
    sandbox.write(&format!("{own}/ensemble.json"), record);
    let explain = ["--quiet", "explain", &own, "--node", "3", "--device", "cpu"];
    let told = sandbox.succeeds(explain).stdout;
    assert!(told.contains("the mean of the probabilities of gcn, bw\n\ngcn\n"), "{told}");
    assert!(told.contains("\nbw\n") && told.contains("within two edges"), "{told}");
    let why: Value =
        serde_json::from_str(&sandbox.succeeds([&explain[..], &["--format", "json"]].concat()).stdout).unwrap();
    let explained: Vec<&Value> = why["members"].as_array().unwrap().iter().map(|of| &of["member"]).collect();
    assert_eq!((explained, &why["not_explained"]), (vec![&json!("gcn"), &json!("bw")], &json!([])));
    sandbox.refuses([&explain[..], &["--format", "svg"]].concat(), 2, &["--format svg", "members"]);
    sandbox.succeeds(["--quiet", "report", &own, "--device", "cpu", "--top", "3"]);
    let report = String::from_utf8(sandbox.read(&format!("{own}/report.html"))).unwrap();
    assert!(report.contains("The reasons are those of gcn alone, not of bw, which the ensemble averages, too."));
}
