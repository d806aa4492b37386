//! Choice of the compute device at run time. What was built in (`cuda`, `vulkan`) is decided here and nowhere else.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use burn::prelude::DeviceOps;
use burn::tensor::backend::{Backend, DeviceId};
#[cfg(any(feature = "cuda", feature = "vulkan"))]
use graphsieve_kernels::device::KEPT_MARK;
use graphsieve_kernels::{CollectiveBackend, Communicator, LaunchEnvironment};
use serde::Serialize;

use crate::error::{Error, Result, nearest_name};

/// A device that this build can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The processor, all threads.
    Cpu,
    /// The CUDA device with this index.
    #[cfg(feature = "cuda")]
    Cuda(usize),
    /// The default Vulkan adapter.
    #[cfg(feature = "vulkan")]
    Vulkan,
}

/// The name under which a device is asked for, e.g. `cuda:0`.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            #[cfg(feature = "cuda")]
            Device::Cuda(index) => write!(f, "cuda:{index}"),
            #[cfg(feature = "vulkan")]
            Device::Vulkan => f.write_str("vulkan"),
        }
    }
}

/// A device, and why it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What to compute on.
    pub device: Device,
    /// For the user; names what was tried before.
    pub reason: String,
}

/// The Vulkan adapter of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// Always the Vulkan device.
    pub device: Device,
    /// As the driver names it.
    pub name: String,
    /// False for a driver that computes on the processor; `auto` never takes one.
    pub hardware: bool,
}

/// Runs `$body` with a backend type and its device: `with_backend!(device, |B, d| train::<B>(config, &d))`.
///
/// `$device` is a [`Device`]. The body is compiled once per backend of this build.
macro_rules! with_backend {
    ($device:expr, |$backend:ident, $handle:ident| $body:expr) => {
        match $device {
            $crate::backend::Device::Cpu => {
                type $backend = burn_flex::Flex;
                let $handle = burn_flex::FlexDevice;
                $body
            }
            #[cfg(feature = "cuda")]
            $crate::backend::Device::Cuda(index) => {
                type $backend = graphsieve_kernels::Cuda;
                $crate::backend::keep_compiled_kernels(index);
                let $handle = burn_cuda::CudaDevice::new(index);
                $body
            }
            #[cfg(feature = "vulkan")]
            $crate::backend::Device::Vulkan => {
                type $backend = graphsieve_kernels::Vulkan;
                let $handle = burn_wgpu::WgpuDevice::default();
                $body
            }
        }
    };
}
pub(crate) use with_backend;

/// Runs `$body` with a backend type and `$count` ranks that share a device that is no CUDA device, with it:
/// `with_ranks!(device, 2, deadline, |B, ranks| on_threads::<B, _>(ranks, work))`. On CUDA ranks are processes.
macro_rules! with_ranks {
    ($device:expr, $count:expr, $deadline:expr, |$backend:ident, $ranks:ident| $body:expr) => {
        match $device {
            $crate::backend::Device::Cpu => {
                type $backend = burn_flex::Flex;
                let $ranks = $crate::backend::ranks_of::<$backend>($count, $deadline, &burn_flex::FlexDevice);
                $body
            }
            #[cfg(feature = "cuda")]
            $crate::backend::Device::Cuda(_) => unreachable!("ranks with CUDA devices are processes"),
            #[cfg(feature = "vulkan")]
            $crate::backend::Device::Vulkan => {
                type $backend = graphsieve_kernels::Vulkan;
                let device = burn_wgpu::WgpuDevice::default();
                let $ranks = $crate::backend::ranks_of::<$backend>($count, $deadline, &device);
                $body
            }
        }
    };
}
pub(crate) use with_ranks;

