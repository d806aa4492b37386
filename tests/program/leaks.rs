//! A leak of every kind that looks ahead, planted and noticed, and the models that are shipped for payments, which have
//! none.

use std::path::{Path, PathBuf};

use burn_flex::Flex;
use graphsieve::config::{NeighbourhoodConfig, Over, RunConfig};
use graphsieve::features::{Execution, Neighbourhood};
use graphsieve::graph::{Dataset, Spill};
use graphsieve::infer::embed::Stage1;
use graphsieve::run::evaluation::read_scores;

use crate::causal::{
    ALL, ByName, LATER, Leak, Past, Payment, WINDOW, before, changed, computed, dataset_with, payments, payments_at,
    run, stage1,
};
use crate::support::repository;

/// Columns of a matrix, `[nodes, width]`, of the payments before `time`.
fn columns_before(payments: &[Payment], time: i64, width: usize, value: impl Fn(usize, usize) -> f32) -> Vec<ByName> {
    let nodes = dataset_with(payments, Leak::Nothing, Past::Copies).graph.num_nodes();
    let column = |at: usize| (0..nodes).map(|node| value(node, at)).collect::<Vec<_>>();
    (0..width).map(|at| before(payments, time, &column(at))).collect()
}

/// A neighbour that sends to many counts less: of that, nothing may be known of later payments.
#[test]
fn a_normalisation_by_out_degrees_is_noticed_and_that_of_events_reads_none() {
    let (now, later) = (payments(), changed(&payments(), LATER, LATER));
    let stays = |has_events: bool| {
        let data = |payments: &[Payment]| {
            let data = dataset_with(payments, Leak::Nothing, Past::Copies);
            if has_events { data } else { Dataset { events: None, split: None, ..data } }
        };
        let dir = tempfile::tempdir().unwrap();
        data(&now).write(&dir.path().join("data")).unwrap();
        let model = Stage1::open(&run(RunConfig::Stage1(stage1(dir.path())))).unwrap();
        let [a, b] = [&now, &later].map(|payments| {
            let z = model
                .embed::<Flex>(&data(payments), Path::new("data"), &Spill::default(), &Default::default())
                .unwrap();
            let z = z.as_f32();
            columns_before(payments, LATER, z.ncols(), |node, at| z[[node, at]])
        });
        a == b
    };
    assert!(stays(true));
    assert!(!stays(false), "out-degrees");
}

#[test]
fn neighbourhood_features_that_look_ahead_are_noticed_and_the_others_do_not() {
    let (now, later) = (payments(), changed(&payments(), LATER, LATER));
    let config = NeighbourhoodConfig { max: true, sum: true, over: Over::Both, ..Default::default() };
    let stays = |leak: Leak, past: Past| {
        let [a, b] = [&now, &later].map(|payments| {
            let data = dataset_with(payments, leak, past);
            let plan = Neighbourhood::new(&data.graph, data.features.as_ref().unwrap(), &config).unwrap();
            let table = plan.table::<Flex>(&Default::default(), Execution::default()).unwrap();
            let rows: Vec<Vec<f32>> = (0..table.num_rows()).map(|node| table.row(node)).collect();
            columns_before(payments, LATER, table.columns().len(), |node, at| rows[node][at])
        });
        assert!(a.len() > 30, "{} columns", a.len());
        a == b
    };
    assert!(stays(Leak::Nothing, Past::Copies) && stays(Leak::Nothing, ALL));
    assert!(!stays(Leak::LaterEdge, Past::Copies), "later edge");
    assert!(!stays(Leak::EntityState, Past::Copies), "state of an entity");
}

/// The shipped configurations for payments on the data in `dir`, only smaller: attention that reads columns in pieces
/// from the latest sampled payments, and a booster with fine bins.
fn shipped(dir: &Path) -> [RunConfig; 2] {
    let config = |file: &str, more: &[&str]| {
        let path = |name: &str| dir.join(name).display().to_string();
        let own = [format!("data.path={}", path("data")), format!("output.dir={}", path("runs"))];
        let more = more.iter().chain(&["output.plots=false"]).map(|set| set.to_string());
        RunConfig::load(&repository(file), &own.into_iter().chain(more).collect::<Vec<_>>()).unwrap()
    };
    let small = ["train.epochs=3", "loader.batch_size=64", "model.hidden=16", "model.out=16"];
    let configs = [
        config("configs/payments-stage2.toml", &small),
        config("configs/payments.toml", &["model.trees=25", "model.min_data_in_leaf=4"]),
    ];
    let [RunConfig::Stage2(attention), RunConfig::Stage3(trees)] = &configs else { panic!("of stages 2 and 3") };
    assert_eq!(attention.model.pieces, 6, "columns are read in pieces");
    assert!(format!("{:?}", trees.model).contains("max_bin: 2047"), "bins are fine");
    configs
}

/// More payments that train than a column of one byte has bins.
fn many() -> Vec<Payment> {
    payments_at(8)
}

fn trained(data: &Dataset) -> (tempfile::TempDir, [PathBuf; 2]) {
    let dir = tempfile::tempdir().unwrap();
    data.write(&dir.path().join("data")).unwrap();
    let runs = shipped(dir.path()).map(run);
    (dir, runs)
}

#[test]
fn what_comes_later_changes_no_earlier_score_of_the_shipped_models_at_fixed_weights() {
    let (now, later) = (many(), changed(&many(), LATER, LATER));
    let [own, other] = [&now, &later].map(|payments| dataset_with(payments, Leak::Nothing, ALL));
    let (dir, runs) = trained(&own);
    other.write(&dir.path().join("other")).unwrap();
    for run in runs {
        let scores = |name: &str| computed(&run, &dir.path().join(name));
        let (want, got) = (before(&now, LATER, &scores("data")), before(&later, LATER, &scores("other")));
        assert_eq!(want.len(), 8 * LATER as usize);
        assert!(want == got, "{}", run.display());
        assert!(
            want.values().any(|score| Some(score) != want.values().next()),
            "{} tells payments apart",
            run.display()
        );
    }
}

#[test]
fn a_training_of_the_shipped_models_does_not_depend_on_what_comes_after_it() {
    let end = WINDOW.known_until();
    let scores = |payments: &[Payment]| {
        let data = dataset_with(payments, Leak::Nothing, ALL);
        let (_dir, [attention, trees]) = trained(&data);
        let read = |file: PathBuf| before(payments, end, &read_scores(&file, data.graph.num_nodes()).unwrap());
        [read(attention.join("anomaly_scores_stage2.npy")), read(trees.join("anomaly_scores_stage3.npy"))]
    };
    let (now, later) = (many(), changed(&many(), end, WINDOW.test[0] + 1));
    let ([attention, trees], others) = (scores(&now), scores(&later));
    assert_eq!(attention.len(), 8 * end as usize);
    assert!(attention == others[0], "attention");
    assert!(trees == others[1], "trees");
}
