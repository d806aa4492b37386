//! Configurations, and what a run leaves beside its checkpoints.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use graphsieve::config::RunConfig;
use graphsieve::graph::{Dataset, Filling};
use graphsieve::run::baseline::OnValidation;
use graphsieve::run::bundle::drift::Profile;
use graphsieve::run::bundle::{Bundle, Origin};
use graphsieve::run::calibration::{read_calibration, read_class_calibrations};
use graphsieve::run::ensemble::Ensemble;
use graphsieve::run::evaluation::{Evaluation, class_test_of_run};
use graphsieve::run::known_labels::KnownLabels;
use graphsieve::run::model::{embedder_of, model_of};
use graphsieve::run::tournament::Tournament;
use graphsieve::run::{Meta, RunDir};

use super::files::{directory, get, put};
use super::tables;

/// The shipped configurations, by name.
const CONFIGS: [(&str, &str); 6] = [
    ("quickstart.toml", include_str!("../../../configs/quickstart.toml")),
    ("stage1.toml", include_str!("../../../configs/stage1.toml")),
    ("stage2.toml", include_str!("../../../configs/stage2.toml")),
    ("stage3.toml", include_str!("../../../configs/stage3.toml")),
    ("auto.toml", include_str!("../../../configs/auto.toml")),
    ("cora-gat.toml", include_str!("../../../configs/cora-gat.toml")),
];

fn configs(dir: &Path) {
    for (name, text) in CONFIGS {
        put(&dir.join(name), text.as_bytes());
    }
}

/// A configuration as it stands beside the shipped ones, and as a run keeps it.
pub fn config(bytes: &[u8]) -> bool {
    let path = put(&directory("config", configs).join("fuzz.toml"), bytes);
    let read = RunConfig::load(&path, &[]);
    if let Ok(config) = &read {
        let text = config.to_toml().expect("what was read can be written");
        assert!(RunConfig::parse(&text, &path, &[]).is_ok(), "what is resolved is no configuration:\n{text}");
    }
    let _ = RunConfig::load_kept(&path, &[]);
    read.is_ok()
}

pub fn config_seeds() -> Vec<Vec<u8>> {
    CONFIGS.map(|(_, text)| text.into()).into()
}

/// Lines as `--set` of a shipped configuration.
pub fn overrides(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let given: Vec<String> = text.lines().map(String::from).collect();
    let dir = directory("overrides", configs);
    let read = CONFIGS[..5].iter().filter(|(name, text)| RunConfig::parse(text, &dir.join(name), &given).is_ok());
    read.count() > 0
}

/// That of the run; a long one takes most of the time.
const CONFIG: &str = "task = \"stage2\"\n[data]\npath = \"data\"\n";

