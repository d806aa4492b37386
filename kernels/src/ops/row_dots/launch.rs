//! Dot products with every row on CubeCL devices.

use burn::tensor::DType;
use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use burn_backend::tensor::FloatTensor;

use super::RowDotsBackend;
use super::kernel::{
    ColumnsArgs, DotInputsArgs, GradientInputsArgs, PartialsArgs, gradient_kernel, partial_sums_kernel, row_dots_kernel,
};
use crate::ops::head::column_sums;
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, Target, address, empty, f32_vector, zeros};

/// Rows of one partial sum, at least and at most: a plane that adds few up ends soon, and leaves as much as one that
/// adds many.
const ROWS_PER_PARTIAL: [usize; 2] = [32, 192];
/// Partial sums, where these bounds allow: enough planes to fill a large device.
const MAX_PARTIALS: usize = 4096;
/// Vectors, or sums of vectors, that one plane keeps in registers.
const BLOCK: usize = 4;
/// Rows that one plane multiplies.
const ROWS_PER_PLANE: usize = 16;

impl_for_devices! { RowDotsBackend =>
    fn row_dots_forward(x: FloatTensor<Self>, vectors: FloatTensor<Self>) -> FloatTensor<Self> {
        let count = vectors.meta.shape()[0];
        let out = empty(&x, [x.meta.shape()[0], count], DType::F32);
        if out.shape().num_elements() == 0 {
            return out;
        }
        let (x, vectors) = (Rows::of(x), f32_vector(vectors));
        let geometry = PlanePerRow::of(&out.client);
        let v = geometry.vector_width(x.width, &[&x]);
        // Enough planes to fill the device, each with enough rows to be worth loading the vectors.
        let planes = x.num_rows.div_ceil(ROWS_PER_PLANE);
        let block = BLOCK.min(geometry.plane as usize);
        // SAFETY: the loops end at the sizes of the matrices.
        unsafe {
            for first in (0..count).step_by(block) {
                row_dots_kernel::launch_unchecked::<R>(
                    &out.client,
                    geometry.count(planes),
                    geometry.dim,
                    address(&[&x.tensor, &out]),
                    v,
                    DotInputsArgs { x: x.matrix(v), vectors: array(&vectors) }.launch(),
                    array(&out),
                    x.extent(v),
                    ColumnsArgs { count, first }.launch(),
                    block.min(count - first),
                    geometry.slots(x.width / v),
                    geometry.plane as usize,
                    x.tensor.dtype.into(),
                );
            }
        }
        out
    }

    fn row_dots_gradient(
        g: FloatTensor<Self>,
        vectors: FloatTensor<Self>,
        dtype: DType,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (g, vectors) = (f32_vector(g), f32_vector(vectors));
        let (rows, count, width) = (g.meta.shape()[0], g.meta.shape()[1], vectors.meta.shape()[1]);
        let Target { rows: out, accumulate_into } = Target::of(accumulate_into, &g, [rows, width], dtype);
        if rows * width == 0 {
            return out.tensor;
        }
        let geometry = PlanePerRow::of(&out.tensor.client);
        let v = geometry.vector_width(width, &[&out]);
        // SAFETY: the loops end at the sizes of the matrices.
        unsafe {
            gradient_kernel::launch_unchecked::<R>(
                &out.tensor.client,
                geometry.count(rows),
                geometry.dim,
                address(&[&g, &out.tensor]),
                v,
                GradientInputsArgs { g: array(&g), vectors: array(&vectors) }.launch(),
                out.matrix(v),
                out.extent(v),
                count,
                accumulate_into,
                dtype.into(),
            );
        }
        out.tensor
    }

    fn weighted_column_sums(x: FloatTensor<Self>, g: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, g) = (Rows::of(x), f32_vector(g));
        let count = g.meta.shape()[1];
        if x.num_rows == 0 {
            return zeros(&x.tensor, [count, x.width], DType::F32);
        }
        if count * x.width == 0 {
            return empty(&g, [count, x.width], DType::F32);
        }
        let [fewest, most] = ROWS_PER_PARTIAL;
        let per_partial = x.num_rows.div_ceil(MAX_PARTIALS).clamp(fewest, most);
        let num_partials = x.num_rows.div_ceil(per_partial);
        let partial = empty(&g, [num_partials, count * x.width], DType::F32);
        let geometry = PlanePerRow::of(&partial.client);
        let v = geometry.vector_width(x.width, &[&x]);
        // SAFETY: the loops end at the sizes of the matrices.
        unsafe {
            for first in (0..count).step_by(BLOCK) {
                partial_sums_kernel::launch_unchecked::<R>(
                    &partial.client,
                    geometry.count(num_partials),
                    geometry.dim,
                    address(&[&x.tensor, &g, &partial]),
                    v,
                    DotInputsArgs { x: x.matrix(v), vectors: array(&g) }.launch(),
                    array(&partial),
                    x.extent(v),
                    ColumnsArgs { count, first }.launch(),
                    PartialsArgs { count: num_partials, rows: per_partial }.launch(),
                    BLOCK.min(count - first),
                    geometry.slots(x.width / v),
                    x.tensor.dtype.into(),
                );
            }
        }
        Self::float_reshape(column_sums(partial), [count, x.width].into())
    }
}
