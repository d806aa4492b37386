//! Ages of edges: from times of events, and of edges, to what Stage 2 makes of them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use burn_flex::Flex;
use graphsieve::config::{LoaderMode, RunConfig, Stage2Config, Stage2Input, TimeEncodingKind};
use graphsieve::graph::{Ages, Dataset, EdgeColumns, EdgeValues, Events, Relation, Values};
use graphsieve::models::weights::{ModelSpec, Weights};
use graphsieve::run::evaluation::read_scores;
use graphsieve::score::explain::{Explanation, explain_run};
use graphsieve::score::{self, ScoreOptions, ScoredRun, Scores};
use graphsieve::train::{self, RunOptions};
use tempfile::TempDir;

use crate::causal::{ALL, Leak, Past, Payment, WINDOW, before, changed, dataset_with, payments, run, stage2};
use crate::support::Sandbox;

/// Everything from here on is changed where weights are fixed.
const LATER: i64 = 50;

fn config(dir: &Path, kind: TimeEncodingKind) -> Stage2Config {
    let mut config = stage2(dir, Stage2Input::Features);
    (config.model.time_encoding, config.model.time_frequencies, config.train.epochs) = (kind, 4, 3);
    config
}

/// The same in mini-batches of all neighbours.
fn in_batches(config: Stage2Config) -> Stage2Config {
    let mut config = Stage2Config { name: "batches".into(), ..config };
    (config.loader.mode, config.loader.fanouts, config.loader.batch_size) = (LoaderMode::Sampled, vec![0, 0], 96);
    config
}

/// Edges that tell the amount of the payment at their source, or of that at their destination, at both where both are.
fn with_amounts(mut data: Dataset) -> Dataset {
    let features = data.features.clone().unwrap();
    let offsets: Vec<usize> = data.graph.node_types().iter().map(|t| t.offset).collect();
    let of_relation = |relation: &Relation| {
        let amount = |node: usize| features.row(node).next().unwrap();
        let edges = (0..relation.forward.num_rows()).flat_map(|row| {
            let sources = relation.forward.row(row).iter();
            sources.flat_map(move |&col| [(relation.src, col as usize), (relation.dst, row)])
        });
        let values = edges.map(|(t, node)| amount(offsets[t] + node)).collect();
        let columns = EdgeColumns { names: vec!["of".into(), "to".into()], values: Values::Made(values) };
        EdgeValues { relation: relation.name.clone(), weight: None, time: None, columns: Some(columns) }
    };
    data.edge_values =
        data.graph.relations().iter().filter(|of| of.name.starts_with("earlier")).map(of_relation).collect();
    data
}

fn written(data: &Dataset) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    data.write(&dir.path().join("data")).unwrap();
    dir
}

fn computed(run: &Path, data: &Path) -> Vec<f32> {
    let options = ScoreOptions::new(run, data);
    match score::compute::<Flex>(&options, &Default::default()).unwrap().scores {
        Scores::Anomaly(scores) => scores,
        Scores::Classes(_) => panic!("Stage 2 has scores"),
    }
}

fn scores_of(run: &Path, data: &Dataset) -> Vec<f32> {
    read_scores(&run.join("anomaly_scores_stage2.npy"), data.graph.num_nodes()).unwrap()
}

const KINDS: [TimeEncodingKind; 2] = [TimeEncodingKind::Fixed, TimeEncodingKind::Learned];

