//! Kernels that the program has compiled once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use graphsieve_kernels::testing::harness::{Device, Trial, trial};

use crate::support::Sandbox;

pub fn trials() -> Vec<Trial> {
    // Those of this build.
    let devices = [(cfg!(feature = "vulkan"), Device::Vulkan), (cfg!(feature = "cuda"), Device::Cuda)];
    let built = devices.into_iter().filter_map(|(built, device)| built.then_some(device));
    let name = "kept::a_second_run_compiles_nothing_and_a_damaged_kernel_is_told";
    let body = a_second_run_compiles_nothing_and_a_damaged_kernel_is_told;
    built.map(|device| trial(Some(device), name, &[], move || body(device))).collect()
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The number with which SPIR-V begins, as CBOR writes it.
const MAGIC: [u8; 5] = [0x1a, 0x07, 0x23, 0x02, 0x03];

/// Changes the last byte of every `word` in a file; how many there were.
fn damage(file: &Path, word: &[u8]) -> usize {
    let mut bytes = fs::read(file).unwrap();
    let found: Vec<usize> =
        bytes.windows(word.len()).enumerate().filter(|(_, at)| *at == word).map(|(at, _)| at).collect();
    found.iter().for_each(|at| bytes[at + word.len() - 1] ^= 1);
    fs::write(file, bytes).unwrap();
    found.len()
}

fn a_second_run_compiles_nothing_and_a_damaged_kernel_is_told(device: Device) {
    let sandbox = Sandbox::with_data();
    sandbox.write("stage1.toml", include_str!("../../configs/stage1.toml"));
    let cache = sandbox.path("cache");
    let train = |runs: &str| -> Output {
        let (device, runs) = (device.to_string(), format!("output.dir={runs}"));
        let keys = ["data.path=data", "train.epochs=1", "output.plots=false", &runs].map(|key| ["--set", key]);
        let fixed = ["--quiet", "train", "stage1.toml", "--device", &device];
        let mut command = sandbox.command(fixed.iter().chain(keys.as_flattened()));
        command.env("XDG_CACHE_HOME", &cache).output().unwrap()
    };
    let trained = |runs: &str| {
        let output = train(runs);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let kept: u64 = files(&cache.join("graphsieve")).iter().map(|file| file.metadata().unwrap().len()).sum();
        (kept, sandbox.read(&format!("{}/checkpoint/last.bpk", sandbox.only_run(runs))))
    };
    let (first, second) = (trained("first"), trained("second"));
    assert!(first.0 > 0, "nothing was kept");
    assert_eq!(first.0, second.0, "bytes that are kept");
    assert!(first.1 == second.1, "kept kernels gave another model");

    if device != Device::Vulkan {
        return;
    }
    let damaged: usize = files(&cache.join("graphsieve")).iter().map(|file| damage(file, &MAGIC)).sum();
    assert!(damaged > 0, "no SPIR-V was kept");
    let output = train("third");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the device of this run failed") && said.contains("/cache/graphsieve/"), "{said}");
}
