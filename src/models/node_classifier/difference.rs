//! A node beside its neighbours, and how far it is from them.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{GraphBackend, Message, Reduce, Strategy, gspmm};

use crate::models::node_input::NodeInput;
use crate::models::precision::as_dtype;
use crate::nn::{Block, RelationEdges};

/// The mean `m_i` of the in-neighbours over a relation, and the size of what a node differs by:
///
/// ```text
/// m_i U + |(x_i - m_i) V|        the second term is 0 without in-neighbours
/// ```
///
/// Both are means of projected rows: by linearity `m_i U` is the mean of `x_j U`.
#[derive(Module, Debug)]
pub(super) struct DifferenceConv<B: Backend> {
    /// `[input, 2 * output]`: `U` beside `V`.
    weight: Param<Tensor<B, 2>>,
}

impl<B: GraphBackend> DifferenceConv<B> {
    /// Of zeros.
    pub fn new([input, output]: [usize; 2], device: &B::Device) -> Self {
        Self { weight: Param::from_tensor(Tensor::zeros([input, 2 * output], device)) }
    }

    /// Both terms, `[destinations, output]` each. `src` are the rows of the sources before a layer, `dst` those of the
    /// destinations after it.
    pub fn along(
        &self,
        edges: &RelationEdges<B>,
        block: &Block<B>,
        src: &NodeInput<B>,
        dst: &NodeInput<B>,
    ) -> [Tensor<B, 2>; 2] {
        let weight = self.weight.val();
        let output = weight.dims()[1] / 2;
        let h = src.project(weight.clone());
        let own = match edges.src == edges.dst {
            true => block.destinations(edges.dst, h.clone()).narrow(1, output, output),
            false => dst.project(weight.narrow(1, output, output)),
        };
        let means = gspmm(&edges.csr, Message::CopyU(h), Reduce::Mean, Strategy::Auto);
        let has_some = edges.csr.degrees().clamp_max(1.0).reshape([edges.csr.num_rows(), 1]);
        let difference = own * as_dtype(has_some, means.dtype()) - means.clone().narrow(1, output, output);
        [means.narrow(1, 0, output), difference.abs()]
    }
}