#[test]
fn what_comes_later_changes_no_earlier_score_and_no_training_that_ended_by_then() {
    let now = payments();
    for (past, kind, values) in [(Past::Copies, KINDS[0], true), (ALL, KINDS[1], false)] {
        let dataset = |payments: &[Payment]| {
            let data = dataset_with(payments, Leak::Nothing, past);
            if values { with_amounts(data) } else { data }
        };
        let config = |dir: &Path, kind: TimeEncodingKind| {
            let mut config = config(dir, kind);
            config.model.edge_values = values;
            config
        };
        let dir = written(&dataset(&now));
        let data = dir.path().join("data");
        let model = run(RunConfig::Stage2(config(dir.path(), kind)));
        let own = computed(&model, &data);
        // At fixed weights.
        let later = changed(&now, LATER, LATER);
        let other = written(&dataset(&later));
        let (want, got) =
            (before(&now, LATER, &own), before(&later, LATER, &computed(&model, &other.path().join("data"))));
        assert!(want.len() == 4 * LATER as usize && want == got, "{kind:?}: scores before {LATER}");
        // Where training goes on until the end of validation.
        let end = WINDOW.known_until();
        let later = changed(&now, end, WINDOW.test[0] + 1);
        let scores = |payments: &[Payment], of: fn(Stage2Config) -> Stage2Config| {
            let data = dataset(payments);
            let dir = written(&data);
            let model = run(RunConfig::Stage2(of(config(dir.path(), kind))));
            before(payments, end, &scores_of(&model, &data))
        };
        let trained = before(&now, end, &scores_of(&model, &dataset(&now)));
        assert!(trained == scores(&later, |config| config), "{kind:?}: a training until {end}");
        assert!(scores(&now, in_batches) == scores(&later, in_batches), "{kind:?}: in batches until {end}");
        // The ages are read: without the times of events the scores are others.
        let mut alike = dataset(&now);
        alike.events.as_mut().unwrap().time.iter_mut().filter(|time| **time != Events::NO_TIME).for_each(|t| *t *= 7);
        assert!(computed(&model, &written(&alike).path().join("data")) != own, "{kind:?}: slower data");
        if values {
            // So are the values.
            let mut alike = dataset(&now);
            for of in &mut alike.edge_values {
                let Some(EdgeColumns { values: Values::Made(values), .. }) = &mut of.columns else {
                    panic!("made above")
                };
                *values = values.iter().map(|value| value * 0.5).collect();
            }
            assert!(computed(&model, &written(&alike).path().join("data")) != own, "smaller amounts");
        }
    }
}

/// The parameters of frequencies and phases.
fn time_parameters(run: &Path) -> Vec<(String, Vec<f32>)> {
    let (weights, _) = Weights::read(run).unwrap();
    let of_time = weights.tensors.into_iter().filter(|(name, _)| name.contains(".time_"));
    of_time.map(|(name, tensor)| (name, tensor.values)).collect()
}

