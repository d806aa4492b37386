//! Bytes that the operators cannot avoid moving when every kept edge fetches its row from memory.
//!
//! What stays in a cache is not subtracted, so a small graph may well run faster than its floor. Ids are 4 bytes, and
//! so are the scalars per row and head. The product that projects features, and the scores that a fused projection
//! would leave behind, belong to [`linear_forward`].

/// What the byte counts of one relation depend on.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Destinations.
    pub rows: u64,
    /// Sources.
    pub cols: u64,
    /// Numbers that tell where a row stands among the entries: its start, and of spans its end.
    pub bounds: u64,
    pub edges: u64,
    /// Edges that DropEdge leaves.
    pub kept: u64,
    /// Width of the features, all heads together.
    pub channels: u64,
    pub heads: u64,
    /// Bytes per stored feature.
    pub element: u64,
}

impl Shape {
    /// Bytes of `rows` rows of features.
    fn features(&self, rows: u64) -> u64 {
        rows * self.channels * self.element
    }

    /// The reverse relation.
    fn reverse(self) -> Self {
        Self { rows: self.cols, cols: self.rows, bounds: 1, ..self }
    }
}

/// Ids and where rows stand, one row of features per kept edge, and the result.
pub fn spmm_forward(s: Shape) -> u64 {
    4 * (s.edges + s.bounds * s.rows) + s.features(s.kept) + s.features(s.rows)
}

/// The product with the reverse.
pub fn spmm_backward(s: Shape) -> u64 {
    spmm_forward(s.reverse())
}

/// As [`spmm_forward`], with `columns` f32 values per edge beside each fetched row.
pub fn weighted_sum(s: Shape, columns: u64) -> u64 {
    spmm_forward(s) + 4 * columns * s.edges
}

/// Ids and row starts, one row of features per edge and one per destination, and a stored value per edge and head.
pub fn edge_dot(s: Shape) -> u64 {
    spmm_forward(s) + s.element * s.heads * s.edges
}

/// Scores of both ends fetched per edge, and their sum written.
pub fn edge_sum(s: Shape) -> u64 {
    4 * (s.edges + s.rows) + s.element * s.heads * (2 * s.edges + s.rows)
}

/// Values of edges read once and written once.
pub fn edge_softmax(s: Shape) -> u64 {
    4 * s.rows + 2 * s.element * s.heads * s.edges
}

/// As [`spmm_forward`], with both parts of the score read and the logarithm of the denominator written.
pub fn gat_forward(s: Shape) -> u64 {
    spmm_forward(s) + 4 * s.heads * (s.cols + 2 * s.rows)
}

/// `<g_i, out_i>` from two streams of rows; then the reverse pass: ids, one row of `g` per kept edge, the own row read
/// and its gradient written, and the scalars of both sides.
pub fn gat_backward(s: Shape) -> u64 {
    let centre = 2 * s.features(s.rows) + 16 * s.heads * s.rows;
    let scalars = 4 * s.heads * (2 * s.cols + 4 * s.rows);
    centre + 4 * (s.edges + s.cols) + s.features(s.kept) + 2 * s.features(s.cols) + scalars
}

/// A dot product with every row of both sides: the scores that attention is given.
pub fn scores(s: Shape) -> u64 {
    s.features(s.cols) + s.features(s.rows) + 4 * s.heads * (s.cols + s.rows)
}

/// What `columns` values of every kept edge add to attention whose sums of values nobody uses: read in both passes, in
/// the second from a copy in its order; both sums are written.
pub fn edge_values(s: Shape, columns: u64) -> u64 {
    let values = columns * s.element;
    2 * s.kept * values + 2 * s.rows * s.heads * values
}

/// As [`spmm_forward`], with a row of features per destination, the logarithm of the denominator written, and `columns`
/// values of every kept edge.
pub fn gatv2_forward(s: Shape, columns: u64) -> u64 {
    spmm_forward(s) + s.features(s.rows) + 4 * s.heads * s.rows + s.kept * columns * s.element
}

