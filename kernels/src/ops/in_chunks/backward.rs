//! The gradients of a layer from that of its result, chunk by chunk.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, TensorMetadata};
use burn_autodiff::NodeId;
use burn_autodiff::grads::Gradients;

use super::term::{Attention, OfEdges, Source, Sum, Term};
use super::{
    ChunkBackend, Destinations, Layer, add_to, as_dtype, beside, chunks, columns_of, own_rows, put_rows, rows_of,
};
use crate::graph::node_set::NodeSet;
use crate::ops::combine::Activation;
use crate::ops::gat::edges::EdgeBackward;
use crate::ops::gat::{GatScalars, GatTargets, Scores};
use crate::ops::head::column_sum;
use crate::ops::spmm::{self, EdgeWeight};
use crate::runtime::accumulate::take;

/// The nodes that want a gradient, of what a term is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TermNodes {
    pub x: Option<NodeId>,
    pub weight: Option<NodeId>,
    /// Of a self term.
    pub own: Option<NodeId>,
    pub dst: Option<NodeId>,
    pub src: Option<NodeId>,
    /// Behind the scores, where `x` is data.
    pub vectors: Option<NodeId>,
    /// Of the projection of destinations.
    pub bias: Option<NodeId>,
    /// Of what edges carry.
    pub edge_weight: Option<NodeId>,
    pub parameters: Option<NodeId>,
    /// Of frequencies and phases, where they are no parameters beside others.
    pub angles: Option<NodeId>,
    pub values: Option<NodeId>,
}

impl<B: ChunkBackend> Layer<B> {
    /// Registers the gradients of all terms and of the bias; `g` is that of the result `out`.
    pub(super) fn backward(
        &self,
        mut g: FloatTensor<B>,
        out: Option<FloatTensor<B>>,
        bias: Option<NodeId>,
        nodes: &[TermNodes],
        grads: &mut Gradients,
    ) {
        let rows = self.to.len();
        if let Some(out) = out {
            let mut sums = None;
            for range in chunks(rows, self.chunk_rows) {
                let (part, result) = (rows_of::<B>(&g, &range), rows_of::<B>(&out, &range));
                let (part, sum) = B::combine_backward(part, result, self.scale, self.activation, bias.is_some());
                sum.into_iter().for_each(|sum| add_to::<B>(&mut sums, sum));
                g = put_rows::<B>(Some(g), rows, &range, part, false);
            }
            register::<B>(grads, bias, sums);
        } else {
            debug_assert_eq!(self.activation, Activation::Identity);
            if self.scale != 1.0 {
                for range in chunks(rows, self.chunk_rows) {
                    let part = B::float_mul_scalar(rows_of::<B>(&g, &range), self.scale.into());
                    g = put_rows::<B>(Some(g), rows, &range, part, false);
                }
            }
            register::<B>(grads, bias, bias.map(|_| column_sum::<B>(g.clone())));
        }
        for (term, nodes) in self.terms.iter().zip(nodes) {
            let pass = Pass { layer: self, term, nodes: *nodes, g: &g };
            match &term.source {
                Source::Rows { x, from } => pass.rows(x, from.as_ref(), grads),
                Source::Sum(sum) => pass.sum(sum, grads),
                Source::Attention(attention) => pass.attention(attention, grads),
                Source::Pairs(pairs) => pass.pairs(pairs, grads),
            }
        }
    }
}

fn register<B: ChunkBackend>(grads: &mut Gradients, node: Option<NodeId>, g: Option<FloatTensor<B>>) {
    if let (Some(node), Some(g)) = (node, g) {
        grads.register::<B>(node, g);
    }
}

/// Registers what is asked for; without any row it is zero.
pub(super) fn register_or_zero<B: ChunkBackend>(
    grads: &mut Gradients,
    node: Option<NodeId>,
    of: Option<&FloatTensor<B>>,
    gradient: Option<FloatTensor<B>>,
) {
    let (Some(node), Some(of)) = (node, of) else { return };
    let zeros = || B::float_zeros(of.shape(), &B::float_device(of), of.dtype().into());
    let gradient = gradient.map_or_else(zeros, |gradient| as_dtype::<B>(gradient, of.dtype()));
    grads.register::<B>(node, gradient);
}

