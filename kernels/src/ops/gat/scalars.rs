//! Numbers of rows that edges read.

/// One part of the score: `heads` columns of a matrix from column `first` on, f32.
#[derive(Clone, Debug)]
pub struct Scores<F> {
    pub matrix: F,
    pub first: usize,
    /// Whether a row stands for a node of the whole graph, also where the adjacency is restricted.
    pub whole: bool,
}

impl<F> Scores<F> {
    pub(crate) fn of(matrix: F) -> Self {
        Self { matrix, first: 0, whole: false }
    }

    pub(crate) fn map<G>(self, f: impl FnOnce(F) -> G) -> Scores<G> {
        Scores { matrix: f(self.matrix), first: self.first, whole: self.whole }
    }
}

/// Columns per head of [`GatScalars::arrivals`], with the gradient of `sums` that edges add up to: whole vectors of
/// four.
pub(crate) const fn arrival_columns(sums: usize) -> usize {
    (3 + sums).next_multiple_of(4)
}

/// Per-row scalars that the backward pass reads for every edge.
#[derive(Clone, Debug)]
pub struct GatScalars<F> {
    /// A row per destination, f32, so that an edge finds what it needs of one in one place. Head by head: the score,
    /// the logarithm of the softmax denominator, `<g_i, out_i>`, and where edges add up to something whose gradient is
    /// not zero, that gradient; filled up to [`arrival_columns`].
    pub arrivals: F,
    /// A row per source.
    pub src_score: Scores<F>,
}

impl<F> GatScalars<F> {
    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> GatScalars<G> {
        GatScalars { arrivals: f(self.arrivals), src_score: self.src_score.map(&f) }
    }
}
