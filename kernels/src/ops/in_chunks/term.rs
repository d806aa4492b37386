//! What a layer adds up, and its share of some rows of the result.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Tensor, TensorMetadata};

use super::pairs::Pairs;
use super::{ChunkBackend, Destinations, beside, columns_of, own_rows, rows_of};
use crate::graph::csr::Csr;
use crate::graph::node_set::NodeSet;
use crate::ops::gat::edges::{EdgeParts, EdgeTerm};
use crate::ops::gat::v2::{EdgeProjection, all_heads};
use crate::ops::gat::{self, GatArgs, GatConfig, Inputs, ScoreColumns, Scores};
use crate::ops::spmm::{self, EdgeWeight, OwnRows, SpmmArgs, SpmmConfig};
use crate::runtime::check;

/// One term of [`sum_in_chunks`](super::sum_in_chunks): rows, or a sum over neighbours, and a weight.
#[derive(Clone, Debug)]
pub struct Term<B: Backend> {
    pub(super) source: Source<B>,
    /// `[in, width]`; with several heads a block of columns for each.
    pub(super) weight: FloatTensor<B>,
}

#[derive(Clone, Debug)]
pub(super) enum Source<B: Backend> {
    /// The destinations' own rows out of those of `from`.
    Rows {
        x: FloatTensor<B>,
        from: Option<NodeSet<B>>,
    },
    Sum(Sum<B>),
    Attention(Attention<B>),
    /// The weight of the term projects the destinations.
    Pairs(Pairs<B>),
}

#[derive(Clone, Debug)]
pub(super) struct Sum<B: Backend> {
    pub csr: Csr<B>,
    pub x: FloatTensor<B>,
    /// One per entry of the whole adjacency.
    pub edge_weight: Option<FloatTensor<B>>,
    pub own: Option<OwnRows<FloatTensor<B>, IntTensor<B>>>,
    pub args: SpmmArgs<FloatTensor<B>>,
}

#[derive(Clone, Debug)]
pub(super) struct Attention<B: Backend> {
    pub csr: Csr<B>,
    pub x: FloatTensor<B>,
    pub dst: Scores<FloatTensor<B>>,
    pub src: Scores<FloatTensor<B>>,
    pub args: GatArgs,
    /// Where `x` is data: the rows of the destinations, and the vectors behind the scores.
    pub data: Option<[FloatTensor<B>; 2]>,
    pub edges: Option<OfEdges<B>>,
}

/// What edges carry, and the weight behind what it adds up to.
#[derive(Clone, Debug)]
pub(super) struct OfEdges<B: Backend> {
    pub parts: EdgeParts<FloatTensor<B>, IntTensor<B>>,
    /// The values in the order of the reverse, where they are kept.
    pub reversed: Option<FloatTensor<B>>,
    /// `[columns, width]`.
    pub weight: FloatTensor<B>,
}

impl<B: ChunkBackend> Term<B> {
    /// The rows of the destinations, out of a matrix with a row per node of `from` (`None`: of every node).
    ///
    /// # Panics
    /// If a shape or dtype does not fit.
    pub fn rows(x: Tensor<B, 2>, from: Option<&NodeSet<B>>, weight: Tensor<B, 2>) -> Self {
        let x = x.into_primitive().tensor();
        if let Some(from) = from {
            check::size("Term::rows", "rows of x", from.len(), x.shape()[0]);
        }
        Self::new("Term::rows", Source::Rows { x, from: from.cloned() }, weight)
    }

    /// The result of [`spmm`](crate::spmm).
    ///
    /// # Panics
    /// If a shape or dtype does not fit, and as [`spmm`](crate::spmm).
    pub fn spmm(
        csr: &Csr<B>,
        x: Tensor<B, 2>,
        edge_weight: Option<Tensor<B, 1>>,
        config: SpmmConfig<B>,
        weight: Tensor<B, 2>,
    ) -> Self {
        const OP: &str = "Term::spmm";
        let edge_weight = edge_weight.map(|weight| spmm::weights(OP, csr, weight));
        let (x, own, args) = spmm::arguments(OP, csr, x, config);
        Self::new(OP, Source::Sum(Sum { csr: csr.clone(), x, edge_weight, own, args }), weight)
    }

