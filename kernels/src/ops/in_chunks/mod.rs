//! A layer over graphs by chunks of destination rows: sums over neighbours, their projection, the activation.

mod autodiff;
mod backward;
mod pairs;
mod pairs_backward;
mod term;

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, Slice, Tensor, TensorMetadata, TensorPrimitive};

use crate::graph::csr::Csr;
use crate::graph::node_marks::NodeSetBackend;
use crate::graph::node_set::NodeSet;
use crate::ops::combine::{Activation, CombineBackend, MAX_PARTS};
use crate::ops::gat::GatBackend;
use crate::ops::gat::v2::GatV2Backend;
use crate::ops::linear::LinearBackend;
use crate::ops::select::SelectBackend;
use crate::ops::spmm::SpmmBackend;
use crate::runtime::check;

pub use term::Term;

/// The destinations of a layer: all nodes of a type, or the nodes of a set.
#[derive(Clone, Debug)]
pub struct Destinations<B: Backend> {
    nodes: usize,
    set: Option<NodeSet<B>>,
}

impl<B: Backend> Destinations<B> {
    /// The nodes of `set`; all of `nodes` without one.
    ///
    /// # Panics
    /// If the set is of another number of nodes.
    pub fn new(nodes: usize, set: Option<&NodeSet<B>>) -> Self {
        if let Some(set) = set {
            check::size("Destinations", "nodes of set", nodes, set.num_nodes());
        }
        Self { nodes, set: set.cloned() }
    }

    /// Those of an adjacency, restricted or not.
    pub fn of(csr: &Csr<B>) -> Self {
        Self { nodes: csr.topology().num_rows, set: csr.sides()[0].cloned() }
    }

    /// Some of the nodes, or all without a set.
    pub fn set(&self) -> Option<&NodeSet<B>> {
        self.set.as_ref()
    }

