//! One body, one named test per backend of the build.

/// A test of each backend for every body in the module `$bodies`: generic in the backend, called with its device.
macro_rules! on_every_backend {
    ($bodies:path; $($name:ident),+ $(,)?) => {
        mod cpu {
            use $bodies as bodies;
            $(#[test] fn $name() { bodies::$name::<burn_flex::Flex>(&Default::default()); })+
        }
        #[cfg(feature = "vulkan")]
        mod vulkan {
            use $bodies as bodies;
            $(#[test] fn $name() {
                if crate::backends::vulkan_or_skip(stringify!($name)) {
                    bodies::$name::<graphsieve_kernels::Vulkan>(&Default::default());
                }
            })+
        }
        #[cfg(feature = "cuda")]
        mod cuda {
            use $bodies as bodies;
            $(#[test] fn $name() {
                if crate::backends::cuda_or_skip(stringify!($name)) {
                    bodies::$name::<graphsieve_kernels::Cuda>(&Default::default());
                }
            })+
        }
    };
}

/// Whether Vulkan tests run; without a driver they say so, or fail where the environment demands one.
#[cfg(feature = "vulkan")]
pub fn vulkan_or_skip(test: &str) -> bool {
    run_or_skip(test, "Vulkan", "GRAPHSIEVE_REQUIRE_VULKAN", graphsieve_kernels::device::probe_vulkan().err())
}

/// Whether CUDA tests run.
#[cfg(feature = "cuda")]
pub fn cuda_or_skip(test: &str) -> bool {
    run_or_skip(test, "CUDA", "GRAPHSIEVE_REQUIRE_CUDA", graphsieve_kernels::device::probe_cuda().err())
}

#[cfg(any(feature = "vulkan", feature = "cuda"))]
fn run_or_skip(test: &str, api: &str, demand: &str, missing: Option<String>) -> bool {
    let Some(reason) = missing else { return true };
    assert!(std::env::var_os(demand).is_none(), "{demand} is set but there is no {api} device: {reason}");
    eprintln!("{test}: skipped: no {api} device: {reason}");
    false
}
