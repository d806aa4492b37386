//! Bytes that a layer moves, forward and backward.

use std::collections::BTreeSet;

use crate::bench::bytes::{self, Shape};
use crate::graph::Sizes;

/// Kernels of a layer of Stage 2 for a relation and for a node type, forward and backward with what the gradients of
/// the attention's vectors take: as counted in `src/bench/results/gpu.md`, "Launches". Other layers have about as many.
const FOR_A_RELATION: [f64; 2] = [3.0, 9.0];
const FOR_A_TYPE: [f64; 2] = [5.0, 4.0];

/// Those of the loss, of its gradient and of the step of the parameters, and those that look for the rows that it
/// reaches.
const FOR_THE_LOSS: f64 = 38.0;
const FOR_ITS_ROWS: f64 = 28.0;

/// Kernels that `layers` take in a training, or forward alone, however few rows they have.
pub fn launches_of_layers(sizes: &Sizes, layers: usize, trains: bool) -> f64 {
    let of = |[forward, backward]: [f64; 2]| if trains { forward + backward } else { forward };
    let (relations, types) = (sizes.relations.len() as f64, sizes.node_types.len() as f64);
    layers as f64 * (relations * of(FOR_A_RELATION) + types * of(FOR_A_TYPE))
}

/// Kernels of a step that are of no layer.
pub fn launches_of_loss(all_rows: bool) -> f64 {
    if all_rows { FOR_THE_LOSS } else { FOR_THE_LOSS + FOR_ITS_ROWS }
}

/// Bytes that every device moves to find the rows that its part of the loss reaches: of each node a mark, cleared and
/// read twice, and its place among the rows of either layer, cleared.
pub fn bytes_of_marks(nodes: f64) -> f64 {
    4.0 * 5.0 * nodes
}

/// What a layer does with the rows of its relations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Attention over rows as wide as the input, then a projection for each relation: Stage 2, with one head. With
    /// `again` the backward pass repeats its sums.
    Attention { again: bool },
    /// Sums over rows as wide as the input and over a loop, then a projection for each relation and one of the node
    /// itself: Stage 1.
    Sums,
    /// A projection to `width` columns for each relation, then sums of them or, with `heads`, attention; and with `own`
    /// a projection of the node itself, else a loop: classifiers.
    Projected { width: usize, heads: usize, own: bool },
    /// A projection of nodes alone.
    Dense,
    /// `order` sums one after the other over rows as wide as the result, for each relation.
    Wavelets { order: usize },
}

/// A layer, whatever the graph.
#[derive(Clone, Copy, Debug)]
pub struct LayerShape {
    pub kind: Kind,
    pub input: usize,
    pub output: usize,
    /// Columns of what it makes of a row and keeps for the backward pass, which are there once more as gradients.
    pub columns: f64,
}

/// What a layer visits of a relation.
#[derive(Clone, Copy, Debug)]
pub struct Visited {
    /// Destinations that are computed.
    pub rows: f64,
    /// Their edges, of which some are kept.
    pub edges: f64,
    pub kept: f64,
}

/// A layer on one of several devices.
pub struct Layer<'a> {
    pub sizes: &'a Sizes,
    pub shape: LayerShape,
    /// By relation.
    pub visited: &'a [Visited],
    /// By type: rows that it computes, and rows before it.
    pub rows: &'a [f64],
    pub before: &'a [f64],
    /// Devices that share the projection of the rows before it, where it has no other use for these rows.
    pub shared_by: f64,
    pub element: u64,
    /// Whether the rows before it are features, which get no gradient.
    pub reads_data: bool,
    /// Whether sums of features were made before.
    pub sums_at_hand: bool,
}

