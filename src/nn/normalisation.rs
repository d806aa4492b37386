//! Factors of the adjacency that come from degrees, one per node, so that no normalised weight is stored per edge.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Csr, GraphBackend, SelfTerm, SpmmConfig, spmm};

use super::graph_conv::Nodes;

/// What becomes of a node without edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isolated {
    /// Its factor is 0.
    Zero,
    /// It counts as a node of degree 1.
    One,
}

/// `D^-1/2 A D^-1/2`, with or without self-loops, as a product.
pub(super) struct Normalised<B: Backend> {
    dst: Tensor<B, 1>,
    src: Tensor<B, 1>,
    /// What a node has of itself beside the entries of the adjacency.
    own: Option<Tensor<B, 1>>,
}

impl<B: GraphBackend> Normalised<B> {
    /// Exactly one self-loop per node, whatever the adjacency has: with `l_i` loops among the entries of row `i`, the
    /// degree is that of the others and one, and `(1 - l_i) / deg_i` is what the entries leave to do.
    pub fn with_self_loops(csr: &Csr<B>) -> Self {
        let missing = -csr.self_loops() + 1.0;
        let degrees = csr.degrees() + missing.clone();
        let own = Some(missing / degrees.clone());
        let scale = inverse_root(degrees, Isolated::Zero);
        Self { dst: scale.clone(), src: scale, own }
    }

    /// The entries as they are, with in-degrees on both sides.
    pub fn of_entries(csr: &Csr<B>, isolated: Isolated) -> Self {
        let scale = inverse_root(csr.degrees(), isolated);
        Self { dst: scale.clone(), src: scale, own: None }
    }

    /// The entries as they are, with in-degrees of destinations and out-degrees of sources.
    pub fn between(csr: &Csr<B>) -> Self {
        let scale = |csr: &Csr<B>| inverse_root(csr.degrees(), Isolated::Zero);
        Self { dst: scale(csr), src: scale(&csr.reverse()), own: None }
    }

    /// Sampled neighbours of some nodes, without self-loops among them, and one self-loop per node. `degree` `[nodes,
    /// 1]` are those of the whole graph, self-loop included. Row `i` has `k_i` of the `deg_i - 1` neighbours, drawn
    /// evenly: their sum times `(deg_i - 1) / k_i` has that of all of them as its mean, and is it where all were taken.
    pub fn of_sample(csr: &Csr<B>, degree: &Nodes<B>) -> Self {
        let vector = |degree: &Tensor<B, 2>| degree.clone().reshape([degree.dims()[0]]);
        let (src, dst) = (vector(degree.src()), vector(degree.dst()));
        let estimate = (dst.clone() - 1.0) / csr.degrees().clamp_min(1.0);
        Self {
            dst: inverse_root(dst.clone(), Isolated::Zero) * estimate,
            src: inverse_root(src, Isolated::Zero),
            own: Some(dst.recip()),
        }
    }

    /// The product with `x`, times `factor`.
    pub fn product(&self, csr: &Csr<B>, x: Tensor<B, 2>, factor: f64) -> Tensor<B, 2> {
        let times = |scale: &Tensor<B, 1>| if factor == 1.0 { scale.clone() } else { scale.clone() * factor };
        let own = self.own.as_ref().map(|own| SelfTerm { h: x.clone(), scale: times(own), nodes: None });
        spmm(csr, x, None, self.config(times(&self.dst), own))
    }

    /// The product with what sources have; destinations have their self-loops from `dst`.
    pub fn product_between(&self, csr: &Csr<B>, src: Tensor<B, 2>, dst: Tensor<B, 2>) -> Tensor<B, 2> {
        let own = self.own.as_ref().map(|own| SelfTerm { h: dst, scale: own.clone(), nodes: None });
        spmm(csr, src, None, self.config(self.dst.clone(), own))
    }

    /// `D^-1/2 A D^-1/2 x + h`, where the normalisation has no self-loops.
    pub fn product_plus(&self, csr: &Csr<B>, x: Tensor<B, 2>, h: Tensor<B, 2>) -> Tensor<B, 2> {
        let own = SelfTerm { h, scale: self.dst.ones_like(), nodes: None };
        spmm(csr, x, None, self.config(self.dst.clone(), Some(own)))
    }

    fn config(&self, dst: Tensor<B, 1>, own: Option<SelfTerm<B>>) -> SpmmConfig<B> {
        SpmmConfig { dst_scale: Some(dst), src_scale: Some(self.src.clone()), own, ..Default::default() }
    }
}

/// `degree^-1/2` of whole numbers.
fn inverse_root<B: Backend>(degrees: Tensor<B, 1>, isolated: Isolated) -> Tensor<B, 1> {
    let root = degrees.clone().clamp_min(1.0).recip().sqrt();
    match isolated {
        Isolated::One => root,
        Isolated::Zero => root * degrees.clamp_max(1.0),
    }
}

/// `degree^-1/2` of sums of weights `[nodes, 1]`, 0 where that is not positive. Differentiated.
pub(super) fn inverse_root_of_weights<B: Backend>(degrees: Tensor<B, 2>) -> Tensor<B, 2> {
    let none = degrees.clone().lower_equal_elem(0.0);
    degrees.mask_fill(none.clone(), 1.0).recip().sqrt().mask_fill(none, 0.0)
}
