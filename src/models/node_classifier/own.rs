//! A linear layer of nodes alone.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, GraphBackend, combine};

use crate::models::node_input::NodeInput;

/// `x W + b`: what a node adds to its own result, or a layer without neighbours.
#[derive(Module, Debug)]
pub(super) struct Own<B: Backend> {
    /// `[input, output]`
    pub weight: Param<Tensor<B, 2>>,
    /// `[output]`
    pub bias: Param<Tensor<B, 1>>,
}

impl<B: Backend> Own<B> {
    /// Of zeros.
    pub fn new([input, output]: [usize; 2], device: &B::Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::zeros([input, output], device)),
            bias: Param::from_tensor(Tensor::zeros([output], device)),
        }
    }
}

impl<B: GraphBackend> Own<B> {
    /// The layer, of at least one row.
    pub fn of(&self, x: &NodeInput<B>) -> Tensor<B, 2> {
        combine(vec![x.project(self.weight.val())], Some(self.bias.val()), 1.0, Activation::Identity)
    }
}