    /// What [`attend`](crate::attend) gives for each of `heads` heads, all of which read every column of `x`, times the
    /// head's block of columns of `weight`, side by side. That is attention among projected rows, `sum_j a_ij (x_j W)`,
    /// by linearity.
    ///
    /// # Panics
    /// If a shape or dtype does not fit.
    pub fn attend(
        csr: &Csr<B>,
        x: Tensor<B, 2>,
        [dst, src]: [ScoreColumns<B>; 2],
        heads: usize,
        weight: Tensor<B, 2>,
        config: &GatConfig,
    ) -> Self {
        const OP: &str = "Term::attend";
        let x = x.into_primitive().tensor();
        check::size(OP, "rows of x", csr.num_cols(), x.shape()[0]);
        let dst = gat::scores(OP, "dst", dst, csr.num_rows(), heads);
        let src = gat::scores(OP, "src", src, csr.num_cols(), heads);
        let attention =
            Attention { csr: csr.clone(), x, dst, src, args: GatArgs::new(heads, config), data: None, edges: None };
        Self::new(OP, Source::Attention(attention), weight)
    }

    /// The same where edges carry something, as in [`attend_edges`](crate::attend_edges): beside the attended rows
    /// times `weight` the term has what edges add up to, head by head, times `edge_weight` `[columns of e, width]`.
    /// That is attention with messages `x_j W + e_ij W_e`.
    ///
    /// # Panics
    /// If a shape or dtype does not fit.
    pub fn attend_edges(
        csr: &Csr<B>,
        x: Tensor<B, 2>,
        [dst, src]: [ScoreColumns<B>; 2],
        (edges, edge_weight): (&EdgeTerm<B>, Tensor<B, 2>),
        heads: usize,
        weight: Tensor<B, 2>,
        config: &GatConfig,
    ) -> Self {
        const OP: &str = "Term::attend_edges";
        let mut term = Self::attend(csr, x, [dst, src], heads, weight, config);
        let (parts, reversed) = (edges.parts(OP, csr, term.x(), heads, 0, heads), edges.in_reverse(OP, csr));
        let edge_weight = edge_weight.into_primitive().tensor();
        check::size(OP, "rows of edge_weight", parts.columns(), check::matrix(OP, "edge_weight", &edge_weight)[0]);
        check::size(OP, "columns of edge_weight", term.width(), edge_weight.shape()[1]);
        check::same_dtype(OP, "edge_weight", &edge_weight, &term.weight);
        let Source::Attention(attention) = &mut term.source else { unreachable!("attention was just made") };
        attention.edges = Some(OfEdges { parts, reversed, weight: edge_weight });
        term
    }

    /// The same over features that are data, as [`attend_inputs`](crate::attend_inputs): only `vectors` and `weight`
    /// get a gradient. `vectors` `[2 heads, in]` has those of the destinations first; `x_dst` and `dst` have a row for
    /// every destination of the whole graph.
    ///
    /// # Panics
    /// If a shape or dtype does not fit.
    pub fn attend_inputs(
        csr: &Csr<B>,
        [x, x_dst]: [Tensor<B, 2>; 2],
        vectors: Tensor<B, 2>,
        [dst, src]: [ScoreColumns<B>; 2],
        heads: usize,
        weight: Tensor<B, 2>,
        config: &GatConfig,
    ) -> Self {
        const OP: &str = "Term::attend_inputs";
        let (x, x_dst) = (x.into_primitive().tensor(), x_dst.into_primitive().tensor());
        let vectors = vectors.into_primitive().tensor();
        let destinations = csr.topology().num_rows;
        check::size(OP, "rows of x", csr.num_cols(), x.shape()[0]);
        check::size(OP, "rows of x_dst", destinations, x_dst.shape()[0]);
        check::same_dtype(OP, "x_dst", &x_dst, &x);
        check::dtype(OP, "vectors", &vectors, DType::F32);
        check::size(OP, "rows of vectors", 2 * heads, vectors.shape()[0]);
        check::size(OP, "columns of vectors", x.shape()[1], vectors.shape()[1]);
        let dst = Scores { whole: true, ..gat::scores(OP, "dst", dst, destinations, heads) };
        let src = gat::scores(OP, "src", src, csr.num_cols(), heads);
        let (args, data) = (GatArgs::new(heads, config), Some([x_dst, vectors]));
        Self::new(OP, Source::Attention(Attention { csr: csr.clone(), x, dst, src, args, data, edges: None }), weight)
    }

