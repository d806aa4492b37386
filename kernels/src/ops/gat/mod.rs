//! Fused graph attention: scores, softmax over in-neighbours and aggregation in one pass over the edges.

mod attend;
mod autodiff;
#[cfg(feature = "cube")]
mod backward_kernel;
mod cpu;
mod cpu_parts;
pub(crate) mod edges;
mod inputs;
#[cfg(feature = "cube")]
mod inputs_kernel;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;
#[cfg(feature = "cube")]
mod launch_parts;
mod scalars;
pub(crate) mod v2;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Tensor, TensorPrimitive};

use crate::graph::csr::{Csr, View};
use crate::ops::gather::GatherBackend;
use crate::ops::head::HeadBackend;
use crate::ops::row_dots::{RowDotsBackend, row_dots};
use crate::runtime::check;
use crate::{DropEdge, Dropout};

pub(crate) use attend::scores;
pub use attend::{ScoreColumns, attend};
use edges::{EdgeBackward, EdgeGradients, EdgeParts, EdgeSums};
pub use inputs::{Inputs, attend_inputs};
pub(crate) use scalars::arrival_columns;
pub use scalars::{GatScalars, Scores};

/// Settings of [`gat`].
#[derive(Clone, Debug)]
pub struct GatConfig {
    /// Slope of the leaky ReLU on negative scores, in [0, 1]. Default 0.2 (Velickovic et al.).
    pub negative_slope: f32,
    /// Edges left out before the softmax. Default: none.
    pub drop_edge: Option<DropEdge>,
    /// Attention weights `a_ij` left out of the sum after the softmax, for every head on its own; the others are
    /// scaled. Default: none.
    pub attention_dropout: Option<Dropout>,
    /// Whether the backward pass repeats the forward pass instead of keeping its results: two matrices of the size of
    /// the result less in memory for one gather per edge more. The gradient is the same. Default: false.
    pub recompute: bool,
}

impl Default for GatConfig {
    fn default() -> Self {
        Self { negative_slope: 0.2, drop_edge: None, attention_dropout: None, recompute: false }
    }
}

/// [`GatConfig`] with the number of heads, as the kernels want it.
#[derive(Clone, Copy, Debug)]
pub struct GatArgs {
    pub heads: usize,
    pub negative_slope: f32,
    pub drop_edge: Option<DropEdge>,
    pub attention_dropout: Option<Dropout>,
    pub recompute: bool,
}

impl GatArgs {
    pub(crate) fn new(heads: usize, config: &GatConfig) -> Self {
        let GatConfig { negative_slope, drop_edge, attention_dropout, recompute } = *config;
        let attention_dropout = attention_dropout.map(|dropout| dropout.of_heads(heads, 0));
        Self { heads, negative_slope, drop_edge, attention_dropout, recompute }
    }
}

/// Channels that are attended to at a time: sums of a row stay in the registers of a plane, and a kernel whose loops
/// over them are laid out is compiled within a second. Channels that no vector divides take a register each.
fn widest(channels: usize) -> usize {
    match channels {
        _ if channels.is_multiple_of(4) => 2048,
        _ if channels.is_multiple_of(2) => 1024,
        _ => 512,
    }
}

/// What the forward pass leaves for the backward pass; nothing has a value per edge.
#[derive(Clone, Debug)]
pub struct GatForward<F> {
    /// `[num_rows, heads * channels]`.
    pub out: F,
    /// `[num_rows, heads]`, f32: logarithm of the softmax denominator, maximum included.
    pub log_sum_exp: F,
    /// The share of `out` and of the attention mass that edges with a positive score contributed; made on request.
    pub positive: Option<(F, F)>,
    /// What edges add up to, where they carry something.
    pub edges: Option<EdgeSums<F>>,
}

