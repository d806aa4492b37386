//! Page-locked host memory, which a device reads without a copy in between.

#[cfg(feature = "cuda")]
use super::device::make_current;

/// Page-locked memory.
pub(crate) struct PageLocked {
    start: *mut u8,
    len: usize,
    /// Number of the device whose context it belongs to.
    #[cfg(feature = "cuda")]
    device: usize,
}

// SAFETY: plain bytes, written by whoever has it for himself.
unsafe impl Send for PageLocked {}
// SAFETY: as above.
unsafe impl Sync for PageLocked {}

impl PageLocked {
    /// Takes `len` bytes, which say nothing yet.
    ///
    /// # Errors
    /// Says why there are none.
    #[cfg(feature = "cuda")]
    pub fn new(len: usize, device: usize) -> Result<Self, String> {
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

    /// No memory: this build locks none.
    ///
    /// # Errors
    /// Says so.
    #[cfg(not(feature = "cuda"))]
    pub fn new(_len: usize, _device: usize) -> Result<Self, String> {
        Err("this build has no CUDA support (feature `cuda`)".into())
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where they begin, for host and device.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// The bytes, to be written.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes from `start` on are ours, and whoever has them has them alone.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// Copies the first `bytes` to an address of the device that has room for them, and waits for that.
    ///
    /// # Errors
    /// Says what the driver says.
    pub fn copy_to(&self, address: u64, bytes: usize) -> Result<(), String> {
        assert!(bytes <= self.len, "page-locked memory: expected at most {} bytes, got {bytes}", self.len);
        #[cfg(feature = "cuda")]
        {
            // SAFETY: there are as many bytes, which nobody writes.
            let from = unsafe { std::slice::from_raw_parts(self.start, bytes) };
            let copied = make_current(self.device)
                // SAFETY: the caller's buffer has room, and nothing else is under way.
                .and_then(|()| unsafe { cudarc::driver::result::memcpy_htod_sync(address, from) });
            copied.map_err(|error| format!("{error:?}"))
        }
        #[cfg(not(feature = "cuda"))]
        {
            let _ = address;
            Err("this build has no CUDA support (feature `cuda`)".into())
        }
    }
}

impl Drop for PageLocked {
    fn drop(&mut self) {
        #[cfg(feature = "cuda")]
        if make_current(self.device).is_ok() {
            // SAFETY: `start` came from `malloc_host`.
            let _ = unsafe { cudarc::driver::result::free_host(self.start.cast()) };
        }
    }
}
