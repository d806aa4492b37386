//! Attention whose edges carry something: values of their own, the encoding of their age, or both.

mod autodiff;
#[cfg(feature = "cube")]
pub(crate) mod backward_kernel;
pub(super) mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod kernel;
#[cfg(feature = "cube")]
pub(super) mod launch;
mod parts;
mod rows;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{DType, Int, Tensor, TensorMetadata, TensorPrimitive};

use super::{GatArgs, GatBackend, GatConfig, ScoreColumns, Scores, widest};
use crate::graph::csr::Csr;
use crate::ops::gather::GatherBackend;
use crate::runtime::check;

pub(super) use autodiff::record;
pub use parts::{AgeParts, EdgeBackward, EdgeGradients, EdgeParts, EdgeSums};
pub use rows::EdgeRows;

/// Most columns of values, and most cosines.
pub const MAX_EDGE_COLUMNS: usize = 16;

/// Heads times columns that edges are attended by at a time: sums of each stay in a register of a lane.
const MOST_SUMS: usize = 64;

/// What the edges of one relation carry in attention: `e_ij = (values_ij, [ln(1 + age_ij),] cos(frequency age_ij +
/// phase))`, of which at least one column is there.
#[derive(Clone, Debug)]
pub struct EdgeTerm<B: Backend> {
    /// `[num_edges, 1 to 16]` in the dtype of the features.
    pub values: Option<EdgeRows<B>>,
    /// The encoding of the age of an edge, which is made where it is needed and stored nowhere.
    pub time: Option<TimeEncoding<B>>,
    /// `[heads, columns of e]`, f32: the vector behind the share of an edge in the score.
    pub logit: Tensor<B, 2>,
}

impl<B: Backend> EdgeTerm<B> {
    /// Columns of `e`: values, the logarithm of the age, cosines.
    pub fn columns(&self) -> usize {
        let values = self.values.as_ref().map_or(0, |values| values.tensor().dims()[1]);
        values + self.time.as_ref().map_or(0, TimeEncoding::columns)
    }
}

/// Cosines of an age `t`: `cos(frequency_k t + phase_k)`, learned or fixed (Xu et al., TGAT).
///
/// Ages and frequencies have the unit that the caller likes. Angles are f32: one of `n` turns is right to `n 2^-22` of
/// a turn, so a cosine that turns once a day is right to 0.001 of a turn after ten years.
#[derive(Clone, Debug)]
pub struct TimeEncoding<B: Backend> {
    pub age: Age<B>,
    /// Whether `ln(1 + max(t, 0))` is a column before the cosines.
    pub log_age: bool,
    /// `[0 to 16]`, f32, in radians by unit of time. Differentiated where it is a parameter.
    pub frequency: Tensor<B, 1>,
    /// `[cosines]`, f32, in radians. Differentiated where it is a parameter.
    pub phase: Tensor<B, 1>,
}

impl<B: Backend> TimeEncoding<B> {
    /// Columns of the encoding.
    pub fn columns(&self) -> usize {
        usize::from(self.log_age) + self.frequency.dims()[0]
    }
}

/// Where the age of an edge comes from. It is not differentiated.
#[derive(Clone, Debug)]
pub enum Age<B: Backend> {
    /// `[num_edges]`, f32, in the order of [`EdgeTerm::values`].
    Edges(Tensor<B, 1>),
    /// The difference of the times of both ends, `dst_i - src_j`: nothing per edge. i32, one per node of the whole
    /// graph, also where the adjacency is restricted. Seconds reach 68 years, and their difference is exact.
    Nodes {
        /// `[destinations]`.
        dst: Tensor<B, 1, Int>,
        /// `[sources]`.
        src: Tensor<B, 1, Int>,
    },
}

