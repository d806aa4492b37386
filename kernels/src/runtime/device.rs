//! Looking for devices without a panic: neither CUDA nor Vulkan can be asked through Burn, which panics on its device
//! thread when a driver is missing.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, OnceLock};

/// Prefix of the names of CubeCL's device threads.
const DEVICE_THREAD: &str = "DSD-";

static WATCHED: AtomicBool = AtomicBool::new(false);
static FAILURE: Mutex<Option<String>> = Mutex::new(None);
/// Where compiled kernels are kept, see `keep_compiled`.
static KEPT: OnceLock<PathBuf> = OnceLock::new();
/// Threads that compile kernels, see `keep_compiled`.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
static COMPILING: AtomicUsize = AtomicUsize::new(1);

thread_local! {
    /// Whether this thread is trying something that may panic and is caught.
    static TRYING: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the first panic of a device thread for [`failure`].
///
/// CubeCL runs a device on a thread of its own and goes on after a panic there, for example when an allocation fails:
/// what was to be computed is then missing without another word. Call this before the work, and [`failure`] after a
/// read, which waits for everything queued before it. The panic hook that is in place keeps all other panics.
pub fn watch() {
    WATCHED.store(true, Ordering::SeqCst);
    install_hook();
}

/// The one panic hook of this crate, installed once and never taken out: a hook is the whole process's, and two threads
/// that exchange it lose one or the other.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if TRYING.get() {
                return;
            }
            let of_device = std::thread::current().name().is_some_and(|name| name.starts_with(DEVICE_THREAD));
            if !of_device || !WATCHED.load(Ordering::SeqCst) {
                return previous(panic);
            }
            let message = own_words(panic.payload_as_str().unwrap_or("a panic without a message"));
            if let Ok(mut first) = FAILURE.lock() {
                first.get_or_insert(message);
            }
        }));
    });
}

/// What a device says itself in the message of a panic, on one line: neither the words of `unwrap` nor that there is no
/// backtrace.
fn own_words(message: &str) -> String {
    let said = message.replace("called `Result::unwrap()` on an `Err` value: ", "");
    let is_said = |line: &&str| !["", "Backtrace", "Backtrace:", "No backtrace available"].contains(line);
    said.lines().map(str::trim).filter(is_said).collect::<Vec<_>>().join(" ")
}

/// What `attempt` gives, or its panic, of which nothing reaches the terminal.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
pub(crate) fn quietly<T>(attempt: impl FnOnce() -> T + std::panic::UnwindSafe) -> std::thread::Result<T> {
    install_hook();
    TRYING.set(true);
    let result = std::panic::catch_unwind(attempt);
    TRYING.set(false);
    result
}

/// What went wrong on a device thread, as [`failure`] gives it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The device's own words.
    pub reason: String,
    /// Where compiled kernels are kept, if they are. Nothing checks them: one that was damaged fails its device.
    pub kept: Option<PathBuf>,
}

/// What went wrong on a device thread since [`watch`], if anything did.
pub fn failure() -> Option<Failure> {
    let reason = FAILURE.lock().ok()?.clone()?;
    Some(Failure { reason, kept: KEPT.get().cloned() })
}

/// The file by which [`keep_compiled`] marks that a process uses what is kept.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
pub const KEPT_MARK: &str = ".writable";

/// Keeps compiled kernels in `dir`, which is made: of CUDA as machine code, of Vulkan as SPIR-V. Call it before the
/// first use of a device, [`probe_vulkan`] included; later, or where a `cubecl.toml` names another place, or where
/// `dir` cannot be written, nothing happens. Whether they are kept now.
///
/// The kernels in a directory must all be of one build of the program and, for CUDA, for one kind of GPU. SPIR-V that
/// is kept is the same in every process, so that a driver finds what it has compiled, too: made anew it differs.
///
/// What a CUDA device has to compile, so many `threads` compile then: launches wait until somebody asks for a result,
/// and their kernels are compiled beside each other. With one thread each is compiled when it is launched. That is for
/// compute-sanitizer: whoever compiles a kernel ahead launches it over no cubes, which the driver refuses and the
/// sanitizer tells.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
pub fn keep_compiled(dir: &std::path::Path, threads: usize) -> bool {
    use cubecl::config::cache::CacheConfig;
    use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

    if CubeClRuntimeConfig::storage().lock().is_some() {
        return false;
    }
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    // CubeCL panics on a directory that it cannot write.
    let writable = std::fs::create_dir_all(dir).is_ok() && std::fs::File::create(dir.join(KEPT_MARK)).is_ok();
    let keeps = config.compilation.cache.is_none() && writable;
    if keeps {
        config.compilation.cache = Some(CacheConfig::File(dir.to_path_buf()));
        KEPT.get_or_init(|| dir.to_path_buf());
        COMPILING.store(threads, Ordering::Relaxed);
    }
    CubeClRuntimeConfig::set(config);
    keeps
}

