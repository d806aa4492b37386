//! Vectors of integers between the host and a device.

use std::ops::Range;

use burn::tensor::backend::Backend;
use burn::tensor::ops::IntTensor;
use burn::tensor::{DType, Int, Tensor, TensorData};

use super::queued::queued;

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
    let there = queued(values.len(), DType::I32, device, &|to| to.copy_from_slice(bytemuck::cast_slice(&values)));
    there.unwrap_or_else(|| copied::<B>(values, device))
}

/// [`index_tensor`] of so many ids, not none, that `write` writes where they are uploaded from.
#[cfg(feature = "cube")]
pub(crate) fn written_index_tensor<B: Backend>(
    len: usize,
    device: &B::Device,
    write: impl Fn(&mut [i32]),
) -> IntTensor<B> {
    let there = queued(len, DType::I32, device, &|to| write(bytemuck::cast_slice_mut(to)));
    there.unwrap_or_else(|| {
        let mut values = vec![0; len];
        write(&mut values);
        copied::<B>(values, device)
    })
}

fn copied<B: Backend>(values: Vec<i32>, device: &B::Device) -> IntTensor<B> {
    let len = values.len();
    Tensor::<B, 1, Int>::from_data(TensorData::new(values, [len]), (device, DType::I32)).into_primitive()
}
