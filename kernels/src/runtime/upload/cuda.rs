//! Page-locked memory between the host and a CUDA device.

use std::any::Any;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use burn::tensor::ops::FloatTensor;
use burn_autodiff::Autodiff;
use burn_cubecl::tensor::CubeTensor;
use cudarc::driver::result::{DriverError, ctx, event, memcpy_dtoh_async, memcpy_htod_async, stream};
use cudarc::driver::sys;

use super::{Fill, Floats, PIECE, pieces};
use crate::runtime::backends::{Cuda, CudaRuntime};
use crate::runtime::device::{context_of, failure};
use crate::runtime::page_locked::PageLocked;

/// Threads that write at a time, at most. One writes a few GB/s, new pages of a mapped file fewer; a device fetches 25
/// to 50 of them.
const MAX_THREADS: usize = 8;

/// Those that nobody uses. They are kept, since locking memory takes as long as filling it several times.
static RINGS: Mutex<Vec<Ring>> = Mutex::new(Vec::new());

/// Lets `fill` write a new tensor; whether it did. What fails here goes CubeCL's way, on which it is told.
pub(super) fn cross(tensor: &dyn Any, fill: &Fill<'_>) -> bool {
    of_cuda(tensor).is_some_and(|tensor| crossed(tensor, fill).is_some())
}

fn of_cuda(tensor: &dyn Any) -> Option<&CubeTensor<CudaRuntime>> {
    let recorded = || tensor.downcast_ref::<FloatTensor<Autodiff<Cuda>>>().map(|tensor| &tensor.primitive);
    tensor.downcast_ref().or_else(recorded)
}

fn crossed(tensor: &CubeTensor<CudaRuntime>, fill: &Fill<'_>) -> Option<()> {
    let area = Area::of(tensor)?;
    with_ring(tensor, |ring, address| ring.copy(&area, address, fill))
}

/// Writes the values of a vector to host memory; whether it did, as [`cross`].
pub(super) fn back(tensor: &dyn Any, to: &mut [f32], floats: &Floats) -> bool {
    let vector = of_cuda(tensor).filter(|tensor| *tensor.meta.shape().as_slice() == [to.len()]);
    let vector = vector.filter(|tensor| tensor.meta.strides()[0] == 1);
    vector.is_some_and(|tensor| {
        let size = tensor.dtype.size();
        with_ring(tensor, |ring, address| ring.copy_back(address, size, to, floats)).is_some()
    })
}

/// Gives `work` a ring and where the device has a tensor; `None` where it fails.
fn with_ring(
    tensor: &CubeTensor<CudaRuntime>,
    work: impl FnOnce(&mut Ring, u64) -> Result<(), DriverError>,
) -> Option<()> {
    let mut ring = Ring::taken(tensor.device.index)?;
    // What was asked of CubeCL before is queued on the device once an answer is here. Where it found no memory there is
    // nothing to write to.
    let _ = tensor.client.memory_usage();
    if failure().is_some() {
        return None;
    }
    let memory = tensor.client.get_resource(tensor.handle.clone()).ok()?;
    work(&mut ring, memory.resource().ptr).ok()?;
    ring.give_back();
    Some(())
}

/// The memory of a tensor, which has gaps between rows where those would not end at a multiple of what a device reads
/// at once.
struct Area {
    /// Bytes of what lies without a gap: a row, or an element where there are none.
    unit: usize,
    /// Bytes from one to the next.
    pitch: usize,
    count: usize,
}

impl Area {
    /// `None` of rows that are longer than a piece.
    fn of(tensor: &CubeTensor<CudaRuntime>) -> Option<Self> {
        let (size, shape) = (tensor.dtype.size(), tensor.meta.shape());
        let rank = shape.len();
        let len: usize = shape.iter().product();
        let row = shape[rank - 1] * size;
        let pitch = if rank > 1 { tensor.meta.strides()[rank - 2] * size } else { row };
        let area = match pitch == row {
            true => Self { unit: size, pitch: size, count: len },
            false => Self { unit: row, pitch, count: len * size / row },
        };
        (area.unit <= PIECE).then_some(area)
    }
}

/// The driver's names of a context and of a stream in it.
#[derive(Clone, Copy)]
struct Queue {
    context: sys::CUcontext,
    stream: sys::CUstream,
}

// SAFETY: the driver takes both from any thread, also from several at once.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

/// When what was last sent from a piece has been read.
struct Sent(sys::CUevent);

// SAFETY: as for a `Queue`.
unsafe impl Send for Sent {}
// SAFETY: as above.
unsafe impl Sync for Sent {}

/// Page-locked memory for a piece per thread.
struct Ring {
    device: usize,
    memory: PageLocked,
    queue: Queue,
    sent: Vec<Sent>,
}

impl Ring {
    /// One that nobody uses, or a new one.
    fn taken(device: usize) -> Option<Self> {
        let kept = {
            let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
            rings.iter().position(|ring| ring.device == device).map(|at| rings.swap_remove(at))
        };
        kept.or_else(|| Self::new(device).ok())
    }

