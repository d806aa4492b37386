//! Ranks with a CUDA device each, through NCCL: processes of one or of several hosts, or threads of one process.

mod connect;
mod parts;
mod resources;
mod watch;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_backend::TensorMetadata;
use burn_backend::tensor::IntTensor;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::CudaDevice;
use cubecl::Runtime;
use cudarc::nccl::result as nccl;
use cudarc::nccl::sys;

pub use self::connect::NcclConfig;
use self::parts::{Parts, sum_of_own};
pub use self::resources::probe_nccl;
use self::resources::{Events, HOST_WAITS, Memory, checked, device_fault};
use self::watch::{Connection, OnDevice};
use super::error::{CollectiveError, CollectiveFault};
use super::hosts::among;
use super::link::{Begun, Call, Collective, Link, Place, Traffic};
use super::operation::CollectiveOperation;
use super::presence::{Presence, lock};
use crate::runtime::backends::{Cuda, CudaRuntime};
use crate::runtime::launch::empty;
use crate::runtime::turn::{SharedTurn, pause};

/// Bytes of what a rank says of its call, where that is compared.
const RECORD: usize = 256;

#[derive(Debug)]
struct NcclLink {
    rank: usize,
    ranks: usize,
    /// The ranks of its group, by their numbers among all; `None` of all.
    members: Option<Vec<usize>>,
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
        let (rank, ranks, stored) = (self.rank, self.ranks, x.dtype);
        let shape: Vec<usize> = x.shape().iter().copied().collect();
        let output = operation.output(rank, ranks, &shape, stored)?;
        let of_call = (number, operation.name());
        if self.compare_calls {
            let call = (operation.described(None, &shape, stored), backward_of.map(|of| number - of));
            if lock(&self.compared).insert(call) {
                let said = among(self.members.as_deref(), operation.described(backward_of, &shape, stored));
                self.compare(of_call, &said)?;
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
        self.rank
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

    fn split(&self, members: &[usize]) -> Result<Link<Cuda>, CollectiveError> {
        let _pause = self.together.then(pause);
        // A communicator is split between exchanges.
        self.connection.settled()?;
        let group = self.group(members).map_err(|fault| self.connection.fail("split", fault))?;
        Ok(Arc::new(group))
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
            if self.members.is_none() {
                peers.left.push((rank, self.calls(), reason));
            }
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
