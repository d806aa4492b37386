//! Rows in page-locked host memory, which a device reads without a copy in between.

use std::fmt;

use burn::tensor::DType;
use burn::tensor::ops::IntTensor;

use super::RowBufferBackend;
use crate::runtime::host::index_tensor;

/// A matrix in page-locked host memory under an address that kernels read, too.
///
/// Kernels get it as what lies behind a small tensor of theirs: addresses of host and device are one space where this
/// works at all, which is on CUDA.
pub struct PinnedRows<B: RowBufferBackend> {
    memory: Locked,
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
        let mut memory = Locked::new(rows * width * dtype.size(), index(device))?;
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
        self.memory.len
    }

    /// Copies the first `rows` rows to an address of the device that has room for them.
    pub(super) fn copy_to(&self, address: u64, rows: usize) -> Result<(), String> {
        #[cfg(feature = "cuda")]
        {
            let bytes = rows * self.width * self.dtype.size();
            // SAFETY: there are as many bytes, which nobody writes.
            let from = unsafe { std::slice::from_raw_parts(self.memory.start, bytes) };
            let copied = make_current(self.memory.device)
                // SAFETY: the caller's buffer has room, and nothing else is under way.
                .and_then(|()| unsafe { cudarc::driver::result::memcpy_htod_sync(address, from) });
            copied.map_err(|error| format!("{error:?}"))
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (address, rows);
            Err("this build has no CUDA support (feature `cuda`)".into())
        }
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

/// Page-locked memory.
struct Locked {
    start: *mut u8,
    len: usize,
    /// Number of the device whose context it belongs to.
    #[cfg(feature = "cuda")]
    device: usize,
}

// SAFETY: plain bytes; nobody writes them once they are filled.
unsafe impl Send for Locked {}
// SAFETY: as above.
unsafe impl Sync for Locked {}

impl Locked {
    #[cfg(feature = "cuda")]
    fn new(len: usize, device: usize) -> Result<Self, String> {
        use cudarc::driver::{result, sys};
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let locked = make_current(device).and_then(|()| {
            // SAFETY: a context is current; the memory is given back once, on drop.
            unsafe { result::malloc_host(len.max(1), flags) }
        });
        match locked {
            Ok(start) => Ok(Self { start: start.cast(), len, device }),
            Err(error) => Err(format!("the system does not lock {len} bytes of memory: {error:?}")),
        }
    }

    #[cfg(not(feature = "cuda"))]
    fn new(_len: usize, _device: usize) -> Result<Self, String> {
        Err("this build has no CUDA support (feature `cuda`)".into())
    }

    fn address(&self) -> u64 {
        self.start as u64
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes from `start` on are ours, and nobody else has them yet.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        #[cfg(feature = "cuda")]
        if make_current(self.device).is_ok() {
            // SAFETY: `start` came from `malloc_host`.
            let _ = unsafe { cudarc::driver::result::free_host(self.start.cast()) };
        }
    }
}

/// Makes the context current that CubeCL uses.
#[cfg(feature = "cuda")]
fn make_current(index: usize) -> Result<(), cudarc::driver::DriverError> {
    use cudarc::driver::result::{ctx, device, primary_ctx};
    // SAFETY: the device exists, since a tensor lies on it; its primary context lives as long as CubeCL's client.
    unsafe { ctx::set_current(primary_ctx::retain(device::get(index as i32)?)?) }
}

/// Number of a CUDA device; 0 of others.
fn index<D: 'static>(_device: &D) -> usize {
    #[cfg(feature = "cuda")]
    if let Some(device) = (_device as &dyn std::any::Any).downcast_ref::<burn_cuda::CudaDevice>() {
        return device.index;
    }
    0
}