impl<F> GatForward<F> {
    /// The result, and what edges add up to.
    ///
    /// # Panics
    /// If edges carry nothing.
    pub(crate) fn results(self) -> [F; 2] {
        [self.out, self.edges.expect("edges carry something").out]
    }

    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> GatForward<G> {
        GatForward {
            out: f(self.out),
            log_sum_exp: f(self.log_sum_exp),
            positive: self.positive.map(|(out, mass)| (f(out), f(mass))),
            edges: self.edges.map(|sums| EdgeSums { out: f(sums.out), positive: sums.positive.map(&f) }),
        }
    }
}

/// What the reverse pass leaves its gradients in.
#[derive(Clone, Debug)]
pub struct GatTargets<F> {
    /// Whether the gradient of the source features is asked for.
    pub features: bool,
    /// The gradient of the source features so far.
    pub accumulate_features: Option<F>,
    /// The gradient of the matrix of `src_score` so far.
    pub accumulate_score: Option<F>,
}

impl<F> GatTargets<F> {
    pub(crate) fn map<G>(self, f: impl Fn(F) -> G) -> GatTargets<G> {
        GatTargets {
            features: self.features,
            accumulate_features: self.accumulate_features.map(&f),
            accumulate_score: self.accumulate_score.map(&f),
        }
    }
}

/// Backends with [`gat`].
pub trait GatBackend: HeadBackend + RowDotsBackend + GatherBackend {
    /// Softmax and aggregation from the two parts of the score, and from what `edges` carry where they do.
    #[doc(hidden)]
    fn gat_forward(
        view: &View<IntTensor<Self>>,
        h_src: FloatTensor<Self>,
        dst_score: Scores<FloatTensor<Self>>,
        src_score: Scores<FloatTensor<Self>>,
        edges: Option<&EdgeParts<FloatTensor<Self>, IntTensor<Self>>>,
        args: GatArgs,
        positive: bool,
    ) -> GatForward<FloatTensor<Self>>;

    /// [`GatScalars::arrivals`], and with `of_score` the gradient of `dst_score`: a matrix of its shape, added to
    /// `accumulate_into`, or zero in other columns. `edges_g` is the gradient of what edges add up to, where that is
    /// not zero: its products count in `<g_i, out_i>`, too.
    #[doc(hidden)]
    fn gat_arrivals(
        g: FloatTensor<Self>,
        edges_g: Option<FloatTensor<Self>>,
        forward: &GatForward<FloatTensor<Self>>,
        dst_score: Scores<FloatTensor<Self>>,
        of_score: bool,
        accumulate_into: Option<FloatTensor<Self>>,
        args: GatArgs,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>);

    /// The reverse pass: the gradients of the source features (where asked for) and of `src_score` (a matrix of its
    /// shape), added to those so far; without one that of the score is zero in other columns. With `attention_src` the
    /// first includes the path through `src_score`. `args` are those of the forward pass.
    #[doc(hidden)]
    fn gat_backward(
        reverse: &View<IntTensor<Self>>,
        g: FloatTensor<Self>,
        h_src: FloatTensor<Self>,
        attention_src: Option<FloatTensor<Self>>,
        scalars: GatScalars<FloatTensor<Self>>,
        args: GatArgs,
        targets: GatTargets<FloatTensor<Self>>,
    ) -> (Option<FloatTensor<Self>>, FloatTensor<Self>);

    /// The reverse pass where edges carry something; `reverse` leads their entries to the edges.
    #[doc(hidden)]
    fn gat_edges_backward(
        reverse: &View<IntTensor<Self>>,
        inputs: EdgeBackward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
        targets: GatTargets<FloatTensor<Self>>,
    ) -> EdgeGradients<FloatTensor<Self>>;

    /// The gradient of both attention vectors, `[2, d]`, f32, from that of the result of [`attend_inputs`].
    #[doc(hidden)]
    fn attention_vector_gradient(
        view: &View<IntTensor<Self>>,
        g: FloatTensor<Self>,
        inputs: Inputs<FloatTensor<Self>>,
        forward: GatForward<FloatTensor<Self>>,
        args: GatArgs,
    ) -> FloatTensor<Self>;

