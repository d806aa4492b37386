//! The data type that a precision means on a device.

use burn::backend::Autodiff;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;

use crate::config::Precision;

/// The storage type of features and activations.
pub fn dtype(precision: Precision) -> DType {
    match precision {
        Precision::F32 => DType::F32,
        Precision::F16 => DType::F16,
        Precision::BF16 => DType::BF16,
    }
}

/// `x` in another storage type.
pub fn as_dtype<B: GraphBackend>(x: Tensor<B, 2>, dtype: DType) -> Tensor<B, 2> {
    // No device takes a launch over nothing.
    match x.dims() {
        [0, width] => Tensor::empty([0, width], (&x.device(), dtype)),
        _ if x.dtype() == dtype => x,
        _ => x.cast(dtype),
    }
}

/// The same for what a training reads, without a gradient. Autodiff keeps nodes of results that no loss reaches, also of tensors that
/// need no gradient; this tensor has none.
pub fn as_data<B: GraphBackend>(x: Tensor<Autodiff<B>, 2>, dtype: DType) -> Tensor<Autodiff<B>, 2> {
    Tensor::from_inner(as_dtype(x.inner(), dtype))
}
