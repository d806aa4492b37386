//! Looking for devices without a panic: neither CUDA nor Vulkan can be asked through Burn, which panics on its device
//! thread when a driver is missing.

/// A Vulkan adapter.
#[cfg(feature = "vulkan")]
#[derive(Clone, Debug)]
pub struct VulkanAdapter {
    /// As the driver names it.
    pub name: String,
    /// Whether it is a GPU; a software driver such as llvmpipe is not.
    pub hardware: bool,
}

/// Number of usable CUDA devices, or why there is none.
///
/// # Errors
/// Names what is missing: the driver, the run-time compiler, its headers, or a device.
#[cfg(feature = "cuda")]
pub fn probe_cuda() -> Result<usize, String> {
    use cudarc::{driver, nvrtc};
    // SAFETY: both functions only try to open a shared library.
    let (driver_there, compiler_there) = unsafe { (driver::sys::is_culib_present(), nvrtc::sys::is_culib_present()) };
    if !driver_there {
        return Err("libcuda.so (the NVIDIA driver) was not found".into());
    }
    if !compiler_there {
        return Err("libnvrtc.so (of the CUDA toolkit) was not found".into());
    }
    driver::result::init().map_err(|e| format!("the NVIDIA driver does not start: {e:?}"))?;
    let count = driver::result::device::get_count().map_err(|e| format!("the NVIDIA driver lists no device: {e:?}"))?;
    if count <= 0 {
        return Err("the NVIDIA driver is there but finds no device".into());
    }
    match cubecl::cuda::install::cuda_path().map(|path| path.join("include")) {
        Some(include) if include.join("cuda_fp16.h").exists() => Ok(count as usize),
        Some(include) => Err(format!("no CUDA headers in {}; set CUDA_PATH to the toolkit", include.display())),
        None => Err("the CUDA toolkit was not found; set CUDA_PATH to it".into()),
    }
}

/// The default Vulkan adapter, or why there is none. The first call sets the device up for the process; later calls give
/// the same answer.
///
/// # Errors
/// Says what the loader or the driver said.
#[cfg(feature = "vulkan")]
pub fn probe_vulkan() -> Result<VulkanAdapter, String> {
    use std::sync::OnceLock;
    static ADAPTER: OnceLock<Result<VulkanAdapter, String>> = OnceLock::new();
    ADAPTER
        .get_or_init(|| {
            // The set-up panics without an adapter; nothing of that should reach a terminal.
            let hook = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| {}));
            let found = std::panic::catch_unwind(|| {
                let device = burn_wgpu::WgpuDevice::default();
                let setup = cubecl::wgpu::init_setup::<cubecl::wgpu::Vulkan>(&device, Default::default());
                let info = setup.adapter.get_info();
                let software = format!("{:?}", info.device_type) == "Cpu";
                VulkanAdapter { name: info.name, hardware: !software }
            });
            std::panic::set_hook(hook);
            found.map_err(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
                format!("no Vulkan adapter: {}", text.unwrap_or("the loader or a driver is missing"))
            })
        })
        .clone()
}
