//! `dx = dy w^T`, `dw = x^T dy`, `db` the column sum of `dy`.

use burn::tensor::DType;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, TensorMetadata};

use super::{Activation, LinearBackend, Products, sum};
use crate::ops::head::column_sum;

#[derive(Debug)]
struct Linear;

/// Each of `x` and the weight is kept only for the gradient of the other.
#[derive(Clone, Debug)]
pub(super) struct Factors {
    pub x: Option<NodeId>,
    pub weight: Option<NodeId>,
    pub weight_dtype: DType,
}

/// The gradients of `x` and of the weight, where their nodes are given, from that of their product.
pub(super) fn register_factors<B: LinearBackend>(
    [x_node, weight_node]: [Option<NodeId>; 2],
    saved: Factors,
    g: FloatTensor<B>,
    grads: &mut Gradients,
    checkpointer: &mut Checkpointer,
) {
    if let (Some(node), Some(x)) = (weight_node, saved.x) {
        let x = checkpointer.retrieve_node_output::<FloatTensor<B>>(x);
        grads.register::<B>(node, B::weight_gradient(x, g.clone(), saved.weight_dtype));
    }
    if let (Some(node), Some(weight)) = (x_node, saved.weight) {
        let weight = checkpointer.retrieve_node_output::<FloatTensor<B>>(weight);
        grads.register::<B>(node, B::product(g, B::float_transpose(weight)));
    }
}

impl<B: LinearBackend> Backward<B, 3> for Linear {
    type State = Factors;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [x, weight, bias] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        if let Some(node) = bias {
            let (dtype, sum) = (g.dtype(), column_sum::<B>(g.clone()));
            let sum = if dtype == DType::F32 { sum } else { B::float_cast(sum, dtype.into()) };
            grads.register::<B>(node.id, sum);
        }
        let nodes = [x, weight].map(|node| node.map(|node| node.id));
        register_factors::<B>(nodes, ops.state, g, grads, checkpointer);
    }
}

impl<B: LinearBackend, C: CheckpointStrategy> LinearBackend for Autodiff<B, C> {
    fn product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::product(x.primitive, w.primitive))
    }

    fn weight_gradient(x: FloatTensor<Self>, g: FloatTensor<Self>, dtype: DType) -> FloatTensor<Self> {
        Self::from_inner(B::weight_gradient(x.primitive, g.primitive, dtype))
    }

    fn combine_products(
        terms: Products<Self>,
        bias: Option<FloatTensor<Self>>,
        scale: f32,
        activation: Activation,
    ) -> FloatTensor<Self> {
        sum::record::<B, C>(terms, bias, scale, activation)
    }

    fn project(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        let out = B::project(x.primitive.clone(), weight.primitive.clone(), bias.as_ref().map(|b| b.primitive.clone()));
        // Without a bias its place is taken by a constant, which gets no gradient.
        let bias = bias.unwrap_or_else(|| Self::from_inner(out.clone()));
        match Linear.prepare::<C>([x.node.clone(), weight.node.clone(), bias.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let saved = Factors {
                    x: weight.is_tracked().then(|| prep.checkpoint(&x)),
                    weight: x.is_tracked().then(|| prep.checkpoint(&weight)),
                    weight_dtype: weight.primitive.dtype(),
                };
                prep.finish(saved, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
