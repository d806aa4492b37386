//! An exchange is linear, and `dL/dx` is the transposed exchange of `dL/dy`, where `L` is the sum of the losses of all
//! ranks:
//!
//! | exchange | `y` on rank `s` | `dL/dx` on rank `r` |
//! |---|---|---|
//! | all-reduce | `sum_r x_r` | `sum_s dy_s` |
//! | all-gather | `x_0, x_1, ..` | rows of `r` in `sum_s dy_s` |
//! | reduce-scatter | rows of `s` in `sum_r x_r` | `dy_0, dy_1, ..` |
//! | all-to-all | what each `r` has for `s` | what each `s` has of `r` |
//!
//! Two steps: that of the result begins the exchange of its gradient, and that of what was given, which comes later,
//! ends it. What is differentiated between them does not wait.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::DType;
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{AutodiffBackend, Scalar, Shape, TensorMetadata};

use super::error::CollectiveError;
use super::link::{Begun, Call, CollectiveBackend, Link, Place};
use super::operation::CollectiveOperation;

/// What a rank gives.
#[derive(Debug)]
struct Given;

/// What comes back.
#[derive(Debug)]
struct Gathered;

/// The exchange of a gradient, between its two steps.
struct OnItsWay<B: CollectiveBackend> {
    begun: Mutex<Option<Begun<B>>>,
    /// Of what was given.
    shape: Shape,
    device: B::Device,
    dtype: DType,
}

impl<B: CollectiveBackend> fmt::Debug for OnItsWay<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnItsWay").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<B: CollectiveBackend> OnItsWay<B> {
    fn slot(&self) -> MutexGuard<'_, Option<Begun<B>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn filled(&self, shape: Shape, value: f64) -> FloatTensor<B> {
        match shape.num_elements() {
            0 => B::float_empty(shape, &self.device, self.dtype.into()),
            _ => B::float_full(shape, Scalar::Float(value), &self.device, self.dtype.into()),
        }
    }
}

impl<B: CollectiveBackend> Backward<B, 1> for Given {
    type State = Arc<OnItsWay<B>>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let ended = ops.state.slot().take().and_then(|begun| begun.end(Place::default()).ok());
        if let [Some(x)] = ops.parents {
            // A step returns no error: the group keeps it for whoever started the pass, and nothing trains on this.
            let dx = ended.unwrap_or_else(|| ops.state.filled(ops.state.shape.clone(), f64::NAN));
            grads.register::<B>(x.id, dx);
        }
    }
}

#[derive(Clone, Debug)]
struct Recorded<B: CollectiveBackend> {
    link: Link<B::Plain>,
    transposed: CollectiveOperation,
    call: u64,
    /// Of what came back.
    shape: Shape,
    on_its_way: Arc<OnItsWay<B>>,
}

/// The first parent is what was given. The second, where there is one, is the result of the exchange before: it gets no
/// gradient here, but its step comes after this one. The last is a constant that says how deep this one is.
impl<B: CollectiveBackend> Backward<B, 3> for Gathered {
    type State = Recorded<B>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Recorded { link, transposed, call, shape, on_its_way } = ops.state;
        // Without a gradient nothing that this rank computed depends on the result.
        let dtype = on_its_way.dtype;
        let mut place = Autodiff::<B>::from_inner(B::float_empty(Shape::new([0]), &on_its_way.device, dtype.into()));
        place.node = ops.node.clone();
        let g = match grads.get(&place) {
            Some(_) => grads.consume::<B>(&ops.node),
            None => on_its_way.filled(shape, 0.0),
        };
        let call = Call { operation: &transposed, backward_of: Some(call) };
        *on_its_way.slot() = B::begin(&link, call, g, false).ok();
    }
}

impl<B: CollectiveBackend, C: CheckpointStrategy> CollectiveBackend for Autodiff<B, C> {
    type Plain = B::Plain;

    fn begin(
        link: &Link<Self::Plain>,
        call: Call<'_>,
        x: FloatTensor<Self>,
        always: bool,
    ) -> Result<Begun<Self>, CollectiveError> {
        let number = link.calls();
        // Nothing of the graph is selected or locked while this waits, and `x` keeps what it was computed from.
        let begun = B::begin(link, call, x.primitive.clone(), false)?;
        let Some(transposed) = call.operation.transposed() else {
            return Ok(Begun::new(move |_| Ok(Self::from_inner(begun.end(Place::default())?))));
        };
        // Of a chain every rank records every exchange, even of what needs no gradient on it.
        let x = if always && !x.is_tracked() { x.require_grad() } else { x };
        let (shape, device, dtype) = (x.primitive.shape(), B::float_device(&x.primitive), x.primitive.dtype());
        let on_its_way = Arc::new(OnItsWay { begun: Mutex::default(), shape, device, dtype });
        let given = match Given.prepare::<C>([x.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(on_its_way.clone(), x.primitive.clone()),
            OpsKind::UnTracked(prep) => prep.finish(x.primitive.clone()),
        };
        let link = link.clone();
        Ok(Begun::new(move |Place { after, depth }: Place<FloatTensor<Self>>| {
            let out = begun.end(Place::default())?;
            let constant = |depth| Self::at_depth(Self::from_inner(out.clone()), depth).node;
            let before = after.as_ref().map_or_else(|| constant(0), |after| after.node.clone());
            let nodes = [given.node.clone(), before, constant(depth)];
            let shape = out.shape();
            Ok(match Gathered.prepare::<C>(nodes).compute_bound().stateful() {
                OpsKind::Tracked(prep) => {
                    prep.finish(Recorded { link, transposed, call: number, shape, on_its_way }, out)
                }
                OpsKind::UnTracked(prep) => prep.finish(out),
            })
        }))
    }

    fn exchange_ids(
        link: &Link<Self::Plain>,
        operation: &CollectiveOperation,
        x: IntTensor<Self>,
    ) -> Result<IntTensor<Self>, CollectiveError> {
        B::exchange_ids(link, operation, x)
    }

    fn depth(x: &FloatTensor<Self>) -> usize {
        x.node.order
    }

    fn at_depth(x: FloatTensor<Self>, depth: usize) -> FloatTensor<Self> {
        if x.is_tracked() {
            return x;
        }
        let mut x = Self::from_inner(x.primitive);
        if let Some(node) = Arc::get_mut(&mut x.node) {
            node.order = depth;
        }
        x
    }
}
