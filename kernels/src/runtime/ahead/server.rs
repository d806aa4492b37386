//! A server that puts launches off while their kernels are to be compiled.

use std::fmt::{Debug, Formatter};
use std::mem::take;
use std::sync::Arc;

use cubecl::CubeTask;
use cubecl::MemoryAllocationMode;
use cubecl::MemoryUsage;
use cubecl::bytes::Bytes;
use cubecl::device::{DeviceId, DeviceService, ServerUtilitiesHandle};
use cubecl::future::DynFut;
use cubecl::ir::ElemType;
use cubecl::prelude::*;
use cubecl::profile::ProfileDuration;
use cubecl::server::{
    Binding, ComputeServer, CopyDescriptor, Handle, KernelArguments, MemoryLayout, MemoryLayoutDescriptor,
    MemoryLayoutPolicy, ProfileError, ProfilingToken, ReduceOperation, ServerCommunication, ServerError,
    ServerUtilities,
};
use cubecl::stream_id::StreamId;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::memory_management::ManagedMemoryHandle;
use cubecl_runtime::storage::{ComputeStorage, ManagedResource};

use super::{CompileAhead, Compilers, Missing, Shared};

/// A server of `R` in front of which launches wait for their kernels.
pub struct Server<R: CompileAhead> {
    inner: R::Server,
    utilities: Arc<ServerUtilities<Self>>,
    compilers: Option<R::Compilers>,
    /// What was put off, in order, all of it of one stream. Streams wait for each other by how far each has come.
    waiting: Vec<Waiting<R>>,
    /// Bytes that may still be taken.
    room: u64,
}

enum Waiting<R: CompileAhead> {
    Launch {
        kernel: Shared<R>,
        count: CubeCount,
        arguments: KernelArguments,
        mode: ExecutionMode,
        stream: StreamId,
        is_missing: bool,
    },
    Write {
        data: Vec<(CopyDescriptor, Bytes)>,
        stream: StreamId,
    },
}

impl<R: CompileAhead> Waiting<R> {
    fn stream(&self) -> StreamId {
        match self {
            Self::Launch { stream, .. } | Self::Write { stream, .. } => *stream,
        }
    }

    /// What compiling it takes, where it must be compiled.
    fn missing(&self) -> Option<Missing<R>> {
        match self {
            Self::Launch { kernel, arguments, mode, is_missing: true, .. } if arguments.tensor_maps.is_empty() => {
                Some(Missing {
                    kernel: kernel.clone(),
                    mode: *mode,
                    buffers: arguments.buffers.len(),
                    info: arguments.info.data.clone(),
                    dynamic: arguments.info.dynamic_metadata_offset,
                })
            }
            _ => None,
        }
    }
}

impl<R: CompileAhead> Server<R> {
    /// Whether something that is asked for in `stream` is put off behind others.
    fn waits(&mut self, stream: StreamId) -> bool {
        if self.waiting.first().is_some_and(|first| first.stream() != stream) {
            self.catch_up();
        }
        !self.waiting.is_empty()
    }

    /// Does what was put off.
    fn catch_up(&mut self) {
        let waiting = take(&mut self.waiting);
        let missing: Vec<_> = waiting.iter().filter_map(Waiting::missing).collect();
        // The server hears of what others compiled when it has compiled something itself: the first that it meets.
        if let (Some(compilers), [_, others @ ..]) = (&mut self.compilers, missing.as_slice())
            && !others.is_empty()
        {
            compilers.compile(others);
        }
        for one in waiting {
            match one {
                // SAFETY: as whoever launched it said.
                Waiting::Launch { kernel, count, arguments, mode, stream, .. } => unsafe {
                    self.inner.launch(Box::new(kernel), count, arguments, mode, stream);
                },
                Waiting::Write { data, stream } => self.inner.write(data, stream),
            }
        }
    }

    /// The server behind this one, with nothing put off.
    fn caught_up(&mut self) -> &mut R::Server {
        self.catch_up();
        &mut self.inner
    }
}

impl<R: CompileAhead> Debug for Server<R> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("inner", &self.inner).field("waiting", &self.waiting.len()).finish()
    }
}

impl<R: CompileAhead> DeviceService for Server<R> {
    fn init(device: DeviceId) -> Self {
        let inner = R::Server::init(device);
        let of = ComputeServer::utilities(&inner);
        let layout = Layout::<R>(of.clone());
        let utilities = ServerUtilities::new(of.properties.clone(), of.logger.clone(), of.info.clone(), layout);
        Self {
            inner,
            utilities: Arc::new(utilities),
            compilers: R::Compilers::new(device),
            waiting: Vec::new(),
            room: 0,
        }
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        self.utilities.clone()
    }
}

/// Lays memory out as the server behind does.
pub struct Layout<R: CompileAhead>(Arc<ServerUtilities<R::Server>>);

impl<R: CompileAhead> MemoryLayoutPolicy for Layout<R> {
    fn apply(&self, stream: StreamId, descriptors: &[MemoryLayoutDescriptor]) -> (Handle, Vec<MemoryLayout>) {
        self.0.layout_policy.apply(stream, descriptors)
    }
}

