//! Page-locked memory from which a CUDA device fetches arrays.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::CudaDevice;
use cubecl::prelude::*;

use crate::runtime::args::array;
use crate::runtime::backends::CudaRuntime;
use crate::runtime::launch::{empty, flat, part};
use crate::runtime::page_locked::PageLocked;

pub(super) type OfCuda = CubeTensor<CudaRuntime>;

/// Words that a thread fetches at a time.
const VECTOR: usize = 4;
/// Bytes in front of an array; the first four count what the device has fetched from this memory.
const HEAD: usize = 64;

/// Page-locked memory of every device that was uploaded to. It is kept: to lock memory takes longer than to fill it.
static POOLS: Mutex<Vec<Pool>> = Mutex::new(Vec::new());

struct Pool {
    device: CudaDevice,
    /// A tensor of the device, and its address: host memory is what lies so far behind it.
    anchor: OfCuda,
    address: u64,
    /// Those that nobody fills.
    slots: Vec<Slot>,
}

/// Memory for one array at a time.
struct Slot {
    memory: PageLocked,
    /// How many arrays were sent from it.
    sent: u32,
}

fn pools() -> MutexGuard<'static, Vec<Pool>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A vector of `len` values of 32 bits, which `fill` writes. `None` where the system locks no memory.
pub(super) fn queued(len: usize, dtype: DType, device: &CudaDevice, fill: &dyn Fn(&mut [u8])) -> Option<OfCuda> {
    let bytes = len * dtype.size();
    let room = bytes.next_multiple_of(VECTOR * size_of::<u32>());
    let (mut slot, anchor, distance) = taken(HEAD + room, device)?;
    fill(&mut slot.memory.bytes()[HEAD..][..bytes]);
    slot.sent = slot.sent.wrapping_add(1);
    let out = empty(&anchor, [room / dtype.size()], dtype);
    let vectors = room / (VECTOR * size_of::<u32>());
    let (count, dim) = flat(vectors);
    // Both are multiples of a vector, and wrap around where host memory lies below the anchor.
    let words = |bytes: usize| ((distance + bytes as i64) / size_of::<u32>() as i64) as usize;
    let first = (words(HEAD) as i64 / VECTOR as i64) as usize;
    // SAFETY: kernels of this device read and write page-locked memory under its own address. The slot has the array
    // and in front of it a count, and nobody fills it again before the count says that the first kernel is done.
    unsafe {
        fetch_kernel::launch_unchecked::<CudaRuntime>(
            &out.client,
            count,
            dim,
            AddressType::U64,
            VECTOR,
            array(&anchor),
            first,
            array(&out),
            vectors,
        );
        count_kernel::launch_unchecked::<CudaRuntime>(
            &out.client,
            CubeCount::Static(1, 1, 1),
            CubeDim { x: 1, y: 1, z: 1 },
            AddressType::U64,
            array(&anchor),
            words(0),
            slot.sent,
        );
    }
    if let Some(pool) = pools().iter_mut().find(|pool| pool.device == *device) {
        pool.slots.push(slot);
    }
    Some(part(&out, 0, len))
}

/// Memory that the device no longer reads, the anchor, and the bytes from there to the memory.
fn taken(bytes: usize, device: &CudaDevice) -> Option<(Slot, OfCuda, i64)> {
    let mut pools = pools();
    let at = match pools.iter().position(|pool| pool.device == *device) {
        Some(at) => at,
        None => {
            pools.push(Pool::new(device)?);
            pools.len() - 1
        }
    };
    let Pool { anchor, address, slots, .. } = &mut pools[at];
    let fits = |slot: &Slot| slot.memory.len() >= bytes && slot.is_free();
    let smallest = (0..slots.len()).filter(|&at| fits(&slots[at])).min_by_key(|&at| slots[at].memory.len());
    let slot = match smallest {
        Some(at) => slots.swap_remove(at),
        None => Slot::new(bytes.next_power_of_two(), device)?,
    };
    let distance = slot.memory.address().wrapping_sub(*address) as i64;
    Some((slot, anchor.clone(), distance)).filter(|_| distance % (VECTOR * size_of::<u32>()) as i64 == 0)
}

impl Pool {
    /// `None` of a device that failed.
    fn new(device: &CudaDevice) -> Option<Self> {
        let client = CudaRuntime::client(device);
        let handle = client.empty(HEAD);
        let address = client.get_resource(handle.clone()).ok()?.resource().ptr;
        let shape = [HEAD / size_of::<u32>()].into();
        let anchor = OfCuda::new_contiguous(client, device.clone(), shape, handle, DType::I32);
        Some(Self { device: device.clone(), anchor, address, slots: Vec::new() })
    }
}

impl Slot {
    fn new(bytes: usize, device: &CudaDevice) -> Option<Self> {
        let mut memory = PageLocked::new(bytes, device.index).ok()?;
        memory.bytes()[..HEAD].fill(0);
        Some(Self { memory, sent: 0 })
    }

    /// Whether the device has fetched all that was sent.
    fn is_free(&self) -> bool {
        // SAFETY: the first word of the memory, which is aligned to a page, and which from here on the device alone
        // writes.
        let fetched = unsafe { AtomicU32::from_ptr(self.memory.address() as *mut u32) };
        fetched.load(Ordering::Acquire) == self.sent
    }
}

/// Vectors that begin `first` vectors behind `anchor`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn fetch_kernel<N: Size>(
    anchor: &Array<Vector<u32, N>>,
    first: usize,
    out: &mut Array<Vector<u32, N>>,
    vectors: usize,
) {
    let mut at = ABSOLUTE_POS;
    while at < vectors {
        out[at] = anchor[first + at];
        at += CUBE_COUNT * CUBE_DIM as usize;
    }
}

/// Writes a count `place` words behind `anchor`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn count_kernel(anchor: &mut Array<u32>, place: usize, count: u32) {
    if ABSOLUTE_POS == 0 {
        anchor[place] = count;
    }
}
