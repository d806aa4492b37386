//! Per head, with `c_i = <g_i, y_i>`:
//! `ds_i = sum_j dz_ij = (1 - slope) (<g_i, y+_i> - c_i A+_i)`, `dt_j = sum_i dz_ij`,
//! `dh_src_j = sum_i a_ij g_i + dt_j attention_src`, `dh_dst_i = ds_i attention_dst`,
//! `dattention_src = sum_j dt_j h_src_j`, `dattention_dst = sum_i ds_i h_dst_i`.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_backend::{AutodiffBackend, TensorMetadata};

use super::edges::{self, EdgeBackward, EdgeGradients, EdgeParts};
use super::inputs::{self, Inputs};
use super::{GatArgs, GatBackend, GatForward, GatScalars, GatTargets, Scores};
use crate::graph::csr::{Csr, View};
use crate::runtime::accumulate::{accumulate, take};

#[derive(Debug)]
struct Gat;

/// What both backward passes start from.
#[derive(Clone, Debug)]
struct Saved<B: GatBackend> {
    csr: Csr<B>,
    args: GatArgs,
    h_src: FloatTensor<B>,
    dst_score: Scores<FloatTensor<B>>,
    src_score: Scores<FloatTensor<B>>,
    /// Absent when it is to be repeated.
    forward: Option<GatForward<FloatTensor<B>>>,
}

impl<B: GatBackend> Saved<B> {
    /// Runs the forward pass; the second value is its result.
    fn forward(
        csr: Csr<B>,
        args: GatArgs,
        h_src: FloatTensor<B>,
        dst_score: Scores<FloatTensor<B>>,
        src_score: Scores<FloatTensor<B>>,
    ) -> (Self, FloatTensor<B>) {
        let (s, t) = (dst_score.clone(), src_score.clone());
        let forward = B::gat_forward(&csr.view(), h_src.clone(), s, t, None, args, !args.recompute);
        let out = forward.out.clone();
        let forward = (!args.recompute).then_some(forward);
        (Self { csr, args, h_src, dst_score, src_score, forward }, out)
    }

    /// What the gradient `g` of the result means for the destination's score, where asked for: added to the gradient so
    /// far. The second value goes on to [`Reverse::run`].
    fn arrivals(
        mut self,
        g: FloatTensor<B>,
        of_dst_score: bool,
        accumulate_into: Option<FloatTensor<B>>,
    ) -> (Option<FloatTensor<B>>, Reverse<B>) {
        let args = self.args;
        let forward = self.forward.take().unwrap_or_else(|| {
            let (s, t) = (self.dst_score.clone(), self.src_score.clone());
            B::gat_forward(&self.csr.view(), self.h_src.clone(), s, t, None, args, true)
        });
        let (arrivals, ds) = B::gat_arrivals(g, None, &forward, self.dst_score, of_dst_score, accumulate_into, args);
        let scalars = GatScalars { arrivals, src_score: self.src_score };
        (ds, Reverse { csr: self.csr, args, h_src: self.h_src, scalars })
    }
}

/// What the reverse pass starts from.
struct Reverse<B: GatBackend> {
    csr: Csr<B>,
    args: GatArgs,
    h_src: FloatTensor<B>,
    scalars: GatScalars<FloatTensor<B>>,
}

impl<B: GatBackend> Reverse<B> {
    /// The gradients of the features, where asked for, and of the source's score. With `attention_src` the first
    /// includes the path through the source's score.
    fn run(
        self,
        g: FloatTensor<B>,
        attention_src: Option<FloatTensor<B>>,
        targets: GatTargets<FloatTensor<B>>,
    ) -> (Option<FloatTensor<B>>, FloatTensor<B>) {
        let reverse = self.csr.reverse_view();
        B::gat_backward(&reverse, g, self.h_src, attention_src, self.scalars, self.args, targets)
    }
}

