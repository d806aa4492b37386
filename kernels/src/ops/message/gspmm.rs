//! Messages along edges, reduced at their destinations.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorPrimitive};

use super::{
    BinOp, EdgeValue, Formula, MessageBackend, Place, Strategy, Target, check_operand, check_widths, gsddmm,
    inverse_degree,
};
use crate::graph::csr::Csr;
use crate::ops::spmm::{SpmmBackend, SpmmConfig, spmm};
use crate::runtime::check;

/// What every edge carries to its destination.
#[derive(Clone, Debug)]
pub enum Message<B: Backend> {
    /// `u_j`, the row of the source.
    CopyU(Tensor<B, 2>),
    /// `e_ij`, the row of the edge.
    CopyE(Tensor<B, 2>),
    /// `u_j op e_ij`.
    Binary(BinOp, Tensor<B, 2>, Tensor<B, 2>),
}

impl<B: Backend> Message<B> {
    /// `u_j + e_ij`.
    pub fn u_add_e(u: Tensor<B, 2>, e: Tensor<B, 2>) -> Self {
        Message::Binary(BinOp::Add, u, e)
    }

    /// `u_j - e_ij`.
    pub fn u_sub_e(u: Tensor<B, 2>, e: Tensor<B, 2>) -> Self {
        Message::Binary(BinOp::Sub, u, e)
    }

    /// `u_j e_ij`.
    pub fn u_mul_e(u: Tensor<B, 2>, e: Tensor<B, 2>) -> Self {
        Message::Binary(BinOp::Mul, u, e)
    }

    /// `u_j / e_ij`.
    pub fn u_div_e(u: Tensor<B, 2>, e: Tensor<B, 2>) -> Self {
        Message::Binary(BinOp::Div, u, e)
    }
}

/// What becomes of the messages of a row. A row without entries gets 0 from each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// `sum_j m_ij`.
    Sum,
    /// `sum_j m_ij / deg_i`, where the degree counts the entries of the whole graph.
    Mean,
    /// `max_j m_ij` of each channel; of equal ones the edge that comes first has the gradient.
    Max,
    /// `min_j m_ij`, likewise.
    Min,
}

/// Messages along edges, reduced at their destinations: `y_i = reduce_j m_ij` over the entries `j` of row `i`. The
/// messages are never stored, but where rows are spans (see below).
///
/// A row without entries is 0, whatever the reduction. NaN among the messages of a maximum or minimum has no defined
/// effect.
///
/// # Shapes
/// `u` `[num_cols, d]`, `e` `[num_entries, k]` in the order of `csr`, of all edges also where `csr` is restricted, both
/// in f32, f16 or bf16; result `[num_rows, max(d, k)]` in the same dtype. One of `d` and `k` divides the other: column
/// `c` of the narrower belongs to the `c`-th of equal shares of the channels, so `k` is 1 for a scalar per edge, the
/// number of heads for one per head, `d` for one per channel. Arithmetic is f32 whatever the storage. Where rows are
/// spans ([`Csr::from_spans`]), those that share an entry share its row of `e`; messages of `u` and `e` other than sums
/// of `u` times a scalar are made once per entry then, `[num_entries, max(d, k)]` in f32.
///
/// # Gradient
/// With `n_ij` the gradient of a message, which is `dy_i` for a sum, `dy_i / deg_i` for a mean, and for a maximum or
/// minimum `dy_i` in the channels in which entry `ij` was the first of the best: `du_j = sum_i n_ij dm_ij/du_j` and
/// `de_ij = n_ij dm_ij/de_ij`, summed over the channels that share a value. `m = u e` has the derivatives `e` and `u`,
/// `m = u / e` has `1 / e` and `-u / e^2`. An edge of nodes that are not selected has a gradient of 0. Saved: the
/// operands that these name, and for a maximum or minimum the winning entry of every element. Deterministic: no
/// atomics.
///
/// # Panics
/// If a shape or dtype does not fit; for a maximum or minimum over 2^32 - 1 entries or more; over the reverse of spans
/// where that has an entry per edge, for a maximum or minimum or where `e` is given; for rows that are spans where `e`
/// is given and `csr` leaves out sources, unless the messages are summed and `e` is a scalar.
///
/// # Source
/// Wang et al., Deep Graph Library: a graph-centric, highly-performant package for graph neural networks (2019),
/// section 3.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, Message, Reduce, Strategy, gspmm};
/// let device = Default::default();
/// let csr = Csr::<Flex>::from_host(&[0, 2, 3], &[0, 1, 1], 2, &device).unwrap();
/// let u = Tensor::<Flex, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
/// let e = Tensor::<Flex, 2>::from_data([[10.0], [1.0], [-1.0]], &device);
/// let y = gspmm(&csr, Message::u_mul_e(u.clone(), e), Reduce::Max, Strategy::Auto);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [10.0, 20.0, -3.0, -4.0]);
/// let y = gspmm(&csr, Message::CopyU(u), Reduce::Mean, Strategy::Auto);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [2.0, 3.0, 3.0, 4.0]);
/// ```
pub fn gspmm<B: MessageBackend + SpmmBackend>(
    csr: &Csr<B>,
    message: Message<B>,
    reduce: Reduce,
    strategy: Strategy,
) -> Tensor<B, 2> {
    const OP: &str = "gspmm";
    let float = |t: &Tensor<B, 2>| t.clone().into_primitive().tensor();
    let (op, left, left_place, right) = match &message {
        Message::CopyU(u) => (None, float(u), Place::Col, None),
        Message::CopyE(e) => (None, float(e), Place::Edge, None),
        Message::Binary(op, u, e) => (Some(*op), float(u), Place::Col, Some(float(e))),
    };
    let left_name = if left_place == Place::Edge { "e" } else { "u" };
    let names_edges = right.is_some() || left_place == Place::Edge;
    if names_edges {
        csr.check_entries(OP, "e");
    }
    let mut width = check_operand(OP, left_name, csr, &left, left_place);
    if let Some(e) = &right {
        let columns = check_operand(OP, "e", csr, e, Place::Edge);
        check::same_dtype(OP, "e", e, &left);
        width = check_widths(OP, ["u", "e"], [width, columns]);
    }
    if let Some(done) = in_spmm(csr, &message, reduce, strategy) {
        return done;
    }
    if names_edges && csr.topology().spans {
        return of_entries(OP, csr, message, reduce, strategy);
    }
    if matches!(reduce, Reduce::Max | Reduce::Min) {
        let (entries, most) = (csr.num_entries(), u32::MAX as usize);
        assert!(entries < most, "{OP}: csr: expected fewer than {most} entries for {reduce:?}, got {entries}");
        let one_way = csr.has_spans() && !csr.topology().spans;
        assert!(!one_way, "{OP}: csr: {reduce:?} takes a reverse that is spans, too, got {csr:?}");
    }
    let places = [left_place, Place::Edge];
    let formula = Formula { op, places, width, out_width: width, reduce: Some(reduce), strategy };
    Tensor::from_primitive(TensorPrimitive::Float(B::message_passing(csr.clone(), formula, left, right)))
}

