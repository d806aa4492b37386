//! Cross-entropy: `dx = dy scale (sigmoid(x) - y)`. Smoothness: `dx = 2 dy scale w (s - s') s (1 - s)` at either end.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::FloatTensor;

use super::{Loss, LossBackend};

#[derive(Debug)]
struct LossSum;

impl<B: LossBackend> Backward<B, 1> for LossSum {
    type State = (FloatTensor<B>, FloatTensor<B>, Loss, f32);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let (logits, other, loss, scale) = ops.state;
        if let [Some(node)] = ops.parents {
            grads.register::<B>(node.id, B::loss_backward(g, logits, other, loss, scale));
        }
    }
}

impl<B: LossBackend, C: CheckpointStrategy> LossBackend for Autodiff<B, C> {
    fn loss_forward(logits: FloatTensor<Self>, other: FloatTensor<Self>, loss: Loss, scale: f32) -> FloatTensor<Self> {
        Self::from_inner(B::loss_forward(logits.primitive, other.primitive, loss, scale))
    }

    fn loss_backward(
        g: FloatTensor<Self>,
        logits: FloatTensor<Self>,
        other: FloatTensor<Self>,
        loss: Loss,
        scale: f32,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::loss_backward(g.primitive, logits.primitive, other.primitive, loss, scale))
    }

    fn loss_sum(logits: FloatTensor<Self>, other: FloatTensor<Self>, loss: Loss, scale: f32) -> FloatTensor<Self> {
        let sum = B::loss_forward(logits.primitive.clone(), other.primitive.clone(), loss, scale);
        match LossSum.prepare::<C>([logits.node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((logits.primitive, other.primitive, loss, scale), sum),
            OpsKind::UnTracked(prep) => prep.finish(sum),
        }
    }
}