impl<R: CompileAhead> ComputeServer for Server<R> {
    type Kernel = Box<dyn CubeTask<R::Compiler>>;
    type Info = <R::Server as ComputeServer>::Info;
    type MemoryLayoutPolicy = Layout<R>;
    type Storage = <R::Server as ComputeServer>::Storage;

    fn initialize_memory(&mut self, memory: ManagedMemoryHandle, size: u64, stream: StreamId) {
        if self.waits(stream) {
            match self.room.checked_sub(size) {
                Some(room) => self.room = room,
                None => self.catch_up(),
            }
        }
        self.inner.initialize_memory(memory, size, stream);
    }

    fn staging(&mut self, sizes: &[usize], stream: StreamId) -> Result<Vec<Bytes>, ServerError> {
        self.inner.staging(sizes, stream)
    }

    fn logger(&self) -> Arc<ServerLogger> {
        self.inner.logger()
    }

    fn utilities(&self) -> Arc<ServerUtilities<Self>> {
        self.utilities.clone()
    }

    fn read(&mut self, descriptors: Vec<CopyDescriptor>, stream: StreamId) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        self.caught_up().read(descriptors, stream)
    }

    fn write(&mut self, data: Vec<(CopyDescriptor, Bytes)>, stream: StreamId) {
        if self.waits(stream) {
            self.waiting.push(Waiting::Write { data, stream });
        } else {
            self.inner.write(data, stream);
        }
    }

    fn sync(&mut self, stream: StreamId) -> DynFut<Result<(), ServerError>> {
        self.caught_up().sync(stream)
    }

    fn get_resource(
        &mut self,
        binding: Binding,
        stream: StreamId,
    ) -> Result<ManagedResource<<Self::Storage as ComputeStorage>::Resource>, ServerError> {
        self.caught_up().get_resource(binding, stream)
    }

    unsafe fn launch(
        &mut self,
        kernel: Self::Kernel,
        count: CubeCount,
        arguments: KernelArguments,
        mode: ExecutionMode,
        stream: StreamId,
    ) {
        let is_missing = self.compilers.as_mut().is_some_and(|compilers| {
            let mut id = kernel.id();
            id.mode(mode);
            compilers.is_missing(&id)
        });
        let waits = self.waits(stream);
        if is_missing && !waits {
            self.room = self.compilers.as_ref().map_or(0, Compilers::room);
        }
        if waits || is_missing {
            let kernel = Shared(kernel.into());
            self.waiting.push(Waiting::Launch { kernel, count, arguments, mode, stream, is_missing });
        } else {
            // SAFETY: as the caller says.
            unsafe { self.inner.launch(kernel, count, arguments, mode, stream) };
        }
    }

    fn flush(&mut self, stream: StreamId) -> Result<(), ServerError> {
        self.caught_up().flush(stream)
    }

    fn memory_usage(&mut self, stream: StreamId) -> Result<MemoryUsage, ServerError> {
        self.caught_up().memory_usage(stream)
    }

    fn memory_cleanup(&mut self, stream: StreamId) {
        self.caught_up().memory_cleanup(stream);
    }

    fn start_profile(&mut self, stream: StreamId) -> Result<ProfilingToken, ServerError> {
        self.caught_up().start_profile(stream)
    }

    fn end_profile(&mut self, stream: StreamId, token: ProfilingToken) -> Result<ProfileDuration, ProfileError> {
        self.caught_up().end_profile(stream, token)
    }

    fn allocation_mode(&mut self, mode: MemoryAllocationMode, stream: StreamId) {
        self.inner.allocation_mode(mode, stream);
    }
}

impl<R: CompileAhead> ServerCommunication for Server<R> {
    const SERVER_COMM_ENABLED: bool = <R::Server as ServerCommunication>::SERVER_COMM_ENABLED;

    fn sync_collective(&mut self, stream: StreamId) -> Result<(), ServerError> {
        self.caught_up().sync_collective(stream)
    }

    fn comm_init(&mut self, devices: Vec<DeviceId>) -> Result<(), ServerError> {
        self.caught_up().comm_init(devices)
    }

    fn all_reduce(
        &mut self,
        from: Binding,
        to: Binding,
        dtype: ElemType,
        stream: StreamId,
        operation: ReduceOperation,
        devices: Vec<DeviceId>,
    ) -> Result<(), ServerError> {
        self.caught_up().all_reduce(from, to, dtype, stream, operation, devices)
    }

    fn send(
        &mut self,
        from: CopyDescriptor,
        dtype: ElemType,
        stream: StreamId,
        to: DeviceId,
    ) -> Result<(), ServerError> {
        self.caught_up().send(from, dtype, stream, to)
    }

    fn recv(&mut self, to: Handle, dtype: ElemType, stream: StreamId, from: DeviceId) -> Result<(), ServerError> {
        self.caught_up().recv(to, dtype, stream, from)
    }
}
