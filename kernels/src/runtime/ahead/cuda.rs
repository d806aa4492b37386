//! Kernels of CUDA, compiled on several threads.

use std::collections::HashSet;
use std::mem::take;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cubecl::cache::{Cache, CacheOption};
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::cuda::CudaRuntime;
use cubecl::device::{DeviceId, DeviceService};
use cubecl::hash::StableHash;
use cubecl::prelude::*;
use cubecl::server::{ComputeServer, Handle, KernelArguments, MetadataBindingInfo};
use cubecl::stream_id::StreamId;
use cudarc::driver::result::mem_get_info;

use super::{CompileAhead, Compilers, Missing};
use crate::runtime::device::{compiling_threads, make_current, quietly};

type CudaServer = <CudaRuntime as Runtime>::Server;

/// The part of a device's free memory that may be taken meanwhile.
const PART: u64 = 8;
/// Bytes of the buffer that stands for every buffer of a kernel.
const STAND_IN: u64 = 512;

impl CompileAhead for CudaRuntime {
    type Compilers = Threads;
    const NAME: &'static str = "cuda";
}

/// Servers of the same device that compile and launch nothing. What they compile lies where compiled kernels are kept,
/// and only there do servers find what others have compiled.
#[derive(Debug)]
pub struct Threads {
    device: DeviceId,
    threads: usize,
    /// Which kernels were kept when this process began.
    kept: Cache<StableHash, String>,
    met: HashSet<KernelId>,
    servers: Vec<CudaServer>,
}

impl Compilers<CudaRuntime> for Threads {
    fn new(device: DeviceId) -> Option<Self> {
        let threads = compiling_threads();
        if threads < 2 {
            return None;
        }
        let config = CubeClRuntimeConfig::get();
        let root = config.compilation.cache.as_ref()?.root();
        // The table of contents of what CubeCL keeps.
        let kept = Cache::new("ptx/toc", CacheOption::default().name("cuda").root(root));
        Some(Self { device, threads, kept, met: HashSet::new(), servers: Vec::new() })
    }

    fn is_missing(&mut self, kernel: &KernelId) -> bool {
        !self.met.contains(kernel) && self.met.insert(kernel.clone()) && self.kept.get(&kernel.stable_hash()).is_none()
    }

    fn room(&self) -> u64 {
        let free = make_current(self.device.index_id as usize).and_then(|()| mem_get_info());
        free.map_or(0, |(free, _)| free as u64 / PART)
    }

    fn compile(&mut self, kernels: &[Missing<CudaRuntime>]) {
        let threads = self.threads.min(kernels.len());
        let (device, next) = (self.device, &AtomicUsize::new(0));
        let mut idle = take(&mut self.servers).into_iter();
        let work = move |server: Option<CudaServer>| {
            let mut server = server.unwrap_or_else(|| CudaServer::init(device));
            while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                compile(&mut server, kernel);
            }
            server
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|_| {
                    let server = idle.next();
                    scope.spawn(move || quietly(AssertUnwindSafe(|| work(server))))
                })
                .collect();
            // What a thread that panicked leaves undone the launch does again, and says why.
            self.servers.extend(threads.into_iter().filter_map(|thread| thread.join().ok()?.ok()));
        });
        self.servers.extend(idle);
    }
}

/// Lets `server` compile a kernel: it launches it over no cubes at all, which the driver refuses.
fn compile(server: &mut CudaServer, missing: &Missing<CudaRuntime>) {
    let stream = StreamId::current();
    let stand_in = Handle::new(stream, STAND_IN);
    server.initialize_memory(stand_in.memory.clone(), STAND_IN, stream);
    let arguments = KernelArguments {
        buffers: (0..missing.buffers).map(|_| stand_in.clone().binding()).collect(),
        info: MetadataBindingInfo::new(missing.info.clone(), missing.dynamic),
        tensor_maps: Vec::new(),
    };
    // SAFETY: no thread runs.
    unsafe {
        server.launch(Box::new(missing.kernel.clone()), CubeCount::Static(0, 0, 0), arguments, missing.mode, stream);
    }
}
