//! Row gather whose backward pass is a grouped sum instead of a scatter.

mod autodiff;
mod cpu;
#[cfg(feature = "cube")]
mod kernel;
#[cfg(feature = "cube")]
mod launch;

use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{Tensor, TensorPrimitive};

use crate::graph::row_index::RowIndex;
use crate::ops::spmm::SpmmBackend;
use crate::runtime::check;

/// Backends with [`gather_rows`].
pub trait GatherBackend: SpmmBackend {
    /// The rows, without gradient.
    #[doc(hidden)]
    fn gather_forward(x: FloatTensor<Self>, index: &IntTensor<Self>, len: usize) -> FloatTensor<Self>;

    /// The rows, recorded for the backward pass where the backend differentiates.
    #[doc(hidden)]
    fn gather_rows(x: FloatTensor<Self>, index: RowIndex<Self>) -> FloatTensor<Self> {
        Self::gather_forward(x, &index.parts.index, index.len())
    }
}

/// Listed rows of a matrix: `y_p = x_{index_p}`.
///
/// # Shapes
/// `x` `[num_rows, d]` in f32, f16 or bf16; `index` `[p]`; result `[p, d]`.
///
/// # Gradient
/// `dx_i = sum of dy_p over index_p = i`, in list order with f32 sums. Nothing is saved. Deterministic: no atomics
/// (Burn's own `select` scatters with one thread per column on GPUs).
///
/// # Panics
/// If `index` was made for another number of rows.
///
/// # Example
/// ```
/// use burn::backend::Autodiff;
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::{RowIndex, gather_rows};
/// let device = Default::default();
/// let x = Tensor::<Autodiff<Flex>, 2>::from_data([[1.0], [2.0], [3.0]], &device).require_grad();
/// let y = gather_rows(x.clone(), &RowIndex::new(&[2, 0, 2], 3, &device));
/// assert_eq!(y.to_data().to_vec::<f32>().unwrap(), [3.0, 1.0, 3.0]);
/// let grads = y.sum().backward();
/// assert_eq!(x.grad(&grads).unwrap().into_data().to_vec::<f32>().unwrap(), [1.0, 0.0, 2.0]);
/// ```
pub fn gather_rows<B: GatherBackend>(x: Tensor<B, 2>, index: &RowIndex<B>) -> Tensor<B, 2> {
    let x = x.into_primitive().tensor();
    check::storage::<B>("gather_rows", "x", &x);
    check::size("gather_rows", "rows of x", index.parts.num_rows, check::matrix("gather_rows", "x", &x)[0]);
    Tensor::from_primitive(TensorPrimitive::Float(B::gather_rows(x, index.clone())))
}
