//! Slices in and out of CPU tensors, and the two inner loops of every CPU operator.

use burn::tensor::{Bytes, DType, Element, Shape};
use burn_backend::TensorMetadata;
use burn_flex::{FlexTensor, Layout};
use bytemuck::Pod;
use half::{bf16, f16};
use rayon::prelude::*;

use crate::runtime::rows::{Row, in_blocks, zeroed};

/// Rows handled by one rayon task: enough to hide the scheduling, few enough to balance skewed degrees.
pub(crate) const ROWS_PER_TASK: usize = 32;

/// Values below which a thread keeps its work: waking another one takes as long as some ten thousand of them.
const VALUES_PER_THREAD: usize = 1 << 14;

/// Items of so many values that a thread takes at least.
pub(crate) fn at_least(values: usize) -> usize {
    (VALUES_PER_THREAD / values.max(1)).max(1)
}

/// The matrix that `make` writes by task: the number of the task and its rows, [`ROWS_PER_TASK`] of them at most, are
/// what it gets. Where `accumulate_into` is given, it finds those there, else zeros; it reads so many values for a row.
pub(crate) fn by_task<E: Storage>(
    accumulate_into: Option<FlexTensor>,
    [rows, columns]: [usize; 2],
    read: usize,
    make: &(dyn Fn(usize, &mut [E]) + Sync),
) -> FlexTensor {
    let (block, fewest) = ((ROWS_PER_TASK * columns).max(1), at_least(ROWS_PER_TASK * read));
    if accumulate_into.is_none() {
        let (values, _) = in_blocks(rows * columns, block, fewest, make);
        return tensor(values, [rows, columns]);
    }
    let mut out = target::<E>(accumulate_into, [rows, columns]);
    let blocks = slice_mut::<E>(&mut out).par_chunks_mut(block).with_min_len(fewest).enumerate();
    blocks.for_each(|(task, block)| make(task, block));
    out
}

/// A storage type of features; arithmetic is always f32.
pub(crate) trait Storage: Row + Element + Pod + Default {
    /// The row as f32: itself, or widened into `scratch`.
    fn row<'a>(row: &'a [Self], scratch: &'a mut [f32]) -> &'a [f32] {
        Self::widen(row, scratch);
        scratch
    }
}

impl Storage for f32 {
    fn row<'a>(row: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        row
    }
}

impl Storage for f16 {}

impl Storage for bf16 {}

/// Runs `$body` with `$E` bound to the storage type of `$dtype`.
macro_rules! with_storage {
    ($dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            burn::tensor::DType::F32 => {
                type $E = f32;
                $body
            }
            burn::tensor::DType::F16 => {
                type $E = half::f16;
                $body
            }
            burn::tensor::DType::BF16 => {
                type $E = half::bf16;
                $body
            }
            other => panic!("expected f32, f16 or bf16, got {other:?}"),
        }
    };
}
pub(crate) use with_storage;

/// A tensor over `values`, without a copy.
pub(crate) fn tensor<E: Storage>(values: Vec<E>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape.into()), E::dtype())
}

/// Where an operator puts its rows: `accumulate_into` itself where nobody else holds it, else a copy of it; without
/// `accumulate_into` zeros.
///
/// # Panics
/// If `accumulate_into` has another shape or dtype.
pub(crate) fn target<E: Storage>(accumulate_into: Option<FlexTensor>, shape: [usize; 2]) -> FlexTensor {
    let Some(accumulate_into) = accumulate_into else { return tensor(zeroed::<E>(shape[0] * shape[1]), shape) };
    assert!(
        accumulate_into.dtype() == E::dtype() && accumulate_into.layout().shape() == &Shape::new(shape),
        "accumulate_into: expected {shape:?} in {:?}, got {accumulate_into:?}",
        E::dtype()
    );
    accumulate_into.to_contiguous()
}

/// The elements of a [`target`]; copies them first where somebody else holds them.
pub(crate) fn slice_mut<E: Storage>(target: &mut FlexTensor) -> &mut [E] {
    target.storage_mut::<E>()
}

/// The elements of a contiguous tensor.
pub(crate) fn slice<E: Storage>(tensor: &FlexTensor) -> &[E] {
    tensor.as_slice::<E>().expect("the caller made the tensor contiguous and matched its dtype")
}

/// The ids of an i32 tensor of ours.
pub(crate) fn ids(tensor: &FlexTensor) -> &[i32] {
    tensor.as_slice::<i32>().expect("ids are contiguous i32")
}

