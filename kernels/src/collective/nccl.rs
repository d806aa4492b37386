//! Ranks with a CUDA device each, through NCCL: processes of one or of several hosts, or threads of one process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_backend::TensorMetadata;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::CudaDevice;
use cubecl::Runtime;
use cubecl::cuda::CudaRuntime;
use cubecl::server::Handle;
use cudarc::driver::{result as driver, sys as driver_sys};
use cudarc::nccl::result::{self as nccl, NcclError, NcclStatus};
use cudarc::nccl::sys;

use super::communicator::{COLLECTIVE_DEADLINE, Communicator};
use super::environment::Rendezvous;
use super::error::{CollectiveError, CollectiveFault};
use super::link::{Call, Collective, Traffic};
use super::operation::CollectiveOperation;
use super::presence::{Peers, Presence, lock};
use super::rendezvous;
use crate::runtime::backends::Cuda;
use crate::runtime::launch::empty;
use crate::runtime::turn::{SharedTurn, pause};

/// The first version that can be asked not to block.
const OLDEST: i32 = 21_400;

/// Bytes of what a rank says of its call, where that is compared.
const RECORD: usize = 256;

/// Between two looks at the device and at the other ranks, once an exchange takes longer than [`SHORT`].
const LOOK: Duration = Duration::from_micros(20);

/// So long a rank looks without a rest: a thread that sleeps wakes up some 50 microseconds late.
const SHORT: Duration = Duration::from_millis(2);

/// Waits a moment in an exchange that began at `start`.
fn rest(start: Instant) {
    match start.elapsed() < SHORT {
        true => std::hint::spin_loop(),
        false => std::thread::sleep(LOOK),
    }
}

/// A rank of a group over NCCL; see [`Communicator::nccl`].
#[derive(Clone, Debug)]
pub struct NcclConfig {
    /// The number of this process, from 0.
    pub rank: usize,
    /// How many processes there are.
    pub ranks: usize,
    /// Its device.
    pub device: CudaDevice,
    /// Where the ranks meet; needed by more than one.
    pub rendezvous: Option<Rendezvous>,
    /// How long a rank waits for the others in an exchange; to connect it is [`COLLECTIVE_DEADLINE`].
    pub deadline: Duration,
    /// Whether the ranks compare what they call before each exchange, which costs one more, of a few bytes. Without,
    /// ranks that disagree wait until the deadline, or get each other's numbers.
    pub compare_calls: bool,
}

/// The version of NCCL, such as `2.28.3`, or why it cannot be used.
///
/// # Errors
/// [`CollectiveFault::Library`] where it is missing or too old, with what to install.
pub fn probe_nccl() -> Result<String, CollectiveFault> {
    let help = "install NCCL 2.14 or newer (package libnccl2 or nvidia-nccl-cu12) and put a link `libnccl.so` to its \
                `libnccl.so.2` on LD_LIBRARY_PATH: that name is looked for";
    let library = |found: String| CollectiveFault::Library { found, help: help.into() };
    // SAFETY: it only tries to open a shared library.
    if !unsafe { sys::is_culib_present() } {
        return Err(library("libnccl.so (NCCL) was not found".into()));
    }
    let version = nccl::get_nccl_version().map_err(|error| library(format!("NCCL tells no version: {:?}", error.0)))?;
    let shown = format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100);
    if version < OLDEST { Err(library(format!("NCCL {shown} is too old"))) } else { Ok(shown) }
}

/// The first fields of NCCL's own settings, as its version 2.14 has them: it reads as many bytes as `size` says and
/// takes its defaults for the rest, so that one program fits every later version.
#[repr(C)]
struct Settings {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
    undefined: i32,
}

fn device_fault(what: &str, error: impl std::fmt::Debug) -> CollectiveFault {
    CollectiveFault::Device { reason: format!("{what}: {error:?}") }
}

fn checked(result: Result<NcclStatus, NcclError>) -> Result<(), CollectiveFault> {
    result.map(drop).map_err(|NcclError(code)| said(code))
}

fn said(code: sys::ncclResult_t) -> CollectiveFault {
    // SAFETY: the functions give constant strings and the last message; neither needs a communicator.
    let text = |pointer: *const std::ffi::c_char| match pointer.is_null() {
        true => String::new(),
        false => unsafe { std::ffi::CStr::from_ptr(pointer) }.to_string_lossy().trim().to_string(),
    };
    let (what, last) =
        unsafe { (text(sys::ncclGetErrorString(code)), text(sys::ncclGetLastError(std::ptr::null_mut()))) };
    let help = "run with NCCL_DEBUG=INFO to see more";
    let reason =
        if last.is_empty() { format!("NCCL: {what}; {help}") } else { format!("NCCL: {what}: {last}; {help}") };
    CollectiveFault::Device { reason }
}

