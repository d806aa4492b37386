//! `dx_i = sum of dy_p over index_p = i`.

use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::{FloatTensor, IntTensor};

use super::GatherBackend;
use crate::graph::row_index::RowIndex;
use crate::runtime::accumulate::accumulate;

#[derive(Debug)]
struct Gather;

impl<B: GatherBackend> Backward<B, 1> for Gather {
    type State = RowIndex<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        if let [Some(x)] = ops.parents {
            let parts = &ops.state.parts;
            accumulate::<B>(grads, x.id, g, |g, accumulate_into| {
                B::spmm_groups(&parts.groups, g, None, parts.num_rows, accumulate_into)
            });
        }
    }
}

impl<B: GatherBackend, C: CheckpointStrategy> GatherBackend for Autodiff<B, C> {
    fn gather_forward(x: FloatTensor<Self>, index: &IntTensor<Self>, len: usize) -> FloatTensor<Self> {
        Self::from_inner(B::gather_forward(x.primitive, index, len))
    }

    fn gather_rows(x: FloatTensor<Self>, index: RowIndex<Self>) -> FloatTensor<Self> {
        let index = index.inner();
        let out = B::gather_rows(x.primitive.clone(), index.clone());
        match Gather.prepare::<C>([x.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(index, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
