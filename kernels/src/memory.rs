//! Memory of a device as its allocator sees it.

use burn::tensor::backend::Backend;

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
}

impl MemoryBackend for burn_flex::Flex {
    fn memory_probe(_device: &Self::Device) -> Option<MemoryProbe> {
        None
    }
}

#[cfg(feature = "cube")]
impl<R, F, I, BT> MemoryBackend for burn_cubecl::CubeBackend<R, F, I, BT>
where
    R: burn_cubecl::CubeRuntime,
    F: burn_cubecl::FloatElement,
    I: burn_cubecl::IntElement,
    BT: burn_cubecl::element::BoolElement,
{
    fn memory_probe(device: &Self::Device) -> Option<MemoryProbe> {
        let mut client = R::client(device);
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
}
