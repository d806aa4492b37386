//! Vectors of integers between the host and a device.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn::tensor::{DType, Int, Tensor, TensorData};

use super::upload::upload_ints;

/// Uploads positions among entries: as i64 where they are `wide`, else as i32.
pub(crate) fn int_tensor<B: Backend>(values: &[i64], wide: bool, device: &B::Device) -> IntTensor<B> {
    converted::<B, i64>(values, wide, device, |value| value)
}

/// Uploads what `convert` makes of each value: as i64 where they are `wide`, else as i32. As of [`index_tensor`], one
/// unused element stands for none.
pub(crate) fn converted<B: Backend, T: Copy + Sync>(
    values: &[T],
    wide: bool,
    device: &B::Device,
    convert: impl Fn(T) -> i64 + Sync,
) -> IntTensor<B> {
    let len = values.len().max(1);
    let tensor = match wide {
        true => upload_ints::<B, i64>(len, device, |first, to| {
            to.iter_mut().zip(&values[first..]).for_each(|(to, &value)| *to = convert(value));
        }),
        false => upload_ints::<B, i32>(len, device, |first, to| {
            to.iter_mut().zip(&values[first..]).for_each(|(to, &value)| *to = convert(value) as i32);
        }),
    };
    tensor.into_primitive()
}

/// The first `len` values of an integer tensor: nobody need have written those behind them.
pub(crate) fn to_host<B: Backend>(values: &IntTensor<B>, len: usize) -> Vec<i64> {
    if len == 0 {
        return Vec::new();
    }
    let values = Tensor::<B, 1, Int>::from_primitive(values.clone()).narrow(0, 0, len);
    values.into_data().convert::<i64>().into_vec().expect("i64 after convert")
}

/// Some 32-bit words of an array, such as ids and counts.
pub(crate) fn words_to_host<B: Backend>(words: &IntTensor<B>, range: Range<usize>) -> Vec<u32> {
    if range.is_empty() {
        return Vec::new();
    }
    let words = Tensor::<B, 1, Int>::from_primitive(words.clone()).slice(range).into_data().convert::<i32>();
    let words: Vec<i32> = words.into_vec().expect("i32 after convert");
    words.into_iter().map(|word| word as u32).collect()
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
