//! Configurations and arguments that cannot be run: exit status 2, with the line, the key and the nearest name.

use std::process::Command;

use crate::support::{Said, Sandbox, repository};

const STAGE2: &str = "task = \"stage2\"\n\n[data]\npath = \"data\"\ninput = \"features\"\n";

fn refused(text: &str, parts: &[&str]) {
    let sandbox = Sandbox::new();
    sandbox.write("run.toml", text);
    for command in [&["config", "check", "run.toml"][..], &["config", "show", "run.toml"], &["train", "run.toml"]] {
        sandbox.refuses(command, 2, parts);
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    refused(&format!("{STAGE2}[train]\nepoch = 3\n"), &["run.toml:7: train.epoch = 3", "did you mean `train.epochs`?"]);
    refused(&format!("{STAGE2}[trian]\nepochs = 3\n"), &["run.toml:7: trian.epochs", "did you mean `train.epochs`?"]);
    refused(&format!("sed = 1\n{STAGE2}"), &["run.toml:1: sed = 1", "did you mean `seed`?"]);
}

#[test]
fn a_mistyped_value_is_refused_with_its_line() {
    let section = |text: &str| format!("{STAGE2}{text}\n");
    refused(&section("[train]\nepochs = \"ten\""), &["run.toml:7: train.epochs = \"ten\": expected an integer"]);
    refused(&section("[train]\nepochs = 0"), &["run.toml:7: train.epochs = 0: expected an integer of at least 1"]);
    refused(&section("[train]\nlearning_rate = nan"), &["run.toml:7: train.learning_rate = nan"]);
    refused(&section("[drop_edge]\nrate = 1.0"), &["run.toml:7: drop_edge.rate = 1.0", "[0, 1)"]);
    refused(&section("[model]\nheads = 3"), &["run.toml:7: model.heads = 3", "divisor"]);
    let gate = "[model]\nown = \"never\"\ngate = true";
    refused(&section(gate), &["run.toml:8: model.gate = true", "model.own = \"never\"", "\"always\""]);
    let jump = "[model]\njump = \"max\"\nout = 7";
    refused(&section(jump), &["run.toml:8: model.out = 7", "model.hidden = 128"]);
    refused(&section("[split]\ntest = 0.5"), &["run.toml:7: split.test = 0.5", "= 1"]);
    refused(&section("[train]\nprecision = \"f12\""), &["run.toml:7: train.precision", "did you mean \"f"]);
    refused(&section("[loader]\nfanouts = [15]"), &["run.toml:7: loader.fanouts = [15]: expected 2 fanouts"]);
    refused(&section("[loader]\nfanouts = [15, 10, 5]"), &["run.toml:7: loader.fanouts", "one for each layer"]);
    refused(&section("[loader]\nfanouts = [15, -1]"), &["run.toml:7: loader.fanouts", "integers of at least 0"]);
    refused(
        &section("[loader]\nbatch_size = 0"),
        &["run.toml:7: loader.batch_size = 0: expected an integer of at least 1"],
    );
    refused(&section("[loader]\nmode = \"samples\""), &["run.toml:7: loader.mode", "did you mean \"sampled\"?"]);
    refused(&section("[loader]\nhot = 1.5"), &["run.toml:7: loader.hot = 1.5"]);
    refused(&section("[loader]\nprefetch = 0"), &["run.toml:7: loader.prefetch = 0"]);
    refused(&section("[output]\nplots = 1"), &["run.toml:7: output.plots = 1: expected true or false"]);
}

#[test]
fn numbers_that_no_machine_has_room_for_are_refused_before_anything_is_done() {
    let sandbox = Sandbox::with_data();
    let paths = "[data]\npath = \"data\"\n[output]\nplots = false\n";
    for task in ["stage1", "stage2", "classify"] {
        let input = if task == "stage2" { "[data]\npath = \"data\"\ninput = \"features\"\n" } else { paths };
        sandbox.write(&format!("{task}.toml"), format!("task = \"{task}\"\n{input}"));
    }
    let channels = "expected an integer from 1 to 65,536";
    let thousand = "expected an integer from 1 to 1,000";
    let cases = [
        ("stage1", "model.hidden=1000000000", channels),
        ("stage1", "model.out=65537", channels),
        ("stage1", "model.hidden=9223372036854775807", channels),
        ("stage1", "sampling.negatives_per_positive=1000000000", thousand),
        ("stage2", "model.hidden=1000000000", channels),
        ("stage2", "model.out=1000000000", channels),
        ("stage2", "loader.prefetch=1000000000000", thousand),
        ("classify", "model.hidden=1000000000", channels),
        ("classify", "model.layers=100000", thousand),
        ("stage2", "\"train.epochs\"=1", "expected a key without quotes around its dots"),
        ("stage2", "train.\"early.stop\"=1", "expected a key without quotes around its dots"),
    ];
    for (task, set, expected) in cases {
        sandbox.refuses(["train", &format!("{task}.toml"), "--device", "cpu", "--set", set], 2, &["--set: ", expected]);
    }
    // Within the bounds, and above the memory of any machine that tests run on: terabytes of weights.
    let deep = "[model]\nlayer = \"sage\"\nlayers = 1000\nhidden = 65536\n[split]\nuse = \"random\"\n";
    sandbox.write("deep.toml", format!("task = \"classify\"\n{paths}{deep}"));
    if cfg!(target_os = "linux") {
        let parts =
            ["memory of this machine: expected ", "what the training takes on paper", "(model.hidden) or loader.mode"];
        sandbox.refuses(["train", "deep.toml", "--device", "cpu"], 1, &parts);
    }
}

#[test]
fn a_loader_that_does_not_fit_a_classifier_is_refused() {
    let loader = |text: &str| {
        let fixed = "task = \"classify\"\n[data]\npath = \"graph.npz\"\n[model]\nlayers = 3\n[loader]\n";
        format!("{fixed}{text}\n")
    };
    refused(&loader("mode = \"samples\""), &["run.toml:7: loader.mode", "did you mean \"sampled\"?"]);
    refused(
        &loader("fanouts = [5, 5, 5]"),
        &[
            "run.toml:7: loader.fanouts = [5, 5, 5]: expected its default [10, 10, 10], since loader.mode = \"full\" samples nothing",
        ],
    );
    let sampled = |text: &str| loader(&format!("mode = \"sampled\"\n{text}"));
    refused(
        &sampled("fanouts = [15, 10]"),
        &["run.toml:8: loader.fanouts = [15, 10]: expected 3 fanouts", "each layer"],
    );
    refused(&sampled("fanouts = [15, -1, 2]"), &["run.toml:8: loader.fanouts", "integers of at least 0"]);
    refused(&sampled("batch_size = 0"), &["run.toml:8: loader.batch_size = 0: expected an integer of at least 1"]);
    refused(&sampled("drop_edge = 0.5"), &["run.toml:8: loader.drop_edge"]);
    refused(&sampled("hot = 1.5"), &["run.toml:8: loader.hot = 1.5"]);
}

#[test]
fn a_key_that_nothing_reads_is_refused_with_the_setting_that_reads_it() {
    let stage2 = |text: &str| format!("{STAGE2}{text}\n");
    refused(
        &stage2("[loader]\nhot = 0.5"),
        &["run.toml:7: loader.hot = 0.5: expected its default 0.2, since", "samples nothing", "the share of the nodes"],
    );
    refused(
        &stage2("[train]\nrows = \"all\"\n[loader]\nmode = \"sampled\""),
        &["run.toml:7: train.rows = \"all\"", "since loader.mode = \"sampled\"", "loader.mode = \"full\""],
    );
    refused(
        &stage2("[train]\nchunk_size = 100\n[loader]\nmode = \"sampled\""),
        &["run.toml:7: train.chunk_size = 100", "since mini-batches have no chunks", "loader.mode = \"full\""],
    );
}

#[test]
fn what_is_no_configuration_is_refused() {
    refused("task = = 1\n", &["run.toml:1", "valid TOML"]);
    refused("", &["run.toml", "task", "\"stage1\" or \"stage2\" or \"stage3\" or \"pipeline\""]);
    refused("task = \"stage4\"\n", &["run.toml:1: task = \"stage4\"", "did you mean"]);
    refused("task = \"stage1\"\n", &["run.toml", "data.path", "graphsieve synth"]);
    let pipeline = "task = \"pipeline\"\n[data]\npath = \"data\"\n[stage1]\n";
    refused(&format!("{pipeline}config = \"nowhere.toml\"\n"), &["nowhere.toml"]);
    refused(&format!("{pipeline}seed = 1\n"), &["run.toml:5", "seed", "at the top of this file"]);
}

#[test]
fn a_configuration_that_cannot_be_read_is_refused() {
    let sandbox = Sandbox::new();
    let parts = ["nowhere.toml: expected a configuration file, found no such file", "configs/quickstart.toml"];
    sandbox.refuses(["train", "nowhere.toml"], 2, &parts);
    sandbox.write("latin1.toml", b"name = \"\xe9\"\n");
    sandbox.refuses(["config", "check", "latin1.toml"], 1, &["latin1.toml", "expected UTF-8 text"]);
}

#[test]
fn a_faulty_override_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("run.toml", STAGE2);
    let refused = |set: &str, parts: &[&str]| {
        sandbox.refuses(["config", "show", "run.toml", "--set", set], 2, parts);
        sandbox.refuses(["train", "run.toml", "--set", set], 2, parts);
    };
    refused("train.epoch=3", &["--set: train.epoch = 3", "did you mean `train.epochs`?"]);
    refused("train.epochs=few", &["--set: train.epochs", "expected an integer"]);
    refused("train.epochs", &["--set train.epochs: expected key=value"]);
}

