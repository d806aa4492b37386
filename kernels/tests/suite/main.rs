//! Everything that a backend computes, on every backend of the build: operators against the f64 oracle, forward and all
//! gradients, and integers, samples and trees against plain loops on the host.
//!
//! One program, so that code that is generic in the backend is made once. A body is a function of a backend; the
//! `trials` of a file name its bodies.

use std::process::ExitCode;

use graphsieve_kernels::testing::harness;

#[cfg(feature = "vulkan")]
mod ahead;
mod attention;
mod dense;
mod edge_attention;
mod exchanges;
mod gatv2;
mod gatv2_ages;
mod half;
mod in_chunks;
mod messages;
mod passes;
mod prims;
mod sampling;
mod selection;
mod self_loops;
mod spans;
mod spmm;
mod sums;
mod support;
mod training;
mod trees;
mod uploads;
mod wide;

/// Mesa's software driver does not optimise kernels then. There are many here and none runs for long, so that the whole
/// takes two thirds of the time.
const SOFTWARE_DRIVER: (&str, &str) = ("GALLIVM_PERF", "nopt");

fn main() -> ExitCode {
    // The longest first.
    let subjects = [
        wide::trials(),
        half::trials(),
        spans::trials(),
        messages::trials(),
        sampling::trials(),
        attention::trials(),
        edge_attention::trials(),
        gatv2::trials(),
        trees::trials(),
        gatv2_ages::trials(),
        dense::trials(),
        selection::trials(),
        passes::trials(),
        sums::trials(),
        in_chunks::trials(),
        training::trials(),
        #[cfg(feature = "vulkan")]
        ahead::trials(),
        spmm::trials(),
        self_loops::trials(),
        exchanges::trials(),
        prims::trials(),
        uploads::trials(),
    ];
    harness::run_with(subjects.into_iter().flatten().collect(), &[SOFTWARE_DRIVER])
}
