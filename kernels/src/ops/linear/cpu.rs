//! Matrix products on the CPU: those of Burn.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, Slice};
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_flex::Flex;

use super::LinearBackend;

/// Stretches of rows whose products are independent: the threads share them.
const STRETCHES: usize = 512;
/// Below this many rows per stretch the plain product is as fast.
const MIN_ROWS: usize = 64;

impl LinearBackend for Flex {
    fn product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        let w = as_dtype(w, x.dtype());
        Self::float_matmul(x, w)
    }

    fn weight_gradient(x: FloatTensor<Self>, g: FloatTensor<Self>, dtype: DType) -> FloatTensor<Self> {
        let ([n, k], [_, m]) = ([x.shape()[0], x.shape()[1]], [g.shape()[0], g.shape()[1]]);
        let per_stretch = n / STRETCHES;
        if per_stretch < MIN_ROWS {
            return as_dtype(Self::float_matmul(Self::float_transpose(x), g), dtype);
        }
        let main = per_stretch * STRETCHES;
        let rows = |t: &FloatTensor<Self>, from: usize, to: usize, width: usize| {
            Self::float_slice(t.clone(), &[Slice::from(from..to), Slice::from(0..width)])
        };
        let batched = |t: &FloatTensor<Self>, width| {
            Self::float_reshape(rows(t, 0, main, width), Shape::new([STRETCHES, per_stretch, width]))
        };
        let partial = Self::float_matmul(Self::float_swap_dims(batched(&x, k), 1, 2), batched(&g, m));
        // Hundreds of partial products: add them in f32 whatever the storage.
        let partial = as_dtype(partial, DType::F32);
        let sum = as_dtype(Self::float_reshape(Self::float_sum_dim(partial, 0), Shape::new([k, m])), dtype);
        if main == n {
            return sum;
        }
        let rest = Self::float_matmul(Self::float_transpose(rows(&x, main, n, k)), rows(&g, main, n, m));
        Self::float_add(sum, as_dtype(rest, dtype))
    }
}

fn as_dtype(tensor: FloatTensor<Flex>, dtype: DType) -> FloatTensor<Flex> {
    if tensor.dtype() == dtype { tensor } else { Flex::float_cast(tensor, dtype.into()) }
}
