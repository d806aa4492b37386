//! On CubeCL devices.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use super::PiecesBackend;
use super::kernel::{PieceSizesArgs, pieces_kernel};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{Rows, address, empty, f32_vector, flat};

impl_for_devices! { PiecesBackend =>
    fn beside_pieces(x: FloatTensor<Self>, bounds: FloatTensor<Self>) -> FloatTensor<Self> {
        let (columns, pieces) = (bounds.meta.shape()[0], bounds.meta.shape()[1] - 1);
        let x = Rows::of(x);
        let (rows, width) = (x.num_rows, x.width);
        let out = empty(&x.tensor, [rows, width + columns * pieces], x.tensor.dtype);
        let len = out.shape().num_elements();
        if len == 0 {
            return out;
        }
        let bounds = f32_vector(bounds);
        let (count, dim) = flat(len);
        // SAFETY: the loop ends at the size of the result, whose sizes are those of the matrices.
        unsafe {
            pieces_kernel::launch_unchecked::<R>(
                &out.client,
                count,
                dim,
                address(&[&x.tensor, &out]),
                x.table(),
                array(&bounds),
                array(&out),
                PieceSizesArgs { rows, width, columns, pieces }.launch(),
                x.tensor.dtype.into(),
            );
        }
        out
    }
}
