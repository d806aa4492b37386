//! `dleft_i = sum over the pairs of i of dy_p right_{j_p}`, and the same with the sides exchanged.

use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::{FloatTensor, IntTensor};

use super::PairDotBackend;
use crate::graph::row_index::{PairIndex, PairIndexParts};
use crate::runtime::accumulate::accumulate;

#[derive(Debug)]
struct PairDot;

impl<B: PairDotBackend> Backward<B, 2> for PairDot {
    /// Each side is kept only for the gradient of the other.
    type State = (PairIndex<B>, Option<NodeId>, Option<NodeId>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [left_node, right_node] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        let (pairs, left, right) = ops.state;
        let parts = &pairs.parts;
        if let (Some(node), Some(right)) = (left_node, right) {
            let right = checkpointer.retrieve_node_output::<FloatTensor<B>>(right);
            accumulate::<B>(grads, node.id, g.clone(), |g, accumulate_into| {
                B::spmm_groups(&parts.by_left, right, Some(g), parts.num_left, accumulate_into)
            });
        }
        if let (Some(node), Some(left)) = (right_node, left) {
            let left = checkpointer.retrieve_node_output::<FloatTensor<B>>(left);
            accumulate::<B>(grads, node.id, g, |g, accumulate_into| {
                B::spmm_groups(&parts.by_right, left, Some(g), parts.num_right, accumulate_into)
            });
        }
    }
}

impl<B: PairDotBackend, C: CheckpointStrategy> PairDotBackend for Autodiff<B, C> {
    fn pair_dot_forward(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        pairs: &PairIndexParts<IntTensor<Self>>,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::pair_dot_forward(left.primitive, right.primitive, pairs))
    }

    fn pair_dot(left: FloatTensor<Self>, right: FloatTensor<Self>, pairs: PairIndex<Self>) -> FloatTensor<Self> {
        let pairs = pairs.inner();
        let out = B::pair_dot(left.primitive.clone(), right.primitive.clone(), pairs.clone());
        match PairDot.prepare::<C>([left.node.clone(), right.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let saved_left = right.is_tracked().then(|| prep.checkpoint(&left));
                let saved_right = left.is_tracked().then(|| prep.checkpoint(&right));
                prep.finish((pairs, saved_left, saved_right), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
