//! Reductions, prefix sums, argsort and stable partition of vectors, which Burn does in one thread or on the host.

mod cpu;
#[cfg(feature = "cube")]
pub(crate) mod kernel;
#[cfg(feature = "cube")]
pub(crate) mod launch;
#[cfg(feature = "cube")]
pub(crate) mod sort_kernel;

#[cfg(feature = "cube")]
pub(crate) use launch::partition_by_flag as partition_on_device;

use burn::tensor::backend::Backend;
use burn::tensor::ops::{FloatTensor, IntTensor};
use burn::tensor::{BasicOps, DType, Float, Int, Tensor, TensorKind, TensorPrimitive};
use burn_backend::TensorMetadata;

use crate::runtime::check;

/// What [`reduce`] makes of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum; integers wrap around.
    Sum,
    /// The largest element; a NaN only where there is nothing else.
    Max,
    /// The smallest element; a NaN only where there is nothing else.
    Min,
}

/// Whether a [`prefix_sum`] holds the element itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prefix {
    /// `y_k = x_0 + ... + x_k`
    Inclusive,
    /// `y_k = x_0 + ... + x_(k-1)`
    Exclusive,
}

/// Backends with [`reduce`], [`prefix_sum`], [`argsort`] and [`partition_by_flag`]. Vectors are contiguous and not
/// empty.
pub trait PrimsBackend: Backend {
    #[doc(hidden)]
    fn reduce_ints(x: IntTensor<Self>, by: Reduction) -> IntTensor<Self>;

    #[doc(hidden)]
    fn reduce_floats(x: FloatTensor<Self>, by: Reduction) -> FloatTensor<Self>;

    #[doc(hidden)]
    fn prefix_sum_ints(x: IntTensor<Self>, prefix: Prefix) -> IntTensor<Self>;

    #[doc(hidden)]
    fn prefix_sum_floats(x: FloatTensor<Self>, prefix: Prefix) -> FloatTensor<Self>;

    #[doc(hidden)]
    fn argsort_ints(x: IntTensor<Self>) -> IntTensor<Self>;

    #[doc(hidden)]
    fn argsort_floats(x: FloatTensor<Self>) -> IntTensor<Self>;

    /// Values of one word each: those with a flag, then the others, and the number of flags as `[1]` i32.
    #[doc(hidden)]
    fn partition_by_flag(values: IntTensor<Self>, flags: IntTensor<Self>) -> (IntTensor<Self>, IntTensor<Self>);
}

mod kind {
    pub trait Sealed {}
    impl Sealed for burn::tensor::Int {}
    impl Sealed for burn::tensor::Float {}
}

/// Integers and floats, as far as the primitives here take them.
pub trait NumberKind<B: PrimsBackend>: BasicOps<B> + TensorKind<B> + kind::Sealed {
    #[doc(hidden)]
    const DTYPES: &'static [DType];

    #[doc(hidden)]
    fn reduce(x: Self::Primitive, by: Reduction) -> Self::Primitive;

    #[doc(hidden)]
    fn prefix_sum(x: Self::Primitive, prefix: Prefix) -> Self::Primitive;

    #[doc(hidden)]
    fn argsort(x: Self::Primitive) -> IntTensor<B>;
}

impl<B: PrimsBackend> NumberKind<B> for Int {
    const DTYPES: &'static [DType] = &[DType::I32, DType::U32, DType::I64];

    fn reduce(x: Self::Primitive, by: Reduction) -> Self::Primitive {
        B::reduce_ints(x, by)
    }

    fn prefix_sum(x: Self::Primitive, prefix: Prefix) -> Self::Primitive {
        B::prefix_sum_ints(x, prefix)
    }

    fn argsort(x: Self::Primitive) -> IntTensor<B> {
        B::argsort_ints(x)
    }
}

impl<B: PrimsBackend> NumberKind<B> for Float {
    const DTYPES: &'static [DType] = &[DType::F32];

    fn reduce(x: Self::Primitive, by: Reduction) -> Self::Primitive {
        TensorPrimitive::Float(B::reduce_floats(x.tensor(), by))
    }

    fn prefix_sum(x: Self::Primitive, prefix: Prefix) -> Self::Primitive {
        TensorPrimitive::Float(B::prefix_sum_floats(x.tensor(), prefix))
    }

    fn argsort(x: Self::Primitive) -> IntTensor<B> {
        B::argsort_floats(x.tensor())
    }
}

#[track_caller]
fn check_dtype<B: PrimsBackend, K: NumberKind<B>>(op: &str, x: &Tensor<B, 1, K>) {
    let dtype = x.dtype();
    assert!(K::DTYPES.contains(&dtype), "{op}: x: expected one of {:?}, got {dtype:?}", K::DTYPES);
}

/// The sum, the largest or the smallest element of a vector; `None` for the extremes of an empty one.
///
/// # Shapes
/// `x` `[n]` in i32, u32, i64 (where the device has it) or f32; result `[1]` in the dtype of `x`. Results are the same
/// on every device but for sums of floats, whose order depends on the backend and on `n` alone.
///
/// # Panics
/// If `x` has another dtype.
///
/// # Example
/// ```
/// use burn::tensor::{Int, Tensor};
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Reduction, reduce};
/// let x = Tensor::<Flex, 1, Int>::from_data([3, -5, 4], &Default::default());
/// assert_eq!(reduce(x.clone(), Reduction::Sum).unwrap().into_scalar(), 2);
/// assert_eq!(reduce(x, Reduction::Min).unwrap().into_scalar(), -5);
/// ```
pub fn reduce<B: PrimsBackend, K: NumberKind<B>>(x: Tensor<B, 1, K>, by: Reduction) -> Option<Tensor<B, 1, K>> {
    check_dtype("reduce", &x);
    let [len] = x.dims();
    if len == 0 {
        let zero = || Tensor::from_data(burn::tensor::TensorData::zeros::<i32, _>([1]), (&x.device(), x.dtype()));
        return (by == Reduction::Sum).then(zero);
    }
    Some(Tensor::new(K::reduce(x.into_primitive(), by)))
}

