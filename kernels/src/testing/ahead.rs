//! A Vulkan backend whose launches are put off as those of CUDA are while kernels are compiled.

use std::collections::HashSet;
use std::sync::Mutex;

use cubecl::device::DeviceId;
use cubecl::prelude::KernelId;
use cubecl::wgpu::WgpuRuntime;

use crate::runtime::ahead::{Ahead, CompileAhead, Compilers, Missing};

/// The runtime of the backend.
pub type RuntimeAhead = Ahead<WgpuRuntime>;

/// The backend. What it launches for the first time it puts off.
pub type VulkanAhead = burn_cubecl::CubeBackend<RuntimeAhead, f32, i32, u8>;

/// Bytes that may be taken while launches are put off.
pub const ROOM: u64 = 1 << 22;

/// How many kernels were to be compiled beside each other, for each time that there were several.
pub static COMPILED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl CompileAhead for WgpuRuntime {
    type Compilers = Counted;
    const NAME: &'static str = "wgpu<spirv>";
}

/// Compiles nothing and counts what it was to compile.
#[derive(Debug)]
pub struct Counted(HashSet<KernelId>);

impl Compilers<WgpuRuntime> for Counted {
    fn new(_device: DeviceId) -> Option<Self> {
        Some(Self(HashSet::new()))
    }

    fn is_missing(&mut self, kernel: &KernelId) -> bool {
        self.0.insert(kernel.clone())
    }

    fn room(&self) -> u64 {
        ROOM
    }

    fn compile(&mut self, kernels: &[Missing<WgpuRuntime>]) {
        if let Ok(mut compiled) = COMPILED.lock() {
            compiled.push(kernels.len());
        }
    }
}