/// Runs `$body` with a backend type, this process as a rank of those that a launcher started, or why it is none, and
/// its device: `as_process!(device, &process, deadline, |B, rank, d| train::<B>(rank?, &d))`.
macro_rules! as_process {
    ($device:expr, $process:expr, $deadline:expr, |$backend:ident, $rank:ident, $of:ident| $body:expr) => {
        match $device {
            #[cfg(feature = "cuda")]
            $crate::backend::Device::Cuda(index) => {
                type $backend = graphsieve_kernels::Cuda;
                $crate::backend::keep_compiled_kernels(index);
                let $of = burn_cuda::CudaDevice::new(index);
                let $rank = $crate::backend::cuda_process(&$of, $process, $deadline);
                $body
            }
            other => {
                type $backend = burn_flex::Flex;
                let $of = burn_flex::FlexDevice;
                let $rank = $crate::backend::no_process::<$backend>(other, $process);
                $body
            }
        }
    };
}
pub(crate) use as_process;

/// A process as a rank over NCCL.
///
/// # Errors
/// [`Error::Ranks`] where NCCL is missing or the ranks do not find each other, [`Error::Usage`] where nothing tells
/// this host from others.
#[cfg(feature = "cuda")]
pub(crate) fn cuda_process(
    device: &burn_cuda::CudaDevice,
    process: &LaunchEnvironment,
    deadline: Duration,
) -> Result<Communicator<graphsieve_kernels::Cuda>> {
    let (device, rendezvous) = (device.clone(), process.rendezvous.clone());
    let (rank, ranks, compare_calls) = (process.rank, process.ranks, true);
    let host = graphsieve_kernels::host_identity(|name| std::env::var(name).ok()).map_err(|error| Error::Usage {
        argument: error.variable.into(),
        expected: error.expected,
        found: error.found.unwrap_or_else(|| "nothing".into()),
        help: error.help.into(),
    })?;
    let config = graphsieve_kernels::NcclConfig { rank, ranks, device, host, rendezvous, deadline, compare_calls };
    Communicator::nccl(config).map_err(|error| Error::Ranks {
        reason: error.to_string(),
        help: "nothing was begun; start all ranks again, or one process without a launcher".into(),
    })
}

/// Refuses a process of a launcher on another device: they meet over NCCL.
///
/// # Errors
/// [`Error::Usage`].
pub(crate) fn no_process<B: CollectiveBackend<Plain = B>>(
    device: Device,
    process: &LaunchEnvironment,
) -> Result<Communicator<B>> {
    Err(Error::Usage {
        argument: "--device".into(),
        expected: format!("a CUDA device for process {} of {}", process.rank, process.ranks),
        found: device.to_string(),
        help: "start the program once with --devices N: it has N ranks on the processor or on Vulkan".into(),
    })
}

/// Ranks that share a device, with it.
pub(crate) fn ranks_of<B: CollectiveBackend<Plain = B>>(
    count: usize,
    deadline: Duration,
    device: &B::Device,
) -> Vec<(Communicator<B>, B::Device)> {
    let ranks = Communicator::<B>::threads(count, deadline, device);
    ranks.into_iter().map(|rank| (rank, device.clone())).collect()
}

/// The number of the first of `count` CUDA devices, `device`; `None` of one device, and where so many ranks share it.
///
/// # Errors
/// [`Error::Usage`] for more than there are.
pub(crate) fn first_of_several(device: Device, count: usize) -> Result<Option<usize>> {
    match (device, count) {
        #[cfg(feature = "cuda")]
        (Device::Cuda(first), 2..) => check_cuda_devices(first, count).map(|()| Some(first)),
        _ => Ok(None),
    }
}

/// `count` devices from `first` on, which is that of `of`; the processor and a Vulkan device are the same one so
/// many times.
///
/// # Errors
/// [`Error::Usage`] for more CUDA devices than there are.
pub(crate) fn devices_from<B: Backend>(of: Device, first: &B::Device, count: usize) -> Result<Vec<B::Device>> {
    match of {
        #[cfg(feature = "cuda")]
        Device::Cuda(index) if count > 1 => check_cuda_devices(index, count)?,
        _ => {}
    }
    let id = first.to_id();
    let device = |at: usize| B::Device::from_id(DeviceId::new(id.type_id, id.index_id + at as u16));
    Ok((0..count).map(|at| if at == 0 { first.clone() } else { device(at) }).collect())
}

