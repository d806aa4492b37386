//! Vectors of integers between the host and a device.

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn::tensor::{DType, Int, Tensor, TensorData};
use rayon::prelude::*;

/// Uploads positions among entries: as i64 where they are `wide`, else as i32.
pub(crate) fn int_tensor<B: Backend>(mut values: Vec<i64>, wide: bool, device: &B::Device) -> IntTensor<B> {
    if wide {
        if values.is_empty() {
            // As `index_tensor` does.
            values.push(0);
        }
        let len = values.len();
        let data = TensorData::new(values, [len]);
        return Tensor::<B, 1, Int>::from_data(data, (device, DType::I64)).into_primitive();
    }
    index_tensor::<B>(values.into_par_iter().with_min_len(1 << 14).map(|v| v as i32).collect(), device)
}

/// The values of an integer tensor.
pub(crate) fn to_host<B: Backend>(values: &IntTensor<B>) -> Vec<i64> {
    let data = Tensor::<B, 1, Int>::from_primitive(values.clone()).into_data().convert::<i64>();
    data.into_vec().expect("i64 after convert")
}

/// Uploads 32-bit ids. No device likes a buffer of zero bytes, so an empty list becomes one unused element; sizes are
/// kept beside the arrays.
pub(crate) fn index_tensor<B: Backend>(mut values: Vec<i32>, device: &B::Device) -> IntTensor<B> {
    if values.is_empty() {
        values.push(0);
    }
    let len = values.len();
    Tensor::<B, 1, Int>::from_data(TensorData::new(values, [len]), (device, DType::I32)).into_primitive()
}
