//! `dx = dy (min(y, 0) + 1)`.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;

use super::EluBackend;

#[derive(Debug)]
struct Elu;

impl<B: EluBackend> Backward<B, 1> for Elu {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        if let [Some(x)] = ops.parents {
            let slope = B::float_add_scalar(B::float_clamp_max(ops.state, 0.0.into()), 1.0.into());
            grads.register::<B>(x.id, B::float_mul(g, slope));
        }
    }
}

impl<B: EluBackend, C: CheckpointStrategy> EluBackend for Autodiff<B, C> {
    fn elu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let out = B::elu(x.primitive.clone());
        match Elu.prepare::<C>([x.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(out.clone(), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
