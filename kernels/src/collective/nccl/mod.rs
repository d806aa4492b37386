//! Ranks with a CUDA device each, through NCCL: processes of one or of several hosts, or threads of one process.

mod parts;
mod resources;
mod watch;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_backend::TensorMetadata;
use burn_backend::tensor::IntTensor;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::CudaDevice;
use cubecl::Runtime;
use cubecl::cuda::CudaRuntime;
use cudarc::nccl::result::{self as nccl, NcclError};
use cudarc::nccl::sys;

use self::parts::{Parts, sum_of_own};
pub use self::resources::probe_nccl;
use self::resources::{Events, HOST_WAITS, Memory, OLDEST, Resources, checked, device_fault, said};
use self::watch::{Connection, OnDevice};
use super::communicator::{COLLECTIVE_DEADLINE, Communicator};
use super::environment::Rendezvous;
use super::error::{CollectiveError, CollectiveFault};
use super::link::{Begun, Call, Collective, Place, Traffic};
use super::operation::CollectiveOperation;
use super::presence::{Peers, Presence, lock};
use super::rendezvous;
use crate::runtime::backends::Cuda;
use crate::runtime::launch::empty;
use crate::runtime::turn::{SharedTurn, pause};

/// Bytes of what a rank says of its call, where that is compared.
const RECORD: usize = 256;

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
    /// Whether the ranks compare what they call before each exchange that they have not made before, which costs one
    /// more, of a few bytes. Without, ranks that disagree wait until the deadline, or get each other's numbers.
    pub compare_calls: bool,
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

