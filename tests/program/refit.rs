//! Trees that are grown anew on training and validation labels: what they learn, what stays as it was chosen before,
//! and which labels judge them.

use std::fs;
use std::path::{Path, PathBuf};

use burn_flex::{Flex, FlexDevice};
use graphsieve::config::{
    BoosterConfig, ForestConfig, RunConfig, STAGE3_SCORES_FILE, Stage3Config, TreeClassWeight, TreeModel,
};
use graphsieve::data::split::{Split, SplitFractions};
use graphsieve::features::FeatureTable;
use graphsieve::graph::{Dataset, Labels, SplitRule, StoredSplit};
use graphsieve::infer::tree_table::neighbourhood_table;
use graphsieve::models::tree_ensemble::{TreeCheckpoint, TreeEnsemble};
use graphsieve::run::evaluation::{read_scores, report};
use graphsieve::run::splits::{split_of, within};
use graphsieve::train::stage3::{ColumnRules, booster_params, forest_params};
use graphsieve::trees::{BinRule, Booster, Dataset as Binned, Fit, Forest, Matrix};
use serde_json::Value;

use crate::causal::{Leak, Past, computed, dataset_with, payments, run};
use crate::support::Sandbox;
use crate::trees_on_graphs::{dataset, rows, sandbox};

/// Nodes that are divided already, so that other labels are divided alike. Those of the test part may be turned over.
fn divided(turned: bool) -> (Dataset, Split) {
    let mut entries = rows().1;
    let split = Split::stratified(&entries, |_| 0, SplitFractions::default(), 42).unwrap();
    let rule = SplitRule::Random { seed: 42, train: 0.6, validation: 0.2, test: 0.2 };
    let stored = StoredSplit::of_parts(rule, entries.len(), [&split.train, &split.validation, &split.test]);
    for &(node, _) in split.test.iter().filter(|_| turned) {
        entries[node as usize].1 ^= 1;
    }
    (Dataset { split: Some(stored), labels: Some(Labels { entries }), ..dataset(rows().0) }, split)
}

/// A booster and a forest whose bins and class weights depend on what they are grown on.
fn models() -> [TreeModel; 2] {
    let mut booster = BoosterConfig {
        trees: 60,
        patience: Some(10),
        num_leaves: 6,
        min_data_in_leaf: 5,
        bagging: 0.7,
        feature_fraction: 0.8,
        ..BoosterConfig::default()
    };
    let mut forest = ForestConfig { trees: 12, ..ForestConfig::default() };
    for shared in [&mut booster.shared, &mut forest.shared] {
        (shared.max_bin, shared.class_weight) = (15, TreeClassWeight::Balanced);
    }
    [TreeModel::Booster(booster), TreeModel::Forest(forest)]
}

/// A training on the data in `dir`.
fn config(dir: &Path, model: &TreeModel, refit: bool) -> Stage3Config {
    let mut config = Stage3Config::new(dir.join("data"));
    config.name = if refit { "anew" } else { "once" }.into();
    (config.output.dir, config.output.plots) = (dir.join("runs"), false);
    config.features.neighbourhood.wavelets = false;
    config.model = model.clone();
    match &mut config.model {
        TreeModel::Booster(booster) => booster.shared.refit = refit,
        TreeModel::Forest(forest) => forest.shared.refit = refit,
    }
    config
}

/// The runs without and with trees that are grown anew.
fn trained(dir: &Path, model: &TreeModel) -> [PathBuf; 2] {
    [false, true].map(|refit| run(RunConfig::Stage3(config(dir, model, refit))))
}

fn trees(run: &Path) -> TreeEnsemble {
    TreeCheckpoint::read(&run.join("checkpoint/best.trees")).unwrap().ensemble
}

