//! `dx = dy w^T`, `dw = x^T dy`, `db` the column sum of `dy`.

use burn::tensor::DType;
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, TensorMetadata};

use super::factors::{Factors, register_factors};
use super::{Activation, LinearBackend, Products, sum};
use crate::ops::head::column_sum;

#[derive(Debug)]
struct Linear;

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