#[test]
fn frequencies_are_kept_or_learned_and_a_run_scores_explains_and_begins_others_with_them() {
    let data = dataset_with(&payments(), Leak::Nothing, ALL);
    let dir = written(&data);
    let path = dir.path().join("data");
    let device = Default::default();
    let mut begun = Vec::new();
    for kind in KINDS {
        let whole = run(RunConfig::Stage2(config(dir.path(), kind)));
        let mut chunked = config(dir.path(), kind);
        chunked.train.chunk_size = Some(37);
        chunked.name = "chunked".into();
        let chunked = run(RunConfig::Stage2(chunked));
        let batches = run(RunConfig::Stage2(in_batches(config(dir.path(), kind))));
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        // Scored by chunks of rows, and at once.
        let by_chunks = computed(&chunked, &path);
        let settings = fs::read_to_string(chunked.join("config.toml")).unwrap();
        assert!(settings.contains("chunk_size = 37"));
        fs::write(chunked.join("config.toml"), settings.replace("chunk_size = 37", "chunk_size = 0")).unwrap();
        assert!(close(&by_chunks, &computed(&chunked, &path)), "{kind:?}: by chunks");
        for model in [&whole, &chunked, &batches] {
            assert!(close(&computed(model, &path), &scores_of(model, &data)), "{kind:?}: the scores of the training");
        }

        // The spec says it, and parameters are there for the relations between events alone.
        let ModelSpec::Attention(spec) = Weights::read(&whole).unwrap().0.spec else { panic!("Stage 2") };
        let read: Vec<_> = spec.edges.iter().flatten().map(|input| (&*input.relation, input.width)).collect();
        assert_eq!(read, [("earlier_paid_by", 0), ("earlier_paid_at", 0)]);
        let parameters = time_parameters(&whole);
        assert_eq!(parameters.len(), 8);
        let named = |name: &str| &parameters.iter().find(|(of, _)| of == name).unwrap().1;
        let frequencies = named("gat1.time_log_frequency_earlier_paid_by");
        let phases = named("gat2.time_phase_earlier_paid_at");
        // Known to the training are times 0 to 79, a second apart: one turn in 79 seconds to one in 2.
        let want: Vec<f64> =
            (0..4).map(|k| (std::f64::consts::TAU / 79.0).ln() + 39.5f64.ln() * k as f64 / 3.0).collect();
        let kept = frequencies.iter().zip(&want).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-6);
        assert_eq!(
            kept && phases.iter().all(|phase| *phase == 0.0),
            kind == TimeEncodingKind::Fixed,
            "{frequencies:?}"
        );

        // What explains a score adds up to it, and says what the ages add.
        let scored = ScoredRun::open(&whole, None).unwrap();
        let last = data.graph.num_nodes() as u32 - 1;
        let found = explain_run::<Flex>(&scored, &[last], &device).unwrap().swap_remove(0);
        let columns: f64 = found.columns.iter().map(|part| part.contribution).sum();
        let blocks: f64 = found.blocks.iter().map(|part| part.contribution).sum();
        assert!([columns, blocks].iter().all(|sum| (found.base + sum - found.sum).abs() < 1e-9));
        assert!((1.0 / (1.0 + (-found.sum).exp()) - f64::from(found.score)).abs() < 1e-5, "{kind:?}");
        let age = found.columns.iter().find(|part| part.column.ends_with(": age")).unwrap();
        assert!(age.block == "values of edges" && age.contribution != 0.0 && age.value > 0.0, "{age:?}");
        begun.push(whole);
    }
    // A training begins with the weights of another one, whose frequencies were learned; not of one that kept them.
    let options = |from: &PathBuf| RunOptions { from: Some(from.clone()), ..RunOptions::quiet("test") };
    let later = |from: &PathBuf| {
        let mut config = config(dir.path(), TimeEncodingKind::Learned);
        (config.train.epochs, config.train.learning_rate, config.train.learning_rate_min) = (1, 1e-12, 1e-12);
        train::run::<Flex>(RunConfig::Stage2(config), &options(from), &device).map(|all| all.stage2.unwrap().run)
    };
    let again = later(&begun[1]).unwrap();
    assert_eq!(time_parameters(&again), time_parameters(&begun[1]));
    assert!(later(&begun[0]).unwrap_err().to_string().contains("learned"));
}

const SETTINGS: &str = "task = \"stage2\"\nname = \"ages\"\n[data]\npath = \"data\"\ninput = \"features\"\n[model]\nhidden = 8\n\
                        out = 8\n[train]\nepochs = 60\nlearning_rate = 1e-2\n[drop_edge]\nrate = 0.0\n[loss]\n\
                        samples_per_relation = 50\n[output]\ndir = \"runs\"\nplots = false\n";

/// Payments in turn of 40 cards. A fraud comes seconds after the payment before it, every other one hours; amounts tell
/// nothing.
fn told_by_ages(sandbox: &Sandbox) {
    let mut table = String::from("id,card,time,amount,fraud\n");
    let mut times = [1_600_000_000i64; 40];
    for at in 0..800usize {
        let (card, draw) = (at * 7 % 40, at.wrapping_mul(2_654_435_761) >> 9);
        let is_fraud = at >= 40 && draw % 4 == 1;
        times[card] += if is_fraud { 5 + draw as i64 / 4 % 9 } else { 8_000 + draw as i64 / 4 % 90_000 };
        writeln!(table, "p{at},c{card},{},{},{}", times[card], draw / 64 % 100, u8::from(is_fraud)).unwrap();
    }
    sandbox.write("payments.csv", table);
    let description = "[[nodes]]\ntype = \"payment\"\nfile = \"payments.csv\"\nid = \"id\"\ntime = \"time\"\nlabel = \"fraud\"\n\
                       features = { amount = \"numeric\" }\n[[edges]]\nname = \"paid_by\"\nsrc = \"card.card\"\n\
                       dst = \"payment\"\n";
    sandbox.write("graph.toml", description);
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    sandbox.write("stage2.toml", SETTINGS);
}