/// What belongs to a rank at NCCL and the driver; used by one thread at a time.
#[derive(Debug)]
struct Resources {
    /// `None` once it is given up.
    comm: Option<sys::ncclComm_t>,
    stream: driver_sys::CUstream,
    event: driver_sys::CUevent,
    context: driver_sys::CUcontext,
}

// SAFETY: the handles belong to no thread; each use makes the context that of its thread.
unsafe impl Send for Resources {}

#[derive(Debug)]
struct NcclLink {
    rank: usize,
    ranks: usize,
    device: CudaDevice,
    deadline: Duration,
    compare_calls: bool,
    /// Whether others are threads of this process.
    together: bool,
    calls: AtomicU64,
    traffic: Mutex<Traffic>,
    resources: Mutex<Resources>,
    peers: Arc<Mutex<Peers>>,
    /// The other processes, where they met at an address.
    presence: Option<Presence>,
}

impl Resources {
    fn new(device: &CudaDevice) -> Result<Self, CollectiveFault> {
        let fault = |error| device_fault("the CUDA driver", error);
        let ordinal = i32::try_from(device.index).map_err(|error| device_fault("the number of a device", error))?;
        driver::init().map_err(fault)?;
        let of_driver = driver::device::get(ordinal).map_err(fault)?;
        // SAFETY: the device is there; the primary context is the one that CubeCL uses, and is kept for good as it
        // does.
        unsafe {
            let context = driver::primary_ctx::retain(of_driver).map_err(fault)?;
            driver::ctx::set_current(context).map_err(fault)?;
            let stream = driver::stream::create(driver::stream::StreamKind::NonBlocking).map_err(fault)?;
            let event = driver::event::create(driver_sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(fault)?;
            Ok(Self { comm: None, stream, event, context })
        }
    }

    fn comm(&self) -> Result<sys::ncclComm_t, CollectiveFault> {
        self.comm.ok_or_else(|| CollectiveFault::Aborted { reason: "its connection is closed".into() })
    }

    fn abort(&mut self) {
        if let Some(comm) = self.comm.take() {
            // SAFETY: it is taken out, so that nothing uses it again. What it says of its end changes nothing.
            let _ = unsafe { nccl::comm_abort(comm) };
        }
    }
}

impl Drop for Resources {
    fn drop(&mut self) {
        self.abort();
        // SAFETY: both were made in `new`, and nothing is queued any more.
        unsafe {
            if driver::ctx::set_current(self.context).is_ok() {
                let _ = driver::event::destroy(self.event);
                let _ = driver::stream::destroy(self.stream);
            }
        }
    }
}

/// A tensor's memory, kept while NCCL uses it.
struct Memory {
    address: u64,
    _kept: Option<Box<dyn std::any::Any>>,
}

impl Memory {
    fn of(client: &cubecl::client::ComputeClient<CudaRuntime>, handle: &Handle) -> Result<Self, CollectiveFault> {
        let resource = client.get_resource(handle.clone()).map_err(|error| device_fault("CubeCL", error))?;
        Ok(Self { address: resource.resource().ptr, _kept: Some(Box::new((resource, handle.clone()))) })
    }

    /// Of a tensor without elements there is none.
    fn of_tensor(tensor: &CubeTensor<CudaRuntime>) -> Result<Self, CollectiveFault> {
        match tensor.shape().num_elements() {
            0 => Ok(Self { address: 0, _kept: None }),
            _ => Self::of(&tensor.client, &tensor.handle),
        }
    }