impl<B: GatBackend> Backward<B, 4> for Gat {
    /// Beside what is common: destination features and both attention vectors.
    type State = (Saved<B>, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [h_src_node, h_dst_node, attention_src_node, attention_dst_node] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        let (saved, h_dst, attention_src, attention_dst) = ops.state;
        let h_src = saved.h_src.clone();
        let (ds, reverse) = saved.arrivals(g.clone(), h_dst_node.is_some() || attention_dst_node.is_some(), None);
        if let (Some(node), Some(ds)) = (attention_dst_node, &ds) {
            grads.register::<B>(node.id, B::head_column_sum(h_dst.clone(), Some(ds.clone())));
        }
        // Before the sources, of which few may have kept edges: where both are of one matrix, this writes every row.
        if let (Some(node), Some(ds)) = (h_dst_node, ds) {
            accumulate::<B>(grads, node.id, ds, |ds, accumulate_into| {
                B::head_outer(ds, attention_dst, h_dst.dtype(), accumulate_into)
            });
        }
        if h_src_node.is_none() && attention_src_node.is_none() {
            return;
        }
        let accumulate_features = h_src_node.as_ref().and_then(|node| take::<B>(grads, node.id, &g));
        let targets = GatTargets { features: h_src_node.is_some(), accumulate_features, accumulate_score: None };
        let (dh, dt) = reverse.run(g, Some(attention_src), targets);
        if let Some(node) = attention_src_node {
            grads.register::<B>(node.id, B::head_column_sum(h_src, Some(dt)));
        }
        if let (Some(node), Some(dh)) = (h_src_node, dh) {
            grads.register::<B>(node.id, dh);
        }
    }
}

#[derive(Debug)]
struct Attend;

impl<B: GatBackend> Backward<B, 3> for Attend {
    type State = Saved<B>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [h_src, dst_score, src_score] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        let accumulate_into = dst_score.as_ref().and_then(|node| take::<B>(grads, node.id, &g));
        let (ds, reverse) = ops.state.arrivals(g.clone(), dst_score.is_some(), accumulate_into);
        if let (Some(node), Some(ds)) = (dst_score, ds) {
            grads.register::<B>(node.id, ds);
        }
        if h_src.is_none() && src_score.is_none() {
            return;
        }
        // Not before: both parts of the score may be of one matrix.
        let accumulate_score = src_score.as_ref().and_then(|node| take::<B>(grads, node.id, &g));
        let accumulate_features = h_src.as_ref().and_then(|node| take::<B>(grads, node.id, &g));
        let targets = GatTargets { features: h_src.is_some(), accumulate_features, accumulate_score };
        let (dh, dt) = reverse.run(g, None, targets);
        if let (Some(node), Some(dh)) = (h_src, dh) {
            grads.register::<B>(node.id, dh);
        }
        if let Some(node) = src_score {
            grads.register::<B>(node.id, dt);
        }
    }
}

impl<B: GatBackend, C: CheckpointStrategy> GatBackend for Autodiff<B, C> {
    fn gat_forward(
        view: &View<IntTensor<Self>>,
        h_src: FloatTensor<Self>,
        dst_score: Scores<FloatTensor<Self>>,
        src_score: Scores<FloatTensor<Self>>,
        edges: Option<&EdgeParts<FloatTensor<Self>, IntTensor<Self>>>,
        args: GatArgs,
        positive: bool,
    ) -> GatForward<FloatTensor<Self>> {
        let (s, t) = (dst_score.map(|m| m.primitive), src_score.map(|m| m.primitive));
        let edges = edges.map(|edges| edges.clone().map(|f| f.primitive));
        let forward = B::gat_forward(view, h_src.primitive, s, t, edges.as_ref(), args, positive);
        forward.map(Self::from_inner)
    }

    fn gat_arrivals(
        g: FloatTensor<Self>,
        edges_g: Option<FloatTensor<Self>>,
        forward: &GatForward<FloatTensor<Self>>,
        dst_score: Scores<FloatTensor<Self>>,
        of_score: bool,
        accumulate_into: Option<FloatTensor<Self>>,
        args: GatArgs,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        let forward = forward.clone().map(|f| f.primitive);
        let [edges_g, accumulate_into] = [edges_g, accumulate_into].map(|of| of.map(|of| of.primitive));
        let score = dst_score.map(|m| m.primitive);
        let (arrivals, ds) = B::gat_arrivals(g.primitive, edges_g, &forward, score, of_score, accumulate_into, args);
        (Self::from_inner(arrivals), ds.map(Self::from_inner))
    }

