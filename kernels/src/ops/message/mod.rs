//! General message passing: what edges carry, and what becomes of it at nodes.
//!
//! Two passes do all of it, forwards and backwards: [`MessageBackend::reduce_messages`] folds the messages of the
//! entries of every row, [`MessageBackend::edge_messages`] writes one row per entry. A message is a [`Term`] of up to
//! three
//! [`Operand`]s, computed where it is used and stored nowhere.

mod autodiff;
mod cpu;
mod gsddmm;
mod gspmm;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;
#[cfg(feature = "cube")]
mod reduce_kernel;
mod segment_reduce;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::graph::csr::{Csr, EdgeIds, Topology, View};
use crate::runtime::check;

pub use gsddmm::{EdgeValue, Target, gsddmm};
pub use gspmm::{Message, Reduce, gspmm};
pub use segment_reduce::{SegmentOffsets, segment_reduce};

/// How two operands become one value per channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinOp {
    /// `l + r`.
    Add,
    /// `l - r`.
    Sub,
    /// `l r`.
    Mul,
    /// `l / r`.
    Div,
}

/// How the work of [`gspmm`](crate::gspmm) and [`gsddmm`](crate::gsddmm) is divided. Results differ in the rounding of
/// sums at most; each is the same in every run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// By edges for one value per edge, and for reductions into few and long rows; by rows for all others, and always
    /// where rows are spans ([`Csr::from_spans`]): what a row comes to does not depend on other rows then.
    #[default]
    Auto,
    /// By rows: a plane of a GPU takes a row (several planes a long one), a thread of a CPU some rows.
    Rows,
    /// By edges: everyone takes as many, and what the pieces of a row come to is added up in a second step.
    Edges,
}

/// Pieces of rows that keep the largest devices busy.
const PIECES: usize = 8192;
/// Entries below which a piece costs more than it helps.
const PIECE_ENTRIES: usize = 64;

impl Strategy {
    /// Pieces that each of `rows` rows is reduced in.
    fn parts<I>(self, rows: usize, topology: &Topology<I>) -> usize {
        let mean = topology.num_edges / topology.num_rows.max(1);
        let parts = (PIECES / rows.max(1)).min(mean.div_ceil(PIECE_ENTRIES));
        match self {
            Strategy::Rows => 1,
            Strategy::Edges => parts.max(2),
            // Rows of fewer entries are done before a second step starts.
            Strategy::Auto if mean >= 32 * PIECE_ENTRIES && !topology.spans => parts.max(1),
            Strategy::Auto => 1,
        }
    }
}

/// Where the row of an operand stands, seen from the entry of an adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    Row,
    Col,
    Edge,
}

impl Place {
    /// The same seen from the reverse adjacency.
    fn reverse(self) -> Self {
        match self {
            Place::Row => Place::Col,
            Place::Col => Place::Row,
            Place::Edge => Place::Edge,
        }
    }
}

