//! Gradients added to in place, where Burn adds a fresh matrix to the one before in a pass of its own.

use std::sync::Arc;

use burn::tensor::backend::Backend;
use burn_autodiff::grads::Gradients;
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::FloatTensor;

/// Registers as gradient of `node` what `add` makes of `g` and of the gradient so far: their sum. There is none so far
/// for the first operator that comes to `node`. `add` may change it in place only where nobody else holds it.
pub(crate) fn accumulate<B: Backend>(
    grads: &mut Gradients,
    node: NodeId,
    g: FloatTensor<B>,
    add: impl FnOnce(FloatTensor<B>, Option<FloatTensor<B>>) -> FloatTensor<B>,
) {
    let accumulate_into = take::<B>(grads, node, &g);
    grads.register::<B>(node, add(g, accumulate_into));
}

/// Takes out the gradient of `node` so far, for an operator that leaves several gradients at once; `any` is a tensor.
pub(crate) fn take<B: Backend>(grads: &mut Gradients, node: NodeId, any: &FloatTensor<B>) -> Option<FloatTensor<B>> {
    // A gradient is taken out by a tensor of its node. That of the forward pass is gone: any other does under that id.
    let mut key = <Autodiff<B> as AutodiffBackend>::from_inner(any.clone());
    Arc::get_mut(&mut key.node).expect("a new tensor has its node to itself").id = node;
    grads.remove::<B>(&key)
}
