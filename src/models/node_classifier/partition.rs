//! Neighbours apart by what is known of their labels.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{GraphBackend, Message, Reduce, Strategy, gspmm};

use super::own::Own;
use crate::models::node_input::NodeInput;
use crate::nn::RelationEdges;

/// The mean over the in-neighbours `j` of a node `i`, whose transform depends on what is known of the label of `j`:
///
/// ```text
/// mean_j x_j W_j      W_j = A where j is known to be anomalous, N where it is known to be normal, and else
///                     a_i A + (1 - a_i) N      a_i = sigmoid(x_i m + c)
/// ```
///
/// By linearity `x_j W_j = x_j N + k_j d_j + a_i u_j d_j` with `d_j = x_j (A - N)`, where `k_j` is 1 for an anomalous
/// label and `u_j` for none: one projection and one mean of twice the output's channels.
///
/// # Gradient
/// Of `x`, `A`, `N`, `m` and `c`; labels are data.
///
/// # Source
/// Zhuo et al., Partitioning message passing for graph fraud detection (ICLR 2024): the mean stands for the sum there,
/// and the transforms are parameters for all nodes rather than generated for each.
#[derive(Module, Debug)]
pub(super) struct PartitionConv<B: Backend> {
    /// `[input, 2 * output]`: `N` beside `A`.
    weight: Param<Tensor<B, 2>>,
    /// `m` and `c`.
    mix: Own<B>,
}

impl<B: GraphBackend> PartitionConv<B> {
    /// Of zeros.
    pub fn new([input, output]: [usize; 2], device: &B::Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::zeros([input, 2 * output], device)),
            mix: Own::new([input, 1], device),
        }
    }

    /// The mean in two parts, `[destinations, output]` each, of at least one destination. `src` are the rows of the
    /// sources before a layer, `dst` those of the destinations after it, and `labels` `[sources, 2]` has `k` beside
    /// `u`.
    pub fn along(
        &self,
        edges: &RelationEdges<B>,
        src: &NodeInput<B>,
        dst: &NodeInput<B>,
        labels: &Tensor<B, 2>,
    ) -> [Tensor<B, 2>; 2] {
        let weight = self.weight.val();
        let output = weight.dims()[1] / 2;
        let h = src.project(weight);
        let normal = h.clone().narrow(1, 0, output);
        let apart = h.narrow(1, output, output) - normal.clone();
        let [known, unknown] = [0, 1].map(|column| apart.clone() * labels.clone().narrow(1, column, 1));
        let rows = Tensor::cat(vec![normal + known, unknown], 1);
        let means = gspmm(&edges.csr, Message::CopyU(rows), Reduce::Mean, Strategy::Auto);
        let mix = sigmoid(self.mix.of(dst));
        [means.clone().narrow(1, 0, output), means.narrow(1, output, output) * mix]
    }
}
