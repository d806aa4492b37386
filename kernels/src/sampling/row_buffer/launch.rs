//! Rows on CubeCL devices.

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;

use super::RowBufferBackend;
use cubecl::prelude::AddressType;

use super::kernel::{FetchedRowsArgs, MovesArgs, PutRowsArgs, fetch_rows_kernel, move_rows_kernel, put_rows_kernel};
use crate::runtime::args::{ExtentArgs, array};
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{PlanePerRow, Rows, address, flat, vector_width};

/// The matrix itself where nobody else holds it, else a copy.
fn own<R: CubeRuntime>(target: CubeTensor<R>) -> Rows<R> {
    let rows = Rows::of(target);
    if rows.tensor.can_mut() { rows } else { Rows::of(rows.tensor.copy()) }
}

/// Where a tensor lies in the one space of addresses that CUDA has for host and device.
fn address_of<R: CubeRuntime>(tensor: &CubeTensor<R>) -> Option<u64> {
    #[cfg(feature = "cuda")]
    {
        type OfCuda = CubeTensor<crate::runtime::backends::CudaRuntime>;
        let tensor = (tensor as &dyn std::any::Any).downcast_ref::<OfCuda>()?;
        let resource = tensor.client.get_resource(tensor.handle.clone()).ok()?;
        Some(resource.resource().ptr)
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = tensor;
        None
    }
}

impl_for_devices! { RowBufferBackend =>
    fn put_rows(
        target: FloatTensor<Self>,
        source: FloatTensor<Self>,
        from: Option<IntTensor<Self>>,
        to: IntTensor<Self>,
        len: usize,
    ) -> FloatTensor<Self> {
        let (target, source) = (own(target), Rows::of(source));
        let v = vector_width(target.width, &[&target, &source]);
        let geometry = PlanePerRow::of(&target.tensor.client);
        let listed = from.is_some();
        // SAFETY: `RowBuffer` checked the rows of both lists.
        unsafe {
            put_rows_kernel::launch_unchecked::<R>(
                &target.tensor.client,
                geometry.count(len),
                geometry.dim,
                address(&[&source.tensor, &target.tensor]),
                v,
                PutRowsArgs { rows: source.matrix(v), from: array(from.as_ref().unwrap_or(&to)), to: array(&to) }
                    .launch(),
                target.matrix(v),
                ExtentArgs { rows: len, vectors: target.width / v }.launch(),
                listed,
                target.tensor.dtype.into(),
            );
        }
        target.tensor
    }

    fn move_rows(
        target: FloatTensor<Self>,
        from: IntTensor<Self>,
        to: IntTensor<Self>,
        len: usize,
    ) -> FloatTensor<Self> {
        let target = own(target);
        let v = vector_width(target.width, &[&target]);
        let geometry = PlanePerRow::of(&target.tensor.client);
        // SAFETY: `RowBuffer` checked the rows of both lists.
        unsafe {
            move_rows_kernel::launch_unchecked::<R>(
                &target.tensor.client,
                geometry.count(len),
                geometry.dim,
                address(&[&target.tensor]),
                v,
                target.matrix(v),
                MovesArgs { from: array(&from), to: array(&to) }.launch(),
                ExtentArgs { rows: len, vectors: target.width / v }.launch(),
                target.tensor.dtype.into(),
            );
        }
        target.tensor
    }

    fn address(tensor: &FloatTensor<Self>) -> Option<u64> {
        address_of(tensor)
    }

    fn int_address(tensor: &IntTensor<Self>) -> Option<u64> {
        address_of(tensor)
    }

    fn fetch_rows(
        target: FloatTensor<Self>,
        anchor: &IntTensor<Self>,
        delta: usize,
        rows: IntTensor<Self>,
        to: IntTensor<Self>,
        len: usize,
    ) -> FloatTensor<Self> {
        let target = own(target);
        let v = vector_width(target.width, &[&target]);
        let vectors = target.width / v;
        let (count, dim) = flat(len * vectors);
        // SAFETY: `RowBuffer` checked the rows of both lists; `PinnedRows` keeps the memory behind the anchor, whose
        // address kernels of this device read.
        unsafe {
            fetch_rows_kernel::launch_unchecked::<R>(
                &target.tensor.client,
                count,
                dim,
                AddressType::U64,
                v,
                FetchedRowsArgs {
                    anchor: array(anchor),
                    // Distances are multiples of 16 bytes, and wrap around below the anchor.
                    delta: ((delta as i64) / v as i64) as usize,
                    rows: array(&rows),
                    to: array(&to),
                }
                .launch(),
                target.matrix(v),
                ExtentArgs { rows: len, vectors }.launch(),
                target.tensor.dtype.into(),
            );
        }
        target.tensor
    }

    fn rows_at(target: &FloatTensor<Self>, first: usize, rows: usize) -> FloatTensor<Self> {
        let mut part = target.clone();
        let bytes = first * part.meta.strides()[0] * part.dtype.size();
        if bytes > 0 {
            part.handle = part.handle.offset_start(bytes as u64);
        }
        part.meta.shape_mut()[0] = rows;
        part
    }
}
