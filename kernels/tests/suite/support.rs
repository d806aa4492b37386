//! Tensors from and to the host, and what several subjects share.

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor, TensorData};
use graphsieve_kernels::testing::{Dtype, Fixture, Spans, oracle, probe};
use graphsieve_kernels::{Csr, DropEdge, Dropout, GraphBackend, ScoreColumns};

pub type Ad<B> = Autodiff<B>;

pub fn burn_dtype(dtype: Dtype) -> DType {
    match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::Bf16 => DType::BF16,
    }
}

/// Uploads f64 values in a storage type.
pub fn up<B: GraphBackend, const D: usize>(
    values: &[f64],
    shape: [usize; D],
    dtype: Dtype,
    device: &B::Device,
) -> Tensor<B, D> {
    if values.is_empty() {
        // CUDA neither takes nor casts nothing.
        return Tensor::empty(shape, (device, burn_dtype(dtype)));
    }
    let data = TensorData::new(values.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape);
    let tensor = Tensor::<B, D>::from_data(data, (device, DType::F32));
    if dtype == Dtype::F32 { tensor } else { tensor.cast(burn_dtype(dtype)) }
}

/// Zeros, or nothing.
pub fn zeros<B: GraphBackend, const D: usize>(shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
    up(&vec![0.0; shape.iter().product()], shape, Dtype::F32, device)
}

pub fn down<B: GraphBackend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    // A buffer of no bytes comes back without the alignment of a float.
    if tensor.dims().contains(&0) {
        return Vec::new();
    }
    tensor.into_data().convert::<f32>().into_vec().expect("f32 after convert")
}

pub fn csr_of<B: GraphBackend>(f: &Fixture, device: &B::Device) -> Csr<B> {
    match &f.spans {
        Some(Spans { start, end, entries }) => Csr::from_spans(start, end, entries, f.num_cols, device),
        None => Csr::from_host(&f.row_ptr, &f.col_idx, f.num_cols, device),
    }
    .expect("fixtures are valid")
}

/// A mask of the fixture and the same mask as the operators take it.
pub fn half_dropped(f: &Fixture) -> (DropEdge, Vec<bool>) {
    let drop = DropEdge::new(0.5, 9, 4, 1, 2).expect("a rate above zero").with_bases(1_000, 70_000);
    let (key0, key1, threshold) = drop.key();
    (drop, oracle::Drop { key0, key1, threshold }.mask(f, 1_000, 70_000))
}

/// Dropout of attention, as the operators and as the oracle take it.
pub fn half_weightless() -> (Dropout, oracle::Drop) {
    let dropout = Dropout::new(0.4, 9, 4, 1, 2).expect("a rate above zero");
    let (key0, key1, threshold) = dropout.key();
    (dropout, oracle::Drop { key0, key1, threshold })
}

/// `backward` of `sum(out * probe)`, as the oracle's gradients expect.
pub fn backward<B: GraphBackend, const D: usize>(
    out: Tensor<Ad<B>, D>,
    dtype: Dtype,
) -> <Ad<B> as burn::tensor::backend::AutodiffBackend>::Gradients {
    probed::<B, D>(out, dtype).backward()
}

/// `sum(out * probe)`.
pub fn probed<B: GraphBackend, const D: usize>(out: Tensor<Ad<B>, D>, dtype: Dtype) -> Tensor<Ad<B>, 1> {
    let shape = out.dims();
    let device = out.device();
    let weights = up::<B, D>(&probe(shape.iter().product()), shape, dtype, &device);
    (out * Tensor::from_inner(weights)).sum()
}

pub fn gradient<B: GraphBackend, const D: usize>(
    of: &Tensor<Ad<B>, D>,
    grads: &<Ad<B> as burn::tensor::backend::AutodiffBackend>::Gradients,
) -> Vec<f32> {
    down::<B, D>(of.grad(grads).expect("every input that requires a gradient gets one"))
}

pub fn longest(f: &Fixture) -> (usize, usize) {
    (f.max_degree(), f.reverse().0.max_degree())
}

/// Every second node, every third, none and all.
pub fn node_lists(nodes: usize) -> [Vec<u32>; 4] {
    let every = |step: usize| (0..nodes as u32).step_by(step).collect();
    [every(2), every(3), Vec::new(), every(1)]
}

pub fn columns<B: GraphBackend>(scores: &Tensor<B, 2>, first: usize) -> ScoreColumns<B> {
    ScoreColumns { scores: scores.clone(), first }
}

/// What somebody makes of a matrix.
pub type Use<'a, B, const D: usize> = &'a dyn Fn(Tensor<Ad<B>, 2>) -> Tensor<Ad<B>, D>;

/// Every order of `0..n`.
pub fn orders(n: usize) -> Vec<Vec<usize>> {
    let Some(last) = n.checked_sub(1) else { return vec![Vec::new()] };
    let with_last = |order: Vec<usize>| {
        (0..n).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(with_last).collect()
}

/// Orders of `0..n`.
pub type Orders = fn(usize) -> Vec<Vec<usize>>;

/// Orders of `0..n` in which each is the first once and the last once: where all orders are checked with another type.
pub fn turns(n: usize) -> Vec<Vec<usize>> {
    (0..n).map(|first| (0..n).map(|k| (first + k) % n).collect()).collect()
}
