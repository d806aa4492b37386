//! Rows in page-locked host memory, which a device reads without a copy in between.

use std::fmt;

use burn::tensor::DType;
use burn::tensor::ops::IntTensor;

use super::RowBufferBackend;
use crate::runtime::device::cuda_index;
use crate::runtime::host::index_tensor;
use crate::runtime::page_locked::PageLocked;

/// A matrix in page-locked host memory under an address that kernels read, too.
///
/// Kernels get it as what lies behind a small tensor of theirs: addresses of host and device are one space where this
/// works at all, which is on CUDA.
pub struct PinnedRows<B: RowBufferBackend> {
    memory: PageLocked,
    /// A tensor of the device from which the distance is counted.
    anchor: IntTensor<B>,
    /// Elements from the anchor to the first row.
    delta: usize,
    rows: usize,
    width: usize,
    dtype: DType,
    device: B::Device,
}

impl<B: RowBufferBackend> fmt::Debug for PinnedRows<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedRows({} x {}, {:?})", self.rows, self.width, self.dtype)
    }
}

impl<B: RowBufferBackend> PinnedRows<B> {
    /// Takes page-locked memory for a matrix, which `fill` writes byte by byte, row after row.
    ///
    /// # Errors
    /// Says why there is none: a device whose kernels do not read host memory, or a system that does not lock as much.
    pub fn new(
        [rows, width]: [usize; 2],
        dtype: DType,
        device: &B::Device,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Self, String> {
        let anchor = index_tensor::<B>(vec![0; 64], device);
        let Some(address) = B::int_address(&anchor) else {
            return Err("kernels of this device do not read host memory".into());
        };
        let mut memory = PageLocked::new(rows * width * dtype.size(), cuda_index(device).unwrap_or_default())?;
        fill(memory.bytes());
        let distance = memory.address().wrapping_sub(address) as i64;
        // Vectors of 16 bytes are read.
        if distance % 16 != 0 {
            return Err(format!(
                "page-locked memory lies {distance} bytes from the device's, which is no multiple of 16"
            ));
        }
        let delta = (distance / dtype.size() as i64) as usize;
        Ok(Self { memory, anchor, delta, rows, width, dtype, device: device.clone() })
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How a value is stored.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of page-locked memory.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Copies the first `rows` rows to an address of the device that has room for them.
    pub(super) fn copy_to(&self, address: u64, rows: usize) -> Result<(), String> {
        self.memory.copy_to(address, rows * self.width * self.dtype.size())
    }

    pub(crate) fn anchor(&self) -> &IntTensor<B> {
        &self.anchor
    }

    pub(crate) fn delta(&self) -> usize {
        self.delta
    }
}

impl<B: RowBufferBackend> Drop for PinnedRows<B> {
    fn drop(&mut self) {
        // Kernels that read the rows may be under way. A device that has failed reads nothing.
        let _ = B::sync(&self.device);
    }
}