fn json(file: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// The columns that a training on `data` reads.
fn table(data: &Dataset, config: &Stage3Config) -> FeatureTable {
    neighbourhood_table::<Flex>(data, Path::new("data"), &config.features.neighbourhood, &FlexDevice).unwrap()
}

/// As many trees as `like` has on all of these labels, and what was measured while that grew.
fn by_hand(model: &TreeModel, table: &FeatureTable, labels: &[(u32, u8)], like: &TreeEnsemble) -> TreeEnsemble {
    let width = table.columns().len();
    let values: Vec<f32> = labels.iter().flat_map(|(node, _)| table.row(*node as usize)).collect();
    let labels: Vec<f32> = labels.iter().map(|(_, label)| f32::from(*label)).collect();
    let rule = BinRule { max_bin: model.shared().max_bin, ..BinRule::default() };
    let names = table.columns().iter().map(|column| column.name.clone()).collect();
    let data = Binned::new(&Matrix::f32(&values, width).unwrap(), &rule).unwrap().with_names(names).unwrap();
    let trees = like.num_trees();
    match (model, like) {
        (TreeModel::Booster(booster), TreeEnsemble::Booster(like)) => {
            let params = booster_params(&BoosterConfig { trees, ..booster.clone() }, ColumnRules::default(), width, 42);
            let grown = Booster::fit(&data, Fit::labels(&labels), &params).unwrap();
            TreeEnsemble::Booster(Booster { history: like.history.clone(), ..grown })
        }
        (TreeModel::Forest(forest), TreeEnsemble::Forest(_)) => {
            let params = forest_params(&ForestConfig { trees, ..forest.clone() }, ColumnRules::default(), width, 42);
            TreeEnsemble::Forest(Forest::fit(&data, &labels, None, &params).unwrap())
        }
        _ => panic!("trees of another kind"),
    }
}

#[test]
fn trees_are_grown_anew_on_both_parts_and_what_the_validation_part_chose_stays() {
    for model in models() {
        let dir = tempfile::tempdir().unwrap();
        let (data, split) = divided(false);
        data.write(&dir.path().join("data")).unwrap();
        let [once, anew] = trained(dir.path(), &model);
        let data = Dataset::open(&dir.path().join("data")).unwrap();
        let [before, kept] = [&once, &anew].map(|run| trees(run));
        let mut both = rows().1;
        both.retain(|entry| !split.test.contains(entry));
        let table = table(&data, &config(dir.path(), &model, true));
        assert!(kept == by_hand(&model, &table, &both, &before), "not the trees of both parts");
        assert!(kept != before, "the validation labels taught nothing");

        let [chosen, outcome] = [&once, &anew].map(|run| json(run.join("evaluation.json")));
        for key in ["threshold", "validation"] {
            assert_eq!(outcome["evaluation"][key], chosen["evaluation"][key], "{key}");
        }
        assert_eq!(outcome["baseline_validation"], chosen["baseline_validation"]);
        assert!(
            fs::read(once.join("calibration.json")).unwrap() == fs::read(anew.join("calibration.json")).unwrap(),
            "another calibration"
        );
        assert_eq!(outcome["evaluation"]["refit"], before.num_trees());
        assert_eq!(chosen["evaluation"].get("refit"), None);
        assert_eq!(json(anew.join("model.json"))["refit"], true);
        assert_eq!(json(once.join("model.json")).get("refit"), None);

        let scores = read_scores(&anew.join(STAGE3_SCORES_FILE), data.graph.num_nodes()).unwrap();
        assert_eq!(computed(&anew, &dir.path().join("data")), scores);
        let threshold = outcome["evaluation"]["threshold"].as_f64().unwrap();
        let of_test = report(&scores, &data, &split.test, threshold).unwrap();
        assert_eq!(serde_json::to_value(of_test).unwrap(), outcome["evaluation"]["test"]);
        // What scores of unseen nodes look like is said by nodes that were not learned.
        let profiled = |run: &Path| {
            let profile = json(run.join("profile.json"));
            let counts = profile["node_types"][0]["scores"]["counts"].as_array().unwrap();
            counts.iter().map(|count| count.as_u64().unwrap()).sum::<u64>() as usize
        };
        assert_eq!(profiled(&once), split.validation.len() + split.test.len());
        assert_eq!(profiled(&anew), split.test.len());
    }
}

#[test]
fn labels_of_the_test_part_change_no_byte_of_trees_that_are_grown_anew() {
    const FILES: [&str; 5] =
        ["checkpoint/best.trees", "calibration.json", "importance.csv", "profile.json", STAGE3_SCORES_FILE];
    for model in models() {
        let [own, turned] = [false, true].map(|turned| {
            let dir = tempfile::tempdir().unwrap();
            divided(turned).0.write(&dir.path().join("data")).unwrap();
            let run = run(RunConfig::Stage3(config(dir.path(), &model, true)));
            let evaluation = json(run.join("evaluation.json"))["evaluation"].take();
            (FILES.map(|file| fs::read(run.join(file)).unwrap()), evaluation)
        });
        for (file, (a, b)) in FILES.iter().zip(own.0.iter().zip(&turned.0)) {
            assert!(a == b, "{file}");
        }
        assert_ne!(own.1["test"], turned.1["test"]);
        for key in ["threshold", "validation", "refit"] {
            assert_eq!(own.1[key], turned.1[key], "{key}");
        }
    }
}

/// The graph of the training ends with the validation part: what the trees read of it is what was known then.
#[test]
fn under_a_split_by_time_both_parts_are_read_as_they_were_known_at_the_end_of_validation() {
    let dir = tempfile::tempdir().unwrap();
    dataset_with(&payments(), Leak::Nothing, Past::Copies).write(&dir.path().join("data")).unwrap();
    let data = Dataset::open(&dir.path().join("data")).unwrap();
    for model in models() {
        let settings = config(dir.path(), &model, true);
        let entries = &data.labels.as_ref().unwrap().entries;
        let split = split_of(&data, entries, &settings.split, settings.seed).unwrap();
        let known = data.training_part().unwrap();
        let known_labels = within(&split, &known, &data);
        assert!(known_labels.train.len() > 100 && known_labels.validation.len() > 30);
        let mut both = [known_labels.train, known_labels.validation].concat();
        both.sort_unstable();
        let [before, kept] = trained(dir.path(), &model).map(|run| trees(&run));
        assert!(kept == by_hand(&model, &table(&known.dataset, &settings), &both, &before));
        assert!(kept != before);
    }
}

const TREES: &str = "task = \"stage3\"\n[data]\npath = \"data\"\n[features]\nwavelets = false\n[model]\n\
                     kind = \"booster\"\ntrees = 60\npatience = 10\nmin_data_in_leaf = 5\nrefit = true\n[output]\n\
                     dir = \"runs\"\nplots = false\n";
const WORDS: [&str; 2] = [
    "grown anew on training and validation labels with ",
    "; threshold and calibration are those of the trees that had not seen the validation labels",
];

#[test]
fn labels_that_were_learned_judge_no_model_and_screen_and_report_say_what_was_learned() {
    let sandbox = sandbox(rows().0);
    sandbox.write("run.toml", TREES);
    let train = ["--quiet", "train", "run.toml", "--device", "cpu"];
    let said = sandbox.succeeds(train).stdout;
    assert!(WORDS.iter().all(|words| said.contains(words)), "{said}");
    let run = sandbox.only_run("runs");
    let outcome = json(sandbox.path(&format!("{run}/evaluation.json")))["evaluation"].take();
    sandbox.succeeds(["--quiet", "score", &run, "--data", "data", "--device", "cpu", "--out", "s.npy"]);
    assert!(sandbox.read("s.npy") == sandbox.read(&format!("{run}/{STAGE3_SCORES_FILE}")));

    let eval = ["eval", "--scores", "s.npy", "--data", "data"];
    let of_run = [&eval[..], &["--run", &run]].concat();
    let figures = |arguments: &[&str]| -> Value {
        serde_json::from_str(&sandbox.succeeds([arguments, &["--format", "json"]].concat()).stdout).unwrap()
    };
    let own = figures(&of_run);
    assert_eq!((&own["threshold"], &own["overall"]), (&outcome["threshold"], &outcome["test"]["overall"]));
    let labels = ["positives", "negatives"].map(|class| outcome["validation"]["overall"][class].as_u64().unwrap());
    assert_eq!(own["threshold_labels"], labels.iter().sum::<u64>());
    // Chosen on scores of labels that were learned it is another one.
    assert_ne!(figures(&eval)["threshold"], own["threshold"]);
    let validation = [&of_run[..], &["--split", "validation"]].concat();
    let refused = ["--split: expected test, found", "grown anew on training and validation labels", "--include-train"];
    sandbox.refuses(&validation, 2, &refused);
    let flattered = sandbox.succeeds([&validation[..], &["--include-train"]].concat()).stdout;
    assert!(flattered.contains("validation labels: these figures flatter the model"), "{flattered}");
    assert!(WORDS.iter().all(|words| flattered.contains(words)), "{flattered}");

    sandbox.succeeds(["--quiet", "report", &run, "--device", "cpu", "--no-explanations"]);
    let page = String::from_utf8(sandbox.read(&format!("{run}/report.html"))).unwrap();
    let flagged = format!("flagged from score {:.3}", outcome["threshold"].as_f64().unwrap());
    for words in [WORDS[0], WORDS[1], &flagged, "fitting the calibration, then fitting"] {
        assert!(page.contains(words), "the report lacks {words}");
    }

    // Without it the validation labels are held out.
    let once = ["--set", "model.refit=false", "--set", "output.dir=once"];
    let said = sandbox.succeeds([&train[..], &once].concat()).stdout;
    assert!(!said.contains(WORDS[0]), "{said}");
    let once = sandbox.only_run("once");
    sandbox.succeeds([&eval[..], &["--run", &once, "--split", "validation"]].concat());
}

#[test]
fn an_interrupted_training_grows_its_trees_before_it_grows_them_anew() {
    let sandbox = sandbox(rows().0);
    sandbox.write("run.toml", TREES);
    sandbox.succeeds(["--quiet", "train", "run.toml", "--device", "cpu"]);
    let run = sandbox.only_run("runs");
    let files = ["checkpoint/best.trees", "calibration.json", "evaluation.json", "model.json", STAGE3_SCORES_FILE];
    let content = || files.map(|file| sandbox.read(&format!("{run}/{file}")));
    let whole = content();
    // The trees that are there have learned the validation labels and may choose nothing.
    for file in &files[1..3] {
        fs::remove_file(sandbox.path(&format!("{run}/{file}"))).unwrap();
    }
    sandbox.succeeds(["--quiet", "train", "--device", "cpu", "--resume", &run]);
    for (file, (before, now)) in files.iter().zip(whole.iter().zip(&content())) {
        assert!(before == now, "{file}");
    }
}

#[test]
fn a_pipeline_ends_with_trees_that_were_grown_anew_on_scores_out_of_fold() {
    let sandbox = Sandbox::with_data();
    let stages = "[stage1]\ntrain.epochs = 2\nmodel.hidden = 8\nmodel.out = 8\n[stage2]\ntrain.epochs = 2\n\
                  model.hidden = 8\nmodel.out = 8\n[stage3]\nmodel.kind = \"booster\"\nmodel.trees = 20\n\
                  model.patience = 5\nmodel.min_data_in_leaf = 2\nmodel.refit = true\nfeatures.stage2_folds = 2\n";
    let head = "task = \"pipeline\"\n[data]\npath = \"data\"\n[output]\nplots = false\ndir = \"runs\"\n";
    sandbox.write("pipeline.toml", format!("{head}{stages}"));
    let said = sandbox.succeeds(["--quiet", "train", "pipeline.toml", "--device", "cpu"]).stdout;
    assert!(WORDS.iter().all(|words| said.contains(words)), "{said}");
    let named = |name: &str| {
        let files = fs::read_dir(sandbox.path("runs")).unwrap();
        let mut names = files.map(|file| file.unwrap().file_name().to_str().unwrap().to_owned());
        format!("runs/{}", names.find(|run| run.ends_with(name)).unwrap())
    };
    let (pipeline, last) = (named("-pipeline"), named("-pipeline-stage3"));
    assert_eq!(json(sandbox.path(&format!("{last}/model.json")))["refit"], true);
    sandbox.succeeds(["--quiet", "score", &pipeline, "--data", "data", "--device", "cpu", "--out", "s.npy"]);
    let eval = ["eval", "--scores", "s.npy", "--data", "data", "--run", &pipeline];
    let own: Value =
        serde_json::from_str(&sandbox.succeeds([&eval[..], &["--format", "json"]].concat()).stdout).unwrap();
    let outcome = json(sandbox.path(&format!("{last}/evaluation.json")));
    // Test nodes have the mean of all folds in the training, too.
    assert_eq!(own["overall"]["roc_auc"], outcome["evaluation"]["test"]["overall"]["roc_auc"]);
    assert_eq!(own["threshold"], outcome["evaluation"]["threshold"]);
    sandbox.refuses([&eval[..], &["--split", "validation"]].concat(), 2, &["--split: expected test, found"]);
}
