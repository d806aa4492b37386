//! What needs something that a machine may lack. Most of it is generic in the backend: one body, one named trial per
//! backend of the build. What would make the same generic code again is here too, on the CPU, and what needs a browser.

use std::process::ExitCode;

use graphsieve_kernels::testing::harness;

/// Trials of functions that take nothing: laws of the CPU alone.
macro_rules! on_cpu {
    ($subject:literal; $($name:ident),+ $(,)?) => {
        vec![$(graphsieve_kernels::testing::harness::trial(None, concat!($subject, "::", stringify!($name)), &[], $name)),+]
    };
}

#[path = "../support/made.rs"]
mod made;
#[path = "../support/mod.rs"]
mod support;

mod classify;
mod encoder_weights;
mod golden_models;
mod gradients;
mod kept;
mod loader;
mod nn;
#[cfg(feature = "cuda")]
mod ranks;
mod reachable;
mod report;
#[cfg(feature = "serve")]
mod serve;
mod stage1_batches;
mod steady;
mod threads;
mod training;
mod trees;
mod valued;
mod webdriver;

fn main() -> ExitCode {
    // The longest first.
    let subjects = [
        loader::trials(),
        training::trials(),
        classify::trials(),
        encoder_weights::trials(),
        golden_models::trials(),
        kept::trials(),
        nn::trials(),
        reachable::trials(),
        report::trials(),
        stage1_batches::trials(),
        steady::trials(),
        threads::trials(),
        trees::trials(),
        #[cfg(feature = "cuda")]
        ranks::trials(),
    ];
    harness::run(subjects.into_iter().flatten().collect())
}
