//! How batches are loaded.

use std::fmt;
use std::sync::Arc;

use graphsieve_kernels::DropEdge;
use rayon::prelude::*;

use super::placement::Placement;
use crate::error::Result;
use crate::graph::HeteroGraph;
use crate::sampler::{EdgePlace, NeighbourSampler};

/// The rows that stay on the device for good.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Hot {
    /// None.
    #[default]
    None,
    /// This share of all nodes, in (0, 1]: those that most edges lead from.
    Degree(f64),
    /// This share of all nodes: those that batches drawn beforehand have most often; ties by degree.
    Presampled(f64),
}

impl Hot {
    /// The nodes, by type and in descending order of use. `seeds` are those of batches to draw beforehand, with their
    /// numbers.
    ///
    /// # Errors
    /// Seeds that the sampler refuses.
    pub fn nodes(
        self,
        graph: &HeteroGraph,
        sampler: &NeighbourSampler,
        seeds: impl IntoIterator<Item = (u64, Vec<Vec<u32>>)>,
    ) -> Result<Vec<Vec<u32>>> {
        let types = graph.node_types();
        let (share, presampled) = match self {
            Hot::None => return Ok(vec![Vec::new(); types.len()]),
            Hot::Degree(share) => (share, false),
            Hot::Presampled(share) => (share, true),
        };
        let mut uses: Vec<Vec<(u32, u64)>> = types.iter().map(|t| vec![(0, 0); t.count]).collect();
        for relation in graph.relations() {
            let degrees = &relation.reverse;
            uses[relation.src].par_iter_mut().enumerate().for_each(|(node, (_, degree))| {
                *degree += degrees.degree(node) as u64;
            });
        }
        if presampled {
            let mut scratch = sampler.scratch();
            for (number, seeds) in seeds {
                let batch = sampler.sample(&mut scratch, number, &seeds)?;
                for (uses, nodes) in uses.iter_mut().zip(&batch.nodes) {
                    nodes.iter().for_each(|&node| uses[node as usize].0 += 1);
                }
            }
        }
        let count = (graph.num_nodes() as f64 * share) as usize;
        let mut ranked: Vec<(u32, u64, usize, u32)> = uses
            .into_iter()
            .enumerate()
            .flat_map(|(t, uses)| uses.into_iter().zip(0..).map(move |((used, degree), node)| (used, degree, t, node)))
            .collect();
        let descending = |a: &(u32, u64, usize, u32), b: &(u32, u64, usize, u32)| {
            (b.0, b.1).cmp(&(a.0, a.1)).then((a.2, a.3).cmp(&(b.2, b.3)))
        };
        ranked.par_sort_unstable_by(descending);
        let mut hot = vec![Vec::new(); types.len()];
        ranked.into_iter().take(count).for_each(|(_, _, t, node)| hot[t].push(node));
        Ok(hot)
    }
}

/// Which of the edges drawn for a batch are left out: the decision of that number of the batch, layer and relation.
pub type DropRule = Arc<dyn Fn(u64, EdgePlace) -> Option<DropEdge> + Send + Sync>;

/// Settings of a [`Loader`](super::Loader).
#[derive(Clone)]
pub struct LoaderOptions {
    /// Batches that are prepared at once, at least 1; two threads of the processor work on each. A device prepares one
    /// while it computes another. Default 2.
    pub prefetch: usize,
    /// Whether rows of the batch before stay on the device. Default true.
    pub window: bool,
    /// `[type]`: nodes whose rows stay on the device for good, see [`Hot::nodes`]; no list at all for none. Default
    /// none.
    pub hot: Vec<Vec<u32>>,
    /// Edges to leave out, by global ids as in full-batch training. Default none.
    pub drop_edge: Option<DropRule>,
    /// Whether backward passes go through the layer that reads the features to its sources. Where they do not, its
    /// adjacencies come without their reverse, which is made if it is asked for. Default true.
    pub first_reverse: bool,
    /// Where the adjacency lies while it is sampled; the sample is the same. A device that samples collects the
    /// features, too, and has to reach them: see [`FeatureStore::source`](super::FeatureStore::source). Default host
    /// memory, by the processor.
    pub placement: Placement,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        LoaderOptions {
            prefetch: 2,
            window: true,
            hot: Vec::new(),
            drop_edge: None,
            first_reverse: true,
            placement: Placement::Host,
        }
    }
}

impl fmt::Debug for LoaderOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hot: usize = self.hot.iter().map(Vec::len).sum();
        let drop_edge = self.drop_edge.is_some();
        let (ahead, window, placement) = (self.prefetch, self.window, self.placement);
        write!(f, "LoaderOptions({ahead} ahead, window {window}, {hot} hot, drop_edge {drop_edge}, {placement:?})")
    }
}
