//! The end of a layer with the products before it: a sum of several, bias, scale and activation in one pass.
//!
//! With `s = scale dy activation'(y)`: `dx_p = s w_p^T`, `dw_p = x_p^T s`, and the bias gets the column sum of `s`.

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor, TensorMetadata, TensorPrimitive};
use burn_autodiff::Autodiff;
use burn_autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::AutodiffBackend;
use burn_backend::tensor::FloatTensor;

use super::factors::{Factors, register_factors};
use super::{LinearBackend, Products, linear};
use crate::ops::combine::{Activation, End, MAX_PARTS, combine};
use crate::runtime::check;

/// What [`combine_products`] adds up.
#[derive(Clone, Debug)]
pub enum Part<B: Backend> {
    /// `x`
    Matrix(Tensor<B, 2>),
    /// `x w`
    Product {
        /// `[n, k]`
        x: Tensor<B, 2>,
        /// `[k, m]`
        weight: Tensor<B, 2>,
    },
}

/// [`LinearBackend::combine_products`] in a pass for each product and one for their sum.
pub(super) fn one_by_one<B: LinearBackend>(
    terms: Products<B>,
    bias: Option<FloatTensor<B>>,
    scale: f32,
    activation: Activation,
) -> FloatTensor<B> {
    let products = terms.into_iter().map(|(x, w)| B::product(x, w)).collect();
    B::combine_forward(products, bias, scale, activation)
}

#[derive(Debug)]
struct SumOfProducts;

/// The bias, every `x` and every weight; a constant takes the place of those that there are not.
const PARENTS: usize = 1 + 2 * MAX_PARTS;

impl<B: LinearBackend> Backward<B, PARENTS> for SumOfProducts {
    type State = (End<B>, Vec<Factors>);

    fn backward(self, ops: Ops<Self::State, PARENTS>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let g = grads.consume::<B>(&ops.node);
        let [bias, factors @ ..] = ops.parents;
        let (end, saved) = ops.state;
        let (shared, sum) = end.shared_gradient(g, bias.is_some());
        if let (Some(node), Some(sum)) = (bias, sum) {
            grads.register::<B>(node.id, sum);
        }
        for (nodes, saved) in factors.chunks_exact(2).zip(saved) {
            let [x, weight] = [&nodes[0], &nodes[1]].map(|node| node.as_ref().map(|node| node.id));
            register_factors::<B>([x, weight], saved, shared.clone(), grads, checkpointer);
        }
    }
}

/// [`LinearBackend::combine_products`] of a backend that differentiates.
pub(super) fn record<B: LinearBackend, C: CheckpointStrategy>(
    terms: Products<Autodiff<B, C>>,
    bias: Option<FloatTensor<Autodiff<B, C>>>,
    scale: f32,
    activation: Activation,
) -> FloatTensor<Autodiff<B, C>> {
    let inner = terms.iter().map(|(x, w)| (x.primitive.clone(), w.primitive.clone())).collect();
    let out = B::combine_products(inner, bias.as_ref().map(|b| b.primitive.clone()), scale, activation);
    // A parent without gradient that stands in for those that are not there.
    let constant = || Autodiff::<B, C>::from_inner(out.clone()).node;
    // Here, too, tensors stay until the operator is recorded.
    let bias_node = bias.as_ref().map_or_else(constant, |b| b.node.clone());
    let mut factors = [bias_node].into_iter().chain(terms.iter().flat_map(|(x, w)| [x.node.clone(), w.node.clone()]));
    let nodes = [(); PARENTS].map(|()| factors.next().unwrap_or_else(constant));
    match SumOfProducts.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let saved = terms.iter().map(|(x, w)| Factors {
                x: w.is_tracked().then(|| prep.checkpoint(x)),
                weight: x.is_tracked().then(|| prep.checkpoint(w)),
                weight_dtype: w.primitive.dtype(),
            });
            let saved = saved.collect();
            prep.finish((End::of(&out, scale, activation), saved), out)
        }
        OpsKind::UnTracked(prep) => prep.finish(out),
    }
}

