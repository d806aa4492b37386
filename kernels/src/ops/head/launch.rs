//! Per-head reductions on CubeCL devices.

use burn::tensor::DType;
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::HeadBackend;
use super::kernel::{
    COLUMNS, DotInputsArgs, HeadsArgs, OuterInputsArgs, PartialSizesArgs, SHARES, SumInputsArgs, column_sum_kernel,
    head_dot_kernel, head_outer_kernel, partial_column_sum_kernel,
};
use crate::runtime::args::{TableArgs, array};
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{Columns, PlanePerRow, Rows, Target, address, empty, f32_vector, vector_width, zeros};

/// Cubes that leave a partial column sum each: enough for every multiprocessor of a large GPU, and few to add up.
pub(crate) const MAX_PARTIALS: usize = 1024;

impl_for_devices! { HeadBackend =>
    fn head_dot(x: FloatTensor<Self>, y: FloatTensor<Self>, heads: usize) -> FloatTensor<Self> {
        let out = empty(&x, [x.meta.shape()[0], heads], DType::F32);
        if out.shape().num_elements() == 0 {
            return out;
        }
        let (x, y) = (Rows::of(x), Rows::of(y));
        let y_stride = if y.num_rows == 1 { 0 } else { y.stride };
        let geometry = PlanePerRow::of(&out.client);
        // SAFETY: the loops end at the sizes of the matrices.
        unsafe {
            head_dot_kernel::launch_unchecked::<R>(
                &out.client,
                geometry.count(x.num_rows),
                geometry.dim,
                address(&[&x.tensor, &y.tensor, &out]),
                DotInputsArgs { x: x.table(), y: TableArgs { values: y.arg(), stride: y_stride }.launch() }.launch(),
                array(&out),
                HeadsArgs { rows: x.num_rows, count: heads, channels: x.width / heads }.launch(),
                [x.tensor.dtype.into(), y.tensor.dtype.into()],
            );
        }
        out
    }

    fn head_outer(
        w: FloatTensor<Self>,
        a: FloatTensor<Self>,
        dtype: DType,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (w, a) = (f32_vector(w), f32_vector(a));
        let (num_rows, heads, width) = (w.meta.shape()[0], w.meta.shape()[1], a.meta.shape()[1]);
        let Target { rows: out, accumulate_into } = Target::of(accumulate_into, &w, [num_rows, width], dtype);
        if num_rows == 0 {
            return out.tensor;
        }
        let geometry = PlanePerRow::of(&out.tensor.client);
        // SAFETY: the loops end at the sizes of the matrices.
        unsafe {
            head_outer_kernel::launch_unchecked::<R>(
                &out.tensor.client,
                geometry.count(num_rows),
                geometry.dim,
                address(&[&w, &out.tensor]),
                OuterInputsArgs { w: array(&w), a: array(&a) }.launch(),
                out.table(),
                HeadsArgs { rows: num_rows, count: heads, channels: width / heads }.launch(),
                accumulate_into,
                dtype.into(),
            );
        }
        out.tensor
    }

    fn head_column_sum(x: FloatTensor<Self>, w: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        let x = Rows::of(x);
        if x.num_rows == 0 || x.width == 0 {
            return zeros(&x.tensor, [1, x.width], DType::F32);
        }
        let weighted = w.is_some();
        let heads = w.as_ref().map_or(1, |w| w.meta.shape()[1]);
        let v = vector_width(x.width / heads, &[&x]);
        let geometry = Columns::of(x.num_rows, x.width / v, MAX_PARTIALS);
        let partial = empty(&x.tensor, [geometry.partials, x.width], DType::F32);
        // Weights that are not there still need a buffer.
        let w = w.map_or_else(|| partial.clone(), f32_vector);
        // SAFETY: the loops end at the sizes of the matrices.
        unsafe {
            partial_column_sum_kernel::launch_unchecked::<R>(
                &partial.client,
                geometry.count,
                geometry.dim,
                address(&[&x.tensor, &w, &partial]),
                v,
                SumInputsArgs { x: x.matrix(v), w: array(&w) }.launch(),
                array(&partial),
                x.width / v,
                HeadsArgs { rows: x.num_rows, count: heads, channels: x.width / heads / v }.launch(),
                geometry.half,
                weighted,
                x.tensor.dtype.into(),
            );
        }
        column_sums(partial)
    }
}

/// Partial sums from which two steps are faster than one, where there are few columns and so few cubes.
const MANY_PARTIALS: usize = 1024;
/// Partial sums that one cube adds up in the first step.
const PARTIALS_PER_CUBE: usize = 128;
/// Cubes that fill a large GPU.
const MANY_CUBES: usize = 256;

/// The column sums of `[partials, width]`, `[1, width]`, in a fixed order.
pub(crate) fn column_sums<R: CubeRuntime>(partial: CubeTensor<R>) -> CubeTensor<R> {
    let (num_partials, width) = (partial.meta.shape()[0], partial.meta.shape()[1]);
    if num_partials == 1 {
        return partial;
    }
    let column_cubes = width.div_ceil(COLUMNS);
    let many = num_partials > MANY_PARTIALS && column_cubes < MANY_CUBES;
    let per_stretch = if many { PARTIALS_PER_CUBE } else { num_partials };
    let stretches = num_partials.div_ceil(per_stretch);
    let out = empty(&partial, [stretches, width], DType::F32);
    // SAFETY: the loops end at the sizes of the matrix.
    unsafe {
        column_sum_kernel::launch_unchecked::<R>(
            &out.client,
            CubeCount::Static(column_cubes as u32, stretches as u32, 1),
            CubeDim { x: COLUMNS as u32, y: SHARES as u32, z: 1 },
            address(&[&partial]),
            array(&partial),
            array(&out),
            PartialSizesArgs { partials: num_partials, width, per_stretch }.launch(),
        );
    }
    column_sums(out)
}
