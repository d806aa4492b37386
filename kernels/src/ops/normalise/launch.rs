//! Rows of length one on CubeCL devices.

use burn::tensor::DType;
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use super::kernel::{BackwardInputsArgs, NormalisedArgs, normalise_backward_kernel, normalise_kernel};
use super::{EPSILON, NormaliseBackend};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, address, empty, vector_width};

/// Elements of a vector when f32 is read or written: 16 bytes.
const F32_VECTOR: usize = 4;

impl_for_devices! { NormaliseBackend =>
    fn normalise_forward(x: FloatTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (rows, width) = (x.meta.shape()[0], x.meta.shape()[1]);
        let z = empty(&x, [rows, width], DType::F32);
        let inverse = empty(&x, [rows], DType::F32);
        if z.shape().num_elements() == 0 {
            return (z, inverse);
        }
        let x = Rows::of(x);
        let v = vector_width(width, &[&x]).min(F32_VECTOR);
        let geometry = PlanePerRow::of(&z.client);
        // SAFETY: the loop ends at the number of rows.
        unsafe {
            normalise_kernel::launch_unchecked::<R>(
                &z.client,
                geometry.count(rows),
                geometry.dim,
                address(&[&x.tensor, &z]),
                v,
                x.matrix(v),
                NormalisedArgs { z: array(&z), inverse: array(&inverse) }.launch(),
                x.extent(v),
                EPSILON,
                geometry.slots(width / v),
                x.tensor.dtype.into(),
            );
        }
        (z, inverse)
    }

    fn normalise_backward(
        g: FloatTensor<Self>,
        z: FloatTensor<Self>,
        inverse: FloatTensor<Self>,
        dtype: DType,
    ) -> FloatTensor<Self> {
        let (g, z) = (Rows::of(g), Rows::of(z));
        let dx = empty(&z.tensor, [z.num_rows, z.width], dtype);
        if dx.shape().num_elements() == 0 {
            return dx;
        }
        let v = vector_width(z.width, &[&g, &z]);
        let geometry = PlanePerRow::of(&dx.client);
        // SAFETY: the loop ends at the number of rows.
        unsafe {
            normalise_backward_kernel::launch_unchecked::<R>(
                &dx.client,
                geometry.count(z.num_rows),
                geometry.dim,
                address(&[&g.tensor, &z.tensor, &dx]),
                v,
                BackwardInputsArgs { g: g.matrix(v), z: z.matrix(v), inverse: array(&inverse) }.launch(),
                array(&dx),
                z.extent(v),
                geometry.slots(z.width / v),
                dtype.into(),
            );
        }
        dx
    }
}
