//! What is sampled.

use std::sync::Arc;

use crate::config::Draw;
use crate::error::{Error, Result};
use crate::graph::{HeteroGraph, Relation};

/// How many in-neighbours of a node are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// All.
    All,
    /// So many, or all where there are no more.
    Most(u32),
}

impl From<usize> for Fanout {
    /// As configurations say it: 0 is all, and so is more than nodes have.
    fn from(most: usize) -> Self {
        match u32::try_from(most) {
            Ok(0) | Err(_) => Fanout::All,
            Ok(most) => Fanout::Most(most),
        }
    }
}

impl Fanout {
    /// How many entries a row gives that has `available` ones to choose from.
    #[inline]
    pub(super) fn count(self, available: usize, replace: bool) -> usize {
        match self {
            Fanout::All => available,
            Fanout::Most(most) if replace => most as usize * usize::from(available > 0),
            Fanout::Most(most) => available.min(most as usize),
        }
    }
}

/// Settings of a [`NeighbourSampler`](super::NeighbourSampler).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplerConfig {
    /// `[layer][relation]`, the layer next to the seeds first.
    pub fanouts: Vec<Vec<Fanout>>,
    /// Whether a neighbour can be drawn more than once; a node with any then has as many entries as its fanout. Default
    /// false.
    pub replace: bool,
    /// Which entries are taken of relations whose rows are spans: any, or the last ones of a row, which is in the order
    /// of time. Lists are drawn from uniformly either way, unless there are `weights` ([`weights_of`]). Default any.
    pub draw: Draw,
    /// How many batches in a row draw alike. With a number, an edge is drawn by a variate of its *source*, which is the
    /// same for all its edges and changes once in so many batches: the smallest variates of a row win, so neighbouring
    /// seeds and neighbouring batches share nodes and fewer features move. Without a number, every row draws on its
    /// own. Default none.
    ///
    /// # Source
    /// Balin and Çatalyürek, Layer-neighbor sampling (NeurIPS 2023).
    pub dependency: Option<u32>,
    /// `[relation]`: a weight for every entry, in the order of the relation's adjacency; no list is a weight of 1 for
    /// all. An entry of weight 0 is never taken, others in proportion to their weight: without replacement one after
    /// the other among those that are left. Default none.
    pub weights: Vec<Option<Arc<[f32]>>>,
    /// Seed of every draw. Default 0.
    pub seed: u64,
}

impl SamplerConfig {
    /// The same fanouts for all of `relations` relations; the layer next to the seeds first.
    pub fn new(fanouts: &[Fanout], relations: usize) -> Self {
        let fanouts = fanouts.iter().map(|&fanout| vec![fanout; relations]).collect();
        SamplerConfig { fanouts, ..SamplerConfig::default() }
    }

    /// Whether the last entries of a row of a relation are taken instead of a draw.
    pub fn takes_last(&self, relation: &Relation) -> bool {
        self.draw == Draw::Latest && relation.forward.is_spans()
    }

    /// Weights of the entries of a relation.
    pub(crate) fn weights_of(&self, relation: usize) -> Option<&[f32]> {
        self.weights.get(relation)?.as_deref()
    }

    /// Words that a device holds of the weights of a relation: sums of two words, too, for draws with replacement.
    pub(crate) fn words_of_weights(&self, relation: usize) -> usize {
        let each = if self.replace { 3 } else { 1 };
        self.weights_of(relation).map_or(0, |weights| each * weights.len())
    }

