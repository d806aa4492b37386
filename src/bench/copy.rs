//! The copy bandwidth of the device: what no operator that reads and writes memory can beat for long.

use std::hint::black_box;

use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use rayon::prelude::*;

use super::clock::time;
use crate::error::Result;

/// Far above any cache.
const PROCESSOR_BYTES: usize = 256 << 20;
/// Long enough that the launch of one copy does not count.
const CUDA_BYTES: usize = 1 << 30;
/// The largest buffer that every Vulkan driver binds.
const VULKAN_BYTES: usize = 128 << 20;
/// Copies per timed run.
const COPIES: usize = 4;
/// What one thread copies at a time.
const PART: usize = 1 << 18;

/// Bytes read and written per second by the fastest plain copy of a large array, as the median of `runs`.
///
/// # Errors
/// A device that fails, for example for want of memory.
pub fn bandwidth<B: Backend>(device_name: &str, runs: usize, device: &B::Device) -> Result<f64> {
    let (bytes, times) = match device_name {
        "cpu" => {
            let source = vec![1.0f32; PROCESSOR_BYTES / size_of::<f32>()];
            let mut target = vec![0.0f32; source.len()];
            let copy = || {
                for _ in 0..COPIES {
                    let parts = target.par_chunks_mut(PART).zip(black_box(&source).par_chunks(PART));
                    parts.for_each(|(target, source)| target.copy_from_slice(source));
                    black_box(&mut target);
                }
                Ok(())
            };
            (PROCESSOR_BYTES, time::<B>(device, runs, copy)?)
        }
        gpu => {
            let bytes = if gpu.starts_with("cuda") { CUDA_BYTES } else { VULKAN_BYTES };
            let source = Tensor::<B, 1>::ones([bytes / size_of::<f32>()], (device, DType::F32));
            let copy = || {
                for _ in 0..COPIES {
                    // Into a new tensor, because `source` lives on.
                    let _ = source.clone().mul_scalar(1.5);
                }
                Ok(())
            };
            let times = time::<B>(device, runs, copy)?;
            drop(source);
            B::memory_cleanup(device);
            (bytes, times)
        }
    };
    Ok((2 * COPIES * bytes) as f64 / (times.median_ms / 1e3))
}
