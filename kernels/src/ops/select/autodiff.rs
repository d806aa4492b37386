//! `dx` is the selection of `dy` with the sets exchanged.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::{FloatTensor, IntTensor};

use super::{SelectBackend, Side};
use crate::runtime::accumulate::accumulate;

#[derive(Debug)]
struct Select;

impl<B: SelectBackend> Backward<B, 1> for Select {
    type State = (Side<IntTensor<B>>, Side<IntTensor<B>>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let (from, to) = ops.state;
        if let [Some(x)] = ops.parents {
            accumulate::<B>(grads, x.id, g, |g, accumulate_into| {
                B::select_forward(g, &to, &from, None, accumulate_into)
            });
        }
    }
}

impl<B: SelectBackend, C: CheckpointStrategy> SelectBackend for Autodiff<B, C> {
    fn select_forward(
        x: FloatTensor<Self>,
        from: &Side<IntTensor<Self>>,
        to: &Side<IntTensor<Self>>,
        scale: Option<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (scale, accumulate_into) = (scale.map(|s| s.primitive), accumulate_into.map(|o| o.primitive));
        Self::from_inner(B::select_forward(x.primitive, from, to, scale, accumulate_into))
    }

    fn select_rows(x: FloatTensor<Self>, from: Side<IntTensor<Self>>, to: Side<IntTensor<Self>>) -> FloatTensor<Self> {
        let out = B::select_forward(x.primitive, &from, &to, None, None);
        match Select.prepare::<C>([x.node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((from, to), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