#[test]
fn every_file_is_checked_and_every_error_shown() {
    let sandbox = Sandbox::new();
    sandbox.write("a.toml", "task = 1\n");
    sandbox.write("b.toml", STAGE2);
    sandbox.write("c.toml", "tsk = \"stage2\"\n");
    let said = sandbox.run(["config", "check", "a.toml", "b.toml", "c.toml"]);
    said.is_refused(2, &["error: a.toml:1", "error: c.toml"]);
    assert_eq!(said.stdout, "b.toml: ok\n");
}

#[test]
fn a_device_that_does_not_exist_is_refused() {
    let sandbox = Sandbox::new();
    let config = repository("configs/stage2.toml");
    let train = |device| {
        let fixed = ["train".into(), config.clone().into_os_string(), "--device".into()];
        fixed.into_iter().chain([std::ffi::OsString::from(device)])
    };
    sandbox.refuses(train("gpu"), 2, &["--device: expected auto, cpu, cuda, cuda:N or vulkan, found \"gpu\""]);
    sandbox.refuses(train("CUDA"), 2, &["did you mean cuda?"]);
    sandbox.refuses(train("cuda:first"), 2, &["\"cuda:first\"", "cuda:0"]);
    sandbox.refuses(train("cuda:9999"), 1, &["device cuda:9999 is not usable: "]);
    let score = ["score", "c", "--data", "d", "--out", "o.npy", "--device", "vulcan"];
    sandbox.refuses(score, 2, &["did you mean vulkan?"]);
    // The driver shows none of the devices that there are.
    let mut hidden = Command::new(env!("CARGO_BIN_EXE_graphsieve"));
    hidden.args(train("cuda")).current_dir(sandbox.path("")).env("CUDA_VISIBLE_DEVICES", "");
    Said::from(hidden.output().unwrap()).is_refused(1, &["device cuda:0 is not usable: ", "--device cpu"]);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let sandbox = Sandbox::with_data();
    sandbox.write_scores("scores.npy", &[0.5; 500]);
    sandbox.refuses(["trian"], 2, &["trian", "train"]);
    sandbox.refuses(["synth"], 2, &["--out"]);
    sandbox.refuses(["synth", "--preset", "luxury", "--out", "x"], 2, &["did you mean luxury-beauty?"]);
    for scale in ["0", "-1", "nan", "inf", "0.001", "1e300"] {
        sandbox.refuses(["synth", &format!("--scale={scale}"), "--out", "x"], 2, &["expected"]);
    }
    let eval = |more: &[&'static str]| [&["eval", "--scores", "scores.npy", "--data", "data"], more].concat();
    sandbox.refuses(eval(&["--split", "train"]), 2, &["--split", "--include-train"]);
    sandbox.refuses(eval(&["--split", "all"]), 2, &["--split", "--include-train"]);
    sandbox.refuses(eval(&["--split", "test", "--include-train"]), 2, &["--include-train"]);
    sandbox.refuses(
        eval(&["--fractions", "0.5,0.5"]),
        2,
        &["--fractions: expected three positive numbers that add up to 1, found [0.5, 0.5]"],
    );
    sandbox.refuses(eval(&["--fractions", "0.5,0.5,0.5"]), 2, &["--fractions: expected three positive numbers"]);
    sandbox.refuses(eval(&["--fractions", "a,b,c"]), 2, &["--fractions"]);
    sandbox.refuses(eval(&["--run", "data"]), 1, &["data: config.toml: expected a file that every run has"]);
    sandbox.refuses(["train"], 2, &["CONFIG"]);
    sandbox.refuses(["train", "--resume", "data"], 1, &["data: config.toml: expected a file that every run has"]);
    let score = ["score", "c", "--data", "data", "--out"];
    sandbox.refuses([&score[..], &["scores.npy"]].concat(), 1, &["scores.npy: exists already", "--force"]);
    sandbox.refuses([&score[..], &["o.npy", "--embeddings", "o.npy"]].concat(), 2, &["another file than --out"]);
    let gad = |more: &[&'static str]| [&["benchmark", "gad", "--data", "data"], more].concat();
    sandbox.refuses(["benchmark", "gad"], 2, &["--data"]);
    sandbox.refuses(gad(&["--protocol", "half"]), 2, &["full", "semi"]);
    sandbox.refuses(gad(&["--models", "forest,tree"]), 2, &["tree", "booster-raw"]);
    sandbox.refuses(gad(&["--models", "forest,forest"]), 2, &["--models: expected every model once"]);
    sandbox.refuses(gad(&["--splits", "0"]), 2, &["--splits: expected 1 to 10"]);
    sandbox.refuses(gad(&["--json", "scores.npy"]), 1, &["scores.npy: exists already", "--force"]);
    sandbox.refuses(gad(&["--protocol", "semi"]), 1, &["labels of class", "example in each of training"]);
}
