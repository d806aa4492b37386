//! What a product keeps for its gradients, and how these are made of it.

use burn::tensor::DType;
use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_backend::tensor::FloatTensor;

use super::LinearBackend;

/// Each of `x` and the weight is kept only for the gradient of the other.
#[derive(Clone, Debug)]
pub(super) struct Factors {
    pub x: Option<NodeId>,
    pub weight: Option<NodeId>,
    pub weight_dtype: DType,
}

/// The gradients of `x` and of the weight, where their nodes are given, from that of their product.
pub(super) fn register_factors<B: LinearBackend>(
    [x_node, weight_node]: [Option<NodeId>; 2],
    saved: Factors,
    g: FloatTensor<B>,
    grads: &mut Gradients,
    checkpointer: &mut Checkpointer,
) {
    if let (Some(node), Some(x)) = (weight_node, saved.x) {
        let x = checkpointer.retrieve_node_output::<FloatTensor<B>>(x);
        grads.register::<B>(node, B::weight_gradient(x, g.clone(), saved.weight_dtype));
    }
    if let (Some(node), Some(weight)) = (x_node, saved.weight) {
        let weight = checkpointer.retrieve_node_output::<FloatTensor<B>>(weight);
        grads.register::<B>(node, B::product(g, B::float_transpose(weight)));
    }
}
