//! The data type that a precision means on a device.

use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use graphsieve_kernels::GraphBackend;

use crate::config::Precision;
use crate::error::{Error, Result};

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

/// The same for what a training reads, without a gradient. Autodiff keeps nodes of results that no loss reaches, also
/// of tensors that need no gradient; this tensor has none.
pub fn as_data<B: GraphBackend>(x: Tensor<Autodiff<B>, 2>, dtype: DType) -> Tensor<Autodiff<B>, 2> {
    Tensor::from_inner(as_dtype(x.inner(), dtype))
}

/// The storage type of a precision, on a device that computes in it.
///
/// # Errors
/// [`Error::Config`] where it does not.
pub fn dtype_on<B: Backend>(precision: Precision, device: &B::Device) -> Result<DType> {
    let has = |precision: Precision| B::supports_dtype(device, dtype(precision));
    if has(precision) {
        return Ok(dtype(precision));
    }
    let name = |precision: &Precision| match precision {
        Precision::F32 => "\"f32\"",
        Precision::F16 => "\"f16\"",
        Precision::BF16 => "\"bf16\"",
    };
    let all = [Precision::F32, Precision::F16, Precision::BF16];
    let known: Vec<&str> = all.iter().filter(|&&precision| has(precision)).map(name).collect();
    Err(Error::Config {
        origin: "this run".into(),
        key: "train.precision".into(),
        expected: format!("what the device computes in: {}", known.join(", ")),
        found: name(&precision).into(),
        help: "train in another precision, or choose a device that has this one".into(),
    })
}