#[derive(Debug)]
struct NcclLink {
    ranks: usize,
    device: CudaDevice,
    compare_calls: bool,
    /// Whether others are threads of this process.
    together: bool,
    /// Whether the device waits for exchanges by itself, and not the host.
    ordered: bool,
    /// Whether it does where they begin.
    at_once: AtomicBool,
    calls: AtomicU64,
    /// Calls that were compared: what they are, and in a backward pass how many there are since that of the forward
    /// pass.
    compared: Mutex<HashSet<(String, Option<u64>)>>,
    connection: Arc<Connection>,
    watch: Option<JoinHandle<()>>,
    /// The other processes, where they met at an address.
    presence: Option<Presence>,
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
        let ordered = resources.is_ordered();
        let mut connection = Connection::new(config.rank, COLLECTIVE_DEADLINE, resources, peers);
        {
            let mut resources = lock(&connection.resources);
            let connected = connection.settle(&resources, Instant::now(), 0);
            if connected.is_err() {
                resources.abort();
            }
            connected?;
        }
        connection.deadline = config.deadline;
        let connection = Arc::new(connection);
        let watch = connection.watched().map_err(|error| device_fault("a thread that watches exchanges", error))?;
        Ok(Self {
            ranks: config.ranks,
            device: config.device.clone(),
            compare_calls: config.compare_calls && config.ranks > 1,
            together,
            ordered,
            at_once: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            compared: Mutex::default(),
            connection,
            watch: Some(watch),
            presence,
        })
    }

    /// Waits for the device where it does not wait by itself.
    fn own_is_done(&self) -> Result<(), CollectiveFault> {
        match self.ordered {
            true => Ok(()),
            false => Cuda::sync(&self.device).map_err(|error| device_fault("CubeCL", error)),
        }
    }

    /// Queues what `queue` does as one group of NCCL, behind what the device has to do already; its events. `bytes` are
    /// those of its result, where it counts.
    fn run(
        &self,
        (call, operation): (u64, &'static str),
        bytes: Option<usize>,
        queue: impl FnOnce(sys::ncclComm_t, sys::cudaStream_t) -> Result<(), CollectiveFault>,
    ) -> Result<Arc<Events>, CollectiveFault> {
        self.own_is_done()?;
        let (connection, start) = (&self.connection, Instant::now());
        let events = connection.events()?;
        {
            let resources = lock(&connection.resources);
            let comm = resources.comm()?;
            resources.begin(&events)?;
            checked(nccl::group_start())?;
            let queued = queue(comm, resources.stream());
            let ended = checked(nccl::group_end());
            queued.and(ended)?;
            connection.settle(&resources, start, call)?;
            resources.end(&events)?;
        }
        connection.add(OnDevice { call, operation, events: events.clone(), bytes });
        // Threads hand over their turn only while they wait.
        if self.together || !self.ordered {
            connection.settled().map_err(|error| error.fault)?;
        }
        Ok(events)
    }

    /// Compares what the ranks say of their calls.
    fn compare(&self, call: (u64, &'static str), said: &str) -> Result<(), CollectiveFault> {
        let mut record = said.as_bytes().to_vec();
        record.resize(RECORD, 0);
        let client = CudaRuntime::client(&self.device);
        let (own, all) = (client.create_from_slice(&record), client.empty(RECORD * self.ranks));
        let (from, to) = (Memory::of(&client, &own)?, Memory::of(&client, &all)?);
        self.run(call, None, |comm, stream| {
            // SAFETY: both buffers have the sizes that are told, and are kept until the end.
            checked(unsafe {
                nccl::all_gather(from.at(0), to.at(0), RECORD, sys::ncclDataType_t::ncclUint8, comm, stream)
            })
        })?;
        self.connection.settled().map_err(|error| error.fault)?;
        let all = client.read_one(all).map_err(|error| device_fault("CubeCL", error))?;
        if all.chunks(RECORD).all(|other| other == record) {
            return Ok(());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string();
        Err(CollectiveFault::Disagreement { found: all.chunks(RECORD).map(text).collect() })
    }

    fn begun(
        &self,
        number: u64,
        Call { operation, backward_of }: Call<'_>,
        x: CubeTensor<CudaRuntime>,
    ) -> Result<Begun<Cuda>, CollectiveFault> {
        if self.together && backward_of.is_some() && !SharedTurn::is_joined() {
            return Err(CollectiveFault::Apart);
        }
        lock(&self.connection.resources).enter()?;
        let (rank, ranks, stored) = (self.connection.rank, self.ranks, x.dtype);
        let shape: Vec<usize> = x.shape().iter().copied().collect();
        let output = operation.output(rank, ranks, &shape, stored)?;
        let of_call = (number, operation.name());
        if self.compare_calls {
            let call = (operation.described(None, &shape, stored), backward_of.map(|of| number - of));
            if lock(&self.compared).insert(call) {
                self.compare(of_call, &operation.described(backward_of, &shape, stored))?;
            }
        }
        let elements: usize = shape.iter().product();
        // Sums of 16-bit values are made in f32.
        let widened = elements > 0 && *operation == CollectiveOperation::AllReduce && stored != DType::F32;
        let x = if widened { cast(x, DType::F32) } else { x };
        // Rows of CUDA may have gaps.
        let x = if elements > 0 { into_contiguous(x) } else { x };
        let out = match operation {
            // The others' parts of its own rows.
            CollectiveOperation::ReduceScatter { .. } => empty(&x, [(ranks - 1) * output[0], output[1]], x.dtype),
            _ => empty(&x, output.clone(), x.dtype),
        };
        let (from, to) = (Memory::of_tensor(&x)?, Memory::of_tensor(&out)?);
        let width: usize = shape.iter().skip(1).product();
        let parts = Parts { rank, width, dtype: x.dtype, from: &from, to: &to };
        let bytes = output.iter().product::<usize>() * x.dtype.size();
        let events = self.run(of_call, Some(bytes), |comm, stream| parts.queue(operation, elements, comm, stream))?;
        let (connection, operation) = (self.connection.clone(), operation.clone());
        let mut crossing = Crossing { connection, events: Some(events), operation: of_call.1, x, out };
        if self.at_once.load(Ordering::Relaxed) {
            crossing.end().map_err(|error| error.fault)?;
        }
        Ok(Begun::new(move |_| {
            crossing.end()?;
            let (x, out) = (crossing.x.clone(), crossing.out.clone());
            drop(crossing);
            Ok(match operation {
                CollectiveOperation::ReduceScatter { rows } => sum_of_own(x, out, &rows, rank),
                _ if widened => cast(out, stored),
                _ => out,
            })
        }))
    }
}

/// An exchange on the device: its memory is handed out to nobody before the streams of CubeCL wait for it.
struct Crossing {
    connection: Arc<Connection>,
    /// Until they wait.
    events: Option<Arc<Events>>,
    operation: &'static str,
    x: CubeTensor<CudaRuntime>,
    out: CubeTensor<CudaRuntime>,
}

impl Crossing {
    /// Lets the streams of CubeCL wait for it, from what is asked of them from here on.
    fn end(&mut self) -> Result<(), CollectiveError> {
        let Some(events) = self.events.take() else { return Ok(()) };
        let wait = || {
            // What was asked of CubeCL before does not wait.
            let _queued = Memory::of_tensor(&self.out)?;
            lock(&self.connection.resources).wait(&events)
        };
        let waits = wait();
        waits.map_err(|fault| self.connection.fail(self.operation, fault))
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        // An error is that of the group, which tells it.
        let _ = self.end();
    }
}

impl Drop for NcclLink {
    fn drop(&mut self) {
        self.connection.close();
        // It panics nowhere, and nobody asks.
        let _ = self.watch.take().map(JoinHandle::join);
    }
}

impl Collective<Cuda> for NcclLink {
    fn rank(&self) -> usize {
        self.connection.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn traffic(&self) -> Traffic {
        self.connection.traffic()
    }

    fn begin(&self, call: Call<'_>, x: CubeTensor<CudaRuntime>) -> Result<Begun<Cuda>, CollectiveError> {
        let operation = call.operation.name();
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = self.failure(operation) {
            return Err(error);
        }
        // Within a backward pass the turn is that of all ranks.
        let _pause = (self.together && call.backward_of.is_none()).then(pause);
        self.connection.make_room()?;
        self.begun(number, call, x).map_err(|fault| self.connection.fail(operation, fault))
    }

    fn exchange_ids(
        &self,
        operation: &CollectiveOperation,
        x: IntTensor<Cuda>,
    ) -> Result<IntTensor<Cuda>, CollectiveError> {
        self.begin(Call { operation, backward_of: None }, x)?.end(Place::default())
    }

    fn settled(&self) -> Result<(), CollectiveError> {
        let _pause = self.together.then(pause);
        self.connection.settled()
    }

    fn end_at_once(&self, at_once: bool) -> bool {
        self.at_once.store(at_once, Ordering::Relaxed);
        self.ordered && !self.together && self.ranks > 1
    }

    fn note(&self) -> Option<String> {
        (self.ranks > 1 && !self.ordered).then(|| {
            format!(
                "the host waits for every exchange between devices: {HOST_WAITS} is set, or the driver is older than \
                 CUDA 12.5, from which on they wait for each other"
            )
        })
    }

    fn failure(&self, operation: &'static str) -> Option<CollectiveError> {
        self.connection.failure(operation)
    }

    fn fail(&self, error: CollectiveError) {
        self.connection.fail(error.operation, error.fault);
    }

    fn leave(&self) {
        let panics = std::thread::panicking();
        if !panics {
            // What is on the device needs the connection; an error has been told, or tells the others nothing new.
            let _ = self.settled();
        }
        let rank = self.connection.rank;
        let reason = if panics { "its thread panicked" } else { "it was dropped" };
        let failed = {
            let mut peers = lock(&self.connection.peers);
            peers.left.push((rank, self.calls(), reason));
            peers.failed.is_some()
        };
        // Without this word it is lost to the other processes.
        if let Some(presence) = self.presence.as_ref().filter(|_| !panics && !failed) {
            presence.leave(self.calls());
        }
        // Ranks elsewhere are told by the end of the connection, not by waiting for their deadline.
        if panics {
            lock(&self.connection.resources).abort();
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
    /// NCCL's calls come back at once and are watched: a thread waits for the end of each exchange, for an error of
    /// another rank and for the deadline, and gives the connection up after an error, which the other ranks then see.
    /// The device waits for exchanges by itself where its driver is of CUDA 12.5 or later; else, and where
    /// `GRAPHSIEVE_HOST_WAITS` is set, the host does, which [`note`](Self::note) says.
    /// Where they meet at an address they keep the connections that they met by: a process that ends without leaving is
    /// an error on all others at once. Over `NCCL_COMM_ID` only NCCL can tell, which may take until the deadline.
    /// Sums of rows are made in the order of the ranks, others in one that NCCL chooses; those of 16-bit values in f32.
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
