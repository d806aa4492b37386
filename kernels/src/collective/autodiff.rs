//! An exchange is linear, and `dL/dx` is the transposed exchange of `dL/dy`, where `L` is the sum of the losses of all
//! ranks:
//!
//! | exchange | `y` on rank `s` | `dL/dx` on rank `r` |
//! |---|---|---|
//! | all-reduce | `sum_r x_r` | `sum_s dy_s` |
//! | all-gather | `x_0, x_1, ..` | rows of `r` in `sum_s dy_s` |
//! | reduce-scatter | rows of `s` in `sum_r x_r` | `dy_0, dy_1, ..` |
//! | all-to-all | what each `r` has for `s` | what each `s` has of `r` |

use burn::tensor::DType;
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, Scalar, Shape, TensorMetadata};

use super::error::CollectiveError;
use super::link::{Call, CollectiveBackend, Link};
use super::operation::CollectiveOperation;

#[derive(Debug)]
struct Exchange;

#[derive(Clone, Debug)]
struct Recorded<B: CollectiveBackend> {
    link: Link<B>,
    transposed: CollectiveOperation,
    call: u64,
    shape: Shape,
}

impl<B: CollectiveBackend> Backward<B, 1> for Exchange {
    type State = Recorded<B::Plain>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let Recorded { link, transposed, call, shape } = ops.state;
        let (device, dtype) = (B::float_device(&g), g.dtype());
        let call = Call { operation: &transposed, backward_of: Some(call) };
        // A step returns no error: the group keeps it for whoever started the pass, and nothing trains on this.
        let dx = B::exchange(&link, call, g).unwrap_or_else(|_| not_a_number::<B>(shape, &device, dtype));
        if let [Some(x)] = ops.parents {
            grads.register::<B>(x.id, dx);
        }
    }
}

fn not_a_number<B: CollectiveBackend>(shape: Shape, device: &B::Device, dtype: DType) -> FloatTensor<B> {
    match shape.num_elements() {
        0 => B::float_empty(shape, device, dtype.into()),
        _ => B::float_full(shape, Scalar::Float(f64::NAN), device, dtype.into()),
    }
}

impl<B: CollectiveBackend, C: CheckpointStrategy> CollectiveBackend for Autodiff<B, C> {
    type Plain = B::Plain;

    fn exchange(
        link: &Link<Self::Plain>,
        call: Call<'_>,
        x: FloatTensor<Self>,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        let number = link.calls();
        // Nothing of the graph is selected or locked while this waits, and `x` keeps what it was computed from.
        let out = B::exchange(link, call, x.primitive.clone())?;
        let Some(transposed) = call.operation.transposed() else { return Ok(Self::from_inner(out)) };
        Ok(match Exchange.prepare::<C>([x.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let shape = x.primitive.shape();
                prep.finish(Recorded { link: link.clone(), transposed, call: number, shape }, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        })
    }
}
