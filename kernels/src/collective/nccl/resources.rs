//! What a rank has at NCCL and at the driver, and how their streams wait for those of CubeCL.

use std::ffi::{CStr, c_int, c_void};

use burn_backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use burn_cuda::CudaDevice;
use cubecl::client::ComputeClient;
use cubecl::server::Handle;
use cudarc::driver::{result as driver, sys as driver_sys};
use cudarc::nccl::result::{self as nccl, NcclError, NcclStatus};
use cudarc::nccl::sys;

use crate::collective::error::CollectiveFault;
use crate::runtime::backends::CudaRuntime;

/// The first CUDA whose drivers have events of a whole context.
const CONTEXT_EVENTS: c_int = 12_050;

/// Where this variable is set the host waits for exchanges in any case: it shows what that costs.
pub(super) const HOST_WAITS: &str = "GRAPHSIEVE_HOST_WAITS";

/// The first version that can be asked not to block.
pub(super) const OLDEST: i32 = 21_400;

/// The first version that makes groups of the ranks of a communicator.
const FIRST_WITH_GROUPS: i32 = 21_800;

/// The version of NCCL, such as `2.28.3`, or why it cannot be used.
///
/// # Errors
/// [`CollectiveFault::Library`] where it is missing or too old, with what to install.
pub fn probe_nccl() -> Result<String, CollectiveFault> {
    let help = "install NCCL 2.14 or newer (package libnccl2 or nvidia-nccl-cu12) and put a link `libnccl.so` to its \
                `libnccl.so.2` on LD_LIBRARY_PATH: that name is looked for";
    let library = |found: String| CollectiveFault::Library { found, help: help.into() };
    // SAFETY: it only tries to open a shared library.
    if !unsafe { sys::is_culib_present() } {
        return Err(library("libnccl.so (NCCL) was not found".into()));
    }
    let version = nccl::get_nccl_version().map_err(|error| library(format!("NCCL tells no version: {:?}", error.0)))?;
    let shown = shown(version);
    if version < OLDEST { Err(library(format!("NCCL {shown} is too old"))) } else { Ok(shown) }
}

fn shown(version: i32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// Refuses a library that makes no groups of ranks.
pub(super) fn with_groups() -> Result<(), CollectiveFault> {
    match nccl::get_nccl_version() {
        Ok(version) if version < FIRST_WITH_GROUPS => Err(CollectiveFault::Library {
            found: format!("NCCL {} makes no groups of the ranks of a host", shown(version)),
            help: "install NCCL 2.18 or newer, or keep ranks of several hosts from dividing features \
                   (loader.transfer = \"zero_copy\")"
                .into(),
        }),
        version => version.map(drop).map_err(|NcclError(code)| said(code)),
    }
}

pub(super) fn device_fault(what: &str, error: impl std::fmt::Debug) -> CollectiveFault {
    CollectiveFault::Device { reason: format!("{what}: {error:?}") }
}

pub(super) fn driver_fault(error: driver::DriverError) -> CollectiveFault {
    device_fault("the CUDA driver", error)
}

pub(super) fn checked(result: Result<NcclStatus, NcclError>) -> Result<(), CollectiveFault> {
    result.map(drop).map_err(|NcclError(code)| said(code))
}

pub(super) fn said(code: sys::ncclResult_t) -> CollectiveFault {
    let text = |pointer: *const std::ffi::c_char| match pointer.is_null() {
        true => String::new(),
        // SAFETY: what both functions below give ends in a zero and is not changed meanwhile.
        false => unsafe { CStr::from_ptr(pointer) }.to_string_lossy().trim().to_string(),
    };
    let (what, last) =
        // SAFETY: neither needs a communicator.
        unsafe { (text(sys::ncclGetErrorString(code)), text(sys::ncclGetLastError(std::ptr::null_mut()))) };
    let help = "run with NCCL_DEBUG=INFO to see more";
    let reason =
        if last.is_empty() { format!("NCCL: {what}; {help}") } else { format!("NCCL: {what}: {last}; {help}") };
    CollectiveFault::Device { reason }
}

/// What belongs to a rank at NCCL and the driver; used by one thread at a time.
#[derive(Debug)]
pub(super) struct Resources {
    /// `None` once it is given up.
    pub comm: Option<sys::ncclComm_t>,
    stream: driver_sys::CUstream,
    /// Of what the streams of CubeCL have to do before an exchange.
    before: driver_sys::CUevent,
    context: driver_sys::CUcontext,
    /// `None` where the host waits in their place.
    events: Option<ContextEvents>,
}

// SAFETY: the handles belong to no thread; each use makes the context that of its thread.
unsafe impl Send for Resources {}

/// Events of all streams of a context. CubeCL tells none of its streams, so that nothing else makes them wait.
#[derive(Clone, Copy, Debug)]
struct ContextEvents {
    record: ContextEvent,
    wait: ContextEvent,
}

type ContextEvent = unsafe extern "C" fn(driver_sys::CUcontext, driver_sys::CUevent) -> driver_sys::CUresult;

impl ContextEvents {
    fn of_driver() -> Option<Self> {
        let mut version = 0;
        // SAFETY: it writes the number of a version.
        unsafe { driver_sys::cuDriverGetVersion(&mut version) }.result().ok()?;
        if version < CONTEXT_EVENTS || std::env::var_os(HOST_WAITS).is_some() {
            return None;
        }
        let found = |name: &CStr| {
            let mut function: *mut c_void = std::ptr::null_mut();
            // SAFETY: it writes an address or nothing; what it says beside that is not asked for.
            let status = unsafe {
                let no_status = std::ptr::null_mut();
                driver_sys::cuGetProcAddress_v2(name.as_ptr(), &mut function, CONTEXT_EVENTS, 0, no_status)
            };
            status.result().ok()?;
            // SAFETY: both functions have this type since the version that is asked for.
            (!function.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, ContextEvent>(function) })
        };
        Some(Self { record: found(c"cuCtxRecordEvent")?, wait: found(c"cuCtxWaitEvent")? })
    }
}