/// [`combine`] of matrices that are products, [`linear`] of them without a bias of their own: `y = activation(scale
/// (x_1 w_1 + ... + x_p w_p + bias))`. Where the device has tensor cores, up to four products are added up before
/// anything is written, so that nothing but the result goes to memory; else, or where a part is no product, they are
/// made first and then combined.
///
/// # Shapes
/// `parts`: at least one; matrices are `[n, m]`, of products `x` `[n, k]` and `weight` `[k, m]`, where `k` may differ.
/// Matrices and all `x` are of one dtype (f32, f16 or bf16), weights of the same or f32; `bias` `[m]`, f32; result `[n,
/// m]` in the dtype of `x`. Sums are f32.
///
/// # Gradient
/// With `s = scale dy activation'(y)`: `dx_p = s w_p^T`, `dw_p = x_p^T s`, that of the bias is the column sum of `s`.
/// Saved: `x_p` and `w_p`, each where the other needs a gradient, and the result where there is an activation.
/// Deterministic.
///
/// # Panics
/// If there is no part, or a shape or dtype does not fit.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Activation, Part, combine_products};
/// let device = Default::default();
/// let matrix = |values: [f32; 2]| Tensor::<Flex, 2>::from_data([values], &device);
/// let weight = Tensor::<Flex, 2>::from_data([[1.0], [10.0]], &device);
/// let product = |values| Part::Product { x: matrix(values), weight: weight.clone() };
/// let y = combine_products(vec![product([1.0, 2.0]), product([3.0, 0.0])], None, 0.5, Activation::Relu);
/// assert_eq!(y.into_data().to_vec::<f32>().unwrap(), [12.0]);
/// ```
pub fn combine_products<B: LinearBackend>(
    parts: Vec<Part<B>>,
    bias: Option<Tensor<B, 1>>,
    scale: f32,
    activation: Activation,
) -> Tensor<B, 2> {
    const OP: &str = "combine_products";
    let products: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Product { x, weight } => Some((x, weight)),
            Part::Matrix(_) => None,
        })
        .collect();
    if products.is_empty() || products.len() < parts.len() || products.len() > MAX_PARTS {
        let made = |part: Part<B>| match part {
            Part::Product { x, weight } => linear(x, weight, None),
            Part::Matrix(x) => x,
        };
        return combine(parts.into_iter().map(made).collect(), bias, scale, activation);
    }
    let primitive = |tensor: &Tensor<B, 2>| tensor.clone().into_primitive().tensor();
    let terms: Vec<_> = products.into_iter().map(|(x, weight)| (primitive(x), primitive(weight))).collect();
    let (first, first_weight) = &terms[0];
    check::storage::<B>(OP, "x", first);
    let (rows, width) = (check::matrix(OP, "x", first)[0], check::matrix(OP, "weight", first_weight)[1]);
    for (x, weight) in &terms {
        check::same_dtype(OP, "x", x, first);
        if weight.dtype() != DType::F32 {
            check::same_dtype(OP, "weight", weight, x);
        }
        let ([x_rows, depth], [weight_rows, weight_width]) =
            (check::matrix(OP, "x", x), check::matrix(OP, "weight", weight));
        check::size(OP, "rows of x", rows, x_rows);
        check::size(OP, "rows of weight", depth, weight_rows);
        check::size(OP, "columns of weight", width, weight_width);
    }
    let bias = bias.map(|bias| {
        let bias = bias.into_primitive().tensor();
        check::vector(OP, "bias", &bias, width);
        check::dtype(OP, "bias", &bias, DType::F32);
        B::float_reshape(bias, [1, width].into())
    });
    Tensor::from_primitive(TensorPrimitive::Float(B::combine_products(terms, bias, scale, activation)))
}
