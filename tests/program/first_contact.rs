//! The shipped configurations on a machine that has no data yet.

use std::fs;

use crate::support::{Sandbox, repository};

const DATA: &str = "artifacts/data/quickstart";

/// A short training of a shipped configuration.
fn short(name: &str) -> Vec<String> {
    let keys: &[&str] = match name {
        "stage3" => &["model.trees=5", "features.wavelets=false"],
        "quickstart" => &["stage1.train.epochs=1", "stage2.train.epochs=1"],
        _ => &["train.epochs=1"],
    };
    let config = repository(&format!("configs/{name}.toml")).display().to_string();
    let mut arguments = ["train", &config, "--device", "cpu", "--set", "output.plots=false"].map(String::from).to_vec();
    keys.iter().for_each(|key| arguments.extend(["--set".into(), (*key).into()]));
    arguments
}

/// Every file of the data directory by name.
fn files(sandbox: &Sandbox, dir: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(sandbox.path(dir)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names.into_iter().map(|name| (name.clone(), sandbox.read(&format!("{dir}/{name}")))).collect()
}

#[test]
fn every_shipped_configuration_of_the_marketplace_trains_on_an_empty_machine() {
    let wanted = Sandbox::new();
    wanted.succeeds(["--quiet", "synth", "--preset", "quickstart", "--out", "data"]);
    let wanted = files(&wanted, "data");
    for name in ["stage1", "stage2", "stage3", "quickstart"] {
        let sandbox = Sandbox::new();
        let said = sandbox.succeeds(short(name));
        let told = said.stderr.lines().filter(|line| line.contains("made a synthetic marketplace")).count();
        assert_eq!(told, 1, "{name}: {}", said.stderr);
        assert!(files(&sandbox, DATA) == wanted, "{name}: other bytes than those of synth");
        if matches!(name, "stage3" | "quickstart") {
            let again = sandbox.succeeds(short(name));
            assert!(!again.stderr.contains("marketplace"), "{}", again.stderr);
            let left_out = again.stderr.contains("[synth] is for a run that finds none");
            assert_eq!(left_out, name == "quickstart", "{}", again.stderr);
        }
    }
}

#[test]
fn no_other_missing_path_is_made_up() {
    let sandbox = Sandbox::new();
    for path in ["artifacts/data/quick", "artifacts/data", "nowhere"] {
        let mut arguments = short("stage3");
        arguments.extend(["--set".into(), format!("data.path={path}")]);
        sandbox.refuses(arguments, 1, &[path]);
    }
    // Something is there that is no data: it stays as it is.
    fs::create_dir_all(sandbox.path("artifacts/data")).unwrap();
    sandbox.write(DATA, "a file");
    sandbox.refuses(short("stage3"), 1, &[DATA]);
}

#[test]
fn two_first_trainings_at_once_share_one_marketplace() {
    let sandbox = Sandbox::new();
    std::thread::scope(|scope| {
        let runs = [1, 2].map(|run| {
            let mut arguments = short("stage3");
            arguments.extend(["--name".into(), format!("run{run}")]);
            let sandbox = &sandbox;
            scope.spawn(move || sandbox.succeeds(arguments))
        });
        runs.into_iter().for_each(|run| drop(run.join().unwrap()));
    });
    assert_eq!(fs::read_dir(sandbox.path("artifacts/data")).unwrap().count(), 1, "no temporary directory is left");
    assert_eq!(fs::read_dir(sandbox.path("artifacts/runs")).unwrap().count(), 2);
}
