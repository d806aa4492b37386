//! What a trained model can be asked, whatever kind of model it is.

use std::path::Path;

use graphsieve_kernels::GraphBackend;

use super::explain::Explanation;
use super::explain::names::Names;
use super::{Computed, ScoreOptions, ScoredRun};
use crate::error::{Error, Result};
use crate::graph::{Dataset, Features};
use crate::infer::embed::Growing;
use crate::infer::tree_table::TableLabels;
use crate::live::{Makes, Part};
use crate::models::attention::TripleStreamGat;
use crate::run::bundle::{Bundle, Reads};

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

    /// The model with all that it reads, once, to score parts of data like those of `place`.
    ///
    /// # Errors
    /// Data that do not fit; a model that looks at more than a part.
    fn prepared(self: Box<Self>, place: &Place<'_, B>) -> Result<Box<dyn PartModel<B>>>;
}

/// Where a model is to score parts of a graph.
pub(super) struct Place<'a, B: GraphBackend> {
    /// The run of the model.
    pub run: &'a Path,
    /// What it says of the model.
    pub bundle: Option<&'a Bundle>,
    /// The data, and where they were read from.
    pub dataset: &'a Dataset,
    pub data: &'a Path,
    pub device: &'a B::Device,
}

impl<B: GraphBackend> Place<'_, B> {
    /// Refuses data that do not belong to the model.
    ///
    /// # Errors
    /// As for [`Bundle::check`].
    pub fn check(&self, reads: Reads) -> Result<()> {
        self.bundle.map_or(Ok(()), |bundle| bundle.check(self.run, self.dataset, self.data, reads))
    }

    /// Refuses a model that `reads` ages of edges where parts do not tell them: by times of events, or because the
    /// graph has them already. Otherwise they count from the latest edge of all.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check_ages(&self, reads: bool) -> Result<()> {
        match !reads || self.dataset.events.is_some() || self.dataset.graph.has_ages() {
            true => Ok(()),
            false => Err(self.refused("ages of edges that events tell", "ages since the latest of all edges")),
        }
    }

    /// The error of a model that a part does not tell enough.
    pub fn refused(&self, expected: &str, found: &str) -> Error {
        Error::Usage {
            argument: self.run.display().to_string(),
            expected: format!("{expected}: a node is scored from what is around it"),
            found: found.into(),
            help: "serve another model; `graphsieve score` scores all nodes of a data directory with this one".into(),
        }
    }
}

/// What a model has read or made for all nodes at once.
#[derive(Debug, Default)]
pub(super) struct OfAll {
    /// Embeddings of Stage 1.
    pub embeddings: Option<Features>,
    /// Labels that the model reads.
    pub labels: TableLabels,
}

impl OfAll {
    /// The embeddings of a model that reads some.
    pub fn rows(&self) -> &Features {
        self.embeddings.as_ref().unwrap_or_else(|| unreachable!("what reads embeddings has them made at a refresh"))
    }
}

/// How many edges a model looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// From a target.
    pub hops: usize,
    /// What it makes of nodes, where a part need not have what that is made of.
    pub makes: Makes,
}

impl Reach {
    /// Of a model that looks so many edges, reads embeddings of Stage 1 of what is within as many as is said, and has
    /// so many networks that keep rows.
    pub fn of<B: GraphBackend>(hops: usize, embeddings: Option<(&Growing<B>, usize)>, networks: usize) -> Self {
        let around = embeddings.and_then(|(growing, within)| growing.around(within));
        let read = embeddings.map_or(0, |(growing, within)| match around {
            Some(_) => within,
            None => within + growing.reach(),
        });
        let hops = hops.max(read);
        // Rows of the first layer are all that is one step from the end.
        let networks = if hops == TripleStreamGat::<B>::LAYERS { networks } else { 0 };
        Self { hops, makes: Makes { embeddings: around, networks } }
    }

    /// From a target, whatever there is already.
    pub fn whole(&self) -> usize {
        self.hops.max(self.makes.embeddings.map_or(0, |made| made.within + made.reach))
    }
}

/// A model that was read once, for parts of a graph.
pub(super) trait PartModel<B: GraphBackend>: Send + Sync {
    /// How many edges a part has to reach from its targets.
    fn reach(&self) -> Reach;

    /// Layers in which nodes meet their neighbours: neighbours have to be drawn for each.
    fn layers(&self) -> usize {
        1
    }

    /// Reads or makes what is made for all nodes of `dataset` at once.
    ///
    /// # Errors
    /// What cannot be read or does not fit.
    fn of_all(&self, dataset: &Dataset) -> Result<OfAll>;

    /// Whether a part has the same scores to the bit beside others ([`Part::join`]).
    fn joins(&self, _part: &Part) -> bool {
        false
    }

    /// The score of every target.
    ///
    /// # Errors
    /// Input that does not fit; a device that failed.
    fn scores(&self, part: &Part, all: &OfAll) -> Result<Vec<f32>>;

    /// Why a node of a part has its score, which `names` has, and the probability that it means.
    ///
    /// # Errors
    /// As for [`scores`](Self::scores).
    fn explain(
        &self,
        part: &Part,
        all: &OfAll,
        names: &Names,
        node: u32,
        probability: Option<f64>,
    ) -> Result<Explanation>;
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

/// The explanation of one node.
pub(super) fn only(mut explanations: Vec<Explanation>) -> Result<Explanation> {
    Ok(explanations.pop().unwrap_or_else(|| unreachable!("a node has an explanation or an error")))
}
