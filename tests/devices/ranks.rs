//! Ranks that are processes with a CUDA device each, as torchrun starts them.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use graphsieve_kernels::testing::harness::{Device, TWO_CUDA_DEVICES, Trial, trial};
use serde_json::Value;

use crate::support::Sandbox;

pub fn trials() -> Vec<Trial> {
    vec![trial(
        Some(Device::Cuda),
        "ranks::a_process_that_is_killed_ends_all_and_the_run_goes_on_as_if_nothing_had_been",
        &[TWO_CUDA_DEVICES],
        a_process_that_is_killed_ends_all_and_the_run_goes_on_as_if_nothing_had_been,
    )]
}

const KILLS: usize = 20;
const EPOCHS: usize = 60;

fn train(run: &str) -> Vec<String> {
    let set = [
        "data.path=data",
        "data.input=features",
        "model.hidden=16",
        "model.out=16",
        "loader.mode=sampled",
        "train.checkpoint_every=1",
        "output.plots=false",
        &format!("train.epochs={EPOCHS}"),
        &format!("output.dir={run}"),
    ]
    .map(|key| ["--set".to_owned(), key.to_owned()]);
    let fixed = ["--quiet", "train", "stage2.toml"].map(str::to_owned);
    fixed.into_iter().chain(set.into_iter().flatten()).collect()
}

/// As many as there are devices, four at most.
fn count() -> usize {
    graphsieve_kernels::device::probe_cuda().unwrap().min(4)
}

/// The processes of `arguments`, one for each rank.
fn launched(sandbox: &Sandbox, arguments: &[String]) -> Vec<Child> {
    // Ranks meet behind the port of the launcher.
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let ranks = count();
    let start = |rank: usize| {
        let mut command = sandbox.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let numbers = [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", ranks), ("MASTER_PORT", free as usize - 1)];
        command.envs(numbers.map(|(name, number)| (name, number.to_string()))).env("MASTER_ADDR", "127.0.0.1");
        command.spawn().unwrap()
    };
    (0..ranks).map(start).collect()
}

/// Losses by epoch, the last one of each.
fn losses(sandbox: &Sandbox, run: &str) -> Vec<f64> {
    let text = fs::read_to_string(sandbox.path(&format!("{run}/metrics.jsonl"))).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.map(|line| line["loss"].as_f64().unwrap()).collect()
}

fn a_process_that_is_killed_ends_all_and_the_run_goes_on_as_if_nothing_had_been() {
    let sandbox = Sandbox::with_data();
    sandbox.write("stage2.toml", include_str!("../../configs/stage2.toml"));
    for child in launched(&sandbox, &train("whole")) {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let whole = losses(&sandbox, &sandbox.only_run("whole"));
    assert_eq!(whole.len(), EPOCHS);
    for kill in 0..KILLS {
        let dir = format!("killed{kill}");
        let mut ranks = launched(&sandbox, &train(&dir));
        // Behind the first checkpoint, at another moment each time.
        let begun = Instant::now();
        let saved = || {
            let runs = fs::read_dir(sandbox.path(&dir)).ok()?;
            runs.flatten().map(|run| run.path().join("checkpoint/last.bpk")).find(|file| file.exists())
        };
        while saved().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(120), "no checkpoint was written");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(7_919 * kill as u64));
        let failing = kill % ranks.len();
        ranks.remove(failing).kill().unwrap();
        let killed = Instant::now();
        for rank in ranks {
            let output = rank.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            // It may have come to the end of the training before.
            let lost = format!("rank {failing} is lost: its process ended");
            assert!(output.status.success() || (output.status.code() == Some(1) && said.contains(&lost)), "{said}");
            assert!(!said.contains("panicked"), "{said}");
        }
        assert!(killed.elapsed() < Duration::from_secs(60), "{:?}", killed.elapsed());
        let run = sandbox.only_run(&dir);
        sandbox.succeeds(["--quiet", "train", "--resume", &run, "--device", "cuda:0"]);
        let resumed = losses(&sandbox, &run);
        assert_eq!(resumed.len(), EPOCHS);
        let apart = resumed.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart <= 1e-3, "kill {kill}: {apart} apart");
    }
}