/// [`attend`](crate::attend) where edges carry something, `e_ij` as [`EdgeTerm`] says. For each head:
///
/// ```text
/// z_ij = dst_i + src_j + <logit, e_ij>
/// a_ij = softmax_j(leaky_relu(z_ij))
/// y_i  = sum_j f_ij a_ij h_src_j
/// v_i  = sum_j f_ij a_ij e_ij
/// ```
///
/// `(y, v)` come from the same pass: it reads what edges carry beside their ids and stores nothing per edge. Messages
/// `W h_j + W_e e_ij` need no product per edge, since `sum_j a_ij W_e e_ij = W_e v_i`: project `v`, a few columns per
/// head and row, and add it to `y`. Without that, drop `v`: the layer is that of PyG's `GATConv(edge_dim)`.
///
/// # Shapes
/// `h_src`, `dst` and `src` as for [`attend`](crate::attend); `v` `[num_rows, heads * columns of e]`, head by head, in
/// the dtype of `h_src`.
///
/// # Gradient
/// Of `h_src`, both parts of the score, `logit`, `frequency`, `phase`, and of `values` where they are tracked. With
/// `gv` that of `v`, `p_ij = <g_i, h_src_j> + <gv_i, e_ij>` and `c_i = <g_i, y_i> + <gv_i, v_i>`:
/// `dz_ij = a_ij (f_ij p_ij - c_i) leaky_relu'(z_ij)`, `dlogit = sum_ij dz_ij e_ij`,
/// `de_ij = dz_ij logit + f_ij a_ij gv_i`, and through `de_ij` those of frequencies, phases and values. `sum_j dz_ij`
/// needs no edge, as for [`gat`](crate::gat). The reverse pass, which gathers `g_i` for `dh_src_j` anyway, also takes
/// the product with `h_src_j` per edge; sums over all edges stay in registers and are added up once. Deterministic: no
/// atomics.
///
/// # Panics
/// If a shape or dtype does not fit, if `e` has no column, or more than 16 values or cosines, or if values or ages of
/// edges are given for rows that are spans ([`Csr::from_spans`]), for which [`Age::Nodes`] is there; if values are kept
/// for another adjacency.
///
/// # Source
/// Velickovic et al. (ICLR 2018), with edges as in PyG's `GATConv`; Xu et al., Inductive representation learning on
/// temporal graphs (ICLR 2020), equation 5 for the cosines.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, EdgeTerm, GatConfig, ScoreColumns, attend_edges};
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2], &[0, 1], 2, &device).unwrap();
/// let h = Tensor::<Flex, 2>::from_data([[1.0], [3.0]], &device);
/// let zero = |nodes| ScoreColumns { scores: Tensor::<Flex, 2>::zeros([nodes, 1], &device), first: 0 };
/// // The second edge counts three times.
/// let values = Tensor::<Flex, 2>::from_data([[0.0], [3.0f32.ln()]], &device);
/// let term = EdgeTerm { values: Some(values.into()), time: None, logit: Tensor::ones([1, 1], &device) };
/// let (y, v) = attend_edges(&csr, h, zero(1), zero(2), term, 1, GatConfig::default());
/// assert!((y.into_scalar() - 2.5).abs() < 1e-6);
/// assert!((v.into_scalar() - 0.75 * 3.0f32.ln()).abs() < 1e-6);
/// ```
pub fn attend_edges<B: GatBackend>(
    csr: &Csr<B>,
    h_src: Tensor<B, 2>,
    dst: ScoreColumns<B>,
    src: ScoreColumns<B>,
    term: EdgeTerm<B>,
    heads: usize,
    config: GatConfig,
) -> (Tensor<B, 2>, Tensor<B, 2>) {
    const OP: &str = "attend_edges";
    let h_src = h_src.into_primitive().tensor();
    check::storage::<B>(OP, "h_src", &h_src);
    let [src_rows, width] = check::matrix(OP, "h_src", &h_src);
    check::size(OP, "rows of h_src", csr.num_cols(), src_rows);
    let equal = heads > 0 && width > 0 && width.is_multiple_of(heads);
    assert!(equal, "{OP}: h_src: expected columns in {heads} equal heads, got {width}");
    let dst = super::scores(OP, "dst", dst, csr.num_rows(), heads);
    let src = super::scores(OP, "src", src, csr.num_cols(), heads);
    let args = GatArgs::new(heads, &config);
    let (columns, channels) = (term.columns(), width / heads);
    let parts = |first: usize, count: usize| term.parts(OP, csr, &h_src, heads, first, count);
    let reversed = term.in_reverse(OP, csr);
    let tensor = |out: [FloatTensor<B>; 2]| out.map(|out| Tensor::from_primitive(TensorPrimitive::Float(out)));
    let widest = widest(channels);
    if width <= widest && heads * columns <= MOST_SUMS.max(columns) {
        let [y, v] = tensor(B::attend_edges(csr.clone(), h_src.clone(), dst, src, parts(0, heads), reversed, args));
        return (y, v);
    }
    // As `attend` does. What edges add up to is the same for all channels of a head: the first have it.
    let whole = Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(h_src.clone()));
    let (mut ys, mut vs) = (Vec::new(), Vec::new());
    for head in 0..heads {
        let of_head = |part: &Scores<FloatTensor<B>>| Scores { first: part.first + head, ..part.clone() };
        let attention_dropout = args.attention_dropout.map(|dropout| dropout.of_heads(heads, head));
        let args = GatArgs { heads: 1, attention_dropout, ..args };
        for start in (0..channels).step_by(widest) {
            let len = widest.min(channels - start);
            let piece = whole.clone().narrow(1, head * channels + start, len).into_primitive().tensor();
            let (dst, src, reversed) = (of_head(&dst), of_head(&src), reversed.clone());
            let [y, v] = tensor(B::attend_edges(csr.clone(), piece, dst, src, parts(head, 1), reversed, args));
            ys.push(y);
            if start == 0 {
                vs.push(v);
            }
        }
    }
    (Tensor::cat(ys, 1), Tensor::cat(vs, 1))
}

