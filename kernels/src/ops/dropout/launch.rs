//! Dropout on CubeCL devices.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use super::kernel::{DropoutKey, dropout_kernel};
use super::{Dropout, DropoutBackend};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{Rows, address, empty, flat, vector_width};

impl_for_devices! { DropoutBackend =>
    fn dropout(x: FloatTensor<Self>, dropout: Dropout) -> FloatTensor<Self> {
        let x = Rows::of(x);
        let out = empty(&x.tensor, [x.num_rows, x.width], x.tensor.dtype);
        if out.shape().num_elements() == 0 {
            return out;
        }
        let v = vector_width(x.width, &[&x]);
        let (count, dim) = flat(x.num_rows * x.width / v);
        // SAFETY: the loop ends at the size of the matrix.
        unsafe {
            dropout_kernel::launch_unchecked::<R>(
                &out.client,
                count,
                dim,
                address(&[&x.tensor, &out]),
                v,
                x.matrix(v),
                array(&out),
                DropoutKey::launch(&Some(dropout)),
                x.extent(v),
                x.tensor.dtype.into(),
            );
        }
        out
    }
}