    /// What [`gatv2`](crate::gatv2) gives for sources that are projected already and destinations that are projected
    /// here: `dst = x_dst weight + bias`, with `weight` `[in, heads * channels]` and `bias` `[heads * channels]`, f32.
    /// Nothing comes behind the sum. `x_dst` has a row per node of `from` (`None`: of every destination of the whole
    /// graph).
    ///
    /// # Panics
    /// If a shape or dtype does not fit, and as [`gatv2`](crate::gatv2).
    pub fn gatv2(
        csr: &Csr<B>,
        src: Tensor<B, 2>,
        (x_dst, from): (Tensor<B, 2>, Option<&NodeSet<B>>),
        (weight, bias): (Tensor<B, 2>, Option<Tensor<B, 1>>),
        attention: Tensor<B, 2>,
        edges: Option<EdgeProjection<B>>,
        config: &GatConfig,
    ) -> Self {
        const OP: &str = "Term::gatv2";
        let heads = all_heads(OP, csr, src, attention, edges, config);
        let x = x_dst.into_primitive().tensor();
        check::same_dtype(OP, "x_dst", &x, &heads.src);
        let nodes = csr.topology().num_rows;
        if let Some(from) = from {
            check::size(OP, "nodes of from", nodes, from.num_nodes());
        }
        check::size(OP, "rows of x_dst", from.map_or(nodes, NodeSet::len), check::matrix(OP, "x_dst", &x)[0]);
        let width = heads.width();
        check::size(OP, "columns of weight", width, weight.dims()[1]);
        let bias = bias.map(|bias| {
            let bias = bias.into_primitive().tensor();
            check::vector(OP, "bias", &bias, width);
            check::dtype(OP, "bias", &bias, DType::F32);
            B::float_reshape(bias, [1, width].into())
        });
        Self::new(OP, Source::Pairs(Pairs { csr: csr.clone(), heads, x, from: from.cloned(), bias }), weight)
    }

    fn new(op: &str, source: Source<B>, weight: Tensor<B, 2>) -> Self {
        let term = Self { source, weight: weight.into_primitive().tensor() };
        check::storage::<B>(op, "x", term.x());
        if term.weight.dtype() != DType::F32 {
            check::same_dtype(op, "weight", &term.weight, term.x());
        }
        check::size(op, "rows of weight", check::matrix(op, "x", term.x())[1], term.weight.shape()[0]);
        let heads = term.heads();
        assert!(
            heads > 0 && term.width().is_multiple_of(heads),
            "{op}: weight: expected columns for {heads} heads, got {}",
            term.width()
        );
        term
    }

    fn heads(&self) -> usize {
        match &self.source {
            Source::Attention(attention) => attention.args.heads,
            Source::Pairs(pairs) => pairs.heads.args.heads,
            Source::Rows { .. } | Source::Sum(_) => 1,
        }
    }

    pub(super) fn check_destinations(&self, op: &str, to: &Destinations<B>) {
        let (nodes, rows) = match &self.source {
            Source::Rows { x, from } => (from.as_ref().map_or(x.shape()[0], NodeSet::num_nodes), to.len()),
            Source::Sum(Sum { csr, .. })
            | Source::Attention(Attention { csr, .. })
            | Source::Pairs(Pairs { csr, .. }) => (csr.topology().num_rows, csr.num_rows()),
        };
        check::size(op, "nodes of a term", to.nodes, nodes);
        check::size(op, "rows of a term", to.len(), rows);
    }