/// Threads that compile kernels.
#[cfg(feature = "cuda")]
pub(crate) fn compiling_threads() -> usize {
    COMPILING.load(Ordering::Relaxed)
}

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

/// The context that CubeCL uses on a CUDA device. It is never given back, as CubeCL gives none back: where nobody else
/// held it, the device would start anew for whoever asks next.
#[cfg(feature = "cuda")]
pub(crate) fn context_of(index: usize) -> Result<cudarc::driver::sys::CUcontext, cudarc::driver::DriverError> {
    use cudarc::driver::result::{device, primary_ctx};
    // SAFETY: the driver says whether the device exists, and keeps its primary context until the process ends.
    unsafe { primary_ctx::retain(device::get(index as i32)?) }
}

/// Makes that context the one of this thread.
#[cfg(feature = "cuda")]
pub(crate) fn make_current(index: usize) -> Result<(), cudarc::driver::DriverError> {
    // SAFETY: the context is kept, as above.
    unsafe { cudarc::driver::result::ctx::set_current(context_of(index)?) }
}

/// Number of a CUDA device; `None` of others.
pub(crate) fn cuda_index<D: 'static>(device: &D) -> Option<usize> {
    #[cfg(feature = "cuda")]
    {
        let device = (device as &dyn std::any::Any).downcast_ref::<burn_cuda::CudaDevice>()?;
        Some(device.index)
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        None
    }
}

/// The default Vulkan adapter, or why there is none. The first call sets the device up for the process; later calls
/// give the same answer.
///
/// # Errors
/// Says what the loader or the driver said.
#[cfg(feature = "vulkan")]
pub fn probe_vulkan() -> Result<VulkanAdapter, String> {
    use std::sync::OnceLock;
    static ADAPTER: OnceLock<Result<VulkanAdapter, String>> = OnceLock::new();
    ADAPTER
        .get_or_init(|| {
            let found = quietly(|| {
                let device = burn_wgpu::WgpuDevice::default();
                let setup = cubecl::wgpu::init_setup::<cubecl::wgpu::Vulkan>(&device, Default::default());
                let info = setup.adapter.get_info();
                let software = format!("{:?}", info.device_type) == "Cpu";
                VulkanAdapter { name: info.name, hardware: !software }
            });
            found.map_err(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
                // wgpu says so in the debug form of its flags.
                let why = text.filter(|text| !text.contains("NotFound"));
                format!("no Vulkan adapter: {}", why.unwrap_or("its loader (libvulkan.so.1) or a driver is missing"))
            })
        })
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what CubeCL says.
    struct Full;

    impl std::fmt::Debug for Full {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("can't allocate buffer of size: 7\nNo backtrace available")
        }
    }

    fn allocate() -> Result<(), Full> {
        Err(Full)
    }

    #[test]
    fn what_a_device_says_stands_without_what_rust_adds() {
        let nested = "called `Result::unwrap()` on an `Err` value: An execution error happened\nCaused by:\n  no \
                      memory\nBacktrace:\nNo backtrace available";
        assert_eq!(own_words(nested), "An execution error happened Caused by: no memory");
        assert_eq!(own_words("index out of bounds"), "index out of bounds");
    }

    #[test]
    fn a_panic_of_a_device_thread_is_kept_and_one_of_another_thread_is_not() {
        watch();
        #[cfg(feature = "vulkan")]
        assert!(quietly(|| panic!("no adapter")).is_err());
        let panics = |name: &str| {
            let thread = std::thread::Builder::new().name(name.into());
            thread.spawn(|| allocate().unwrap()).unwrap().join().unwrap_err();
        };
        panics("worker");
        assert!(failure().is_none());
        panics("DSD-0-0");
        assert_eq!(failure().unwrap().reason, "can't allocate buffer of size: 7");
    }
}
