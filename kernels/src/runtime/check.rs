//! Shape and dtype checks shared by the operators: a caller's bug panics with operator, argument, expected and got.

use burn::tensor::backend::Backend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, TensorMetadata};

/// Panics unless `actual == expected`.
#[track_caller]
pub(crate) fn size(op: &str, argument: &str, expected: usize, actual: usize) {
    assert!(actual == expected, "{op}: {argument}: expected {expected}, got {actual}");
}

/// The two sizes of a matrix; panics for any other rank.
#[track_caller]
pub(crate) fn matrix<T: TensorMetadata>(op: &str, argument: &str, tensor: &T) -> [usize; 2] {
    let shape = tensor.shape();
    assert!(shape.num_dims() == 2, "{op}: {argument}: expected a matrix, got shape {:?}", dims(&shape));
    [shape[0], shape[1]]
}

/// Panics unless the vector `tensor` has `expected` elements.
#[track_caller]
pub(crate) fn vector<T: TensorMetadata>(op: &str, argument: &str, tensor: &T, expected: usize) {
    let shape = tensor.shape();
    assert!(
        shape.num_dims() == 1 && shape[0] == expected,
        "{op}: {argument}: expected a vector of {expected} elements, got shape {:?}",
        dims(&shape)
    );
}

/// Panics unless `dtype` is f32, f16 or bf16.
#[track_caller]
pub(crate) fn storage_type(op: &str, argument: &str, dtype: DType) {
    let known = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    assert!(known, "{op}: {argument}: expected f32, f16 or bf16, got {dtype:?}");
}

/// Panics unless `tensor` is stored as f32, f16 or bf16, and its device computes in that.
#[track_caller]
pub(crate) fn storage<B: Backend>(op: &str, argument: &str, tensor: &FloatTensor<B>) {
    let dtype = tensor.dtype();
    storage_type(op, argument, dtype);
    let device = B::float_device(tensor);
    let has = dtype == DType::F32 || B::supports_dtype(&device, dtype);
    assert!(has, "{op}: {argument}: expected a type that {device:?} computes in, such as f32, got {dtype:?}");
}

/// Panics unless `tensor` has dtype `expected`.
#[track_caller]
pub(crate) fn dtype(op: &str, argument: &str, tensor: &impl TensorMetadata, expected: DType) {
    let actual = tensor.dtype();
    assert!(actual == expected, "{op}: {argument}: expected {expected:?}, got {actual:?}");
}

/// Panics unless `tensor` is stored like `other`.
#[track_caller]
pub(crate) fn same_dtype<T: TensorMetadata>(op: &str, argument: &str, tensor: &T, other: &T) {
    dtype(op, argument, tensor, other.dtype());
}

fn dims(shape: &Shape) -> Vec<usize> {
    shape.iter().copied().collect()
}