    /// Rows of the result.
    pub fn len(&self) -> usize {
        self.set.as_ref().map_or(self.nodes, NodeSet::len)
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<B: NodeSetBackend> Destinations<B> {
    /// The nodes of some rows.
    fn part(&self, rows: &Range<usize>, device: &B::Device) -> NodeSet<B> {
        match &self.set {
            Some(set) => set.slice(rows.clone()),
            None => NodeSet::new(&(rows.start as u32..rows.end as u32).collect::<Vec<_>>(), self.nodes, device),
        }
    }
}

/// All arguments of [`sum_in_chunks`].
#[derive(Clone, Debug)]
pub struct Layer<B: Backend> {
    terms: Vec<Term<B>>,
    /// `[1, width]`, f32.
    bias: Option<FloatTensor<B>>,
    scale: f32,
    activation: Activation,
    to: Destinations<B>,
    chunk_rows: usize,
}

/// Backends with [`sum_in_chunks`].
pub trait ChunkBackend:
    SpmmBackend + GatBackend + GatV2Backend + LinearBackend + CombineBackend + NodeSetBackend + SelectBackend
{
    /// The layer, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn sum_in_chunks(layer: Layer<Self>) -> FloatTensor<Self> {
        layer.forward()
    }
}

impl ChunkBackend for burn_flex::Flex {}

#[cfg(feature = "cube")]
crate::runtime::backends::impl_for_devices! { ChunkBackend => }

/// A layer by `chunk_rows` destination rows at a time:
///
/// ```text
/// y = activation(scale (sum_r S_r(x_r) W_r + bias))
/// ```
///
/// where a [`Term`] has `S_r`, the rows themselves, a sum over neighbours or attention to them, and `W_r`, which comes
/// behind the sum (of [`Term::gatv2`], whose sources are projected before, it is that of the destinations). The same as
/// the operators one by one ([`spmm`](crate::spmm), [`attend`](crate::attend), [`gatv2`](crate::gatv2),
/// [`linear`](crate::linear), [`combine`](crate::combine)), row by row the same sums, but nothing other than `y` exists
/// for more rows than a chunk has.
///
/// # Shapes
/// Of each term as its operator has them; every `W_r` `[in_r, width]`; `bias` `[width]`, f32; result `[to.len(),
/// width]` in the dtype of the `x_r`.
///
/// # Gradient
/// That of the operators. Saved: the arguments and, with an activation, `y`. The backward pass turns the gradient of
/// `y` into that before the activation in place, and then
/// - by chunks of destinations, repeats the sums, for `dW_r = S_r^T dy` and for what attention needs of a destination:
///   three numbers per head, which stay for all destinations;
/// - by chunks of sources, gathers `dy` along the reverse, in the width of the result, and projects back what has
///   arrived: `dx_r = (A_r^T dy) W_r^T`, added in place to the gradient of `x_r` so far.
///
/// Whole are only the arguments, `y`, the gradients of these, and the scores of attention with their gradients
/// (`[nodes, heads]`); of [`Term::gatv2`], while the backward pass is at it, also the projected destinations. Sums over
/// rows for the gradients of weights and biases are those of the chunks added up, so they depend on the size of a chunk
/// within their rounding. Deterministic.
///
/// # Panics
/// If there is no term, `chunk_rows` is 0, a shape or dtype does not fit, or something that a term takes as data needs
/// a gradient.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Activation, Csr, Destinations, SpmmConfig, Term, sum_in_chunks};
/// let device = Default::default();
/// // 0 <- {1, 2}, 1 <- {0}, 2 <- {}
/// let csr = Csr::<Flex>::from_host(&[0, 2, 3, 3], &[1, 2, 0], 3, &device).unwrap();
/// let x = Tensor::<Flex, 2>::from_data([[1.0], [10.0], [100.0]], &device);
/// let weight = Tensor::<Flex, 2>::from_data([[2.0]], &device);
/// let sum = Term::spmm(&csr, x.clone(), None, SpmmConfig::default(), weight.clone());
/// let own = Term::rows(x, None, weight);
/// let y = sum_in_chunks(vec![sum, own], None, 1.0, Activation::Identity, Destinations::new(3, None), 2);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [222.0, 22.0, 200.0]);
/// ```
pub fn sum_in_chunks<B: ChunkBackend>(
    terms: Vec<Term<B>>,
    bias: Option<Tensor<B, 1>>,
    scale: f32,
    activation: Activation,
    to: Destinations<B>,
    chunk_rows: usize,
) -> Tensor<B, 2> {
    const OP: &str = "sum_in_chunks";
    assert!(!terms.is_empty(), "{OP}: terms: expected at least one");
    assert!(chunk_rows > 0, "{OP}: chunk_rows: expected at least 1, got 0");
    let width = terms[0].width();
    for term in &terms {
        check::size(OP, "columns of the weights", width, term.width());
        term.check_destinations(OP, &to);
        check::same_dtype(OP, "terms", term.x(), terms[0].x());
    }
    let bias = bias.map(|bias| {
        let bias = bias.into_primitive().tensor();
        check::vector(OP, "bias", &bias, width);
        check::dtype(OP, "bias", &bias, DType::F32);
        B::float_reshape(bias, [1, width].into())
    });
    let layer = Layer { terms, bias, scale, activation, to, chunk_rows };
    Tensor::from_primitive(TensorPrimitive::Float(B::sum_in_chunks(layer)))
}

impl<B: ChunkBackend> Layer<B> {
    fn forward(&self) -> FloatTensor<B> {
        let (rows, width) = (self.to.len(), self.terms[0].width());
        let like = self.terms[0].x();
        let mut out = None;
        for range in chunks(rows, self.chunk_rows) {
            let nodes = self.to.part(&range, &B::float_device(like));
            let mut parts: Vec<_> = self.terms.iter().map(|term| term.part(&nodes, &range)).collect();
            // As `combine` does.
            while parts.len() > MAX_PARTS {
                let rest = parts.split_off(MAX_PARTS);
                parts = [vec![B::combine_forward(parts, None, 1.0, Activation::Identity)], rest].concat();
            }
            let done = B::combine_forward(parts, self.bias.clone(), self.scale, self.activation);
            out = Some(put_rows::<B>(out, rows, &range, done, self.to.set.is_none()));
        }
        out.unwrap_or_else(|| empty::<B>([0, width], like, false))
    }
}

/// `rows` in pieces of `most` and a last one that may be shorter.
fn chunks(rows: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows).step_by(most).map(move |start| start..rows.min(start.saturating_add(most)))
}

