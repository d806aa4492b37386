//! `dx = dy w^T`, `dw = x^T dy` in batches of rows.

use burn::tensor::{DType, Shape, Slice};
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_autodiff::{Autodiff, NodeId};
use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, TensorMetadata};

use super::LinearBackend;

/// Batches of the weight gradient: enough independent products for every multiprocessor of a large GPU.
const BATCHES: usize = 512;
/// Below this many rows per batch the plain product is as fast.
const MIN_ROWS_PER_BATCH: usize = 64;

#[derive(Debug)]
struct Linear;

impl<B: LinearBackend> Backward<B, 3> for Linear {
    /// Each of `x` and the weight is kept only for the gradient of the other.
    type State = (Option<NodeId>, Option<NodeId>);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [x_node, weight_node, bias_node] = ops.parents;
        let g = grads.consume::<B>(&ops.node);
        let (x, weight) = ops.state;
        if let Some(node) = bias_node {
            grads.register::<B>(node.id, bias_gradient::<B>(g.clone()));
        }
        if let (Some(node), Some(x)) = (weight_node, x) {
            let x = checkpointer.retrieve_node_output::<FloatTensor<B>>(x);
            grads.register::<B>(node.id, weight_gradient::<B>(x, g.clone()));
        }
        if let (Some(node), Some(weight)) = (x_node, weight) {
            let weight = checkpointer.retrieve_node_output::<FloatTensor<B>>(weight);
            grads.register::<B>(node.id, B::product(g, B::float_transpose(weight)));
        }
    }
}

/// The column sum, in f32 and a fixed order; Burn's own sums a tall matrix with one thread per column on GPUs.
fn bias_gradient<B: LinearBackend>(g: FloatTensor<B>) -> FloatTensor<B> {
    let (rows, dtype) = (g.shape()[0], g.dtype());
    let ones = B::float_ones(Shape::new([rows, 1]), &B::float_device(&g), DType::F32.into());
    let sum = B::head_column_sum(g, ones);
    if dtype == DType::F32 { sum } else { B::float_cast(sum, dtype.into()) }
}

fn weight_gradient<B: LinearBackend>(x: FloatTensor<B>, g: FloatTensor<B>) -> FloatTensor<B> {
    let ([n, k], [_, m]) = ([x.shape()[0], x.shape()[1]], [g.shape()[0], g.shape()[1]]);
    let per_batch = n / BATCHES;
    if per_batch < MIN_ROWS_PER_BATCH {
        return B::product(B::float_transpose(x), g);
    }
    let main = per_batch * BATCHES;
    let rows = |t: &FloatTensor<B>, from: usize, to: usize, width: usize| {
        B::float_slice(t.clone(), &[Slice::from(from..to), Slice::from(0..width)])
    };
    let batched =
        |t: &FloatTensor<B>, width| B::float_reshape(rows(t, 0, main, width), Shape::new([BATCHES, per_batch, width]));
    let partial = B::product(B::float_swap_dims(batched(&x, k), 1, 2), batched(&g, m));
    // Hundreds of partial products: add them in f32 whatever the storage.
    let dtype = partial.dtype();
    let partial = if dtype == DType::F32 { partial } else { B::float_cast(partial, DType::F32.into()) };
    let sum = B::float_reshape(B::float_sum_dim(partial, 0), Shape::new([k, m]));
    let sum = if dtype == DType::F32 { sum } else { B::float_cast(sum, dtype.into()) };
    if main == n {
        return sum;
    }
    let rest = B::product(B::float_transpose(rows(&x, main, n, k)), rows(&g, main, n, m));
    B::float_add(sum, rest)
}

impl<B: LinearBackend, C: CheckpointStrategy> LinearBackend for Autodiff<B, C> {
    fn project(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        let out = B::project(x.primitive.clone(), weight.primitive.clone(), bias.as_ref().map(|b| b.primitive.clone()));
        // Without a bias its place is taken by a constant, which gets no gradient.
        let bias = bias.unwrap_or_else(|| Self::from_inner(out.clone()));
        match Linear.prepare::<C>([x.node.clone(), weight.node.clone(), bias.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let saved_x = weight.is_tracked().then(|| prep.checkpoint(&x));
                let saved_weight = x.is_tracked().then(|| prep.checkpoint(&weight));
                prep.finish((saved_x, saved_weight), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}
