//! Segments on CubeCL devices.

use burn::tensor::DType;
use burn_backend::tensor::FloatTensor;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::kernel::{PartArgs, join_kernel};
use super::{Segments, SegmentsBackend};
use crate::runtime::backends::impl_for_devices;
use crate::runtime::launch::{address, empty, f32_vector};

/// Tensors of one launch, where the device binds as many: the kernel has a branch for each.
const MAX_PARTS: usize = 32;

/// Bindings that are no tensor: the result, and what CubeCL adds.
const OTHER_BINDINGS: usize = 3;

const THREADS: usize = 256;

/// Most cubes of one tensor; they stride over it.
const MAX_CUBES: usize = 1024;

impl_for_devices! { SegmentsBackend =>
    fn join_segments(
        parts: Vec<Option<FloatTensor<Self>>>,
        segments: &Segments,
        device: &Self::Device,
    ) -> FloatTensor<Self> {
        let client = R::client(device);
        let handle = client.empty(segments.total() * size_of::<f32>());
        let out =
            CubeTensor::new_contiguous(client.clone(), device.clone(), [segments.total()].into(), handle, DType::F32);
        let bindings = client.properties().hardware.max_bindings as usize;
        let per_launch = bindings.saturating_sub(OTHER_BINDINGS).clamp(1, MAX_PARTS);
        let bounds: Vec<_> = segments.starts.windows(2).map(|w| (w[0], w[1])).collect();
        for (parts, bounds) in parts.chunks(per_launch).zip(bounds.chunks(per_launch)) {
            let longest = bounds.iter().map(|(start, end)| end - start).max().unwrap_or(0);
            if longest == 0 {
                continue;
            }
            let mut args = SequenceArg::new();
            for (part, &(start, end)) in parts.iter().zip(bounds) {
                // A tensor that is missing or empty still needs a buffer.
                let part = part.as_ref().filter(|p| p.meta.shape().num_elements() > 0);
                let tensor = part.unwrap_or(&out);
                let len = part.map_or(0, |p| p.meta.shape().num_elements());
                let [width, row_stride, column_stride] = match part {
                    Some(p) => [p.meta.shape()[1].max(1), p.meta.strides()[0], p.meta.strides()[1]],
                    None => [1, 0, 0],
                };
                let values = tensor.clone().into_array_arg();
                args.push(PartArgs { values, width, row_stride, column_stride, len, start, end }.launch());
            }
            let read: Vec<&CubeTensor<R>> = parts.iter().flatten().chain([&out]).collect();
            // SAFETY: every tensor is read within its shape and strides, and written within its segment.
            unsafe {
                join_kernel::launch_unchecked::<R>(
                    &client,
                    CubeCount::Static(longest.div_ceil(THREADS).min(MAX_CUBES) as u32, parts.len() as u32, 1),
                    CubeDim::new_1d(THREADS as u32),
                    address(&read),
                    args,
                    out.clone().into_array_arg(),
                );
            }
        }
        out
    }

    fn segment(whole: FloatTensor<Self>, start: usize, len: usize) -> FloatTensor<Self> {
        if len == 0 {
            return empty(&whole, [0], DType::F32);
        }
        let whole = f32_vector(whole);
        let bytes = |elements: usize| (elements * size_of::<f32>()) as u64;
        let behind = whole.handle.size_in_used() - bytes(start + len);
        let handle = whole.handle.offset_start(bytes(start)).offset_end(behind);
        CubeTensor::new_contiguous(whole.client, whole.device, [len].into(), handle, DType::F32)
    }
}
