//! A row's own columns reach its score in Stage 2 where no relation holds loops (`model.own`).

use graphsieve::graph::{Adjacency, Dataset, Features, HeteroGraph, Labels, RelationSpec};
use graphsieve::run::evaluation::read_scores;
use serde_json::Value;

use crate::support::Sandbox;

const SALES: usize = 240;
const SHOPS: usize = 6;

fn is_anomalous(sale: usize) -> bool {
    sale / SHOPS % 4 == 1
}

/// Sales that are joined to their shop alone. A column of a sale gives its label away; shops are all alike.
fn dataset() -> Dataset {
    let sold: Vec<(u32, u32)> = (0..SALES).map(|sale| (sale as u32, (sale % SHOPS) as u32)).collect();
    let sells: Vec<(u32, u32)> = sold.iter().map(|&(sale, shop)| (shop, sale)).collect();
    let relation = |name: &str, src, dst, adjacency| RelationSpec {
        name: name.into(),
        src,
        dst,
        stream: "sold_at".into(),
        primary: name == "sold_at",
        adjacency,
    };
    let relations = vec![
        relation("sold_at", 0, 1, Adjacency::from_edges(SHOPS, SALES, &sells)),
        relation("sold_at_T", 1, 0, Adjacency::from_edges(SALES, SHOPS, &sold)),
    ];
    let graph = HeteroGraph::new(vec![("sale".into(), SALES), ("shop".into(), SHOPS)], relations).unwrap();
    let value = |sale| if is_anomalous(sale) { 1.0 } else { -1.0 };
    let values = (0..SALES).map(value).chain((0..SHOPS).map(|_| 0.0)).flat_map(|own| [own, 1.0]).collect();
    let labels = Labels { entries: (0..SALES).map(|sale| (sale as u32, u8::from(is_anomalous(sale)))).collect() };
    Dataset::new(graph, Some(Features::from_f32(values, SALES + SHOPS, 2)), Some(labels), None)
}

#[test]
fn a_label_that_a_rows_own_columns_tell_is_learned_where_no_relation_holds_loops() {
    let sandbox = Sandbox::new();
    dataset().write(&sandbox.path("data")).unwrap();
    sandbox.write(
        "run.toml",
        "task = \"stage2\"\n[data]\npath = \"data\"\ninput = \"features\"\n[model]\nhidden = 8\nout = 8\n[train]\n\
         epochs = 40\nlearning_rate = 0.02\n[loss]\nlambda_unsup = 0.0\n[output]\nplots = false\n",
    );
    // Test ROC-AUC, and the scores of all sales.
    let trained = |own: &str| {
        let [own, runs] = [format!("model.own={own}"), format!("output.dir={own}")];
        sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu", "--set", &own, "--set", &runs]);
        let run = sandbox.only_run(&runs["output.dir=".len()..]);
        let outcome: Value = serde_json::from_slice(&sandbox.read(&format!("{run}/evaluation.json"))).unwrap();
        let scores = read_scores(&sandbox.path(&format!("{run}/anomaly_scores_stage2.npy")), SALES + SHOPS).unwrap();
        (outcome["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap(), scores)
    };
    let (auc, _) = trained("auto");
    assert_eq!(auc, 1.0, "the column separates them");
    let (auc, scores) = trained("never");
    assert!(auc < 0.7, "{auc}");
    for sale in SHOPS..SALES {
        let [one, other] = [sale, sale % SHOPS].map(|sale| scores[sale]);
        assert!((one - other).abs() < 1e-5, "sales of one shop have one score: {one} and {other}");
    }
}
