//! What is sampled.

use crate::error::{Error, Result};

/// How many in-neighbours of a node are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// All.
    All,
    /// So many, or all where there are no more.
    Most(u32),
}

/// Settings of a [`NeighbourSampler`](super::NeighbourSampler).
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerConfig {
    /// `[layer][relation]`, the layer next to the seeds first.
    pub fanouts: Vec<Vec<Fanout>>,
    /// Whether a neighbour can be drawn more than once; a node with any then has as many entries as its fanout. Default
    /// false.
    pub replace: bool,
    /// How many batches in a row draw alike. With a number, an edge is drawn by a variate of its *source*, which is the same
    /// for all its edges and changes once in so many batches: the smallest variates of a row win, so neighbouring seeds and
    /// neighbouring batches share nodes and fewer features move. Without a number, every row draws on its own. Default none.
    ///
    /// # Source
    /// Balin and Çatalyürek, Layer-neighbor sampling (NeurIPS 2023).
    pub dependency: Option<u32>,
    /// Seed of every draw. Default 0.
    pub seed: u64,
}

impl SamplerConfig {
    /// The same fanouts for all of `relations` relations; the layer next to the seeds first.
    pub fn new(fanouts: &[Fanout], relations: usize) -> Self {
        let fanouts = fanouts.iter().map(|&fanout| vec![fanout; relations]).collect();
        SamplerConfig { fanouts, replace: false, dependency: None, seed: 0 }
    }

    /// Checks the settings for a graph of `relations` relations.
    ///
    /// # Errors
    /// [`Error::Config`] that names the key.
    pub(super) fn check(&self, relations: usize) -> Result<()> {
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
