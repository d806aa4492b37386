//! Why a node has its score: what its neighbours, their neighbours, and the columns of its features add, for runs of
//! Stage 1, 2 and 3 and of node classification.

pub mod drawing;
mod explanation;
mod members;
pub(super) mod names;
pub(super) mod network;
pub(super) mod neural;
pub(super) mod parameters;
mod run;
pub(super) mod similar;
pub(super) mod stage1;
pub(super) mod stage3;

use std::cmp::Ordering;

pub use explanation::{BlockPart, ColumnPart, Explanation, Line, Method, NeighbourPart, PathPart, RelationPart};
pub use members::Coverage;
pub use names::{between, name_of, node_of};
pub use run::{explain_members, explain_run, open_run};
pub use similar::SimilarPart;

/// Neighbours of a node that an explanation lists.
pub const MOST_NEIGHBOURS: usize = 20;
/// Neighbours of a neighbour that it lists.
pub const MOST_PATHS: usize = 5;
/// Known anomalies that it lists.
pub const MOST_SIMILAR: usize = 5;

/// The block of the node's own columns in a network.
const FEATURES: &str = "features";

/// The order of contributions: the largest first, whatever its sign.
fn by_magnitude(a: f64, b: f64) -> Ordering {
    b.abs().total_cmp(&a.abs())
}
