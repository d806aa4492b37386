//! Attention whose score is taken behind the non-linearity, so that it knows both ends of an edge together.

mod autodiff;
#[cfg(feature = "cube")]
mod backward_kernel;
mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;
mod parts;

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Tensor, TensorMetadata, TensorPrimitive};

use super::edges::{EdgeParts, check_columns};
use super::{GatArgs, GatBackend, GatConfig, GatForward};
use crate::graph::csr::{Csr, View};
use crate::runtime::check;

pub(crate) use parts::V2Heads;
pub use parts::{V2Backward, V2Inputs, V2RowGradients};

/// Most channels of a head of [`gatv2`]: all of them are in the registers of a plane when its score is added up.
pub const MAX_V2_CHANNELS: usize = 512;

/// Heads times channels times what the backward pass keeps of each in registers.
const MOST_KEPT: usize = 4096;

/// What edges add to the hidden layer of [`gatv2`]: `values weight`, which is stored nowhere.
#[derive(Clone, Debug)]
pub struct EdgeProjection<B: Backend> {
    /// `[num_edges, 1 to 16]` in the dtype of the features, in the order of the adjacency (of its edges, where these
    /// have one: [`Csr::from_edges`]).
    pub values: Tensor<B, 2>,
    /// `[columns of values, heads * channels]`, f32.
    pub weight: Tensor<B, 2>,
}

/// Backends with [`gatv2`].
pub trait GatV2Backend: GatBackend {
    /// Softmax and aggregation; the result has no positive share.
    #[doc(hidden)]
    fn gatv2_forward(
        view: &View<IntTensor<Self>>,
        inputs: V2Inputs<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
    ) -> GatForward<FloatTensor<Self>>;

    /// The pass over destinations: every gradient but that of the sources. `of_values` tells whether that of the values
    /// is asked for.
    #[doc(hidden)]
    fn gatv2_row_gradients(
        view: &View<IntTensor<Self>>,
        inputs: V2Backward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
        of_values: bool,
    ) -> V2RowGradients<FloatTensor<Self>>;

    /// The reverse pass: the gradient of the sources. `inputs` lead entries of the reverse to the edges, `args` are
    /// those of the forward pass.
    #[doc(hidden)]
    fn gatv2_source_gradient(
        reverse: &View<IntTensor<Self>>,
        inputs: V2Backward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
    ) -> FloatTensor<Self>;

    /// [`gatv2`], recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn gatv2(csr: Csr<Self>, inputs: V2Inputs<FloatTensor<Self>, IntTensor<Self>>, args: GatArgs) -> FloatTensor<Self> {
        Self::gatv2_forward(&csr.view(), inputs.of_rows(&csr), args).out
    }
}

/// Graph attention with a score behind the non-linearity, over the kept in-edges `i <- j` of every row, for each head:
///
/// ```text
/// u_ij = src_j + dst_i [+ e_ij weight]
/// z_ij = <attention, leaky_relu(u_ij)>
/// a_ij = exp(z_ij) / sum_k exp(z_ik)
/// y_i  = sum_j f_ij a_ij src_j
/// ```
///
/// with `e_ij` the values of an edge, and `f_ij` the factor of [`GatConfig::attention_dropout`], 1 without it.
///
/// One pass over the edges fetches `src_j` once for score, running softmax and sum: neither `u` nor score nor weight is
/// ever stored per edge. A row without kept edges gives zeros.
///
/// # Shapes
/// `src` `[num_cols, heads * channels]` and `dst` `[num_rows, heads * channels]` of one dtype (f32, f16 or bf16);
/// `attention` `[heads, channels]`, f32; result `[num_rows, heads * channels]` in the dtype of `src`. Scores and sums
/// are f32.
///
/// # Gradient
/// Of `src`, `dst`, `attention`, `weight`, and of `values` where they are tracked. With `p_ij = <g_i, src_j>` and
/// `c_i = <g_i, y_i>`: `dz_ij = a_ij (f_ij p_ij - c_i)`, `du_ij = dz_ij attention leaky_relu'(u_ij)`,
/// `ddst_i = sum_j du_ij`, `dsrc_j = sum_i (f_ij a_ij g_i + du_ij)`, `dattention = sum_ij dz_ij leaky_relu(u_ij)`,
/// `dweight = sum_ij e_ij^T du_ij`, `de_ij = weight du_ij`. Scores are computed again: a pass over the destinations
/// fetches `src_j` per edge, one over the sources `dst_i` and `g_i`; sums over all edges stay in registers and are
/// added up once. Saved: the inputs, the result and one value per row and head ([`GatConfig::recompute`] saves the
/// latter two no longer). Deterministic: no atomics.
///
/// # Panics
/// If a shape or dtype does not fit, if a head has more than [`MAX_V2_CHANNELS`] channels, if edges have no value or
/// more than [`MAX_EDGE_COLUMNS`](crate::MAX_EDGE_COLUMNS), or if values are given for rows that are spans
/// ([`Csr::from_spans`]).
///
/// # Source
/// Brody et al., How attentive are graph attention networks? (ICLR 2022), equation 7; edges as in PyG's `GATv2Conv`;
/// the centring by `<g_i, y_i>` is that of Dao et al., FlashAttention (2022).
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, EdgeProjection, GatConfig, gatv2};
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2], &[0, 1], 2, &device).unwrap();
/// let src = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// let dst = Tensor::<Flex, 2>::from_data([[0.0]], &device);
/// let values = Tensor::<Flex, 2>::from_data([[2.0], [3.0f32.ln()]], &device);
/// // Hidden layers of 1 + 2 and 3 + ln 3: the second edge counts three times.
/// let edges = EdgeProjection { values, weight: Tensor::ones([1, 1], &device) };
/// let y = gatv2(&csr, src, dst, Tensor::ones([1, 1], &device), Some(edges), GatConfig::default());
/// assert!((y.into_scalar() - 2.5).abs() < 1e-6);
/// ```
pub fn gatv2<B: GatV2Backend>(
    csr: &Csr<B>,
    src: Tensor<B, 2>,
    dst: Tensor<B, 2>,
    attention: Tensor<B, 2>,
    edges: Option<EdgeProjection<B>>,
    config: GatConfig,
) -> Tensor<B, 2> {
    const OP: &str = "gatv2";
    let all = all_heads(OP, csr, src, attention, edges, &config);
    let dst = dst.into_primitive().tensor();
    check::same_dtype(OP, "dst", &dst, &all.src);
    let [rows, columns] = check::matrix(OP, "dst", &dst);
    check::size(OP, "rows of dst", csr.num_rows(), rows);
    check::size(OP, "columns of dst", all.width(), columns);
    let of_group = |heads: Range<usize>| {
        let (inputs, args) = all.part::<B>(&dst, &heads);
        Tensor::from_primitive(TensorPrimitive::Float(B::gatv2(csr.clone(), inputs, args)))
    };
    // Heads do not know of each other.
    let mut groups: Vec<Tensor<B, 2>> = all.groups().map(of_group).collect();
    if groups.len() == 1 { groups.remove(0) } else { Tensor::cat(groups, 1) }
}