/// Refuses more CUDA devices than there are.
///
/// # Errors
/// [`Error::Usage`]; [`Error::Device`] where CUDA cannot be used.
#[cfg(feature = "cuda")]
fn check_cuda_devices(first: usize, count: usize) -> Result<()> {
    let refuse = |reason: String| Error::Device { device: "cuda".into(), reason, help: "use --device cpu".into() };
    let there = cuda_devices().map_err(refuse)?.len();
    if first + count <= there {
        return Ok(());
    }
    Err(Error::Usage {
        argument: "--devices".into(),
        expected: format!("at most {} from cuda:{first} on", there.saturating_sub(first)),
        found: count.to_string(),
        help: "`graphsieve info` lists the devices of this machine".into(),
    })
}

/// Lets compiled CUDA kernels survive the process, apart for each kind of GPU: CubeCL's keys do not know it.
#[cfg(feature = "cuda")]
pub(crate) fn keep_compiled_kernels(index: usize) {
    if let Some(model) = cuda_name(index) {
        let model: String = model.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        keep_compiled_in(&model);
    }
}

/// Lets compiled kernels survive the process, so that only the first run on a machine waits for the compiler. They lie
/// in the user's cache directory, apart for each build of this program, which CubeCL's keys do not know. Where there is
/// no place for them, every run compiles.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn keep_compiled_in(folder: &str) {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(std::path::PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    let build = std::env::current_exe().and_then(|program| program.metadata()).ok().and_then(|program| {
        let built = program.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(format!("{:x}-{:x}", program.len(), built.as_nanos()))
    });
    if let (Some(cache), Some(build)) = (cache.map(|cache| cache.join("graphsieve")), build) {
        // Once a process.
        if graphsieve_kernels::device::keep_compiled(&cache.join(build).join(folder), compiling_threads()) {
            forget_unused(&cache, Duration::from_secs(30 * 24 * 60 * 60));
        }
    }
}

/// Threads that compile kernels: those of the machine, of which each takes some hundred megabytes, or one where
/// `GRAPHSIEVE_COMPILE_IN_TURN` is set.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn compiling_threads() -> usize {
    const MOST: usize = 16;
    match std::env::var_os("GRAPHSIEVE_COMPILE_IN_TURN").is_some_and(|value| !value.is_empty()) {
        true => 1,
        false => std::thread::available_parallelism().map_or(1, usize::from).min(MOST),
    }
}

/// Removes what builds have kept that nobody used for so long: each is marked when a process uses it. What cannot be
/// removed stays.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
fn forget_unused(cache: &std::path::Path, unused: Duration) {
    let within = |folder: &std::path::Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    for build in within(cache) {
        let marks =
            within(&build.path()).filter_map(|kept| kept.path().join(KEPT_MARK).metadata().ok()?.modified().ok());
        if marks.max().is_some_and(|used| used.elapsed().is_ok_and(|age| age > unused)) {
            let _ = std::fs::remove_dir_all(build.path());
        }
    }
}

/// Chooses the device for `--device` `auto`, `cpu`, `cuda`, `cuda:N` or `vulkan`.
///
/// `auto` takes the first CUDA device, then a Vulkan adapter that is hardware, then the processor; devices further
/// down are not looked for. What is asked for by name is taken or refused, never replaced.
///
/// # Errors
/// [`Error::Usage`] for another word, [`Error::Device`] for a device that is not there or that this build cannot use.
pub fn choose(request: &str) -> Result<Choice> {
    decide(request.parse()?, cuda_devices, || {
        // Before it is looked for, which starts it.
        #[cfg(feature = "vulkan")]
        keep_compiled_in("vulkan");
        vulkan_adapter()
    })
}

