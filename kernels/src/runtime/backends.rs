//! The device backends, and what implements a trait for each of them.

/// The runtime of [`Cuda`].
#[cfg(feature = "cuda")]
pub(crate) type CudaRuntime = super::ahead::Ahead<cubecl::cuda::CudaRuntime>;

/// The CUDA backend that the operators run on: raw CubeCL without kernel fusion, of which every operator of ours would
/// be a barrier. Kernels that a machine does not have yet are compiled beside each other, see
/// [`keep_compiled`](crate::device::keep_compiled).
#[cfg(feature = "cuda")]
pub type Cuda = burn_cubecl::CubeBackend<CudaRuntime, f32, i32, u8>;

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
            type R = $crate::runtime::backends::CudaRuntime;
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