/// `<g_i, out_i>` from two streams of rows. A pass over destinations: ids, a row of the source per kept edge, own row
/// and `g` read, the gradient written. The reverse pass: ids, a row of the destination and one of `g` per kept edge,
/// the own row read and its gradient written. Both read two scalars per destination and head, and the values of every
/// kept edge, the second by the edge of the entry.
pub fn gatv2_backward(s: Shape, columns: u64) -> u64 {
    let scalars = 8 * s.heads * s.rows;
    let centre = 2 * s.features(s.rows) + 4 * s.heads * s.rows;
    let over_rows = 4 * (s.edges + s.bounds * s.rows) + s.features(s.kept) + 3 * s.features(s.rows) + scalars;
    let reverse = 4 * (s.edges + s.cols) + 2 * s.features(s.kept) + 2 * s.features(s.cols) + scalars;
    let values = if columns == 0 { 0 } else { s.kept * (2 * columns * s.element + 4) };
    centre + over_rows + reverse + values
}

/// `rows` rows of `input` elements in, of `output` elements out, and the weight.
pub fn linear_forward(rows: u64, input: u64, output: u64, element: u64) -> u64 {
    (rows * (input + output) + input * output) * element
}

/// For `dx` the gradient and the weight in, `dx` out; for `dw` both matrices in, `dw` out.
pub fn linear_backward(rows: u64, input: u64, output: u64, element: u64) -> u64 {
    2 * linear_forward(rows, input, output, element)
}

/// One matrix in and one out, then two in and one out.
pub fn elu_both(rows: u64, channels: u64, element: u64) -> u64 {
    5 * rows * channels * element
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two destinations, three sources, five edges of which four are kept, two heads of two channels in f16.
    const TINY: Shape = Shape { rows: 2, cols: 3, bounds: 1, edges: 5, kept: 4, channels: 4, heads: 2, element: 2 };

    #[test]
    fn bytes_are_those_counted_by_hand() {
        // 5 ids and 2 row starts, 4 gathered rows and 2 written rows of 8 bytes.
        assert_eq!(spmm_forward(TINY), 28 + 32 + 16);
        assert_eq!(spmm_forward(Shape { bounds: 2, ..TINY }), 36 + 32 + 16);
        assert_eq!(spmm_backward(TINY), 32 + 32 + 24);
        // Scores of 3 sources and 2 destinations and 2 denominators, for both heads.
        assert_eq!(gat_forward(TINY), 76 + 56);
        assert_eq!(weighted_sum(TINY, 2), 76 + 40);
        assert_eq!(edge_dot(TINY), 76 + 20);
        assert_eq!(edge_sum(TINY), 28 + 4 * 12);
        assert_eq!(edge_softmax(TINY), 8 + 40);
        // g and out: 32; packed scalars: 64; ids: 32; gathered: 32; h and dh: 48; scalars: 8 * 14.
        assert_eq!(gat_backward(TINY), 32 + 64 + 32 + 32 + 48 + 112);
        assert_eq!(scores(TINY), 24 + 16 + 4 * 2 * 5);
        // Values of 4 kept edges twice; 2 rows of sums for both heads, all and positive.
        assert_eq!(edge_values(TINY, 3), 4 * (6 + 6) + 2 * 2 * 12);
        // A row per destination and 2 denominators for both heads beside the product; 3 values of 4 kept edges.
        assert_eq!(gatv2_forward(TINY, 3), 76 + 16 + 16 + 24);
        // Centre: 32 + 16. Rows: ids 28, gathered 32, three rows of destinations 48, scalars 32. Reverse: ids 32,
        // gathered 64, h and dh 48, scalars 32. Values of 4 kept edges twice, and their edges.
        assert_eq!(gatv2_backward(TINY, 0), 48 + 140 + 176);
        assert_eq!(gatv2_backward(TINY, 3), 364 + 4 * (12 + 4));
        assert_eq!(linear_forward(10, 4, 3, 2), (70 + 12) * 2);
        assert_eq!(elu_both(10, 4, 2), 400);
    }

    #[test]
    fn the_floor_of_the_reference_graph_is_that_of_the_design() {
        let nodes = 728_719;
        let euu = Shape {
            rows: nodes,
            cols: nodes,
            bounds: 1,
            edges: 45_048_891,
            kept: 45_048_891,
            channels: 128,
            heads: 1,
            element: 4,
        };
        let ms = |bytes: u64| bytes as f64 / 3.0e9;
        assert!((ms(spmm_forward(euu)) - 7.87).abs() < 0.01);
        assert!((ms(gat_forward(euu)) - 7.88).abs() < 0.01);
        assert!((ms(gat_forward(euu) + gat_backward(euu)) - 16.13).abs() < 0.01);
    }
}