/// The arguments of [`gatv2`] without the destinations, checked.
pub(crate) fn all_heads<B: GatV2Backend>(
    op: &str,
    csr: &Csr<B>,
    src: Tensor<B, 2>,
    attention: Tensor<B, 2>,
    edges: Option<EdgeProjection<B>>,
    config: &GatConfig,
) -> V2Heads<FloatTensor<B>, IntTensor<B>> {
    let [heads, channels] = attention.dims();
    let width = heads * channels;
    assert!(width > 0, "{op}: attention: expected heads and channels, got [{heads}, {channels}]");
    assert!(
        channels <= MAX_V2_CHANNELS,
        "{op}: channels of attention: expected 1 to {MAX_V2_CHANNELS}, got {channels}"
    );
    check::dtype(op, "attention", &attention.clone().into_primitive().tensor(), DType::F32);
    let src = src.into_primitive().tensor();
    check::storage::<B>(op, "src", &src);
    let [rows, columns] = check::matrix(op, "src", &src);
    check::size(op, "rows of src", csr.num_cols(), rows);
    check::size(op, "columns of src", width, columns);
    let mut parameters = attention.reshape([1, width]);
    let mut values = None;
    if let Some(edges) = edges {
        csr.check_lists(op, "values");
        let of_edges = edges.values.into_primitive().tensor();
        check::same_dtype(op, "values", &of_edges, &src);
        let [rows, columns] = check::matrix(op, "values", &of_edges);
        check::size(op, "rows of values", csr.num_edges(), rows);
        check_columns(op, "columns of values", 1, columns);
        let [weight_rows, weight_columns] = edges.weight.dims();
        check::size(op, "rows of weight", columns, weight_rows);
        check::size(op, "columns of weight", width, weight_columns);
        check::dtype(op, "weight", &edges.weight.clone().into_primitive().tensor(), DType::F32);
        parameters = Tensor::cat(vec![parameters, edges.weight], 0);
        values = Some(of_edges);
    }
    let value_columns = values.as_ref().map_or(0, |values| values.shape()[1]);
    let parameters = parameters.into_primitive().tensor();
    let edges = EdgeParts { values, value_columns, age: None, log_age: false, cosines: 0, parameters, edge_map: None };
    let together = heads_together(heads, channels, value_columns);
    V2Heads { src, edges, args: GatArgs::new(heads, config), together }
}

/// Heads that are attended by at a time: what a lane keeps of them must fit its registers. The backward pass keeps both
/// ends, the attention vector, the gradients of the result, of an end and of the attention vector, and a gradient of
/// the projection per value.
fn heads_together(heads: usize, channels: usize, values: usize) -> usize {
    let most = (MOST_KEPT / (channels * (6 + values))).clamp(1, heads);
    heads.div_ceil(heads.div_ceil(most))
}