    fn at(&self, bytes: usize) -> *mut std::ffi::c_void {
        (self.address + bytes as u64) as *mut std::ffi::c_void
    }
}

impl NcclLink {
    fn connect(
        config: &NcclConfig,
        id: sys::ncclUniqueId,
        together: bool,
        peers: Arc<Mutex<Peers>>,
        presence: Option<Presence>,
    ) -> Result<Self, CollectiveFault> {
        let mut resources = Resources::new(&config.device)?;
        let mut settings = Settings {
            size: size_of::<Settings>(),
            magic: 0xcafe_beef,
            version: OLDEST as u32,
            blocking: 0,
            undefined: i32::MIN,
        };
        let mut comm = std::ptr::null_mut();
        let settings: *mut Settings = &mut settings;
        // SAFETY: the communicator is written to memory of ours, and the settings have the size that they tell.
        let begun = unsafe {
            nccl::comm_init_rank_config(&mut comm, config.ranks as i32, id, config.rank as i32, settings.cast())
        };
        resources.comm = (!comm.is_null()).then_some(comm);
        checked(begun)?;
        let mut link = Self {
            rank: config.rank,
            ranks: config.ranks,
            device: config.device.clone(),
            deadline: COLLECTIVE_DEADLINE,
            compare_calls: config.compare_calls && config.ranks > 1,
            together,
            calls: AtomicU64::new(0),
            traffic: Mutex::default(),
            resources: Mutex::new(resources),
            peers,
            presence,
        };
        let mut resources = lock(&link.resources);
        let connected = link.settle(&resources, Instant::now(), 0);
        if connected.is_err() {
            resources.abort();
        }
        drop(resources);
        link.deadline = config.deadline;
        connected.map(|()| link)
    }

    /// What another rank of this process says about call `call`, or that time is up.
    fn watch(&self, start: Instant, call: u64) -> Result<(), CollectiveFault> {
        let peers = lock(&self.peers);
        if let Some(failed) = &peers.failed {
            return Err(failed.fault.seen_from(self.rank, failed.rank));
        }
        if let Some((rank, _, reason)) = peers.left.iter().find(|(_, calls, _)| *calls <= call) {
            return Err(CollectiveFault::Lost { rank: *rank, reason: (*reason).into() });
        }
        match start.elapsed() > self.deadline {
            true => Err(CollectiveFault::Late { missing: Vec::new(), after: self.deadline }),
            false => Ok(()),
        }
    }

    /// Waits until NCCL has done what it does on the host; an error of another rank shows here.
    fn settle(&self, resources: &Resources, start: Instant, call: u64) -> Result<(), CollectiveFault> {
        loop {
            let mut state = sys::ncclResult_t::ncclSuccess;
            // SAFETY: the communicator is one that is not given up.
            checked(unsafe { sys::ncclCommGetAsyncError(resources.comm()?, &mut state) }.result())?;
            match state {
                sys::ncclResult_t::ncclSuccess => return Ok(()),
                sys::ncclResult_t::ncclInProgress => self.watch(start, call)?,
                error => return Err(said(error)),
            }
            rest(start);
        }
    }

    /// Queues what `queue` does as one group of NCCL and waits for its end on the device.
    fn run(
        &self,
        resources: &Resources,
        call: u64,
        queue: impl FnOnce(sys::ncclComm_t, sys::cudaStream_t) -> Result<(), CollectiveFault>,
    ) -> Result<(), CollectiveFault> {
        let start = Instant::now();
        let fault = |error| device_fault("the CUDA driver", error);
        let comm = resources.comm()?;
        checked(nccl::group_start())?;
        let queued = queue(comm, resources.stream.cast());
        let ended = checked(nccl::group_end());
        queued.and(ended)?;
        self.settle(resources, start, call)?;
        // SAFETY: event and stream are of the context that is current.
        unsafe { driver::event::record(resources.event, resources.stream) }.map_err(fault)?;
        loop {
            match unsafe { driver::event::query(resources.event) } {
                Ok(()) => return Ok(()),
                Err(driver::DriverError(driver_sys::CUresult::CUDA_ERROR_NOT_READY)) => {}
                Err(error) => return Err(fault(error)),
            }
            self.settle(resources, start, call)?;
            self.watch(start, call)?;
            rest(start);
        }
    }

