//! Every part gets `scale dy activation'(y)`, the bias its column sum.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::FloatTensor;

use super::{Activation, CombineBackend, MAX_PARTS};
use crate::ops::head::column_sum;

/// `N` counts the parts; a constant takes the place of a missing bias and of missing parts.
const PARENTS: usize = MAX_PARTS + 1;

#[derive(Debug)]
struct Combine;

/// What the backward pass of a layer's end starts from.
#[derive(Clone, Debug)]
pub(crate) struct End<B: CombineBackend> {
    /// The result, where the slope depends on it.
    out: Option<FloatTensor<B>>,
    scale: f32,
    activation: Activation,
}

impl<B: CombineBackend> End<B> {
    pub fn of(out: &FloatTensor<B>, scale: f32, activation: Activation) -> Self {
        Self { out: (activation != Activation::Identity).then(|| out.clone()), scale, activation }
    }

    /// The gradient that all parts share, and its column sum where a bias asks for it.
    pub fn shared_gradient(self, g: FloatTensor<B>, bias: bool) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
        let Self { out, scale, activation } = self;
        match out {
            Some(out) => B::combine_backward(g, out, scale, activation, bias),
            None => {
                let shared = if scale == 1.0 { g } else { B::float_mul_scalar(g, scale.into()) };
                let sum = bias.then(|| column_sum::<B>(shared.clone()));
                (shared, sum)
            }
        }
    }
}

impl<B: CombineBackend> Backward<B, PARENTS> for Combine {
    type State = End<B>;

    fn backward(self, ops: Ops<Self::State, PARENTS>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let [bias, parts @ ..] = ops.parents;
        let (shared, sum) = ops.state.shared_gradient(g, bias.is_some());
        if let (Some(node), Some(sum)) = (bias, sum) {
            grads.register::<B>(node.id, sum);
        }
        for node in parts.into_iter().flatten() {
            grads.register::<B>(node.id, shared.clone());
        }
    }
}

impl<B: CombineBackend, C: CheckpointStrategy> CombineBackend for Autodiff<B, C> {
    fn combine_forward(
        parts: Vec<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        scale: f32,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let parts = parts.into_iter().map(|p| p.primitive).collect();
        Self::from_inner(B::combine_forward(parts, bias.map(|b| b.primitive), scale, activation))
    }

    fn combine_backward(
        g: FloatTensor<Self>,
        out: FloatTensor<Self>,
        scale: f32,
        activation: Activation,
        bias: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let (dx, sum) = B::combine_backward(g.primitive, out.primitive, scale, activation, bias);
        (Self::from_inner(dx), sum.map(Self::from_inner))
    }

    fn combine(
        parts: Vec<FloatTensor<Self>>,
        bias: Option<FloatTensor<Self>>,
        scale: f32,
        activation: Activation,
    ) -> FloatTensor<Self> {
        let inner = parts.iter().map(|p| p.primitive.clone()).collect();
        let out = B::combine_forward(inner, bias.as_ref().map(|b| b.primitive.clone()), scale, activation);
        // A parent without gradient that stands in for those that are not there.
        let constant = || Self::from_inner(out.clone()).node;
        // The tensors stay until the operator is recorded: what nobody refers to is freed after a backward pass, also
        // of another thread.
        let bias_node = bias.as_ref().map_or_else(constant, |b| b.node.clone());
        let mut part_nodes = parts.iter().map(|p| p.node.clone());
        let mut part = || part_nodes.next().unwrap_or_else(constant);
        let nodes = [bias_node, part(), part(), part(), part()];
        match Combine.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(End::of(&out, scale, activation), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
