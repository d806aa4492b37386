//! A test program that asks at run time what the machine has.
//!
//! To the built-in harness a test that finds no device and returns has passed. Here a trial names what it needs; where
//! that is missing the trial counts as ignored, the reason is printed once at the end, and an environment variable
//! demands it: set, it makes the trial fail. Programs use this module with `harness = false` in their manifest, so that
//! one binary decides anew on every machine that it is carried to.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::sync::Mutex;

mod processes;

pub use libtest_mimic::Trial;
use libtest_mimic::{Arguments, Completion, Failed};

/// Where an operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    /// The CPU, which every machine has.
    Cpu,
    /// The default Vulkan adapter.
    Vulkan,
    /// The first CUDA device.
    Cuda,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Device::Cpu => "cpu",
            Device::Vulkan => "vulkan",
            Device::Cuda => "cuda",
        })
    }
}

/// Something that a machine or a device may lack.
#[derive(Clone, Copy, Debug)]
pub struct Requirement {
    /// What it is; requirements of the same name on the same device are probed once.
    pub name: &'static str,
    /// The environment variable that makes trials fail where it is missing; unset and empty are the same.
    pub demand: &'static str,
    /// Says why it is missing.
    pub probe: fn() -> Result<(), String>,
}

/// What ranks need that have a CUDA device each.
#[cfg(feature = "cuda")]
pub const TWO_CUDA_DEVICES: Requirement = Requirement {
    name: "NCCL with two CUDA devices",
    demand: "GRAPHSIEVE_REQUIRE_NCCL",
    probe: || match crate::device::probe_cuda()? {
        count @ ..2 => Err(format!("there is {count} CUDA device")),
        _ => crate::probe_nccl().map(drop).map_err(|fault| fault.to_string()),
    },
};

impl Device {
    /// That the device is there; the CPU always is.
    pub fn requirement(self) -> Option<Requirement> {
        match self {
            Device::Cpu => None,
            #[cfg(feature = "vulkan")]
            Device::Vulkan => Some(Requirement {
                name: "a Vulkan device",
                demand: "GRAPHSIEVE_REQUIRE_VULKAN",
                probe: || {
                    crate::device::probe_vulkan().map(|adapter| {
                        if !adapter.hardware {
                            give_way();
                        }
                    })
                },
            }),
            #[cfg(feature = "cuda")]
            Device::Cuda => Some(Requirement {
                name: "a CUDA device",
                demand: "GRAPHSIEVE_REQUIRE_CUDA",
                probe: || crate::device::probe_cuda().map(drop),
            }),
            #[cfg(not(all(feature = "vulkan", feature = "cuda")))]
            other => unreachable!("{other} is not part of this build"),
        }
    }
}

/// That no software driver compiles the kernels of `B`: of trials with many that put together what others, which run
/// everywhere, look at one by one.
pub fn hardware<B: 'static>() -> Requirement {
    Requirement { name: "hardware", demand: "GRAPHSIEVE_REQUIRE_HARDWARE", probe: hardware_compiles::<B> }
}

fn hardware_compiles<B: 'static>() -> Result<(), String> {
    #[cfg(feature = "vulkan")]
    if std::any::TypeId::of::<B>() == std::any::TypeId::of::<crate::Vulkan>() {
        let adapter = crate::device::probe_vulkan()?;
        if !adapter.hardware {
            return Err(format!("{} takes long to compile many kernels", adapter.name));
        }
    }
    Ok(())
}

/// Lets the threads that are there already have the processor first, once that of the device is one of them.
///
/// CubeCL's queue holds 32 tasks. While a software driver compiles a kernel it is full, and the thread of the trials
/// turns in a loop until there is room: on two cores that takes a third of the time from those that do the work.
#[cfg(feature = "vulkan")]
fn give_way() {
    // On Linux the number of a process is that of its first thread, which runs the trials, and names no other. What
    // that thread starts later, as the pool of rayon, inherits the value.
    if cfg!(target_os = "linux") {
        let id = std::process::id().to_string();
        let renice = std::process::Command::new("renice").args(["-n", "19", "-p", &id]).output();
        // Where it is refused or not installed, trials only take longer.
        drop(renice);
    }
}

/// What is missing where, why, what demands it, and how many trials wanted it.
static MISSING: Mutex<BTreeMap<Lack, Option<(String, usize)>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lack {
    device: Option<Device>,
    name: &'static str,
    demand: &'static str,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is missing", self.name)?;
        match self.device {
            Some(device) if device.requirement().is_none_or(|of| of.name != self.name) => write!(f, " on {device}"),
            _ => Ok(()),
        }
    }
}

/// A trial `name`, on `device` if it has one; a panic of `body` is its failure.
pub fn trial(device: Option<Device>, name: &str, needs: &[Requirement], body: impl FnOnce() + Send + 'static) -> Trial {
    let name = device.map_or(name.to_string(), |device| format!("{device}::{name}"));
    let needs: Vec<Requirement> =
        device.and_then(Device::requirement).into_iter().chain(needs.iter().copied()).collect();
    Trial::ignorable_test(name, move || {
        for need in needs {
            let lack = Lack { device, name: need.name, demand: need.demand };
            // Probed under the lock: two threads that set a device up at once would disturb each other.
            let mut missing = MISSING.lock().map_err(|_| Failed::from("a probe panicked"))?;
            let found = missing.entry(lack).or_insert_with(|| (need.probe)().err().map(|reason| (reason, 0)));
            let Some((reason, count)) = found else { continue };
            if std::env::var_os(need.demand).is_some_and(|value| !value.is_empty()) {
                return Err(format!("{} is set but {lack}: {reason}", need.demand).into());
            }
            *count += 1;
            return Ok(Completion::ignored());
        }
        body();
        Ok(Completion::Completed)
    })
}