/// Files of a run that are JSON, TOML or lines of JSON, as far as no test made them here, with what stands in them.
const FILES: [(&str, &str); 13] = [
    ("model.json", ""),
    ("profile.json", ""),
    ("config.toml", CONFIG),
    ("meta.json", ""),
    ("metrics.jsonl", "{\"epoch\":1,\"loss\":0.5,\"auc\":null}\n{\"epoch\":2,\"loss\":0.25}\n"),
    ("calibration.json", r#"{"method":"platt","slope":1.5,"intercept":-2.0,"labels":10,"anomalous":3}"#),
    (
        "calibration.json",
        r#"{"method":"isotonic","blocks":[{"from":0.0,"to":0.5,"probability":0.1},{"from":0.6,"to":1.0,"probability":0.9}],"labels":10,"anomalous":3,"base_rate":0.01}"#,
    ),
    ("calibration.json", r#"[{"method":"identity","labels":10,"anomalous":3},null]"#),
    (
        "ensemble.json",
        r#"{"members":[{"name":"a","run":"runs/a","calibration":{"method":"identity","labels":0,"anomalous":0}}]}"#,
    ),
    ("filling.json", r#"{"means":[0.5,1.0],"flags":[1]}"#),
    (
        "known_labels.json",
        r#"{"cuts":[86400,259200],"labels":[{"type":"payment","id":"2","label":1,"time":86400,"known":90000,"fold":0},{"type":"payment","id":"1","label":0,"time":0,"known":3600,"fold":1}]}"#,
    ),
    ("stages.json", r#"{"stage1":"a-run","stage2":"another"}"#),
    (
        "tournament.json",
        r#"{"figure":"average_precision","validation_labels":4,"minutes":1.0,"seconds":3.0,"prefer":"best","candidates":[{"name":"a","about":"b","rounds":[{"round":1,"share":0.5,"done":3,"value":0.75,"error":null,"seconds":1.0,"complete":true}]}],"complete":true,"model":{"name":"a","run":"runs/a"}}"#,
    ),
];

/// A finished run on the graph of events, and its data in `data`.
fn make(dir: &Path) {
    let data = dir.join("data");
    let raw = tempfile::tempdir().expect("a temporary directory");
    tables::imported(raw.path()).write(&data).expect("a new directory");
    let dataset = Dataset::open(&data).expect("data that were just written");
    let run = RunDir::create(&dir.join("runs"), "a", CONFIG, Meta::now("cpu", 1)).expect("a new run");
    put(&run.output("evaluation.json"), b"{}");
    let origin = Origin::of("stage2", &data, &dataset, None).expect("data without faults");
    origin.begin(&run, None).expect("a new run");
    let profile = Profile::of_training(&dataset, None, &[(0, 0u8), (1, 1)]);
    origin.finish(&run, &profile, &[]).expect("a new run");
    fs::rename(run.path(), dir.join("run")).expect("the only run");
}

/// Looks at everything that commands read of a run beside its checkpoints; whether the file `name` is taken.
fn open(run: &Path, data: &Path, name: &str) -> bool {
    static DATASET: OnceLock<Dataset> = OnceLock::new();
    let dataset = DATASET.get_or_init(|| Dataset::open(data).expect("data that were just written"));
    let bundle = Bundle::open(run);
    let profile = bundle.as_ref().ok().and_then(Option::as_ref).map(|bundle| bundle.profile(run));
    let _ = (Bundle::is_finished(run), model_of(run), embedder_of(run));
    let known = KnownLabels::read(run, dataset, data);
    let nodes = dataset.graph.num_nodes() as u32;
    if let Ok(known) = &known {
        let passes = known.passes();
        for node in 0..nodes {
            let _ = known.label(&passes[known.pass_of(node)], node);
        }
    }
    if let Some(Ok(Some(profile))) = &profile {
        let _ = profile.shifts(dataset, &vec![0.5; nodes as usize], &|_| true);
    }
    let mut taken = vec![
        ("model.json", bundle.is_ok()),
        ("profile.json", matches!(profile, Some(Ok(_)))),
        ("filling.json", Filling::of_run(run).is_ok()),
        ("known_labels.json", known.is_ok()),
        ("config.toml", RunConfig::load_kept(&run.join("config.toml"), &[]).is_ok()),
        ("tournament.json", Tournament::of_run(run).is_ok()),
        ("ensemble.json", Ensemble::of_run(run).is_ok()),
    ];
    if let Ok(Some(tournament)) = Tournament::of_run(run) {
        let _ = (tournament.best(), tournament.simplest(), tournament.preferred(), tournament.why());
        tournament.entries().for_each(|entry| drop(tournament.line(entry)));
    }
    if let Ok(Some(ensemble)) = Ensemble::of_run(run) {
        let _ = (ensemble.best(), ensemble.mean(&vec![vec![0.5]; ensemble.members.len()]));
    }
    let Ok(run) = RunDir::open(run) else { return false };
    if let Ok(Some(calibration)) = read_calibration(&run) {
        let _ = [0.0, 0.55, 1.0, f32::NAN].map(|score| calibration.probability(score));
        let _ = (calibration.describe(None), calibration.at_base_rate(0.1).probability(0.5));
    }
    let of_classes = read_class_calibrations(&run, 2).is_ok();
    taken.push(("calibration.json", of_classes || read_calibration(&run).is_ok()));
    taken.push(("metrics.jsonl", run.history().map(|history| history.series("loss")).is_ok()));
    let _ = (Evaluation::of_run(&run), class_test_of_run(&run), OnValidation::read(&run), run.summary());
    taken.iter().all(|&(of, is_taken)| of != name || is_taken)
}

fn of_file(reader: &'static str, name: &str, bytes: &[u8]) -> bool {
    let dir = directory(reader, make);
    let path = dir.join("run").join(name);
    let whole = path.is_file().then(|| get(&path));
    put(&path, bytes);
    let is_taken = open(&dir.join("run"), &dir.join("data"), name);
    match whole {
        Some(whole) => drop(put(&path, &whole)),
        None => fs::remove_file(&path).expect("what was just written"),
    }
    is_taken
}

pub fn model_json(bytes: &[u8]) -> bool {
    of_file("model_json", "model.json", bytes)
}

/// Any file of a run: the first byte says which, the others are what it holds.
pub fn run_file(bytes: &[u8]) -> bool {
    let Some((&which, content)) = bytes.split_first() else { return false };
    of_file("run_file", FILES[usize::from(which) % FILES.len()].0, content)
}

/// A file of the run.
pub fn of_run(name: &str) -> Vec<Vec<u8>> {
    vec![get(&directory("model_json", make).join("run").join(name))]
}

pub fn run_file_seeds() -> Vec<Vec<u8>> {
    let dir = directory("run_file", make);
    let content = |(at, (name, text)): (usize, &(&str, &str))| {
        let content = if text.is_empty() { get(&dir.join("run").join(name)) } else { text.as_bytes().to_vec() };
        [vec![at as u8], content].concat()
    };
    FILES.iter().enumerate().map(content).collect()
}