impl Layer<'_> {
    /// Streams of relations from or into a type.
    fn streams_of(&self, t: usize) -> usize {
        let touching = self.sizes.relations.iter().filter(|of| of.src == t || of.dst == t);
        touching.map(|of| of.stream.as_str()).collect::<BTreeSet<_>>().len()
    }

    /// In a training, or forward alone.
    pub fn bytes(&self, trains: bool) -> f64 {
        let LayerShape { kind, input, output, .. } = self.shape;
        let [input, output] = [input, output].map(|width| width as u64);
        let (element, reads_data) = (self.element, self.reads_data);
        let both = |forward: u64, backward: u64| forward + if trains { backward } else { 0 };
        let to_width = |rows: u64, width: u64, needs_gradient: bool| {
            let forward = bytes::linear_forward(rows, input, width, element);
            // Of the weight alone: both matrices in, the weight out.
            let backward = if needs_gradient { bytes::linear_backward(rows, input, width, element) } else { forward };
            both(forward, backward)
        };
        let project = |rows: u64| to_width(rows, output, !reads_data);
        let mut total = 0;
        for (of, visited) in self.sizes.relations.iter().zip(self.visited) {
            let [rows, edges, kept] = [visited.rows, visited.edges, visited.kept].map(|count| count as u64);
            if rows == 0 {
                continue;
            }
            let cols = self.before[of.src] as u64;
            let over = |channels: u64, heads: usize, kept: u64| Shape {
                rows,
                cols,
                bounds: 1,
                edges,
                kept,
                channels,
                heads: heads as u64,
                element,
            };
            let sum = |shape: Shape| both(bytes::spmm_forward(shape), bytes::spmm_backward(shape));
            total += match kind {
                Kind::Attention { again } => {
                    let shape = over(input, 1, kept);
                    let forward = bytes::gat_forward(shape);
                    let backward = if reads_data { bytes::spmm_forward(shape) } else { bytes::gat_backward(shape) };
                    let repeated = if again { forward } else { 0 };
                    both(forward, repeated + backward) + to_width(rows, output, true)
                }
                // A product of the sums of all relations side by side, and the node itself.
                Kind::Sums if self.sums_at_hand => both(1, 1) * rows * input * element,
                Kind::Sums if reads_data => bytes::spmm_forward(over(input, 1, kept + rows)) + project(rows),
                Kind::Sums => sum(over(input, 1, kept + rows)) + project(rows),
                Kind::Projected { width, heads, own } => {
                    let shape = over(width as u64, heads.max(1), if own { kept } else { kept + rows });
                    let shared_by = if own { 1.0 } else { self.shared_by };
                    let projected = to_width((cols as f64 / shared_by) as u64, width as u64, !reads_data);
                    projected
                        + match heads {
                            0 => sum(shape),
                            _ => {
                                let [forward, backward] = [bytes::gat_forward(shape), bytes::gat_backward(shape)];
                                both(forward + bytes::scores(shape), backward + bytes::scores(shape))
                            }
                        }
                }
                Kind::Dense => 0,
                Kind::Wavelets { order } => {
                    let order = order as u64;
                    to_width(rows, (order + 1) * output, !reads_data) + order * sum(over(output, 1, kept))
                }
            };
        }
        let rows = self.rows.iter().sum::<f64>() as u64;
        total += match kind {
            Kind::Sums | Kind::Dense | Kind::Projected { own: true, .. } => project(rows),
            Kind::Attention { .. } | Kind::Wavelets { .. } | Kind::Projected { .. } => 0,
        };
        total += if trains { bytes::elu_both(rows, output, element) } else { 2 * rows * output * element };
        // Scores of the rows before the layer; where these get a gradient, it is read and written again.
        let passes = match kind {
            Kind::Attention { .. } if reads_data || !trains => 1,
            Kind::Attention { .. } => 3,
            _ => 0,
        };
        // A score of every row as a source and as a destination for each stream of its type.
        let scores = |(t, rows): (usize, &f64)| 8.0 * self.streams_of(t) as f64 * rows;
        let scores: f64 = if passes > 0 { self.before.iter().enumerate().map(scores).sum() } else { 0.0 };
        let read = self.before.iter().sum::<f64>() * (input * element) as f64;
        total as f64 + f64::from(passes) * read + scores
    }
}
