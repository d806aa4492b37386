//! The rows that a layer reads: at hand, or on their way from the other ranks.

use std::cell::RefCell;
use std::collections::VecDeque;

use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use graphsieve_kernels::{CollectiveError, Communicator, Gathering, GraphBackend, at_depth};

use super::graph_part::GraphPart;
use crate::nn::{Block, RelationEdges};

/// The rows before a layer, by type, and the order in which the layer goes.
pub trait LayerRows<B: Backend> {
    /// Node types.
    fn types(&self) -> usize;

    /// The rows of a type. Where they are on their way, what is computed from here on comes behind them.
    fn rows(&self, node_type: usize) -> Tensor<B, 2>;

    /// Some rows, for their device and data type.
    fn any(&self) -> Tensor<B, 2>;

    /// The types as their results are wanted.
    fn order(&self) -> Vec<usize>;

    /// The edges of `block` as they are visited.
    fn edges<'b>(&self, block: &'b Block<B>) -> Vec<&'b RelationEdges<B>>;
}

/// Rows that are at hand.
pub struct AtHand<'a, B: Backend>(pub &'a [Tensor<B, 2>]);

impl<B: Backend> LayerRows<B> for AtHand<'_, B> {
    fn types(&self) -> usize {
        self.0.len()
    }

    fn rows(&self, node_type: usize) -> Tensor<B, 2> {
        self.0[node_type].clone()
    }

    fn any(&self) -> Tensor<B, 2> {
        self.0[0].clone()
    }

    fn order(&self) -> Vec<usize> {
        (0..self.0.len()).collect()
    }

    fn edges<'b>(&self, block: &'b Block<B>) -> Vec<&'b RelationEdges<B>> {
        sorted(block, |edges| edges.dst)
    }
}

fn sorted<B: Backend, K: Ord>(block: &Block<B>, key: impl Fn(&RelationEdges<B>) -> K) -> Vec<&RelationEdges<B>> {
    let mut edges: Vec<_> = block.edges.iter().collect();
    edges.sort_by_key(|edges| key(edges));
    edges
}

/// Zeros like `like`; a GPU does not fill a matrix without rows.
pub(super) fn blank<B: Backend>(shape: [usize; 2], like: &Tensor<B, 2>) -> Tensor<B, 2> {
    let options = (&like.device(), like.dtype());
    if shape[0] == 0 { Tensor::empty(shape, options) } else { Tensor::zeros(shape, options) }
}

/// A layer over `relations`, each with the type that it points at: what `along` makes of them in their order, handed to
/// `end` for each type in the order of `h` as soon as all of the type is there.
pub fn in_turn<B: Backend, R, P: Clone>(
    h: &dyn LayerRows<B>,
    relations: Vec<(usize, R)>,
    mut along: impl FnMut(R) -> Vec<P>,
    mut end: impl FnMut(usize, Vec<P>),
) {
    let mut left = vec![0; h.types()];
    relations.iter().for_each(|(dst, _)| left[*dst] += 1);
    let (mut relations, mut types) = (relations.into_iter(), h.order().into_iter().peekable());
    let mut parts = vec![Vec::new(); h.types()];
    loop {
        while let Some(t) = types.next_if(|&t| left[t] == 0) {
            end(t, std::mem::take(&mut parts[t]));
        }
        let Some((dst, relation)) = relations.next() else { return };
        parts[dst].extend(along(relation));
        left[dst] -= 1;
    }
}

/// Deeper than whatever is recorded between the rows of one type and those of the next: see [`at_depth`].
const STEP: usize = 64;

/// The rows of all ranks between two layers whose rows are divided: those of a type cross while others are computed,
/// before them and behind.
///
/// ```text
/// forward    layer 1 of a | of b     | of c | layer 2 among a | among a, b | with c
/// crosses                 | rows of a | of b | of c           |            |
/// backward   layer 2 with c | among a, b     | among a        | layer 1 of c | of b | of a
/// crosses                   | gradients of c | of b           | of a         |      |
/// ```
///
/// Types with many edges into them come first: edges within them are many, and hide the rows of the others.
pub struct Crossing<'a, B: GraphBackend> {
    part: &'a GraphPart<B>,
    rank: &'a Communicator<B::Plain>,
    state: RefCell<State<B>>,
}

struct State<B: GraphBackend> {
    /// In the order in which they began, with their types.
    begun: VecDeque<(usize, Gathering<B>)>,
    /// By type.
    arrived: Vec<Option<Tensor<B, 2>>>,
    last: Option<Tensor<B, 2>>,
    /// No rows, of their width.
    any: Option<Tensor<B, 2>>,
    depth: usize,
    failure: Option<CollectiveError>,
}