impl<B: Backend> EdgeTerm<B> {
    /// The primitives of `count` of `heads` heads from `first` on, checked.
    pub(crate) fn parts(
        &self,
        op: &str,
        csr: &Csr<B>,
        h_src: &FloatTensor<B>,
        heads: usize,
        first: usize,
        count: usize,
    ) -> EdgeParts<FloatTensor<B>, IntTensor<B>> {
        let values = self.values.as_ref().map(EdgeRows::tensor);
        let (values, age) = carried_parts(op, csr, h_src, values, self.time.as_ref());
        let columns = self.columns();
        assert!(columns > 0, "{op}: term: expected values or a time encoding with columns, got none");
        let [logit_heads, logit_columns] = self.logit.dims();
        check::size(op, "rows of logit", heads, logit_heads);
        check::size(op, "columns of logit", columns, logit_columns);
        check::dtype(op, "logit", &self.logit.clone().into_primitive().tensor(), DType::F32);
        let logit = self.logit.clone().narrow(0, first, count).reshape([count * columns]);
        let cosines = self.time.as_ref().map_or(0, |time| time.frequency.dims()[0]);
        let parameters = match &self.time {
            Some(time) if cosines > 0 => Tensor::cat(vec![logit, time.frequency.clone(), time.phase.clone()], 0),
            _ => logit,
        };
        EdgeParts {
            value_columns: values.as_ref().map_or(0, |values| values.shape()[1]),
            values,
            age,
            log_age: self.time.as_ref().is_some_and(|time| time.log_age),
            cosines,
            parameters: parameters.into_primitive().tensor(),
            edge_map: None,
        }
    }
}

impl<B: GatherBackend> EdgeTerm<B> {
    /// The values in the order of the reverse of `csr`, where they are kept in it and nothing else is read by edge.
    pub(crate) fn in_reverse(&self, op: &str, csr: &Csr<B>) -> Option<FloatTensor<B>> {
        let has_ages = self.time.as_ref().is_some_and(|time| matches!(time.age, Age::Edges(_)));
        self.values.as_ref().filter(|_| !has_ages)?.in_reverse(op, csr)
    }
}

/// Checks values and ages of edges beside features `h_src`.
#[expect(clippy::type_complexity, reason = "a pair, each of which may lack")]
pub(super) fn carried_parts<B: Backend>(
    op: &str,
    csr: &Csr<B>,
    h_src: &FloatTensor<B>,
    values: Option<&Tensor<B, 2>>,
    time: Option<&TimeEncoding<B>>,
) -> (Option<FloatTensor<B>>, Option<AgeParts<FloatTensor<B>, IntTensor<B>>>) {
    let edges = csr.num_edges();
    let values = values.cloned().map(|values| {
        csr.check_lists(op, "values");
        let values = values.into_primitive().tensor();
        check::same_dtype(op, "values", &values, h_src);
        let [rows, columns] = check::matrix(op, "values", &values);
        check::size(op, "rows of values", edges, rows);
        check_columns(op, "columns of values", 1, columns);
        values
    });
    let float = |tensor: &Tensor<B, 1>| tensor.clone().into_primitive().tensor();
    let age = time.map(|time| {
        let (frequency, phase) = (float(&time.frequency), float(&time.phase));
        check::dtype(op, "frequency", &frequency, DType::F32);
        check::dtype(op, "phase", &phase, DType::F32);
        check_columns(op, "frequency", 0, time.frequency.dims()[0]);
        check::size(op, "elements of phase", time.frequency.dims()[0], time.phase.dims()[0]);
        match &time.age {
            Age::Edges(ages) => {
                csr.check_lists(op, "ages of edges");
                let ages = float(ages);
                check::dtype(op, "ages of edges", &ages, DType::F32);
                check::vector(op, "ages of edges", &ages, edges);
                AgeParts::Edges(ages)
            }
            Age::Nodes { dst, src } => {
                let times = |name: &str, times: &Tensor<B, 1, Int>, nodes: usize| {
                    let times = times.clone().into_primitive();
                    check::dtype(op, name, &times, DType::I32);
                    check::vector(op, name, &times, nodes);
                    times
                };
                AgeParts::Nodes {
                    dst: times("times of destinations", dst, csr.topology().num_rows),
                    src: times("times of sources", src, csr.topology().num_cols),
                }
            }
        }
    });
    (values, age)
}

#[track_caller]
pub(super) fn check_columns(op: &str, name: &str, least: usize, columns: usize) {
    let fits = (least..=MAX_EDGE_COLUMNS).contains(&columns);
    assert!(fits, "{op}: {name}: expected {least} to {MAX_EDGE_COLUMNS}, got {columns}");
}
