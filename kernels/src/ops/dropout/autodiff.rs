//! `dx_rc = dy_rc factor(r, c)`.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;

use super::{Dropout, DropoutBackend};

#[derive(Debug)]
struct Drop;

impl<B: DropoutBackend> Backward<B, 1> for Drop {
    type State = Dropout;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        if let [Some(x)] = ops.parents {
            grads.register::<B>(x.id, B::dropout(g, ops.state));
        }
    }
}

impl<B: DropoutBackend, C: CheckpointStrategy> DropoutBackend for Autodiff<B, C> {
    fn dropout(x: FloatTensor<Self>, dropout: Dropout) -> FloatTensor<Self> {
        let out = B::dropout(x.primitive, dropout);
        match Drop.prepare::<C>([x.node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(dropout, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
