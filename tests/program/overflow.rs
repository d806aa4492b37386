//! Numbers that a model cannot hold: they are refused by the place where they stand or the node whose score they spoil,
//! in training and in scoring, whole and in parts; no score is made of them, and none is left out in silence.

use ndarray::{Array2, Axis, concatenate};

use crate::metamorphic::{Arrays, NODES, scores, train, write_config};
use crate::support::Sandbox;

/// Names, tasks and settings of networks, of which `[train]` comes last.
const NETWORKS: [(&str, &str, &str); 3] = [
    ("encoder", "stage1", "[model]\nhidden = 8\nout = 8\n"),
    ("attention", "stage2", "input = \"features\"\n[split]\nuse = \"masks\"\n[model]\nhidden = 8\nout = 8\n"),
    ("classes", "classify", "row_normalise = false\n[model]\nhidden = 8\n"),
];

const SAMPLED: &str = "[loader]\nmode = \"sampled\"\nfanouts = [3, 2]\nbatch_size = 16\n";

/// The graph and sixteen nodes more, without edges and labels: every sum of four columns with signs in one of them is
/// as large as it gets.
fn with_large_ones() -> Arrays {
    let mut arrays = Arrays::new();
    let sign = |at: usize, column: usize| if at >> column & 1 == 1 { 1.0 } else { -1.0 };
    let large = Array2::from_shape_fn((16, 4), |at| 60_000.0 * sign(at.0, at.1));
    arrays.features = concatenate![Axis(0), arrays.features, large];
    arrays.labels.extend([-1; 16]);
    arrays.part.extend([u8::MAX; 16]);
    arrays
}

#[test]
fn features_beyond_f16_and_scores_beyond_it_are_refused_and_named() {
    let sandbox = Sandbox::new();
    let arrays = Arrays::new();
    arrays.write(&sandbox, "graph.npz");
    let mut beyond = arrays.clone();
    beyond.features[[7, 2]] = 1e6;
    beyond.write(&sandbox, "beyond.npz");
    with_large_ones().write(&sandbox, "large.npz");
    let beyond = ["features, row 7, column 2: expected at most 65504", "train.precision=f32"];
    for (name, task, settings) in NETWORKS {
        let half = format!("{settings}[train]\nepochs = 3\nprecision = \"f16\"\n");
        for mode in ["", SAMPLED] {
            write_config(&sandbox, name, task, "beyond.npz", &format!("{half}{mode}"));
            sandbox.refuses(["--quiet", "train", &format!("{name}.toml"), "--device", "cpu"], 1, &beyond);
        }
        write_config(&sandbox, name, task, "graph.npz", &half);
        let run = train(&sandbox, name);
        let spoiled = if task == "stage1" { "the embedding of node 9" } else { " of node 9" };
        let score = ["--quiet", "score", &run, "--device", "cpu", "--data"];
        for layerwise in [&[][..], &["--memory", "1K"]] {
            sandbox.refuses([&score[..], &["beyond.npz"], layerwise].concat(), 1, &beyond);
            let parts = [spoiled, "expected a finite number", "of 106 nodes", "scale them as for its training"];
            sandbox.refuses([&score[..], &["large.npz"], layerwise].concat(), 1, &parts);
        }
        // What no label depends on spoils a training, too, at its end at the latest.
        write_config(&sandbox, &format!("{name}_large"), task, "large.npz", &half);
        let said = sandbox.run(["--quiet", "train", &format!("{name}_large.toml"), "--device", "cpu"]);
        said.is_refused(1, &[]);
        let run = sandbox.only_run(&format!("{name}_large"));
        for file in ["probabilities.npy", "anomaly_scores_stage2.npy", "Z_embeddings_stage1.npy", "evaluation.json"] {
            assert!(!sandbox.path(&format!("{run}/{file}")).exists(), "{name} left {file}");
        }
    }
}

#[test]
fn the_largest_step_leaves_numbers_and_parts_of_one_class_are_refused_or_judged() {
    let sandbox = Sandbox::new();
    let mut arrays = Arrays::new();
    arrays.write(&sandbox, "graph.npz");
    for (name, task, settings) in NETWORKS {
        write_config(
            &sandbox,
            name,
            task,
            "graph.npz",
            &format!("{settings}[train]\nepochs = 20\nlearning_rate = 1\n"),
        );
        let run = train(&sandbox, name);
        let scores = scores(&sandbox, &run, "graph.npz");
        // Stage 1 has none for the five nodes without edges.
        assert_eq!(scores.values().flatten().count(), NODES - if task == "stage1" { 5 } else { 0 });
        assert!(scores.values().flatten().all(|score| (0.0..=1.0).contains(score)), "{name}: {scores:?}");
    }
    // Validation is left with normal nodes alone.
    arrays
        .part
        .iter_mut()
        .zip(&arrays.labels)
        .filter(|(part, label)| (**part, **label) == (1, 1))
        .for_each(|(part, _)| *part = 0);
    arrays.write(&sandbox, "one.npz");
    for task in ["stage2", "stage3"] {
        let input = if task == "stage2" { "input = \"features\"\n" } else { "" };
        write_config(&sandbox, "one", task, "one.npz", &format!("{input}[split]\nuse = \"masks\"\n"));
        let parts =
            ["labels of class 1 (anomalous)", "at least one example in each", "0 validation", "label more nodes"];
        sandbox.refuses(["--quiet", "train", "one.toml", "--device", "cpu"], 1, &parts);
    }
    // Classes are judged by what there is of them.
    let (name, task, settings) = NETWORKS[2];
    write_config(&sandbox, &format!("{name}_one"), task, "one.npz", &format!("{settings}[train]\nepochs = 3\n"));
    let run = train(&sandbox, &format!("{name}_one"));
    assert!(
        scores(&sandbox, &run, "one.npz").values().all(|score| score.is_some_and(|score| (0.0..=1.0).contains(&score)))
    );
}