/// Names the group of a process.
const GROUP: &str = "GRAPHSIEVE_TEST_GROUP";

/// Names a folder in which processes of one subject keep the kernels that they compile.
#[cfg(any(feature = "cuda", feature = "vulkan"))]
const KEPT: &str = "GRAPHSIEVE_TEST_KERNELS";

/// Each holds a context of the device.
const MOST_PROCESSES: usize = 8;

/// Runs the trials that the arguments of the process select, and says which were ignored for what.
///
/// The trials of a subject on a device are a process, in which they run one at a time. One process more than there are
/// cores, as each waits for its device now and then, or as many as `--test-threads` says, run side by side. Threads of
/// one process would wait for each other while the kernels of their device are compiled, and in Burn 0.21 they lose
/// gradients of each other (see [`autodiff_turn`](crate::autodiff_turn)).
pub fn run(trials: Vec<Trial>) -> ExitCode {
    run_with(trials, &[])
}

/// As [`run`], whose processes get these variables where the environment does not have them yet.
pub fn run_with(mut trials: Vec<Trial>, variables: &[(&str, &str)]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    match std::env::var(GROUP) {
        Ok(own) => trials.retain(|trial| group(trial) == own),
        Err(_) => {
            let mut groups: Vec<String> = Vec::new();
            for trial in &trials {
                let own = group(trial);
                if groups.iter().all(|group| group != own) {
                    groups.push(own.into());
                }
            }
            let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
            let some = || MOST_PROCESSES.min(1 + cores());
            let processes = arguments.test_threads.unwrap_or_else(some).min(groups.len());
            if processes > 1 && !arguments.list {
                return processes::run(groups, processes, variables);
            }
        }
    }
    arguments.test_threads = Some(1);
    #[cfg(any(feature = "cuda", feature = "vulkan"))]
    if let Some(folder) = std::env::var_os(KEPT) {
        crate::device::keep_compiled(folder.as_ref(), 1);
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    for (lack, found) in MISSING.lock().expect("no probe panicked").iter() {
        if let Some((reason, count @ 1..)) = found {
            println!("ignored {count}: {lack}: {reason} ({}=1 demands it)", lack.demand);
        }
    }
    conclusion.exit_code()
}

/// The device and the subject of a trial.
fn group(trial: &Trial) -> &str {
    trial.name().rsplit_once("::").map_or("", |(group, _)| group)
}

/// Trials of functions that are generic in the backend and take its device, one for each backend of the build; in
/// brackets after a function, others that are generic in the backend and give a [`Requirement`].
///
/// `on_every_backend!("splits"; by_rows, by_bins(double_precision))` is a `Vec<Trial>` of `cpu::splits::by_rows` and so
/// on. The crate that uses it depends on `burn` and `burn_flex`.
#[macro_export]
macro_rules! on_every_backend {
    ($subject:literal; $($name:ident $(($($need:ident),+))?),+ $(,)?) => {{
        let mut trials = Vec::new();
        trials.extend([$($crate::on_backend!(Cpu, burn_flex::Flex, $subject, $name $(, $($need),+)?)),+]);
        $crate::on_vulkan!(trials.extend([
            $($crate::on_backend!(Vulkan, $crate::Vulkan, $subject, $name $(, $($need),+)?)),+
        ]););
        $crate::on_cuda!(trials.extend([
            $($crate::on_backend!(Cuda, $crate::Cuda, $subject, $name $(, $($need),+)?)),+
        ]););
        trials
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! on_backend {
    ($device:ident, $backend:ty, $subject:literal, $name:ident $(, $need:ident)*) => {
        $crate::testing::harness::trial(
            Some($crate::testing::harness::Device::$device),
            concat!($subject, "::", stringify!($name)),
            &[$($need::<$backend>()),*],
            || {
                let device = Default::default();
                $name::<$backend>(&device);
                // What was given to the device and not read: a process that ends before may crash in its driver.
                <$backend as burn::tensor::backend::Backend>::sync(&device).expect("the device did what it was given");
            },
        )
    };
}

// What a program sees depends on the features of this crate, not on its own.
#[doc(hidden)]
#[macro_export]
#[cfg(feature = "vulkan")]
macro_rules! on_vulkan {
    ($($code:tt)*) => { $($code)* };
}
#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "vulkan"))]
macro_rules! on_vulkan {
    ($($code:tt)*) => {};
}
#[doc(hidden)]
#[macro_export]
#[cfg(feature = "cuda")]
macro_rules! on_cuda {
    ($($code:tt)*) => { $($code)* };
}
#[doc(hidden)]
#[macro_export]
#[cfg(not(feature = "cuda"))]
macro_rules! on_cuda {
    ($($code:tt)*) => {};
}