#[test]
fn a_training_on_ages_tells_what_nothing_else_does() {
    let sandbox = Sandbox::new();
    told_by_ages(&sandbox);
    let trained = |name: &str, more: &[&str]| {
        let dir = format!("output.dir={name}");
        let train = ["--quiet", "train", "stage2.toml", "--device", "cpu", "--set", &dir];
        sandbox.succeeds([&train[..], more].concat());
        let evaluation = sandbox.read(&format!("{}/evaluation.json", sandbox.only_run(name)));
        let evaluation: serde_json::Value = serde_json::from_slice(&evaluation).unwrap();
        evaluation["evaluation"]["test"]["overall"]["roc_auc"].as_f64().unwrap()
    };
    let of = |kind: &str| format!("model.time_encoding={kind}");
    let (fixed, learned) = (of("fixed"), of("learned"));
    let batches = ["--set", "loader.mode=sampled", "--set", "loader.fanouts=[0, 0]"];
    let with = [
        trained("fixed", &["--set", &fixed]),
        trained("learned", &["--set", &learned]),
        trained("batches", &[&["--set", &fixed], &batches[..]].concat()),
    ];
    let without = trained("without", &[]);
    assert!(with.iter().all(|auc| *auc > 0.95) && without < 0.75, "{with:?} with ages, {without} without");
}

#[test]
fn data_without_times_are_refused_and_so_are_frequencies_that_nothing_reads() {
    let sandbox = Sandbox::new();
    sandbox.write("accounts.csv", "id,fraud\na,0\nb,1\nc,0\nd,1\n");
    sandbox.write("payments.csv", "from,to,day\na,b,2020-01-01\nb,c,2020-01-03\nc,d,2020-01-04\n");
    let describe = |more: &str| {
        let nodes = "[[nodes]]\ntype = \"account\"\nfile = \"accounts.csv\"\nid = \"id\"\nlabel = \"fraud\"\n";
        let edges =
            "[[edges]]\nname = \"pays\"\nfile = \"payments.csv\"\nsrc = \"account.from\"\ndst = \"account.to\"\n";
        sandbox.write("graph.toml", format!("{nodes}{edges}{more}"));
    };
    describe("");
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    sandbox.write("stage2.toml", SETTINGS);
    let train = ["train", "stage2.toml", "--device", "cpu", "--set"];
    let refused = |set: &[&str], parts: &[&str]| sandbox.refuses([&train[..], set].concat(), 2, parts);
    refused(&["model.time_encoding=fixed"], &["model.time_encoding", "data with times", "no relation"]);
    refused(&["model.time_frequencies=4"], &["model.time_frequencies", "reads no age"]);
    refused(&["model.time_encoding=daily"], &["model.time_encoding", "fixed"]);
    assert!(!sandbox.path("runs").exists());

    // With times of edges there are ages: the latest time less that of the edge, in both directions.
    describe("time = \"day\"\n");
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "timed"]);
    let mut data = Dataset::open(&sandbox.path("timed")).unwrap();
    data.load_ages("model.time_encoding").unwrap();
    let day = 86_400.0;
    for (name, ages) in [("pays", [3.0, 1.0, 0.0]), ("pays_T", [3.0, 1.0, 0.0])] {
        let relation = relation(&data, name);
        assert!(matches!(relation.ages, Some(Ages::Edges(_))), "{name}");
        for row in 0..4 {
            for (entry, &source) in relation.forward.entries(row).zip(relation.forward.row(row)) {
                let payer = if name == "pays" { source as usize } else { row };
                assert_eq!(data.graph.age(relation, entry, row, source), Some(ages[payer] * day));
            }
        }
    }
    assert_eq!(data.graph.age_periods(), [3.0 * day, 2.0 * day]);
    let part = data.subset(&[true, true, true, false]).dataset;
    assert_eq!(relation(&part, "pays").ages_of_edges().unwrap().values(), [3.0, 1.0].map(|days| days * 86_400.0));
}

