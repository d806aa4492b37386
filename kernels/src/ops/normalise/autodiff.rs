//! `dx_i = (dz_i - z_i <dz_i, z_i>) / |x_i|`.

use burn::tensor::DType;
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, TensorMetadata};

use super::NormaliseBackend;

#[derive(Debug)]
struct Normalise;

impl<B: NormaliseBackend> Backward<B, 1> for Normalise {
    type State = (FloatTensor<B>, FloatTensor<B>, DType);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let (z, inverse, dtype) = ops.state;
        if let [Some(x)] = ops.parents {
            grads.register::<B>(x.id, B::normalise_backward(g, z, inverse, dtype));
        }
    }
}

impl<B: NormaliseBackend, C: CheckpointStrategy> NormaliseBackend for Autodiff<B, C> {
    fn normalise_forward(x: FloatTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (z, inverse) = B::normalise_forward(x.primitive);
        (Self::from_inner(z), Self::from_inner(inverse))
    }

    fn normalise_backward(
        g: FloatTensor<Self>,
        z: FloatTensor<Self>,
        inverse: FloatTensor<Self>,
        dtype: DType,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::normalise_backward(g.primitive, z.primitive, inverse.primitive, dtype))
    }

    fn normalise_rows(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let dtype = x.primitive.dtype();
        let (z, inverse) = B::normalise_forward(x.primitive);
        match Normalise.prepare::<C>([x.node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((z.clone(), inverse, dtype), z),
            OpsKind::UnTracked(prep) => prep.finish(z),
        }
    }
}