/// The CUDA devices of this machine, or why none can be used.
///
/// # Errors
/// Says what is missing. Looking never panics.
pub fn cuda_devices() -> Result<Vec<Device>, String> {
    #[cfg(feature = "cuda")]
    return Ok((0..graphsieve_kernels::device::probe_cuda()?).map(Device::Cuda).collect());
    #[cfg(not(feature = "cuda"))]
    Err("this build has no CUDA support (feature `cuda`)".into())
}

/// The default Vulkan adapter of this machine, or why there is none.
///
/// # Errors
/// Says what is missing. Looking never panics.
pub fn vulkan_adapter() -> Result<Adapter, String> {
    #[cfg(feature = "vulkan")]
    return graphsieve_kernels::device::probe_vulkan().map(|found| Adapter {
        device: Device::Vulkan,
        name: found.name,
        hardware: found.hardware,
    });
    #[cfg(not(feature = "vulkan"))]
    Err("this build has no Vulkan support (feature `vulkan`)".into())
}

/// Backends that were built in, the processor's first.
pub fn built_in() -> Vec<&'static str> {
    let optional = [("cuda", cfg!(feature = "cuda")), ("vulkan", cfg!(feature = "vulkan"))];
    let built = optional.into_iter().filter_map(|(name, built)| built.then_some(name));
    std::iter::once("cpu").chain(built).collect()
}

/// Name and model of a device for logs and `meta.json`, e.g. `cuda:0 (NVIDIA H100 80GB HBM3)`.
pub fn description(device: &Device) -> String {
    let model = match device {
        Device::Cpu => Some(Processor::of_this_machine().to_string()),
        #[cfg(feature = "cuda")]
        Device::Cuda(index) => cuda_name(*index),
        #[cfg(feature = "vulkan")]
        Device::Vulkan => vulkan_adapter().ok().map(|adapter| adapter.name),
    };
    model.map_or_else(|| device.to_string(), |model| format!("{device} ({model})"))
}

#[cfg(feature = "cuda")]
fn cuda_name(index: usize) -> Option<String> {
    use cudarc::driver::result::device;
    device::get(index.try_into().ok()?).and_then(device::get_name).ok()
}

/// What the processor offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Processor {
    /// Threads that computations use.
    pub threads: usize,
    /// Widest vector instructions that the processor has.
    pub simd: &'static str,
}

impl Processor {
    /// Looks at this machine.
    pub fn of_this_machine() -> Self {
        Self { threads: rayon::current_num_threads(), simd: simd() }
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} threads, {}", self.threads, self.simd)
    }
}

#[cfg(target_arch = "x86_64")]
fn simd() -> &'static str {
    match () {
        () if std::is_x86_feature_detected!("avx512f") => "AVX-512",
        () if std::is_x86_feature_detected!("avx2") => "AVX2",
        () if std::is_x86_feature_detected!("avx") => "AVX",
        () => "SSE2",
    }
}

#[cfg(target_arch = "aarch64")]
fn simd() -> &'static str {
    "NEON"
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn simd() -> &'static str {
    "no known SIMD"
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Auto,
    Cpu,
    Cuda(usize),
    Vulkan,
}

impl FromStr for Request {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        const NAMES: [&str; 4] = ["auto", "cpu", "cuda", "vulkan"];
        let malformed = |help: String| Error::Usage {
            argument: "--device".into(),
            expected: "auto, cpu, cuda, cuda:N or vulkan".into(),
            found: format!("{text:?}"),
            help,
        };
        match text.split_once(':') {
            None if text == "auto" => Ok(Request::Auto),
            None if text == "cpu" => Ok(Request::Cpu),
            None if text == "cuda" => Ok(Request::Cuda(0)),
            None if text == "vulkan" => Ok(Request::Vulkan),
            Some(("cuda", index)) => {
                index.parse().map(Request::Cuda).map_err(|_| malformed("the first CUDA device is cuda:0".into()))
            }
            _ => {
                let nearest = match text {
                    "gpu" => Some("cuda or vulkan"),
                    _ => nearest_name(text, NAMES),
                };
                let nearest = nearest.map(|nearest| format!("did you mean {nearest}? "));
                let nearest = nearest.unwrap_or_default();
                Err(malformed(format!("{nearest}`graphsieve info` lists the devices of this machine")))
            }
        }
    }
}

