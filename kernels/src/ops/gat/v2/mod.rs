//! Attention whose score is taken behind the non-linearity, so that it knows both ends of an edge together.

mod autodiff;
#[cfg(feature = "cube")]
mod backward_kernel;
mod cpu;
#[cfg(feature = "cube")]
mod forward_kernel;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;
mod parts;

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Tensor, TensorMetadata, TensorPrimitive};

use super::edges::{EdgeParts, TimeEncoding, carried_parts};
use super::{GatArgs, GatBackend, GatConfig, GatForward};
use crate::graph::csr::{Csr, View};
use crate::runtime::check;

pub(crate) use parts::V2Heads;
pub use parts::{V2Backward, V2Inputs, V2RowGradients, V2Wanted};

/// Most channels of a head of [`gatv2`]: all of them are in the registers of a plane when its score is added up.
pub const MAX_V2_CHANNELS: usize = 512;

/// Heads times channels times what the backward pass keeps of each in registers.
const MOST_KEPT: usize = 4096;

/// What edges add to the hidden layer of [`gatv2`], and to the messages if wanted: `e weight`, which is stored nowhere,
/// with `e_ij = (values_ij, [ln(1 + age_ij),] cos(frequency age_ij + phase))`, of which at least one column is there.
#[derive(Clone, Debug)]
pub struct EdgeProjection<B: Backend> {
    /// `[num_edges, 1 to 16]` in the dtype of the features, in the order of the adjacency (of its edges, where these
    /// have one: [`Csr::from_edges`]).
    pub values: Option<Tensor<B, 2>>,
    /// The encoding of the age of an edge, which is made where it is needed and stored nowhere.
    pub time: Option<TimeEncoding<B>>,
    /// `[columns of e, heads * channels]`, f32.
    pub weight: Tensor<B, 2>,
    /// Whether the message of an edge is `src_j + e_ij weight`, too.
    pub messages: bool,
}

impl<B: Backend> EdgeProjection<B> {
    /// Columns of `e`: values, the logarithm of the age, cosines.
    pub fn columns(&self) -> usize {
        let values = self.values.as_ref().map_or(0, |values| values.dims()[1]);
        values + self.time.as_ref().map_or(0, TimeEncoding::columns)
    }
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

