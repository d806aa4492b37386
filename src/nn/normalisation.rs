//! Factors of the adjacency that come from degrees, one per node, so that no normalised weight is stored per edge.

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{Csr, GraphBackend, Message, Reduce, SelfTerm, SpmmConfig, Strategy, gspmm, spmm};

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
    /// Weights of the entries.
    weight: Option<Tensor<B, 1>>,
}

impl<B: GraphBackend> Normalised<B> {
    /// Exactly one self-loop per node, whatever the adjacency has: with `l_i` loops among the entries of row `i`, the
    /// degree is that of the others and one, and `(1 - l_i) / deg_i` is what the entries leave to do.
    pub fn with_self_loops(csr: &Csr<B>) -> Self {
        let missing = -csr.self_loops() + 1.0;
        let degrees = csr.degrees() + missing.clone();
        let own = Some(missing / degrees.clone());
        let scale = inverse_root(degrees, Isolated::Zero);
        Self { dst: scale.clone(), src: scale, own, weight: None }
    }

    /// Entries of weights `[num_edges]`, whose sums are the degrees, and one self-loop of weight 1 per node.
    pub fn weighted(csr: &Csr<B>, weight: Tensor<B, 1>) -> Self {
        let degrees = sums_of_weights(csr, weight.clone()) + 1.0;
        let scale = inverse_root(degrees.clone(), Isolated::Zero);
        Self { dst: scale.clone(), src: scale, own: Some(degrees.recip()), weight: Some(weight) }
    }

    /// The entries as they are, with in-degrees on both sides.
    pub fn of_entries(csr: &Csr<B>, isolated: Isolated) -> Self {
        let scale = inverse_root(csr.degrees(), isolated);
        Self { dst: scale.clone(), src: scale, own: None, weight: None }
    }

    /// The same of some of the destinations; `degrees` are the in-degrees of all nodes.
    pub fn of_part(csr: &Csr<B>, degrees: Tensor<B, 1>, isolated: Isolated) -> Self {
        let [dst, src] = [csr.degrees(), degrees].map(|degrees| inverse_root(degrees, isolated));
        Self { dst, src, own: None, weight: None }
    }

    /// The entries as they are, with in-degrees of destinations and out-degrees of sources.
    pub fn between(csr: &Csr<B>) -> Self {
        let scale = |csr: &Csr<B>| inverse_root(csr.degrees(), Isolated::Zero);
        Self { dst: scale(csr), src: scale(&csr.reverse()), own: None, weight: None }
    }

    /// Sampled neighbours of some nodes, without self-loops among them, and one self-loop per node. `degree` `[nodes,
    /// 1]` are those of the whole graph, self-loop included. Row `i` has `k_i` of the `deg_i - 1` neighbours, drawn
    /// evenly: their sum times `(deg_i - 1) / k_i` has that of all of them as its mean, and is it where all were taken.
    pub fn of_sample(csr: &Csr<B>, degree: &Nodes<B>) -> Self {
        Self::of_drawn(csr, degree, vector(degree.dst()) - 1.0)
    }

    /// The same of entries of weights `[num_edges]`, whose degrees are sums of weights; `neighbours` `[num_rows, 1]`
    /// counts those of the whole graph.
    pub fn of_weighted_sample(
        csr: &Csr<B>,
        degree: &Nodes<B>,
        weight: Tensor<B, 1>,
        neighbours: &Tensor<B, 2>,
    ) -> Self {
        Self { weight: Some(weight), ..Self::of_drawn(csr, degree, vector(neighbours)) }
    }

    fn of_drawn(csr: &Csr<B>, degree: &Nodes<B>, neighbours: Tensor<B, 1>) -> Self {
        let (src, dst) = (vector(degree.src()), vector(degree.dst()));
        let estimate = neighbours / csr.degrees().clamp_min(1.0);
        Self {
            dst: inverse_root(dst.clone(), Isolated::Zero) * estimate,
            src: inverse_root(src, Isolated::Zero),
            own: Some(dst.recip()),
            weight: None,
        }
    }

    /// The product with `x`, times `factor`.
    pub fn product(&self, csr: &Csr<B>, x: Tensor<B, 2>, factor: f64) -> Tensor<B, 2> {
        let times = |scale: &Tensor<B, 1>| if factor == 1.0 { scale.clone() } else { scale.clone() * factor };
        let own = self.own.as_ref().map(|own| SelfTerm { h: x.clone(), scale: times(own), nodes: None });
        spmm(csr, x, self.weight.clone(), self.config(times(&self.dst), own))
    }

    /// The product with what sources have; destinations have their self-loops from `dst`.
    pub fn product_between(&self, csr: &Csr<B>, src: Tensor<B, 2>, dst: Tensor<B, 2>) -> Tensor<B, 2> {
        let own = self.own.as_ref().map(|own| SelfTerm { h: dst, scale: own.clone(), nodes: None });
        spmm(csr, src, self.weight.clone(), self.config(self.dst.clone(), own))
    }

    /// `D^-1/2 A D^-1/2 x + h`, where the normalisation has no self-loops.
    pub fn product_plus(&self, csr: &Csr<B>, x: Tensor<B, 2>, h: Tensor<B, 2>) -> Tensor<B, 2> {
        let own = SelfTerm { h, scale: self.dst.ones_like(), nodes: None };
        spmm(csr, x, self.weight.clone(), self.config(self.dst.clone(), Some(own)))
    }

    fn config(&self, dst: Tensor<B, 1>, own: Option<SelfTerm<B>>) -> SpmmConfig<B> {
        SpmmConfig { dst_scale: Some(dst), src_scale: Some(self.src.clone()), own, ..Default::default() }
    }
}

fn vector<B: Backend>(column: &Tensor<B, 2>) -> Tensor<B, 1> {
    column.clone().reshape([column.dims()[0]])
}

/// Of every row, `[num_rows]`.
pub(super) fn sums_of_weights<B: GraphBackend>(csr: &Csr<B>, weight: Tensor<B, 1>) -> Tensor<B, 1> {
    let weight = weight.reshape([csr.num_edges(), 1]);
    gspmm(csr, Message::CopyE(weight), Reduce::Sum, Strategy::Auto).reshape([csr.num_rows()])
}

/// `degree^-1/2` of whole numbers, or of others from 1 on.
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
