//! The start of a backward pass from a gradient that is given.

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Shape, Tensor, TensorPrimitive};
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::NoCheckpointing};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;

use super::turn::autodiff_turn;

/// Stands for a loss whose gradient with respect to its one parent is the state.
#[derive(Debug)]
struct Start;

impl<B: Backend> Backward<B, 1> for Start {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [parent] = ops.parents;
        grads.consume::<B>(&ops.node);
        if let Some(node) = parent {
            grads.register::<B>(node.id, ops.state);
        }
    }
}

/// The backward pass of `out` from the gradient `g` of its elements, as a loss behind `out` would start it.
///
/// Burn's own starts from ones, and any other start costs passes over a matrix that a measurement of `out`'s operator
/// would count as its own.
///
/// # Panics
/// If the shapes differ.
///
/// # Example
/// ```
/// use burn::backend::Autodiff;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::backward_from;
/// let device = Default::default();
/// let x = Tensor::<Autodiff<Flex>, 2>::from_data([[1.0, 2.0]], &device).require_grad();
/// let gradients = backward_from(x.clone() * 3.0, Tensor::from_data([[1.0, 10.0]], &device));
/// assert_eq!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>().unwrap(), [3.0, 30.0]);
/// ```
pub fn backward_from<B: Backend>(out: Tensor<Autodiff<B>, 2>, g: Tensor<B, 2>) -> Gradients {
    assert_eq!(out.dims(), g.dims(), "backward_from: g: expected the shape of out");
    let device = g.device();
    let out = out.into_primitive().tensor();
    let loss = B::float_zeros(Shape::new([1]), &device, DType::F32.into());
    // What it clears must not be what another thread records.
    let _turn = autodiff_turn();
    let loss = match Start.prepare::<NoCheckpointing>([out.node.clone()]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(g.into_primitive().tensor(), loss),
        OpsKind::UnTracked(prep) => prep.finish(loss),
    };
    Tensor::<Autodiff<B>, 1>::from_primitive(TensorPrimitive::Float(loss)).backward()
}
