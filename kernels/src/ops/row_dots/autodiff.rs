//! `dx_i = sum_k dy_ik v_k`, `dv_k = sum_i dy_ik x_i`.

use burn::tensor::DType;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, TensorMetadata};

use super::RowDotsBackend;
use crate::runtime::accumulate::accumulate;

#[derive(Debug)]
struct RowDots;

impl<B: RowDotsBackend> Backward<B, 2> for RowDots {
    /// Each input is kept only for the gradient of the other.
    type State = (Option<NodeId>, Option<NodeId>, DType);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [x_node, vectors_node] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        let (x, vectors, dtype) = ops.state;
        if let (Some(node), Some(x)) = (vectors_node, x) {
            let x = checkpointer.retrieve_node_output::<FloatTensor<B>>(x);
            grads.register::<B>(node.id, B::weighted_column_sums(x, g.clone()));
        }
        if let (Some(node), Some(vectors)) = (x_node, vectors) {
            let vectors = checkpointer.retrieve_node_output::<FloatTensor<B>>(vectors);
            accumulate::<B>(grads, node.id, g, |g, accumulate_into| {
                B::row_dots_gradient(g, vectors, dtype, accumulate_into)
            });
        }
    }
}

impl<B: RowDotsBackend, C: CheckpointStrategy> RowDotsBackend for Autodiff<B, C> {
    fn row_dots_forward(x: FloatTensor<Self>, vectors: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::row_dots_forward(x.primitive, vectors.primitive))
    }

    fn row_dots_gradient(
        g: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        dtype: DType,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::row_dots_gradient(
            g.primitive,
            vectors.primitive,
            dtype,
            accumulate_into.map(|o| o.primitive),
        ))
    }

    fn weighted_column_sums(x: FloatTensor<Self>, g: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::weighted_column_sums(x.primitive, g.primitive))
    }

    fn row_dots(x: FloatTensor<Self>, vectors: FloatTensor<Self>) -> FloatTensor<Self> {
        let dtype = x.primitive.dtype();
        let out = B::row_dots_forward(x.primitive.clone(), vectors.primitive.clone());
        match RowDots.prepare::<C>([x.node.clone(), vectors.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let saved_x = vectors.is_tracked().then(|| prep.checkpoint(&x));
                let saved_vectors = x.is_tracked().then(|| prep.checkpoint(&vectors));
                prep.finish((saved_x, saved_vectors, dtype), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