/// Data of another day have a latest time of their own: the same payments a year later have the same scores.
#[test]
fn ages_of_edges_are_told_from_the_latest_edge_of_the_data() {
    let sandbox = Sandbox::new();
    let accounts = (0..120).map(|node| format!("a{node},{}\n", u8::from(node % 5 == 1)));
    sandbox.write("accounts.csv", format!("id,fraud\n{}", accounts.collect::<String>()));
    let payment = |at: usize| {
        let draw = at.wrapping_mul(2_654_435_761) >> 7;
        format!("a{},a{},2020-01-{:02}\n", draw % 120, draw / 127 % 120, at * 17 % 28 + 1)
    };
    sandbox.write("payments.csv", format!("from,to,day\n{}", (0..900).map(payment).collect::<String>()));
    let description = "[[nodes]]\ntype = \"account\"\nfile = \"accounts.csv\"\nid = \"id\"\nlabel = \"fraud\"\n\
                       [[edges]]\nname = \"pays\"\nfile = \"payments.csv\"\nsrc = \"account.from\"\n\
                       dst = \"account.to\"\ntime = \"day\"\n";
    sandbox.write("graph.toml", description);
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "data"]);
    sandbox.succeeds(["import", "tables", "graph.toml", "--with", "data", "--out", "later"]);
    // The columns of accounts, which have means of times, stay as they are.
    fs::remove_file(sandbox.path("later/SHA256SUMS")).unwrap();
    sandbox.edit("later/pays_time.bin", |bytes| {
        for time in bytes.chunks_exact_mut(8) {
            let later = i64::from_le_bytes(time.try_into().unwrap()) + 366 * 86_400;
            time.copy_from_slice(&later.to_le_bytes());
        }
    });
    sandbox.write("stage2.toml", SETTINGS);
    let set = ["--set", "model.time_encoding=learned", "--set", "train.epochs=5", "--set", "model.heads=2"];
    sandbox.succeeds([&["--quiet", "train", "stage2.toml", "--device", "cpu"], &set[..]].concat());
    let run = sandbox.only_run("runs");
    for data in ["data", "later"] {
        let out = format!("{data}.npy");
        sandbox.succeeds(["--quiet", "score", &run, "--data", data, "--out", &out, "--device", "cpu"]);
        assert!(sandbox.read(&out) == sandbox.read(&format!("{run}/anomaly_scores_stage2.npy")), "{data}");
    }
    let explain = ["--quiet", "explain", &run, "--node", "account:a1", "--format", "json", "--device", "cpu"];
    let found: Explanation = serde_json::from_str(&sandbox.succeeds(explain).stdout).unwrap();
    let columns: f64 = found.columns.iter().map(|part| part.contribution).sum();
    assert!((found.base + columns - found.sum).abs() < 1e-9);
    assert!(found.columns.iter().any(|part| part.column == "pays_T: age" && part.contribution != 0.0));
    // Edges without times are none of this model.
    sandbox.write("graph.toml", description.replace("time = \"day\"\n", ""));
    sandbox.succeeds(["import", "tables", "graph.toml", "--out", "plain"]);
    let plain = ["score", &run, "--data", "plain", "--out", "plain.csv", "--device", "cpu"];
    sandbox.refuses(plain, 1, &["values of edges by relation", "`pays` ages, `pays_T` ages"]);
}

fn relation<'a>(dataset: &'a Dataset, name: &str) -> &'a Relation {
    dataset.graph.relations().iter().find(|relation| relation.name == name).unwrap()
}
