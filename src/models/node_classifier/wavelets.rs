//! Band-pass filters of a graph with one node type.

use burn::module::Module;
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Activation, GraphBackend, combine};

use super::ClassifierSpec;
use crate::nn::{Block, BwConv, BwConvConfig};

/// [`BwConv`] of every relation, added up; the first one has the bias.
#[derive(Module, Debug)]
pub(super) struct WaveletLayer<B: Backend> {
    relations: Vec<BwConv<B>>,
}

impl<B: GraphBackend> WaveletLayer<B> {
    /// Between hidden channels.
    pub fn new(spec: &ClassifierSpec, order: usize, device: &B::Device) -> Self {
        let config = BwConvConfig::new(spec.hidden, spec.hidden).with_order(order);
        let conv = |relation: usize| config.clone().with_bias(relation == 0).init(device);
        Self { relations: (0..spec.num_relations()).map(conv).collect() }
    }

    /// The result of the only type, which has nodes.
    ///
    /// # Panics
    /// For a graph without a relation, and for none of the rows.
    pub fn forward(&self, block: &Block<B>, x: Option<Tensor<B, 2>>) -> Tensor<B, 2> {
        let x = x.unwrap_or_else(|| panic!("WaveletLayer: x: expected the rows of a type, got none"));
        let of_relation =
            |conv: &BwConv<B>, relation: usize| block.csr(relation).map(|csr| conv.forward(csr, x.clone()));
        let parts: Vec<_> = self.relations.iter().enumerate().filter_map(|(at, conv)| of_relation(conv, at)).collect();
        combine(parts, None, 1.0, Activation::Identity)
    }

    /// The same of the nodes of one of several ranks, whose rows are `x`; see [`BwConv::forward_part`]. `degrees` are
    /// in-degrees by relation.
    ///
    /// # Errors
    /// Those of `gathered`.
    pub fn forward_part<E>(
        &self,
        block: &Block<B>,
        degrees: &[Tensor<B, 1>],
        x: &Tensor<B, 2>,
        mut gathered: impl FnMut(Tensor<B, 2>) -> Result<Tensor<B, 2>, E>,
    ) -> Result<Tensor<B, 2>, E> {
        let live =
            self.relations.iter().enumerate().filter_map(|(at, conv)| Some((conv, block.csr(at)?, &degrees[at])));
        let parts: Result<Vec<_>, E> = live
            .map(|(conv, csr, degrees)| conv.forward_part(csr, degrees.clone(), x.clone(), &mut gathered))
            .collect();
        Ok(combine(parts?, None, 1.0, Activation::Identity))
    }
}
