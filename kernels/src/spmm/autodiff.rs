//! `dx = A^T-product of dy`, `dw_ij = u_i v_j <dy_i, x_j>`.

use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::{FloatTensor, IntTensor};

use super::{EdgeWeight, SpmmArgs, SpmmBackend};
use crate::csr::{Csr, Topology, View};
use crate::row_index::Groups;

#[derive(Debug)]
struct Product;

impl<B: SpmmBackend> Backward<B, 1> for Product {
    type State = (Csr<B>, SpmmArgs<FloatTensor<B>>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let (csr, args) = ops.state;
        if let [Some(x)] = ops.parents {
            grads.register::<B>(x.id, B::spmm_forward(&csr.reverse_view(), g, None, &args.reverse()));
        }
    }
}

#[derive(Debug)]
struct WeightedProduct;

impl<B: SpmmBackend> Backward<B, 2> for WeightedProduct {
    /// The checkpoint of `x` is there only when the weights need a gradient, that of the weights only when `x` does.
    type State = (Csr<B>, SpmmArgs<FloatTensor<B>>, Option<NodeId>, Option<NodeId>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [x_node, weight_node] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        let (csr, args, x, weight) = ops.state;
        if let (Some(node), Some(x)) = (weight_node, x) {
            let x = checkpointer.retrieve_node_output::<FloatTensor<B>>(x);
            grads.register::<B>(node.id, B::spmm_weight_gradient(csr.topology(), g.clone(), x, &args));
        }
        if let (Some(node), Some(weight)) = (x_node, weight) {
            let weight = checkpointer.retrieve_node_output::<FloatTensor<B>>(weight);
            let weight = EdgeWeight { weight, edge: Some(csr.reverse_edge()) };
            grads.register::<B>(node.id, B::spmm_forward(&csr.reverse_view(), g, Some(weight), &args.reverse()));
        }
    }
}

impl<B: SpmmBackend, C: CheckpointStrategy> SpmmBackend for Autodiff<B, C> {
    fn spmm_forward(
        view: &View<IntTensor<Self>>,
        x: FloatTensor<Self>,
        weight: Option<EdgeWeight<FloatTensor<Self>, IntTensor<Self>>>,
        args: &SpmmArgs<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let weight = weight.map(|w| EdgeWeight { weight: w.weight.primitive, edge: w.edge });
        Self::from_inner(B::spmm_forward(view, x.primitive, weight, &inner::<B, C>(args.clone())))
    }

    fn spmm_groups(
        groups: &Groups<IntTensor<Self>>,
        x: FloatTensor<Self>,
        weight: Option<FloatTensor<Self>>,
        num_rows: usize,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::spmm_groups(groups, x.primitive, weight.map(|w| w.primitive), num_rows))
    }

    fn spmm_weight_gradient(
        topology: &Topology<IntTensor<Self>>,
        g: FloatTensor<Self>,
        x: FloatTensor<Self>,
        args: &SpmmArgs<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::spmm_weight_gradient(topology, g.primitive, x.primitive, &inner::<B, C>(args.clone())))
    }

    fn spmm(
        csr: Csr<Self>,
        x: FloatTensor<Self>,
        weight: Option<FloatTensor<Self>>,
        args: SpmmArgs<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (csr, args) = (csr.inner(), inner::<B, C>(args));
        let Some(weight) = weight else {
            let out = B::spmm_forward(&csr.view(), x.primitive.clone(), None, &args);
            return match Product.prepare::<C>([x.node.clone()]).compute_bound().stateful() {
                OpsKind::Tracked(prep) => prep.finish((csr, args), out),
                OpsKind::UnTracked(prep) => prep.finish(out),
            };
        };
        let inner_weight = EdgeWeight { weight: weight.primitive.clone(), edge: None };
        let out = B::spmm_forward(&csr.view(), x.primitive.clone(), Some(inner_weight), &args);
        match WeightedProduct.prepare::<C>([x.node.clone(), weight.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let saved_x = weight.is_tracked().then(|| prep.checkpoint(&x));
                let saved_weight = x.is_tracked().then(|| prep.checkpoint(&weight));
                prep.finish((csr, args, saved_x, saved_weight), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}

fn inner<B: SpmmBackend, C: CheckpointStrategy>(
    args: SpmmArgs<FloatTensor<Autodiff<B, C>>>,
) -> SpmmArgs<FloatTensor<B>> {
    SpmmArgs {
        dst_scale: args.dst_scale.map(|s| s.primitive),
        src_scale: args.src_scale.map(|s| s.primitive),
        drop_edge: args.drop_edge,
        chunk_rows: args.chunk_rows,
    }
}