    /// Checks the settings for a graph of these relations.
    ///
    /// # Errors
    /// [`Error::Config`] that names the key, [`Error::Data`] for weights that do not fit a relation.
    pub(super) fn check(&self, graph: &[Relation]) -> Result<()> {
        let relations = graph.len();
        let refuse = |key: &str, expected: String, found: String, help: &str| Error::Config {
            origin: "sampler".into(),
            key: key.into(),
            expected,
            found,
            help: help.into(),
        };
        if self.fanouts.is_empty() {
            return Err(refuse("fanouts", "at least one layer".into(), "none".into(), "give one fanout per layer"));
        }
        if let Some(layer) = self.fanouts.iter().find(|layer| layer.len() != relations) {
            let expected = format!("{relations} fanouts per layer, one per relation");
            return Err(refuse("fanouts", expected, layer.len().to_string(), "SamplerConfig::new repeats one for all"));
        }
        if self.fanouts.iter().flatten().any(|&fanout| fanout == Fanout::Most(0)) {
            return Err(refuse("fanouts", "at least 1".into(), "0".into(), "leave the layer out instead"));
        }
        if !self.weights.is_empty() && self.weights.len() != relations {
            let expected = format!("{relations} lists, one per relation, or none at all");
            return Err(refuse("weights", expected, self.weights.len().to_string(), "a relation may have no list"));
        }
        for (weights, relation) in self.weights.iter().zip(graph) {
            check_weights(weights.as_deref(), relation)?;
        }
        check_draw(self.draw, graph, "sampler")?;
        let weighted =
            |(at, relation): &(usize, &Relation)| self.takes_last(relation) && self.weights_of(*at).is_some();
        if let Some((_, relation)) = graph.iter().enumerate().find(weighted) {
            let (expected, found) = ("none where the last entries are taken", format!("some for {}", relation.name));
            return Err(refuse("weights", expected.into(), found, "give other relations weights alone"));
        }
        if self.dependency == Some(0) {
            return Err(refuse("dependency", "at least 1".into(), "0".into(), "1 draws anew for every batch"));
        }
        if self.dependency.is_some() && self.replace {
            let help = "variates of sources choose a set; leave one of the two out";
            return Err(refuse("replace", "false with dependency".into(), "true".into(), help));
        }
        Ok(())
    }
}

/// [`SamplerConfig::weights`] of draws by the weights that the edges of a graph have.
pub fn weights_of(graph: &HeteroGraph) -> Vec<Option<Arc<[f32]>>> {
    graph.relations().iter().map(|relation| Some(relation.weights.as_ref()?.values().into())).collect()
}

/// Whether a graph has what a draw goes by: rows that are in the order of time, or weights of edges. `origin` says who
/// asks.
///
/// # Errors
/// [`Error::Config`].
pub fn check_draw(draw: Draw, graph: &[Relation], origin: &str) -> Result<()> {
    let (expected, found, help) = match draw {
        Draw::Latest if !graph.iter().any(|relation| relation.forward.is_spans()) => (
            "\"uniform\" for a graph without histories of events",
            "\"latest\"",
            "leave it out, or import tables whose nodes have a time; histories that an earlier version imported have no \
             order: import them again",
        ),
        Draw::Weighted if !graph.iter().any(|relation| relation.weights.is_some()) => (
            "\"uniform\" for a graph without weights of edges",
            "\"weighted\"",
            "leave it out, or name the column of weights (`weight`) of an [[edges]] table and import it again",
        ),
        _ => return Ok(()),
    };
    Err(Error::Config {
        origin: origin.to_owned().into(),
        key: "loader.draw".into(),
        expected: expected.into(),
        found: found.into(),
        help: help.into(),
    })
}

fn check_weights(weights: Option<&[f32]>, relation: &Relation) -> Result<()> {
    let Some(weights) = weights else { return Ok(()) };
    let refuse = |what: String, expected: String, found: String| {
        let help = "give a finite weight of at least 0 for every entry".into();
        Err(Error::Data { what, expected, found, help })
    };
    let entries = relation.forward.num_entries();
    if weights.len() != entries {
        let what = format!("weights of relation {}", relation.name);
        return refuse(what, format!("{entries} values"), weights.len().to_string());
    }
    match weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        None => Ok(()),
        Some(entry) => {
            let what = format!("weight of entry {entry} of relation {}", relation.name);
            refuse(what, "a finite number of at least 0".into(), weights[entry].to_string())
        }
    }
}