fn decide(
    request: Request,
    cuda: impl FnOnce() -> Result<Vec<Device>, String>,
    vulkan: impl FnOnce() -> Result<Adapter, String>,
) -> Result<Choice> {
    let refuse = |device: String, reason: String, help: &str| Error::Device { device, reason, help: help.into() };
    match request {
        Request::Auto => Ok(automatic(cuda, vulkan)),
        Request::Cpu => Ok(Choice { device: Device::Cpu, reason: "as asked for".into() }),
        Request::Cuda(index) => {
            let help = "use --device cpu or auto, or install the NVIDIA driver and the CUDA toolkit, or build with the \
                        feature `cuda`";
            let devices = cuda().map_err(|reason| refuse(format!("cuda:{index}"), reason, help))?;
            match devices.get(index) {
                Some(&device) => Ok(Choice { device, reason: "as asked for".into() }),
                None => {
                    let reason = format!("CUDA devices found: {}, counted from cuda:0", devices.len());
                    Err(refuse(format!("cuda:{index}"), reason, "`graphsieve info` lists them"))
                }
            }
        }
        Request::Vulkan => {
            let help = "use --device cpu or auto, or install a Vulkan driver and its loader (libvulkan.so.1), or build \
                        with the feature `vulkan`";
            let adapter = vulkan().map_err(|reason| refuse("vulkan".into(), reason, help))?;
            let kind = if adapter.hardware { "" } else { ", a software driver that computes on the processor" };
            Ok(Choice { device: adapter.device, reason: format!("as asked for: {}{kind}", adapter.name) })
        }
    }
}

