//! Kernels that the program has compiled once.

use std::fs;

use graphsieve_kernels::testing::harness::{Device, Trial, trial};

use crate::support::Sandbox;

pub fn trials() -> Vec<Trial> {
    // What this program does not have it is never asked for.
    let devices = [(cfg!(feature = "vulkan"), Device::Vulkan), (cfg!(feature = "cuda"), Device::Cuda)];
    let built = devices.into_iter().filter_map(|(built, device)| built.then_some(device));
    let name = "kept::a_second_run_compiles_nothing";
    built.map(|device| trial(Some(device), name, &[], move || a_second_run_compiles_nothing(device))).collect()
}

/// Bytes in files below a folder.
fn bytes(folder: &std::path::Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        found if found.is_dir() => bytes(&entry.path()),
        found => found.len(),
    };
    entries.map(size).sum()
}

fn a_second_run_compiles_nothing(device: Device) {
    let sandbox = Sandbox::with_data();
    sandbox.write("stage1.toml", include_str!("../../configs/stage1.toml"));
    let train = |runs: &str| {
        let (device, runs_in) = (device.to_string(), format!("output.dir={runs}"));
        let keys = ["data.path=data", "train.epochs=1", "output.plots=false", &runs_in].map(|key| ["--set", key]);
        let fixed = ["--quiet", "train", "stage1.toml", "--device", &device];
        let mut command = sandbox.command(fixed.iter().chain(keys.as_flattened()));
        let output = command.env("XDG_CACHE_HOME", sandbox.path("cache")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (
            bytes(&sandbox.path("cache/graphsieve")),
            sandbox.read(&format!("{}/checkpoint/last.bpk", sandbox.only_run(runs))),
        )
    };
    let (first, second) = (train("first"), train("second"));
    assert!(first.0 > 0, "nothing was kept");
    assert_eq!(first.0, second.0, "bytes that are kept");
    assert!(first.1 == second.1, "kept kernels gave another model");
}
