//! Softmax of edge logits over the in-edges of each row.

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Tensor, TensorPrimitive};

use crate::graph::csr::{Csr, Topology};
use crate::runtime::check;

/// Backends with [`edge_softmax`].
pub trait EdgeSoftmaxBackend: Backend {
    /// The softmax over the rows of `topology`, without gradient. Its entries are found in `logits` through `edge_map`.
    #[doc(hidden)]
    fn edge_softmax_forward(
        topology: &Topology<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        logits: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// The gradient of the logits from the softmax and its gradient.
    #[doc(hidden)]
    fn edge_softmax_backward(
        topology: &Topology<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        softmax: FloatTensor<Self>,
        g: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// The softmax, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn edge_softmax(csr: Csr<Self>, by: End, logits: FloatTensor<Self>) -> FloatTensor<Self> {
        let (csr, edge_map) = by.rows_of(&csr);
        Self::edge_softmax_forward(csr.topology(), edge_map, logits)
    }
}

/// The end of an edge that it shares with those that it is weighed against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Source,
    Destination,
}

impl End {
    /// The direction whose rows are the nodes of this end, and where its entries stand in `csr`.
    fn rows_of<B: Backend>(self, csr: &Csr<B>) -> (Csr<B>, Option<IntTensor<B>>) {
        match self {
            End::Destination => (csr.clone(), csr.edge_ids()),
            End::Source => (csr.reverse(), Some(csr.reverse_edge())),
        }
    }
}

/// Attention weights from logits: `a_ij = exp(e_ij - m_i) / sum_k exp(e_ik - m_i)` over the entries of row `i`, where
/// `m_i` is the largest logit of the row, for every head on its own.
///
/// # Shapes
/// `logits` `[num_edges, heads]` in f32, f16 or bf16, in the order of `csr`; the result likewise. Sums are f32.
///
/// # Gradient
/// `de_ij = a_ij (da_ij - sum_k a_ik da_ik)`. Saved: the result. Deterministic.
///
/// # Panics
/// If `logits` does not have a row per entry, or rows are spans ([`Csr::from_spans`]).
///
/// # Source
/// Velickovic et al., Graph attention networks (ICLR 2018), equation 2.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, edge_softmax};
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2, 3], &[0, 1, 1], 2, &device).unwrap();
/// let logits = Tensor::<Flex, 2>::from_data([[1.0], [1.0], [9.0]], &device);
/// let a = edge_softmax(&csr, logits);
/// assert_eq!(a.into_data().to_vec::<f32>().unwrap(), [0.5, 0.5, 1.0]);
/// ```
pub fn edge_softmax<B: EdgeSoftmaxBackend>(csr: &Csr<B>, logits: Tensor<B, 2>) -> Tensor<B, 2> {
    softmax("edge_softmax", csr, End::Destination, logits)
}

/// [`edge_softmax`] over the out-edges of every source: `a_ij = exp(e_ij - m_j) / sum_k exp(e_kj - m_j)` over the rows
/// `k` that have an entry for column `j`, for every head on its own.
///
/// # Shapes
/// `logits` `[num_edges, heads]` in f32, f16 or bf16, in the order of `csr`; the result likewise. Sums are f32.
///
/// # Gradient
/// `de_ij = a_ij (da_ij - sum_k a_kj da_kj)`. Saved: the result. Deterministic.
///
/// # Panics
/// If `logits` does not have a row per entry, or rows are spans ([`Csr::from_spans`]).
///
/// # Source
/// Wang et al., Deep Graph Library: a graph-centric, highly-performant package for graph neural networks (2019).
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, edge_softmax_by_source};
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2, 3], &[0, 1, 1], 2, &device).unwrap();
/// let logits = Tensor::<Flex, 2>::from_data([[9.0], [1.0], [1.0]], &device);
/// let a = edge_softmax_by_source(&csr, logits);
/// assert_eq!(a.into_data().to_vec::<f32>().unwrap(), [1.0, 0.5, 0.5]);
/// ```
pub fn edge_softmax_by_source<B: EdgeSoftmaxBackend>(csr: &Csr<B>, logits: Tensor<B, 2>) -> Tensor<B, 2> {
    softmax("edge_softmax_by_source", csr, End::Source, logits)
}

fn softmax<B: EdgeSoftmaxBackend>(op: &str, csr: &Csr<B>, by: End, logits: Tensor<B, 2>) -> Tensor<B, 2> {
    csr.check_lists(op, "logits");
    let logits = logits.into_primitive().tensor();
    check::storage::<B>(op, "logits", &logits);
    check::size(op, "rows of logits", csr.num_edges(), check::matrix(op, "logits", &logits)[0]);
    Tensor::from_primitive(TensorPrimitive::Float(B::edge_softmax(csr.clone(), by, logits)))
}
