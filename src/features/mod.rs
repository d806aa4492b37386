//! Neighbourhood features: what a node and its surroundings look like, as columns for models that see no graph.
//!
//! Trees on such columns are a strong detector of their own. Each block of columns can be left out
//! ([`NeighbourhoodConfig`]):
//!
//! | block | columns | what |
//! |---|---|---|
//! | raw | `x3` | `x` |
//! | mean | `mean1.x3`, `mean2.x3` | `M^k x`, `M = D^-1 A` |
//! | max | `max1.x3` | largest value among the ends of walks of `k` edges |
//! | sum | `sum1.x3` | `A^k x` |
//! | quantiles | `quantile0.25.x3` | quantile over in-neighbours |
//! | difference | `difference.x3` | `x - M x` |
//! | wavelets | `wavelet0.x3`, … | Beta wavelets `F_p x` of the normalised Laplacian, `p = 0..=order` |
//! | degree | `edge.log_degree` | `ln(1 + degree)` |
//! | edges | `pays.edge_mean.e0`, … | values of the edges to a node, by relation ([`IncidentValues`]) |
//! | labels | `label_share1`, `label_count1` | known labels of neighbours, out of fold ([`label_shares`]) |
//! | given | `embedding.0` | whatever a caller appends ([`FeatureTable::append`]) |
//!
//! with `F_p = (L/2)^p (I - L/2)^(C-p) / (2 B(p+1, C-p+1))` and `L = I - D^-1/2 A D^-1/2`, as in
//! [`nn::BwConv`](crate::nn::BwConv) but without anything to learn. A node without in-neighbours has zeros in `mean`,
//! `max` and `sum` and nothing in `quantile`; its degree tells it from others.
//!
//! A feature that is NaN is missing: means, maxima, sums and quantiles are those of the in-neighbours that have it, and
//! missing themselves where none of them has; a difference is missing where either side is. In the wavelets the mean of
//! the in-neighbours stands for what is missing, or 0.
//!
//! # Graphs with several relations
//! Columns cover all node types in their global numbering, so every graph here is a square matrix over all nodes:
//!
//! - the **union** of all relations, or
//! - each relation as a graph of its own, its columns named after it (`euu.mean1.x3`). A relation between two types is
//!   taken together with its reverse, under the name of the first: their rows are of different nodes, and two edges
//!   lead back to nodes of the same type.
//!
//! [`Over`] says which of them, or both. Each is a simple graph: an edge listed twice, or by two relations of a union,
//! counts once. Degrees are given per relation always, and over the union where there are several relations.
//!
//! # Example
//! ```
//! use burn_flex::{Flex, FlexDevice};
//! use graphsieve::features::{Execution, Neighbourhood, NeighbourhoodConfig};
//! use graphsieve::graph::{Adjacency, Features, HeteroGraph, RelationSpec};
//! // 0 <-> 1
//! let adjacency = Adjacency::from_edges(2, 2, &[(0, 1), (1, 0)]);
//! let edge = RelationSpec::new("edge", 0, 0, adjacency);
//! let graph = HeteroGraph::new(vec![("node".into(), 2)], vec![edge])?;
//! let x = Features::from_f32(vec![1.0, 3.0], 2, 1);
//! let config = NeighbourhoodConfig { hops: 1, wavelets: false, ..Default::default() };
//! let plan = Neighbourhood::new(&graph, &x, &config)?;
//! let table = plan.table::<Flex>(&FlexDevice, Execution::default())?;
//! let names: Vec<&str> = table.columns().iter().map(|column| column.name.as_str()).collect();
//! assert_eq!(names, ["x0", "mean1.x0", "difference.x0", "edge.log_degree"]);
//! assert_eq!(table.row(0)[..3], [1.0, 3.0, -2.0]);
//! # Ok::<(), graphsieve::Error>(())
//! ```

mod columns;
mod compute;
mod edge_values;
mod label_share;
mod operator;
mod plan;
mod spans;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod wavelets;

pub use crate::config::{NeighbourhoodConfig, Over};
pub use columns::{Block, Column};
pub use compute::Execution;
pub use edge_values::IncidentValues;
pub use label_share::{FoldedLabel, label_shares};
pub use plan::Neighbourhood;
pub use table::{FeatureTable, Piece};
pub(crate) use wavelets::coefficients;