/// What becomes of the operands `a`, `b` and `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// `a`.
    Copy,
    /// `-a`.
    Negate,
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a b`.
    Mul,
    /// `a / b`.
    Div,
    /// `-a b / c^2`, what a quotient leaves for its divisor.
    DivisorGradient,
}

impl Term {
    /// Operands that it has.
    #[cfg(feature = "cube")]
    fn arity(self) -> usize {
        match self {
            Term::Copy | Term::Negate => 1,
            Term::Add | Term::Sub | Term::Mul | Term::Div => 2,
            Term::DivisorGradient => 3,
        }
    }
}

impl From<Option<BinOp>> for Term {
    fn from(op: Option<BinOp>) -> Self {
        match op {
            None => Term::Copy,
            Some(BinOp::Add) => Term::Add,
            Some(BinOp::Sub) => Term::Sub,
            Some(BinOp::Mul) => Term::Mul,
            Some(BinOp::Div) => Term::Div,
        }
    }
}

/// A matrix with a row per node of one side, or per edge. Column `k` of `n` belongs to the `k`-th of `n` equal shares
/// of the channels.
#[derive(Clone, Debug)]
pub struct Operand<F> {
    pub values: F,
    pub place: Place,
}

/// The messages of an adjacency: `width` channels per entry.
#[derive(Clone, Debug)]
pub struct Messages<F, I> {
    pub term: Term,
    pub operands: Vec<Operand<F>>,
    pub width: usize,
    /// A factor per node of one side (of the whole graph), f32.
    pub scale: Option<Operand<F>>,
    /// `[nodes, width]`, u32: the only entry whose message counts in a channel of a node of one side.
    pub winners: Option<(I, Place)>,
}

impl<F, I> Messages<F, I> {
    /// The same seen from the reverse adjacency.
    fn reverse(self) -> Self {
        let operand = |o: Operand<F>| Operand { place: o.place.reverse(), ..o };
        Self {
            operands: self.operands.into_iter().map(operand).collect(),
            scale: self.scale.map(operand),
            winners: self.winners.map(|(entries, place)| (entries, place.reverse())),
            ..self
        }
    }

    /// Whether something is found by the position of an entry.
    fn name_entries(&self) -> bool {
        self.winners.is_some() || self.operands.iter().any(|o| o.place == Place::Edge)
    }
}

/// Stands for an entry where there is none.
pub(crate) const NO_ENTRY: u32 = u32::MAX;

/// What is kept of the messages of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fold {
    Sum,
    /// The largest of each channel; of equal ones that of the first entry.
    Max,
    /// The smallest, likewise.
    Min,
}

/// An operator on messages as the user asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Formula {
    /// `None` copies the left operand, and there is no right one.
    pub op: Option<BinOp>,
    pub places: [Place; 2],
    /// Channels of a message.
    pub width: usize,
    /// Columns of the result.
    pub out_width: usize,
    /// `None` for a result per entry.
    pub reduce: Option<Reduce>,
    pub strategy: Strategy,
}

/// Backends with [`gspmm`](crate::gspmm), [`gsddmm`](crate::gsddmm) and [`segment_reduce`](crate::segment_reduce).
pub trait MessageBackend: Backend {
    /// The fold of the messages of every row `[num_rows, out_width]` in the dtype of the operands, zero where there is
    /// none, added to `accumulate_into` where that is given. Channels of an output column are added up. With
    /// [`Fold::Max`] and [`Fold::Min`] also the entry of each element. Entries of `view` are found in operands and
    /// among winners through `edge_map`.
    #[doc(hidden)]
    fn reduce_messages(
        view: &View<IntTensor<Self>>,
        edge_map: Option<EdgeIds<IntTensor<Self>>>,
        messages: &Messages<FloatTensor<Self>, IntTensor<Self>>,
        fold: Fold,
        out_width: usize,
        strategy: Strategy,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> (FloatTensor<Self>, Option<IntTensor<Self>>);

    /// The messages themselves `[num_edges, out_width]`, zero where an end of an edge is not selected; channels of an
    /// output column are added up. Entries of `view` are found in operands, in the result and among winners through
    /// `edge_map`, which names each edge once.
    #[doc(hidden)]
    fn edge_messages(
        view: &View<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        messages: &Messages<FloatTensor<Self>, IntTensor<Self>>,
        out_width: usize,
        strategy: Strategy,
    ) -> FloatTensor<Self>;

    /// The operator, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn message_passing(
        csr: Csr<Self>,
        formula: Formula,
        left: FloatTensor<Self>,
        right: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        forward::<Self>(&csr, &formula, inverse_degrees::<Self>(&csr, &formula), left, right).0
    }
}

/// The operator without gradient: the result, and the entries that won.
fn forward<B: MessageBackend>(
    csr: &Csr<B>,
    formula: &Formula,
    scale: Option<Operand<FloatTensor<B>>>,
    left: FloatTensor<B>,
    right: Option<FloatTensor<B>>,
) -> (FloatTensor<B>, Option<IntTensor<B>>) {
    let [left_place, right_place] = formula.places;
    let mut operands = vec![Operand { values: left, place: left_place }];
    operands.extend(right.map(|values| Operand { values, place: right_place }));
    let messages = Messages { term: formula.op.into(), operands, width: formula.width, scale, winners: None };
    let Some(reduce) = formula.reduce else {
        return (B::edge_messages(&csr.view(), csr.edge_ids(), &messages, formula.out_width, formula.strategy), None);
    };
    let fold = match reduce {
        Reduce::Sum | Reduce::Mean => Fold::Sum,
        Reduce::Max => Fold::Max,
        Reduce::Min => Fold::Min,
    };
    // Winners are edges, too.
    let names_entries = fold != Fold::Sum || messages.name_entries();
    let edge_map = csr.edge_ids().filter(|_| names_entries).map(EdgeIds::OfEntries);
    B::reduce_messages(&csr.view(), edge_map, &messages, fold, formula.out_width, formula.strategy, None)
}

/// The factors that make means of sums.
fn inverse_degrees<B: Backend>(csr: &Csr<B>, formula: &Formula) -> Option<Operand<FloatTensor<B>>> {
    let is_mean = formula.reduce == Some(Reduce::Mean);
    is_mean.then(|| Operand { values: inverse_degree(csr).into_primitive().tensor(), place: Place::Row })
}

/// `1 / max(degree, 1)` of every row of the whole graph, f32.
fn inverse_degree<B: Backend>(csr: &Csr<B>) -> Tensor<B, 1> {
    let degrees = csr.degrees();
    // Some devices do not take a launch over nothing.
    if degrees.dims()[0] == 0 { degrees } else { degrees.clamp_min(1.0).recip() }
}

/// Checks an operand against the side that it belongs to; returns its columns.
#[track_caller]
fn check_operand<B: Backend>(op: &str, name: &str, csr: &Csr<B>, values: &FloatTensor<B>, place: Place) -> usize {
    check::storage::<B>(op, name, values);
    let [rows, columns] = check::matrix(op, name, values);
    let expected = match place {
        Place::Row => csr.num_rows(),
        Place::Col => csr.num_cols(),
        Place::Edge => csr.num_entries(),
    };
    check::size(op, &format!("rows of {name}"), expected, rows);
    columns
}

/// The channels of a message of operands with these columns: those of the wider, which the other's divide.
#[track_caller]
fn check_widths(op: &str, [left, right]: [&str; 2], widths: [usize; 2]) -> usize {
    let (wide, narrow) = (widths[0].max(widths[1]), widths[0].min(widths[1]));
    assert!(
        narrow == wide || narrow > 0 && wide.is_multiple_of(narrow),
        "{op}: columns of {left} and {right}: expected one to divide the other, got {} and {}",
        widths[0],
        widths[1]
    );
    wide
}
