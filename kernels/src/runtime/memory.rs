//! Memory of a device as its allocator sees it.

use burn::tensor::backend::Backend;
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

/// Bytes that a device's allocator holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// In living tensors.
    pub in_use: u64,
    /// Taken from the driver: pages of the allocator, filled or not.
    pub reserved: u64,
}

impl DeviceMemory {
    /// The larger of either figure.
    pub fn max(self, other: Self) -> Self {
        Self { in_use: self.in_use.max(other.in_use), reserved: self.reserved.max(other.reserved) }
    }
}

/// Reads the memory of a device from any thread.
pub type MemoryProbe = Box<dyn Fn() -> DeviceMemory + Send>;

/// Backends whose memory can be looked at while they work.
pub trait MemoryBackend: Backend {
    /// A probe of what the calling thread computes on `device`; `None` for a backend that has no allocator of its own,
    /// whose memory is that of the process.
    fn memory_probe(device: &Self::Device) -> Option<MemoryProbe>;

    /// Bytes that are free on `device`: what the driver says, and of the CPU what the system has. `None` where neither
    /// tells.
    fn available_memory(device: &Self::Device) -> Option<u64>;
}

impl<B: MemoryBackend, C: CheckpointStrategy> MemoryBackend for Autodiff<B, C> {
    fn memory_probe(device: &Self::Device) -> Option<MemoryProbe> {
        B::memory_probe(device)
    }

    fn available_memory(device: &Self::Device) -> Option<u64> {
        B::available_memory(device)
    }
}

impl MemoryBackend for burn_flex::Flex {
    fn memory_probe(_device: &Self::Device) -> Option<MemoryProbe> {
        None
    }

    fn available_memory(_device: &Self::Device) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }
}

#[cfg(feature = "cube")]
crate::runtime::backends::impl_for_devices! { MemoryBackend =>
    fn memory_probe(device: &Self::Device) -> Option<MemoryProbe> {
        let mut client = <R as cubecl::Runtime>::client(device);
        // CubeCL counts per stream, and every thread has its own: the probe asks about the stream of this thread.
        let stream = client.empty(1).stream;
        // SAFETY: the client of the probe launches nothing, it only reads counters.
        unsafe { client.set_stream(stream) };
        Some(Box::new(move || {
            let usage = client.memory_usage();
            usage.map_or_else(
                |_| DeviceMemory::default(),
                |usage| DeviceMemory { in_use: usage.bytes_in_use, reserved: usage.bytes_reserved },
            )
        }))
    }

    fn available_memory(device: &Self::Device) -> Option<u64> {
        #[cfg(feature = "cuda")]
        if let Some(index) = super::device::cuda_index(device) {
            let free = super::device::make_current(index).and_then(|()| cudarc::driver::result::mem_get_info());
            return free.ok().map(|(free, _)| free as u64);
        }
        let _ = device;
        None
    }
}
