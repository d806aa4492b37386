//! The device backends, and what implements a trait for each of them.

/// The CUDA backend that the operators run on: raw CubeCL without kernel fusion, of which every operator of ours would
/// be a barrier.
#[cfg(feature = "cuda")]
pub type Cuda = burn_cubecl::CubeBackend<cubecl::cuda::CudaRuntime, f32, i32, u8>;

/// The Vulkan backend that the operators run on.
#[cfg(feature = "vulkan")]
pub type Vulkan = burn_cubecl::CubeBackend<cubecl::wgpu::WgpuRuntime, f32, i32, u8>;

/// Implements a trait for [`Cuda`] and [`Vulkan`]; the runtime is `R` in its body. An implementation for all backends
/// of CubeCL would be generic: its code, with that of every launch, would be made again in each crate and test program
/// that uses it.
macro_rules! impl_for_devices {
    ($trait:ident => $($body:tt)*) => {
        #[cfg(feature = "cuda")]
        const _: () = {
            #[allow(dead_code)]
            type R = cubecl::cuda::CudaRuntime;
            impl $trait for $crate::runtime::backends::Cuda { $($body)* }
        };
        #[cfg(feature = "vulkan")]
        const _: () = {
            #[allow(dead_code)]
            type R = cubecl::wgpu::WgpuRuntime;
            impl $trait for $crate::runtime::backends::Vulkan { $($body)* }
        };
    };
}
pub(crate) use impl_for_devices;
