//! The layer as one operator with as many parents as its terms have.

use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::FloatTensor;

use super::backward::TermNodes;
use super::pairs::Pairs;
use super::term::{Attention, OfEdges, Source, Sum, Term};
use super::{ChunkBackend, Destinations, Layer};
use crate::graph::node_set::NodeSet;
use crate::ops::combine::Activation;
use crate::ops::spmm::{self, OwnRows};

/// Parents of an operator. More than these are joined first, so many at a time.
const PARENTS: usize = 8;

/// Stands for several parents: their gradients are registered by the layer behind it.
#[derive(Debug)]
struct Joined;

impl<B: ChunkBackend> Backward<B, PARENTS> for Joined {
    type State = ();

    fn backward(self, _: Ops<(), PARENTS>, _: &mut Gradients, _: &mut Checkpointer) {}
}

#[derive(Debug)]
struct InChunks;

#[derive(Clone, Debug)]
struct State<B: ChunkBackend> {
    layer: Layer<B>,
    /// The result, where the slope of the activation depends on it.
    out: Option<FloatTensor<B>>,
    bias: Option<NodeId>,
    terms: Vec<TermNodes>,
}

impl<B: ChunkBackend> Backward<B, PARENTS> for InChunks {
    type State = State<B>;

    fn backward(self, ops: Ops<Self::State, PARENTS>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let State { layer, out, bias, terms } = ops.state;
        layer.backward(g, out, bias, &terms, grads);
    }
}

