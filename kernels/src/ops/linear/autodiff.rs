//! `dx = dy w^T`, `dw = x^T dy`, `db` the column sum of `dy`.

use burn::tensor::DType;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, TensorMetadata};

use super::LinearBackend;
use crate::ops::head::column_sum;

#[derive(Debug)]
struct Linear;

impl<B: LinearBackend> Backward<B, 3> for Linear {
    /// Each of `x` and the weight is kept only for the gradient of the other; the last is the weight's dtype.
    type State = (Option<NodeId>, Option<NodeId>, DType);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [x_node, weight_node, bias_node] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        let (x, weight, weight_dtype) = ops.state;
        if let Some(node) = bias_node {
            let (dtype, sum) = (g.dtype(), column_sum::<B>(g.clone()));
            let sum = if dtype == DType::F32 { sum } else { B::float_cast(sum, dtype.into()) };
            grads.register::<B>(node.id, sum);
        }
        if let (Some(node), Some(x)) = (weight_node, x) {
            let x = checkpointer.retrieve_node_output::<FloatTensor<B>>(x);
            grads.register::<B>(node.id, B::weight_gradient(x, g.clone(), weight_dtype));
        }
        if let (Some(node), Some(weight)) = (x_node, weight) {
            let weight = checkpointer.retrieve_node_output::<FloatTensor<B>>(weight);
            grads.register::<B>(node.id, B::product(g, B::float_transpose(weight)));
        }
    }
}

impl<B: LinearBackend, C: CheckpointStrategy> LinearBackend for Autodiff<B, C> {
    fn product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::product(x.primitive, w.primitive))
    }

    fn weight_gradient(x: FloatTensor<Self>, g: FloatTensor<Self>, dtype: DType) -> FloatTensor<Self> {
        Self::from_inner(B::weight_gradient(x.primitive, g.primitive, dtype))
    }

    fn project(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        let out = B::project(x.primitive.clone(), weight.primitive.clone(), bias.as_ref().map(|b| b.primitive.clone()));
        // Without a bias its place is taken by a constant, which gets no gradient.
        let bias = bias.unwrap_or_else(|| Self::from_inner(out.clone()));
        match Linear.prepare::<C>([x.node.clone(), weight.node.clone(), bias.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let saved_x = weight.is_tracked().then(|| prep.checkpoint(&x));
                let saved_weight = x.is_tracked().then(|| prep.checkpoint(&weight));
                prep.finish((saved_x, saved_weight, weight.primitive.dtype()), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