    /// Compares what the ranks say of their calls.
    fn compare(&self, resources: &Resources, call: u64, said: &str) -> Result<(), CollectiveFault> {
        let mut record = said.as_bytes().to_vec();
        record.resize(RECORD, 0);
        let client = CudaRuntime::client(&self.device);
        let (own, all) = (client.create_from_slice(&record), client.empty(RECORD * self.ranks));
        let (from, to) = (Memory::of(&client, &own)?, Memory::of(&client, &all)?);
        Cuda::sync(&self.device).map_err(|error| device_fault("CubeCL", error))?;
        self.run(resources, call, |comm, stream| {
            // SAFETY: both buffers have the sizes that are told, and are kept until the end.
            checked(unsafe {
                nccl::all_gather(from.at(0), to.at(0), RECORD, sys::ncclDataType_t::ncclUint8, comm, stream)
            })
        })?;
        let all = client.read_one(all).map_err(|error| device_fault("CubeCL", error))?;
        if all.chunks(RECORD).all(|other| other == record) {
            return Ok(());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string();
        Err(CollectiveFault::Disagreement { found: all.chunks(RECORD).map(text).collect() })
    }

    fn exchanged(
        &self,
        resources: &Resources,
        number: u64,
        call: Call<'_>,
        x: CubeTensor<CudaRuntime>,
    ) -> Result<CubeTensor<CudaRuntime>, CollectiveFault> {
        let Call { operation, backward_of } = call;
        if self.together && backward_of.is_some() && !SharedTurn::is_joined() {
            return Err(CollectiveFault::Apart);
        }
        // SAFETY: the context was made with the resources.
        unsafe { driver::ctx::set_current(resources.context) }
            .map_err(|error| device_fault("the CUDA driver", error))?;
        let stored = x.dtype;
        let shape: Vec<usize> = x.shape().iter().copied().collect();
        let output = operation.output(self.rank, self.ranks, &shape, stored)?;
        Cuda::sync(&self.device).map_err(|error| device_fault("CubeCL", error))?;
        let own_is_done = Instant::now();
        if self.compare_calls {
            self.compare(resources, number, &operation.described(backward_of, &shape, stored))?;
        }
        let adds = matches!(operation, CollectiveOperation::AllReduce | CollectiveOperation::ReduceScatter { .. });
        let somewhere = shape.iter().product::<usize>() > 0;
        // Sums of 16-bit values are made in f32.
        let x = match somewhere && adds && stored != DType::F32 {
            true => cast(x, DType::F32),
            false => x,
        };
        let dtype = if adds { DType::F32 } else { stored };
        // Rows of CUDA may have gaps.
        let x = if somewhere { into_contiguous(x) } else { x };
        let out = empty(&x, output.clone(), dtype);
        let (from, to) = (Memory::of_tensor(&x)?, Memory::of_tensor(&out)?);
        // What comes before on the streams of CubeCL is done, and so is the memory of the result.
        Cuda::sync(&self.device).map_err(|error| device_fault("CubeCL", error))?;
        let width: usize = shape.iter().skip(1).product();
        let parts = Parts { rank: self.rank, width, dtype, from: &from, to: &to };
        self.run(resources, number, |comm, stream| parts.queue(operation, shape.iter().product(), comm, stream))?;
        let bytes = output.iter().product::<usize>() * dtype.size();
        lock(&self.traffic).add(bytes, own_is_done);
        Ok(match dtype == stored || output.iter().product::<usize>() == 0 {
            true if dtype == stored => out,
            true => empty(&out, output, stored),
            false => cast(out, stored),
        })
    }
}

/// What of an exchange is this rank's.
struct Parts<'a> {
    rank: usize,
    width: usize,
    dtype: DType,
    from: &'a Memory,
    to: &'a Memory,
}

impl Parts<'_> {
    fn queue(
        &self,
        operation: &CollectiveOperation,
        elements: usize,
        comm: sys::ncclComm_t,
        stream: sys::cudaStream_t,
    ) -> Result<(), CollectiveFault> {
        let kind = match self.dtype {
            DType::F16 => sys::ncclDataType_t::ncclFloat16,
            DType::BF16 => sys::ncclDataType_t::ncclBfloat16,
            _ => sys::ncclDataType_t::ncclFloat32,
        };
        let (from, to, sum) = (self.from, self.to, sys::ncclRedOp_t::ncclSum);
        let bytes = |rows: usize| rows * self.width * self.dtype.size();
        let first = |counts: &[usize], rank: usize| counts[..rank].iter().sum::<usize>();
        let even = |rows: &[usize]| rows.iter().all(|count| *count == rows[0]);
        let send = |start: usize, rows: usize, peer: usize| match rows * self.width {
            0 => Ok(()),
            // SAFETY: as below.
            count => checked(unsafe { nccl::send(from.at(bytes(start)), count, kind, peer as i32, comm, stream) }),
        };
        let receive = |start: usize, rows: usize, peer: usize| match rows * self.width {
            0 => Ok(()),
            // SAFETY: as below.
            count => checked(unsafe { nccl::recv(to.at(bytes(start)), count, kind, peer as i32, comm, stream) }),
        };
        // SAFETY: `operation` was checked against the shapes of both tensors, whose memory is contiguous and kept until
        // the end of the exchange.
        unsafe {
            match operation {
                CollectiveOperation::AllGather { rows } if !even(rows) => {
                    for (peer, &count) in rows.iter().enumerate() {
                        send(0, rows[self.rank], peer)?;
                        receive(first(rows, peer), count, peer)?;
                    }
                    Ok(())
                }
                CollectiveOperation::ReduceScatter { rows } if !even(rows) => {
                    for (root, count) in rows.iter().map(|rows| rows * self.width).enumerate().filter(|of| of.1 > 0) {
                        let at = from.at(bytes(first(rows, root)));
                        checked(nccl::reduce(at, to.at(0), count, kind, sum, root as i32, comm, stream))?;
                    }
                    Ok(())
                }
                CollectiveOperation::AllToAll { send: sent, receive: received } => {
                    for peer in 0..sent.len() {
                        send(first(sent, peer), sent[peer], peer)?;
                        receive(first(received, peer), received[peer], peer)?;
                    }
                    Ok(())
                }
                // All ranks have the same number of elements here.
                _ if elements == 0 => Ok(()),
                CollectiveOperation::AllReduce | CollectiveOperation::Barrier | CollectiveOperation::Backward => {
                    checked(nccl::all_reduce(from.at(0), to.at(0), elements, kind, sum, comm, stream))
                }
                CollectiveOperation::AllGather { .. } => {
                    checked(nccl::all_gather(from.at(0), to.at(0), elements, kind, comm, stream))
                }
                CollectiveOperation::ReduceScatter { rows } => {
                    let count = rows[self.rank] * self.width;
                    checked(nccl::reduce_scatter(from.at(0), to.at(0), count, kind, sum, comm, stream))
                }
                CollectiveOperation::Broadcast { root } => {
                    checked(nccl::broadcast(from.at(0), to.at(0), elements, kind, *root as i32, comm, stream))
                }
            }
        }
    }
}

