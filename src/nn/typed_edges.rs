//! The relations of a typed graph.

use burn::tensor::backend::Backend;
use graphsieve_kernels::Csr;

/// One relation of a typed graph: edges from nodes of type `src` to nodes of type `dst`.
#[derive(Debug)]
pub struct TypedEdges<'a, B: Backend> {
    /// Rows are nodes of `dst`, columns nodes of `src`.
    pub csr: &'a Csr<B>,
    /// Position of the type of the sources.
    pub src: usize,
    /// Position of the type of the destinations.
    pub dst: usize,
}

impl<B: Backend> Clone for TypedEdges<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for TypedEdges<'_, B> {}

impl<B: Backend> TypedEdges<'_, B> {
    /// Panics unless both ends of relation `index` are among the `types` node types.
    #[track_caller]
    pub(super) fn check(&self, layer: &str, index: usize, types: usize) {
        for (end, t) in [("src", self.src), ("dst", self.dst)] {
            assert!(t < types, "{layer}: {end} of relation {index}: expected one of {types} node types, got {t}");
        }
    }
}
