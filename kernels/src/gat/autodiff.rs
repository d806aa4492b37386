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

use super::{GatArgs, GatBackend, GatForward, GatScalars};
use crate::csr::{Csr, Topology};

#[derive(Debug)]
struct Gat;

#[derive(Clone, Debug)]
struct Saved<B: GatBackend> {
    csr: Csr<B>,
    args: GatArgs,
    h_src: FloatTensor<B>,
    h_dst: FloatTensor<B>,
    attention_src: FloatTensor<B>,
    attention_dst: FloatTensor<B>,
    dst_score: FloatTensor<B>,
    src_score: FloatTensor<B>,
    /// Absent when it is to be repeated.
    forward: Option<GatForward<FloatTensor<B>>>,
}

impl<B: GatBackend> Saved<B> {
    fn repeat_forward(&self) -> GatForward<FloatTensor<B>> {
        let (h_src, scores) = (self.h_src.clone(), (self.dst_score.clone(), self.src_score.clone()));
        B::gat_forward(self.csr.topology(), h_src, scores.0, scores.1, self.args, true)
    }
}

impl<B: GatBackend> Backward<B, 4> for Gat {
    type State = Saved<B>;

    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let [h_src_node, h_dst_node, attention_src_node, attention_dst_node] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        let mut saved = ops.state;
        let heads = saved.args.heads;
        let forward = saved.forward.take().unwrap_or_else(|| saved.repeat_forward());
        let centre = B::head_dot(g.clone(), forward.out, heads);

        if h_dst_node.is_some() || attention_dst_node.is_some() {
            let (out_positive, mass_positive) =
                forward.positive.expect("the recorded forward pass saves the positive share");
            let positive = B::head_dot(g.clone(), out_positive, heads);
            let difference = B::float_sub(positive, B::float_mul(centre.clone(), mass_positive));
            let ds = B::float_mul_scalar(difference, (1.0 - saved.args.negative_slope).into());
            if let Some(node) = attention_dst_node {
                grads.register::<B>(node.id, B::head_column_sum(saved.h_dst.clone(), ds.clone()));
            }
            if let Some(node) = h_dst_node {
                grads.register::<B>(node.id, B::head_outer(ds, saved.attention_dst, saved.h_dst.dtype()));
            }
        }
        if h_src_node.is_some() || attention_src_node.is_some() {
            let scalars = GatScalars {
                dst_score: saved.dst_score,
                src_score: saved.src_score,
                log_sum_exp: forward.log_sum_exp,
                centre,
            };
            let reverse = saved.csr.reverse_topology();
            let (dh, dt) = B::gat_backward(reverse, g, saved.h_src.clone(), saved.attention_src, scalars, saved.args);
            if let Some(node) = attention_src_node {
                grads.register::<B>(node.id, B::head_column_sum(saved.h_src, dt));
            }
            if let Some(node) = h_src_node {
                grads.register::<B>(node.id, dh);
            }
        }
    }
}

impl<B: GatBackend, C: CheckpointStrategy> GatBackend for Autodiff<B, C> {
    fn gat_forward(
        topology: &Topology<IntTensor<Self>>,
        h_src: FloatTensor<Self>,
        dst_score: FloatTensor<Self>,
        src_score: FloatTensor<Self>,
        args: GatArgs,
        positive: bool,
    ) -> GatForward<FloatTensor<Self>> {
        let forward =
            B::gat_forward(topology, h_src.primitive, dst_score.primitive, src_score.primitive, args, positive);
        GatForward {
            out: Self::from_inner(forward.out),
            log_sum_exp: Self::from_inner(forward.log_sum_exp),
            positive: forward.positive.map(|(out, mass)| (Self::from_inner(out), Self::from_inner(mass))),
        }
    }

    fn gat_backward(
        reverse: &Topology<IntTensor<Self>>,
        g: FloatTensor<Self>,
        h_src: FloatTensor<Self>,
        attention_src: FloatTensor<Self>,
        scalars: GatScalars<FloatTensor<Self>>,
        args: GatArgs,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let scalars = GatScalars {
            dst_score: scalars.dst_score.primitive,
            src_score: scalars.src_score.primitive,
            log_sum_exp: scalars.log_sum_exp.primitive,
            centre: scalars.centre.primitive,
        };
        let (dh, dt) = B::gat_backward(reverse, g.primitive, h_src.primitive, attention_src.primitive, scalars, args);
        (Self::from_inner(dh), Self::from_inner(dt))
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
        match Gat.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let dst_score = B::head_dot(h_dst.primitive.clone(), attention_dst.primitive.clone(), args.heads);
                let src_score = B::head_dot(h_src.primitive.clone(), attention_src.primitive.clone(), args.heads);
                let forward = B::gat_forward(
                    csr.topology(),
                    h_src.primitive.clone(),
                    dst_score.clone(),
                    src_score.clone(),
                    args,
                    !args.recompute,
                );
                let out = forward.out.clone();
                let forward = (!args.recompute).then_some(forward);
                let saved = Saved {
                    csr,
                    args,
                    h_src: h_src.primitive,
                    h_dst: h_dst.primitive,
                    attention_src: attention_src.primitive,
                    attention_dst: attention_dst.primitive,
                    dst_score,
                    src_score,
                    forward,
                };
                prep.finish(saved, out)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::gat(
                csr,
                h_src.primitive,
                h_dst.primitive,
                attention_src.primitive,
                attention_dst.primitive,
                args,
            )),
        }
    }
}
