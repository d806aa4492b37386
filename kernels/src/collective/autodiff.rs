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
use super::link::{Call, Chain, CollectiveBackend, Link};
use super::operation::CollectiveOperation;

#[derive(Debug)]
struct Exchange;

#[derive(Clone, Debug)]
struct Recorded<B: CollectiveBackend> {
    link: Link<B::Plain>,
    transposed: CollectiveOperation,
    call: u64,
    /// Of what was given, and of what came back.
    shapes: [Shape; 2],
    device: B::Device,
    dtype: DType,
}

/// The first parent is what was given. The second, where there is one, is the result of the exchange before: it gets no
/// gradient here, but its step comes after this one.
impl<B: CollectiveBackend, const N: usize> Backward<B, N> for Exchange {
    type State = Recorded<B>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Recorded { link, transposed, call, shapes: [given, result], device, dtype } = ops.state;
        // Without a gradient nothing that this rank computed depends on the result.
        let mut place = Autodiff::<B>::from_inner(B::float_empty(Shape::new([0]), &device, dtype.into()));
        place.node = ops.node.clone();
        let g = match grads.get(&place) {
            Some(_) => grads.consume::<B>(&ops.node),
            None => filled::<B>(result, 0.0, &device, dtype),
        };
        let call = Call { operation: &transposed, backward_of: Some(call) };
        // A step returns no error: the group keeps it for whoever started the pass, and nothing trains on this.
        let dx =
            B::exchange(&link, call, g, Chain::Free).unwrap_or_else(|_| filled::<B>(given, f64::NAN, &device, dtype));
        if let Some(x) = &ops.parents[0] {
            grads.register::<B>(x.id, dx);
        }
    }
}

fn filled<B: CollectiveBackend>(shape: Shape, value: f64, device: &B::Device, dtype: DType) -> FloatTensor<B> {
    match shape.num_elements() {
        0 => B::float_empty(shape, device, dtype.into()),
        _ => B::float_full(shape, Scalar::Float(value), device, dtype.into()),
    }
}

impl<B: CollectiveBackend, C: CheckpointStrategy> CollectiveBackend for Autodiff<B, C> {
    type Plain = B::Plain;

    fn exchange(
        link: &Link<Self::Plain>,
        call: Call<'_>,
        x: FloatTensor<Self>,
        chain: Chain<FloatTensor<Self>>,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        let number = link.calls();
        // Nothing of the graph is selected or locked while this waits, and `x` keeps what it was computed from.
        let out = B::exchange(link, call, x.primitive.clone(), Chain::Free)?;
        let Some(transposed) = call.operation.transposed() else { return Ok(Self::from_inner(out)) };
        let recorded = Recorded {
            link: link.clone(),
            transposed,
            call: number,
            shapes: [x.primitive.shape(), out.shape()],
            device: B::float_device(&out),
            dtype: out.dtype(),
        };
        // Of a chain every rank records every exchange, even of what needs no gradient on it.
        let x = match (&chain, x.is_tracked()) {
            (Chain::First | Chain::After(_), false) => x.require_grad(),
            _ => x,
        };
        Ok(match chain {
            Chain::Free | Chain::First => {
                finished(Exchange.prepare::<C>([x.node]).compute_bound().stateful(), recorded, out)
            }
            Chain::After(before) => {
                finished(Exchange.prepare::<C>([x.node, before.node]).compute_bound().stateful(), recorded, out)
            }
        })
    }
}

fn finished<B: CollectiveBackend, C: CheckpointStrategy, const N: usize>(
    kind: OpsKind<Exchange, B, Recorded<B>, C, N>,
    recorded: Recorded<B>,
    out: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    match kind {
        OpsKind::Tracked(prep) => prep.finish(recorded, out),
        OpsKind::UnTracked(prep) => prep.finish(out),
    }
}
