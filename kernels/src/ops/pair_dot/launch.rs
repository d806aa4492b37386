//! Pair dot products on CubeCL devices.

use burn::tensor::DType;
use burn_backend::tensor::{FloatTensor, IntTensor};

use super::PairDotBackend;
use super::kernel::{SideArgs, pair_dot_kernel};
use crate::graph::row_index::PairIndexParts;
use crate::runtime::args::{ExtentArgs, array};
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, address, empty, vector_width};

impl_for_devices! { PairDotBackend =>
    fn pair_dot_forward(
        left: FloatTensor<Self>,
        right: FloatTensor<Self>,
        pairs: &PairIndexParts<IntTensor<Self>>,
    ) -> FloatTensor<Self> {
        let out = empty(&left, [pairs.len], DType::F32);
        if pairs.len == 0 {
            return out;
        }
        let (left, right) = (Rows::of(left), Rows::of(right));
        let v = vector_width(left.width, &[&left, &right]);
        let geometry = PlanePerRow::of(&out.client);
        // SAFETY: the rows were checked against the matrices when the pairs were made.
        unsafe {
            pair_dot_kernel::launch_unchecked::<R>(
                &out.client,
                geometry.count(pairs.len),
                geometry.dim,
                address(&[&left.tensor, &right.tensor, &out]),
                v,
                SideArgs { rows: left.matrix(v), index: array(&pairs.left) }.launch(),
                SideArgs { rows: right.matrix(v), index: array(&pairs.right) }.launch(),
                array(&out),
                ExtentArgs { rows: pairs.len, vectors: left.width / v }.launch(),
                left.tensor.dtype.into(),
            );
        }
        out
    }
}
