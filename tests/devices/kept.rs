//! Kernels that the program has compiled once.

use std::fs;

use graphsieve_kernels::testing::harness::{Device, Trial, trial};

use crate::support::{Said, Sandbox};

pub fn trials() -> Vec<Trial> {
    // Those of this build.
    let devices = [(cfg!(feature = "vulkan"), Device::Vulkan), (cfg!(feature = "cuda"), Device::Cuda)];
    let built = devices.into_iter().filter_map(|(built, device)| built.then_some(device));
    let name = "kept::a_second_run_compiles_nothing_and_a_damaged_kernel_is_told";
    let body = a_second_run_compiles_nothing_and_a_damaged_kernel_is_told;
    built.map(|device| trial(Some(device), name, &[], move || body(device))).collect()
}

/// The number with which SPIR-V begins, as CBOR writes it.
const MAGIC: [u8; 5] = [0x1a, 0x07, 0x23, 0x02, 0x03];

fn a_second_run_compiles_nothing_and_a_damaged_kernel_is_told(device: Device) {
    let sandbox = Sandbox::with_data();
    sandbox.write("stage1.toml", include_str!("../../configs/stage1.toml"));
    let train = |runs: &str| -> Said {
        let (device, runs) = (device.to_string(), format!("output.dir={runs}"));
        let keys = ["data.path=data", "train.epochs=1", "output.plots=false", &runs].map(|key| ["--set", key]);
        let fixed = ["--quiet", "train", "stage1.toml", "--device", &device];
        let mut command = sandbox.command(fixed.iter().chain(keys.as_flattened()));
        command.env("XDG_CACHE_HOME", sandbox.path("cache")).output().unwrap().into()
    };
    let kept = || {
        let mut files = sandbox.files();
        files.retain(|path, content| path.starts_with(sandbox.path("cache/graphsieve")) && !content.is_empty());
        files
    };
    let trained = |runs: &str| {
        let said = train(runs);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        (kept(), sandbox.read(&format!("{}/checkpoint/last.bpk", sandbox.only_run(runs))))
    };
    let (first, second) = (trained("first"), trained("second"));
    assert!(!first.0.is_empty(), "nothing was kept");
    assert!(first.0 == second.0, "the second run changed what is kept");
    assert!(first.1 == second.1, "kept kernels gave another model");

    if device != Device::Vulkan {
        return;
    }
    let mut damaged = 0;
    for (path, mut content) in kept() {
        let starts = content.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| *bytes == MAGIC).map(|(at, _)| at);
        for at in starts.collect::<Vec<_>>() {
            content[at + MAGIC.len() - 1] ^= 1;
            damaged += 1;
        }
        fs::write(path, content).unwrap();
    }
    assert!(damaged > 0, "no SPIR-V was kept");
    let said = train("third");
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let told = |words: &str| said.stderr.contains(words);
    assert!(told("the device of this run failed") && told("/cache/graphsieve/"), "{}", said.stderr);
}