impl<B: ChunkBackend, C: CheckpointStrategy> ChunkBackend for Autodiff<B, C> {
    fn sum_in_chunks(layer: Layer<Self>) -> FloatTensor<Self> {
        // The tensors stay until the operator is recorded: what nobody refers to is freed after a backward pass, also
        // of another thread.
        let mut parents = Parents { tracked: Vec::new() };
        let bias = layer.bias.as_ref().and_then(|bias| parents.id(bias));
        let terms: Vec<TermNodes> = layer.terms.iter().map(|term| parents.of_term(term)).collect();
        let inner = layer.inner();
        let out = inner.forward();
        // A parent without gradient stands in for those that are not there.
        let constant: FloatTensor<Self> = Self::from_inner(out.clone());
        let node = |tracked: &[FloatTensor<Self>], at: usize| tracked.get(at).unwrap_or(&constant).node.clone();
        let mut tracked = parents.tracked;
        while tracked.len() > PARENTS {
            let nodes = std::array::from_fn(|at| node(&tracked, at));
            let joined = <Joined as Backward<B, PARENTS>>::prepare::<C>(Joined, nodes);
            tracked.push(joined.compute_bound().stateless(out.clone()));
            tracked.drain(..PARENTS);
        }
        let nodes = std::array::from_fn(|at| node(&tracked, at));
        match InChunks.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let saved = (inner.activation != Activation::Identity).then(|| out.clone());
                prep.finish(State { layer: inner, out: saved, bias, terms }, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}

/// What wants a gradient, each once.
struct Parents<B: ChunkBackend, C: CheckpointStrategy> {
    tracked: Vec<FloatTensor<Autodiff<B, C>>>,
}

impl<B: ChunkBackend, C: CheckpointStrategy> Parents<B, C> {
    fn id(&mut self, tensor: &FloatTensor<Autodiff<B, C>>) -> Option<NodeId> {
        if !tensor.is_tracked() {
            return None;
        }
        if self.tracked.iter().all(|other| other.node.id != tensor.node.id) {
            self.tracked.push(tensor.clone());
        }
        Some(tensor.node.id)
    }

    fn of_term(&mut self, term: &Term<Autodiff<B, C>>) -> TermNodes {
        let weight = self.id(&term.weight);
        match &term.source {
            Source::Rows { x, .. } => TermNodes { x: self.id(x), weight, ..Default::default() },
            Source::Sum(sum) => TermNodes {
                x: self.id(&sum.x),
                weight,
                own: sum.own.as_ref().and_then(|own| self.id(&own.h)),
                edge_weight: sum.edge_weight.as_ref().and_then(|weight| self.id(weight)),
                ..Default::default()
            },
            Source::Attention(Attention { x, data: Some([x_dst, vectors]), .. }) => {
                assert!(
                    !x.is_tracked() && !x_dst.is_tracked(),
                    "Term::attend_inputs: x, x_dst: expected data, got features that need a gradient; use Term::attend"
                );
                TermNodes { weight, vectors: self.id(vectors), ..Default::default() }
            }
            Source::Pairs(Pairs { heads, x, bias, .. }) => TermNodes {
                x: self.id(x),
                weight,
                bias: bias.as_ref().and_then(|bias| self.id(bias)),
                src: self.id(&heads.src),
                parameters: self.id(&heads.parameters),
                angles: (heads.edges.cosines > 0).then_some(&heads.edges.parameters).and_then(|angles| self.id(angles)),
                values: heads.edges.values.as_ref().and_then(|values| self.id(values)),
                ..Default::default()
            },
            Source::Attention(attention) => {
                let edges = attention.edges.as_ref();
                TermNodes {
                    x: self.id(&attention.x),
                    weight,
                    dst: self.id(&attention.dst.matrix),
                    src: self.id(&attention.src.matrix),
                    edge_weight: edges.and_then(|edges| self.id(&edges.weight)),
                    parameters: edges.and_then(|edges| self.id(&edges.parts.parameters)),
                    values: edges.and_then(|edges| self.id(edges.parts.values.as_ref()?)),
                    ..Default::default()
                }
            }
        }
    }
}

impl<B: ChunkBackend, C: CheckpointStrategy> Layer<Autodiff<B, C>> {
    /// The same for passes that record nothing.
    fn inner(&self) -> Layer<B> {
        let Destinations { nodes, set } = &self.to;
        Layer {
            terms: self.terms.iter().map(Term::inner).collect(),
            bias: self.bias.as_ref().map(|bias| bias.primitive.clone()),
            scale: self.scale,
            activation: self.activation,
            to: Destinations { nodes: *nodes, set: set.clone().map(NodeSet::inner) },
            chunk_rows: self.chunk_rows,
        }
    }
}

impl<B: ChunkBackend, C: CheckpointStrategy> Term<Autodiff<B, C>> {
    fn inner(&self) -> Term<B> {
        let source = match &self.source {
            Source::Rows { x, from } => Source::Rows { x: x.primitive.clone(), from: from.clone().map(NodeSet::inner) },
            Source::Sum(Sum { csr, x, edge_weight, own, args }) => Source::Sum(Sum {
                csr: csr.clone().inner(),
                x: x.primitive.clone(),
                edge_weight: edge_weight.as_ref().map(|weight| weight.primitive.clone()),
                own: own.as_ref().map(|own| OwnRows {
                    h: own.h.primitive.clone(),
                    scale: own.scale.primitive.clone(),
                    nodes: own.nodes.clone(),
                }),
                args: spmm::inner::<B, C>(args.clone()),
            }),
            Source::Attention(Attention { csr, x, dst, src, args, data, edges }) => Source::Attention(Attention {
                csr: csr.clone().inner(),
                x: x.primitive.clone(),
                dst: dst.clone().map(|matrix| matrix.primitive),
                src: src.clone().map(|matrix| matrix.primitive),
                args: *args,
                data: data.as_ref().map(|data| data.each_ref().map(|tensor| tensor.primitive.clone())),
                edges: edges.as_ref().map(|edges| OfEdges {
                    parts: edges.parts.clone().map(|tensor| tensor.primitive),
                    reversed: edges.reversed.as_ref().map(|values| values.primitive.clone()),
                    weight: edges.weight.primitive.clone(),
                }),
            }),
            Source::Pairs(Pairs { csr, heads, x, from, bias }) => Source::Pairs(Pairs {
                csr: csr.clone().inner(),
                heads: heads.clone().map(|f| f.primitive),
                x: x.primitive.clone(),
                from: from.clone().map(NodeSet::inner),
                bias: bias.as_ref().map(|bias| bias.primitive.clone()),
            }),
        };
        Term { source, weight: self.weight.primitive.clone() }
    }
}