    /// [`attend_inputs`], recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn attend_inputs(
        csr: Csr<Self>,
        inputs: Inputs<FloatTensor<Self>>,
        _vectors: FloatTensor<Self>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        inputs::inputs_forward::<Self>(&csr.view(), &inputs, args).out
    }

    /// Softmax and aggregation, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn attend(
        csr: Csr<Self>,
        h_src: FloatTensor<Self>,
        dst_score: Scores<FloatTensor<Self>>,
        src_score: Scores<FloatTensor<Self>>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        Self::gat_forward(&csr.view(), h_src, dst_score, src_score, None, args, false).out
    }

    /// The same where edges carry something: the result, and what edges add up to. `reversed` are their values in the
    /// order of the reverse, where they are kept.
    #[doc(hidden)]
    fn attend_edges(
        csr: Csr<Self>,
        h_src: FloatTensor<Self>,
        dst_score: Scores<FloatTensor<Self>>,
        src_score: Scores<FloatTensor<Self>>,
        edges: EdgeParts<FloatTensor<Self>, IntTensor<Self>>,
        _reversed: Option<FloatTensor<Self>>,
        args: GatArgs,
    ) -> [FloatTensor<Self>; 2] {
        let edges = edges.of_rows(&csr);
        Self::gat_forward(&csr.view(), h_src, dst_score, src_score, Some(&edges), args, false).results()
    }

    /// The layer, recorded for the backward pass where the backend differentiates. Attention vectors are `[1, heads *
    /// channels]`, f32.
    #[doc(hidden)]
    fn gat(
        csr: Csr<Self>,
        h_src: FloatTensor<Self>,
        h_dst: FloatTensor<Self>,
        attention_src: FloatTensor<Self>,
        attention_dst: FloatTensor<Self>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        let dst_score = Scores::of(Self::head_dot(h_dst, attention_dst, args.heads));
        let src_score = Scores::of(Self::head_dot(h_src.clone(), attention_src, args.heads));
        Self::gat_forward(&csr.view(), h_src, dst_score, src_score, None, args, false).out
    }
}