/// Messages of entries that rows share: what an entry says is the same to all of them, and is made once.
fn of_entries<B: MessageBackend + SpmmBackend>(
    op: &str,
    csr: &Csr<B>,
    message: Message<B>,
    reduce: Reduce,
    strategy: Strategy,
) -> Tensor<B, 2> {
    assert!(csr.sides()[1].is_none(), "{op}: e: expected spans of all sources, got {csr:?}");
    let rows = csr.columns_of_entries();
    let (op, u, e) = match message {
        Message::Binary(op, u, e) => (op, u, e),
        Message::CopyE(e) => return gspmm(&rows, Message::CopyU(e), reduce, strategy),
        Message::CopyU(_) => unreachable!("no edge is named"),
    };
    let dtype = u.dtype();
    // Where messages are stored nowhere, nothing rounds them. Where there are none, operands stay as they are.
    let stored = if csr.num_entries() == 0 { dtype } else { DType::F32 };
    let [u, e] = [u, e].map(|x| cast(x, stored));
    let value = EdgeValue::Binary(op, Target::Source(u), Target::Edge(e));
    let messages = gsddmm(&csr.sources_of_entries(), value, Strategy::Auto);
    cast(gspmm(&rows, Message::CopyU(messages), reduce, strategy), dtype)
}

fn cast<B: Backend>(x: Tensor<B, 2>, dtype: DType) -> Tensor<B, 2> {
    match x.dims().contains(&0) {
        _ if x.dtype() == dtype => x,
        // Some devices do not take a launch over nothing.
        true => Tensor::empty(x.dims(), (&x.device(), dtype)),
        false => x.cast(dtype),
    }
}

/// Sums of rows, as they are or times a scalar, are products with a sparse matrix.
fn in_spmm<B: MessageBackend + SpmmBackend>(
    csr: &Csr<B>,
    message: &Message<B>,
    reduce: Reduce,
    strategy: Strategy,
) -> Option<Tensor<B, 2>> {
    let by_rows = strategy.parts(csr.num_rows(), csr.topology()) == 1;
    if !by_rows || csr.num_edges() == 0 || !matches!(reduce, Reduce::Sum | Reduce::Mean) {
        return None;
    }
    let (u, weight) = match message {
        Message::CopyU(u) => (u, None),
        Message::Binary(BinOp::Mul, u, e) if e.dims()[1] == 1 && u.dims()[1] > 1 => {
            // Weights of the product are f32.
            (u, Some(cast(e.clone(), DType::F32).reshape([csr.num_entries()])))
        }
        _ => return None,
    };
    let dst_scale = (reduce == Reduce::Mean).then(|| inverse_degree(csr));
    Some(spmm(csr, u.clone(), weight, SpmmConfig { dst_scale, ..Default::default() }))
}