impl Collective<Cuda> for NcclLink {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn traffic(&self) -> Traffic {
        *lock(&self.traffic)
    }

    fn exchange(&self, call: Call<'_>, x: CubeTensor<CudaRuntime>) -> Result<CubeTensor<CudaRuntime>, CollectiveError> {
        let operation = call.operation.name();
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = self.failure(operation) {
            return Err(error);
        }
        // Within a backward pass the turn is that of all ranks.
        let _pause = (self.together && call.backward_of.is_none()).then(pause);
        let mut resources = lock(&self.resources);
        self.exchanged(&resources, number, call, x).map_err(|fault| {
            let error = CollectiveError { rank: self.rank, operation, fault };
            lock(&self.peers).failed.get_or_insert(error.clone());
            // Ranks elsewhere that wait for this one see that it is gone.
            resources.abort();
            error
        })
    }

    fn failure(&self, operation: &'static str) -> Option<CollectiveError> {
        let peers = lock(&self.peers);
        let fault = peers.failed.as_ref().map(|failed| failed.fault.seen_from(self.rank, failed.rank))?;
        Some(CollectiveError { rank: self.rank, operation, fault })
    }

    fn fail(&self, error: CollectiveError) {
        lock(&self.peers).failed.get_or_insert(error);
        lock(&self.resources).abort();
    }

    fn leave(&self) {
        let panics = std::thread::panicking();
        let reason = if panics { "its thread panicked" } else { "it was dropped" };
        let failed = {
            let mut peers = lock(&self.peers);
            peers.left.push((self.rank, self.calls(), reason));
            peers.failed.is_some()
        };
        // Without this word it is lost to the other processes.
        if let Some(presence) = self.presence.as_ref().filter(|_| !panics && !failed) {
            presence.leave(self.calls());
        }
        // Ranks elsewhere are told by the end of the connection, not by waiting for their deadline.
        if panics {
            lock(&self.resources).abort();
        }
    }
}

fn new_id() -> Result<sys::ncclUniqueId, CollectiveFault> {
    nccl::get_uniqueid().map_err(|NcclError(code)| said(code))
}

