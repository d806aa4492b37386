//! Bytes that a layer of Stage 2 moves in a training, forward and backward.

use crate::bench::bytes::{self, Shape};
use crate::graph::Sizes;

/// What a layer visits of a relation.
#[derive(Clone, Copy, Debug)]
pub struct Visited {
    /// Destinations that are computed.
    pub rows: f64,
    /// Their edges, of which some are kept.
    pub edges: f64,
    pub kept: f64,
}

/// A layer.
pub struct Layer<'a> {
    pub sizes: &'a Sizes,
    /// By relation.
    pub visited: &'a [Visited],
    /// By type: rows that it computes, and rows before it.
    pub rows: &'a [f64],
    pub before: &'a [f64],
    pub widths: [usize; 2],
    pub element: u64,
    /// Whether the rows before it are features, which get no gradient.
    pub reads_data: bool,
}

impl Layer<'_> {
    /// Attention over rows as wide as the input, then the projection, as a layer with one head goes about it.
    pub fn bytes(&self) -> f64 {
        let [input, output] = self.widths.map(|width| width as u64);
        let mut total = 0;
        for (of, visited) in self.sizes.relations.iter().zip(self.visited) {
            let [rows, edges, kept] = [visited.rows, visited.edges, visited.kept].map(|count| count as u64);
            if rows == 0 {
                continue;
            }
            let cols = self.before[of.src] as u64;
            let shape = Shape { rows, cols, bounds: 1, edges, kept, channels: input, heads: 1, element: self.element };
            let backward = if self.reads_data { bytes::spmm_forward(shape) } else { bytes::gat_backward(shape) };
            let projection = |count: fn(u64, u64, u64, u64) -> u64| count(rows, input, output, self.element);
            total += bytes::gat_forward(shape) + backward;
            total += projection(bytes::linear_forward) + projection(bytes::linear_backward);
        }
        let rows = self.rows.iter().sum::<f64>() as u64;
        total += bytes::elu_both(rows, output, self.element);
        // Scores of the rows before the layer; where these get a gradient, it is read and written again.
        let passes = if self.reads_data { 1 } else { 3 };
        total as f64 + passes as f64 * self.before.iter().sum::<f64>() * (input * self.element) as f64
    }
}
