//! A row per edge, and the copy of it that the backward pass walks.

use std::sync::{Arc, OnceLock};

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use crate::graph::csr::Csr;
use crate::ops::gather::GatherBackend;
use crate::runtime::check;

/// A row of values for every edge of an adjacency, in its order (in that of its edges, where these have one:
/// [`Csr::from_edges`]).
///
/// The backward pass walks the edges by their sources: it looks up where the row of each stands, and reads a sector of
/// memory for it. Rows that are data and read by many passes are [`EdgeRows::kept`] instead: the first pass with a
/// gradient copies them in the order of the reverse, and all of them read the copy front to back, also where the
/// adjacency is restricted, edges are dropped or rows come in chunks. The copy takes as much memory as the rows, and
/// is made as one pass looks them up, so that it saves nothing to a mini-batch, which is read once or twice.
#[derive(Clone, Debug)]
pub struct EdgeRows<B: Backend> {
    tensor: Tensor<B, 2>,
    kept: Option<Arc<Kept<B>>>,
}

/// Rows in the order of the reverse of an adjacency.
#[derive(Debug)]
struct Kept<B: Backend> {
    csr: Csr<B>,
    rows: OnceLock<FloatTensor<B>>,
}

impl<B: Backend> From<Tensor<B, 2>> for EdgeRows<B> {
    fn from(tensor: Tensor<B, 2>) -> Self {
        Self { tensor, kept: None }
    }
}

impl<B: Backend> EdgeRows<B> {
    /// The rows of the edges of `csr`, for many passes. They are data: no gradient reaches them. Clones share the copy.
    ///
    /// # Panics
    /// If there is another number of rows than of edges.
    pub fn kept(csr: &Csr<B>, rows: Tensor<B, 2>) -> Self {
        let [edges, columns] = rows.dims();
        check::size("EdgeRows::kept", "rows", csr.num_edges(), edges);
        // Of narrow rows CUDA makes rows of 16 bytes, unless they come from a vector.
        let tensor = match edges {
            0 => rows.detach(),
            _ => rows.detach().reshape([edges * columns]).reshape([edges, columns]),
        };
        let kept = Kept { csr: csr.restrict(None, None), rows: OnceLock::new() };
        Self { tensor, kept: Some(Arc::new(kept)) }
    }

    /// `[num_edges, columns]`.
    pub fn tensor(&self) -> &Tensor<B, 2> {
        &self.tensor
    }
}

impl<B: GatherBackend> EdgeRows<B> {
    /// The rows in the order of the reverse of `csr`, where they are kept and a backward pass may follow.
    ///
    /// # Panics
    /// If they are kept for another adjacency.
    pub(crate) fn in_reverse(&self, op: &str, csr: &Csr<B>) -> Option<FloatTensor<B>> {
        let kept = self.kept.as_ref()?;
        let fits = csr.is_of(&kept.csr);
        assert!(fits, "{op}: values: expected those of the edges of {csr:?}, got those kept for {:?}", kept.csr);
        if csr.num_edges() == 0 || !B::ad_enabled(&self.tensor.device()) {
            return None;
        }
        let copy = || {
            let rows = self.tensor.clone().into_primitive().tensor();
            B::gather_forward(rows, &csr.made_reverse_edge(), csr.num_edges())
        };
        Some(kept.rows.get_or_init(copy).clone())
    }
}

impl<B: Backend, C: CheckpointStrategy> EdgeRows<Autodiff<B, C>> {
    /// The same rows for passes that record nothing, which need no copy.
    pub fn inner(self) -> EdgeRows<B> {
        self.tensor.inner().into()
    }
}
