//! Rows of a matrix moved from one node set to another.

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Tensor, TensorPrimitive};

use crate::graph::node_set::{NodeSet, NodeSetParts};
use crate::runtime::check;

/// One side of a selection: a set, or all nodes.
pub type Side<I> = Option<Arc<NodeSetParts<I>>>;

/// Backends with [`select_rows`].
pub trait SelectBackend: Backend {
    /// `out_k = scale_node x_(place of node in from)` for the nodes of `to`, zero rows for nodes that `from` lacks.
    /// Without any set the rows are those of `x`. They are added to `accumulate_into` where that is given. No gradient.
    #[doc(hidden)]
    fn select_forward(
        x: FloatTensor<Self>,
        from: &Side<IntTensor<Self>>,
        to: &Side<IntTensor<Self>>,
        scale: Option<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self>;

    /// The rows, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn select_rows(x: FloatTensor<Self>, from: Side<IntTensor<Self>>, to: Side<IntTensor<Self>>) -> FloatTensor<Self> {
        Self::select_forward(x, &from, &to, None, None)
    }
}

/// The rows of the nodes of `to` out of a matrix with one row per node of `from`; `None` stands for all nodes. A node
/// that `from` lacks gets a row of zeros.
///
/// # Shapes
/// `x` `[from.len(), d]` in f32, f16 or bf16; result `[to.len(), d]` in the dtype of `x`.
///
/// # Gradient
/// The same operation with the sets exchanged, for every node is in a set once: `dx = select_rows(dy, to, from)`.
/// Nothing is saved. Deterministic.
///
/// # Panics
/// If the sets are of different numbers of nodes or `x` has another number of rows than `from`.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{NodeSet, select_rows};
/// let device = Default::default();
/// let (from, to) = (NodeSet::new(&[1, 3], 5, &device), NodeSet::new(&[0, 3], 5, &device));
/// let x = Tensor::<Flex, 2>::from_data([[10.0], [30.0]], &device);
/// let y = select_rows(x, Some(&from), Some(&to));
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [0.0, 30.0]);
/// ```
pub fn select_rows<B: SelectBackend>(
    x: Tensor<B, 2>,
    from: Option<&NodeSet<B>>,
    to: Option<&NodeSet<B>>,
) -> Tensor<B, 2> {
    const OP: &str = "select_rows";
    let x = x.into_primitive().tensor();
    check::storage::<B>(OP, "x", &x);
    let [rows, _] = check::matrix(OP, "x", &x);
    if let Some(from) = from {
        check::size(OP, "rows of x", from.len(), rows);
    }
    let nodes = from.map_or(rows, NodeSet::num_nodes);
    if let Some(to) = to {
        check::size(OP, "nodes of to", nodes, to.num_nodes());
    }
    let side = |set: Option<&NodeSet<B>>| set.map(|s| s.parts.clone());
    if from.is_none() && to.is_none() {
        return Tensor::from_primitive(TensorPrimitive::Float(x));
    }
    Tensor::from_primitive(TensorPrimitive::Float(B::select_rows(x, side(from), side(to))))
}