/// Graph attention over the kept in-edges `i <- j` of every row, for each head:
///
/// ```text
/// e_ij = leaky_relu(<attention_dst, h_dst_i> + <attention_src, h_src_j>)
/// a_ij = exp(e_ij) / sum_k exp(e_ik)
/// y_i  = sum_j f_ij a_ij h_src_j
/// ```
///
/// with `f_ij` the factor of [`GatConfig::attention_dropout`], 1 without it.
///
/// One pass over the edges computes scores, a running softmax and the weighted sum: no logit, weight or message is ever
/// stored per edge. A row without kept edges gives zeros.
///
/// # Shapes
/// `h_src` `[num_cols, heads * channels]` and `h_dst` `[num_rows, heads * channels]` of one dtype (f32, f16 or bf16;
/// for a relation of a type with itself they may be the same tensor); attention vectors `[heads, channels]` in f32;
/// result `[num_rows, heads * channels]` in the dtype of `h_src`. Scores and sums are f32.
///
/// # Gradient
/// With `c_i = <g_i, y_i>`, `p_ij = <g_i, h_src_j>`: `dz_ij = a_ij (f_ij p_ij - c_i) leaky_relu'(z_ij)`,
/// `dh_src_j = sum_i f_ij a_ij g_i + (sum_i dz_ij) attention_src`, `dh_dst_i = (sum_j dz_ij) attention_dst`. One
/// reverse pass gathers `g_i` once per edge. `sum_j dz_ij` needs no edge at all: since `sum_j a_ij (f_ij p_ij - c_i) =
/// 0`, it equals `(1 - slope) (<g_i, y+_i> - c_i A+_i)` with the share `y+`, `A+` of positive scores, which the forward
/// pass saves; and `sum_i dz_ij` needs no product per edge: it is that of `h_src_j` with two weighted sums of `g_i`.
/// Saved: both feature matrices, the result, `y+`, and four values per row and head ([`GatConfig::recompute`] saves the
/// result and `y+` no longer). Deterministic: no atomics.
///
/// # Panics
/// If a shape or dtype does not fit.
///
/// # Source
/// Velickovic et al., Graph attention networks (ICLR 2018), equations 1 to 4; the centring by `<g_i, y_i>` is that of
/// Dao et al., FlashAttention (2022).
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, GatConfig, gat};
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2, 2], &[0, 1], 2, &device).unwrap();
/// let h = Tensor::<Flex, 2>::from_data([[1.0, 0.0], [3.0, 4.0]], &device);
/// let zero = Tensor::<Flex, 2>::zeros([1, 2], &device); // equal scores: the mean of the in-neighbours
/// let y = gat(&csr, h.clone(), h, zero.clone(), zero, GatConfig::default());
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [2.0, 2.0, 0.0, 0.0]);
/// ```
pub fn gat<B: GatBackend>(
    csr: &Csr<B>,
    h_src: Tensor<B, 2>,
    h_dst: Tensor<B, 2>,
    attention_src: Tensor<B, 2>,
    attention_dst: Tensor<B, 2>,
    config: GatConfig,
) -> Tensor<B, 2> {
    const OP: &str = "gat";
    let [heads, channels] = attention_src.dims();
    let [dst_heads, dst_channels] = attention_dst.dims();
    check::size(OP, "heads of attention_dst", heads, dst_heads);
    check::size(OP, "channels of attention_dst", channels, dst_channels);
    assert!(heads > 0 && channels > 0, "gat: attention_src: expected heads and channels, got [{heads}, {channels}]");
    let flat = |t: Tensor<B, 2>| t.reshape([1, heads * channels]).into_primitive().tensor();
    let (attention_src, attention_dst) = (flat(attention_src), flat(attention_dst));
    check::dtype(OP, "attention_src", &attention_src, DType::F32);
    check::dtype(OP, "attention_dst", &attention_dst, DType::F32);
    let (h_src, h_dst) = (h_src.into_primitive().tensor(), h_dst.into_primitive().tensor());
    check::storage::<B>(OP, "h_src", &h_src);
    check::same_dtype(OP, "h_dst", &h_dst, &h_src);
    let [src_rows, src_width] = check::matrix(OP, "h_src", &h_src);
    let [dst_rows, dst_width] = check::matrix(OP, "h_dst", &h_dst);
    check::size(OP, "rows of h_src", csr.num_cols(), src_rows);
    check::size(OP, "rows of h_dst", csr.num_rows(), dst_rows);
    check::size(OP, "columns of h_src", heads * channels, src_width);
    check::size(OP, "columns of h_dst", heads * channels, dst_width);
    if heads * channels > widest(channels) {
        let tensor = |values| Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(values));
        let (h_src, h_dst) = (tensor(h_src), tensor(h_dst));
        let scores = |h: &Tensor<B, 2>, attention: FloatTensor<B>| {
            let attention = tensor(attention).reshape([heads, channels]);
            let of_head = |head: usize| {
                let own = h.clone().narrow(1, head * channels, channels);
                row_dots(own, attention.clone().narrow(0, head, 1))
            };
            ScoreColumns { scores: Tensor::cat((0..heads).map(of_head).collect(), 1), first: 0 }
        };
        let (dst, src) = (scores(&h_dst, attention_dst), scores(&h_src, attention_src));
        return attend(csr, h_src, dst, src, heads, config);
    }
    let args = GatArgs::new(heads, &config);
    Tensor::from_primitive(TensorPrimitive::Float(B::gat(
        csr.clone(),
        h_src,
        h_dst,
        attention_src,
        attention_dst,
        args,
    )))
}