/// A matrix that is `lasting` has a size that every pass asks for again, that of all nodes of a type: it gets memory of
/// exactly its size, where the pages of the allocator of a GPU, a sixteenth of all memory each, would leave gaps as
/// large as itself.
fn empty<B: Backend>(shape: [usize; 2], like: &FloatTensor<B>, lasting: bool) -> FloatTensor<B> {
    let (device, dtype) = (B::float_device(like), like.dtype());
    let make = |shape: Shape| B::float_empty(shape, &device, dtype.into());
    if lasting { B::memory_persistent_allocations(&device, Shape::new(shape), make) } else { make(Shape::new(shape)) }
}

/// The rows of `nodes` out of a matrix with those of `from`.
fn own_rows<B: ChunkBackend>(x: &FloatTensor<B>, from: Option<&NodeSet<B>>, nodes: &NodeSet<B>) -> FloatTensor<B> {
    B::select_forward(x.clone(), &from.map(|from| from.parts.clone()), &Some(nodes.parts.clone()), None, None)
}

/// Some rows of a matrix.
fn rows_of<B: Backend>(x: &FloatTensor<B>, range: &Range<usize>) -> FloatTensor<B> {
    let [rows, columns] = [x.shape()[0], x.shape()[1]];
    if *range == (0..rows) {
        return x.clone();
    }
    B::float_slice(x.clone(), &[Slice::from(range.clone()), Slice::from(0..columns)])
}

/// The columns of head `head` of `heads`.
fn columns_of<B: Backend>(x: &FloatTensor<B>, head: usize, heads: usize) -> FloatTensor<B> {
    let [rows, columns] = [x.shape()[0], x.shape()[1]];
    if heads == 1 {
        return x.clone();
    }
    let own = columns / heads;
    B::float_slice(x.clone(), &[Slice::from(0..rows), Slice::from(head * own..(head + 1) * own)])
}

/// Matrices side by side.
fn beside<B: Backend>(mut parts: Vec<FloatTensor<B>>) -> FloatTensor<B> {
    if parts.len() == 1 { parts.remove(0) } else { B::float_cat(parts, 1) }
}

/// `part` written to its rows of a matrix of `rows` rows, in place where nobody else holds it; see [`empty`] for
/// `lasting`.
fn put_rows<B: Backend>(
    onto: Option<FloatTensor<B>>,
    rows: usize,
    range: &Range<usize>,
    part: FloatTensor<B>,
    lasting: bool,
) -> FloatTensor<B> {
    if *range == (0..rows) {
        return part;
    }
    let columns = part.shape()[1];
    let onto = onto.unwrap_or_else(|| empty::<B>([rows, columns], &part, lasting));
    B::float_slice_assign(onto, &[Slice::from(range.clone()), Slice::from(0..columns)], part)
}

/// The sum so far with another term.
fn add_to<B: Backend>(sum: &mut Option<FloatTensor<B>>, term: FloatTensor<B>) {
    *sum = Some(match sum.take() {
        Some(sum) => B::float_add(sum, term),
        None => term,
    });
}

/// A gradient in the dtype of what it is of.
fn as_dtype<B: Backend>(x: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if x.dtype() == dtype { x } else { B::float_cast(x, dtype.into()) }
}
