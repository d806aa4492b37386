//! Matrix products on the CPU: those of Burn.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, Slice};
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_flex::{Flex, FlexTensor};

use super::LinearBackend;

/// Stretches of rows whose products are independent: the threads share them.
const STRETCHES: usize = 512;
/// Below this many rows per stretch the plain product is as fast.
const MIN_ROWS: usize = 64;

/// How many rows a product `[rows, k] [k, width]` has to have at least so that each of them comes out the same to the
/// bit whatever others stand beside it.
///
/// `gemm` sums a row up in the order of `k` in all of its blocked products, but goes other ways where there are few
/// rows: one row is multiplied by columns; up to 256 results are summed up lane by lane where the columns of `w` lie
/// one behind another, as those of its transpose do, or where it has one; and with at most 64 rows and columns sums of
/// more than 512 terms are parted elsewhere.
fn least_rows(k: usize, width: usize, by_columns: bool) -> usize {
    let of_lanes = if by_columns { 256 / width.max(1) + 1 } else { 2 };
    let of_parts = if k > 512 && width <= 64 { 65 } else { 2 };
    of_lanes.max(of_parts)
}

impl LinearBackend for Flex {
    fn product(x: FloatTensor<Self>, w: FloatTensor<Self>) -> FloatTensor<Self> {
        let w = as_dtype(w, x.dtype());
        let ([rows, k], width) = ([x.shape()[0], x.shape()[1]], w.shape()[1]);
        let least = least_rows(k, width, w.layout().strides()[0] == 1);
        if rows == 0 || rows >= least {
            return Self::float_matmul(x, w);
        }
        let blank = FlexTensor::zeros(Shape::new([least - rows, k]), x.dtype());
        let product = Self::float_matmul(Self::float_cat(vec![x, blank], 0), w);
        Self::float_slice(product, &[Slice::from(0..rows), Slice::from(0..width)])
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

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Tensor};

    use super::*;
    use crate::linear;

    #[test]
    fn a_row_of_a_product_is_the_same_whatever_rows_stand_beside_it() {
        let device = Default::default();
        for (k, width) in [(1, 7), (2, 16), (3, 1), (29, 128), (64, 64), (130, 33), (513, 64), (600, 8), (1100, 96)] {
            let x = Tensor::<Flex, 2>::random([1100, k], Distribution::Normal(0.0, 1.0), &device);
            let w = Tensor::<Flex, 2>::random([k, width], Distribution::Normal(0.0, 1.0), &device);
            let turned = Tensor::<Flex, 2>::random([width, k], Distribution::Normal(0.0, 1.0), &device).transpose();
            for w in [w, turned] {
                let bits = |rows: Tensor<Flex, 2>| -> Vec<u32> {
                    let values = linear(rows, w.clone(), None).into_data().to_vec::<f32>().unwrap();
                    values.into_iter().map(f32::to_bits).collect()
                };
                let all = bits(x.clone());
                for rows in [1, 2, 3, 5, 8, 16, 31, 64, 65, 211, 256, 257, 600] {
                    for first in [0, 1100 - rows, (1100 - rows) / 3] {
                        let found = bits(x.clone().narrow(0, first, rows));
                        assert!(found == all[first * width..][..rows * width], "{rows} rows of {k} x {width}");
                    }
                }
            }
        }
    }
}
