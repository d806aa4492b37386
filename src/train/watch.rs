//! Memory of a device while something runs on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use graphsieve_kernels::{DeviceMemory, MemoryBackend};

/// What `run` returns, and the largest samples of the memory that `device` has taken for the calling thread meanwhile,
/// one every `pause`: what lives between two samples is not seen. `None` where the backend does not tell.
pub fn watched<B: MemoryBackend, T>(
    device: &B::Device,
    pause: Duration,
    run: impl FnOnce() -> T,
) -> (T, Option<DeviceMemory>) {
    let Some(probe) = B::memory_probe(device) else { return (run(), None) };
    let done = AtomicBool::new(false);
    let (ran, peak) = thread::scope(|scope| {
        let done = &done;
        let sampler = scope.spawn(move || {
            let mut peak = probe();
            while !done.load(Ordering::Relaxed) {
                if !pause.is_zero() {
                    thread::park_timeout(pause);
                }
                peak = peak.max(probe());
            }
            peak
        });
        let stop = Stop(done);
        let ran = run();
        drop(stop);
        sampler.thread().unpark();
        (ran, sampler.join().unwrap_or_default())
    });
    (ran, Some(peak).filter(|peak| *peak != DeviceMemory::default()))
}

/// Ends the sampling, also when what runs panics: the scope waits for its threads.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;

    #[test]
    fn the_processor_has_no_memory_of_its_own() {
        assert_eq!(watched::<Flex, _>(&FlexDevice, Duration::ZERO, || 7), (7, None));
    }
}
