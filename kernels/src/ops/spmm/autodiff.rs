//! `dx = A^T-product of dy`, `dw_ij = u_i v_j <dy_i, x_j>`, `dh_i = s_i dy_i`.

use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::{FloatTensor, IntTensor};

use super::{EdgeWeight, OwnRows, SpmmArgs, SpmmBackend, weight_gradient};
use crate::graph::csr::{Csr, Topology, View};
use crate::graph::row_index::Groups;
use crate::ops::select::Side;
use crate::runtime::accumulate::accumulate;

#[derive(Debug)]
struct Product;

/// What the gradient of a self term needs: the nodes of its rows and the factors.
type OwnState<B> = Option<(Side<IntTensor<B>>, FloatTensor<B>)>;

impl<B: SpmmBackend> Backward<B, 3> for Product {
    /// The checkpoint of `x` is there only when the weights need a gradient, that of the weights only when `x` does.
    type State = (Csr<B>, SpmmArgs<FloatTensor<B>>, Option<NodeId>, Option<NodeId>, OwnState<B>);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [x_node, weight_node, own_node] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        let (csr, args, x, weight, own) = ops.state;
        if let (Some(node), Some(x)) = (weight_node, x) {
            let x = checkpointer.retrieve_node_output::<FloatTensor<B>>(x);
            grads.register::<B>(node.id, weight_gradient::<B>(&csr, g.clone(), x, &args));
        }
        if let Some(node) = x_node {
            let weight = weight.map(|weight| checkpointer.retrieve_node_output::<FloatTensor<B>>(weight));
            let weight = weight.map(|weight| EdgeWeight::of_reverse(weight, &csr));
            accumulate::<B>(grads, node.id, g.clone(), |g, accumulate_into| {
                B::spmm_forward(&csr.reverse_view(), g, weight, None, &args.reverse(), accumulate_into)
            });
        }
        // Behind the product, which writes every row: where both are of one matrix, this adds to few of them.
        if let (Some(node), Some((nodes, scale))) = (own_node, own) {
            accumulate::<B>(grads, node.id, g, |g, accumulate_into| {
                B::select_forward(g, &csr.view().rows, &nodes, Some(scale), accumulate_into)
            });
        }
    }
}

impl<B: SpmmBackend, C: CheckpointStrategy> SpmmBackend for Autodiff<B, C> {
    fn spmm_forward(
        view: &View<IntTensor<Self>>,
        x: FloatTensor<Self>,
        weight: Option<EdgeWeight<FloatTensor<Self>, IntTensor<Self>>>,
        own: Option<OwnRows<FloatTensor<Self>, IntTensor<Self>>>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let weight = weight.map(|w| EdgeWeight { weight: w.weight.primitive, edge: w.edge });
        let own = own.map(|o| OwnRows { h: o.h.primitive, scale: o.scale.primitive, nodes: o.nodes });
        let (args, accumulate_into) = (inner::<B, C>(args.clone()), accumulate_into.map(|o| o.primitive));
        Self::from_inner(B::spmm_forward(view, x.primitive, weight, own, &args, accumulate_into))
    }

    fn spmm_groups(
        groups: &Groups<IntTensor<Self>>,
        x: FloatTensor<Self>,
        weight: Option<FloatTensor<Self>>,
        num_rows: usize,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (weight, accumulate_into) = (weight.map(|w| w.primitive), accumulate_into.map(|o| o.primitive));
        Self::from_inner(B::spmm_groups(groups, x.primitive, weight, num_rows, accumulate_into))
    }

    fn spmm_weight_gradient(
        view: &View<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (args, accumulate_into) = (inner::<B, C>(args.clone()), accumulate_into.map(|o| o.primitive));
        let (g, x) = (g.primitive, x.primitive);
        Self::from_inner(B::spmm_weight_gradient(view, edge_map, g, x, &args, accumulate_into))
    }

    fn spmm_shared_weight_gradient(
        view: &View<IntTensor<Self>>,
        sharers: &Topology<IntTensor<Self>>,
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        args: &SpmmArgs<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (args, accumulate_into) = (inner::<B, C>(args.clone()), accumulate_into.map(|o| o.primitive));
        let (g, x) = (g.primitive, x.primitive);
        Self::from_inner(B::spmm_shared_weight_gradient(view, sharers, g, x, &args, accumulate_into))
    }

    fn spmm(
        csr: Csr<Self>,
        x: FloatTensor<Self>,
        weight: Option<FloatTensor<Self>>,
        own: Option<OwnRows<FloatTensor<Self>, IntTensor<Self>>>,
        args: SpmmArgs<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (csr, args) = (csr.inner(), inner::<B, C>(args));
        let inner_weight = weight.as_ref().map(|w| EdgeWeight::of_rows(w.primitive.clone(), &csr));
        let inner_own = own.as_ref().map(|o| OwnRows {
            h: o.h.primitive.clone(),
            scale: o.scale.primitive.clone(),
            nodes: o.nodes.clone(),
        });
        let out = B::spmm_forward(&csr.view(), x.primitive.clone(), inner_weight, inner_own, &args, None);
        // What is not there is stood in for by a constant, which gets no gradient.
        let constant = || Self::from_inner(out.clone()).node;
        let weight_node = weight.as_ref().map_or_else(constant, |w| w.node.clone());
        let own_node = own.as_ref().map_or_else(constant, |o| o.h.node.clone());
        match Product.prepare::<C>([x.node.clone(), weight_node, own_node]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let saved_x = weight.as_ref().filter(|w| w.is_tracked()).map(|_| prep.checkpoint(&x));
                let saved_weight = weight.as_ref().filter(|_| x.is_tracked()).map(|w| prep.checkpoint(w));
                let own = own.map(|o| (o.nodes, o.scale.primitive));
                prep.finish((csr, args, saved_x, saved_weight, own), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}

pub(crate) fn inner<B: SpmmBackend, C: CheckpointStrategy>(
    args: SpmmArgs<FloatTensor<Autodiff<B, C>>>,
) -> SpmmArgs<FloatTensor<B>> {
    SpmmArgs {
        dst_scale: args.dst_scale.map(|s| s.primitive),
        src_scale: args.src_scale.map(|s| s.primitive),
        drop_edge: args.drop_edge,
    }
}