    fn gat_backward(
        reverse: &View<IntTensor<Self>>,
        g: FloatTensor<Self>,
        h_src: FloatTensor<Self>,
        attention_src: Option<FloatTensor<Self>>,
        scalars: GatScalars<FloatTensor<Self>>,
        args: GatArgs,
        targets: GatTargets<FloatTensor<Self>>,
    ) -> (Option<FloatTensor<Self>>, FloatTensor<Self>) {
        let (scalars, targets) = (scalars.map(|f| f.primitive), targets.map(|f| f.primitive));
        let attention_src = attention_src.map(|a| a.primitive);
        let (g, h_src) = (g.primitive, h_src.primitive);
        let (dh, dt) = B::gat_backward(reverse, g, h_src, attention_src, scalars, args, targets);
        (dh.map(Self::from_inner), Self::from_inner(dt))
    }

    fn gat_edges_backward(
        reverse: &View<IntTensor<Self>>,
        inputs: EdgeBackward<FloatTensor<Self>, IntTensor<Self>>,
        args: GatArgs,
        targets: GatTargets<FloatTensor<Self>>,
    ) -> EdgeGradients<FloatTensor<Self>> {
        let (inputs, targets) = (inputs.map(|f| f.primitive), targets.map(|f| f.primitive));
        B::gat_edges_backward(reverse, inputs, args, targets).map(Self::from_inner)
    }

    fn attention_vector_gradient(
        view: &View<IntTensor<Self>>,
        g: FloatTensor<Self>,
        inputs: Inputs<FloatTensor<Self>>,
        forward: GatForward<FloatTensor<Self>>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        let (inputs, forward) = (inputs.map(|f| f.primitive), forward.map(|f| f.primitive));
        Self::from_inner(B::attention_vector_gradient(view, g.primitive, inputs, forward, args))
    }

    fn attend_inputs(
        csr: Csr<Self>,
        inputs: Inputs<FloatTensor<Self>>,
        vectors: FloatTensor<Self>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        inputs::record(csr, inputs, vectors, args)
    }

    fn attend(
        csr: Csr<Self>,
        h_src: FloatTensor<Self>,
        dst_score: Scores<FloatTensor<Self>>,
        src_score: Scores<FloatTensor<Self>>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        let csr = csr.inner();
        let nodes = [h_src.node.clone(), dst_score.matrix.node.clone(), src_score.matrix.node.clone()];
        // Copies: tensors that are gone before the operator is recorded can lose their gradient to another thread's
        // pass.
        let [s, t] = [&dst_score, &src_score].map(|score| score.clone().map(|m| m.primitive));
        let h_src = h_src.primitive;
        match Attend.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (saved, out) = Saved::forward(csr, args, h_src, s, t);
                prep.finish(saved, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::attend(csr, h_src, s, t, args)),
        }
    }

    fn attend_edges(
        csr: Csr<Self>,
        h_src: FloatTensor<Self>,
        dst_score: Scores<FloatTensor<Self>>,
        src_score: Scores<FloatTensor<Self>>,
        edges: EdgeParts<FloatTensor<Self>, IntTensor<Self>>,
        reversed: Option<FloatTensor<Self>>,
        args: GatArgs,
    ) -> [FloatTensor<Self>; 2] {
        edges::record::<B, C>(csr, h_src, [dst_score, src_score], edges, reversed, args)
    }

    fn gat(
        csr: Csr<Self>,
        h_src: FloatTensor<Self>,
        h_dst: FloatTensor<Self>,
        attention_src: FloatTensor<Self>,
        attention_dst: FloatTensor<Self>,
        args: GatArgs,
    ) -> FloatTensor<Self> {
        let csr = csr.inner();
        let nodes = [h_src.node.clone(), h_dst.node.clone(), attention_src.node.clone(), attention_dst.node.clone()];
        let (h_src, h_dst) = (h_src.primitive, h_dst.primitive);
        let (attention_src, attention_dst) = (attention_src.primitive, attention_dst.primitive);
        match Gat.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let dst_score = Scores::of(B::head_dot(h_dst.clone(), attention_dst.clone(), args.heads));
                let src_score = Scores::of(B::head_dot(h_src.clone(), attention_src.clone(), args.heads));
                let (saved, out) = Saved::forward(csr, args, h_src, dst_score, src_score);
                prep.finish((saved, h_dst, attention_src, attention_dst), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::gat(csr, h_src, h_dst, attention_src, attention_dst, args)),
        }
    }
}
