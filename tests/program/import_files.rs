//! `import npz`, `import mat` and `config init`: from a benchmark file to a configuration that can be checked.

use std::io::Write;

use crate::support::{Sandbox, npy};

/// An uncompressed `.npz` of six nodes in a ring, with so many classes.
fn npz(classes: i64) -> Vec<u8> {
    let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let integers = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let features: Vec<f32> = (0..30).map(|value| value as f32 * 0.1).collect();
    let labels: Vec<i64> = (0..15).map(|node| node % classes).collect();
    let edges: Vec<i64> = (0..15).flat_map(|node| [node, (node + 1) % 15]).collect();
    let arrays = [
        ("node_features.npy", npy("<f4", "(15, 2)", &floats(&features))),
        ("node_labels.npy", npy("<i8", "(15,)", &integers(&labels))),
        ("edges.npy", npy("<i8", "(15, 2)", &integers(&edges))),
    ];
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in arrays {
        archive.start_file(name, stored).unwrap();
        archive.write_all(&bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[test]
fn a_directory_of_an_npz_file_gets_a_configuration_like_the_file() {
    for (classes, task) in [(3, "classify"), (2, "stage2")] {
        let sandbox = Sandbox::new();
        sandbox.write("graph.npz", npz(classes));
        let said = sandbox.succeeds(["import", "npz", "graph.npz", "--out", "graph"]);
        assert!(said.stdout.contains("15 nodes, 30 edges, 2 features per node"), "{}", said.stdout);
        assert!(said.stdout.contains("15 edges lacked their mirror image"), "{}", said.stdout);
        let of_file = sandbox.succeeds(["config", "init", "--data", "graph.npz"]).stdout;
        let of_directory = sandbox.succeeds(["config", "init", "--data", "graph"]).stdout;
        // The comments line up behind a shorter path.
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&of_file.replace("graph.npz", "graph")), words(&of_directory));
        sandbox.succeeds(["config", "init", "--data", "graph", "--out", "run.toml"]);
        assert_eq!(sandbox.read("run.toml"), of_directory.as_bytes());
        assert_eq!(sandbox.succeeds(["config", "check", "run.toml"]).stdout, "run.toml: ok\n");
        assert!(of_directory.contains(&format!("\ntask = \"{task}\" ")), "{of_directory}");
        let again = ["config", "init", "--data", "graph", "--out", "run.toml"];
        sandbox.refuses(again, 1, &["run.toml: exists already", "--force"]);
        sandbox.succeeds([&again[..], &["--force"]].concat());
        sandbox.refuses(["import", "npz", "graph.npz", "--out", "graph"], 1, &["graph: exists already"]);
    }
}

#[test]
fn edges_stay_one_way_where_that_is_asked_for() {
    let sandbox = Sandbox::new();
    sandbox.write("graph.npz", npz(3));
    let said = sandbox.succeeds(["import", "npz", "graph.npz", "--out", "graph", "--directed"]);
    assert!(said.stdout.contains("15 nodes, 15 edges"), "{}", said.stdout);
    let shown = sandbox.succeeds(["config", "init", "--data", "graph"]).stdout;
    assert!(shown.contains("15 edges (both directions)") && !shown.contains("symmetric"), "{shown}");
}
