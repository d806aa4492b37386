//! `dl = sum of n dm/dl` over the entries that read a row of an operand `l`, where `n` is the gradient of a message
//! `m`.

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::{AutodiffBackend, TensorMetadata};

use super::{BinOp, Fold, Formula, MessageBackend, Messages, Operand, Place, Strategy, Term, forward, inverse_degrees};
use crate::graph::csr::{Csr, EdgeIds, View};
use crate::runtime::accumulate::accumulate;

#[derive(Debug)]
struct MessagePassing;

#[derive(Clone, Debug)]
struct Saved<F, I> {
    /// An operand is there only when a gradient needs it.
    operands: [Option<NodeId>; 2],
    columns: [usize; 2],
    scale: Option<Operand<F>>,
    winners: Option<I>,
}

impl<B: MessageBackend> Backward<B, 2> for MessagePassing {
    type State = (Csr<B>, Formula, Saved<FloatTensor<B>, IntTensor<B>>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let (csr, formula, saved) = ops.state;
        let [left, right] =
            saved.operands.map(|id| id.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id)));
        let strategy = formula.strategy;
        for (side, node) in ops.parents.into_iter().enumerate() {
            let Some(node) = node else { continue };
            let messages = |g: FloatTensor<B>| {
                let g = Operand { values: g, place: if formula.reduce.is_some() { Place::Row } else { Place::Edge } };
                let operand = |which: usize| {
                    let values = if which == 0 { &left } else { &right };
                    let values = values.clone().expect("what a gradient needs was saved");
                    Operand { values, place: formula.places[which] }
                };
                let (term, operands) = match (formula.op, side) {
                    (Some(BinOp::Sub), 1) => (Term::Negate, vec![g]),
                    (None | Some(BinOp::Add | BinOp::Sub), _) => (Term::Copy, vec![g]),
                    (Some(BinOp::Mul), side) => (Term::Mul, vec![g, operand(1 - side)]),
                    (Some(BinOp::Div), 0) => (Term::Div, vec![g, operand(1)]),
                    (Some(BinOp::Div), _) => (Term::DivisorGradient, vec![g, operand(0), operand(1)]),
                };
                let winners = saved.winners.clone().map(|entries| (entries, Place::Row));
                Messages { term, operands, width: formula.width, scale: saved.scale.clone(), winners }
            };
            let columns = saved.columns[side];
            match formula.places[side] {
                Place::Edge => {
                    let (view, messages) = (csr.view(), messages(g.clone()));
                    let gradient = B::edge_messages(&view, csr.edge_ids(), &messages, columns, strategy);
                    grads.register::<B>(node.id, gradient);
                }
                Place::Row => accumulate::<B>(grads, node.id, g.clone(), |g, accumulate_into| {
                    let messages = messages(g);
                    let edge_map = csr.edge_ids().filter(|_| messages.name_entries()).map(EdgeIds::OfEntries);
                    B::reduce_messages(&csr.view(), edge_map, &messages, Fold::Sum, columns, strategy, accumulate_into)
                        .0
                }),
                Place::Col => accumulate::<B>(grads, node.id, g.clone(), |g, accumulate_into| {
                    let messages = messages(g).reverse();
                    let edge_map = messages.name_entries().then(|| csr.reverse_ids());
                    let view = csr.reverse_view();
                    B::reduce_messages(&view, edge_map, &messages, Fold::Sum, columns, strategy, accumulate_into).0
                }),
            }
        }
    }
}

impl<B: MessageBackend, C: CheckpointStrategy> MessageBackend for Autodiff<B, C> {
    fn reduce_messages(
        view: &View<IntTensor<Self>>,
        edge_map: Option<EdgeIds<IntTensor<Self>>>,
        messages: &Messages<FloatTensor<Self>, IntTensor<Self>>,
        fold: Fold,
        out_width: usize,
        strategy: Strategy,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> (FloatTensor<Self>, Option<IntTensor<Self>>) {
        let (messages, accumulate_into) = (inner::<B, C>(messages), accumulate_into.map(|o| o.primitive));
        let (out, entries) = B::reduce_messages(view, edge_map, &messages, fold, out_width, strategy, accumulate_into);
        (Self::from_inner(out), entries)
    }

    fn edge_messages(
        view: &View<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        messages: &Messages<FloatTensor<Self>, IntTensor<Self>>,
        out_width: usize,
        strategy: Strategy,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::edge_messages(view, edge_map, &inner::<B, C>(messages), out_width, strategy))
    }

    fn message_passing(
        csr: Csr<Self>,
        formula: Formula,
        left: FloatTensor<Self>,
        right: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let csr = csr.inner();
        let scale = inverse_degrees::<B>(&csr, &formula);
        let values = right.as_ref().map(|r| r.primitive.clone());
        let (out, winners) = forward::<B>(&csr, &formula, scale.clone(), left.primitive.clone(), values);
        // What is not there is stood in for by a constant, which gets no gradient.
        let right_node = right.as_ref().map_or_else(|| Self::from_inner(out.clone()).node, |r| r.node.clone());
        match MessagePassing.prepare::<C>([left.node.clone(), right_node]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let columns = |t: &FloatTensor<Self>| t.primitive.shape()[1];
                let widths = [columns(&left), right.as_ref().map_or(0, columns)];
                let needs = |op: BinOp, side: usize| {
                    let side = if side == 0 { Some(&left) } else { right.as_ref() };
                    formula.op == Some(op) && side.is_some_and(|t| t.is_tracked())
                };
                let keep_left = needs(BinOp::Mul, 1) || needs(BinOp::Div, 1);
                let keep_right = needs(BinOp::Mul, 0) || needs(BinOp::Div, 0) || needs(BinOp::Div, 1);
                let operands = [
                    keep_left.then(|| prep.checkpoint(&left)),
                    right.as_ref().filter(|_| keep_right).map(|r| prep.checkpoint(r)),
                ];
                prep.finish((csr, formula, Saved { operands, columns: widths, scale, winners }), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}

fn inner<B: MessageBackend, C: CheckpointStrategy>(
    messages: &Messages<FloatTensor<Autodiff<B, C>>, IntTensor<B>>,
) -> Messages<FloatTensor<B>, IntTensor<B>> {
    let operand =
        |o: &Operand<FloatTensor<Autodiff<B, C>>>| Operand { values: o.values.primitive.clone(), place: o.place };
    Messages {
        term: messages.term,
        operands: messages.operands.iter().map(operand).collect(),
        width: messages.width,
        scale: messages.scale.as_ref().map(operand),
        winners: messages.winners.clone(),
    }
}
