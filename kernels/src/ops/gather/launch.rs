//! Row gather on CubeCL devices.

use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};

use super::GatherBackend;
use super::kernel::{ListedArgs, gather_kernel};
use crate::runtime::args::{ExtentArgs, array};
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, address, empty, vector_width};

impl_for_devices! { GatherBackend =>
    fn gather_forward(x: FloatTensor<Self>, index: &IntTensor<Self>, len: usize) -> FloatTensor<Self> {
        let out = empty(&x, [len, x.meta.shape()[1]], x.dtype);
        if out.shape().num_elements() == 0 {
            return out;
        }
        let x = Rows::of(x);
        let v = vector_width(x.width, &[&x]);
        let geometry = PlanePerRow::of(&out.client);
        // SAFETY: the rows were checked against the matrix when the index was made.
        unsafe {
            gather_kernel::launch_unchecked::<R>(
                &out.client,
                geometry.count(len),
                geometry.dim,
                address(&[&x.tensor, &out]),
                v,
                ListedArgs { x: x.matrix(v), index: array(index) }.launch(),
                array(&out),
                ExtentArgs { rows: len, vectors: x.width / v }.launch(),
                [x.tensor.dtype.into(), index.dtype.into()],
            );
        }
        out
    }
}
