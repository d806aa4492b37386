//! What is computed, before anything is: graphs and columns.

use std::collections::HashMap;

use super::columns::{Block, Column};
use super::view::{View, views};
use crate::config::NeighbourhoodConfig;
use crate::error::Result;
use crate::graph::{Features, HeteroGraph};

/// Neighbourhood columns of a graph: which there are, and, on a device, their values.
///
/// Values come piece by piece ([`stream`](Self::stream)), so that millions of nodes need no more memory than a few
/// matrices of [`Execution::columns`](super::Execution::columns) columns, or all at once ([`table`](Self::table)).
pub struct Neighbourhood<'a> {
    pub(super) features: &'a Features,
    pub(super) config: NeighbourhoodConfig,
    pub(super) views: Vec<View>,
    /// Columns of which some value may be missing elsewhere.
    pub(super) missing: Vec<bool>,
    columns: Vec<Column>,
    /// First column of every set of as many columns as there are features, or of one for a degree.
    first: HashMap<Set, usize>,
}

/// A set of columns: a block of a view at a distance (`mean`, `max`, `sum`) or of a filter (`wavelets`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Set {
    pub view: usize,
    pub block: Block,
    pub at: usize,
}

impl<'a> Neighbourhood<'a> {
    /// Builds the graphs that `config` asks for and lays out the columns.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a setting out of range; [`Error::Data`](crate::Error::Data) when the
    /// features are not one row per node, or when events share histories of more edges than can be listed, where they
    /// cannot stay shared.
    pub fn new(graph: &HeteroGraph, features: &'a Features, config: &NeighbourhoodConfig) -> Result<Self> {
        config.check()?;
        features.check_rows(graph.num_nodes())?;
        Ok(Self::over(views(graph, config)?, features, config))
    }

    /// The columns of some rows alone, where `config` asks for none that looks at neighbours.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a setting out of range.
    ///
    /// # Panics
    /// For other columns.
    pub fn alone(features: &'a Features, config: &NeighbourhoodConfig) -> Result<Self> {
        config.check()?;
        assert!(!config.looks_at_neighbours(), "Neighbourhood::alone: expected no column of neighbours");
        Ok(Self::over(Vec::new(), features, config))
    }

    fn over(views: Vec<View>, features: &'a Features, config: &NeighbourhoodConfig) -> Self {
        let missing = vec![false; features.dim()];
        let (columns, first) = (Vec::new(), HashMap::new());
        let mut plan = Self { features, config: config.clone(), views, missing, columns, first };
        plan.lay_out();
        plan
    }

    /// With columns that are taken for such as lack values, be it that all are here: a row of a part of a graph is then
    /// the same to the bit in any company that lacks no others.
    ///
    /// # Panics
    /// Unless there is one for every feature.
    pub fn with_missing(self, missing: &[bool]) -> Self {
        assert_eq!(missing.len(), self.features.dim(), "with_missing: expected one per feature");
        Self { missing: missing.to_vec(), ..self }
    }

    fn lay_out(&mut self) {
        let config = self.config.clone();
        if config.raw {
            self.add(0, Block::Raw, 0, "");
        }
        let prefixes: Vec<(usize, String)> =
            self.views.iter().enumerate().filter(|(_, v)| v.in_blocks).map(|(at, v)| (at, v.prefix.clone())).collect();
        for (view, prefix) in prefixes {
            for (wanted, block) in [(config.mean, Block::Mean), (config.max, Block::Max), (config.sum, Block::Sum)] {
                for hop in (1..=config.hops).filter(|_| wanted) {
                    self.add(view, block.clone(), hop, &format!("{prefix}{block}{hop}."));
                }
            }
            for (at, quantile) in config.quantiles.iter().enumerate() {
                self.add(view, Block::Quantiles, at, &format!("{prefix}quantile{quantile}."));
            }
            if config.difference {
                self.add(view, Block::Difference, 0, &format!("{prefix}difference."));
            }
            for filter in (0..=config.wavelet_order).filter(|_| config.wavelets) {
                self.add(view, Block::Wavelets, filter, &format!("{prefix}wavelet{filter}."));
            }
        }
        if config.log_degree {
            for view in 0..self.views.len() {
                let name = self.views[view].degree.clone();
                self.first.insert(Set { view, block: Block::Degree, at: 0 }, self.columns.len());
                self.columns.push(Column::new(name, Block::Degree));
            }
        }
    }

    fn add(&mut self, view: usize, block: Block, at: usize, prefix: &str) {
        let columns = (0..self.features.dim()).map(|column| Column::new(format!("{prefix}x{column}"), block.clone()));
        self.first.insert(Set { view, block: block.clone(), at }, self.columns.len());
        self.columns.extend(columns);
    }

    /// Names and blocks of all columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Number of rows: nodes of all types.
    pub fn num_nodes(&self) -> usize {
        self.features.num_rows()
    }

    /// The first column of a set, unless it is left out.
    pub(super) fn first(&self, view: usize, block: Block, at: usize) -> Option<usize> {
        self.first.get(&Set { view, block, at }).copied()
    }
}
