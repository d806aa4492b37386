//! Two results of one pass: the second is an operator behind the first, which leaves its gradient for the first.

use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{AutodiffBackend, TensorMetadata};

use super::{EdgeBackward, EdgeGradients, EdgeParts};
use crate::graph::csr::Csr;
use crate::ops::gat::{GatArgs, GatBackend, GatForward, GatScalars, GatTargets, Scores};
use crate::runtime::accumulate::take;

#[derive(Debug)]
struct AttendEdges;

/// What the backward pass starts from.
#[derive(Clone, Debug)]
struct Saved<B: GatBackend> {
    csr: Csr<B>,
    args: GatArgs,
    h_src: FloatTensor<B>,
    dst_score: Scores<FloatTensor<B>>,
    src_score: Scores<FloatTensor<B>>,
    edges: EdgeParts<FloatTensor<B>, IntTensor<B>>,
    /// The values in the order of the reverse, where they are kept.
    reversed: Option<FloatTensor<B>>,
    /// Absent when it is to be repeated.
    forward: Option<GatForward<FloatTensor<B>>>,
    /// Under which the gradient of what edges add up to is left.
    edges_g: NodeId,
}

impl<B: GatBackend> Saved<B> {
    fn run(&self, positive: bool) -> GatForward<FloatTensor<B>> {
        let (s, t) = (self.dst_score.clone(), self.src_score.clone());
        let edges = self.edges.of_rows(&self.csr);
        B::gat_forward(&self.csr.view(), self.h_src.clone(), s, t, Some(&edges), self.args, positive)
    }
}

impl<B: GatBackend> Backward<B, 5> for AttendEdges {
    type State = Saved<B>;

    fn backward(self, ops: Ops<Self::State, 5>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [h_src, dst_score, src_score, parameters, values] = ops.parents;
        let mut saved = ops.state;
        let any = saved.h_src.clone();
        // One of the two results may have been of no use.
        let g = take::<B>(grads, ops.node.id, &any).unwrap_or_else(|| {
            let shape = [saved.csr.num_rows(), any.shape()[1]];
            B::float_zeros(shape.into(), &B::float_device(&any), any.dtype().into())
        });
        let edges_g = take::<B>(grads, saved.edges_g, &any);
        let of_sums = edges_g.is_some();
        let forward = saved.forward.take().unwrap_or_else(|| saved.run(true));

        let so_far = dst_score.as_ref().and_then(|node| take::<B>(grads, node.id, &any));
        let (score, of_score) = (saved.dst_score, dst_score.is_some());
        let (arrivals, ds) = B::gat_arrivals(g.clone(), edges_g, &forward, score, of_score, so_far, saved.args);
        if let (Some(node), Some(ds)) = (dst_score, ds) {
            grads.register::<B>(node.id, ds);
        }
        if [&h_src, &src_score, &parameters, &values].iter().all(|node| node.is_none()) {
            return;
        }
        // Not before: both parts of the score may be of one matrix.
        let accumulate_score = src_score.as_ref().and_then(|node| take::<B>(grads, node.id, &any));
        let accumulate_features = h_src.as_ref().and_then(|node| take::<B>(grads, node.id, &any));
        let targets = GatTargets { features: h_src.is_some(), accumulate_features, accumulate_score };
        let scalars = GatScalars { arrivals, src_score: saved.src_score };
        let edges = saved.edges.in_reverse(&saved.csr, saved.reversed);
        let inputs = EdgeBackward { g, h_src: saved.h_src, scalars, of_sums, edges, of_values: values.is_some() };
        let found = B::gat_edges_backward(&saved.csr.reverse_view(), inputs, saved.args, targets);
        let EdgeGradients { features, score, parameters: of_parameters, values: of_values } = found;
        let found =
            [(h_src, features), (src_score, Some(score)), (parameters, Some(of_parameters)), (values, of_values)];
        for (node, gradient) in found {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}

/// Leaves its gradient for [`AttendEdges`], which runs behind it.
#[derive(Debug)]
struct SumOfEdges;

impl<B: GatBackend> Backward<B, 1> for SumOfEdges {
    /// Where.
    type State = NodeId;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        grads.register::<B>(ops.state, g);
    }
}

/// [`GatBackend::attend_edges`] of a backend that differentiates.
pub(crate) fn record<B: GatBackend, C: CheckpointStrategy>(
    csr: Csr<Autodiff<B, C>>,
    h_src: FloatTensor<Autodiff<B, C>>,
    [dst_score, src_score]: [Scores<FloatTensor<Autodiff<B, C>>>; 2],
    edges: EdgeParts<FloatTensor<Autodiff<B, C>>, IntTensor<B>>,
    reversed: Option<FloatTensor<Autodiff<B, C>>>,
    args: GatArgs,
) -> [FloatTensor<Autodiff<B, C>>; 2] {
    let mut saved = Saved::<B> {
        csr: csr.inner(),
        args,
        h_src: h_src.primitive.clone(),
        dst_score: dst_score.clone().map(|m| m.primitive),
        src_score: src_score.clone().map(|m| m.primitive),
        edges: edges.clone().map(|f| f.primitive),
        reversed: reversed.map(|values| values.primitive),
        forward: None,
        edges_g: NodeId::new(),
    };
    let scores = [&dst_score, &src_score].map(|score| &score.matrix);
    let tracked = [&h_src, scores[0], scores[1], &edges.parameters].into_iter().chain(&edges.values);
    let tracked = tracked.into_iter().any(|tensor| tensor.is_tracked());
    let forward = saved.run(tracked && !args.recompute);
    let [y, v] = forward.clone().results();
    // Values that are not there are stood in for by a constant, which gets no gradient.
    let constant = <Autodiff<B, C> as AutodiffBackend>::from_inner(y.clone());
    let values = edges.values.as_ref().unwrap_or(&constant).node.clone();
    let [s, t] = scores.map(|matrix| matrix.node.clone());
    let nodes = [h_src.node.clone(), s, t, edges.parameters.node.clone(), values];
    let edges_g = saved.edges_g;
    let y = match AttendEdges.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            saved.forward = (!args.recompute).then_some(forward);
            prep.finish(saved, y)
        }
        OpsKind::UnTracked(prep) => prep.finish(y),
    };
    let v = match SumOfEdges.prepare::<C>([y.node.clone()]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(edges_g, v),
        OpsKind::UnTracked(prep) => prep.finish(v),
    };
    [y, v]
}
