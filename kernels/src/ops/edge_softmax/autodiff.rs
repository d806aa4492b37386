//! `de_ij = a_ij (da_ij - sum_k a_ik da_ik)`.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::{FloatTensor, IntTensor};

use super::{EdgeSoftmaxBackend, End};
use crate::graph::csr::{Csr, Topology};

#[derive(Debug)]
struct EdgeSoftmax;

impl<B: EdgeSoftmaxBackend> Backward<B, 1> for EdgeSoftmax {
    /// The softmax itself; the logits are not needed.
    type State = (Csr<B>, End, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let (csr, by, softmax) = ops.state;
        if let [Some(logits)] = ops.parents {
            let (csr, edge_map) = by.rows_of(&csr);
            grads.register::<B>(logits.id, B::edge_softmax_backward(csr.topology(), edge_map, softmax, g));
        }
    }
}

impl<B: EdgeSoftmaxBackend, C: CheckpointStrategy> EdgeSoftmaxBackend for Autodiff<B, C> {
    fn edge_softmax_forward(
        topology: &Topology<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        logits: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::edge_softmax_forward(topology, edge_map, logits.primitive))
    }

    fn edge_softmax_backward(
        topology: &Topology<IntTensor<Self>>,
        edge_map: Option<IntTensor<Self>>,
        softmax: FloatTensor<Self>,
        g: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        Self::from_inner(B::edge_softmax_backward(topology, edge_map, softmax.primitive, g.primitive))
    }

    fn edge_softmax(csr: Csr<Self>, by: End, logits: FloatTensor<Self>) -> FloatTensor<Self> {
        let csr = csr.inner();
        let out = B::edge_softmax(csr.clone(), by, logits.primitive.clone());
        match EdgeSoftmax.prepare::<C>([logits.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((csr, by, out.clone()), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