impl<'a, B: GraphBackend> Crossing<'a, B> {
    /// Before the first layer.
    pub fn new(part: &'a GraphPart<B>, rank: &'a Communicator<B::Plain>) -> Self {
        let arrived = vec![None; part.order().len()];
        let (begun, last, any, failure) = (VecDeque::new(), None, None, None);
        Self { part, rank, state: RefCell::new(State { begun, arrived, last, any, depth: 0, failure }) }
    }

    /// The data `x` before the first layer.
    pub fn data<'c>(&'c self, x: &'c [Tensor<B, 2>]) -> Data<'c, 'a, B> {
        Data { x, crossing: self }
    }

    /// Sends the rows of a type that this rank has computed. All ranks send those of all types in one order.
    pub fn send(&self, node_type: usize, own: Tensor<B, 2>) {
        let mut state = self.state.borrow_mut();
        state.depth += STEP;
        state.any.get_or_insert_with(|| blank([0, own.dims()[1]], &own));
        match self.rank.begin_all_gather_rows(own, &self.part.counts(node_type)) {
            Ok(rows) => state.begun.push_back((node_type, rows)),
            Err(error) => _ = state.failure.get_or_insert(error),
        }
    }

    /// The rows of all types, in the order in which they crossed.
    ///
    /// # Errors
    /// A rank that fails: what was computed since is of no use.
    pub fn ended(self) -> Result<Vec<Tensor<B, 2>>, CollectiveError> {
        let rows = self.order().into_iter().map(|t| self.rows(t)).collect();
        self.state.into_inner().failure.map_or(Ok(rows), Err)
    }

    fn place(&self, node_type: usize) -> usize {
        self.part.order().iter().position(|&t| t == node_type).unwrap_or_default()
    }
}

impl<B: GraphBackend> LayerRows<B> for Crossing<'_, B> {
    fn types(&self) -> usize {
        self.part.order().len()
    }

    fn rows(&self, node_type: usize) -> Tensor<B, 2> {
        let mut state = self.state.borrow_mut();
        // All ranks end them in the order in which they began, whatever each of them reads.
        while state.arrived[node_type].is_none() {
            let Some((t, rows)) = state.begun.pop_front() else { break };
            state.depth += STEP;
            match rows.end(state.last.as_ref(), state.depth) {
                Ok(rows) => {
                    state.last = Some(rows.clone());
                    state.arrived[t] = Some(rows);
                }
                Err(error) => _ = state.failure.get_or_insert(error),
            }
        }
        let State { arrived, any, .. } = &*state;
        arrived[node_type].clone().unwrap_or_else(|| {
            // The failure is told at the end.
            let any = any.as_ref().unwrap_or_else(|| unreachable!("rows are sent before they are read"));
            let rows = self.part.counts(node_type).iter().sum();
            Tensor::zeros([rows, any.dims()[1]], (&any.device(), any.dtype()))
        })
    }

    fn any(&self) -> Tensor<B, 2> {
        let any = self.state.borrow().any.clone();
        any.unwrap_or_else(|| unreachable!("rows are sent before they are read"))
    }

    fn order(&self) -> Vec<usize> {
        self.part.order().to_vec()
    }

    fn edges<'b>(&self, block: &'b Block<B>) -> Vec<&'b RelationEdges<B>> {
        sorted(block, |edges| self.place(edges.src).max(self.place(edges.dst)))
    }
}

/// The data before the first of two layers whose rows are divided.
pub struct Data<'c, 'a, B: GraphBackend> {
    x: &'c [Tensor<B, 2>],
    crossing: &'c Crossing<'a, B>,
}

impl<B: GraphBackend> LayerRows<B> for Data<'_, '_, B> {
    fn types(&self) -> usize {
        self.x.len()
    }

    fn rows(&self, node_type: usize) -> Tensor<B, 2> {
        // What is computed for the next type is differentiated before the gradients of the one before are waited for.
        at_depth(self.x[node_type].clone(), self.crossing.state.borrow().depth)
    }

    fn any(&self) -> Tensor<B, 2> {
        self.x[0].clone()
    }

    fn order(&self) -> Vec<usize> {
        self.crossing.order()
    }

    fn edges<'b>(&self, block: &'b Block<B>) -> Vec<&'b RelationEdges<B>> {
        sorted(block, |edges| self.crossing.place(edges.dst))
    }
}