fn automatic(
    cuda: impl FnOnce() -> Result<Vec<Device>, String>,
    vulkan: impl FnOnce() -> Result<Adapter, String>,
) -> Choice {
    let no_cuda = match cuda() {
        Ok(devices) => match devices.first() {
            Some(&device) => return Choice { device, reason: "auto: the first CUDA device".into() },
            None => "there is none".into(),
        },
        Err(reason) => reason,
    };
    let no_vulkan = match vulkan() {
        Ok(Adapter { device, name, hardware: true }) => {
            return Choice { device, reason: format!("auto: no CUDA ({no_cuda}), but the Vulkan GPU {name}") };
        }
        Ok(adapter) => format!("{} is a software driver", adapter.name),
        Err(reason) => reason,
    };
    Choice { device: Device::Cpu, reason: format!("auto: no CUDA ({no_cuda}), no Vulkan GPU ({no_vulkan})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_cuda() -> Result<Vec<Device>, String> {
        Err("libcuda.so was not found".into())
    }

    fn no_vulkan() -> Result<Adapter, String> {
        Err("no Vulkan adapter".into())
    }

    fn refused(request: &str) -> String {
        let error = decide(request.parse().unwrap(), no_cuda, no_vulkan).unwrap_err();
        assert!(matches!(error, Error::Device { .. }) && error.exit_code() == 1, "{error}");
        error.to_string()
    }

    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    #[test]
    fn kernels_that_no_build_used_for_long_are_forgotten() {
        let cache = tempfile::tempdir().unwrap();
        let kept = |build: &str, kind: &str| cache.path().join(build).join(kind);
        for (build, kind, days) in [("old", "a", 40), ("old", "b", 31), ("new", "a", 40), ("new", "b", 1)] {
            std::fs::create_dir_all(kept(build, kind)).unwrap();
            let mark = std::fs::File::create(kept(build, kind).join(KEPT_MARK)).unwrap();
            mark.set_modified(std::time::SystemTime::now() - days * Duration::from_secs(24 * 60 * 60)).unwrap();
        }
        std::fs::create_dir_all(kept("unknown", "a")).unwrap();
        forget_unused(cache.path(), Duration::from_secs(30 * 24 * 60 * 60));
        let is_there = |build: &str| cache.path().join(build).exists();
        assert_eq!(["old", "new", "unknown"].map(is_there), [false, true, true]);
        forget_unused(std::path::Path::new("no such folder"), Duration::ZERO);
    }

    #[test]
    fn a_device_asked_for_by_name_is_never_replaced() {
        assert!(refused("cuda").starts_with("device cuda:0 is not usable: libcuda.so was not found"));
        assert!(refused("cuda:3").starts_with("device cuda:3"));
        assert!(refused("vulkan").contains("help: use --device cpu"));
        let unasked = || panic!("the processor needs no probing");
        assert_eq!(decide(Request::Cpu, unasked, no_vulkan).unwrap().device, Device::Cpu);
    }

    #[test]
    fn auto_says_what_it_tried_before_the_processor() {
        let choice = decide(Request::Auto, no_cuda, no_vulkan).unwrap();
        assert_eq!(choice.device, Device::Cpu);
        assert_eq!(choice.reason, "auto: no CUDA (libcuda.so was not found), no Vulkan GPU (no Vulkan adapter)");
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn auto_takes_cuda_first_and_counts_devices() {
        let two = || Ok(vec![Device::Cuda(0), Device::Cuda(1)]);
        let unasked = || panic!("Vulkan is not probed when there is CUDA");
        assert_eq!(decide(Request::Auto, two, unasked).unwrap().device, Device::Cuda(0));
        assert_eq!(decide(Request::Cuda(1), two, unasked).unwrap().device, Device::Cuda(1));
        let error = decide(Request::Cuda(2), two, unasked).unwrap_err().to_string();
        assert!(error.contains("device cuda:2 is not usable: CUDA devices found: 2"), "{error}");
    }

    #[cfg(feature = "vulkan")]
    #[test]
    fn auto_takes_a_vulkan_gpu_but_no_software_driver() {
        let adapter = |hardware| move || Ok(Adapter { device: Device::Vulkan, name: "driver".into(), hardware });
        assert_eq!(decide(Request::Auto, no_cuda, adapter(true)).unwrap().device, Device::Vulkan);
        let choice = decide(Request::Auto, no_cuda, adapter(false)).unwrap();
        assert_eq!(choice.device, Device::Cpu);
        assert!(choice.reason.contains("driver is a software driver"), "{}", choice.reason);
        assert_eq!(decide(Request::Vulkan, no_cuda, adapter(false)).unwrap().device, Device::Vulkan);
    }

    #[test]
    fn another_word_is_a_usage_error_with_the_nearest_name() {
        for (request, nearest) in [
            ("Cuda", "cuda?"),
            ("vulcan", "vulkan?"),
            ("gpu", "cuda or vulkan?"),
            ("cpu:1", "cpu?"),
            ("", "did you mean"),
        ] {
            let error = choose(request).unwrap_err();
            assert!(matches!(error, Error::Usage { .. }), "{error}");
            assert!(error.to_string().contains(nearest), "{error}");
        }
        let error = choose("cuda:x").unwrap_err().to_string();
        assert!(error.contains("cuda:N") && error.contains("cuda:0"), "{error}");
    }

    #[test]
    fn every_device_has_a_description() {
        let choice = choose("auto").unwrap();
        assert!(description(&choice.device).starts_with(&choice.device.to_string()));
        assert!(description(&Device::Cpu).contains("threads"));
        assert_eq!(built_in()[0], "cpu");
    }
}
