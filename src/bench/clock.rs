//! Wall time of repeated runs, the device's queue emptied around each.

use std::time::Instant;

use burn::tensor::backend::Backend;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::models::device_graph::check_device;

/// Runs before the timed ones: kernels are compiled and caches filled.
pub const WARM_UP: usize = 3;

/// Milliseconds of repeated runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// The first run of all, compilation included; not among the others.
    pub first_ms: f64,
    pub min_ms: f64,
    pub lower_quartile_ms: f64,
    pub median_ms: f64,
    pub upper_quartile_ms: f64,
}

impl Times {
    /// Of timed runs in any order.
    ///
    /// # Panics
    /// Without a run.
    pub fn of(first_ms: f64, mut runs_ms: Vec<f64>) -> Self {
        runs_ms.sort_by(f64::total_cmp);
        // Between the two nearest runs, linearly.
        let quantile = |q: f64| {
            let at = q * (runs_ms.len() - 1) as f64;
            let (below, above) = (runs_ms[at.floor() as usize], runs_ms[at.ceil() as usize]);
            below + (above - below) * at.fract()
        };
        Self {
            first_ms,
            min_ms: quantile(0.0),
            lower_quartile_ms: quantile(0.25),
            median_ms: quantile(0.5),
            upper_quartile_ms: quantile(0.75),
        }
    }
}

/// Times `run`.
///
/// # Errors
/// What `run` reports, or a device that failed.
pub fn time<B: Backend>(device: &B::Device, runs: usize, mut run: impl FnMut() -> Result<()>) -> Result<Times> {
    let mut once = || {
        sync::<B>(device)?;
        let start = Instant::now();
        run()?;
        sync::<B>(device)?;
        Ok::<f64, Error>(start.elapsed().as_secs_f64() * 1e3)
    };
    let first = once()?;
    for _ in 1..WARM_UP {
        once()?;
    }
    let times = (0..runs).map(|_| once()).collect::<Result<_>>()?;
    Ok(Times::of(first, times))
}

/// Waits until the device has done everything that was asked of it.
///
/// # Errors
/// [`Error::Device`] when it could not.
pub fn sync<B: Backend>(device: &B::Device) -> Result<()> {
    B::sync(device).map_err(|failure| Error::Device {
        device: format!("{device:?}"),
        reason: failure.to_string(),
        help: "try a smaller graph, another --dtype or another device".into(),
    })?;
    check_device()
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};

    use super::*;

    #[test]
    fn quartiles_lie_between_the_nearest_runs() {
        let times = Times::of(9.0, vec![4.0, 1.0, 2.0, 3.0]);
        let expected =
            Times { first_ms: 9.0, min_ms: 1.0, lower_quartile_ms: 1.75, median_ms: 2.5, upper_quartile_ms: 3.25 };
        assert_eq!(times, expected);
        assert_eq!(Times::of(0.0, vec![5.0, 1.0, 3.0]).median_ms, 3.0);
        let single = Times::of(0.0, vec![7.0]);
        assert_eq!((single.min_ms, single.median_ms, single.upper_quartile_ms), (7.0, 7.0, 7.0));
    }

    #[test]
    fn every_run_happens_and_an_error_ends_them() {
        let mut count = 0;
        let counted = time::<Flex>(&FlexDevice, 5, || {
            count += 1;
            Ok(())
        });
        assert!(counted.is_ok_and(|times| times.min_ms <= times.median_ms));
        assert_eq!(count, WARM_UP + 5);
        let failed = time::<Flex>(&FlexDevice, 5, || {
            count += 1;
            Err(Error::Exists { path: "x".into(), help: String::new() })
        });
        assert!(failed.is_err());
        assert_eq!(count, WARM_UP + 6);
    }
}
