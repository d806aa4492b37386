//! What a trained model can be asked, whatever kind of model it is.

use graphsieve_kernels::GraphBackend;

use super::explain::Explanation;
use super::{Computed, ScoreOptions, ScoredRun};
use crate::error::{Error, Result};
use crate::run::bundle::Bundle;

/// A model that a checkpoint or a run holds.
///
/// A new kind of model is an implementation in a file of its own, a line in [`open`](super::kinds::open) and one in
/// [`Stage`](super::Stage); how it is trained is an implementation of [`Fit`](crate::train::fit::Fit).
pub(super) trait Model<B: GraphBackend> {
    /// What it says of all nodes of some data. `bundle` is what its run says of it. Of several devices kinds that work
    /// layer by layer give each a part of the nodes; others refuse them.
    ///
    /// # Errors
    /// Data or input that cannot be read or do not fit; options that it has no use for.
    fn compute(&self, options: &ScoreOptions, bundle: Option<&Bundle>, devices: &[B::Device]) -> Result<Computed>;

    /// Why some nodes of `run`, whose model it is, have their scores; of a node classifier the class that is looked at.
    ///
    /// # Errors
    /// Input that cannot be read or does not fit; a node without a score; a run with the settings of another task.
    fn explain(&self, run: &ScoredRun, nodes: &[u32], device: &B::Device) -> Result<Vec<Explanation>>;
}

/// Refuses several devices of a kind that takes one.
pub(super) fn check_one<D>(devices: &[D], found: &str) -> Result<()> {
    match devices {
        [_] => Ok(()),
        _ => Err(Error::Usage {
            argument: format!("--devices {}", devices.len()),
            expected: "a network of Stage 2 or of a node classification".into(),
            found: found.into(),
            help: "leave --devices out".into(),
        }),
    }
}

/// Refuses the first of these arguments that is given: there is no use for it with `what`.
pub(super) fn check_unused(arguments: &[(&str, bool)], what: &str, help: impl Into<String>) -> Result<()> {
    match arguments.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((argument, _)) => Err(Error::Usage {
            argument: (*argument).into(),
            expected: format!("no such argument with {what}"),
            found: "one".into(),
            help: help.into(),
        }),
    }
}

/// The error of a run whose settings are not those of its model, which is `expected`.
pub(super) fn other_task(run: &ScoredRun, expected: &str) -> Error {
    let help = "the run directory was changed; train it again";
    Error::format(run.run.config(), "task", format!("that of {expected}"), "another one", help)
}
