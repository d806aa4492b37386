//! Partition of rows on CubeCL devices.

use std::ops::Range;

use burn::tensor::DType;
use burn_backend::tensor::IntTensor;

use super::PartitionBackend;
use super::kernel::{BinOf, FeaturePlaceArgs, SidesArgs, SidesInputsArgs, SpanArgs, copy_back_kernel, sides_kernel};
use crate::runtime::args::array;
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{address, empty, flat};
use crate::runtime::prims::partition_on_device;
use crate::trees::histogram::{BinParts, Storage, TILE_FEATURES};

impl_for_devices! { PartitionBackend =>
    fn partition_rows(
        rows: &mut IntTensor<Self>,
        span: Range<usize>,
        bins: &BinParts<IntTensor<Self>>,
        feature: usize,
        goes_left: &IntTensor<Self>,
    ) {
        let len = span.len();
        let (of, column, byte, values, row_ptr) = match &bins.storage {
            Storage::Dense(dense) => {
                let [column, byte] = dense.places[feature];
                if byte == TILE_FEATURES {
                    (BinOf::Word, column, 0, &dense.wide, &bins.offsets)
                } else {
                    // An argument that the kernel does not read still needs a buffer.
                    (BinOf::Byte, column, byte, &dense.words, &bins.offsets)
                }
            }
            Storage::Sparse(sparse) => (BinOf::Entry, 0, 0, &sparse.entries, &sparse.row_ptr),
        };
        let place = FeaturePlaceArgs {
            first: column * bins.num_rows,
            shift: 8 * byte as u32,
            start: bins.spans[feature].start as i32,
            end: bins.spans[feature].end as i32,
            left_out: bins.left_outs[feature].unwrap_or(0) as i32,
        };
        let copy = empty(rows, [len], DType::I32);
        let flags = empty(rows, [len], DType::I32);
        let (count, dim) = flat(len);
        // SAFETY: span, rows and bins were checked against each other, and there is a mark for every bin.
        unsafe {
            sides_kernel::launch_unchecked::<R>(
                &rows.client,
                count.clone(),
                dim,
                address(&[values]),
                SidesInputsArgs {
                    rows: array(rows),
                    bins: array(values),
                    row_ptr: array(row_ptr),
                    goes_left: array(goes_left),
                }
                .launch(),
                SidesArgs { copy: array(&copy), flags: array(&flags) }.launch(),
                place.launch(),
                SpanArgs { start: span.start, len }.launch(),
                of,
            );
        }
        let (parted, _) = partition_on_device(&copy, &flags);
        // SAFETY: the span is inside the list, which nobody else holds.
        unsafe {
            copy_back_kernel::launch_unchecked::<R>(
                &rows.client,
                count,
                dim,
                array(&parted),
                array(rows),
                SpanArgs { start: span.start, len }.launch(),
            );
        }
    }
}