impl Communicator<Cuda> {
    /// This process as one rank of a group over NCCL, on one or several hosts. All ranks call it; it comes back when
    /// all are connected, or with an error when the deadline is over. NCCL is loaded at run time, see [`probe_nccl`].
    ///
    /// Ranks meet where [`NcclConfig::rendezvous`] says, which [`LaunchEnvironment`](crate::LaunchEnvironment) reads.
    /// NCCL's calls come back at once and are watched: an exchange waits on the host for its end, for an error of
    /// another rank and for the deadline, and gives the connection up after an error, which the other ranks then see.
    /// Where they meet at an address they keep the connections that they met by: a process that ends without leaving is
    /// an error on all others at once. Over `NCCL_COMM_ID` only NCCL can tell, which may take until the deadline.
    /// Sums are made in the order that NCCL chooses; those of 16-bit values in f32.
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn nccl(config: NcclConfig) -> Result<Self, CollectiveError> {
        let connect = || {
            probe_nccl()?;
            let argument = |argument, expected: String, found: String| {
                Err(CollectiveFault::Argument { argument, expected, found })
            };
            let NcclConfig { rank, ranks, .. } = config;
            if ranks == 0 || rank >= ranks || i32::try_from(ranks).is_err() {
                return argument("rank", "a rank below the number of ranks".into(), format!("{rank} of {ranks}"));
            }
            let peers = Arc::default();
            let mut presence = None;
            let id = match &config.rendezvous {
                // Every rank's id is then the address, and rank 0 listens there.
                Some(Rendezvous::OfNccl(address)) => match std::env::var("NCCL_COMM_ID") {
                    Ok(set) if set == *address => new_id()?,
                    set => {
                        return argument("NCCL_COMM_ID", format!("{address} in the environment"), format!("{set:?}"));
                    }
                },
                Some(Rendezvous::Address(address)) => {
                    let (bytes, kept) = rendezvous::share(address, rank, ranks, COLLECTIVE_DEADLINE, || {
                        Ok(new_id()?.internal.map(|byte| byte as u8))
                    })?;
                    let watched = Presence::watch(rank, kept, &peers);
                    let fault = |error: std::io::Error| CollectiveFault::Address {
                        address: address.clone(),
                        reason: error.to_string(),
                    };
                    presence = Some(watched.map_err(fault)?);
                    sys::ncclUniqueId { internal: bytes.map(|byte| byte as std::ffi::c_char) }
                }
                None if ranks == 1 => new_id()?,
                None => return argument("rendezvous", "where the ranks meet".into(), "none".into()),
            };
            NcclLink::connect(&config, id, false, peers, presence)
        };
        let (rank, device) = (config.rank, config.device.clone());
        match connect() {
            Ok(link) => Ok(Self::of(Arc::new(link), device, None)),
            Err(fault) => Err(CollectiveError { rank, operation: "connect", fault }),
        }
    }

    /// A group of threads of this process with a device each, over NCCL; otherwise as [`nccl`](Self::nccl).
    ///
    /// # Errors
    /// For every [`CollectiveFault`].
    pub fn nccl_threads(
        devices: &[CudaDevice],
        deadline: Duration,
        compare_calls: bool,
    ) -> Result<Vec<Self>, CollectiveError> {
        let failed = |rank, fault| CollectiveError { rank, operation: "connect", fault };
        probe_nccl().map_err(|fault| failed(0, fault))?;
        let id = new_id().map_err(|fault| failed(0, fault))?;
        let peers: Arc<Mutex<Peers>> = Arc::default();
        let ranks = devices.len();
        let turn = (ranks > 1).then(|| Arc::new(SharedTurn::default()));
        let connect = |(rank, device): (usize, &CudaDevice)| {
            let device = device.clone();
            let config = NcclConfig { rank, ranks, device, rendezvous: None, deadline, compare_calls };
            NcclLink::connect(&config, id, ranks > 1, peers.clone(), None).map_err(|fault| {
                let error = failed(rank, fault);
                lock(&peers).failed.get_or_insert(error.clone());
                error
            })
        };
        // Each of them waits for the others.
        let connect = &connect;
        let links = std::thread::scope(|scope| {
            let threads: Vec<_> = devices.iter().enumerate().map(|of| scope.spawn(move || connect(of))).collect();
            let lost = |rank| CollectiveFault::Lost { rank, reason: "its thread panicked".into() };
            let link = |(rank, thread): (usize, std::thread::ScopedJoinHandle<'_, _>)| {
                thread.join().unwrap_or_else(|_| Err(failed(rank, lost(rank))))
            };
            threads.into_iter().enumerate().map(link).collect::<Result<Vec<NcclLink>, CollectiveError>>()
        })?;
        let rank = |(link, device): (NcclLink, &CudaDevice)| Self::of(Arc::new(link), device.clone(), turn.clone());
        Ok(links.into_iter().zip(devices).map(rank).collect())
    }
}