/// The gradient of a matrix by its rows: what there is so far is added to in place.
pub(super) struct ByRows<B: ChunkBackend> {
    node: NodeId,
    rows: usize,
    before: bool,
    /// Whether these are all nodes of a type.
    all: bool,
    sum: Option<FloatTensor<B>>,
}

impl<B: ChunkBackend> ByRows<B> {
    pub(super) fn of(
        node: Option<NodeId>,
        (rows, all): (usize, bool),
        any: &FloatTensor<B>,
        grads: &mut Gradients,
    ) -> Option<Self> {
        let node = node?;
        let sum = take::<B>(grads, node, any);
        Some(Self { node, rows, before: sum.is_some(), all, sum })
    }

    /// Adds to some rows, each of which comes once.
    pub(super) fn add(&mut self, range: &std::ops::Range<usize>, mut part: FloatTensor<B>) {
        if self.before {
            let so_far = self.sum.as_ref().map(|sum| rows_of::<B>(sum, range));
            part = so_far.into_iter().fold(part, |part, so_far| B::float_add(part, so_far));
        }
        self.sum = Some(put_rows::<B>(self.sum.take(), self.rows, range, part, self.all));
    }

    pub(super) fn register(self, grads: &mut Gradients) {
        register::<B>(grads, Some(self.node), self.sum);
    }
}

/// The backward pass of one term.
pub(super) struct Pass<'a, B: ChunkBackend> {
    pub layer: &'a Layer<B>,
    pub term: &'a Term<B>,
    pub nodes: TermNodes,
    /// The gradient before the activation.
    pub g: &'a FloatTensor<B>,
}

