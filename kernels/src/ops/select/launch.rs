//! Selection on CubeCL devices.

use burn_backend::TensorMetadata;
use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeRuntime, kernel::into_contiguous};

use super::kernel::{SelectInputsArgs, SelectShape, add_kernel, select_kernel};
use super::{SelectBackend, Side};
use crate::runtime::args::{ExtentArgs, array};
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, Target, address, empty, f32_vector, vector_width, zeros};

impl_for_devices! { SelectBackend =>
    fn select_forward(
        x: FloatTensor<Self>,
        from: &Side<IntTensor<Self>>,
        to: &Side<IntTensor<Self>>,
        scale: Option<FloatTensor<Self>>,
        accumulate_into: Option<FloatTensor<Self>>,
    ) -> FloatTensor<Self> {
        let (rows, width) = (x.meta.shape()[0], x.meta.shape()[1]);
        let len = to.as_ref().map_or_else(|| from.as_ref().map_or(rows, |f| f.num_nodes), |t| t.len);
        if let Some(accumulate_into) = accumulate_into {
            let out = Target::of(Some(accumulate_into), &x, [len, width], x.dtype);
            return add(x, from, to, scale, out);
        }
        let out = empty(&x, [len, width], x.dtype);
        if out.shape().num_elements() == 0 {
            return out;
        }
        if rows == 0 {
            return into_contiguous(zeros(&x, [len, width], x.dtype));
        }
        let x = Rows::of(x);
        let v = vector_width(width, &[&x]);
        let geometry = PlanePerRow::of(&out.client);
        let shape = SelectShape { from: from.is_some(), to: to.is_some(), scale: scale.is_some() };
        // An argument that the kernel does not read still needs a buffer.
        let nodes = to.as_ref().map_or_else(|| out.clone(), |t| t.rows.clone());
        let place = from.as_ref().map_or_else(|| nodes.clone(), |f| f.position.clone());
        let scale = scale.map_or_else(|| out.clone(), f32_vector);
        // SAFETY: positions were made from the set that `x` has a row for each node of.
        unsafe {
            select_kernel::launch_unchecked::<R>(
                &out.client,
                geometry.count(len),
                geometry.dim,
                address(&[&x.tensor, &out]),
                v,
                SelectInputsArgs { x: x.matrix(v), nodes: array(&nodes), place: array(&place), scale: array(&scale) }
                    .launch(),
                array(&out),
                ExtentArgs { rows: len, vectors: width / v }.launch(),
                shape,
                x.tensor.dtype.into(),
            );
        }
        out
    }
}

/// Walks the rows of `x`, so that no other row of `out` is touched.
fn add<R: CubeRuntime>(
    x: CubeTensor<R>,
    from: &Side<CubeTensor<R>>,
    to: &Side<CubeTensor<R>>,
    scale: Option<CubeTensor<R>>,
    out: Target<R>,
) -> CubeTensor<R> {
    let (x, out) = (Rows::of(x), out.rows);
    if x.num_rows * out.num_rows * out.width == 0 {
        return out.tensor;
    }
    let v = vector_width(out.width, &[&x, &out]);
    let geometry = PlanePerRow::of(&out.tensor.client);
    let shape = SelectShape { from: from.is_some(), to: to.is_some(), scale: scale.is_some() };
    // An argument that the kernel does not read still needs a buffer.
    let unread = || x.tensor.clone();
    let nodes = from.as_ref().map_or_else(unread, |f| f.rows.clone());
    let place = to.as_ref().map_or_else(unread, |t| t.position.clone());
    let scale = scale.map_or_else(unread, f32_vector);
    // SAFETY: positions were made from the set that `out` has a row for each node of.
    unsafe {
        add_kernel::launch_unchecked::<R>(
            &out.tensor.client,
            geometry.count(x.num_rows),
            geometry.dim,
            address(&[&x.tensor, &out.tensor]),
            v,
            SelectInputsArgs { x: x.matrix(v), nodes: array(&nodes), place: array(&place), scale: array(&scale) }
                .launch(),
            out.matrix(v),
            x.extent(v),
            shape,
            x.tensor.dtype.into(),
        );
    }
    out.tensor
}