/// The values of an i32 tensor of ours; copies them first where somebody else holds them.
pub(crate) fn ints_mut(tensor: &mut FlexTensor) -> &mut [i32] {
    tensor.storage_mut::<i32>()
}

/// Positions among entries (row pointers, edge maps): i32, or i64 from 2^31 entries on.
#[derive(Clone, Copy)]
pub(crate) enum Offsets<'a> {
    Narrow(&'a [i32]),
    Wide(&'a [i64]),
}

impl<'a> Offsets<'a> {
    pub(crate) fn of(tensor: &'a FlexTensor) -> Self {
        match tensor.dtype() {
            DType::I64 => Offsets::Wide(tensor.as_slice().expect("offsets are contiguous")),
            _ => Offsets::Narrow(ids(tensor)),
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, i: usize) -> usize {
        match self {
            Offsets::Narrow(p) => p[i] as usize,
            Offsets::Wide(p) => p[i] as usize,
        }
    }

    /// Of row pointers: the positions of the entries of row `i`.
    #[inline(always)]
    pub(crate) fn row(&self, i: usize) -> std::ops::Range<usize> {
        self.get(i)..self.get(i + 1)
    }
}

/// Rows of one edge each, in the order of the entries whose edges `edge_map` names; as they are without a map.
pub(crate) fn in_rows<E: Storage>(edge_map: Option<&FlexTensor>, values: FlexTensor) -> FlexTensor {
    let values = values.to_contiguous();
    let Some(map) = edge_map.map(Offsets::of) else { return values };
    let [edges, width] = [values.shape()[0], values.shape()[1]];
    let of = slice::<E>(&values);
    let mut out = vec![E::default(); of.len()];
    out.par_chunks_mut(width.max(1)).with_min_len(1024).enumerate().for_each(|(entry, row)| {
        row.copy_from_slice(&of[map.get(entry) * width..][..width]);
    });
    tensor(out, [edges, width])
}

/// Undoes [`in_rows`].
pub(crate) fn in_edges<E: Storage>(edge_map: Option<&FlexTensor>, values: FlexTensor) -> FlexTensor {
    let Some(map) = edge_map.map(Offsets::of) else { return values };
    let [edges, width] = [values.shape()[0], values.shape()[1]];
    // Each edge has one entry: its rows are found from the other side, so that tasks own what they write.
    let mut entries = vec![0usize; edges];
    (0..edges).for_each(|entry| entries[map.get(entry)] = entry);
    let of = slice::<E>(&values);
    let mut out = vec![E::default(); of.len()];
    out.par_chunks_mut(width.max(1)).with_min_len(1024).zip(entries).for_each(|(row, entry)| {
        row.copy_from_slice(&of[entry * width..][..width]);
    });
    tensor(out, [edges, width])
}

/// `acc += weight * row`.
#[inline(always)]
pub(crate) fn axpy(acc: &mut [f32], weight: f32, row: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the two features were just detected.
        return unsafe { axpy_avx2(acc, weight, row) };
    }
    for (a, &x) in acc.iter_mut().zip(row) {
        *a += weight * x;
    }
}

/// `<a, b>` with a fixed summation order.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the two features were just detected.
        return unsafe { dot_avx2(a, b) };
    }
    dot_lanes(a, b, |x, y, sum| sum + x * y)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn axpy_avx2(acc: &mut [f32], weight: f32, row: &[f32]) {
    for (a, &x) in acc.iter_mut().zip(row) {
        *a = x.mul_add(weight, *a);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dot_avx2(a: &[f32], b: &[f32]) -> f32 {
    dot_lanes(a, b, f32::mul_add)
}

/// Sixteen independent sums keep the vector units busy and fix the order.
#[inline(always)]
fn dot_lanes(a: &[f32], b: &[f32], fma: impl Fn(f32, f32, f32) -> f32) -> f32 {
    const LANES: usize = 16;
    let mut lanes = [0f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let tail: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for l in 0..LANES {
            lanes[l] = fma(x[l], y[l], lanes[l]);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for l in 0..width {
            lanes[l] += lanes[l + width];
        }
        width /= 2;
    }
    lanes[0] + tail
}

/// An integer tensor over `values`, without a copy.
pub(crate) fn int_tensor(values: Vec<i32>, shape: impl Into<Shape>) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape.into()), DType::I32)
}