impl<B: ChunkBackend> Pass<'_, B> {
    pub(super) fn part(&self, range: &std::ops::Range<usize>) -> NodeSet<B> {
        self.layer.to.part(range, &B::float_device(self.g))
    }

    pub(super) fn transposed(&self) -> FloatTensor<B> {
        B::float_transpose(self.term.weight.clone())
    }

    pub(super) fn register_weight(&self, dw: Option<FloatTensor<B>>, grads: &mut Gradients) {
        register_or_zero::<B>(grads, self.nodes.weight, Some(&self.term.weight), dw);
    }

    /// Adds `part`, with a row for each of `nodes`, to the gradient of a matrix with rows for those of `of`.
    pub(super) fn add_own(
        &self,
        onto: &mut Option<ByRows<B>>,
        of: Option<&NodeSet<B>>,
        nodes: &NodeSet<B>,
        range: &std::ops::Range<usize>,
        part: impl FnOnce() -> FloatTensor<B>,
    ) {
        let Some(onto) = onto else { return };
        if of.is_none() && self.layer.to.set.is_none() {
            return onto.add(range, part());
        }
        let part = part();
        let side = |set: &NodeSet<B>| Some(set.parts.clone());
        let columns = part.shape()[1];
        let sum = onto.sum.take().unwrap_or_else(|| {
            B::float_zeros([onto.rows, columns].into(), &B::float_device(&part), part.dtype().into())
        });
        onto.sum = Some(B::select_forward(part, &side(nodes), &of.and_then(side), None, Some(sum)));
    }

    fn rows(&self, x: &FloatTensor<B>, from: Option<&NodeSet<B>>, grads: &mut Gradients) {
        let (mut dw, transposed) = (None, self.transposed());
        let mut dx = ByRows::<B>::of(self.nodes.x, (x.shape()[0], from.is_none()), self.g, grads);
        for range in chunks(self.layer.to.len(), self.layer.chunk_rows) {
            let (nodes, g) = (self.part(&range), rows_of::<B>(self.g, &range));
            if self.nodes.weight.is_some() {
                let own = own_rows::<B>(x, from, &nodes);
                add_to::<B>(&mut dw, B::weight_gradient(own, g.clone(), DType::F32));
            }
            self.add_own(&mut dx, from, &nodes, &range, || B::product(g, transposed.clone()));
        }
        self.register_weight(dw, grads);
        dx.into_iter().for_each(|dx| dx.register(grads));
    }

    /// `dx = A^T (dy W^T) = (A^T dy) W^T` and `dW = (A x)^T dy = x^T (A^T dy)`: one pass over the sources, which
    /// gathers `dy`. The same pass projects them for the weights of edges, `<dy_i W^T, x_j> = <dy_i, x_j W>`.
    fn sum(&self, sum: &Sum<B>, grads: &mut Gradients) {
        let Sum { csr, x, own, args, .. } = sum;
        let (mut dw, transposed) = (None, self.transposed());
        let sums = self.nodes.x.is_some() || self.nodes.weight.is_some();
        if sums || self.nodes.edge_weight.is_some() {
            let mut dx = ByRows::<B>::of(self.nodes.x, (x.shape()[0], csr.sides()[1].is_none()), self.g, grads);
            let (reverse, reverse_args) = (csr.reverse(), args.clone().reverse());
            // Only weights need to know which edges the entries are.
            let weights = sum.edge_weight.clone().map(|weight| EdgeWeight::of_reverse(weight, csr));
            let mut of_edges = None;
            let sources = Destinations { nodes: csr.topology().num_cols, set: csr.sides()[1].cloned() };
            for range in chunks(sources.len(), self.layer.chunk_rows) {
                let nodes = sources.part(&range, &B::float_device(self.g));
                if self.nodes.edge_weight.is_some() {
                    let projected = B::product(rows_of::<B>(x, &range), self.term.weight.clone());
                    let g = self.g.clone();
                    of_edges = Some(spmm::weight_gradient_from::<B>(csr, &nodes, g, projected, args, of_edges));
                }
                if !sums {
                    continue;
                }
                let view = reverse.view_of(&nodes);
                let arrived = B::spmm_forward(&view, self.g.clone(), weights.clone(), None, &reverse_args, None);
                if self.nodes.weight.is_some() {
                    let x = rows_of::<B>(x, &range);
                    add_to::<B>(&mut dw, B::weight_gradient(x, arrived.clone(), DType::F32));
                }
                if let Some(dx) = &mut dx {
                    dx.add(&range, B::product(arrived, transposed.clone()));
                }
            }
            dx.into_iter().for_each(|dx| dx.register(grads));
            register_or_zero::<B>(grads, self.nodes.edge_weight, sum.edge_weight.as_ref(), of_edges);
        }
        if let Some(own) = own {
            let from = own.nodes.clone().map(|parts| NodeSet { parts });
            let mut dh = ByRows::<B>::of(self.nodes.own, (own.h.shape()[0], from.is_none()), self.g, grads);
            for range in chunks(self.layer.to.len(), self.layer.chunk_rows) {
                let nodes = self.part(&range);
                let side = Some(nodes.parts.clone());
                let scale = Some(own.scale.clone());
                let scaled = B::select_forward(rows_of::<B>(self.g, &range), &side, &side, scale, None);
                if self.nodes.weight.is_some() {
                    let rows = own_rows::<B>(&own.h, from.as_ref(), &nodes);
                    add_to::<B>(&mut dw, B::weight_gradient(rows, scaled.clone(), DType::F32));
                }
                let back = || B::product(scaled, transposed.clone());
                self.add_own(&mut dh, from.as_ref(), &nodes, &range, back);
            }
            dh.into_iter().for_each(|dh| dh.register(grads));
        }
        self.register_weight(dw, grads);
    }

    fn attention(&self, attention: &Attention<B>, grads: &mut Gradients) {
        match &attention.data {
            Some([x_dst, _]) => self.attention_to_data(attention, x_dst, grads),
            None => self.attention_to_rows(attention, grads),
        }
    }

    fn attention_to_data(&self, attention: &Attention<B>, x_dst: &FloatTensor<B>, grads: &mut Gradients) {
        let heads = attention.args.heads;
        let mut dw = None;
        let mut dv = vec![None; heads];
        for range in chunks(self.layer.to.len(), self.layer.chunk_rows) {
            let (view, g) = (attention.csr.view_of(&self.part(&range)), rows_of::<B>(self.g, &range));
            let mut of_heads = Vec::new();
            for (at, dv) in dv.iter_mut().enumerate() {
                let head = attention.head(at, &range);
                let (dst, src) = (head.dst.clone(), head.src.clone());
                let forward = B::gat_forward(&view, attention.x.clone(), dst, src, None, head.args, false);
                let g = columns_of::<B>(&g, at, heads);
                if self.nodes.weight.is_some() {
                    of_heads.push(B::weight_gradient(forward.out.clone(), g.clone(), DType::F32));
                }
                if self.nodes.vectors.is_some() {
                    let inputs = attention.inputs(x_dst, &head);
                    let back = self.back(g, at, heads);
                    add_to::<B>(dv, B::attention_vector_gradient(&view, back, inputs, forward, head.args));
                }
            }
            if self.nodes.weight.is_some() {
                add_to::<B>(&mut dw, beside::<B>(of_heads));
            }
        }
        self.register_weight(dw, grads);
        let dv: Option<Vec<FloatTensor<B>>> = dv.into_iter().collect();
        let dv = dv.map(|dv| match &dv[..] {
            [one] => one.clone(),
            // `[2, in]` per head: those of the destinations of all heads first.
            several => {
                let role = |role: usize| several.iter().map(move |dv| rows_of::<B>(dv, &(role..role + 1)));
                B::float_cat(role(0).chain(role(1)).collect(), 0)
            }
        });
        register::<B>(grads, self.nodes.vectors, dv);
    }

    /// `g W^T` of a head: what its attended rows get.
    fn back(&self, g: FloatTensor<B>, head: usize, heads: usize) -> FloatTensor<B> {
        B::product(g, B::float_transpose(columns_of::<B>(&self.term.weight, head, heads)))
    }

    /// By destinations: the weight, the destinations' scores, and what the sources want to know of a destination. By
    /// sources: `dx = (sum_i a_ij dy_i) W^T`, and `dt_j` from the product of that sum with `x_j W`.
    fn attention_to_rows(&self, attention: &Attention<B>, grads: &mut Gradients) {
        let Attention { csr, x, src, args, edges, .. } = attention;
        let (heads, nodes) = (args.heads, self.nodes);
        let (mut dw, mut of_edges) = (None, OfEdgesSoFar::<B>::default());
        let (mut arrivals, mut ds) = (Vec::new(), Vec::new());
        for range in chunks(self.layer.to.len(), self.layer.chunk_rows) {
            let (view, g) = (csr.view_of(&self.part(&range)), rows_of::<B>(self.g, &range));
            let (mut of_weight, mut of_edge_weight) = (Vec::new(), Vec::new());
            let (mut of_heads, mut of_score) = (Vec::new(), None);
            for at in 0..heads {
                let head = attention.head(at, &range);
                let (dst, src) = (head.dst.clone(), head.src);
                let forward = B::gat_forward(&view, x.clone(), dst, src, head.edges.as_ref(), head.args, true);
                let g = columns_of::<B>(&g, at, heads);
                let edges_g = edges
                    .as_ref()
                    .map(|edges| B::product(g.clone(), B::float_transpose(columns_of::<B>(&edges.weight, at, heads))));
                if let (Some(_), Some(sums)) = (nodes.edge_weight, &forward.edges) {
                    of_edge_weight.push(B::weight_gradient(sums.out.clone(), g.clone(), DType::F32));
                }
                if nodes.weight.is_some() {
                    of_weight.push(B::weight_gradient(forward.out.clone(), g.clone(), DType::F32));
                }
                let (g, of_dst) = (self.back(g, at, heads), nodes.dst.is_some());
                let (of_head, score) =
                    B::gat_arrivals(g, edges_g, &forward, head.dst, of_dst, of_score.take(), head.args);
                of_score = score;
                of_heads.push(of_head);
            }
            if nodes.weight.is_some() {
                add_to::<B>(&mut dw, beside::<B>(of_weight));
            }
            if !of_edge_weight.is_empty() {
                add_to::<B>(&mut of_edges.weight, beside::<B>(of_edge_weight));
            }
            arrivals.push(beside::<B>(of_heads));
            ds.extend(of_score);
        }
        self.register_weight(dw, grads);
        register::<B>(grads, nodes.dst, stacked::<B>(ds));
        let Some(arrivals) = stacked::<B>(arrivals) else {
            return of_edges.register(edges.as_ref(), nodes, grads);
        };
        if [nodes.x, nodes.src, nodes.parameters, nodes.values].iter().all(Option::is_none) {
            return of_edges.register(edges.as_ref(), nodes, grads);
        }
        let reverse_edges = edges.as_ref().map(|edges| edges.parts.in_reverse(csr, edges.reversed.clone()));
        let mut dx = ByRows::<B>::of(nodes.x, (x.shape()[0], csr.sides()[1].is_none()), self.g, grads);
        let (reverse, transposed) = (csr.reverse(), self.transposed());
        let sources = Destinations { nodes: csr.topology().num_cols, set: csr.sides()[1].cloned() };
        let mut dt = Vec::new();
        for range in chunks(sources.len(), self.layer.chunk_rows) {
            let view = reverse.view_of(&sources.part(&range, &B::float_device(self.g)));
            let projected = B::product(rows_of::<B>(x, &range), self.term.weight.clone());
            let src_score = Scores { matrix: rows_of::<B>(&src.matrix, &range), ..src.clone() };
            let scalars = GatScalars { arrivals: arrivals.clone(), src_score };
            let targets = GatTargets { features: dx.is_some(), accumulate_features: None, accumulate_score: None };
            let (arrived, score) = match &reverse_edges {
                Some(edges) => {
                    let inputs = EdgeBackward {
                        g: self.g.clone(),
                        h_src: projected,
                        scalars,
                        of_sums: true,
                        edges: edges.clone(),
                        of_values: nodes.values.is_some(),
                    };
                    let found = B::gat_edges_backward(&view, inputs, *args, targets);
                    add_to::<B>(&mut of_edges.parameters, found.parameters);
                    found.values.into_iter().for_each(|values| add_to::<B>(&mut of_edges.values, values));
                    (found.features, found.score)
                }
                None => B::gat_backward(&view, self.g.clone(), projected, None, scalars, *args, targets),
            };
            dt.push(score);
            if let (Some(dx), Some(arrived)) = (&mut dx, arrived) {
                dx.add(&range, B::product(arrived, transposed.clone()));
            }
        }
        dx.into_iter().for_each(|dx| dx.register(grads));
        register::<B>(grads, nodes.src, stacked::<B>(dt));
        of_edges.register(edges.as_ref(), nodes, grads);
    }
}