/// Sums of everything up to an element, or before it.
///
/// # Shapes
/// `x` `[n]` in i32, u32, i64 (where the device has it) or f32; result likewise. Integers wrap around; the order of a
/// sum of floats depends on the backend and on `n` alone.
///
/// # Panics
/// If `x` has another dtype.
///
/// # Example
/// ```
/// use burn::tensor::{Int, Tensor};
/// use burn_flex::Flex;
/// use graphsieve_kernels::{Prefix, prefix_sum};
/// let x = Tensor::<Flex, 1, Int>::from_data([3, 1, 4], &Default::default());
/// assert_eq!(prefix_sum(x.clone(), Prefix::Inclusive).into_data().to_vec::<i32>().unwrap(), [3, 4, 8]);
/// assert_eq!(prefix_sum(x, Prefix::Exclusive).into_data().to_vec::<i32>().unwrap(), [0, 3, 4]);
/// ```
pub fn prefix_sum<B: PrimsBackend, K: NumberKind<B>>(x: Tensor<B, 1, K>, prefix: Prefix) -> Tensor<B, 1, K> {
    check_dtype("prefix_sum", &x);
    if x.dims() == [0] {
        return x;
    }
    Tensor::new(K::prefix_sum(x.into_primitive(), prefix))
}

/// Positions of the elements in ascending order; equal elements keep theirs, so the result is the same on every device.
/// Floats are in the total order of IEEE 754: -0 before 0, NaNs at the ends by their sign.
///
/// The kernel is a bitonic sort of pairs of key and position, `O(n log^2 n)`. A bitonic sort is not stable by itself;
/// with the position as second key no two pairs are equal.
///
/// # Shapes
/// `x` `[n]` in i32, u32, i64 (where the device has it) or f32; result `[n]`, i32.
///
/// # Panics
/// If `x` has another dtype or 2^31 elements or more.
///
/// # Source
/// K. E. Batcher, Sorting networks and their applications, 1968.
///
/// # Example
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
/// use graphsieve_kernels::argsort;
/// let x = Tensor::<Flex, 1>::from_data([2.0, 1.0, 2.0, 0.5], &Default::default());
/// assert_eq!(argsort(x).into_data().to_vec::<i32>().unwrap(), [3, 1, 0, 2]);
/// ```
pub fn argsort<B: PrimsBackend, K: NumberKind<B>>(x: Tensor<B, 1, K>) -> Tensor<B, 1, Int> {
    check_dtype("argsort", &x);
    let [len] = x.dims();
    assert!(len < 1 << 31, "argsort: elements of x: expected fewer than 2^31, got {len}");
    if len == 0 {
        return Tensor::empty([0], &x.device());
    }
    Tensor::new(K::argsort(x.into_primitive()))
}

/// The values whose flag is not zero, then the others, each in their order, and how many there are of the first, as
/// `[1]`.
///
/// # Shapes
/// `values` `[n]` in i32 or u32, `flags` `[n]` in i32; results `[n]` in the dtype of `values` and `[1]` in i32.
///
/// # Panics
/// If the lengths differ, a dtype is another, or there are 2^31 values or more.
///
/// # Example
/// ```
/// use burn::tensor::{Int, Tensor};
/// use burn_flex::Flex;
/// use graphsieve_kernels::partition_by_flag;
/// let device = Default::default();
/// let values = Tensor::<Flex, 1, Int>::from_data([10, 11, 12, 13], &device);
/// let flags = Tensor::from_data([0, 1, 0, 1], &device);
/// let (parted, count) = partition_by_flag(values, flags);
/// assert_eq!(parted.into_data().to_vec::<i32>().unwrap(), [11, 13, 10, 12]);
/// assert_eq!(count.into_scalar(), 2);
/// ```
pub fn partition_by_flag<B: PrimsBackend>(
    values: Tensor<B, 1, Int>,
    flags: Tensor<B, 1, Int>,
) -> (Tensor<B, 1, Int>, Tensor<B, 1, Int>) {
    const OP: &str = "partition_by_flag";
    let (values, flags) = (values.into_primitive(), flags.into_primitive());
    let (dtype, len) = (values.dtype(), values.shape()[0]);
    assert!(matches!(dtype, DType::I32 | DType::U32), "{OP}: values: expected I32 or U32, got {dtype:?}");
    assert!(len < 1 << 31, "{OP}: elements of values: expected fewer than 2^31, got {len}");
    check::dtype(OP, "flags", &flags, DType::I32);
    check::size(OP, "flags", len, flags.shape()[0]);
    if len == 0 {
        let none = Tensor::zeros([1], (&B::int_device(&values), DType::I32));
        return (Tensor::from_primitive(values), none);
    }
    let (parted, count) = B::partition_by_flag(values, flags);
    (Tensor::from_primitive(parted), Tensor::from_primitive(count))
}
