//! Kernels compiled beside each other, though they are launched one after the other.
//!
//! CubeCL compiles a kernel when it is first launched, on the one thread that speaks to the device; launches that
//! follow wait there. A first training on a machine would wait for some ninety kernels in turn. Here a launch whose
//! kernel must be compiled is put off, with all that follows it, until somebody asks for a result. By then the host has
//! launched an epoch, and what that needs is compiled on all cores at once.

#[cfg(feature = "cuda")]
mod cuda;
mod server;

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use cubecl::client::ComputeClient;
use cubecl::device::DeviceId;
use cubecl::ir::TargetProperties;
use cubecl::prelude::*;
use cubecl::server::ComputeServer;
use cubecl::zspace::{Shape, Strides};
use cubecl::{CompilationError, Compiler, CubeTask};

pub use server::Server;

/// A runtime of CubeCL whose kernels are compiled ahead of their launches; see the module.
#[derive(Clone, Debug)]
pub struct Ahead<R>(PhantomData<fn() -> R>);

/// A runtime whose kernels something else than its server can compile.
pub trait CompileAhead: Runtime<Server: ComputeServer<Info: Clone>> {
    /// What compiles them.
    type Compilers: Compilers<Self>;
    /// What [`Runtime::name`] says.
    const NAME: &'static str;
}

/// What compiles kernels that a server then finds.
pub trait Compilers<R: Runtime>: Debug + Send + Sized + 'static {
    /// `None` where there is nowhere to leave what was compiled.
    fn new(device: DeviceId) -> Option<Self>;
    /// Whether a kernel is to be compiled. It is asked before every launch, and says so once for each kernel.
    fn is_missing(&mut self, kernel: &KernelId) -> bool;
    /// Bytes of memory that may be taken while launches are put off: what they use is not free meanwhile.
    fn room(&self) -> u64;
    /// Compiles `kernels`. What fails here fails at its launch again, which says why.
    fn compile(&mut self, kernels: &[Missing<R>]);
}

/// A kernel that is to be compiled, and what its launch looks like.
#[derive(Debug)]
pub struct Missing<R: Runtime> {
    /// The kernel.
    pub kernel: Shared<R>,
    /// How it checks bounds.
    pub mode: ExecutionMode,
    /// How many buffers it has.
    pub buffers: usize,
    /// Its scalars and shapes.
    pub info: Vec<u64>,
    /// Where those begin that differ in number.
    pub dynamic: usize,
}

/// A kernel that is compiled in one place and launched in another.
pub struct Shared<R: Runtime>(Arc<dyn CubeTask<R::Compiler>>);

impl<R: Runtime> Clone for Shared<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Runtime> Debug for Shared<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

impl<R: Runtime> KernelMetadata for Shared<R> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn id(&self) -> KernelId {
        self.0.id()
    }

    fn address_type(&self) -> StorageType {
        self.0.address_type()
    }
}

impl<R: Runtime> CubeTask<R::Compiler> for Shared<R> {
    fn compile(
        &self,
        compiler: &mut R::Compiler,
        options: &<R::Compiler as Compiler>::CompilationOptions,
        mode: ExecutionMode,
        address_type: StorageType,
    ) -> Result<CompiledKernel<R::Compiler>, CompilationError> {
        self.0.compile(compiler, options, mode, address_type)
    }
}

impl<R: CompileAhead> Runtime for Ahead<R> {
    type Compiler = R::Compiler;
    type Server = Server<R>;
    type Device = R::Device;

    fn client(device: &Self::Device) -> ComputeClient<Self> {
        ComputeClient::load(device)
    }

    fn name(_client: &ComputeClient<Self>) -> &'static str {
        R::NAME
    }

    fn require_array_lengths() -> bool {
        R::require_array_lengths()
    }

    fn max_cube_count() -> (u32, u32, u32) {
        R::max_cube_count()
    }

    fn can_read_tensor(shape: &Shape, strides: &Strides) -> bool {
        R::can_read_tensor(shape, strides)
    }

    fn target_properties() -> TargetProperties {
        R::target_properties()
    }

    fn enumerate_devices(type_id: u16, info: &<R::Server as ComputeServer>::Info) -> Vec<DeviceId> {
        R::enumerate_devices(type_id, info)
    }
}