/// The gradients of what edges carry, over the chunks so far.
struct OfEdgesSoFar<B: ChunkBackend> {
    weight: Option<FloatTensor<B>>,
    parameters: Option<FloatTensor<B>>,
    values: Option<FloatTensor<B>>,
}

impl<B: ChunkBackend> Default for OfEdgesSoFar<B> {
    fn default() -> Self {
        Self { weight: None, parameters: None, values: None }
    }
}

impl<B: ChunkBackend> OfEdgesSoFar<B> {
    /// Registers what is asked for; without any row it is zero.
    fn register(self, edges: Option<&OfEdges<B>>, nodes: TermNodes, grads: &mut Gradients) {
        let Some(edges) = edges else { return };
        let found = [
            (nodes.edge_weight, Some(&edges.weight), self.weight),
            (nodes.parameters, Some(&edges.parts.parameters), self.parameters),
            (nodes.values, edges.parts.values.as_ref(), self.values),
        ];
        for (node, of, gradient) in found {
            register_or_zero::<B>(grads, node, of, gradient);
        }
    }
}

/// Matrices one behind the other.
pub(super) fn stacked<B: ChunkBackend>(mut parts: Vec<FloatTensor<B>>) -> Option<FloatTensor<B>> {
    match parts.len() {
        0 => None,
        1 => parts.pop(),
        _ => Some(B::float_cat(parts, 0)),
    }
}
