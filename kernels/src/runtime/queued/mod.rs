//! Short arrays on their way to a CUDA device, which fetches them when their turn in its queue comes.
//!
//! What CubeCL is given to upload lies in memory that the driver copies itself, if it is not very short, once the
//! device has done all that was asked of it before; no kernel is launched meanwhile. Here it lies in page-locked
//! memory, from where a kernel fetches it, and the host waits for nothing.

#[cfg(feature = "cuda")]
mod cuda;

use std::any::Any;
#[cfg(feature = "cuda")]
use std::any::TypeId;

use burn::tensor::DType;

/// Bytes of what is queued. Shorter arrays the driver takes along with the command; longer ones are what a run begins
/// with.
#[cfg(feature = "cuda")]
const QUEUED: std::ops::RangeInclusive<usize> = (1 << 16) + 1..=32 << 20;

/// A vector that `fill` writes, as the primitive `T` of its backend. `None` where it goes another way: to other
/// devices, of values that do not have 32 bits, too short or too long, or where the system locks no memory.
pub(crate) fn queued<T: 'static>(len: usize, dtype: DType, device: &dyn Any, fill: &dyn Fn(&mut [u8])) -> Option<T> {
    #[cfg(feature = "cuda")]
    {
        let is_one = dtype.size() == size_of::<u32>() && QUEUED.contains(&(len * size_of::<u32>()));
        if !is_one || TypeId::of::<T>() != TypeId::of::<cuda::OfCuda>() {
            return None;
        }
        let there = cuda::queued(len, dtype, device.downcast_ref()?, fill)?;
        (Box::new(there) as Box<dyn Any>).downcast().ok().map(|there| *there)
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = (len, dtype, device, fill);
        None
    }
}