    fn new(device: usize) -> Result<Self, String> {
        let threads = available_parallelism().map_or(1, usize::from).clamp(2, MAX_THREADS);
        let memory = PageLocked::new(threads * PIECE, device)?;
        let made = || -> Result<Self, DriverError> {
            let context = context_of(device)?;
            // SAFETY: the context is that of CubeCL, which keeps it.
            unsafe { ctx::set_current(context) }?;
            let queue = Queue { context, stream: stream::create(stream::StreamKind::NonBlocking)? };
            let mut ring = Self { device, memory, queue, sent: Vec::with_capacity(threads) };
            for _ in 0..threads {
                ring.sent.push(Sent(event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?));
            }
            Ok(ring)
        };
        made().map_err(|error| format!("{error:?}"))
    }

    fn give_back(self) {
        RINGS.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }

    /// Lets `fill` write the memory of the device at `address`.
    fn copy(&mut self, area: &Area, address: u64, fill: &Fill<'_>) -> Result<(), DriverError> {
        // CubeCL hands memory out in the order of its stream: what was there before may still be read, and the driver
        // may not even have it yet. So all streams are done before another one writes there, and that one is done
        // before CubeCL hears of anything that reads it.
        self.queue.enter()?;
        ctx::synchronize()?;
        let queue = self.queue;
        let memory = self.memory.bytes().chunks_exact_mut(PIECE);
        let rooms = memory.zip(&self.sent).map(|(memory, sent)| Piece { memory, sent, queue, area, address });
        pieces::send(rooms, [PIECE, area.unit, area.count], fill)?;
        self.queue.end()
    }

    /// Lets `floats` read pieces of the memory of the device at `address`, of `size` bytes a value.
    fn copy_back(&mut self, address: u64, size: usize, to: &mut [f32], floats: &Floats) -> Result<(), DriverError> {
        // What writes there may be on its way.
        self.queue.enter()?;
        ctx::synchronize()?;
        let at_once = PIECE / size;
        let (queue, count) = (self.queue, to.len().div_ceil(at_once));
        let parts = Mutex::new(to.chunks_mut(at_once).enumerate());
        let work = |(memory, sent): (&mut [u8], &Sent)| -> Result<(), DriverError> {
            queue.enter()?;
            loop {
                let Some((piece, to)) = parts.lock().unwrap_or_else(PoisonError::into_inner).next() else {
                    return Ok(());
                };
                let memory = &mut memory[..to.len() * size];
                // SAFETY: the tensor has these values, which nobody writes; the memory is read when they are there.
                unsafe {
                    memcpy_dtoh_async(memory, address + (piece * at_once * size) as u64, queue.stream)?;
                    event::record(sent.0, queue.stream)?;
                    event::synchronize(sent.0)?;
                }
                floats(memory, to);
            }
        };
        pieces::on_threads(self.memory.bytes().chunks_exact_mut(PIECE).zip(&self.sent).take(count), work)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // A piece may still be read, where another one failed. What the driver says of the end changes nothing.
        let _ = self.queue.enter().and_then(|()| self.queue.end());
        // SAFETY: all were made in `new`, and are not used again.
        unsafe {
            for sent in &self.sent {
                let _ = event::destroy(sent.0);
            }
            let _ = stream::destroy(self.queue.stream);
        }
    }
}

impl Queue {
    /// Makes the context that of this thread.
    fn enter(&self) -> Result<(), DriverError> {
        // SAFETY: the context is that of CubeCL, which keeps it.
        unsafe { ctx::set_current(self.context) }
    }

    /// Waits until all that was sent has been read.
    fn end(&self) -> Result<(), DriverError> {
        // SAFETY: the stream is there as long as the ring.
        unsafe { stream::synchronize(self.stream) }
    }
}

/// What a thread has to write and to send a piece.
struct Piece<'a> {
    memory: &'a mut [u8],
    sent: &'a Sent,
    queue: Queue,
    area: &'a Area,
    address: u64,
}

impl pieces::Room for Piece<'_> {
    type Error = DriverError;

    fn free(&mut self) -> Result<&mut [u8], DriverError> {
        self.queue.enter()?;
        // SAFETY: the event is there as long as the ring; one that was never recorded is over.
        unsafe { event::synchronize(self.sent.0) }?;
        Ok(self.memory)
    }

    fn send(&mut self, first: usize, units: usize) -> Result<(), DriverError> {
        let Area { unit, pitch, .. } = *self.area;
        let (from, to) = (&self.memory[..units * unit], self.address + (first * pitch) as u64);
        // SAFETY: the tensor has these units, which no other thread writes and nobody reads yet; `free` waits before
        // the memory is written again.
        unsafe {
            match pitch == unit {
                true => memcpy_htod_async(to, from, self.queue.stream)?,
                false => copy_rows(from, [unit, units], to, pitch, self.queue.stream)?,
            }
            event::record(self.sent.0, self.queue.stream)
        }
    }
}

/// Copies rows to rows that are `pitch` bytes apart.
///
/// # Safety
/// There are rows of so many bytes on both sides, and they stay until the copy is over.
unsafe fn copy_rows(
    from: &[u8],
    [width, rows]: [usize; 2],
    to: u64,
    pitch: usize,
    stream: sys::CUstream,
) -> Result<(), DriverError> {
    let copy = sys::CUDA_MEMCPY2D_st {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        srcHost: from.as_ptr().cast(),
        srcDevice: 0,
        srcArray: std::ptr::null_mut(),
        srcPitch: width,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: std::ptr::null_mut(),
        dstDevice: to,
        dstArray: std::ptr::null_mut(),
        dstPitch: pitch,
        WidthInBytes: width,
        Height: rows,
    };
    // SAFETY: the caller's.
    unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream) }.result()
}
