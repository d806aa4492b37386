//! The neighbourhood features of a node: which columns are made, and over which edges.

use serde::{Deserialize, Serialize};

use super::ranges::{between, quantiles};
use crate::error::{Error, Result};

/// Most hops and highest order of the wavelets: beyond, walks reach everything and columns repeat each other.
const MAX_HOPS: usize = 8;

/// The graphs that neighbourhood blocks are made over; see the module `features`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// All relations as one graph.
    #[default]
    Union,
    /// Each relation, joined with its reverse where it leads from one type to another.
    Relations,
    /// The union and each relation; one graph where there is one relation.
    Both,
}

/// The blocks of columns of `features::Neighbourhood`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NeighbourhoodConfig {
    /// The features themselves. Default true.
    pub raw: bool,
    /// How far `mean`, `max` and `sum` look, in edges, 1 to 8: one set of columns for each distance. Default 2.
    #[serde(deserialize_with = "between::<1, MAX_HOPS, _>")]
    pub hops: usize,
    /// Means over in-neighbours. Default true.
    pub mean: bool,
    /// Largest values among in-neighbours. Default false.
    pub max: bool,
    /// Sums over in-neighbours. Default false.
    pub sum: bool,
    /// Quantiles over in-neighbours, each in [0, 1], at most 16, linear between neighbouring values. Default none.
    #[serde(deserialize_with = "quantiles")]
    pub quantiles: Vec<f64>,
    /// What sets a node apart from the mean of its in-neighbours. Default true.
    pub difference: bool,
    /// Beta wavelets. Default true.
    pub wavelets: bool,
    /// Order of the wavelets, 1 to 8; there is one more of them. Default 2.
    #[serde(deserialize_with = "between::<1, MAX_HOPS, _>")]
    pub wavelet_order: usize,
    /// Logarithm of the number of in-neighbours. Default true.
    pub log_degree: bool,
    /// Means, smallest and largest values of the edges to a node, by relation and value, where the data have any.
    /// Default false.
    pub edge_values: bool,
    /// The graphs that all else is computed over. Default the union of all relations.
    pub over: Over,
    /// Whether every node is its own in-neighbour, exactly once. Otherwise self-loops are as the data have them.
    /// Default false.
    pub self_loops: bool,
}

impl Default for NeighbourhoodConfig {
    fn default() -> Self {
        Self {
            raw: true,
            hops: 2,
            mean: true,
            max: false,
            sum: false,
            quantiles: Vec::new(),
            difference: true,
            wavelets: true,
            wavelet_order: 2,
            log_degree: true,
            edge_values: false,
            over: Over::Union,
            self_loops: false,
        }
    }
}

impl NeighbourhoodConfig {
    /// No block at all, to switch on what is wanted.
    pub fn none() -> Self {
        Self { raw: false, mean: false, difference: false, wavelets: false, log_degree: false, ..Self::default() }
    }

    /// Whether any block is computed by operators along edges.
    pub(crate) fn walks(&self) -> bool {
        self.mean || self.max || self.sum || self.difference || self.wavelets
    }

    /// Whether any block looks at neighbours.
    pub(crate) fn looks_at_neighbours(&self) -> bool {
        self.walks() || self.log_degree || !self.quantiles.is_empty()
    }

    /// # Errors
    /// [`Error::Config`] for a distance out of range, or when every block is left out.
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |key: &str, expected: &str, found: String, help: &str| Error::Config {
            origin: "features".into(),
            key: key.into(),
            expected: expected.into(),
            found,
            help: help.into(),
        };
        let range = format!("a whole number from 1 to {MAX_HOPS}");
        for (key, found) in [("hops", self.hops), ("wavelet_order", self.wavelet_order)] {
            if !(1..=MAX_HOPS).contains(&found) {
                return Err(refused(key, &range, found.to_string(), "2 is the usual choice"));
            }
        }
        if !self.raw && !self.edge_values && !self.looks_at_neighbours() {
            return Err(refused("blocks", "at least one of them", "none".into(), "set raw = true"));
        }
        let is_repeated = |at: usize| self.quantiles[..at].contains(&self.quantiles[at]);
        if let Some(at) = (0..self.quantiles.len()).find(|&at| is_repeated(at)) {
            let (found, help) = (format!("{:?}", self.quantiles), "list each quantile once");
            return Err(refused("quantiles", &format!("{} once", self.quantiles[at]), found, help));
        }
        Ok(())
    }
}