    /// The pass over destinations: every gradient but that of the sources; of what edges carry what is `wanted`.
    #[doc(hidden)]
    fn gatv2_row_gradients(
        view: &View<IntTensor<Self>>,
        inputs: V2Backward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
        wanted: V2Wanted,
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
/// m_ij = src_j [+ e_ij weight]
/// y_i  = sum_j f_ij a_ij m_ij
/// ```
///
/// with `e_ij` what an edge carries ([`EdgeProjection`], which also says whether messages have it), and `f_ij` the
/// factor of [`GatConfig::attention_dropout`], 1 without it.
///
/// One pass over the edges fetches `src_j` once for score, running softmax and sum: neither `u` nor score, weight or
/// message is ever stored per edge. A row without kept edges gives zeros.
///
/// # Shapes
/// `src` `[num_cols, heads * channels]` and `dst` `[num_rows, heads * channels]` of one dtype (f32, f16 or bf16);
/// `attention` `[heads, channels]`, f32; result `[num_rows, heads * channels]` in the dtype of `src`. Scores and sums
/// are f32.
///
/// # Gradient
/// Of `src`, `dst`, `attention`, `weight`, and of `values`, `frequency` and `phase` where they are tracked. With
/// `p_ij = <g_i, m_ij>` and `c_i = <g_i, y_i>`: `dz_ij = a_ij (f_ij p_ij - c_i)`,
/// `du_ij = dz_ij attention leaky_relu'(u_ij)`, `ddst_i = sum_j du_ij`, `dsrc_j = sum_i (f_ij a_ij g_i + du_ij)`,
/// `dattention = sum_ij dz_ij leaky_relu(u_ij)`, `dweight = sum_ij e_ij^T d_ij`, `de_ij = weight d_ij` with
/// `d_ij = du_ij [+ f_ij a_ij g_i]`, and through `de_ij` those of frequencies and phases. Scores are computed again: a
/// pass over the destinations fetches `src_j` per edge, one over the sources `dst_i` and `g_i`; sums over all edges
/// stay in registers and are added up once. Saved: the inputs, the result and one value per row and head
/// ([`GatConfig::recompute`] saves the latter two no longer). Deterministic: no atomics.
///
/// # Panics
/// If a shape or dtype does not fit, if a head has more than [`MAX_V2_CHANNELS`] channels, if `e` has no column, or
/// more than [`MAX_EDGE_COLUMNS`](crate::MAX_EDGE_COLUMNS) values or cosines, or if values or ages of edges are given
/// for rows that are spans ([`Csr::from_spans`]), for which [`Age::Nodes`](crate::Age::Nodes) is there.
///
/// # Source
/// Brody et al., How attentive are graph attention networks? (ICLR 2022), equation 7; edges as in PyG's `GATv2Conv`, in
/// messages as in its `TransformerConv`; the centring by `<g_i, y_i>` is that of Dao et al., FlashAttention (2022).
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
/// let one = || Tensor::<Flex, 2>::ones([1, 1], &device);
/// let edges = EdgeProjection { values: Some(values), time: None, weight: one(), messages: false };
/// let y = gatv2(&csr, src.clone(), dst.clone(), one(), Some(edges.clone()), GatConfig::default());
/// assert!((y.into_scalar() - 2.5).abs() < 1e-6);
/// // With messages of 1 + 2 and 3 + ln 3.
/// let y = gatv2(&csr, src, dst, one(), Some(EdgeProjection { messages: true, ..edges }), GatConfig::default());
/// assert!((y.into_scalar() - (3.0 + 0.75 * 3.0f32.ln())).abs() < 1e-5);
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
    let (mut carried, mut angles, mut log_age, mut cosines) = ((None, None), None, false, 0);
    let messages = edges.as_ref().is_some_and(|edges| edges.messages);
    if let Some(edges) = edges {
        carried = carried_parts(op, csr, &src, edges.values.as_ref(), edges.time.as_ref());
        let columns = edges.columns();
        assert!(columns > 0, "{op}: edges: expected values or a time encoding with columns, got none");
        let [weight_rows, weight_columns] = edges.weight.dims();
        check::size(op, "rows of weight", columns, weight_rows);
        check::size(op, "columns of weight", width, weight_columns);
        check::dtype(op, "weight", &edges.weight.clone().into_primitive().tensor(), DType::F32);
        parameters = Tensor::cat(vec![parameters, edges.weight], 0);
        if let Some(time) = edges.time {
            (log_age, cosines) = (time.log_age, time.frequency.dims()[0]);
            let both = (cosines > 0).then(|| Tensor::cat(vec![time.frequency, time.phase], 0));
            angles = both.map(|both| both.into_primitive().tensor());
        }
    }
    let ((values, age), parameters) = (carried, parameters.into_primitive().tensor());
    let edges = EdgeParts {
        value_columns: values.as_ref().map_or(0, |values| values.shape()[1]),
        values,
        age,
        log_age,
        cosines,
        parameters: angles.unwrap_or_else(|| parameters.clone()),
        edge_map: None,
    };
    let together = heads_together(heads, channels, edges.columns());
    V2Heads { src, parameters, edges, messages, args: GatArgs::new(heads, config), together }
}

/// Heads that are attended by at a time: what a lane keeps of them must fit its registers. The backward pass keeps both
/// ends, the attention vector, the gradients of the result, of an end and of the attention vector, and a gradient of
/// the projection per column of what edges carry.
fn heads_together(heads: usize, channels: usize, columns: usize) -> usize {
    let most = (MOST_KEPT / (channels * (6 + columns))).clamp(1, heads);
    heads.div_ceil(heads.div_ceil(most))
}