/// The events of an exchange on NCCL's stream: this rank's own work is done, and the exchange is.
#[derive(Debug)]
pub(super) struct Events {
    begun: driver_sys::CUevent,
    ended: driver_sys::CUevent,
}

// SAFETY: as for `Resources`; the driver takes events from several threads at once.
unsafe impl Send for Events {}
// SAFETY: as above.
unsafe impl Sync for Events {}

impl Events {
    pub fn new() -> Result<Self, CollectiveFault> {
        let event = || driver::event::create(driver_sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(driver_fault);
        Ok(Self { begun: event()?, ended: event()? })
    }

    pub fn has_begun(&self) -> Result<bool, CollectiveFault> {
        is_over(self.begun)
    }

    pub fn has_ended(&self) -> Result<bool, CollectiveFault> {
        is_over(self.ended)
    }

    /// From one to the other, once both are over.
    pub fn seconds(&self) -> f64 {
        // SAFETY: both were recorded on one stream, with their times.
        unsafe { driver::event::elapsed(self.begun, self.ended) }.map_or(0.0, |ms| f64::from(ms) / 1e3)
    }

    /// Gives both back; the driver keeps them as long as it needs them.
    pub fn destroy(&self) {
        for event in [self.begun, self.ended] {
            // SAFETY: it is not used again.
            let _ = unsafe { driver::event::destroy(event) };
        }
    }
}

fn is_over(event: driver_sys::CUevent) -> Result<bool, CollectiveFault> {
    // SAFETY: the event was made and recorded before.
    match unsafe { driver::event::query(event) } {
        Ok(()) => Ok(true),
        Err(driver::DriverError(driver_sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
        Err(error) => Err(driver_fault(error)),
    }
}

impl Resources {
    pub fn new(device: &CudaDevice) -> Result<Self, CollectiveFault> {
        let ordinal = i32::try_from(device.index).map_err(|error| device_fault("the number of a device", error))?;
        driver::init().map_err(driver_fault)?;
        let of_driver = driver::device::get(ordinal).map_err(driver_fault)?;
        // SAFETY: the device is there; the primary context is the one that CubeCL uses, and is kept for good as it
        // does.
        unsafe {
            let context = driver::primary_ctx::retain(of_driver).map_err(driver_fault)?;
            driver::ctx::set_current(context).map_err(driver_fault)?;
            // What crosses beside computation is what others wait for.
            let (_, first) = driver::stream::get_priority_range().map_err(driver_fault)?;
            let stream = driver::stream::create_with_priority(driver::stream::StreamKind::NonBlocking, first);
            let stream = stream.map_err(driver_fault)?;
            let untimed = driver_sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
            let before = driver::event::create(untimed).map_err(driver_fault)?;
            Ok(Self { comm: None, stream, before, context, events: ContextEvents::of_driver() })
        }
    }

    /// Makes its context that of this thread.
    pub fn enter(&self) -> Result<(), CollectiveFault> {
        // SAFETY: the context was made with it.
        unsafe { driver::ctx::set_current(self.context) }.map_err(driver_fault)
    }

    /// Whether streams wait for each other without the host.
    pub fn is_ordered(&self) -> bool {
        self.events.is_some()
    }

    pub fn comm(&self) -> Result<sys::ncclComm_t, CollectiveFault> {
        self.comm.ok_or_else(|| CollectiveFault::Aborted { reason: "its connection is closed".into() })
    }

    pub fn stream(&self) -> sys::cudaStream_t {
        self.stream.cast()
    }

    /// What is queued on NCCL's stream from here on comes behind all that is queued on the streams of CubeCL; without
    /// events of contexts these have been waited for.
    pub fn begin(&self, events: &Events) -> Result<(), CollectiveFault> {
        // SAFETY: events and stream are of the context, which is that of this thread.
        unsafe {
            if let Some(of_context) = self.events {
                (of_context.record)(self.context, self.before).result().map_err(driver_fault)?;
                let flags = driver_sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
                driver::stream::wait_event(self.stream, self.before, flags).map_err(driver_fault)?;
            }
            driver::event::record(events.begun, self.stream).map_err(driver_fault)
        }
    }

    /// What is queued on NCCL's stream up to here is the exchange.
    pub fn end(&self, events: &Events) -> Result<(), CollectiveFault> {
        // SAFETY: as in `begin`.
        unsafe { driver::event::record(events.ended, self.stream) }.map_err(driver_fault)
    }

    /// What is queued on the streams of CubeCL from here on comes behind the exchange; without events of contexts the
    /// host has waited for it.
    pub fn wait(&self, events: &Events) -> Result<(), CollectiveFault> {
        let Some(of_context) = self.events else { return Ok(()) };
        self.enter()?;
        // SAFETY: as in `begin`; the event was recorded there.
        unsafe { (of_context.wait)(self.context, events.ended) }.result().map_err(driver_fault)
    }

    /// What NCCL says of its work on the host: whether it is done.
    pub fn is_settled(&self) -> Result<bool, CollectiveFault> {
        let mut state = sys::ncclResult_t::ncclSuccess;
        // SAFETY: the communicator is one that is not given up.
        checked(unsafe { sys::ncclCommGetAsyncError(self.comm()?, &mut state) }.result())?;
        match state {
            sys::ncclResult_t::ncclSuccess => Ok(true),
            sys::ncclResult_t::ncclInProgress => Ok(false),
            error => Err(said(error)),
        }
    }

    /// Gives the connection up: what runs on the device ends, and the other ranks see it.
    pub fn abort(&mut self) {
        if let Some(comm) = self.comm.take() {
            // SAFETY: it is taken out, so that nothing uses it again. What it says of its end changes nothing.
            let _ = unsafe { nccl::comm_abort(comm) };
        }
    }
}

impl Drop for Resources {
    fn drop(&mut self) {
        self.abort();
        // SAFETY: both were made in `new`, and nothing is queued any more.
        unsafe {
            if driver::ctx::set_current(self.context).is_ok() {
                let _ = driver::event::destroy(self.before);
                let _ = driver::stream::destroy(self.stream);
            }
        }
    }
}

/// A tensor's memory, kept while NCCL is told of it.
pub(super) struct Memory {
    address: u64,
    _kept: Option<Box<dyn std::any::Any>>,
}

impl Memory {
    /// When it comes back all that this thread has asked of CubeCL before is queued on the device.
    pub fn of(client: &ComputeClient<CudaRuntime>, handle: &Handle) -> Result<Self, CollectiveFault> {
        let resource = client.get_resource(handle.clone()).map_err(|error| device_fault("CubeCL", error))?;
        Ok(Self { address: resource.resource().ptr, _kept: Some(Box::new((resource, handle.clone()))) })
    }

    /// Of a tensor without elements there is none.
    pub fn of_tensor(tensor: &CubeTensor<CudaRuntime>) -> Result<Self, CollectiveFault> {
        match tensor.shape().num_elements() {
            0 => Ok(Self { address: 0, _kept: None }),
            _ => Self::of(&tensor.client, &tensor.handle),
        }
    }

    pub fn at(&self, bytes: usize) -> *mut c_void {
        (self.address + bytes as u64) as *mut c_void
    }
}