    /// Its share of the rows `range` of the sum, which are those of `nodes`.
    pub(super) fn part(&self, nodes: &NodeSet<B>, range: &Range<usize>) -> FloatTensor<B> {
        match &self.source {
            Source::Rows { x, from } => B::product(own_rows::<B>(x, from.as_ref(), nodes), self.weight.clone()),
            Source::Sum(sum) => {
                let Sum { csr, x, own, args, .. } = sum;
                let weights = sum.edge_weight.clone().map(|weight| EdgeWeight::of_rows(weight, csr));
                let sum = B::spmm_forward(&csr.view_of(nodes), x.clone(), weights, own.clone(), args, None);
                B::product(sum, self.weight.clone())
            }
            Source::Pairs(pairs) => pairs.part(nodes, &self.weight),
            Source::Attention(attention) => {
                let (view, heads) = (attention.csr.view_of(nodes), attention.args.heads);
                let of_head = |head: usize| {
                    let Head { dst, src, args, edges } = attention.head(head, range);
                    let forward = B::gat_forward(&view, attention.x.clone(), dst, src, edges.as_ref(), args, false);
                    let attended = B::product(forward.out, columns_of::<B>(&self.weight, head, heads));
                    match (&attention.edges, forward.edges) {
                        (Some(edges), Some(sums)) => {
                            let of_edges = B::product(sums.out, columns_of::<B>(&edges.weight, head, heads));
                            B::float_add(attended, of_edges)
                        }
                        _ => attended,
                    }
                };
                beside::<B>((0..heads).map(of_head).collect())
            }
        }
    }
}

impl<B: Backend> Term<B> {
    /// Columns of the result.
    pub(super) fn width(&self) -> usize {
        self.weight.shape()[1]
    }

    /// What is summed.
    pub(super) fn x(&self) -> &FloatTensor<B> {
        match &self.source {
            Source::Rows { x, .. } => x,
            Source::Sum(sum) => &sum.x,
            Source::Attention(attention) => &attention.x,
            Source::Pairs(pairs) => &pairs.x,
        }
    }
}

/// What one head of a chunk of destinations reads.
pub(super) struct Head<B: Backend> {
    pub dst: Scores<FloatTensor<B>>,
    pub src: Scores<FloatTensor<B>>,
    pub args: GatArgs,
    pub edges: Option<EdgeParts<FloatTensor<B>, IntTensor<B>>>,
}

impl<B: Backend> Attention<B> {
    /// Head `head` for the rows `range` of the result.
    pub fn head(&self, head: usize, range: &Range<usize>) -> Head<B> {
        let dst = match self.dst.whole {
            true => self.dst.matrix.clone(),
            false => rows_of::<B>(&self.dst.matrix, range),
        };
        let dropout = self.args.attention_dropout.map(|dropout| dropout.of_heads(self.args.heads, head));
        Head {
            dst: Scores { matrix: dst, first: self.dst.first + head, whole: self.dst.whole },
            src: Scores { first: self.src.first + head, ..self.src.clone() },
            args: GatArgs { heads: 1, attention_dropout: dropout, ..self.args },
            edges: self.edges.as_ref().map(|edges| edges.parts.head::<B>(head).of_rows(&self.csr)),
        }
    }

    /// What [`GatBackend::attention_vector_gradient`](crate::GatBackend) reads for a head; `x_dst` has the
    /// destinations' rows.
    pub fn inputs(&self, x_dst: &FloatTensor<B>, head: &Head<B>) -> Inputs<FloatTensor<B>> {
        let (dst_score, src_score) = (head.dst.clone(), head.src.clone());
        Inputs { x_src: self.x.clone(), x_dst: x_dst.clone(), dst_score, src_score }
    }
}
