//! Peak memory of one run.

use std::time::Duration;

use graphsieve_kernels::{DeviceMemory, MemoryBackend};
use serde::Serialize;

use super::clock::sync;
use crate::error::Result;
use crate::memory::{forget_peak, resident_peak};
use crate::train::watch::watched;

/// Runs that are watched on a GPU: samples may miss the peak of a single one.
pub const WATCHED_RUNS: usize = 3;

/// The most memory that was held during a run, with everything that was there before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// On a GPU the largest sample of the bytes in living tensors, on the processor the largest resident set of the
    /// process, data on the host included.
    pub bytes: u64,
    /// What the GPU's allocator took from the driver for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<u64>,
}

/// Watches the memory while `run` runs, which is not timed. `None` where the system does not tell.
///
/// On a GPU the results of `run` always count; what lives only within it counts when a sample meets it, so the figure
/// may be somewhat low for a run of microseconds.
///
/// # Errors
/// What `run` reports, or a device that failed.
pub fn peak<B: MemoryBackend, T>(device: &B::Device, mut run: impl FnMut() -> Result<T>) -> Result<Option<Peak>> {
    B::memory_cleanup(device);
    sync::<B>(device)?;
    let Some(at_end) = B::memory_probe(device) else { return resident(run).map(|(_, peak)| peak) };
    let (ran, sampled) = watched::<B, _>(device, Duration::ZERO, || {
        (0..WATCHED_RUNS).try_fold(DeviceMemory::default(), |peak, _| {
            let results = run()?;
            sync::<B>(device)?;
            let peak = peak.max(at_end());
            drop(results);
            Ok(peak)
        })
    });
    let peak = ran?.max(sampled.unwrap_or_default());
    Ok((peak != DeviceMemory::default()).then_some(Peak { bytes: peak.in_use, reserved_bytes: Some(peak.reserved) }))
}

/// The largest resident set of the process during `run`, what was there before it included, with what `run` returns.
/// `None` where the system does not tell.
///
/// # Errors
/// What `run` reports.
pub fn resident<T>(run: impl FnOnce() -> Result<T>) -> Result<(T, Option<Peak>)> {
    forget_peak();
    let done = run()?;
    Ok((done, resident_peak().map(|bytes| Peak { bytes, reserved_bytes: None })))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::hint::black_box;

    use burn_flex::{Flex, FlexDevice};

    use super::*;

    #[test]
    fn memory_that_was_given_back_in_between_is_seen() {
        let touch = |bytes: usize| {
            let run = || {
                black_box(vec![1u8; bytes]);
                Ok(())
            };
            peak::<Flex, _>(&FlexDevice, run).unwrap().unwrap().bytes
        };
        assert!(touch(256 << 20) >= 256 << 20);
    }
}
