//! One value per edge from what is at its ends and on it.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorPrimitive};

use super::{BinOp, Formula, MessageBackend, Place, Strategy, check_operand, check_widths};
use crate::graph::csr::Csr;
use crate::runtime::check;

/// A matrix and what its rows belong to.
#[derive(Clone, Debug)]
pub enum Target<B: Backend> {
    /// `[num_cols, k]`: a row per source.
    Source(Tensor<B, 2>),
    /// `[num_edges, k]`: a row per entry, in the order of the adjacency.
    Edge(Tensor<B, 2>),
    /// `[num_rows, k]`: a row per destination.
    Destination(Tensor<B, 2>),
}

/// What [`gsddmm`] computes for every edge.
#[derive(Clone, Debug)]
pub enum EdgeValue<B: Backend> {
    /// The row of the target.
    Copy(Target<B>),
    /// `l op r`, channel by channel.
    Binary(BinOp, Target<B>, Target<B>),
    /// `<l, r>` over the channels of each head.
    Dot {
        lhs: Target<B>,
        rhs: Target<B>,
        /// Heads that share the channels equally.
        heads: usize,
    },
}

impl<B: Backend> EdgeValue<B> {
    /// `l + r`.
    pub fn add(lhs: Target<B>, rhs: Target<B>) -> Self {
        EdgeValue::Binary(BinOp::Add, lhs, rhs)
    }

    /// `l - r`.
    pub fn sub(lhs: Target<B>, rhs: Target<B>) -> Self {
        EdgeValue::Binary(BinOp::Sub, lhs, rhs)
    }

    /// `l r`.
    pub fn mul(lhs: Target<B>, rhs: Target<B>) -> Self {
        EdgeValue::Binary(BinOp::Mul, lhs, rhs)
    }

    /// `l / r`.
    pub fn div(lhs: Target<B>, rhs: Target<B>) -> Self {
        EdgeValue::Binary(BinOp::Div, lhs, rhs)
    }

    /// `<l, r>` over the channels of each of `heads` heads.
    pub fn dot(lhs: Target<B>, rhs: Target<B>, heads: usize) -> Self {
        EdgeValue::Dot { lhs, rhs, heads }
    }
}

/// One row per edge: `z_ij = l op r`, where each operand has a row per source, per edge or per destination.
///
/// # Shapes
/// Operands `[rows of the target, k]` in f32, f16 or bf16; the columns of one divide those of the other, which are
/// shared out as in [`gspmm`](crate::gspmm). Result `[num_edges, columns of the wider]`, and `[num_edges, heads]` for
/// [`EdgeValue::Dot`], in the order of `csr` and the dtype of the operands. Arithmetic is f32 whatever the storage.
///
/// # Gradient
/// An operand of edges has `dz_ij dz_ij/dl`, one of sources its sum over the rows of the reverse, one of destinations
/// its sum over the entries of the row; channels that share a value add up. Saved: for a product or dot product each
/// operand for the other's gradient, for a quotient also the divisor. Deterministic: no atomics.
///
/// # Panics
/// If a shape or dtype does not fit, the heads do not divide the channels, the adjacency is restricted, or its rows are
/// spans ([`Csr::from_spans`]).
///
/// # Source
/// Wang et al., Deep Graph Library: a graph-centric, highly-performant package for graph neural networks (2019),
/// section 3.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Csr, EdgeValue, Strategy, Target, gsddmm};
/// let device = Default::default();
/// // Row 0 <- {0, 1}, row 1 <- {1}.
/// let csr = Csr::<Flex>::from_host(&[0, 2, 3], &[0, 1, 1], 2, &device).unwrap();
/// let x = Tensor::<Flex, 2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
/// let dot = EdgeValue::dot(Target::Source(x.clone()), Target::Destination(x.clone()), 1);
/// let z = gsddmm(&csr, dot, Strategy::Auto);
/// assert_eq!(z.into_data().to_vec::<f32>().unwrap(), [5.0, 11.0, 25.0]);
/// let difference = EdgeValue::sub(Target::Destination(x.clone()), Target::Source(x));
/// let z = gsddmm(&csr, difference, Strategy::Auto);
/// assert_eq!(z.into_data().to_vec::<f32>().unwrap(), [0.0, 0.0, -2.0, -2.0, 0.0, 0.0]);
/// ```
pub fn gsddmm<B: MessageBackend>(csr: &Csr<B>, value: EdgeValue<B>, strategy: Strategy) -> Tensor<B, 2> {
    const OP: &str = "gsddmm";
    assert!(!csr.is_restricted(), "{OP}: csr: expected a whole adjacency, got {csr:?}");
    csr.check_lists(OP, "csr");
    let parts = |target: Target<B>| match target {
        Target::Source(values) => (values.into_primitive().tensor(), Place::Col),
        Target::Edge(values) => (values.into_primitive().tensor(), Place::Edge),
        Target::Destination(values) => (values.into_primitive().tensor(), Place::Row),
    };
    let (op, lhs, rhs, heads) = match value {
        EdgeValue::Copy(target) => (None, target, None, None),
        EdgeValue::Binary(op, lhs, rhs) => (Some(op), lhs, Some(rhs), None),
        EdgeValue::Dot { lhs, rhs, heads } => (Some(BinOp::Mul), lhs, Some(rhs), Some(heads)),
    };
    let ((left, left_place), right) = (parts(lhs), rhs.map(parts));
    let mut width = check_operand(OP, "lhs", csr, &left, left_place);
    let mut places = [left_place; 2];
    if let Some((values, place)) = &right {
        let columns = check_operand(OP, "rhs", csr, values, *place);
        check::same_dtype(OP, "rhs", values, &left);
        width = check_widths(OP, ["lhs", "rhs"], [width, columns]);
        places[1] = *place;
    }
    let out_width = heads.unwrap_or(width);
    assert!(
        out_width == width || out_width > 0 && width > 0 && width.is_multiple_of(out_width),
        "{OP}: heads: expected a divisor of {width} channels, got {out_width}"
    );
    let formula = Formula { op, places, width, out_width, reduce: None, strategy };
    let right = right.map(|(values, _)| values);
    Tensor::from_primitive(TensorPrimitive::Float(B::message_passing(csr.clone(), formula, left, right)))
}
